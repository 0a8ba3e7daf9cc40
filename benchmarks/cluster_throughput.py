"""Megabytes of text per second that become a corpus: a Ray cluster of this machine against one process and its pool.

    python benchmarks/cluster_throughput.py --vocab vocab.txt --text DIR [--megabytes 1000] [--workers 1 2 4]
    python benchmarks/cluster_throughput.py --estimate results/cluster_throughput_....json

Both sides build the same corpus from the same files with the same number of worker processes, in turn, and all shards
are compared. The cluster is started once; its start is timed apart. The time of a run on the cluster includes the start
of its workers, which a corpus of two lines shows. `processor_seconds` are those of all processes of a side: the better
comparison on a machine that others use too. `joining` is what the driver does alone, at any number of workers: it gets
the encoded blocks of one of the files, makes documents of them and writes shards.

`--estimate` computes from a result what larger texts take: hours by cores, up to where the driver is the limit; memory;
disk. These are products of measured rates, not measurements.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

from harness import interleave, machine, machine_label, write_result

from bertsmith.inference.cluster.corpus import build_corpus_on
from bertsmith.inference.cluster.engine import environment
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.encode import encode_blocks
from bertsmith.text.documents.readers import ReadingSettings, read_blocks
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

SIZES = {"3.3 billion words, the corpus of the paper": 3.3e9, "1 trillion words": 1e12}
PROCESSES = (2, 16, 64, 256)


def take_text(folders: list[Path], out: Path, megabytes: float, files: int = 8) -> int:
    """The bytes written to a few files of about equal size, from the text files of folders, repeated if too short."""
    data = b"\n\n".join(path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.txt")))
    share = int(megabytes * 1e6 / files)
    for number in range(files):
        begin = number * share % len(data)
        part = data[begin : begin + share]
        while len(part) < share:
            part += data[: share - len(part)]
        (out / f"{number}.txt").write_bytes(part)
    return sum(path.stat().st_size for path in out.iterdir())


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file of a corpus."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def processes() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat, after the name, of this process and of all that it started, directly or not."""
    statuses = {}
    for entry in Path("/proc").iterdir():
        try:
            statuses[int(entry.name)] = (entry / "stat").read_text().rsplit(")")[-1].split()
        except (OSError, ValueError):
            continue
    ours = {os.getpid()}
    while more := {process for process, fields in statuses.items() if int(fields[1]) in ours} - ours:
        ours |= more
    return {process: statuses[process] for process in ours if process in statuses}


