"""Starts a program as several processes that train together; without torchrun, which takes seconds to start."""

import socket
import subprocess
import sys
from pathlib import Path

from training.toy import environment


def launched(program: Path, processes: int, *arguments: object) -> list[str]:
    """What each of the processes writes to stderr."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    source = environment()
    source["PYTHONPATH"] += f":{program.parents[1]}"
    running = [
        subprocess.Popen(
            [sys.executable, str(program), *map(str, arguments)],
            env={**source, **group, "RANK": str(index), "LOCAL_RANK": str(index)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(processes)
    ]
    try:
        said = [process.communicate(timeout=280)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * processes, said
    return said
