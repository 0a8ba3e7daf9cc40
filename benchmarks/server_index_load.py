"""Load test: 64 clients on a served index for ten minutes, some of which change it; memory stays flat, nothing fails.

    python benchmarks/server_index_load.py --index INDEX --texts FILE [--minutes 10] [--clients 64]

The server has a copy of the index, whose files are linked. Each client sends one request after another: searches by
vectors, by words, by both and for given vectors, vectors of texts, additions of 1 to 20 rows, removals of added rows,
requests that are wrong, and oversized ones, which have to be refused with 413, 422 or 429 and one line. Queries and
rows are lines of FILE. Memory is sampled every two seconds: what is resident, and that without the pages of mapped
files. Its growth is the mean of the last quarter relative to that of the second.
"""

import argparse
import asyncio
import collections
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, machine, machine_label, write_result
from server_process import Process, converse, request_bytes, served
from server_soak import SECONDS_BETWEEN_LOOKS, left_behind

from bertsmith import join_indexes
from bertsmith.base.machine.allocator import own_bytes
from bertsmith.base.pages.charts import COLORS, Series, line_chart
from bertsmith.inference.indexes.index import Manifest

KEY = "0123456789abcdef" * 4
SHARES = {
    "search by vectors": 0.35,
    "search by words": 0.15,
    "search by both": 0.1,
    "search for vectors": 0.05,
    "embed": 0.15,
    "add": 0.1,
    "remove": 0.05,
    "wrong": 0.03,
    "oversized": 0.02,
}
METHODS = {"search by vectors": "vectors", "search by words": "bm25", "search by both": "hybrid"}
EXPECTED = {"wrong": {400, 404, 422}, "oversized": {413, 422, 429}}
WRONG: list[tuple[str, Any]] = [
    ("/search", b"{"),
    ("/search", {"query": "a", "where": ["year"]}),
    ("/search", {"vectors": [[1.0]]}),
    ("/search", {"query": "a", "model": "absent"}),
    ("/index/remove", {"ids": ["absent"]}),
    ("/index/add", {"rows": [{"text": "without an id"}]}),
]


class Load:
    """The clients and their results.

    Args:
        process: the server.
        width: of vectors.
        ends: when to stop, in seconds of `time.monotonic`.

    Attributes:
        faults: answers that are not as they should be.
    """

    def __init__(self, process: Process, texts: list[str], width: int, ends: float) -> None:
        self.process, self.texts, self.width, self.ends = process, texts, width, ends
        self.seconds = collections.defaultdict[str, list[float]](list)
        self.statuses = collections.defaultdict[str, collections.Counter[str]](collections.Counter)
        self.memory: list[tuple[float, float, float]] = []
        self.added: list[str] = []
        self.faults: list[str] = []
        self._oversized = [
            ("/search", {"queries": texts[:1000], "top": 1000}),
            ("/v1/embeddings", {"input": texts[:1] * 5000}),
            ("/index/add", {"rows": [{"id": str(number), "text": "a"} for number in range(5000)]}),
            ("/search", {"query": "a" * 30_000_000}),
        ]

    def request(self, draw: np.random.Generator, name: str) -> tuple[str, str, Any, list[str]]:
        """A random request: its kind, path and body, and the ids that it adds."""
        kind = str(draw.choice(list(SHARES), p=list(SHARES.values())))
        texts = [self.texts[number] for number in draw.integers(len(self.texts), size=draw.integers(1, 21))]
        if kind == "remove" and not self.added:
            kind = "add"
        if kind in METHODS:
            body = {"queries": texts[:4], "method": METHODS[kind], "top": int(draw.integers(1, 50))}
            return kind, "/search", body, []
        if kind == "search for vectors":
            return kind, "/search", {"vectors": draw.standard_normal((2, self.width)).tolist()}, []
        if kind == "embed":
            return kind, "/v1/embeddings", {"input": texts, "encoding_format": "base64"}, []
        if kind == "add":
            ids = [f"{name}:{number}" for number in range(len(texts))]
            rows = [{"id": id, "text": text} for id, text in zip(ids, texts, strict=True)]
            return kind, "/index/add", {"rows": rows}, ids
        if kind == "remove":
            return kind, "/index/remove", {"ids": [self.added.pop(int(draw.integers(len(self.added))))]}, []
        path, body = (WRONG if kind == "wrong" else self._oversized)[
            draw.integers(len(WRONG) if kind == "wrong" else 4)
        ]
        return kind, path, body, []

    async def client(self, number: int) -> None:
        """Runs one client until the end."""
        draw = np.random.default_rng(number)
        for turn in range(10**9):
            if time.monotonic() > self.ends:
                return
            reader, writer = await asyncio.open_connection(self.process.host, self.process.port)
            kind, path, body, ids = self.request(draw, f"client {number}, turn {turn}")
            try:
                reply = await converse(reader, writer, request_bytes(path, body, key=KEY))
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                # A server that refuses a body by its length may close the connection before all of it is sent.
                self.statuses[kind]["closed"] += 1
                if kind != "oversized":
                    self.faults.append(f"{kind}: {error!r}")
                continue
            finally:
                writer.close()
            self.statuses[kind][str(reply.status)] += 1
            self.seconds[kind].append(reply.seconds)
            if reply.status not in EXPECTED.get(kind, {200}):
                self.faults.append(f"{kind}: {reply.status} {reply.body[:300]!r}")
            elif reply.status != 200 and ("\n" in (said := json.loads(reply.body)["error"]) or not said):
                self.faults.append(f"{kind}: {said}")
            elif reply.status == 200:
                self.added += ids

    async def run(self, clients: int) -> None:
        """Runs all clients and samples the memory."""
        started = time.monotonic()
        working = asyncio.gather(*(self.client(number) for number in range(clients)))
        while not working.done():
            sampled = own_bytes(self.process.pid) / 1e6
            self.memory.append((time.monotonic() - started, self.process.resident_mb(), sampled))
            await asyncio.wait([working], timeout=SECONDS_BETWEEN_LOOKS)
        await working


