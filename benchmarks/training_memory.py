"""Training steps with the memory that a step frees kept for the next one, against the C library's own way.

    python benchmarks/training_memory.py [--pieces 12000] [--steps 10] [--rounds 3]

Models of the size tiny read random documents in one thread, with the default recipe of their architecture. Both sides
are `pretrain`; one without `KeptMemory` (`allocator.py`). They take turns, and their parameters have to be equal in
the end. Seconds are those of the processor for a step, without the first two; the memory is the peak of the process.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result
from learning_speed import Clock, timed_steps

from bertsmith.app.library.training import pretrain
from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.allocator import KeptMemory
from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

ARCHITECTURES = ("bert", "openai-gpt", "awd-lstm", "elmo")
SIDES = ("kept", "glibc")
DOCUMENTS, WORDS = 200, 2_000


def write_corpus(folder: Path, pieces: int) -> Path:
    """A corpus of random words, each of which is one piece."""
    words = np.array([f"w{number}" for number in range(pieces - len(SPECIAL_PIECES))])
    drawn = words[np.random.default_rng(0).integers(0, len(words), (DOCUMENTS, WORDS))]
    texts = folder / "texts"
    texts.mkdir()
    for number, document in enumerate(drawn):
        write_text(texts / f"{number}.txt", "".join(f"{' '.join(line)} .\n" for line in document.reshape(-1, 20)))
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *words]), TextRules())
    with quiet():
        build_corpus([texts], tokenizer, folder / "corpus")
    return folder / "corpus"


def train_once(corpus: Path, architecture: str, side: str, steps: int) -> None:
    """Trains in this process, and prints the seconds of a step, the peak of memory in MB, and the digest."""
    torch.set_num_threads(1)
    clock = Clock()
    own_way = mock.patch.object(KeptMemory, "__enter__", lambda memory: memory)
    with tempfile.TemporaryDirectory() as folder, quiet(), timed_steps(clock):
        with own_way if side == "glibc" else contextlib.nullcontext():
            pretrain(corpus, Path(folder) / "run", architecture=architecture, size="tiny", steps=steps, device="cpu")
        digest = digest_of_tensors(load_any(Path(folder) / "run" / "model").tensors)
    seconds = (clock.stamps[-1] - clock.stamps[2]) / (len(clock.stamps) - 3)
    # Not `ru_maxrss`, which starts at the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024, digest)


def main() -> None:
    """Measures every architecture and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", type=int, default=12_000, help="in the vocabulary [12000]")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--once", nargs=3, metavar=("CORPUS", "ARCHITECTURE", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        train_once(Path(options.once[0]), *options.once[1:], options.steps)
        return
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder), options.pieces)
        for architecture in options.architectures:
            measured: dict[str, list[tuple[float, float, str]]] = {side: [] for side in SIDES}

            def run(side: str, architecture: str = architecture, measured: dict = measured) -> None:
                command = [sys.executable, __file__, "--once", str(corpus), architecture, side]
                done = subprocess.run(
                    [*command, "--steps", str(options.steps)], check=True, capture_output=True, text=True
                )
                seconds, memory, digest = done.stdout.split()[-3:]
                measured[side].append((float(seconds), float(memory), digest))

            interleave({side: lambda side=side: run(side) for side in SIDES}, options.rounds)
            assert len({digest for lines in measured.values() for *_, digest in lines}) == 1, "equal parameters"
            seconds = {side: [seconds_per_step for seconds_per_step, *_ in lines] for side, lines in measured.items()}
            cells[architecture] = {
                "times as fast": ratio_summary(seconds["kept"], seconds["glibc"]),
                "seconds of a step": {side: spread(values) for side, values in seconds.items()},
                "peak of memory, MB": {side: round(max(measures[1] for measures in measured[side])) for side in SIDES},
            }
            print(architecture, cells[architecture], flush=True)
    described = machine()
    name = f"training_memory_{machine_label(described)}_torch-{described['packages']['torch']}"
    settings = {"pieces": options.pieces, "steps": options.steps, "threads": 1}
    write_result(name, {"machine": described, "settings": settings, "architectures": cells})


if __name__ == "__main__":
    main()