class ProcessorSeconds(threading.Thread):
    """Adds up the processor seconds of this process and of all that it starts, until they end, within its block.

    Each process is looked at twice a second, so up to half a second of a process that has ended is missing.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._ends = threading.Event()

    def _look(self) -> None:
        for process, fields in processes().items():
            self._last[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def run(self) -> None:
        """Looks until the block ends."""
        while not self._ends.wait(0.5):
            self._look()

    def __enter__(self) -> Self:
        self._look()
        self._first = dict(self._last)
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self.join()
        self._look()

    @property
    def seconds(self) -> float:
        """Those within the block."""
        return sum(self._last.values()) - sum(self._first.values())


def worker_gigabytes(ray: Any) -> float:
    """The largest resident memory of a process that Ray started for this cluster."""
    raylets = {process.process.pid for process in ray._private.worker._global_node.all_processes["raylet"]}
    sizes = [int(fields[21]) for fields in processes().values() if int(fields[1]) in raylets]
    return max(sizes) * resource.getpagesize() / 1e9


def measure(arguments: argparse.Namespace) -> None:
    """Runs the benchmark and writes its result file."""
    tokenizer = WordPieceTokenizer(Vocabulary.load(arguments.vocab))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").mkdir()
        size = take_text(arguments.text, folder / "text", arguments.megabytes)
        os.environ |= environment()
        import ray
        import ray.data

        start = time.perf_counter()
        ray.init(
            num_cpus=max(arguments.workers) + 1,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        begun = time.perf_counter() - start
        (folder / "tiny.txt").write_text("A short text.\n\nAnother one.\n")
        start = time.perf_counter()
        build_corpus_on("ray", [folder / "tiny.txt"], tokenizer, folder / "tiny")
        first = time.perf_counter() - start
        result: dict[str, Any] = {
            "machine": machine(),
            "bytes": size,
            "seconds_to_start_a_cluster": round(begun, 2),
            "seconds_of_the_first_corpus_of_two_lines": round(first, 2),
            "runs": [],
        }
        expected: dict[str, str] = {}
        for workers in arguments.workers:
            spent: dict[str, list[float]] = {"local": [], "ray": []}

            def built(side: str, workers: int = workers, spent: dict[str, list[float]] = spent) -> None:
                shutil.rmtree(folder / side, ignore_errors=True)
                with ProcessorSeconds() as processor:
                    if side == "local":
                        build_corpus([folder / "text"], tokenizer, folder / side, workers=workers)
                    else:
                        build_corpus_on("ray", [folder / "text"], tokenizer, folder / side, workers=workers)
                spent[side].append(round(processor.seconds, 1))

            sides = {"local": lambda: built("local"), "ray": lambda: built("ray")}
            seconds = interleave(sides, arguments.rounds)
            expected = expected or digests(folder / "local")
            assert digests(folder / "ray") == digests(folder / "local") == expected
            rates = {side: [round(size / 1e6 / elapsed, 2) for elapsed in times] for side, times in seconds.items()}
            run: dict[str, Any] = {"workers": workers, "megabytes_per_second": rates, "processor_seconds": spent}
            start = time.perf_counter()
            shutil.rmtree(folder / "tiny")
            build_corpus_on("ray", [folder / "tiny.txt"], tokenizer, folder / "tiny", workers=workers)
            run["seconds_of_a_corpus_of_two_lines_on_ray"] = round(time.perf_counter() - start, 2)
            result["runs"].append(run)
            print(json.dumps(run), flush=True)
        result["worker_gigabytes"] = round(worker_gigabytes(ray), 2)
        manifest = json.loads((folder / "local" / "corpus.json").read_text())
        alone = folder / "text" / "0.txt"
        build_corpus([alone], tokenizer, folder / "alone", workers=max(arguments.workers))
        items = list(encode_blocks(read_blocks([alone], ReadingSettings()), tokenizer, workers=max(arguments.workers)))
        start = time.perf_counter()
        build_corpus([alone], tokenizer, folder / "joined", encode=lambda _: iter(items))
        result["joining_megabytes_per_second"] = round(alone.stat().st_size / 1e6 / (time.perf_counter() - start), 2)
        assert digests(folder / "joined") == digests(folder / "alone")
        result["driver_gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
        result["words"] = manifest["read"]["words"]
        result["corpus_bytes"] = sum(path.stat().st_size for path in (folder / "local").rglob("*") if path.is_file())
        result["equal_files"] = len(expected)
        ray.shutdown()
    label = machine_label(result["machine"])
    write_result(f"cluster_throughput_{arguments.megabytes:g}mb_{label}_ray-{ray.__version__}", result)


def estimate(result: dict[str, Any]) -> list[str]:
    """What larger texts take, as the rows of a table, from the rate of a worker on the cluster and of joining."""
    per_word = result["bytes"] / result["words"]
    fewest = min(result["runs"], key=lambda run: run["workers"])
    rate = max(fewest["megabytes_per_second"]["ray"]) / fewest["workers"]
    joining = result["joining_megabytes_per_second"]
    lines = ["| text | GB of text | workers | hours | memory of the workers | disk: corpus, and parts meanwhile |"]
    lines.append("|---|---|---|---|---|---|")
    for name, words in SIZES.items():
        megabytes = words * per_word / 1e6
        disk = words * result["corpus_bytes"] / result["words"] / 1e9
        for workers in PROCESSES:
            speed = min(workers * rate, joining)
            limit = " (the driver)" if speed == joining else ""
            lines.append(
                f"| {name} | {megabytes / 1e3:,.0f} | {workers} | {megabytes / speed / 3600:,.1f}{limit} | "
                f"{workers * result['worker_gigabytes']:,.0f} GB | {disk:,.0f} GB, {disk:,.0f} GB |"
            )
    return lines


def main() -> None:
    """Measures, or estimates from a result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=Path)
    parser.add_argument("--text", type=Path, action="append")
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--estimate", type=Path)
    arguments = parser.parse_args()
    if arguments.estimate is not None:
        print("\n".join(estimate(json.loads(arguments.estimate.read_text()))))
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
