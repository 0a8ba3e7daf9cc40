"""What a fine-tuning task is: how examples become rows, which head reads them, its loss, its answers, its scores.

A task holds no training code and no files' formats. It is fully described by its `TaskSpec`, which travels in the
model's passport, so that training, evaluation, prediction and serving read, cut and decode alike.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bertsmith.datasets.examples import Example
from bertsmith.encoding.forward import Logits
from bertsmith.encoding.units import Features, TaskBatch
from bertsmith.errors import nearest
from bertsmith.model.heads import Head
from bertsmith.settings import from_dict, help_field, require, to_dict
from bertsmith.text.pack import TRUNCATIONS
from bertsmith.text.tokenizer import Tokenizer

LONG_TEXTS = (*TRUNCATIONS, "windows")
POOLINGS = ("mean", "max")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """How a task cuts its texts and reads its answers; stored with the model and used alike everywhere.

    Raises:
        ConfigError: a value is impossible.
    """

    max_length: int = help_field(128, "tokens of a row at most, with [CLS] and [SEP]")
    long_text: str = help_field(
        "longest_first", "a text that is too long: longest_first, head, tail, head_tail, windows or error"
    )
    stride: int = help_field(128, "tokens between the beginnings of windows")
    pooling: str = help_field("mean", "logits of the windows of one text: mean or max")
    max_question: int = help_field(64, "tokens of a question at most")
    max_answer: int = help_field(30, "tokens of an answer at most")
    n_best: int = help_field(20, "candidate answers that are kept")
    calibrate: bool = help_field(
        False, "classification: fit a temperature on the dev examples, for honest probabilities"
    )
    document_context: bool = help_field(False, "tagging: fill each row with the neighbouring sentences")

    def __post_init__(self) -> None:
        for name in ("max_length", "stride", "max_question", "max_answer", "n_best"):
            value = getattr(self, name)
            require(value >= 1, expected=f"{name} of at least 1", found=value, fix=f"raise {name}")
        for name, known in (("long_text", LONG_TEXTS), ("pooling", POOLINGS)):
            value = getattr(self, name)
            require(value in known, expected=f"a known {name}", found=repr(value), fix=nearest(str(value), known))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """All that tells one task from another; plain values, kept in `bertsmith.json`.

    Attributes:
        kind: classification, regression, choice, tagging or span; the class that does it.
        name: what a user calls it, such as "cola".
        labels: names of the outputs in the order of the head's rows; empty for regression, choice and span.
        pair: examples have a text B; None: they may, where a model of another tool does not say.
        multi_label: an example may have several labels, or none.
        metric: the score by which models are chosen; higher is better.
        metrics: all scores, of the names in `metrics.labels`.
        scheme: of the tags: IOB1, IOB2, IOBES, or "" where a tag stands alone (part of speech).
        unanswerable: a question may have no answer in its context.
        threshold: probability above which a label of several is given; or the null threshold of SQuAD 2.0.
        temperature: logits are divided by it before they become probabilities; fitted on dev data on request.
        settings: cutting and decoding.
    """

    kind: str
    name: str
    labels: tuple[str, ...] = ()
    pair: bool | None = False
    multi_label: bool = False
    metric: str = "accuracy"
    metrics: tuple[str, ...] = ("accuracy",)
    scheme: str = ""
    unanswerable: bool = False
    threshold: float | None = None
    temperature: float = 1.0
    settings: TaskSettings = dataclasses.field(default_factory=TaskSettings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return to_dict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any], where: str) -> "TaskSpec":
        """The spec in a passport.

        Raises:
            ConfigError: a key is unknown or a value impossible.
        """
        settings = from_dict(TaskSettings, values.get("settings", {}), where)
        plain = {name: value for name, value in values.items() if name != "settings"}
        return dataclasses.replace(from_dict(TaskSpec, plain, where), settings=settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction(abc.ABC):
    """What a task says about one example.

    Attributes:
        cut_tokens: tokens of the example that were not read.
    """

    cut_tokens: int = 0

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""

    @abc.abstractmethod
    def line(self) -> str:
        """One line for people, without a line break."""


class Task(abc.ABC):
    """One kind of task. Everything is a function of the spec and the arguments.

    Args:
        spec: which task of this kind.
    """

    kind: ClassVar[str]
    # The fields of `TaskSettings` that this kind looks at, beside max_length.
    settings_used: ClassVar[frozenset[str]]

    def __init__(self, spec: TaskSpec) -> None:
        assert spec.kind == self.kind, f"a spec of {spec.kind} for {self.kind}"
        self.spec = spec

    @property
    @abc.abstractmethod
    def head(self) -> Head:
        """The layer on top of the encoder."""

    @abc.abstractmethod
    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Returns if every example can be encoded.

        Args:
            gold: the examples must have labels. One that is not known is warned about and counts as a miss.
            training: the examples are to be learned from, so their labels must be known.

        Raises:
            InputError: one cannot; the message names its file and row.
        """

    @abc.abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> Features:
        """The examples as rows, with targets where they have labels.

        Args:
            training: units are for training; a task may leave out what only prediction needs.

        Raises:
            InputError: a text is too long and the settings say that is an error.
        """

    @abc.abstractmethod
    def loss(self, logits: Tensor, batch: TaskBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss over the targets of a micro-batch in fp32, and sums for the log.

        Args:
            logits: [r, K], of the positions that the head read.
        """

    @abc.abstractmethod
    def decode(
        self, examples: Sequence[Example], features: Features, logits: Logits, tokenizer: Tokenizer
    ) -> Sequence[Prediction]:
        """One prediction for each example, in their order.

        Args:
            logits: float32 [R, K], of all positions that the head reads, in the order of the features.
        """

    @abc.abstractmethod
    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        """The official scores, each a share or a coefficient (SQuAD: per cent, as its scorer prints)."""

    @abc.abstractmethod
    def example_scores(self, examples: Sequence[Example], predictions: Sequence[Any]) -> npt.NDArray[np.float64]:
        """What each example adds to the main score: 1 for a hit, F1 of an answer, minus squared error; float64 [E]."""

    @abc.abstractmethod
    def is_collapsed(self, predictions: Sequence[Any], examples: Sequence[Example]) -> bool:
        """Whether the model says the same of every example though the gold labels differ."""

    def ignored_settings(self) -> list[str]:
        """The settings that were changed though this task does not look at them."""
        plain, used = TaskSettings(), self.settings_used | {"max_length"}
        names = (field.name for field in dataclasses.fields(TaskSettings))
        return [
            name for name in names if name not in used and getattr(self.spec.settings, name) != getattr(plain, name)
        ]

    def answer_without_model(self, example: Example) -> Prediction | None:
        """The prediction of an example that leaves the model nothing to read; None for all others, the default."""
        return None

    @property
    def selection_metric(self) -> str:
        """The score by which the best epoch is kept."""
        return self.spec.metric

    def tuned(self, examples: Sequence[Example], predictions: Sequence[Any]) -> TaskSpec:
        """The spec with what is fitted on dev data after training, such as a threshold; unchanged by default."""
        return self.spec

    def log_sums(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The values of a training log line from the sums of `loss`."""
        count = sums.get("count", 0.0)
        return {"accuracy": sums["correct"] / count} if count and "correct" in sums else {}
