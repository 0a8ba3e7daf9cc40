"""Regression: a number for a text or a pair of texts, such as the similarity of two sentences from 0 to 5.

Source: Devlin et al. (2018), appendix B.1 (STS-B); a single output trained with the squared error.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.units import EncodedExamples, Logits
from bertsmith.tasks.metrics.numbers import NUMBER_METRICS, spearman
from bertsmith.tasks.specs.predictions import NumberPrediction
from bertsmith.tasks.specs.task import OF_TEXTS, TaskWithLoss
from bertsmith.tasks.specs.whole_texts import (
    NO_ORDER,
    check_texts,
    encode_units,
    pooled_logits,
    pooled_units,
)
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch

SIGMOID = "sigmoid"  # as `TaskSpec.activation`
_COLLAPSED_SPREAD = 0.01  # of the gold values' standard deviation
_NOT_BY_CHANCE = 1.96  # standard errors
LARGEST = 1e15  # of a gold value: sums of squared errors stay finite in fp32


class RegressionTask(TaskWithLoss):
    """Predicts a number for each text or pair."""

    kind = "regression"
    baselines = OF_TEXTS
    settings_used = frozenset({"long_text", "stride", "pooling", "both_orders"})
    weighs_examples = True

    @property
    def head(self) -> "Head":
        """A linear layer with one output on the vector of a row."""
        return self.head_on_rows(1)

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that texts are present and gold values are numbers; see `Task.check`."""
        check_texts(examples, pair=self.spec.pair, gold=gold)
        if gold:
            for example in examples:
                assert isinstance(example, TextExample)
                if not (isinstance(example.label, float) and abs(example.label) <= LARGEST):
                    raise InputError(
                        expected=f"a number from {-LARGEST:g} to {LARGEST:g} in {example.location}",
                        found=repr(example.label),
                        fix="correct the row, or scale the numbers",
                    )
        numbers = set(_gold(examples).tolist()) if training else set()
        if len(numbers) == 1:
            raise InputError(
                expected="different numbers in the training examples",
                found=f"{numbers.pop():g} in each",
                fix="add examples with other numbers, or name another column with --label-column",
            )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example; see `Task.encode`."""
        texts = cast("Sequence[TextExample]", examples)
        return encode_units(self.spec, texts, self.targets(texts), tokenizer, training=training)

    def targets(self, examples: Sequence[TextExample]) -> npt.NDArray[np.generic] | None:
        """float32 [E]; None without numbers."""
        labelled = bool(examples) and all(isinstance(example.label, float) for example in examples)
        return _gold(examples).astype(np.float32) if labelled else None

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """The squared error; see `TaskWithLoss.loss`."""
        import torch

        assert batch.targets is not None
        values = pooled_units(logits.float(), batch, self.spec.settings.pooling)[:, 0]
        loss = batch.weighted((values - batch.targets).square())
        return loss, {"squared_error": loss.detach(), "count": torch.tensor(batch.num_units, device=logits.device)}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The squared error against the teacher's numbers; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import exact

        pooling = self.spec.settings.pooling
        return (
            (pooled_units(exact(logits), batch, pooling) - pooled_units(exact(wanted), batch, pooling)).square().sum()
        )

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[NumberPrediction]:
        """One `NumberPrediction` per example; see `Task.decode`."""
        cut = np.add.reduceat(features.rows.cut_by_row, features.first_rows) if len(features) else ()
        return numbers_of(pooled_logits(logits, features, self.spec.settings.pooling)[:, 0], self.spec.activation, cut)

    def averaged(self, predictions: Sequence[Sequence[NumberPrediction]]) -> list[NumberPrediction]:
        """The means of the numbers of several models; see `Task.averaged`."""
        return [
            NumberPrediction(
                value=float(np.mean([prediction.value for prediction in same])),
                cut_tokens=max(prediction.cut_tokens for prediction in same),
            )
            for same in zip(*predictions, strict=True)
        ]

    def score(self, examples: Sequence[Example], predictions: Sequence[NumberPrediction]) -> dict[str, float]:
        """The metrics of the spec."""
        gold, values = _gold(examples), np.array([prediction.value for prediction in predictions])
        return {name: NUMBER_METRICS[name](gold, values) for name in self.spec.metrics}

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[NumberPrediction]
    ) -> npt.NDArray[np.float64]:
        """The negative squared error, float64 [E]."""
        values = np.array([prediction.value for prediction in predictions])
        return np.asarray(-((_gold(examples) - values) ** 2))

    def is_collapsed(self, predictions: Sequence[NumberPrediction], examples: Sequence[Example]) -> bool:
        """Whether all predictions are nearly equal although the gold values differ, and do not rank them either.

        A model that ranks its examples has learned something, however small the differences: its Spearman correlation
        with the gold values is then further from zero than with random numbers (95%, by its standard error).
        """
        gold, values = _gold(examples), np.array([prediction.value for prediction in predictions])
        if not gold.std() > 0 or values.std() >= _COLLAPSED_SPREAD * gold.std():
            return False
        return abs(spearman(gold, values)) * math.sqrt(len(gold) - 1) < _NOT_BY_CHANCE

    def ignored_settings(self) -> list[str]:
        """The ignored settings of `Task`, plus the order of texts where there is one."""
        alone = self.spec.settings.both_orders and self.spec.pair is False
        return [*super().ignored_settings(), *(["both_orders"] if alone else [])]

    def why_ignored(self, name: str) -> str:
        """Why a setting has no effect; see `Task.why_ignored`."""
        return NO_ORDER if name == "both_orders" else super().why_ignored(name)

    def log_sums(self, sums: Any) -> dict[str, float]:
        """The mean squared error for a log line."""
        return {"squared_error": sums["squared_error"] / sums["count"]} if sums.get("count") else {}


def numbers_of(outputs: Logits, activation: str, cut: npt.ArrayLike) -> list[NumberPrediction]:
    """One prediction per output [E], with its activation and the tokens that the example lost."""
    raw: list[float | None] = [None] * len(outputs)
    if activation == SIGMOID:
        raw = outputs.tolist()
        outputs = 0.5 * (1 + np.tanh(0.5 * outputs))  # no exponential that overflows
    return [
        NumberPrediction(value=value, raw=output, cut_tokens=lost)
        for value, output, lost in zip(outputs.tolist(), raw, np.asarray(cut).tolist(), strict=True)
    ]


def _gold(examples: Sequence[Example]) -> npt.NDArray[np.float64]:
    return np.array([float(cast("TextExample", example).label) for example in examples])  # type: ignore[arg-type]
