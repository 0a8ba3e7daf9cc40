"""How often `drift` says that texts differ: later texts of the same source (false alarms), and with others among them.

    python benchmarks/drift.py [--data DIR]

Training and later texts are drawn without overlap from TREC's 5,452 training questions (DIR/cls/nltk/qc); a share of
the later ones is replaced by questions to a bank (DIR/intents/banking77_test.jsonl). For each share and size, the test
is run on 20 draws, on 200 without others. Texts differ if the 95% interval of the area is above 0.5, which is expected
by chance in a fortieth of the draws. Without --data, texts of made-up words are drawn. One thread; processor seconds.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from harness import begun, write_result
from labelled_rows import trec

from bertsmith.app.library.drift import drift
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json_lines

DRAWS, NULL_DRAWS = 20, 200  # the latter of texts of the same source
SIZES = (100, 500)  # texts of a side
SHARES = (0.0, 0.1, 0.25, 1.0)  # of the later texts, from the other source


def main() -> None:
    """Runs the test on all draws and prints a line for each share and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of data sets [made-up texts]")
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("drift", options.out or (None if options.data else "drift_made-up"))
    texts, others = _made_up() if options.data is None else _questions(options.data)
    for size in SIZES:
        for share in SHARES:
            areas, alarms, draws = [], 0, DRAWS if share else NULL_DRAWS
            start = time.process_time()
            for seed in range(draws):
                order = generator(seed, "texts").permutation(len(texts))
                foreign = generator(seed, "other texts").permutation(len(others))[: round(share * size)]
                train = [texts[number] for number in order[:size]]
                later = [texts[number] for number in order[size : 2 * size - len(foreign)]]
                later += [others[number] for number in foreign]
                rows = [[{"text": text} for text in side] for side in (train, later)]
                with quiet():
                    test = drift(*rows, seed=seed).report["test"]
                areas.append(test["area"])
                alarms += test["differ"]
            cell = {
                "differ": alarms,
                "draws": draws,
                "area": round(float(np.mean(areas)), 4),
                "seconds": round((time.process_time() - start) / draws, 2),
            }
            done[f"{size} texts, {share:g} of another source"] = cell
            print(size, share, cell, flush=True)
    write_result(name, {"machine": described, "settings": {"folds": 5}, "cells": done})


def _questions(data: Path) -> tuple[list[str], list[str]]:
    """The questions of TREC, and questions to a bank."""
    questions = [text for text, _ in trec(data / "cls" / "nltk" / "qc" / "train.txt")]
    bank = read_json_lines(data / "intents" / "banking77_test.jsonl")
    return questions, [row["text"] for row in bank]


def _made_up() -> tuple[list[str], list[str]]:
    """Texts of words in two kinds of frequencies."""
    words = [f"word{number}" for number in range(400)]
    result = []
    for name, power in (("texts", 1.0), ("others", 0.5)):
        chances = 1 / np.arange(1, 401) ** power
        draw = generator(1, name)
        chosen = draw.choice(400, size=(1200, 10), p=chances / chances.sum())
        result.append([" ".join(words[number] for number in row) for row in chosen.tolist()])
    return result[0], result[1]


if __name__ == "__main__":
    main()
