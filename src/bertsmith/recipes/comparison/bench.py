"""What all systems of a comparison share: the task and its examples, the text, the training budget."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require_known, require_number
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.architectures import ARCHITECTURES
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import Task, TaskSpec
from bertsmith.tasks.task_data.split import TaskData

if TYPE_CHECKING:
    from bertsmith.recipes.comparison.corpus_text import CorpusText

MINUTES = 5.0
SIZE_FOR_TOKENS = "tiny"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """What each system that reads the text may spend on it: minutes of this machine, or tokens."""

    minutes: float | None = None  # times the threads of this process, the processor time of a system
    tokens: int | None = None  # instead of minutes
    size: str = "auto"  # of the networks that are pre-trained, or "auto"

    def __post_init__(self) -> None:
        sizes = [
            "auto",
            *dict.fromkeys(size for architecture in ARCHITECTURES.values() for size in architecture.config.sizes),
        ]
        require_known("model size", self.size, sizes)
        if None not in (self.minutes, self.tokens):
            raise ConfigError(expected="one of --minutes and --tokens", found="both", fix="leave one out")
        for name, most in (("minutes", 10**7), ("tokens", 10**15)):
            value = getattr(self, name)
            if value is not None:
                require_number(name, value, most=most)
                require_number(name, value, above=0)

    @staticmethod
    def of(minutes: float | None, tokens: int | None, size: str | None) -> "Budget":
        """The budget with what was not given: MINUTES, and a size that can be chosen without minutes."""
        if minutes is None and tokens is None:
            minutes = MINUTES
        return Budget(minutes=minutes, tokens=tokens, size=size or ("auto" if tokens is None else SIZE_FOR_TOKENS))

    @property
    def processor_seconds(self) -> float | None:
        """The processor time of a system, over all threads; None for a budget in tokens."""
        return None if self.minutes is None else 60 * self.minutes * torch.get_num_threads()

    def words(self) -> str:
        """The budget in words.

        >>> Budget(tokens=1_000_000).words()
        '1,000,000 tokens'
        """
        if self.tokens is not None:
            return f"{self.tokens:,} tokens"
        return f"{self.minutes:g} minutes"


def too_short(name: str, budget: Budget, needed: float, work: str) -> ConfigError:
    """The error for a budget in which a system cannot be made.

    Args:
        needed: the processor seconds that it needs.
    """
    least = math.ceil(needed / 6 / torch.get_num_threads()) / 10
    return ConfigError(
        expected=f"a time long enough for {name}",
        found=f"{budget.words()}; {work} takes {needed:.1f} s of processor time",
        fix=f"allow more than {least:g} minutes with --minutes, or leave {name} out of --systems",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """The task, the examples, and what systems are made from."""

    spec: TaskSpec
    # all training examples, and the dev examples on which every system is scored; none with folds
    data: TaskData
    text: "CorpusText | None"  # the text that systems read; None if there is none
    budget: Budget
    models: Path  # the folder of what is made from the text
    device: str = "auto"
    folds: Sequence[TaskData] = ()  # for each fold, its examples as dev examples, and the others for training

    @property
    def parts(self) -> "dict[int, Bench]":
        """The comparison on each fold by its number, or the whole of it as 0; dev examples are its scored ones."""
        if not self.folds:
            return {0: self}
        return {
            number: dataclasses.replace(self, data=data, folds=()) for number, data in enumerate(self.folds, start=1)
        }

    @property
    def scored(self) -> int:
        """How many examples every system is scored on."""
        return sum(len(part.data.dev) for part in self.parts.values())

    @property
    def task(self) -> Task:
        """The task, which decodes and scores."""
        return task_for(self.spec)

    @property
    def counts_processor_time(self) -> bool:
        """Whether networks run on the CPU, so that processor time measures their work."""
        return choose(self.device).device == "cpu"

    @property
    def clock(self) -> Callable[[], float]:
        """What the time for one text is measured by, in seconds: processor time, on a GPU wall-clock time."""
        return time.process_time if self.counts_processor_time else time.perf_counter

    def train(self, labels: int, seed: int) -> Sequence[Example]:
        """The training examples of a cell, in file order: a random sample, in which that of fewer labels is contained.

        Args:
            labels: how many; all if there are no more.
        """
        every = self.data.train
        if labels >= len(every):
            return every
        chosen = generator(seed, "labels of a comparison").permutation(len(every))[:labels]
        return [every[number] for number in sorted(chosen.tolist())]

    def reading(self) -> "CorpusText":
        """The text; only for systems that need one, without which a comparison with them is refused."""
        assert self.text is not None, "checked before anything is made"
        return self.text

    def record(self) -> dict[str, Any]:
        """By what a resumed comparison is recognized, as plain values for JSON."""
        text = None if self.text is None else {"digest": self.text.digest, "budget": dataclasses.asdict(self.budget)}
        folds = {"folds": len(self.folds)} if self.folds else {}
        return {"spec": self.spec.to_dict(), "text": text, "device": self.device, **folds}
