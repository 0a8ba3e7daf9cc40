"""Encoder-decoders, Transformer and LSTM, on tasks whose right answers are known, against copying the source.

    python benchmarks/translation_toys.py [--architecture lstm [--score general]] [--seeds 3] [--steps 400]

reverse: letters, written in reverse order; tests have lengths that training has.
numbers: a number up to 999,999 in digits, written out in English words.
trees: an arithmetic expression in brackets, written as a linearised tree in which the operator comes first, as in the
    parsing of the paper, where a tree is a text with brackets; a program checks whether the brackets match.

Each has 3,000 pairs for training and 200 others for the test, and is learned with the recipe of `train-translation`.
The share of exact answers and BLEU are those of greedy translations and of a beam of 4. The result is written after
each task and seed, and what it has already is not run again.

Source: Vaswani et al. (2017), section 6.3, for trees as texts; Vinyals et al. (2015), "Grammar as a Foreign Language".
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import RESULTS, machine, machine_label, write_result

from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json
from bertsmith.models.parts.head_inputs import SCORES
from bertsmith.recipes.translation.decoding import translate
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.run import train_translation
from bertsmith.recipes.translation.settings import ARCHITECTURES, SearchSettings
from bertsmith.tasks.metrics.bleu import bleu, words_of

TRAINING, TEST = 3000, 200  # pairs
LETTERS = "abcdefghijkl"
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()

Pair = tuple[str, str]


def reverse(source: np.random.Generator) -> Pair:
    """3 to 12 letters."""
    letters = source.choice(list(LETTERS), source.integers(3, 13)).tolist()
    return " ".join(letters), " ".join(letters[::-1])


def numbers(source: np.random.Generator) -> Pair:
    """A number of 1 to 6 digits."""
    number = int(source.integers(0, 10 ** source.integers(1, 7)))
    return " ".join(str(number)), spelled(number)


def spelled(number: int) -> str:
    """A number in words.

    >>> spelled(40_507)
    'forty thousand five hundred seven'
    """
    if number < 20:
        return ONES[number]
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" {spelled(number % size)}" if number % size else ""
            return f"{spelled(number // size)} {name}{rest}"
    return TENS[number // 10 - 2] + (f" {ONES[number % 10]}" if number % 10 else "")


def trees(source: np.random.Generator) -> Pair:
    """An expression such as ( a + ( b * c ) ), and the tree plus ( a times ( b c ) )."""

    def grown(depth: int) -> Pair:
        if depth == 0 or source.random() < 0.3:
            letter = str(source.choice(list(LETTERS)))
            return letter, letter
        sign, name = (("+", "plus"), ("*", "times"), ("-", "minus"))[source.integers(0, 3)]
        (left, left_tree), (right, right_tree) = grown(depth - 1), grown(depth - 1)
        return f"( {left} {sign} {right} )", f"{name} ( {left_tree} {right_tree} )"

    return grown(3)


TASKS: dict[str, Callable[[np.random.Generator], Pair]] = {"reverse": reverse, "numbers": numbers, "trees": trees}


def pairs_of(task: str, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Pairs for training and others for the test; no source text occurs twice."""
    source, answers = generator(seed, f"pairs of {task}"), dict[str, str]()
    while len(answers) < TRAINING + TEST:
        text, answer = TASKS[task](source)
        answers.setdefault(text, answer)
    pairs = list(answers.items())
    return pairs[:TRAINING], pairs[TRAINING:]


def matches(text: str) -> bool:
    """Whether every bracket is closed."""
    depth = 0
    for word in text.split():
        depth += (word == "(") - (word == ")")
        if depth < 0:
            return False
    return depth == 0


def run(task: str, seed: int, steps: int, shape: dict[str, str]) -> dict[str, float]:
    """The scores of one model, and the seconds of the processor that its training took.

    Args:
        shape: the settings of the architecture.
    """
    train, test = pairs_of(task, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        path.write_text("".join(f"{source}\t{target}\n" for source, target in train), encoding="utf-8")
        options = {"size": "tiny", "vocab": str(_vocabulary(Path(folder), train)), "rows_per_step": 32, "dropout": 0.0}
        options |= {"steps": steps, "seed": seed, "device": "cpu", "precision": "fp32", "label_smoothing": 0.0} | shape
        start = time.process_time()
        train_translation(path, Path(folder) / "run", **options)
        seconds = time.process_time() - start
        model, tokenizer = read_translation_model(Path(folder) / "run")
        sources, answers = [pair[0] for pair in test], [pair[1] for pair in test]
        scores = {"seconds": round(seconds, 1)}
        for name, beam in (("greedy", 1), ("beam of 4", 4)):
            translated = [
                translation.text for translation in translate(model, tokenizer, sources, SearchSettings(beam=beam))
            ]
            scores |= {f"{name}, {measure}": value for measure, value in scored(translated, answers).items()}
        return scores | {f"copy, {measure}": value for measure, value in scored(sources, answers).items()}


def scored(translated: list[str], answers: list[str]) -> dict[str, float]:
    """The share of exact answers, BLEU, and the share of answers whose brackets match."""
    exact = [text == answer for text, answer in zip(translated, answers, strict=True)]
    words = [words_of(text) for text in translated], [[words_of(answer)] for answer in answers]
    return {
        "exact": round(float(np.mean(exact)), 4),
        "BLEU": round(bleu(*words), 4),
        "matching brackets": round(float(np.mean([matches(text) for text in translated])), 4),
    }


def _vocabulary(folder: Path, pairs: list[Pair]) -> Path:
    """Every word is a piece: the tasks are about order, not about spelling."""
    words = dict.fromkeys(word for pair in pairs for word in " ".join(pair).split())
    path = folder / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Runs what the result does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default=ARCHITECTURES[0])
    parser.add_argument("--score", choices=SCORES, help="of an lstm [general]")
    options = parser.parse_args()
    shape = {"architecture": options.architecture} | ({"score": options.score} if options.score else {})
    # The Transformer's result has no suffix.
    suffix = "" if options.architecture == ARCHITECTURES[0] else f"_{options.architecture}-{options.score or 'general'}"
    torch.set_num_threads(1)
    about = machine()
    name = f"translation_toys{suffix}_{options.steps}-steps_{machine_label(about)}_torch-{torch.__version__}"
    path = RESULTS / f"{name}.json"
    runs: dict[str, Any] = read_json(path)["runs"] if path.is_file() else {}
    for seed in range(1, options.seeds + 1):
        for task in TASKS:
            if str(seed) in runs.get(task, {}):
                continue
            runs.setdefault(task, {})[str(seed)] = run(task, seed, options.steps, shape)
            print(task, seed, runs[task][str(seed)], flush=True)
            medians = {
                task: {key: statistics.median(row[key] for row in rows.values()) for key in next(iter(rows.values()))}
                for task, rows in runs.items()
            }
            payload = {
                "machine": about,
                "steps": options.steps,
                "pairs": TRAINING,
                "model": shape,
                "medians": medians,
                "runs": runs,
            }
            write_result(name, payload)


if __name__ == "__main__":
    main()
