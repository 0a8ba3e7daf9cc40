"""The server process: the command, well-behaved and other clients, and shutdown without lost requests."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import uvicorn

from bertsmith.app.server import process as server_process
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from server.models import write_models
from written_files import file_with

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

ADDRESS = re.compile(rb"serving (.*) at http://127\.0\.0\.1:(\d+)")


class Server(NamedTuple):
    """A running process."""

    process: "subprocess.Popen[bytes]"
    port: int

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json", **headers})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code after a signal, and what was written to stderr meanwhile."""
        self.process.send_signal(number)
        err = self.process.communicate(timeout=120)[1]
        return self.process.returncode, err.decode()


@contextlib.contextmanager
def started(*arguments: object, limits: Sequence[str] = ()) -> Iterator[Server]:
    # If the tests run in the background, SIGINT is ignored, and child processes inherit that.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    program += "from bertsmith.app.cli.app import main; main()"
    command = [sys.executable, "-c", program, "serve", "--port", "0", *map(str, arguments)]
    if limits:
        command = ["/bin/bash", "-c", f'{" ".join(limits)} exec "$@"', "bash", *command]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        said = b""
        for line in process.stderr:
            said += line
            if address := ADDRESS.search(line):
                yield Server(process, int(address[2]))
                break
        else:
            raise AssertionError(said.decode())
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(paths: dict[str, Path]) -> Iterator[Server]:
    limits = ("--read-seconds", "1", "--write-seconds", "1", "--max-characters", "200000")
    with started("--model", paths["novels"], "--model", f"mine={paths['reviews']}", *limits) as process:
        yield process


def test_the_command_serves_models_by_their_names(server: Server) -> None:
    status, reply = server.ask("GET", "/models")
    assert (status, [model["name"] for model in reply["models"]]) == (200, ["novels", "mine"])
    assert server.ask("POST", "/predict", {"texts": ["the film"]})[1]["model"] == "mine"
    assert server.ask("GET", "/ready") == (200, {"status": "ready"})


def test_the_client_of_openai_gets_its_vectors(server: Server) -> None:
    openai = pytest.importorskip("openai", reason="needs the package openai")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="any", max_retries=0) as client:
        texts = ["the film", "a plot", "the film"]
        packed = client.embeddings.create(model="novels", input=texts)  # the client asks for base64 by itself
        plain = client.embeddings.create(model="novels", input=texts, encoding_format="float")
        assert [item.index for item in packed.data] == [0, 1, 2]
        for row, other in zip(packed.data, plain.data, strict=True):
            assert row.embedding == pytest.approx(other.embedding, rel=BATCH_TOLERANCE, abs=BATCH_TOLERANCE)
        assert packed.data[0].embedding == packed.data[2].embedding
        assert (packed.usage.prompt_tokens, packed.usage.total_tokens) == (12, 12)
        assert [model.id for model in client.models.list()] == ["novels", "mine"]
        short = client.embeddings.create(model="novels", input="the film", dimensions=7)
        assert len(short.data[0].embedding) == 7
        with pytest.raises(openai.NotFoundError, match="no model 'absent' is served here"):
            client.embeddings.create(model="absent", input="the film")
        with pytest.raises(openai.UnprocessableEntityError, match="input"):
            client.embeddings.create(model="novels", input=[])


def test_a_key_is_required(paths: dict[str, Path], tmp_path: Path) -> None:
    file = file_with(tmp_path / "key", "0123456789abcdef\n")
    with started("--model", paths["novels"], "--api-key-file", file) as server:
        assert server.ask("GET", "/models")[0] == 401
        assert server.ask("GET", "/models", authorization="Bearer 0123456789abcdef")[0] == 200
        assert server.ask("GET", "/health") == (200, {"status": "ok"})


def test_ten_megabytes_are_refused_with_a_reply(server: Server) -> None:
    status, reply = server.ask("POST", "/fill", {"texts": ["x" * 10_000_000]})
    assert status == 413
    assert "split the request" in reply["error"]["message"]


