"""Word vectors of a comparison: trained on its text, for as many epochs as fit into the budget, or given.

::

    MODELS/NAME/            the folder of word vectors, see `sources`
    MODELS/NAME.plan.json   while they are made: what the first epoch took, and the epochs that fit
"""

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any, ClassVar

from bertsmith.comparison.bench import Bench, too_short
from bertsmith.comparison.sources import SEED, Kept, Made, Source, timed
from bertsmith.documents.readers import read_documents
from bertsmith.documents.sources import total_bytes
from bertsmith.errors import ConfigError
from bertsmith.files import atomic_file, read_json, write_json
from bertsmith.progress import quiet
from bertsmith.word_vectors.settings import DEFAULTS, GLOVE, PPMI
from bertsmith.word_vectors.training import train_word_vectors

_SAMPLE, _MUCH = 10**6, 4  # bytes that are timed first, where the text has that many times more
_LATE = 1.1  # word vectors that took longer than this times their budget are refused
# Epochs from which more time is not spent on word vectors, some times the default: papers use no more.
_MOST_EPOCHS = {"skip-gram": 20, "cbow": 20, GLOVE: 100}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordVectorTraining(Kept):
    """Word vectors that are trained on the text with the defaults of their method, for as many epochs as fit.

    Attributes:
        name: the name of their folder.
        method: one of `word_vectors.settings.METHODS`.
    """

    name: str
    method: str

    def make_in(self, bench: Bench, place: Path) -> dict[str, float]:
        """See `Kept.make_in`.

        The first epoch is timed. The vectors are those of that epoch if no more fits; otherwise they are trained again
        with the number of epochs that fits, which the learning rate depends on.
        """
        plan = place.with_name(f"{place.name}.plan.json")
        before = {"processor_seconds": 0.0, "seconds": 0.0}
        if not plan.is_file():
            self._require_time(bench, place)
            before, epochs = self._first_epoch(bench, place)
            write_json(plan, {"before": before, "epochs": epochs})
        planned = read_json(plan)
        before, epochs = planned["before"], planned["epochs"]
        costs = dict(before)
        if epochs > 1:
            resumed = place.with_name(f"{place.name}.training").is_dir()
            with timed() as spent:
                train_word_vectors(
                    bench.reading().texts, place, method=self.method, epochs=epochs, resume=resumed, replace=True,
                    seed=SEED,
                )  # fmt: skip
            estimate = before["first"] + epochs * before["epoch"]
            spent = {"processor_seconds": estimate, "seconds": estimate} if resumed else spent
            costs = {name: round(before[name] + spent[name], 3) for name in ("processor_seconds", "seconds")}
        plan.unlink()
        result = {name: costs[name] for name in ("processor_seconds", "seconds")} | {"tokens": before["words"]}
        return result if self.method == PPMI else {**result, "epochs": epochs}

    def _require_time(self, bench: Bench, place: Path) -> None:
        """Refuses much text in little time before all of it is read, by an estimate from its first million characters.

        Raises:
            ConfigError: a single epoch would take more than twice the budget.
        """
        texts, budget = bench.reading().texts, bench.budget
        total = total_bytes(texts) or 0
        if budget.minutes is None or total < _MUCH * _SAMPLE:
            return
        sample, made = place.with_name(f"{place.name}.sample.txt"), place.with_name(f"{place.name}.sample")
        size = 0
        with atomic_file(sample) as file:
            for document in read_documents(texts):
                data = "".join(f"{sentence}\n" for sentence in (*document.sentences, "")).encode("utf-8")[
                    : _SAMPLE - size
                ]
                file.write(data)
                size += len(data)
                if size >= _SAMPLE:
                    break
        epochs: dict[str, Any] = {} if self.method == PPMI else {"epochs": 1}
        with timed() as spent, quiet():
            train_word_vectors([sample], made, method=self.method, replace=True, seed=SEED, **epochs)
        shutil.rmtree(made)
        sample.unlink()
        needed = spent["processor_seconds"] * total / size
        if needed > 2 * budget.processor_seconds:
            raise too_short(self.name, budget, needed, "reading the text once")

    def _first_epoch(self, bench: Bench, place: Path) -> tuple[dict[str, float], int]:
        """The processor seconds of the preparation, of an epoch and of both, and the epochs that fit.

        Raises:
            ConfigError: not even one does.
        """
        marks: list[float] = []
        epochs: dict[str, Any] = {} if self.method == PPMI else {"epochs": 1}
        with timed() as spent:
            start = time.process_time()
            made = train_word_vectors(
                bench.reading().texts, place, method=self.method, replace=True, seed=SEED,
                on_epoch=lambda _: marks.append(time.process_time()), **epochs,
            )  # fmt: skip
            end = time.process_time()
        words = int(made.about["text_words"])
        first = (marks[0] if marks else end) - start
        epoch = end - start - first
        budget = bench.budget
        if end - start > _LATE * budget.processor_seconds:
            shutil.rmtree(place)
            raise too_short(self.name, budget, end - start, "reading the text once")
        result = {**spent, "first": round(first, 3), "epoch": round(epoch, 3), "words": words}
        if self.method == PPMI:
            return result, 1
        if budget.tokens is not None:
            # The counts of GloVe are made of the text once, whatever the number of epochs over the counts.
            usual = int(DEFAULTS[GLOVE]["epochs"])
            return result, usual if self.method == GLOVE else self._epochs_for_tokens(bench, place, words)
        left = budget.processor_seconds - (end - start) - first
        return result, max(1, min(_MOST_EPOCHS[self.method], int(left / max(epoch, 1e-3))))

    def _epochs_for_tokens(self, bench: Bench, place: Path, words: int) -> int:
        """The passes over the text that are nearest to the tokens of the budget.

        Raises:
            ConfigError: they are less than half a pass.
        """
        tokens = bench.budget.tokens or 0
        if tokens < words / 2:
            shutil.rmtree(place)
            raise ConfigError(
                expected=f"tokens enough for {self.name}, which reads the whole text, {words:,} words",
                found=f"{tokens:,}",
                fix=f"allow at least {words:,} with --tokens, or give less text",
            )
        return max(1, round(tokens / words))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenWordVectors(Source):
    """Word vectors that exist.

    Attributes:
        path: a folder or file of them, see `load_word_vectors`.
    """

    needs_text: ClassVar[bool] = False
    path: str

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`; nothing is read yet."""
        return Made(path=self.path)
