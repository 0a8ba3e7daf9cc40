"""A text, labelled files and short fine-tuning, for comparisons that take seconds."""

from pathlib import Path

import pytest

from bertsmith.base.core.randomness import generator
from bertsmith.recipes.comparison import systems
from tasks.task_samples import BAD, GOOD, PLAIN, examples_of

FEW = "one-hot,tf-idf,word2vec,glove,ppmi,random,bert-frozen,bert".split(",")
TOKENS = 3_000  # a step of pre-training, a few passes over the words


def write_text(path: Path, sentences: int = 150) -> Path:
    """A text in which good words and bad words have different neighbors; a sentence per line."""
    draw = generator(0, "text of a ladder")
    lines = []
    for number in range(sentences):
        words = [*draw.choice(PLAIN, 5), *draw.choice(GOOD if number % 2 else BAD, 2), "." if number % 3 else "!"]
        lines.append(" ".join(map(str, words)) + ("\n" if number % 10 == 9 else ""))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_labelled(path: Path, count: int, seed: int = 0) -> Path:
    """Short texts with the labels positive and negative."""
    rows = ["text\tlabel", *(f"{example.first}\t{example.label}" for example in examples_of("single", count, seed))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def shorten(monkeypatch: pytest.MonkeyPatch, epochs: float = 2.0) -> None:
    """Makes every fine-tuning short."""
    whole = systems.resolved

    def short(recipe, situation, options):
        return {**whole(recipe, situation, options), "epochs": epochs, "precision": "fp32"}

    monkeypatch.setattr(systems, "resolved", short)