def test_a_body_in_chunks_is_read(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    with contextlib.closing(connection):
        parts = [b'{"texts": ["the ', b'[MASK] film"]}']
        connection.request("POST", "/fill", iter(parts), {"content-type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /fill HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_refused(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(sent)
        assert connection.recv(100).startswith(b"HTTP/1.1 40")
    assert server.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    "sent", [b"", b"POST /fill HT", b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: a\r\n"]
)
def test_an_unfinished_request_is_disconnected(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_an_unfinished_body_gets_a_reply(server: Server) -> None:
    head = b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(head + b'{"texts":')
        reply = connection.recv(10_000)
        assert reply.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in reply.lower()


def test_two_lengths_in_one_request_are_refused_and_end_the_connection(server: Server) -> None:
    head = b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 3\r\n"
    body = b'16\r\n{"texts": ["[MASK]"]}\n\r\n0\r\n\r\n'
    smuggled = b"GET /models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    reply = _everything(server, head + b"transfer-encoding: chunked\r\n\r\n" + body + smuggled)
    assert reply.startswith(b"HTTP/1.1 400")
    assert b"expected content-length or transfer-encoding; found both; send one of them" in reply
    assert reply.count(b"HTTP/1.1") == 1


def test_what_follows_the_last_request_of_a_connection_is_ignored(paths: dict[str, Path]) -> None:
    body = json.dumps({"texts": ["the [MASK]" + " film" * (number % 50) for number in range(500)]}).encode()
    head = "POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close"
    request, replies = f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body, []
    with started("--model", paths["novels"]) as server:
        for _ in range(20):
            # On a busy machine the reply may be there, and the connection closed, before the rest is sent.
            with contextlib.suppress(ConnectionError):
                replies += [reply] if (reply := _everything(server, request, b"more", b"and more")) else []
            if len(replies) == 3:
                break
        assert server.end() == (0, "")
    assert replies
    assert all(reply.startswith(b"HTTP/1.1 200") and reply.count(b"HTTP/1.1") == 1 for reply in replies)


def test_a_damaged_body_gets_one_reply(paths: dict[str, Path]) -> None:
    head = b"POST /fill HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    with started("--model", paths["novels"]) as server:
        for host in (b"localhost", b"evil.example"):
            reply = _everything(server, head % host, b"no number\r\n")
            assert reply.startswith(b"HTTP/1.1 400")
            assert reply.count(b"HTTP/1.1") == 1
        assert server.end() == (0, "")


def test_a_foreign_host_name_is_refused_by_a_local_server(server: Server) -> None:
    assert server.ask("GET", "/models", host="evil.example")[0] == 421
    assert server.ask("GET", "/models", host=f"localhost:{server.port}")[0] == 200


def test_another_host_name_can_be_allowed(paths: dict[str, Path]) -> None:
    with started("--model", paths["novels"], "--allow-host", "a.example", "--allow-host", "b.example") as server:
        for name, status in (("a.example", 200), ("B.example", 200), ("localhost", 200), ("c.example", 421)):
            assert server.ask("GET", "/models", host=name)[0] == status
    result = run("--model", paths["novels"], "--allow-host", "http://a.example")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "expected a host name or an address without a port" in result.stderr


def test_head_over_a_socket_is_answered_without_a_body_and_keeps_the_connection(server: Server) -> None:
    head = b"HEAD /models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    reply = _everything(server, head + head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert reply.count(b"HTTP/1.1 200") == 2
    assert b"{" not in reply


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_half_closed_client_gets_all_its_replies(server: Server, version: bytes) -> None:
    body = json.dumps({"texts": ["the [MASK] film " * 10] * 200}).encode()
    head = b"POST /fill HTTP/%s\r\nhost: localhost\r\ncontent-type: application/json\r\n" % version
    ask = head + b"connection: keep-alive\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    count = 2 if version == b"1.1" else 1
    reply = _everything(server, ask * count, half_close=True)
    assert reply.count(b"HTTP/1.1 200") == count
    assert reply.count(b'"usage"') == count
    assert (b"100 Continue" in reply) <= (version == b"1.1")


def test_a_half_closed_client_without_a_whole_request_is_disconnected(server: Server) -> None:
    head = b"POST /fill HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    for sent in (b"", b"GET /mod", head + b"content-length: 50\r\n\r\n{"):
        assert _everything(server, sent, half_close=True) == b""


def test_a_client_that_is_gone_is_still_noticed(paths: dict[str, Path]) -> None:
    with started("--model", paths["novels"], "--batch-tokens", "1") as server:
        body = json.dumps({"model": "novels", "input": ["the film was good " * 10] * 2000}).encode()
        head = b"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
            connection.sendall(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
            _until(lambda: _metric(server, "bertsmith_waiting_texts") > 0)
        _until(lambda: _metric(server, 'bertsmith_dropped_requests_total{model="novels"') == 1)


def _everything(server: Server, *sent: bytes, half_close: bool = False) -> bytes:
    """All bytes that the server sends until it closes the connection; what it is sent arrives in parts."""
    result = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        for number, part in enumerate(sent):
            time.sleep(0.01 * (number > 0))
            connection.sendall(part)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                result += part
    return result


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux ends such connections, and shows them")
def test_a_client_that_never_reads_is_disconnected_and_affects_no_other(server: Server) -> None:
    body = json.dumps({"texts": ["the " * 49_000]}).encode()
    head = (
        f"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(120)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        mine = connection.getsockname()[1]
        _until(lambda: _unread_bytes(server.port, mine) > 0)
        assert server.ask("POST", "/fill", {"texts": ["the [MASK]"]})[0] == 200
        _until(lambda: _unread_bytes(server.port, mine) == 0)


def test_a_client_that_reads_too_slowly_is_disconnected_and_does_not_fill_the_log(paths: dict[str, Path]) -> None:
    body = json.dumps({"texts": ["the " * 250_000]}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    limits = ("--write-seconds", "1", "--write-rate", "1000000000")
    with started("--model", paths["novels"], *limits) as server:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            connection.settimeout(120)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
            result = connection.recv(16_384)
            length, received = int(re.search(rb"content-length: (\d+)", result)[1]), len(result)
            while _metric(server, "bertsmith_held_bytes"):
                time.sleep(0.05)
                received += len(connection.recv(16_384))
            with contextlib.suppress(OSError):
                while result := connection.recv(1_048_576):
                    received += len(result)
            assert received < length
        assert server.end() == (0, "")


def _unread_bytes(port: int, client: int) -> int:
    """The bytes sent by a server that its client has not read; 0 if they are no longer connected."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues = line.split()[:5]
        if (int(local.split(":")[1], 16), int(remote.split(":")[1], 16), state) == (port, client, "01"):
            return int(queues.split(":")[0], 16)
    return 0


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_an_excess_connection_is_refused_and_the_others_continue(paths: dict[str, Path]) -> None:
    with started("--model", paths["novels"], "--max-connections", "2") as server, contextlib.ExitStack() as stack:
        first, second, third = (
            stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)))
            for _ in range(3)
        )
        assert _fill(first) == _fill(second) == 200
        assert _fill(third) == 503
        assert third.sock is None, "it was told that the connection ends"
        assert _fill(first) == _fill(second) == 200
        assert server.ask("GET", "/health") == (200, {"status": "ok"})
        assert server.ask("GET", "/models")[0] == 503
        assert _metric(server, "bertsmith_connections ") == 3
        assert _metric(server, 'bertsmith_requests_total{route="/fill",status="503"}') == 1
        assert _metric(server, 'bertsmith_refused_connections_total{how="refused"}') == 2
        second.close()
        _until(lambda: _fill(third) == 200)


def _fill(connection: http.client.HTTPConnection) -> int:
    """The status of a request; checks the format of a refusal."""
    connection.request("POST", "/fill", json.dumps({"texts": ["the [MASK]"]}), {"content-type": "application/json"})
    reply = connection.getresponse()
    body = json.loads(reply.read())
    if reply.status == 503:
        assert body["error"]["type"] == "overloaded_error"
        assert body["error"]["message"].startswith("the limit of 2 connections is reached; try again")
        assert int(reply.getheader("retry-after")) > 0
    return reply.status


def test_idle_connections_are_limited_and_do_not_block_others(paths: dict[str, Path]) -> None:
    with started("--model", paths["novels"], "--max-connections", "4") as server, contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=120)) for _ in range(12)
        ]
        _until(lambda: _metric(server, 'bertsmith_refused_connections_total{how="aborted"}') >= 12 - 4 - 1)
        assert _metric(server, "bertsmith_connections ") <= 6
        assert server.ask("GET", "/health") == (200, {"status": "ok"})
        for connection in silent[4:10]:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(10) == b""
        for connection in silent[:4]:  # who came first is still served
            connection.sendall(b"GET /models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_sigterm_under_load_loses_no_accepted_request(paths: dict[str, Path]) -> None:
    answered: list[int] = []
    lost: list[BaseException] = []
    told = []
    with started("--model", paths["novels"], "--batch-tokens", "64") as server:

        def client(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            body = json.dumps({"input": [f"the film {number}", "a plot"] * 4})
            while number not in told:
                try:
                    connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
                    reply = connection.getresponse()
                    assert len(json.loads(reply.read())["data"]) == 8
                except (OSError, http.client.HTTPException) as error:
                    lost.append(error)
                    return
                answered.append(reply.status)
                if reply.getheader("connection") == "close":
                    told.append(number)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(16)]
        for thread in clients:
            thread.start()
        while len(answered) < 100:
            time.sleep(0.01)
        code, err = server.end()
        for thread in clients:
            thread.join()
    assert lost == []
    assert set(answered) == {200}
    assert sorted(told) == list(range(16)), "each was told that the server leaves"
    assert (code, err) == (0, "")


def test_what_is_being_computed_when_sigterm_comes_is_still_answered(paths: dict[str, Path]) -> None:
    replies: list[tuple[int, Any]] = []
    with started("--model", paths["novels"], "--batch-tokens", "1", "--leave-seconds", "0") as server:
        asked = {"model": "novels", "input": ["the film was good " * 10] * 1000, "encoding_format": "base64"}
        clients = [
            threading.Thread(target=lambda: replies.append(server.ask("POST", "/v1/embeddings", asked)))
            for _ in range(3)
        ]
        for thread in clients:
            thread.start()
        while not _metric(server, "bertsmith_waiting_texts"):
            time.sleep(0.01)
        code, err = server.end()
        for thread in clients:
            thread.join()
    assert [(status, len(reply["data"])) for status, reply in replies] == [(200, 1000)] * 3
    assert (code, err) == (0, "")


def test_clients_cannot_fill_the_log(paths: dict[str, Path]) -> None:
    with started("--model", paths["novels"]) as server:
        upgrade = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        for request, status in ((upgrade, b"200"), (b"no HTTP\r\n\r\n", b"400"), (b"\x16\x03\x01\x02", b"400")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
                connection.sendall(request)
                assert connection.recv(100).startswith(b"HTTP/1.1 " + status)
        assert server.end() == (0, "")


def _metric(server: Server, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def test_ctrl_c_ends_it_with_code_130(paths: dict[str, Path]) -> None:
    with started("--model", paths["novels"]) as server:
        assert server.ask("GET", "/health")[0] == 200
        code, err = server.end(signal.SIGINT)
    assert code == 130
    assert "Traceback" not in err


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bertsmith", "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_more_connections_than_the_system_allows_are_refused(paths: dict[str, Path]) -> None:
    resource = pytest.importorskip("resource")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("the system has no limit")
    result = run("--model", paths["novels"], "--max-connections", hard)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert (
        f"for --max-connections, as this system allows a process {hard:,} open files; found {hard:,};" in result.stderr
    )


def test_more_clients_than_descriptors_leave_health_and_the_log_alone(paths: dict[str, Path]) -> None:
    limited = ("ulimit -Sn 200;", "ulimit -Hn 900;")
    with started("--model", paths["novels"], "--max-connections", "200", limits=limited) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(1200):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=120))
            assert server.ask("GET", "/health") == (200, {"status": "ok"})
        code, err = server.end()
    assert code == 0
    assert len(err) < 1000, err[:2000]


def test_an_address_in_use_is_one_line(paths: dict[str, Path]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = run("--model", paths["novels"], "--port", other.getsockname()[1])
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "expected to listen on 127.0.0.1" in result.stderr
    assert "Address already in use" in result.stderr


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    result = run("--model", tmp_path / "absent")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "absent" in result.stderr


def test_a_server_that_cannot_start_is_refused_before_its_models_are_loaded(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        for option, value, expected in (
            ("--allow-host", "http://models.example.org", "expected a host name or an address without a port"),
            ("--max-connections", 2**40, "for --max-connections, as this system allows a process"),
            ("--port", other.getsockname()[1], "expected to listen on 127.0.0.1"),
        ):
            result = run("--model", tmp_path / "absent", option, value)
            assert (result.returncode, result.stderr.count("\n")) == (1, 1)
            assert expected in result.stderr


def test_freed_memory_is_returned_twice_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    returns: list[int] = []
    monkeypatch.setattr(server_process, "return_freed_memory", lambda: returns.append(1))
    server = server_process._Server(uvicorn.Config(Mock()), Mock(), "")

    async def minute() -> None:
        for tick in range(600):
            await server.on_tick(tick)

    asyncio.run(minute())
    assert len(returns) == 2
