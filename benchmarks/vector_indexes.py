"""Engines for the nearest of many vectors: time to build, bytes, memory, recall and latency.

    python benchmarks/vector_indexes.py [--vectors X.npy] [--rows 200000] [--engines cells,lancedb] [--name NAME]

X.npy has one vector per row (`bertsmith embed`); without it, vectors are generated around random centers. Rows are
shuffled; the last --queries are the queries, the first --rows the passages. Each engine is built and searched in a
process of its own with --threads threads. Queries are asked one by one. `cells` is what `bertsmith index` builds, with
probes tuned to 0.95 on its own rows; the others have a list of settings, of which the first that reaches 0.95 on the
queries counts. LanceDB and the product quantization of faiss rank 32 candidates a row again.

With --noisy-rows, `build_index` builds an index of that many rows, each a vector of X.npy and, as noise, another one at
random, and adds a hundredth to it; --queries more rows are searched one by one. Two rows that are made of the same
vector are about as close as the 10 nearest sentences of X.npy, and a search has to read about as many cells as one of
X.npy. (Independent noise makes dense groups, which are found with a few cells.) A hundred million rows are extrapolated
from it. Memory is that of the process without pages of files, the largest of ten samples a second.

With --texts and --model, `bertsmith index` is timed as a command with each of its stages, and then searches of the
index by words and by vectors: the first eight words of --queries of the texts, one by one, without the model's time.

With --tokens INDEX and --texts QUERIES, a text a line, an index of vectors of tokens is searched for the queries one by
one, by the centroids and exactly. Recall is the share of the 10 best rows of the exact search.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, machine, machine_label

from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.allocator import own_bytes
from bertsmith.base.storage.files import write_json
from bertsmith.inference.search.passages import Record
from bertsmith.inference.search.rankings import nearest_vectors
from bertsmith.inference.search.request import DENSE
from bertsmith.inference.vectors.jobs import VectorJob
from bertsmith.tasks.metrics.vectors import unit

WANTED, TOP = 0.95, 10
STAGES = ("reading:", "words:", "vectors:")
Search = Callable[[np.ndarray], np.ndarray]
NOISE = 0.67  # of the length of a vector; rows of the same vector have a cosine of about 1 / (1 + NOISE ** 2) = 0.69
HUNDRED_MILLION = 10**8
PARTS_OF_TOKENS = ("tokens.npy", "tokens-cells*")


def cells(vectors: np.ndarray, folder: Path, threads: int) -> tuple[float, list[tuple[str, Search]]]:
    """What `bertsmith index` builds: cells with 8 bits a number, ranked again by stored float16 vectors."""
    import faiss

    from bertsmith.inference.search.cells import Cells, write_cells

    faiss.omp_set_num_threads(threads)
    np.save(folder / "vectors.npy", vectors.astype(np.float16))
    stored = np.load(folder / "vectors.npy", mmap_mode="r")
    started = time.monotonic()
    write_cells(folder / "cells.faiss", stored, 0)
    index = Cells.open(folder / "cells.faiss", stored)
    probes = index.tuned(WANTED, 0).probes
    seconds = time.monotonic() - started
    return seconds, [(f"{probes} probes", lambda query: index.search(query[None], TOP, probes).places[0])]


def of_faiss(name: str, factory: str) -> Callable[[np.ndarray, Path, int], tuple[float, list[tuple[str, Search]]]]:
    """An index of faiss by its factory string, searched with more and more effort."""

    def build(vectors: np.ndarray, folder: Path, threads: int) -> tuple[float, list[tuple[str, Search]]]:
        import faiss

        faiss.omp_set_num_threads(threads)
        started = time.monotonic()
        cells = 2 ** round(np.log2(4 * np.sqrt(len(vectors))))
        index = faiss.index_factory(vectors.shape[1], factory.format(cells=cells), faiss.METRIC_INNER_PRODUCT)
        sample = generator(0, "sample").choice(len(vectors), min(len(vectors), 48 * cells), replace=False)
        index.train(vectors[np.sort(sample)])
        index.add(vectors)
        seconds = time.monotonic() - started
        faiss.write_index(index, str(folder / name))
        if hasattr(index, "k_factor"):
            index.k_factor = 32  # candidates a ranked row, whose vectors are compared
        space, effort = faiss.ParameterSpace(), "efSearch" if "HNSW" in factory else "nprobe"

        def search(value: int) -> Search:
            def answer(query: np.ndarray) -> np.ndarray:
                space.set_index_parameter(index, effort, value)
                return np.asarray(index.search(query[None], TOP)[1][0])

            return answer

        return seconds, [(f"{effort} {2**n}", search(2**n)) for n in range(3, 10)]

    return build


def of_usearch(dtype: str) -> Callable[[np.ndarray, Path, int], tuple[float, list[tuple[str, Search]]]]:
    """A graph of usearch."""

    def build(vectors: np.ndarray, folder: Path, threads: int) -> tuple[float, list[tuple[str, Search]]]:
        from usearch.index import Index

        started = time.monotonic()
        index = Index(ndim=vectors.shape[1], metric="ip", dtype=dtype)
        index.add(np.arange(len(vectors)), vectors, threads=threads)
        seconds = time.monotonic() - started
        index.save(str(folder / "graph.usearch"))

        def search(value: int) -> Search:
            def answer(query: np.ndarray) -> np.ndarray:
                index.expansion_search = value
                return np.asarray(index.search(query, TOP, threads=1).keys, dtype=np.int64)

            return answer

        return seconds, [(f"expansion {2**n}", search(2**n)) for n in range(4, 10)]

    return build


def lance(vectors: np.ndarray, folder: Path, threads: int) -> tuple[float, list[tuple[str, Search]]]:
    """A table of LanceDB with its IVF_PQ, candidates ranked again by the stored vectors."""
    import lancedb
    import pyarrow as pa

    os.environ["LANCE_CPU_THREADS"] = str(threads)
    started = time.monotonic()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    rows = pa.table({"row": pa.array(range(len(vectors))), "vector": flat})
    table = lancedb.connect(folder / "lance").create_table("vectors", rows)
    table.create_index(metric="dot", vector_column_name="vector")
    seconds = time.monotonic() - started

    def search(probes: int) -> Search:
        def answer(query: np.ndarray) -> np.ndarray:
            asked = (
                table.search(query).distance_type("dot").nprobes(probes).refine_factor(32).limit(TOP).select(["row"])
            )
            return asked.to_arrow()["row"].to_numpy()

        return answer

    return seconds, [(f"{2**n} probes", search(2**n)) for n in range(3, 9)]


ENGINES: dict[str, Callable[[np.ndarray, Path, int], tuple[float, list[tuple[str, Search]]]]] = {
    "cells": cells,
    "ivf-pq64": of_faiss("ivfpq.faiss", "IVF{cells},PQ64x4fs,RFlat"),
    "hnsw-sq8": of_faiss("hnsw.faiss", "HNSW32_SQ8"),
    "usearch-f16": of_usearch("f16"),
    "usearch-i8": of_usearch("i8"),
    "lancedb": lance,
}


def measured(engine: str, path: Path, rows: int, queries: int, threads: int) -> dict[str, Any]:
    """The numbers of one engine, in this process."""
    vectors = read(path, rows + queries)
    passages, asked = vectors[:rows], vectors[rows:]
    exact = nearest_vectors(asked, passages, TOP).scores[:, -1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds, searches = ENGINES[engine](passages, folder, threads)
        stored = _size(folder)
        for name, search in searches:
            setting = name
            recall = np.mean(
                [_recall(search(query), passages, query, low) for query, low in zip(asked, exact, strict=True)]
            )
            times = []
            for query in asked:
                started = time.monotonic()
                search(query)
                times.append(time.monotonic() - started)
            if recall >= WANTED or engine == "cells":
                break
    return {
        "engine": engine,
        "seconds": round(seconds, 1),
        "bytes_per_vector": round(stored / rows),
        "setting": setting,
        "recall": round(float(recall), 4),
        "milliseconds": {str(share): round(1000 * float(np.quantile(times, share)), 2) for share in (0.5, 0.99)},
    }


def of_command(texts: Path, model: str, queries: int) -> dict[str, Any]:
    """What `bertsmith index` takes for a file of texts, vectors included, for a hundredth more, and for searches.

    Args:
        queries: their number.
    """
    result: dict[str, Any] = {"model": Path(model).name}
    with tempfile.TemporaryDirectory() as temporary:
        folder, more = Path(temporary) / "index", Path(temporary) / "more.txt"
        lines = texts.read_text(encoding="utf-8").splitlines()
        more.write_text("".join(f"{line}\n" for line in lines[: len(lines) // 100]), encoding="utf-8")
        for name, arguments in (("build", [texts, "--model", model]), ("add", [more, "--add"])):
            started = time.monotonic()
            command = [sys.executable, "-m", "bertsmith", "index", *map(str, arguments), "--out", str(folder), "--json"]
            with open(Path(temporary) / "stderr", "w+", encoding="utf-8") as said:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
                assert process.stdout is not None
                change = json.loads(process.stdout.read())
                usage = os.wait4(process.pid, 0)[2]
                said.seek(0)
                lines_said = said.read().splitlines()
            result[name] = {
                "stages": [line for line in lines_said if line.startswith(STAGES) and "left" not in line],
                "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
                "texts": change["added"],
                "seconds": round(time.monotonic() - started, 1),
                "peak_mib": round(usage.ru_maxrss / 1024),
                "recall": round(change["recall"], 4),
            }
        result["bytes_per_text"] = round(_size(folder) / change["rows"])
        words = sum(file.stat().st_size for file in folder.glob("segment-*/words*"))
        result["bytes_per_text_of_words"] = round(words / change["rows"])
        for name, path in (("searches", folder), ("words", texts)):
            command = [sys.executable, __file__, "--one", name, "--vectors", str(path), "--queries", str(queries)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            result[name] = json.loads(done.stdout)
    return result


def of_words(texts: Path) -> dict[str, Any]:
    """What the words of an index take alone, in this process."""
    from bertsmith.inference.indexes.words import write_words

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder, open(texts, encoding="utf-8") as lines:
        spent = time.process_time()
        write_words(Path(folder), lines)
        spent = time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"processor_seconds": round(spent, 1), "mib": round((peak - before) / 1024)}


class NoisyVectors(VectorJob):
    """Vectors of a file in random order, again and again, each with other noise; the last ones are for queries."""

    width = made_of = None  # type: ignore[assignment]

    def __init__(self, path: Path, queries: int, start: int = 0) -> None:
        self.stored, self.queries, self.start = np.load(path, mmap_mode="r"), queries, start
        self.order = generator(0, "order").permutation(len(self.stored))
        self.width, self.made_of = self.stored.shape[1], {}

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[np.ndarray, Mapping[str, Any]]]:
        """See `VectorJob`."""
        first += self.start
        numbers = np.arange(first, first + len(texts)) % (len(self.order) - self.queries)
        yield self._noisy(self.order[numbers], "rows", first), {}

    def asked(self) -> np.ndarray:
        """The vectors of queries."""
        return unit(self._noisy(self.order[len(self.order) - self.queries :], "queries", 0)).astype(np.float32)

    def _noisy(self, rows: np.ndarray, purpose: str, number: int) -> np.ndarray:
        others = np.sort(generator(0, purpose, number).integers(len(self.stored), size=len(rows)))
        vectors, noise = (np.asarray(self.stored[numbers], np.float32) for numbers in (rows, others))
        return vectors + NOISE * noise

    def counts(self) -> dict[str, int]:
        """See `VectorJob`."""
        return {}

    def notes(self, counts: Mapping[str, int]) -> list[str]:
        """See `VectorJob`."""
        return []


def build_noisy(path: Path, folder: Path, rows: int, queries: int, start: int) -> dict[str, Any]:
    """Builds the index of noisy vectors, or adds to it if `start` is not 0, in this process."""
    from bertsmith.inference.indexes.building import build_index
    from bertsmith.inference.indexes.parts import NewVectors
    from bertsmith.inference.indexes.segment import VectorsRecord

    job = NoisyVectors(path, queries, start)
    vectors = NewVectors(job=job, record=VectorsRecord(model="", made_of={}, width=job.width))
    numbered = range(start, start + rows)
    return build_index(
        folder,
        (Record(str(number), "", "") for number in numbered),
        {DENSE: vectors},
        sources={},
        needs_text=False,
        add=start > 0,
        recall=WANTED,
        rows_per_segment=2**20,
    ).to_dict()


def search_noisy(path: Path, folder: Path, queries: int) -> dict[str, Any]:
    """Times and recall of searches of the index of noisy vectors, in this process."""
    from bertsmith.inference.indexes.index import Index

    started = time.monotonic()
    index, asked = Index(folder), NoisyVectors(path, queries).asked()
    opened, times, rankings, spent = time.monotonic() - started, [], [], time.process_time()
    for query in asked:
        started = time.monotonic()
        rankings.append(index.search(query[None], TOP))
        times.append(time.monotonic() - started)
    spent = time.process_time() - spent
    memory = own_bytes()
    lowest = index.narrowed(exact=True).search(asked, TOP).scores[:, -1]
    reached = [np.count_nonzero(each.scores >= low - 1e-4) / TOP for each, low in zip(rankings, lowest, strict=True)]
    return {
        "seconds_to_open": round(opened, 2),
        "milliseconds": {str(share): round(1000 * float(np.quantile(times, share)), 2) for share in (0.5, 0.99)},
        "processor_milliseconds": round(1000 * spent / queries, 2),
        "recall": round(float(np.mean(reached)), 4),
        "own_mib": round(memory / 2**20),
    }


def of_noisy_rows(path: Path, rows: int, queries: int, threads: int) -> dict[str, Any]:
    """What an index of noisy vectors takes, and an addition, and searches; extrapolated to a hundred million."""
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        folder = Path(temporary) / "index"
        shared = [sys.executable, __file__, "--vectors", str(path), "--queries", str(queries), "--index", str(folder)]
        build = _watched([*shared, "--one", "noisy-build", "--rows", str(rows)], threads)
        result = {"build": build, "bytes_per_vector": round(_size(folder) / rows)}
        result["searches"] = _watched([*shared, "--one", "noisy-searches"], threads)
        result["add"] = _watched(
            [*shared, "--one", "noisy-build", "--start", str(rows), "--rows", str(rows // 100)], threads
        )
    more = HUNDRED_MILLION / rows
    result["of_100m"] = {
        "processor_hours": round(build["processor_seconds"] * more / 3600, 2),
        "gigabytes_on_disk": round(result["bytes_per_vector"] * HUNDRED_MILLION / 1e9),
        "mib_to_build": build["own_mib"],
        "milliseconds_of_a_search": round(result["searches"]["processor_milliseconds"] * more),
    }
    return result


def _watched(command: Sequence[str], threads: int) -> dict[str, Any]:
    """What a process prints as JSON, with its seconds, processor time and memory."""
    started, most = time.monotonic(), 0
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, env=environment)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            most = max(most, own_bytes(process.pid))
            time.sleep(0.1)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        said.seek(0)
        printed = json.loads(said.read().splitlines()[-1])
    return {
        "seconds": round(time.monotonic() - started, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "own_mib": round(most / 2**20),
        "resident_mib": round(usage.ru_maxrss / 1024),
        **printed,
    }


def of_searches(folder: Path, queries: int) -> dict[str, Any]:
    """Times of searches of an index by words and by vectors, in this process, and its peak memory after each."""
    from bertsmith.inference.indexes.index import Index
    from bertsmith.inference.search.bm25 import K1, B

    index = Index(folder)
    rows = generator(0, "searches").integers(len(index.ids), size=queries)
    words = index.by_words(k1=K1, b=B)
    dense = index.segments[0].vectors[DENSE]
    vectors = [dense.stored(np.array([row % index.segments[0].record.rows]))[0] for row in rows]
    texts = [" ".join(index.texts[row].split()[:8]) for row in rows]
    result = {}
    searches: dict[str, tuple[Any, Any]] = {
        "words": (lambda query: words.search([query], TOP), texts),
        "vectors": (lambda query: index.search(query[None], TOP), vectors),
    }
    for name, (search, asked) in searches.items():
        times, spent = [], time.process_time()
        for query in asked:
            started = time.monotonic()
            search(query)
            times.append(time.monotonic() - started)
        result[name] = {
            "milliseconds": {str(share): round(1000 * float(np.quantile(times, share)), 2) for share in (0.5, 0.99)},
            "processor_milliseconds": round(1000 * (time.process_time() - spent) / queries, 2),
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
    return result


def of_tokens(folder: Path, texts: Path, queries: int) -> dict[str, Any]:
    """How fast an index of vectors of tokens is searched by centroids and exactly, and what the first way finds."""
    from bertsmith.app.library.index_models import index_embedders
    from bertsmith.inference.indexes.index import Index
    from bertsmith.inference.search.request import TOKENS
    from bertsmith.inference.search.token_search import query_tokens

    index = Index(folder).by(TOKENS)
    asked = query_tokens(
        texts.read_text(encoding="utf-8").splitlines()[:queries],
        index_embedders(index, [TOKENS], [], {"device": "cpu"})[TOKENS],
    )
    stored = sum(len(np.load(file, mmap_mode="r")) for file in folder.glob("segment-*/tokens.npy"))
    files = {part: sum(file.stat().st_size for file in folder.glob(f"segment-*/{part}")) for part in PARTS_OF_TOKENS}
    result: dict[str, Any] = {
        "texts": len(index.ids),
        "tokens": stored,
        "bytes_a_token": {part: round(size / stored, 1) for part, size in files.items()},
        "compared": [each.compared for each in index.manifest.segments],
        "recall_on_rows": round(index.manifest.recall, 3),
        "queries": len(asked),
    }
    lowest = np.empty(0)
    for name, searched in (("exactly", index.narrowed(exact=True)), ("by centroids", index)):
        times, scores, before = [], [], own_bytes(os.getpid())
        for number in range(len(asked)):
            started = time.process_time()
            ranking = searched.search(asked.select(np.array([number])), TOP)
            times.append(time.process_time() - started)
            scores.append(ranking.scores[0])
        lowest = lowest if len(lowest) else np.array(scores)[:, -1]
        result[name] = {
            "processor_milliseconds": {str(q): round(1000 * float(np.quantile(times, q)), 1) for q in (0.5, 0.99)},
            "memory_mib": round((own_bytes(os.getpid()) - before) / 2**20, 1),
            "recall_at_10": round(float(np.mean(np.array(scores) >= lowest[:, None] - 1e-4)), 4),
        }
    return result


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _recall(rows: np.ndarray, passages: np.ndarray, query: np.ndarray, lowest: float) -> float:
    rows = rows[rows >= 0]
    return float(np.count_nonzero(passages[rows] @ query >= lowest - 1e-4) / TOP)


def read(path: Path, count: int) -> np.ndarray:
    """The first `count` vectors of a file in random order, normalized."""
    stored = np.load(path, mmap_mode="r")
    assert len(stored) >= count, f"{len(stored):,} vectors"
    chosen = np.sort(generator(0, "rows").permutation(len(stored))[:count])
    return unit(np.asarray(stored[chosen], dtype=np.float32))[generator(0, "order").permutation(count)]


def main() -> None:
    """Measures the engines one after the other, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--name", default="")
    parser.add_argument("--texts", type=Path, help="with --model: time `bertsmith index` on this file, too")
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--noisy-rows", type=int, help="build an index of that many rows, vectors with noise")
    parser.add_argument(
        "--tokens", type=Path, help="with --texts: search this index of vectors of tokens, nothing else"
    )
    parser.add_argument("--index", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tokens is not None:
        described = machine()
        result = of_tokens(options.tokens, options.texts, options.queries)
        print(result)
        name = f"vector_indexes_tokens_{machine_label(described)}.json"
        write_json(options.out or RESULTS / name, {"machine": described, "threads": 1, "tokens": result})
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.vectors is None:
            options.vectors = Path(folder) / "vectors.npy"
            random = generator(0, "vectors")
            centers = random.normal(size=(2000, 64)).astype(np.float32)
            noise = random.normal(size=(options.rows + options.queries, 64)).astype(np.float32)
            np.save(options.vectors, centers[random.integers(2000, size=len(noise))] + 0.7 * noise)
        if options.one in ("searches", "words"):
            is_words = options.one == "words"
            print(json.dumps(of_words(options.vectors) if is_words else of_searches(options.vectors, options.queries)))
            return
        if options.one == "noisy-build":
            print(json.dumps(build_noisy(options.vectors, options.index, options.rows, options.queries, options.start)))
            return
        if options.one == "noisy-searches":
            print(json.dumps(search_noisy(options.vectors, options.index, options.queries)))
            return
        if options.one:
            print(json.dumps(measured(options.one, options.vectors, options.rows, options.queries, options.threads)))
            return
        results = []
        for engine in filter(None, options.engines.split(",")):
            command = [sys.executable, __file__, "--one", engine, "--vectors", str(options.vectors)]
            command += [f"--{name}={getattr(options, name)}" for name in ("rows", "queries", "threads")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{engine}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            results.append(json.loads(done.stdout.strip().splitlines()[-1]))
            print(results[-1], flush=True)
        command: dict[str, Any] = {}
        if options.texts is not None:
            command["command"] = of_command(options.texts, options.model, options.queries)
        if options.noisy_rows:
            command["noisy"] = of_noisy_rows(options.vectors, options.noisy_rows, options.queries, options.threads)
    print(command)
    kept = ("rows", "queries", "threads")
    described = machine()
    named = f"_{options.name}" if options.name else ""
    out = options.out or RESULTS / f"vector_indexes{named}_{machine_label(described)}.json"
    write_json(
        out, {"machine": described, **{name: getattr(options, name) for name in kept}, "engines": results, **command}
    )


if __name__ == "__main__":
    main()