def main() -> None:
    """Runs the load test, prints and writes the result, and draws the memory."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.index.parent) as temporary:
        index, key = Path(temporary) / "served", Path(temporary) / "key"
        join_indexes([options.index], index)
        key.write_text(KEY)
        before = Manifest.read(index)
        texts = options.texts.read_text(encoding="utf-8").splitlines()[:50_000]
        command = ("--index", str(index), "--index-key-file", str(key))
        with served([], *command, threads=options.threads) as process:
            load = Load(process, texts, before.first.width, time.monotonic() + 60 * options.minutes)
            asyncio.run(load.run(options.clients))
            left = left_behind(process)
        after = Manifest.read(index)
    taken, resident, owned = (list(values) for values in zip(*load.memory, strict=True))
    quarters = [owned[len(owned) * part // 4 : max(1, len(owned) * (part + 1) // 4)] for part in range(4)]
    means = [round(statistics.mean(quarter or owned), 1) for quarter in quarters]
    every = [seconds for kind in load.seconds.values() for seconds in kind]
    result: dict[str, Any] = {
        "minutes": options.minutes,
        "clients": options.clients,
        "threads": options.threads,
        "requests": len(every),
        "latency_ms": {"all": _quantiles(every), **{kind: _quantiles(load.seconds[kind]) for kind in SHARES}},
        "statuses": {kind: dict(counts) for kind, counts in sorted(load.statuses.items())},
        "faults": len(load.faults),
        "own_mb_by_quarter": means,
        "growth_share": round(means[3] / means[1] - 1, 4),
        "largest_resident_mb": round(max(resident)),
        "left_behind": left,
        "index": {
            name: {"rows": each.rows, "segments": [record.rows for record in each.segments], "changes": each.changes}
            for name, each in (("before", before), ("after", after))
        },
    }
    print(json.dumps(result, indent=1))
    print("\n".join(load.faults[:20]))
    described = machine()
    out = options.out or f"server_index_load_{machine_label(described)}_torch-{described['packages']['torch']}"
    samples = [[round(value, 1) for value in values] for values in (taken, resident, owned)]
    write_result(
        out,
        {
            "machine": described,
            **result,
            "samples": dict(zip(("seconds", "resident_mb", "own_mb"), samples, strict=True)),
        },
    )
    minutes = [seconds / 60 for seconds in taken]
    series = [
        Series(x=minutes, y=values, color=color) for values, color in zip((resident, owned), COLORS, strict=False)
    ]
    chart = line_chart(series, x_label="minutes", y_label="MB: resident, and without mapped files", from_zero=True)
    (RESULTS / f"{out}.svg").write_text(chart, encoding="utf-8")
    assert not load.faults, f"{len(load.faults)} answers are not as they should be"
    assert not any(left.values()), f"left in queues: {left}"


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    values = np.percentile(seconds, (50, 90, 99)).tolist()
    return {name: round(1000 * value, 1) for name, value in zip(("p50", "p90", "p99"), values, strict=True)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True, help="an index of dense vectors whose model is there")
    parser.add_argument("--texts", type=Path, required=True, help="lines, for queries and rows")
    parser.add_argument("--minutes", type=float, default=10, help="[10]")
    parser.add_argument("--clients", type=int, default=64, help="[64]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the model [all cores]")
    parser.add_argument("--out", help="name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
