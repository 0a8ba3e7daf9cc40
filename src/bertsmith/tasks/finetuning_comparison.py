"""Two fine-tuning runs compared on the same dev examples: is their difference more than noise? S68."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.errors import InputError
from bertsmith.metrics.entities import entity_spans
from bertsmith.metrics.labels import CLASS_METRICS
from bertsmith.metrics.numbers import NUMBER_METRICS
from bertsmith.metrics.uncertainty import PairedTest, paired_bootstrap
from bertsmith.tasks.finished_run import FinishedRun

DRAWS_OF_A_METRIC = 2_000
LEVEL = 0.05  # a p-value below it is more than noise

EXAMPLE_SCORES = {
    "classification": "right answers",
    "choice": "right answers",
    "regression": "minus the squared error",
    "span": "F1 of the answers",
}

Lines = Sequence[Mapping[str, Any]]
Statistic = Callable[[npt.NDArray[np.generic]], float]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs on the same examples.

    Attributes:
        first: name of the first run.
        second: name of the second.
        score: what an example counts.
        examples: how many there are.
        test: what the examples say about the difference.
    """

    first: str
    second: str
    score: str
    examples: int
    test: PairedTest

    @property
    def verdict(self) -> str:
        """One sentence: whether the difference is more than noise."""
        if self.test.p_value >= LEVEL:
            return f"The difference is no more than noise: {self.examples:,} examples do not tell the two apart."
        better, worse = (self.first, self.second) if self.test.difference > 0 else (self.second, self.first)
        return f"The difference is more than the noise of {self.examples:,} examples: {better} is better than {worse}."

    def line(self) -> str:
        """The difference, its interval, the p-value and the verdict."""
        return (
            f"{self.first} against {self.second}, {self.score}: {self.test.difference:+.4f} "
            f"({self._interval()}, 95% interval), p = {self.test.p_value:.4f}. {self.verdict}"
        )

    def cells(self) -> list[str]:
        """The same as a row of a table."""
        pair = f"{self.first} against {self.second}"
        return [pair, f"{self.test.difference:+.4f}", self._interval(), f"{self.test.p_value:.4f}", self.verdict]

    def _interval(self) -> str:
        return f"{self.test.low:+.4f} to {self.test.high:+.4f}"


def compare(first: FinishedRun, second: FinishedRun) -> Comparison:
    """The paired bootstrap of two runs over their dev examples.

    Raises:
        InputError: the runs were scored on other examples.
    """
    kinds = [run.report["kind"] for run in (first, second)]
    keys = [[(str(line["id"]), json.dumps(line["gold"])) for line in run.lines] for run in (first, second)]
    fix = "compare runs of one task with the same --dev file"
    if kinds[0] != kinds[1]:
        expected = f"a run of {kinds[0]}, as in '{first.path}', in '{second.path}'"
        raise InputError(expected=expected, found=kinds[1], fix=fix)
    if not keys[0]:
        raise InputError(expected=f"dev examples in '{first.path}'", found="none", fix=fix)
    if sorted(keys[0]) != sorted(keys[1]):
        others = set(keys[1])
        only = next((key[0] for key in keys[0] if key not in others), None)
        raise InputError(
            expected=f"the {len(keys[0]):,} dev examples of '{first.path}' in '{second.path}'",
            found=f"{len(keys[1]):,} examples" + ("" if only is None else f", without {only!r} or with another gold"),
            fix=fix,
        )
    # Equal ids of one file stand in the order of the file.
    orders = [sorted(range(len(part)), key=part.__getitem__) for part in keys]
    ours, theirs = ([run.lines[number] for number in order] for run, order in zip((first, second), orders, strict=True))
    score, test = _test(first, ours, theirs)
    return Comparison(
        first=first.name,
        second=second.name,
        score=score,
        examples=len(keys[0]),
        test=test,
    )


def _test(first: FinishedRun, ours: Lines, theirs: Lines) -> tuple[str, PairedTest]:
    """What is compared, and the paired bootstrap of it over the lines of two runs, in one order.

    Where the main score is no mean over examples but can be had from what single examples say (Matthews, F1 of classes
    or of entities, correlations), it is computed anew for each draw; otherwise what each example adds is compared.
    """
    kind, metric = first.report["kind"], first.report["metric"]
    table = {"classification": CLASS_METRICS, "regression": NUMBER_METRICS}.get(kind, {})
    single = all(isinstance(line["gold"], str | float | int) for line in ours)
    statistic: Statistic
    if metric in table and metric != "accuracy" and single:
        rows = [_golds_and_answers(kind, lines) for lines in (ours, theirs)]
        statistic = functools.partial(_of_columns, table[metric])
    elif kind == "tagging":
        scheme = first.spec.get("scheme", "") if metric == "f1" else ""
        rows = [[_tag_counts(line, scheme) for line in lines] for lines in (ours, theirs)]
        metric, statistic = "f1" if scheme else "accuracy", _f1_of_counts
    elif metric == "micro_f1" and not single:
        rows = [[_label_counts(line) for line in lines] for lines in (ours, theirs)]
        statistic = _f1_of_counts
    else:
        scores = [[float(line["score"]) for line in lines] for lines in (ours, theirs)]
        return EXAMPLE_SCORES.get(kind, "score"), paired_bootstrap(scores[0], scores[1])
    return metric, paired_bootstrap(rows[0], rows[1], draws=DRAWS_OF_A_METRIC, statistic=statistic)


def _of_columns(metric: Callable[[npt.ArrayLike, npt.ArrayLike], float], drawn: npt.NDArray[np.generic]) -> float:
    """A score of the golds in the first column and the answers in the second."""
    return float(metric(drawn[:, 0], drawn[:, 1]))


def _golds_and_answers(kind: str, lines: Lines) -> list[list[float]]:
    """Gold and predicted number of each example, the numbers of labels for a classification."""
    if kind == "regression":
        return [[float(line["gold"]), float(line["prediction"]["value"])] for line in lines]
    numbers = {name: number for number, name in enumerate(lines[0]["prediction"]["probabilities"])}
    return [[numbers[str(line["gold"])], numbers[line["prediction"]["label"]]] for line in lines]


def _label_counts(line: Mapping[str, Any]) -> list[float]:
    """Right, gold and predicted labels of an example that may have several."""
    gold, chosen = set(line["gold"]), set(line["prediction"]["chosen"])
    return [len(gold & chosen), len(gold), len(chosen)]


def _tag_counts(line: Mapping[str, Any], scheme: str) -> list[float]:
    """Right, gold and predicted entities of a sentence; without a scheme its words, whose F1 is their accuracy."""
    gold, tags = line["gold"], line["prediction"]["tags"]
    if not scheme:
        return [sum(tag == other for tag, other in zip(gold, tags, strict=True)), len(gold), len(tags)]
    asked, given = set(entity_spans(gold, scheme)), set(entity_spans(tags, scheme))
    return [len(asked & given), len(asked), len(given)]


def _f1_of_counts(drawn: npt.NDArray[np.generic]) -> float:
    """F1 from rows of (right, gold, predicted); 0 where all are 0."""
    right, gold, predicted = np.asarray(drawn, dtype=np.float64).sum(axis=0)
    return float(2 * right / max(gold + predicted, 1.0))
