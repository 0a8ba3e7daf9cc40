"""Soak test: 64 clients on a server for ten minutes; no request is lost or hangs, and memory does not grow.

    python benchmarks/server_soak.py --data DIR --model DIR [--model DIR ...] [--minutes 10] [--clients 64]

Each client sends one request after another, of any kind that the models support, with one to eight texts of any length.
One request in twenty is invalid JSON or asks for something that does not exist, and in one of twenty the client
disconnects before the reply. Resident memory is sampled every two seconds. Its growth is the mean of the last quarter
relative to the mean of the second, because caches fill in the first quarter. Anything left in a queue at the end is an
error.
"""

import argparse
import asyncio
import collections
import json
import os
import statistics
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from encode_texts import read_pools
from harness import machine, machine_label, write_result
from server_process import Process, converse, request_bytes, served

SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_TO_SETTLE = 30.0
BAD, HANG_UP = 0.05, 0.05
ROUTES = {
    "embed": ("/v1/embeddings", lambda texts: {"input": texts, "encoding_format": "base64"}),
    "classify": ("/predict", lambda texts: {"texts": texts}),
    "score": ("/predict", lambda texts: {"texts": texts}),
    "choose": ("/predict", lambda texts: {"questions": [{"context": texts[0], "endings": [*texts, "so"]}]}),
    "tag": ("/tag", lambda texts: {"texts": texts}),
    "answer": (
        "/answer",
        lambda texts: {"questions": [{"question": "Who was it?", "context": text} for text in texts]},
    ),
    "fill": ("/fill", lambda texts: {"texts": [f"{text[:200]} [MASK]" for text in texts]}),
    "next_sentence": ("/next", lambda texts: {"pairs": [[text, texts[0]] for text in texts]}),
    "rerank": ("/rerank", lambda texts: {"query": texts[0][:100], "passages": texts}),
    "tokenize": ("/tokenize", lambda texts: {"texts": texts}),
    "attention": ("/attention", lambda texts: {"text": texts[0][:200]}),
}
OF_ALL = ("tokenize", "attention")  # supported by every model, but not listed by it
NO_JSON = b"{"
LEFT = ("bertsmith_waiting_texts", "bertsmith_held_bytes")


class Soak:
    """The clients and their results.

    Args:
        process: the server.
        texts: texts for the requests.
        ends: when to stop sending requests, in seconds of `time.monotonic`.
    """

    def __init__(self, process: Process, texts: list[str], ends: float) -> None:
        self.process, self.texts, self.ends = process, texts, ends
        with urllib.request.urlopen(f"http://{process.host}:{process.port}/models") as reply:
            models = json.load(reply)["models"]
        self.asked = [
            (model["name"], ability)
            for model in models
            for ability in (*model["abilities"], *OF_ALL)
            if ability in ROUTES
        ]
        self.statuses: collections.Counter[str] = collections.Counter()
        self.seconds: list[float] = []
        self.memory: list[float] = []

    def request(self, draw: np.random.Generator) -> bytes:
        """A random request."""
        name, ability = self.asked[draw.integers(len(self.asked))]
        path, shape = ROUTES[ability]
        texts = [self.texts[number] for number in draw.integers(len(self.texts), size=draw.integers(1, 9))]
        if draw.random() < BAD:
            return request_bytes(path, [{}, {"texts": [1]}, {"model": "absent"}, "x" * 9000, NO_JSON][draw.integers(5)])
        return request_bytes(path, {"model": name, **shape(texts)})

    async def client(self, number: int) -> None:
        """Runs one client until the end."""
        draw = np.random.default_rng(number)
        while time.monotonic() < self.ends:
            reader, writer = await asyncio.open_connection(self.process.host, self.process.port)
            while time.monotonic() < self.ends:
                request = self.request(draw)
                if draw.random() < HANG_UP:
                    writer.write(request[: draw.integers(1, len(request) + 1)])
                    await asyncio.sleep(draw.random() * 0.05)
                    self.statuses["hung up"] += 1
                    break
                reply = await converse(reader, writer, request)
                self.statuses[str(reply.status)] += 1
                self.seconds.append(reply.seconds)
            writer.close()
            await writer.wait_closed()

    async def run(self, clients: int) -> None:
        """Runs all clients and samples the memory."""
        working = asyncio.gather(*(self.client(number) for number in range(clients)))
        while not working.done():
            self.memory.append(self.process.resident_mb())
            await asyncio.wait([working], timeout=SECONDS_BETWEEN_LOOKS)
        await working


