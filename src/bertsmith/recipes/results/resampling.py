"""The lines of `predictions.jsonl`, and the values in them from which a score is recomputed for any of the examples.

Letter: E examples. Many scores are not means over examples (Matthews, F1 of classes or of entities, correlations), so
the bootstrap draws rows of per-example values and computes the score from them. A proportion of right examples has an
exact interval, which needs no draws.

A line is `{"id", "texts", "gold", "score", "prediction"}`, plain values for JSON; `score` is the example's contribution
to the score, if that is a mean over examples. The gold is what the scorer compares the prediction with: labels of a
hierarchy include their parents.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.metrics.entities import OF_SPANS, counts_of_spans, entity_spans
from bertsmith.tasks.metrics.labels import CLASS_METRICS
from bertsmith.tasks.metrics.mentions import counts_of, score_of_counts
from bertsmith.tasks.metrics.numbers import NUMBER_METRICS
from bertsmith.tasks.metrics.ranking import RANK_METRICS, rank_of, value_of_list
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval, proportion_interval
from bertsmith.tasks.specs.task import Prediction, Task
from bertsmith.tasks.specs.vector_gold import label_together
from bertsmith.tasks.task_data.split import Fold

Line = Mapping[str, Any]
Part = tuple[Fold, Sequence[Example]]  # a fold and its examples

_LONGEST_TEXT = 300  # characters of an example's text
DRAWS = 2_000

Statistic = Callable[[npt.NDArray[np.generic]], float]


def example_lines(task: Task, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Iterator[Line]:
    """One line per example, in order."""
    scores = task.example_scores(examples, predictions).tolist()
    for example, gold, prediction, score in zip(examples, task.golds(examples), predictions, scores, strict=True):
        yield {
            "id": example.id,
            "texts": texts_of(example),
            "gold": gold,
            "score": score,
            "prediction": prediction.to_dict(),
        }


def scored_lines(
    task: Task, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> tuple[dict[str, float], list[Line]]:
    """The scores of predictions, and their lines as a file would return them, with lists in place of tuples."""
    lines = [json.loads(json.dumps(line)) for line in example_lines(task, examples, predictions)]
    return {name: float(value) for name, value in task.score(examples, predictions).items()}, lines


def texts_of(example: Example) -> list[str]:
    """The texts of an example, each cut to 300 characters; empty for tagged words, which the prediction contains."""
    values = vars(example)
    texts = [values[name] for name in ("first", "second", "question", "context", "source") if values.get(name)]
    return [text[:_LONGEST_TEXT] for text in (*texts, *values.get("endings", ()))]


def in_order(of_folds: Sequence[Sequence[Line]], parts: Sequence[Part]) -> list[Line]:
    """The lines of all folds in the order of the examples, with the row, the location and the fold of each."""
    lines = [
        {"row": row + 1, "location": example.location, "fold": fold.number, **line}
        for (fold, examples), of_fold in zip(parts, of_folds, strict=True)
        for row, example, line in zip(fold.rows, examples, of_fold, strict=True)
    ]
    return sorted(lines, key=lambda line: line["row"])


@dataclass(frozen=True, kw_only=True)
class ScoreRows:
    """Per-example values of a score, and how to compute the score from them."""

    rows: npt.NDArray[np.float64]  # float [E] or [E, values per example]
    statistic: Statistic | None = None  # computes the score of drawn rows; None for their mean
    is_proportion: bool = False  # the score is the mean of rows that are each 0 or 1
    unit: float = 1.0  # factor that the scorer applies; SQuAD's reports percentages

    @property
    def score(self) -> float:
        """The score of all rows, without its unit."""
        return float((np.mean if self.statistic is None else self.statistic)(self.rows))


def score_rows(kind: str, metric: str, lines: Sequence[Line], scheme: str = "") -> ScoreRows | None:
    """The per-example values of a score; None if it cannot be computed from single examples."""
    if kind == "tagging":
        return _of_tags(metric, lines, scheme)
    return _ROWS[kind](metric, lines) if kind in _ROWS else None


def intervals(kind: str, scores: Iterable[str], lines: Sequence[Line], scheme: str = "") -> dict[str, list[float]]:
    """Both ends of the 95% confidence interval of each score that has one, in the unit of the score.

    The interval of a proportion is exact, that of other scores comes from the bootstrap. If all draws of the bootstrap
    give the same score, because every example is right for example, they say nothing about other examples, and the
    score has no interval. An interval that the bootstrap does not place around the score itself is extended to it.
    """
    result = {}
    for metric in scores if lines else ():
        made_of = score_rows(kind, metric, lines, scheme)
        if made_of is not None:
            if made_of.is_proportion:
                low, high = proportion_interval(int(made_of.rows.sum()), len(made_of.rows))
            else:
                low, high = bootstrap_interval(made_of.rows, made_of.statistic, draws=DRAWS)
            if low < high:
                # Draws without the only example of a class may all have a higher macro F1 than the score itself.
                score = made_of.score
                result[metric] = [min(low, score) * made_of.unit, max(high, score) * made_of.unit]
    return result


def scores_of_lines(kind: str, names: Iterable[str], lines: Sequence[Line], scheme: str = "") -> dict[str, float]:
    """The scores, of those that are named, that can be computed from the lines of predictions."""
    rows = {name: score_rows(kind, name, lines, scheme) for name in names}
    return {name: made_of.score * made_of.unit for name, made_of in rows.items() if made_of is not None}


def _of_columns(metric: Callable[[npt.ArrayLike, npt.ArrayLike], float], drawn: npt.NDArray[np.generic]) -> float:
    """A score from the golds in the first column and the answers in the second."""
    return float(metric(drawn[:, 0], drawn[:, 1]))


def _ranked(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The golds and the mean ranks of the answers.

    A paired test mixes the answers of two systems, and the cosines of one may all be higher than those of the other.
    """
    answers = rows[:, 1]
    places = [np.searchsorted(np.sort(answers), answers, side=side) for side in ("left", "right")]
    return np.stack([rows[:, 0], np.mean(places, axis=0)], axis=1)


