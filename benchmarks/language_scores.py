"""Cells, models and scores of `languages.py`."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from learning_speed_report import append_line, read_lines
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import bertsmith
from bertsmith.app.library.finetuning import finetune
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.tokenizer import Tokenizer

EPOCHS, LENGTH = 4, 64


class Cells:
    """The file of results, a line for each cell."""

    def __init__(self, path: Path, described: dict[str, Any]) -> None:
        self.path, self.described = path, described
        self._done = {line["cell"] for line in read_lines(path)}

    def run(self, cell: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measures a cell and adds its line, unless it is there."""
        if cell in self._done:
            return
        start = time.process_time()
        values = measure()
        line = {"cell": cell, **values, "processor_seconds": round(time.process_time() - start, 1)}
        print(line, flush=True)
        append_line(self.path, {**line, "day": time.strftime("%Y-%m-%d"), "machine": self.described})
        self._done.add(cell)


def run_of(folder: Path, steps: int) -> Path:
    """The run folder of a pre-training of that many steps."""
    return folder / f"run-{steps}"


def from_scratch(corpus: Corpus, folder: Path) -> Path:
    """A model folder with random parameters, of the same shape and vocabulary."""
    tokenizer = corpus.tokenizer
    config = BertConfig.named("tiny", vocab_size=len(tokenizer.vocabulary))
    model = untrained(config, 1, tokenizer.vocabulary)
    save_pretrained(folder, model, tokenizer, ModelMetadata(), trained=(), replace=True)
    return folder


def fine_tuned(model: Path, train: Path, seed: int, **settings: Any) -> bertsmith.Model:
    """A classifier after three epochs; a tenth of the examples are its dev examples."""
    with tempfile.TemporaryDirectory() as folder:
        finetune(
            model,
            "classification",
            Path(folder) / "run",
            train=train,
            seeds=1,
            seed=seed,
            epochs=EPOCHS,
            max_length=LENGTH,
            baselines=False,
            reads="mean",
            precision="fp32",
            **settings,
        )
        return bertsmith.load(Path(folder) / "run")


def coverage(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, float]:
    """Pieces per character that is not a space, and the fraction of these characters that are lost in [UNK]."""
    pieces = characters = lost = 0
    for text in texts:
        encoded = tokenizer.encode_with_offsets(text)
        pieces += len(encoded.ids)
        characters += sum(not character.isspace() for character in text)
        unknown = encoded.ids == tokenizer.vocabulary.unk_id
        lost += int((encoded.ends - encoded.starts)[unknown].sum())
    return {"pieces_per_character": round(pieces / characters, 4), "lost": round(lost / characters, 4)}


def accuracy(model: bertsmith.Model, texts: Sequence[str], gold: Sequence[str]) -> float:
    """The fraction of the texts that get their gold label."""
    predicted = [prediction.label for prediction in model.classify(texts)]
    return round(sum(prediction == label for prediction, label in zip(predicted, gold, strict=True)) / len(gold), 4)


def rows_of(path: Path, *, text_last: bool = False) -> tuple[list[str], list[str]]:
    """(the texts, the labels) of a file with one column each."""
    rows = [line.split("\t", 1) for line in path.read_text("utf-8").splitlines()[1:]]
    columns = [row[::-1] if text_last else row for row in rows]
    return [text for text, _ in columns], [label for _, label in columns]


def linear_scores(train: Path, *, text_last: bool = False, limit: int | None = None) -> Callable[[Path], float]:
    """The accuracy on a file of logistic regression on character n-grams."""
    features = TfidfVectorizer(analyzer="char", ngram_range=(1, 4) if limit is None else (1, 2), sublinear_tf=True)
    classifier = LogisticRegression(C=10, max_iter=1000)
    texts, labels = rows_of(train, text_last=text_last)
    if limit is not None:
        chosen = np.random.default_rng(1).permutation(len(texts))[:limit]
        texts, labels = [texts[index] for index in chosen], [labels[index] for index in chosen]
    classifier.fit(features.fit_transform(texts), labels)

    def score(path: Path) -> float:
        texts, gold = rows_of(path, text_last=text_last)
        return round(float(classifier.score(features.transform(texts), gold)), 4)

    return score


def retrieval(vectors: dict[str, Any]) -> dict[str, float]:
    """The fraction of English sentences whose nearest sentence of a language by cosine is the parallel one."""
    normalized = {name: _normalized(np.asarray(rows)) for name, rows in vectors.items()}
    return {name: hits(normalized["en"] @ rows.T) for name, rows in normalized.items()}


def hits(scores: np.ndarray) -> float:
    """The fraction of rows whose largest score is on the diagonal."""
    return round(float((scores.argmax(axis=1) == np.arange(len(scores))).mean()), 4)


def _normalized(rows: np.ndarray) -> np.ndarray:
    # Without the mean of its language, which all its vectors share.
    rows = rows - rows.mean(axis=0)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