def left_behind(process: Process) -> dict[str, float]:
    """Work left in the queues of all models, after the server has had time to notice disconnected clients."""
    ends = time.monotonic() + SECONDS_TO_SETTLE
    while True:
        with urllib.request.urlopen(f"http://{process.host}:{process.port}/metrics") as reply:
            left = sums(reply.read().decode(), LEFT)
        if not any(left.values()) or time.monotonic() > ends:
            return left
        time.sleep(SECONDS_BETWEEN_LOOKS)


def sums(metrics: str, names: Sequence[str]) -> dict[str, float]:
    r"""The values of the metrics, each summed over its labels.

    >>> sums('texts{model="a"} 1.0\ntexts{model="b c"} 2.0\nbytes 4.0', ["texts", "bytes"])
    {'texts': 3.0, 'bytes': 4.0}
    """
    totals = dict.fromkeys(names, 0.0)
    for line in metrics.splitlines():
        name = line.split("{")[0].split(" ")[0]
        if name in totals:
            totals[name] += float(line.rsplit(" ", 1)[1])
    return totals


def main() -> None:
    """Runs the soak test, prints and writes the result."""
    options = _options()
    pools = read_pools(options.data)
    texts = [text for pool in pools.texts.values() for text in pool[: options.texts]]
    with served(options.model, "--precision", options.precision, threads=options.threads) as process:
        soak = Soak(process, texts, time.monotonic() + 60 * options.minutes)
        asyncio.run(soak.run(options.clients))
        left = left_behind(process)
    memory = soak.memory
    quarters = [memory[len(memory) * part // 4 : max(1, len(memory) * (part + 1) // 4)] for part in range(4)]
    means = [round(statistics.mean(quarter or memory), 1) for quarter in quarters]
    latencies = np.percentile(soak.seconds, (50, 90, 99)).tolist()
    result: dict[str, Any] = {
        "minutes": options.minutes,
        "clients": options.clients,
        "asked": sorted({ability for _, ability in soak.asked}),
        "statuses": dict(soak.statuses),
        "latency_ms": {
            name: round(1000 * seconds, 1) for name, seconds in zip(("p50", "p90", "p99"), latencies, strict=True)
        },
        "resident_mb_by_quarter": means,
        "growth_share": round(means[3] / means[1] - 1, 4),
        "left_behind": left,
    }
    print(json.dumps(result, indent=1))
    print(f"memory: {means[1]} MB in the second quarter, {means[3]} MB in the last: {result['growth_share']:+.2%}")
    assert "500" not in soak.statuses, "internal server error"
    assert not any(left.values()), f"left in queues: {left}"
    described = machine()
    threads = f"{options.threads}-thread{'s' * (options.threads > 1)}"
    out = f"server_soak_{machine_label(described)}_{threads}_torch-{described['packages']['torch']}"
    write_result(
        options.out or out,
        {"machine": described, **result, "resident_mb": [round(megabytes, 1) for megabytes in memory]},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/ and squad/, or a file of lines")
    parser.add_argument("--model", action="append", required=True, help="FOLDER or NAME=FOLDER; repeatable")
    parser.add_argument("--precision", default="fp32", help="[fp32]")
    parser.add_argument("--minutes", type=float, default=10, help="[10]")
    parser.add_argument("--clients", type=int, default=64, help="[64]")
    parser.add_argument("--texts", type=int, default=1000, help="texts per mix [1000]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="per model [all cores]")
    parser.add_argument("--out", help="name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
