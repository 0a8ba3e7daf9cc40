"""Memory and rate of `bertsmith vocab` and `bertsmith corpus` on gigabytes of text: on a part of it, and on all of it.

    python benchmarks/large_text.py --text DIR --vocab vocab.txt --work DIR [--gigabytes 1 10] [--workers 1]

The text is made from the files of a folder: their lines in another order in each copy, with a made-up word in every
line, so that lines differ and new words do not end. The rank of a made-up word is drawn log-uniformly from 10 million:
a few are frequent, most occur once, and 10 GB have millions of distinct words, as text of the web has. A document has
40 lines.

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
from cluster_throughput import processes
from harness import RESULTS, machine, machine_label, write_result

from bertsmith.base.storage.files import read_json

RANKS = 10_000_000  # of made-up words
LINES = 40  # of a document
FILE_BYTES = 100_000_000
SIZE = 30522


def write_text(folder: Path, out: Path, num_bytes: float) -> None:
    """Writes files of about 100 MB, made of the lines of the text files of a folder."""
    texts = [path.read_bytes() for path in sorted(folder.rglob("*.txt"))]
    lines = [line for text in texts for line in text.split(b"\n") if b" " in line]
    written = number = 0
    rng = np.random.default_rng(0)
    while written < num_bytes:
        with open(out / f"{number:04}.txt", "wb") as file:
            while file.tell() < min(FILE_BYTES, num_bytes - written):
                ranks = np.exp(rng.random(LINES) * np.log(RANKS)).astype(np.int64).tolist()
                chosen = rng.integers(len(lines), size=LINES).tolist()
                document = (with_word(lines[at], rank) for at, rank in zip(chosen, ranks, strict=True))
                file.write(b"\n".join(document) + b"\n\n")
            written += file.tell()
        number += 1


def with_word(line: bytes, rank: int) -> bytes:
    """The line with a made-up word after its first one."""
    letters, rest = [], rank * 2_654_435_761 % 2**40  # spread over words of about eight letters, one for each rank
    while rest:
        rest, letter = divmod(rest, 26)
        letters.append(97 + letter)
    first, _, others = line.partition(b" ")
    return b" ".join((first, bytes(letters), others))


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
        files = sorted(text.iterdir())[: max(1, round(gigabytes * 1e9 / FILE_BYTES))]
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