def _of_scores(lines: Sequence[Line], *, is_proportion: bool = False, unit: float = 1.0) -> ScoreRows:
    """The scores in the lines as values."""
    rows = np.array([float(line["score"]) for line in lines])
    return ScoreRows(rows=rows, is_proportion=is_proportion, unit=unit)


def _of_labels(metric: str, lines: Sequence[Line]) -> ScoreRows | None:
    """The values of a score of one label for each text, or of several."""
    if any(isinstance(line["gold"], list | tuple) for line in lines):
        if metric == "micro_f1":
            return ScoreRows(rows=np.array([_label_counts(line) for line in lines]), statistic=f1_of_counts)
        return _of_scores(lines, is_proportion=True) if metric == "subset_accuracy" else None
    if metric == "accuracy":
        return _of_scores(lines, is_proportion=True)
    if metric not in CLASS_METRICS:
        return None
    names = dict.fromkeys([*lines[0]["prediction"]["probabilities"], *(str(line["gold"]) for line in lines)])
    numbers = {name: number for number, name in enumerate(names)}
    rows = [[numbers[str(line["gold"])], numbers[line["prediction"]["label"]]] for line in lines]
    return ScoreRows(rows=np.array(rows), statistic=functools.partial(_of_columns, CLASS_METRICS[metric]))


def _of_numbers(metric: str, lines: Sequence[Line]) -> ScoreRows | None:
    """The values of a score of numbers or of cosines."""
    if metric not in NUMBER_METRICS:
        return None
    rows = np.array([[float(line["gold"]), float(line["prediction"]["value"])] for line in lines])
    return ScoreRows(rows=rows, statistic=functools.partial(_of_columns, NUMBER_METRICS[metric]))


def _of_cosines(metric: str, lines: Sequence[Line]) -> ScoreRows | None:
    """The values of a score of vectors."""
    if metric == "triplet_accuracy":
        return _of_scores(lines, is_proportion=True)
    if metric == "average_precision":
        from bertsmith.tasks.metrics.similarity import pair_average_precision

        together = label_together(str(line["gold"]) for line in lines)
        rows = np.array([[float(line["gold"] == together), float(line["prediction"]["value"])] for line in lines])
        return ScoreRows(rows=_ranked(rows), statistic=functools.partial(_of_columns, pair_average_precision))
    values = _of_numbers(metric, lines)
    return replace(values, rows=_ranked(values.rows)) if values and metric == "spearman" else values


def _of_candidates(metric: str, lines: Sequence[Line]) -> ScoreRows | None:
    """The values of a score of candidates."""
    if metric == "accuracy":
        return _of_scores(lines, is_proportion=True)
    if metric not in RANK_METRICS:
        return None
    ranks = np.array([rank_of(line["prediction"]["probabilities"], line["gold"]) for line in lines], dtype=float)
    return ScoreRows(rows=RANK_METRICS[metric](ranks), is_proportion=metric.startswith("recall"))


def _of_lists(metric: str, lines: Sequence[Line]) -> ScoreRows:
    """The values of a score of rankings, of the lists whose candidates have different scores."""
    values = [value_of_list(metric, line["prediction"]["probabilities"], line["gold"]) for line in lines]
    return ScoreRows(rows=np.array([value for value in values if value is not None]))


def _of_answers(metric: str, lines: Sequence[Line]) -> ScoreRows | None:
    """The values of a score of answers to questions."""
    if metric == "exact":
        return ScoreRows(rows=np.array([float(_is_exact(line)) for line in lines]), is_proportion=True, unit=100.0)
    return _of_scores(lines, unit=100.0) if metric == "f1" else None


def _label_counts(line: Line) -> list[float]:
    """Counts of right, gold and predicted labels of a multi-label example."""
    gold, chosen = set(line["gold"]), set(line["prediction"]["chosen"])
    return [len(gold & chosen), len(gold), len(chosen)]


