"""Memory and rate of `bertsmith vocab` and `bertsmith corpus` on gigabytes of text: on a part of it, and on all of it.

    python benchmarks/large_text.py --text DIR --vocab vocab.txt --work DIR [--gigabytes 1 10] [--workers 1]

The text is made from the files of a folder: groups of eight lines in another order in each copy, with a made-up word in
front of each, so that new sentences and new words do not end. The rank of a made-up word is drawn log-uniformly from
10 million: a few are frequent, most occur once, and 10 GB have millions of distinct words, as text of the web has. A
document has five groups.

Each command is a process of its own. Memory is that of the process and its workers together, looked at twice a second:
`private` leaves out the pages of files, such as the shards that `corpus` maps to check them, which the system can take
back. Times are processor seconds of all its processes, and seconds on the clock, which other programs make longer. Text
and corpus need about 1.6 times the largest of `--gigabytes` on disk; the text is kept in `--work` for the next call.
Sizes and commands may be run one by one: the result file keeps the others.
"""

import argparse
import itertools
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cluster_throughput import processes
from harness import RESULTS, machine, machine_label, write_result

from bertsmith.base.storage.files import read_json

RANKS = 10_000_000  # of made-up words
LINES, GROUPS = 8, 5  # of a group, of a document
SIZE = 30522
_LETTERS = 8
_WORDS = 26**_LETTERS


def write_text(folder: Path, out: Path, num_bytes: float) -> None:
    """Writes files of this size in all, each with the lines of all text files of a folder."""
    lines = [line for path in sorted(folder.rglob("*.txt")) for line in path.read_bytes().split(b"\n") if b" " in line]
    groups = [b"\n".join(lines[start : start + LINES]) for start in range(0, len(lines), LINES)]
    rng, written, number = np.random.default_rng(0), 0, 0
    while written < num_bytes:
        order = rng.permutation(len(groups)).tolist()
        words = made_up(np.exp(rng.random(len(groups)) * np.log(RANKS)).astype(np.int64))
        with open(out / f"{number:04}.txt", "wb") as file:
            for at, (group, word) in enumerate(zip(order, words, strict=True)):
                file.write(b"%b %b\n%b" % (word, groups[group], b"" if (at + 1) % GROUPS else b"\n"))
                if file.tell() + written >= num_bytes:
                    break
            written += file.tell()
        number += 1


def made_up(ranks: npt.NDArray[np.int64]) -> list[bytes]:
    """A word of eight letters for each rank, another one for every rank."""
    numbers = ranks * 2_654_435_761 % _WORDS
    letters = (numbers[:, None] // 26 ** np.arange(_LETTERS) % 26 + ord("a")).astype(np.uint8)
    words: list[bytes] = letters.view(f"S{_LETTERS}")[:, 0].tolist()
    return words


def first_files(folder: Path, num_bytes: float) -> list[Path]:
    """The first files of the text, as many as have about this size."""
    files = sorted(folder.iterdir())
    return files[: max(1, round(num_bytes / files[0].stat().st_size))]


def run(arguments: list[str]) -> dict[str, Any]:
    """The seconds and the largest memory, in MB, of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    private = resident = 0.0
    with subprocess.Popen([sys.executable, "-m", "bertsmith", *arguments], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            sizes = [memory(number) for number in processes() if number != os.getpid()]
            private = max(private, sum(size["RssAnon"] for size in sizes))
            resident = max(resident, sum(map(sum, (size.values() for size in sizes))))
            time.sleep(0.5)
    if process.returncode:
        sys.exit(f"expected '{arguments[0]}' to finish; found exit code {process.returncode}")
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    return {
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "seconds": round(seconds, 1),
        "private_mb": round(private),
        "resident_mb": round(resident),
    }


def memory(process: int) -> dict[str, float]:
    """The resident memory of a process in MB, by kind; nothing if it has ended."""
    kinds = dict.fromkeys(("RssAnon", "RssFile", "RssShmem"), 0.0)
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kinds
    fields = dict(line.split(":", 1) for line in lines)
    return {kind: int(fields[kind].split()[0]) * 1024 / 1e6 for kind in kinds if kind in fields} or kinds


def main() -> None:
    """Makes the text, runs the commands on each size, and writes the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--vocab", type=Path, required=True, help="vocabulary of the corpus")
    parser.add_argument("--work", type=Path, required=True, help="folder for the text and the outputs")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 10], help="[1 10]")
    parser.add_argument("--workers", type=int, default=1, help="of corpus [1]")
    parser.add_argument("--commands", nargs="+", default=["vocab", "corpus"], choices=["vocab", "corpus"])
    arguments = parser.parse_args()
    text, described = arguments.work / "text", machine()
    if not text.exists():
        text.mkdir(parents=True)
        write_text(arguments.text, text, max(arguments.gigabytes) * 1e9)
    name = f"large_text_{machine_label(described)}"
    for gigabytes, command in itertools.product(arguments.gigabytes, arguments.commands):
        files = first_files(text, gigabytes * 1e9)
        size, out = sum(path.stat().st_size for path in files), arguments.work / command
        options = {
            "vocab": ["--size", str(SIZE)],
            "corpus": ["--vocab", str(arguments.vocab), "--form", "texts", "--workers", str(arguments.workers)],
        }
        result = run([command, *map(str, files), "--out", str(out), *options[command]])
        result |= {
            f"mb_per_{kind[:-1]}": round(size / 1e6 / result[kind], 1) for kind in ("processor_seconds", "seconds")
        }
        result["output_bytes"] = sum(path.stat().st_size for path in [out, *out.rglob("*")] if path.is_file())
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        path = RESULTS / f"{name}.json"
        runs = read_json(path)["runs"] if path.exists() else {}
        runs[f"{command}, {size / 1e9:.3g} GB"] = {"text_bytes": size, "files": len(files), **result}
        write_result(name, {"machine": described, "workers": arguments.workers, "runs": runs})


if __name__ == "__main__":
    main()
