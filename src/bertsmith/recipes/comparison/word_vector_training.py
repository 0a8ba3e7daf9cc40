"""Word vectors of a comparison: trained on its text, for as many epochs as fit into the budget, or given.

::

    MODELS/NAME/            the folder of word vectors, see `sources`
    MODELS/NAME.plan.json   while they are made in a time: what the first epoch took, and the epochs that fit
    MODELS/NAME.text.txt    while they are made of a number of tokens: the beginning of the text
"""

import dataclasses
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import atomic_file, read_json, write_json
from bertsmith.inference.word_vectors.settings import GLOVE, PPMI
from bertsmith.inference.word_vectors.training import train_word_vectors
from bertsmith.recipes.comparison.bench import Bench, Budget, too_short
from bertsmith.recipes.comparison.sources import SEED, Kept, Made, Source, timed
from bertsmith.text.documents.readers import read_documents
from bertsmith.text.documents.sources import total_bytes
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens

_SAMPLE, _MUCH = 200_000, 25  # words that are timed first, where the text has that many bytes for each of them
_LATE = 1.1  # word vectors that took longer than this times their budget are refused
# Epochs from which more time is not spent on word vectors, some times the default: papers use no more.
_MOST_EPOCHS = {"skip-gram": 20, "cbow": 20, GLOVE: 100}
_OF_COUNTS = (GLOVE, PPMI)  # methods that read the text once, whatever the number of epochs
_NEAR = 0.1  # passes over the whole text may fall short of the tokens of the budget by this many passes


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordVectorTraining(Kept):
    """Word vectors that are trained on the text with the defaults of their method, for as many epochs as fit."""

    name: str
    method: str  # one of `word_vectors.settings.METHODS`

    def make_in(self, bench: Bench, folder: Path) -> dict[str, float]:
        """See `Kept.make_in`; the tokens are words, times epochs where each reads them again.

        In a time, the first epoch is timed. The vectors are those of that epoch if no more fits; otherwise they are
        trained again with the number of epochs that fits, which the learning rate depends on.
        """
        if bench.budget.tokens is not None:
            return self._of_tokens(bench.reading().texts, bench.budget.tokens, folder)
        plan = folder.with_name(f"{folder.name}.plan.json")
        if not plan.is_file():
            self._require_time(bench, folder)
            before, epochs = self._first_epoch(bench, folder)
            write_json(plan, {"before": before, "epochs": epochs})
        planned = read_json(plan)
        before, epochs = planned["before"], planned["epochs"]
        costs = dict(before)
        if epochs > 1:
            resumed = folder.with_name(f"{folder.name}.training").is_dir()
            with timed() as spent:
                train_word_vectors(
                    bench.reading().texts, folder, method=self.method, epochs=epochs, resume=resumed, replace=True,
                    seed=SEED,
                )  # fmt: skip
            estimate = before["first"] + epochs * before["epoch"]
            spent = {"processor_seconds": estimate, "seconds": estimate} if resumed else spent
            costs = {name: round(before[name] + spent[name], 3) for name in ("processor_seconds", "seconds")}
        plan.unlink()
        return self._costs(costs, int(before["words"]), epochs)

    def _costs(self, spent: Mapping[str, float], words: int, epochs: int) -> dict[str, float]:
        result = {name: spent[name] for name in ("processor_seconds", "seconds")}
        result["tokens"] = words if self.method in _OF_COUNTS else words * epochs
        return result if self.method == PPMI else {**result, "epochs": epochs}

    def _of_tokens(self, texts: Sequence[Path], tokens: int, folder: Path) -> dict[str, float]:
        """Makes them of a number of words: the beginning of the text, or several passes over as much as gives that.

        Counts are made of each word once, so those of a longer text than there is are those of all of it.
        """
        part = folder.with_name(f"{folder.name}.text.txt")
        is_resumed = folder.with_name(f"{folder.name}.training").is_dir()
        words, passes = _write_beginning(texts, part, tokens), 1
        if words < tokens and self.method not in _OF_COUNTS:
            passes = max(1, math.ceil(tokens / words - _NEAR))
            _write_beginning(texts, part, tokens // passes)
        epochs: dict[str, Any] = {} if self.method in _OF_COUNTS else {"epochs": passes}
        try:
            with timed() as spent:
                made = train_word_vectors(
                    [part], folder, method=self.method, form="lines", resume=is_resumed, replace=True, seed=SEED,
                    **epochs,
                )  # fmt: skip
        finally:
            part.unlink()
        return self._costs(spent, int(made.about["text_words"]), int(made.about["settings"]["epochs"] or 1))

    def _require_time(self, bench: Bench, folder: Path) -> None:
        """Refuses much text in little time before all of it is read, by an estimate from its beginning."""
        texts, budget = bench.reading().texts, bench.budget
        total = total_bytes(texts) or 0
        if total < _MUCH * _SAMPLE:
            return
        sample, made = folder.with_name(f"{folder.name}.sample.txt"), folder.with_name(f"{folder.name}.sample")
        _write_beginning(texts, sample, _SAMPLE)
        size = sample.stat().st_size
        epochs: dict[str, Any] = {} if self.method == PPMI else {"epochs": 1}
        with timed() as spent, quiet():
            train_word_vectors([sample], made, method=self.method, replace=True, seed=SEED, **epochs)
        shutil.rmtree(made)
        sample.unlink()
        needed = spent["processor_seconds"] * total / size
        if needed > 2 * _seconds(budget):
            raise too_short(self.name, budget, needed, "reading the text once")

    def _first_epoch(self, bench: Bench, folder: Path) -> tuple[dict[str, float], int]:
        """The processor seconds of the preparation, of an epoch and of both, and the epochs that fit."""
        marks: list[float] = []
        epochs: dict[str, Any] = {} if self.method == PPMI else {"epochs": 1}
        with timed() as spent:
            start = time.process_time()
            made = train_word_vectors(
                bench.reading().texts, folder, method=self.method, replace=True, seed=SEED,
                on_epoch=lambda _: marks.append(time.process_time()), **epochs,
            )  # fmt: skip
            end = time.process_time()
        words = int(made.about["text_words"])
        first = (marks[0] if marks else end) - start
        epoch = end - start - first
        budget = bench.budget
        if end - start > _LATE * _seconds(budget):
            shutil.rmtree(folder)
            raise too_short(self.name, budget, end - start, "reading the text once")
        result = {**spent, "first": round(first, 3), "epoch": round(epoch, 3), "words": words}
        if self.method == PPMI:
            return result, 1
        left = _seconds(budget) - (end - start) - first
        return result, max(1, min(_MOST_EPOCHS[self.method], int(left / max(epoch, 1e-3))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenWordVectors(Source):
    """Word vectors that exist."""

    needs_text: ClassVar[bool] = False
    path: str  # a folder or file of them, see `load_word_vectors`

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`; nothing is read yet."""
        return Made(path=self.path)


def _seconds(budget: Budget) -> float:
    """The processor time of a budget that has one."""
    assert budget.processor_seconds is not None, "a number of tokens is not timed"
    return budget.processor_seconds


def _write_beginning(texts: Sequence[Path], to: Path, most: int) -> int:
    """Writes the sentences of texts until there are `most` words, an empty line after each document; their number."""
    rules, words = TextRules(), 0
    with atomic_file(to) as file:
        for document in read_documents(texts):
            for sentence in document.sentences:
                if words >= most:
                    return words
                file.write(f"{sentence}\n".encode())
                words += len(basic_tokens(sentence, rules))
            file.write(b"\n")
    return words
