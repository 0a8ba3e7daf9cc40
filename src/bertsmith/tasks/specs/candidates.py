"""What the kinds of task that choose one of several candidates share: checks, predictions, scores.

Letters: E examples, N candidates of all examples.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets.examples import ChoiceExample, Example
from bertsmith.tasks.encoding.units import Ints
from bertsmith.tasks.metrics.ranking import RANK_METRICS, rank_of
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.settings import WINDOWED
from bertsmith.tasks.specs.task import FROZEN_COSINE, OVERLAP, WORDS_COSINE, Task, TaskSpec
from bertsmith.text.tokenizers.pack import PackedRows


class ChoosingTask(Task):
    """Chooses one of the candidates of each example, or with the metrics of a ranking, ranks them."""

    fewest_in_training = 2  # candidates of an example

    @property
    def baselines(self) -> tuple[str, ...]:
        """Of a ranking cosines, otherwise the words that a candidate shares with its context."""
        return (WORDS_COSINE, FROZEN_COSINE) if self.spec.ranks else (OVERLAP,)

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that every example has enough candidates and, with `gold`, a valid label; see `Task.check`."""
        require_whole_texts(self.spec)
        name = "replies" if self.spec.ranks else "endings"
        for example in choices_of(examples):
            count, fewest = len(example.endings), self.fewest_in_training if training else 2
            if count < fewest:
                expected = f"at least two {name}" if fewest > 1 else "a reply"
                more = ", or give a list with --replies" if self.spec.ranks and not gold else ""
                raise InputError.at(example.location, expected, str(count), f"add {name} or remove the row{more}")
            if gold and (example.label is None or not 0 <= example.label < count):
                raise InputError(
                    expected=f"a label from 0 to {count - 1} in {example.location}",
                    found="none" if example.label is None else str(example.label),
                    fix=f"count the {name} from 0",
                )

    def predictions(
        self, examples: Sequence[Example], scores: npt.NDArray[np.float64], cut: npt.ArrayLike
    ) -> list[ChoicePrediction]:
        """One prediction per example, by a softmax over its candidates.

        Args:
            scores: of all candidates, float64 [N].
            cut: the tokens that each example lost, [E].
        """
        choices = choices_of(examples)
        if not choices:
            return []
        counts = np.array([len(example.endings) for example in choices])
        first = np.cumsum(counts) - counts
        probabilities = np.exp(scores - np.repeat(np.maximum.reduceat(scores, first), counts))
        probabilities /= np.repeat(np.add.reduceat(probabilities, first), counts)
        predictions = []
        for example, row, lost in zip(
            choices, np.split(probabilities, first[1:]), np.asarray(cut).tolist(), strict=True
        ):
            best, values = int(row.argmax()), row.tolist()
            ranking = np.argsort(-row, kind="stable").tolist() if self.spec.ranks else ()
            predictions.append(
                ChoicePrediction(
                    index=best,
                    probabilities=tuple(values),
                    text=example.endings[best],
                    ranking=tuple((number, example.endings[number], values[number]) for number in ranking),
                    cut_tokens=lost,
                )
            )
        return predictions

    def score(self, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]) -> dict[str, float]:
        """The fraction of correctly chosen candidates, as "accuracy", or the scores of the ranking."""
        values = {name: self._values(name, examples, predictions) for name in self.spec.metrics}
        return {name: float(value.mean()) if len(value) else 0.0 for name, value in values.items()}

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]
    ) -> npt.NDArray[np.float64]:
        """1 if the gold candidate is chosen, else 0, or the value of the main score of a ranking; float64 [E]."""
        return self._values(self.spec.metric, examples, predictions)

    def _values(
        self, metric: str, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]
    ) -> npt.NDArray[np.float64]:
        pairs = list(zip(choices_of(examples), predictions, strict=True))
        if metric not in RANK_METRICS:
            return np.array([example.label == prediction.index for example, prediction in pairs], dtype=np.float64)
        ranks = [rank_of(prediction.probabilities, example.label or 0) for example, prediction in pairs]
        return RANK_METRICS[metric](np.array(ranks, dtype=np.float64))

    def is_collapsed(self, predictions: Sequence[ChoicePrediction], examples: Sequence[Example]) -> bool:
        """Whether the same index is chosen for every example although the gold indices differ."""
        gold = {example.label for example in choices_of(examples)}
        return len(gold) > 1 and len({prediction.index for prediction in predictions}) == 1


def choices_of(examples: Sequence[Example]) -> list[ChoiceExample]:
    """The examples, which have candidates."""
    choices = [example for example in examples if isinstance(example, ChoiceExample)]
    assert len(choices) == len(examples), "a choice task takes choice examples"
    return choices


def require_whole_texts(spec: TaskSpec) -> None:
    """Refuses windows, as each candidate has one score."""
    if spec.settings.long_text in WINDOWED:
        task, name = ("the choice of replies", "reply") if spec.ranks else ("multiple choice", "ending")
        allowed = f"what keeps each {name} in one row: longest_first, head, tail, head_tail or error"
        raise ConfigError.must_be(f"long_text of {task}", allowed, spec.settings.long_text)


def rows_in_order(packed: Sequence[PackedRows], places: Sequence[Ints]) -> PackedRows:
    """Rows that were packed in several parts, in the order of their places."""
    if len(packed) == 1:
        return packed[0]
    joined = PackedRows(
        np.concatenate([rows.token_ids for rows in packed]),
        np.concatenate([rows.segment_ids for rows in packed]),
        np.concatenate([rows.lengths for rows in packed]),
        np.concatenate([rows.cut_by_row for rows in packed]),
    )
    return joined.select(np.argsort(np.concatenate(places)))
