"""Whether `bertsmith plan` says what a pre-training takes: the planned seconds against those of a real run.

    python benchmarks/planning.py [--rounds 3] [--steps 150] [--size tiny] [--device cpu] [--clock wall]

Each round plans a run on random text, trains it, from opening the corpus to the model folder, and plans it again; the
planned seconds are the mean of both plans, so that other load on the machine affects them as it affects the run. On
a machine that others use, `--clock processor` has plan and run count the processor seconds of this process. The
memory of a plan is compared with the real one by tests/planning/test_memory.py.
"""

import argparse
import gc
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from harness import machine, machine_label, spread, write_result

import bertsmith

WORDS = (
    "the a man woman dog house river sea gate letter sailor gardener old new long broken walks sees opens reads writes "
    "finds loses mends in on by under with and or"
).split()
MOST_OFF = 0.15


def write_text(folder: Path, seed: int) -> None:
    """Documents of random sentences, about a megabyte."""
    draw = random.Random(seed)
    documents = []
    for _ in range(2000):
        sentences = [" ".join(draw.choices(WORDS, k=draw.randint(5, 20))) + " ." for _ in range(8)]
        documents.append("\n".join(sentences))
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def main() -> None:
    """Runs the rounds and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--length", type=int, default=128, help="tokens per row")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    arguments = parser.parse_args()
    settings: dict[str, Any] = {"size": arguments.size, "steps": arguments.steps, "device": arguments.device}
    settings["max_length"] = arguments.length
    if arguments.clock == "processor":
        time.monotonic = time.process_time  # what the library measures with
    rounds = []
    with tempfile.TemporaryDirectory() as name, bertsmith.quiet():
        folder = Path(name)
        write_text(folder / "text", 1)
        learned = bertsmith.learn_vocabulary([folder / "text"], 300)
        bertsmith.build_corpus([folder / "text"], learned.tokenizer, folder / "corpus", workers=1)
        # The first training of a process loads what later ones find loaded, matplotlib for the report among it.
        bertsmith.pretrain(folder / "corpus", folder / "warm-up", **{**settings, "steps": 5})
        for number in range(arguments.rounds):
            before = bertsmith.plan_pretraining(folder / "corpus", **settings)
            gc.collect()
            start = time.monotonic()
            bertsmith.pretrain(folder / "corpus", folder / f"run-{number}", **settings)
            seconds = time.monotonic() - start
            after = bertsmith.plan_pretraining(folder / "corpus", **settings)
            planned = (before.hours + after.hours) / 2 * 3600
            both = [round(plan.hours * 3600, 2) for plan in (before, after)]
            rounds.append(
                {"planned": both, "real": round(seconds, 2), "planned_over_real": round(planned / seconds, 3)}
            )
            print(f"round {number + 1}: planned {planned:.1f} s, real {seconds:.1f} s", flush=True)
    ratios = [record["planned_over_real"] for record in rounds]
    described = machine()
    print(f"planned / real: {spread(ratios)}")
    write_result(
        f"planning_{arguments.size}_{machine_label(described)}_torch-{described['packages']['torch']}",
        {
            "machine": described,
            "clock": arguments.clock,
            "threads": torch.get_num_threads(),
            "settings": settings,
            "seconds": rounds,
            "planned_over_real": spread(ratios),
            "within_15_percent": sum(abs(ratio - 1) <= MOST_OFF for ratio in ratios),
        },
    )


if __name__ == "__main__":
    main()
