"""A server in its own process, and lightweight clients that each send a request, wait for the reply, and repeat."""

import asyncio
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_ADDRESS = re.compile(r"serving .* at http://([\d.]+):(\d+)")
_LENGTH = re.compile(rb"content-length: (\d+)")
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A server that is ready."""

    host: str
    port: int
    pid: int

    def seconds_worked(self) -> float:
        """CPU time that the server has used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_mb(self) -> float:
        """Resident memory of the server, in MB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6


@contextlib.contextmanager
def served(models: Sequence[str | Path], *options: str, threads: int) -> Iterator[Process]:
    """A server of these models; it is stopped at the end, and must exit cleanly.

    Args:
        models: folders, or NAME=FOLDER.
        options: options of `bertsmith serve`.
        threads: threads per model.
    """
    named = [part for model in models for part in ("--model", str(model))]
    command = [sys.executable, "-m", "bertsmith", "serve", "--port", "0", *named, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if address := _ADDRESS.search(line):
                yield Process(address[1], int(address[2]), process.pid)
                break
        else:
            raise SystemExit("".join(said))
    finally:
        process.terminate()
        rest = process.communicate(timeout=60)[1]
    if process.returncode or rest:
        raise SystemExit(f"the server ended with code {process.returncode}: {rest}")


class Reply(NamedTuple):
    """The reply to a request, and its latency in seconds."""

    status: int
    body: bytes
    seconds: float


def request_bytes(path: str, body: Any, *, key: str = "") -> bytes:
    """The bytes of a POST request with a JSON body, and with a key if there is one; a bytes body is sent as is."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["host: localhost", "content-type: application/json", f"content-length: {len(content)}"]
    lines += [f"authorization: Bearer {key}"] if key else []
    return "\r\n".join((f"POST {path} HTTP/1.1", *lines, "", "")).encode() + content


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Reply:
    """The reply to a request, over a keep-alive connection."""
    start = time.perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    assert length is not None, head
    body = await reader.readexactly(int(length[1]))
    return Reply(int(head[9:12]), body, time.perf_counter() - start)


async def ask_all(process: Process, requests: Sequence[bytes], clients: int) -> list[Reply]:
    """The replies to the requests, in order, from this many clients with one keep-alive connection each."""
    replies: dict[int, Reply] = {}
    left = iter(range(len(requests)))

    async def client() -> None:
        reader, writer = await asyncio.open_connection(process.host, process.port)
        for number in left:
            replies[number] = await converse(reader, writer, requests[number])
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(clients)))
    return [replies[number] for number in range(len(requests))]
