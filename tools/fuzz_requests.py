"""Send random and damaged HTTP requests to a server with tiny models of every kind, and report what it must never do.

    python tools/fuzz_requests.py --minutes 10            # until the time is up
    python tools/fuzz_requests.py --cases 300 --seed 7    # the same cases on every machine
    python tools/fuzz_requests.py --seed 7 --case 41      # one case again

The server is a process of its own (`bertsmith serve`). Each case is a function of the seed and its number: bytes that
are sent over a socket of their own, in one or more pieces. A finding is a status 500, a connection that is neither
answered nor closed, a line in the server's log, memory that grows beyond `MOST_GROWTH`, or a good request that is
answered differently afterwards. The bytes of a finding are written to the folder --out; the exit code is 1 if there
is one.
"""

import argparse
import collections
import contextlib
import copy
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fuzzing import changed, damaged, finish

from bertsmith.base.core.randomness import generator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

PATIENCE = 40.0  # seconds until a silent connection is a finding
MOST_GROWTH = 600_000_000  # bytes of resident memory
LOOK_EVERY = 20  # cases
LIMITS = ("--read-seconds", "1", "--request-seconds", "20", "--max-connections", "50", "--max-held", "50000000")
STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d)")
GOOD = {"texts": ["the [MASK] film"], "model": "novels"}
PATHS = ("/", "/health", "/ready", "/metrics", "/models", "/v1/models", "/docs", "/openapi.json", "/page/app.js",
         "/page/../x", "//", "/%00", "/fill/", "/fill?x=1", "*", "http://localhost/health",
    "/" + "a" * 9000)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get", "X" * 300)
HEADERS = (
    b"content-length: 5", b"content-length: -1", b"content-length: 99999999999999999999", b"content-length: 3, 4",
    b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"transfer-encoding: identity",
    b"content-encoding: gzip", b"content-encoding: br", b"expect: 100-continue", b"connection: close",
    b"connection: upgrade\r\nupgrade: websocket", b"connection: upgrade\r\nupgrade: h2c", b"host: evil.example",
    b"host:", b"content-type: text/plain", b"content-type: application/json; charset=utf-16",
    b"authorization: bearer x",
    b"if-none-match: *", b"range: bytes=0-", b"x: " + b"y" * 70_000, b"x\x00: y", b"\xff: y", b": y", b" folded",
)  # fmt: skip


class Case(NamedTuple):
    """What one connection does.

    Attributes:
        kind: for the counts.
        pieces: sent one after the other.
        half_close: close the sending side at the end, so that the server closes the connection after its replies.
        hang_up: close the connection without reading.
    """

    kind: str
    pieces: list[bytes]
    half_close: bool = True
    hang_up: bool = False


def case_of(seed: int, number: int) -> Case:
    """The case with this number."""
    draw = generator(seed, "fuzz requests", number)
    kinds: tuple[tuple[str, Callable[[np.random.Generator], bytes]], ...] = (
        ("json", json_request), ("json", json_request), ("json", json_request), ("bytes in json", damaged_json),
        ("gzip", gzip_request), ("http", damaged_http), ("headers", odd_headers), ("routes", odd_route),
        ("pipelined", pipelined), ("noise", noise), ("chunks", chunked),
    )  # fmt: skip
    kind, make = kinds[int(draw.integers(len(kinds)))]
    sent = make(draw)
    cuts = sorted(draw.integers(0, len(sent) + 1, int(draw.integers(0, 4))).tolist())
    pieces = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    ending = draw.random()
    return Case(kind, pieces, half_close=ending < 0.9, hang_up=ending > 0.97)


def json_request(draw: np.random.Generator) -> bytes:
    """A request to a model route whose JSON was changed in a few places."""
    path, body = example(draw)
    for _ in range(int(draw.integers(0, 4))):
        body = changed(body, draw)
    return request("POST", path, json.dumps(body).encode())


