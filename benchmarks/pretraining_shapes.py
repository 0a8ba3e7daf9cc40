"""Which shape learns most in a number of processor minutes: layers and widths, with the default recipe.

    python benchmarks/pretraining_shapes.py --shapes 2x128,4x128,2x256,4x256 --minutes 5 --data DIR

A shape is LAYERSxWIDTH; it has 8 heads and an inner width of four times its width. Everything else is as in
`learning_speed.py`: the corpus and its vocabulary, one thread, the budget in processor seconds from the call that
trains to the end of its last step, and the scores on held-out rows and of the probes. Each run appends a line to
results/NAME.jsonl; runs that are already there are skipped.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import torch
from harness import RESULTS, machine, machine_label
from learning_speed import HELD_OUT, Bench, parse
from learning_speed_report import append_line, read_lines

from bertsmith.models.parts.config import BertConfig

HEADS = 8


def shape_of(name: str, vocab_size: int) -> BertConfig:
    """The configuration of a shape such as 4x256."""
    layers, width = map(int, name.split("x"))
    return BertConfig(
        vocab_size=vocab_size,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=HEADS,
        intermediate_size=4 * width,
    )


def table(lines: Sequence[dict]) -> str:
    """The runs in Markdown, the lowest loss first."""
    tasks = list(lines[0]["probes"])
    rows = [f"| {' | '.join(['shape', 'parameters', 'steps', 'seconds', 'held-out loss', 'among first 5', *tasks])} |"]
    rows.append("|---" * (6 + len(tasks)) + "|")
    for line in sorted(lines, key=lambda line: line["loss"]):
        cells = [line["shape"], f"{line['parameters']:,}", str(line["steps"]), f"{line['seconds']:.0f}"]
        cells += [f"{line['loss']:.3f}", f"{line['top5']:.3f}", *(f"{line['probes'][task]:.3f}" for task in tasks)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Trains what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="2x128,4x128,2x256,4x256", help="LAYERSxWIDTH, separated by commas")
    parser.add_argument("--minutes", type=float, default=5.0, help="processor minutes of each run [5]")
    parser.add_argument("--corpus", choices=sorted(HELD_OUT), default="docstrings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="folder with glue/SST-2, cls/nltk/qc and pretrain_gutenberg100")
    parser.add_argument("--work", type=Path, help="folder that keeps the corpus from one call to the next")
    options = parser.parse_args()
    shapes = options.shapes.split(",")
    if wrong := [shape for shape in shapes if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape)]:
        sys.exit(f"expected shapes such as 4x256; found {', '.join(wrong)}; correct --shapes")
    torch.set_num_threads(1)
    names = ["corpus", "minutes", "data", "work"]
    bench = Bench(
        parse([f"--{name}={getattr(options, name)}" for name in names if getattr(options, name) is not None]),
    )
    described = machine()
    name = f"pretraining_shapes_{options.corpus}_{options.minutes:g}-minutes_{machine_label(described)}"
    path = RESULTS / f"{name}_torch-{torch.__version__}.jsonl"
    for shape in shapes:
        key = {"shape": shape, "seed": options.seed, "corpus_digest": bench.digest}
        if any(key.items() <= line.items() for line in read_lines(path)):
            continue
        bench.take_shape(shape_of(shape, len(bench.corpus.vocabulary)))
        result = bench.run("auto", Fraction(1), options.seed, None)
        result = {**result, **key, "size": None, "parameters": bench.config.num_parameters(), "machine": described}
        print({name: value for name, value in result.items() if name not in ("settings", "machine")}, flush=True)
        append_line(path, result)
    print(table([line for line in read_lines(path) if line["corpus_digest"] == bench.digest]))


if __name__ == "__main__":
    main()
