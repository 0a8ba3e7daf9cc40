"""Comparison of two systems on the same dev examples: is the difference more than noise? The test, and its words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, shown_p
from bertsmith.models.model_files.weakness import LEVEL
from bertsmith.recipes.results.finished_run import FinishedRun
from bertsmith.recipes.results.resampling import DRAWS, Line, score_rows
from bertsmith.tasks.metrics.ranking import RANK_METRICS
from bertsmith.tasks.metrics.uncertainty import PairedTest, paired_test
from bertsmith.tasks.specs.task import TaskSpec

EXAMPLE_SCORES = {
    "classification": "right answers",
    "choice": "right answers",
    "regression": "negative squared error",
    "reranking": "main score",
    "span": "F1 of the answers",
    "generation": "main score",
    "extraction": "main score",
    "coreference": "right answers",
    "entities": "F1 of the entities",
    "entities-by-name": "F1 of the entities",
}

Lines = Sequence[Line]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs on the same examples."""

    first: str
    second: str
    score: str  # the score of an example
    examples: int
    test: PairedTest

    @property
    def verdict(self) -> str:
        """One sentence: whether the difference is more than noise."""
        other = _other_evidence(asdict(self.test))
        if self.test.p_value >= LEVEL:
            return f"The difference is within noise{other}: {self.examples:,} examples cannot separate the two."
        better, worse = (self.first, self.second) if self.test.difference > 0 else (self.second, self.first)
        noise = f"the noise of {counted(self.examples, 'example')}{other}"
        return f"The difference is more than {noise}: {better} is better than {worse}."

    def line(self) -> str:
        """The difference, its interval, the p-value and the verdict."""
        return (
            f"{self.first} against {self.second}, {self.score}: {self.test.difference:+.4f} "
            f"(95% interval {self._interval()}), p {shown_p(self.test.p_value)}. {self.verdict}"
        )

    def cells(self) -> list[str]:
        """The same values as a table row."""
        pair = f"{self.first} against {self.second}"
        return [
            pair,
            f"{self.test.difference:+.4f}",
            self._interval(),
            shown_p(self.test.p_value).removeprefix("= "),
            self.verdict,
        ]

    def _interval(self) -> str:
        return f"{self.test.low:+.4f} to {self.test.high:+.4f}"


def compare(first: FinishedRun, second: FinishedRun) -> Comparison:
    """The paired test of two runs on their dev examples."""
    kinds = [run.report["kind"] for run in (first, second)]
    keys = [[(str(line["id"]), json.dumps(line["gold"])) for line in run.lines] for run in (first, second)]
    fix = "compare runs of the same task with the same --dev file"
    if kinds[0] != kinds[1]:
        expected = f"a run of {kinds[0]}, as in '{first.path}', in '{second.path}'"
        raise InputError(expected=expected, found=kinds[1], fix=fix)
    if not keys[0]:
        raise InputError(expected=f"dev examples in '{first.path}'", found="none", fix=fix)
    if sorted(keys[0]) != sorted(keys[1]):
        others = set(keys[1])
        only = next((key[0] for key in keys[0] if key not in others), None)
        raise InputError(
            expected=f"the {counted(len(keys[0]), 'dev example')} of '{first.path}' in '{second.path}'",
            found=counted(len(keys[1]), "example")
            + ("" if only is None else f", without {only!r} or with a different gold"),
            fix=fix,
        )
    # Equal ids of one file are in file order.
    orders = [sorted(range(len(part)), key=part.__getitem__) for part in keys]
    ours, theirs = ([run.lines[number] for number in order] for run, order in zip((first, second), orders, strict=True))
    report, scheme = first.report, first.spec.get("scheme", "")
    score, test = paired(report["kind"], report["metric"], scheme, [ours], [theirs])
    return Comparison(first=first.name, second=second.name, score=score, examples=len(keys[0]), test=test)


def tested(spec: TaskSpec, ours: Sequence[Lines], theirs: Sequence[Lines]) -> dict[str, Any]:
    """The paired test of two systems as plain values, see `paired`; empty for a single example, which has none.

    Returns:
        "compared" (the name of the compared score), and the values of the `PairedTest`.
    """
    if len(ours[0]) < 2:
        return {}
    compared, test = paired(spec.kind, spec.metric, spec.scheme, ours, theirs)
    return {"compared": compared, **asdict(test)}


def clause_of(test: Mapping[str, Any], metric: str) -> str:
    """The result of a test, with its number of "examples", as the end of a sentence; "" for a single example."""
    if "p_value" not in test:
        return ""
    noise = "more than noise" if test["p_value"] < LEVEL else "within noise"
    compared = "" if test["compared"] == metric else f" in {test['compared']}"
    return (
        f"; the difference{compared}, {test['difference']:+.4f} (95% interval {test['low']:+.4f} to "
        f"{test['high']:+.4f}), is {noise} for {counted(test['examples'], 'dev example')}{_other_evidence(test)}, "
        f"p {shown_p(test['p_value'])}"
    )


def _other_evidence(test: Mapping[str, Any]) -> str:
    """How the interval contradicts the p-value, which decides what is noise; "" where both say the same.

    The two differ near the level: the p-value is of the hypothesis that nothing separates the systems, the interval is
    from a bootstrap, which is too narrow for few examples.
    """
    excludes = not test["low"] <= 0 <= test["high"]
    if excludes == (test["p_value"] < LEVEL):
        return ""
    return f" by the paired test, although the bootstrap interval {'excludes' if excludes else 'contains'} 0"


def paired(
    kind: str, metric: str, scheme: str, ours: Sequence[Lines], theirs: Sequence[Lines]
) -> tuple[str, PairedTest]:
    """The name of the compared score, and the paired test of its mean over the seeds of two systems.

    Examples are drawn and swapped with the answers of all seeds together: what separates the systems is more than the
    noise of these examples, whichever seed answers. The spread over the seeds is not part of the test.

    If the main score is not a mean over examples but can be computed from any set of them (Matthews, F1 of classes or
    of entities, correlations), it is recomputed for each draw and each seed; otherwise the mean scores of single
    examples are compared.

    Args:
        ours: for each seed, lines of predictions.jsonl of the first system.
        theirs: those of the second, in the same order, from as many seeds.
    """
    assert len(ours) == len(theirs) > 0, "seeds of both systems"
    if kind == "tagging" and not scheme:
        metric = "accuracy"
    mine, others = ([score_rows(kind, metric, lines, scheme) for lines in each] for each in (ours, theirs))
    statistics = [scored.statistic for scored in mine if scored is not None and scored.statistic is not None]
    if len(statistics) == len(ours) and None not in others:
        # [E, seeds, values]: a draw of examples takes the answers of every seed to them.
        rows = [np.stack([scored.rows for scored in each if scored is not None], axis=1) for each in (mine, others)]

        def statistic(drawn: npt.NDArray[np.generic]) -> float:
            return float(np.mean([score(drawn[:, seed]) for seed, score in enumerate(statistics)]))

        return metric, paired_test(rows[0], rows[1], draws=DRAWS, statistic=statistic)
    scores = [np.mean([[float(line["score"]) for line in lines] for lines in each], axis=0) for each in (ours, theirs)]
    name = metric if metric in RANK_METRICS else EXAMPLE_SCORES.get(kind, "score")
    return name, paired_test(scores[0], scores[1])