def damaged_json(draw: np.random.Generator) -> bytes:
    """A request to a model route whose body is no longer JSON, or not the same."""
    path, body = example(draw)
    return request("POST", path, damaged(json.dumps(body).encode(), draw))


def gzip_request(draw: np.random.Generator) -> bytes:
    """A compressed body: whole, damaged, or one that expands to megabytes."""
    path, body = example(draw)
    plain = json.dumps(body).encode()
    if draw.random() < 0.2:
        plain += b" " * int(draw.integers(1, 30_000_000))
    packed = gzip.compress(plain, 1, mtime=0)
    if draw.random() < 0.4:
        packed = damaged(packed, draw)
    return request("POST", path, packed, b"content-encoding: gzip")


def chunked(draw: np.random.Generator) -> bytes:
    """A body in chunks, sometimes with wrong lengths."""
    path, body = example(draw)
    plain, parts = json.dumps(body).encode(), []
    while plain:
        size = int(draw.integers(1, 40))
        said = size if draw.random() > 0.03 else int(draw.integers(0, 10**6))
        parts.append(b"%x\r\n%s\r\n" % (min(said, len(plain)) if said == size else said, plain[:size]))
        plain = plain[size:]
    sent = request("POST", path, None, b"transfer-encoding: chunked") + b"".join(parts) + b"0\r\n\r\n"
    return damaged(sent, draw) if draw.random() < 0.2 else sent


def damaged_http(draw: np.random.Generator) -> bytes:
    """A request with bytes flipped, inserted, removed or repeated anywhere."""
    path, body = example(draw)
    return damaged(request("POST", path, json.dumps(body).encode()), draw)


def odd_headers(draw: np.random.Generator) -> bytes:
    """A request with headers that no client should send."""
    path, body = example(draw)
    lines = [HEADERS[int(draw.integers(len(HEADERS)))] for _ in range(int(draw.integers(1, 4)))]
    return request("POST", path, json.dumps(body).encode(), *lines)


def odd_route(draw: np.random.Generator) -> bytes:
    """A request for any path with any method."""
    method = METHODS[int(draw.integers(len(METHODS)))]
    path = PATHS[int(draw.integers(len(PATHS)))] if draw.random() < 0.7 else example(draw)[0]
    return request(method, path, b"" if draw.random() < 0.5 else None)


def pipelined(draw: np.random.Generator) -> bytes:
    """Several requests at once."""
    makers = (json_request, odd_route, odd_headers)
    return b"".join(makers[int(draw.integers(3))](draw) for _ in range(int(draw.integers(2, 6))))


def noise(draw: np.random.Generator) -> bytes:
    """Bytes without meaning."""
    return draw.bytes(int(draw.integers(0, 3000)))


def request(method: str, path: str, body: bytes | None, *headers: bytes) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"host: localhost", b"content-type: application/json", *headers]
    if body is not None:
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def example(draw: np.random.Generator) -> tuple[str, Any]:
    """A route with a body that it answers."""
    from bertsmith.app.server.documents import EXAMPLES

    path = sorted(EXAMPLES)[int(draw.integers(len(EXAMPLES)))]
    body = copy.deepcopy(dict(EXAMPLES[path]))
    body.pop("model", None)
    return path, body