def _of_tags(metric: str, lines: Sequence[Line], scheme: str) -> ScoreRows | None:
    """The values of a score of entities, or of words if there is no scheme."""
    counted = scheme if metric != "accuracy" else ""
    if metric not in _OF_COUNTS or (metric != "accuracy" and not scheme):
        return None
    return ScoreRows(rows=np.array([_tag_counts(line, counted) for line in lines]), statistic=_OF_COUNTS[metric])


def _tag_counts(line: Line, scheme: str) -> list[float]:
    """Counts of right, gold and predicted entities of a sentence, or of words if there is no scheme."""
    gold, tags = line["gold"], line["prediction"]["tags"]
    if not scheme:
        return [sum(tag == other for tag, other in zip(gold, tags, strict=True)), len(gold), len(tags)]
    gold_spans, predicted_spans = set(entity_spans(gold, scheme)), set(entity_spans(tags, scheme))
    return [len(gold_spans & predicted_spans), len(gold_spans), len(predicted_spans)]


def _of_mentions(metric: str, lines: Sequence[Line]) -> ScoreRows:
    """The values of a score of pronouns, which come from counts except for the accuracy."""
    if metric == "accuracy":
        return _of_scores(lines, is_proportion=True)
    answers = [(line["gold"]["index"], line["prediction"]["index"]) for line in lines]
    rows = counts_of(answers, [line["prediction"]["pronoun"]["text"] for line in lines])
    return ScoreRows(rows=rows, statistic=functools.partial(score_of_counts, metric))


def _of_texts(metric: str, lines: Sequence[Line]) -> ScoreRows:
    """The values of a score of texts; BLEU and the scores of brackets come from counts."""
    from bertsmith.tasks.metrics.bleu import bleu_of_counts
    from bertsmith.tasks.metrics.texts import ANSWER_EXACT, BLEU, COMPLETE, EXACT, values_of_text

    rows = np.array([values_of_text(metric, line["prediction"]["text"], line["gold"]) for line in lines])
    if metric == BLEU:
        return ScoreRows(rows=rows, statistic=lambda drawn: bleu_of_counts(drawn.sum(axis=0).tolist(), smoothed=True))
    if metric in _OF_COUNTS:
        return ScoreRows(rows=rows, statistic=_OF_COUNTS[metric])
    return ScoreRows(rows=rows[:, 0], is_proportion=metric in (EXACT, COMPLETE, ANSWER_EXACT))


def _is_exact(line: Line) -> int:
    from bertsmith.tasks.metrics.answers import exact_match

    return exact_match(line["prediction"]["text"], [answer["text"] for answer in line["gold"]])


def f1_of_counts(drawn: npt.NDArray[np.generic]) -> float:
    """F1 from rows of (right, gold, predicted); 0 if all are 0."""
    right, gold, predicted = _sums(drawn)
    return 2 * right / max(gold + predicted, 1.0)


def _recall(drawn: npt.NDArray[np.generic]) -> float:
    right, gold, _ = _sums(drawn)
    return right / max(gold, 1.0)


def _precision(drawn: npt.NDArray[np.generic]) -> float:
    right, _, predicted = _sums(drawn)
    return right / max(predicted, 1.0)


def _sums(drawn: npt.NDArray[np.generic]) -> tuple[float, float, float]:
    right, gold, predicted = np.asarray(drawn, dtype=np.float64).sum(axis=0).tolist()
    return right, gold, predicted


def _of_entities(metric: str, lines: Sequence[Line]) -> ScoreRows | None:
    if metric not in OF_SPANS:
        return None
    counts = counts_of_spans(map(entities_of_line, lines))
    return ScoreRows(rows=counts.astype(np.float64), statistic=_OF_COUNTS[metric])


def entities_of_line(line: Line) -> tuple[list[tuple[int, int, str]], list[tuple[int, int, str]]]:
    """The gold and the predicted entities of a sentence: first word, one past the last, and type."""
    predicted = [(*entity["words"], entity["type"]) for entity in line["prediction"]["entities"]]
    return [tuple(span) for span in line["gold"]], predicted


# If every word has a tag, accuracy equals recall.
_OF_COUNTS: dict[str, Statistic] = {"f1": f1_of_counts, "precision": _precision, "recall": _recall, "accuracy": _recall}
_ROWS: Mapping[str, Callable[[str, Sequence[Line]], ScoreRows | None]] = {  # by the kind of task
    "classification": _of_labels,
    "regression": _of_numbers,
    "reranking": _of_lists,
    "similarity": _of_cosines,
    "choice": _of_candidates,
    "selection": _of_candidates,
    "coreference": _of_mentions,
    "entities": _of_entities,
    "entities-by-name": _of_entities,
    "generation": _of_texts,
    "extraction": _of_texts,
    "span": _of_answers,
}
