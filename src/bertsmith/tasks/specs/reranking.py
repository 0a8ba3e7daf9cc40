"""Reranking: a cross-encoder that scores how well a passage answers a query, trained on queries with several passages.

Letters: E examples, N candidates of all examples.

A list is a unit: the query and each candidate in a row of their own, with one score per row, see `heads.list_losses`.
A prediction for a pair of texts is a number; for a list, on which the model is scored, it is its ranking.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.models.heads.head_spec import POINTWISE, RERANKING
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, ListExample, TextExample
from bertsmith.tasks.encoding.units import PER_ROW, EncodedExamples, Logits
from bertsmith.tasks.metrics.ranking import RANK_METRICS, value_of_list
from bertsmith.tasks.specs.candidates import require_whole_texts
from bertsmith.tasks.specs.choice import ChoiceTask, scores_of_units
from bertsmith.tasks.specs.predictions import ChoicePrediction, NumberPrediction
from bertsmith.tasks.specs.regression import numbers_of
from bertsmith.tasks.specs.selection import SelectionTask
from bertsmith.tasks.specs.task import FROZEN_COSINE, WORDS_COSINE, Task
from bertsmith.tasks.specs.whole_texts import check_texts
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.tasks.encoding.units import TaskBatch

_OF_CANDIDATES = "response-selection"  # the task whose models rank candidates by vectors, or by words
_EQUAL = 1e-4  # difference of shares, below which two candidates have the same score


class RerankingTask(ChoiceTask):
    """Scores pairs of a query and a passage, and ranks the candidates of lists."""

    kind = RERANKING
    baselines = (WORDS_COSINE, FROZEN_COSINE)
    settings_used = frozenset({"long_text"})

    def of_vectors(self) -> Task:
        """The task that ranks the same lists by vectors; see `Task.of_vectors`."""
        ranks = tuple(RANK_METRICS)
        return SelectionTask(
            dataclasses.replace(
                self.spec,
                kind=SelectionTask.kind,
                name=_OF_CANDIDATES,
                metric=ranks[0],
                metrics=ranks,
                pair=False,
                reads="mean",
                bilstm_layers="",
                objective="",
                activation="",
            )
        )

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that pairs have both texts, and lists candidates with scores that differ; see `Task.check`."""
        require_whole_texts(self.spec)
        lists = [example for example in examples if isinstance(example, ListExample)]
        if not gold:
            check_texts([example for example in examples if not isinstance(example, ListExample)], pair=True, gold=gold)
            return
        assert len(lists) == len(examples), "lists are what has gold"
        for example in lists:
            if len(example.scores) != len(example.endings):
                counts = f"{len(example.scores)} for {len(example.endings)}"
                raise InputError.at(example.location, "a score for each candidate", counts, "correct the row")
            if training and len(example.endings) < 2:
                more = "add candidates, or find some with --hard-negatives"
                raise InputError.at(example.location, "at least two candidates", "one", more)
            wrong = next((score for score in example.scores if not 0 <= score <= 1), None)
            if training and self.spec.objective == POINTWISE and wrong is not None:
                fix = "scale the scores, or use another --list-loss"
                raise InputError.at(
                    example.location, "scores from 0 to 1, for --list-loss pointwise", f"{wrong:g}", fix
                )
        if examples and not any(len(set(example.scores)) > 1 for example in lists):
            raise InputError(
                expected="candidates with different scores in a list",
                found=f"equal ones in each of {len(examples):,}",
                fix="add candidates that do not answer their query, or find some with --hard-negatives",
            )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example, one row per candidate: [CLS] query [SEP] candidate [SEP]; see `Task.encode`."""
        encoded = super().encode([_choice(example) for example in examples], tokenizer)
        if not training:
            return encoded
        gold = [example.scores for example in examples if isinstance(example, ListExample)]
        assert len(gold) == len(examples), "lists with scores"
        from bertsmith.models.heads.list_losses import compared

        return dataclasses.replace(
            encoded,
            targets=np.array([score for scores in gold for score in scores], dtype=np.float32),
            targets_per=PER_ROW,
            losses_per_unit=np.array([compared(self.spec.objective, list(scores)) for scores in gold], dtype=np.int64),
        )

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """The loss of the lists; see `TaskWithLoss.loss`.

        Args:
            logits: [n, 1], one score per row.
        """
        import torch

        from bertsmith.models.heads.list_losses import list_losses

        assert batch.targets is not None, "lists with scores"
        exact = logits if logits.dtype == torch.float64 else logits.float()
        targets = batch.targets.to(exact.dtype)[:, None]
        scores, gold, exists = (
            scores_of_units(values, batch, 0.0) for values in (exact, targets, torch.ones_like(targets))
        )
        return list_losses(self.spec.objective, scores, gold, exists > 0), {}

    def decode(  # type: ignore[override]
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> Sequence[NumberPrediction | ChoicePrediction]:
        """A `NumberPrediction` for each pair, or a `ChoicePrediction` for each list; see `Task.decode`."""
        if not len(features):
            return []
        cut = np.add.reduceat(features.rows.cut_by_row, features.first_rows)
        if isinstance(examples[0], TextExample):
            return numbers_of(logits[:, 0], self.spec.activation, cut)
        return self.predictions(examples, logits[:, 0].astype(np.float64), cut)

    def golds(self, examples: Sequence[Example]) -> list[Any]:
        """The scores of the candidates; see `Task.golds`."""
        return [list(example.scores) for example in examples if isinstance(example, ListExample)]

    def score(self, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]) -> dict[str, float]:
        """The scores of the rankings: means over the lists whose candidates have different scores."""
        values = {name: self._of_lists(name, examples, predictions) for name in self.spec.metrics}
        return {name: float(np.nanmean(value)) for name, value in values.items()}

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]
    ) -> npt.NDArray[np.float64]:
        """The main score of each list, 0 where all candidates have the same score; see `Task.example_scores`."""
        return np.nan_to_num(self._of_lists(self.spec.metric, examples, predictions))

    def _of_lists(
        self, metric: str, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]
    ) -> npt.NDArray[np.float64]:
        """A score of each list, NaN where its candidates have the same score, [E]."""
        lists = zip(predictions, self.golds(examples), strict=True)
        return np.array(
            [value_of_list(metric, prediction.probabilities, gold) for prediction, gold in lists], dtype=np.float64
        )

    def is_collapsed(self, predictions: Sequence[ChoicePrediction], examples: Sequence[Example]) -> bool:
        """Whether all candidates of each list have the same score."""
        return all(max(each.probabilities) - min(each.probabilities) < _EQUAL for each in predictions)


def _choice(example: Example) -> ChoiceExample:
    """A list, or a pair as a list of one candidate, with the pieces that it has."""
    if isinstance(example, ChoiceExample):
        return example
    assert isinstance(example, TextExample), "this task takes pairs and lists"
    assert example.second is not None, "a pair"
    return ChoiceExample(
        id=example.id,
        context=example.first,
        endings=(example.second,),
        location=example.location,
        pieces=example.pieces,
    )