class Server:
    """A server process with tiny models.

    Args:
        folder: for its models and its log.
    """

    def __init__(self, folder: Path) -> None:
        from server.models import write_models
        from server.records import write_record_models

        self.log = folder / "log"
        paths = {**write_models(folder / "models"), **write_record_models(folder / "models")}
        models = [part for path in paths.values() for part in ("--model", str(path))]
        command = [sys.executable, "-m", "bertsmith", "serve", "--port", "0", *models, *LIMITS]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
        while not (address := re.search(r"serving .* at http://127\.0\.0\.1:(\d+)\n", self.text())):
            assert self.process.poll() is None, self.text()
            time.sleep(0.05)
        self.port, self.start = int(address[1]), len(self.text())
        self.answer = self.ask()
        self.memory = self.resident()

    def text(self) -> str:
        """What the server has written."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ask(self) -> Any:
        """The answer to a good request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", "/fill", json.dumps(GOOD), {"content-type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

    def resident(self) -> int:
        """Bytes of memory in use; 0 where the system does not tell."""
        status = Path(f"/proc/{self.process.pid}/statm")
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0

    def wrong(self) -> Iterator[str]:
        """What is wrong with the server."""
        if self.process.poll() is not None:
            yield f"the server ended with code {self.process.returncode}: {self.text()[self.start :][-2000:]}"
            return
        try:
            answer = self.ask()
        except (OSError, http.client.HTTPException, ValueError) as error:
            yield f"a good request fails: {error!r}"
        else:
            if answer[0] != 200 or _rounded(answer) != _rounded(self.answer):
                yield f"a good request is answered {str(answer)[:300]}"
        if len(text := self.text()) > self.start:
            yield f"the log says: {text[self.start :][:3000]}"
            self.start = len(text)
        if self.resident() > self.memory + MOST_GROWTH:
            yield f"{self.resident():,} bytes of memory, {self.memory:,} at the start"

    def end(self) -> None:
        """Stops the server."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


def _rounded(answer: Any) -> str:
    return re.sub(r"(\d\.\d{4})\d+", r"\1", json.dumps(answer))


def tried(server: Server, case: Case, counts: "collections.Counter[str]") -> str | None:
    """What is wrong with the replies to a case; None if nothing is."""
    received = b""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        try:
            for piece in case.pieces:
                connection.sendall(piece)
            if case.hang_up:
                counts[f"{case.kind}: hung up"] += 1
                return None
            if case.half_close:
                connection.shutdown(socket.SHUT_WR)
            else:  # it is not known when the last reply has come
                connection.settimeout(0.3)
            while part := connection.recv(65_536):
                received = received[-20:] + part if len(received) > 10**6 else received + part
        except TimeoutError:
            if case.half_close:
                return (
                    f"neither answered nor closed after {time.monotonic() - began:.0f} s; received {received[:300]!r}"
                )
        except OSError:  # closed by the server while it was sent to
            pass
    statuses = [int(status) for status in STATUS.findall(received) if status != b"100"]
    counts[f"{case.kind}: {statuses[0] if statuses else 'closed'}"] += 1
    wrong = [status for status in statuses if status >= 500 and status not in (503, 504)]
    return f"status {wrong[0]}: {received[:500]!r}" if wrong else None


def main() -> None:
    """Runs the cases, prints the counts, and exits with 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long [5]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="this many cases instead of a time")
    parser.add_argument("--case", type=int, metavar="N", help="only this case")
    parser.add_argument(
        "--out", type=Path, default=Path("fuzz-findings"), metavar="DIR", help="for the bytes of findings"
    )
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    findings: list[str] = []
    ends = time.monotonic() + 60 * options.minutes
    folder = Path(tempfile.mkdtemp(prefix="bertsmith-fuzz-"))
    server = Server(folder)

    def note(number: int, sentence: str) -> None:
        findings.append(f"seed {options.seed} case {number}: {sentence}")
        options.out.mkdir(parents=True, exist_ok=True)
        sent = b"".join(case_of(options.seed, number).pieces)
        (options.out / f"request-{options.seed}-{number}.bin").write_bytes(sent)
        print(findings[-1], file=sys.stderr, flush=True)

    try:
        number = 0 if options.case is None else options.case
        while True:
            case = case_of(options.seed, number)
            if (sentence := tried(server, case, counts)) is not None:
                note(number, sentence)
            is_last = options.case is not None or (
                number + 1 >= options.cases if options.cases else time.monotonic() > ends
            )
            if is_last or number % LOOK_EVERY == 0:
                for sentence in server.wrong():
                    note(number, f"(or up to {LOOK_EVERY} cases before) {sentence}")
            if is_last or server.process.poll() is not None:
                break
            number += 1
    finally:
        server.end()
        shutil.rmtree(folder)
    finish(counts, len(findings))


if __name__ == "__main__":
    main()
