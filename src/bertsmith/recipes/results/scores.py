"""Reports on the predictions of a fine-tuned model, as HTML: confusion matrix, calibration, worst mistakes.

Everything is computed from the lines of predictions.jsonl. Each has an id, the gold, the score of the example, the
prediction, and usually the example's texts.

Letters: E examples, K classes.
"""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.pages import html
from bertsmith.base.pages.charts import COLORS, Series, diagonal_chart, line_chart
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.recipes.results.resampling import DRAWS, entities_of_line, f1_of_counts
from bertsmith.tasks.metrics.answers import squad2_scores, squad_scores
from bertsmith.tasks.metrics.calibration import expected_calibration_error, reliability
from bertsmith.tasks.metrics.entities import counts_of_spans, entity_scores, entity_spans, span_scores
from bertsmith.tasks.metrics.labels import confusion
from bertsmith.tasks.metrics.mentions import counts_of
from bertsmith.tasks.metrics.ranking import RANK_METRICS, rank_of
from bertsmith.tasks.metrics.selective import selections
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval

WORST = 20  # mistakes shown
LARGEST_TABLE = 20  # labels of a confusion matrix; with more, the confusions are listed
MOST_POINTS = 3000  # of a scatter plot
FITTED_HERE = (
    "This calibration error is measured on the dev examples to which --calibrate fitted the temperature; on other "
    "examples it is usually higher."
)

Line = Mapping[str, Any]
Lines = Sequence[Line]

_RATIOS = ("precision", "recall", "F1", "gold", "predicted")


def details(kind: str, spec: Mapping[str, Any], lines: Lines) -> str:
    """The sections of one run, as HTML."""
    write = _KINDS.get(kind)
    return write(spec, lines) if write is not None and lines else ""


def _classification(spec: Mapping[str, Any], lines: Lines) -> str:
    if spec.get("multi_label"):
        return _several_labels(lines)
    gold = [str(line["gold"]) for line in lines]
    labels = list(dict.fromkeys([*lines[0]["prediction"]["probabilities"], *gold]))
    chances = [[line["prediction"]["probabilities"].get(label, 0.0) for label in labels] for line in lines]
    note = FITTED_HERE if (spec.get("settings") or {}).get("calibrate") else ""
    return _one_of(lines, labels, gold, [line["prediction"]["label"] for line in lines], np.array(chances), note)


def _choice(spec: Mapping[str, Any], lines: Lines) -> str:
    """Treats ending numbers as labels; endings that an example does not have get probability 0.

    Of a ranking, how often the right candidate has which rank, and those with the lowest ones.
    """
    if spec.get("metric") in RANK_METRICS:
        return _ranks(lines)
    widest = max(len(line["prediction"]["probabilities"]) for line in lines)
    chances = np.zeros((len(lines), widest))
    for row, line in zip(chances, lines, strict=True):
        row[: len(line["prediction"]["probabilities"])] = line["prediction"]["probabilities"]
    gold = [f"ending {line['gold']}" for line in lines]
    predicted = [f"ending {line['prediction']['index']}" for line in lines]
    return _one_of(lines, [f"ending {number}" for number in range(widest)], gold, predicted, chances)


def _ranks(lines: Lines) -> str:
    ranks = [rank_of(line["prediction"]["probabilities"], line["gold"]) for line in lines]
    counts = collections.Counter(ranks)
    shares = [[str(rank), f"{counts[rank]:,}", f"{counts[rank] / len(ranks):.4f}"] for rank in sorted(counts)]
    worst = sorted((number for number in range(len(lines)) if ranks[number] > 1), key=lambda number: -ranks[number])
    chosen = [(lines[n], lines[n]["prediction"], ranks[n]) for n in worst[:WORST]]
    rows = [(line, (f"rank {rank}", said["text"], f"{max(said['probabilities']):.4f}")) for line, said, rank in chosen]
    table = html.table(shares, ["rank of the right candidate", "rows", "share"])
    return html.section("Ranks", table) + _mistakes(rows, len(worst), len(lines))


def _one_of(
    lines: Lines,
    labels: Sequence[str],
    gold: Sequence[str],
    predicted: Sequence[str],
    chances: npt.NDArray[np.float64],
    note: str = "",
) -> str:
    """Confusion matrix, calibration and mistakes of examples with one label each."""
    confidence = chances.max(axis=1).tolist()
    wrong = [number for number in range(len(lines)) if gold[number] != predicted[number]]
    wrong.sort(key=lambda number: -confidence[number])
    rows = [(lines[n], (gold[n], predicted[n], f"{confidence[n]:.4f}")) for n in wrong[:WORST]]
    numbers = {label: number for number, label in enumerate(labels)}
    gold_numbers, answers = ([numbers[label] for label in side] for side in (gold, predicted))
    return (
        _confusions("Confusion matrix", labels, gold, predicted)
        + html.section("Labels", _label_scores(labels, gold, predicted))
        + _calibration(chances, gold_numbers, note)
        + _most_certain(chances[np.arange(len(lines)), answers], np.array(answers) == np.array(gold_numbers))
        + _mistakes(rows, len(wrong), len(lines))
    )


def _several_labels(lines: Lines) -> str:
    """Scores of each label, calibration of the yes/no decisions, and mistakes, for multi-label examples."""
    gold_labels = (label for line in lines for label in line["gold"])
    labels = list(dict.fromkeys([*lines[0]["prediction"]["probabilities"], *gold_labels]))
    chances = np.array([[line["prediction"]["probabilities"].get(label, 0.0) for label in labels] for line in lines])
    gold = np.array([[label in line["gold"] for label in labels] for line in lines])
    predicted = np.array([[label in line["prediction"]["chosen"] for label in labels] for line in lines])
    both = [(gold & predicted).sum(axis=0), gold.sum(axis=0), predicted.sum(axis=0)]
    # The model's confidence in the most confident of its wrong decisions about an example.
    sure = np.where(gold != predicted, np.where(predicted, chances, 1 - chances), -1.0).max(axis=1)
    wrong = [number for number in np.argsort(-sure, kind="stable").tolist() if sure[number] >= 0]
    rows = [
        (lines[n], (", ".join(lines[n]["gold"]), ", ".join(lines[n]["prediction"]["chosen"]), f"{sure[n]:.4f}"))
        for n in wrong[:WORST]
    ]
    decisions = chances.reshape(-1)
    return (
        html.section("Labels", _ratios(labels, *(part.tolist() for part in both)))
        + _calibration(np.stack([1 - decisions, decisions], axis=1), gold.reshape(-1).astype(int).tolist())
        + _mistakes(rows, len(wrong), len(lines))
    )


def _regression(spec: Mapping[str, Any], lines: Lines) -> str:
    step = -(-len(lines) // MOST_POINTS)
    shown = lines[::step]
    chart = diagonal_chart(
        [float(line["gold"]) for line in shown],
        [float(line["prediction"]["value"]) for line in shown],
        x_label="gold",
        y_label="predicted",
    )
    caption = "predicted against gold" + (f", one example of {step}" if step > 1 else "")
    worst = sorted(lines, key=lambda line: float(line["score"]))[:WORST]
    rows = [(line, (f"{line['gold']:g}", f"{line['prediction']['value']:.4f}")) for line in worst]
    return html.figures([html.figure(caption, chart)]) + html.section(
        "Largest errors", _examples(("gold", "predicted"), rows)
    )


def _span(spec: Mapping[str, Any], lines: Lines) -> str:
    """Keys questions by position, because ids need not be unique across files."""
    golds = {str(n): [answer["text"] for answer in line["gold"] or ()] for n, line in enumerate(lines)}
    predicted = {str(n): str(line["prediction"]["text"]) for n, line in enumerate(lines)}
    scores = squad2_scores(golds, predicted) if spec.get("unanswerable") else squad_scores(golds, predicted)
    groups = {"": ("all questions", list(golds))}
    if spec.get("unanswerable"):
        groups["has_ans_"] = "with an answer", [n for n in golds if golds[n]]
        groups["no_ans_"] = "without an answer", [n for n in golds if not golds[n]]
    rows = [
        [
            title,
            f"{len(numbers):,}",
            f"{scores[prefix + 'exact']:.2f}",
            f"{scores[prefix + 'f1']:.2f}",
            f"{sum(bool(predicted[n]) for n in numbers):,}",
        ]
        for prefix, (title, numbers) in groups.items()
        if numbers
    ]
    wrong = [line for line in lines if line["score"] < 1]
    wrong.sort(key=lambda line: (line["score"], -line["prediction"]["probability"]))
    worst = [
        (
            line,
            (
                " | ".join(dict.fromkeys(answer["text"] for answer in line["gold"] or ())) or "(no answer)",
                line["prediction"]["text"] or "(no answer)",
                f"{line['score']:.2f}",
                f"{line['prediction']['probability']:.4f}",
            ),
        )
        for line in wrong[:WORST]
    ]
    return html.section(
        "Questions, scores in percent",
        html.table(rows, ["", "questions", "exact match", "F1", "answered"]),
    ) + html.section(
        "Worst answers, most confident first", _examples(("gold", "predicted", "F1", "probability"), worst)
    )


def _tagging(spec: Mapping[str, Any], lines: Lines) -> str:
    golds, predictions = [line["gold"] for line in lines], [line["prediction"]["tags"] for line in lines]
    gold, predicted = [tag for tags in golds for tag in tags], [tag for tags in predictions for tag in tags]
    if not gold:
        return ""
    labels = list(dict.fromkeys([*spec.get("labels", ()), *gold, *predicted]))
    scheme = spec.get("scheme", "")
    parts = [
        html.section("Entities by type", _entities(golds, predictions, scheme))
        if scheme
        else html.section("Tags", _label_scores(labels, gold, predicted)),
        _confusions("Confusion matrix of tags", labels, gold, predicted),
    ]
    words = [
        (probability, line["id"], word, tag, other)
        for line in lines
        for word, tag, other, probability in zip(
            line["prediction"]["words"],
            line["gold"],
            line["prediction"]["tags"],
            line["prediction"]["probabilities"],
            strict=True,
        )
        if tag != other
    ]
    words.sort(key=lambda word: -word[0])
    rows = [[id, word, tag, other, f"{probability:.4f}"] for probability, id, word, tag, other in words[:WORST]]
    title = f"Most confident of {len(words):,} wrong tags among {len(gold):,}"
    parts.append(html.section(title, html.table(rows, ["sentence", "word", "gold", "predicted", "probability"])))
    return "".join(parts)


def _entities(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], scheme: str) -> str:
    scores = entity_scores(golds, predictions, scheme)
    counts = [
        collections.Counter(kind for tags in sentences for kind, _, _ in entity_spans(tags, scheme))
        for sentences in (golds, predictions)
    ]
    ending = "_precision"
    rows = []
    for kind in [*(name.removesuffix(ending) for name in scores if name.endswith(ending)), ""]:
        in_gold, in_predicted = (count[kind] if kind else count.total() for count in counts)
        ratios = [scores[f"{kind}_{name}" if kind else name] for name in ("precision", "recall", "f1")]
        rows.append([kind or "all", *_known(ratios, in_gold, in_predicted), f"{in_gold:,}", f"{in_predicted:,}"])
    return html.table(rows, ["type", *_RATIOS])


def _nested(spec: Mapping[str, Any], lines: Lines) -> str:
    """The scores of each label with the interval of its F1, and the most confident mistakes."""
    pairs = [entities_of_line(line) for line in lines]
    labels = list(dict.fromkeys([*spec.get("labels", ()), *(span[2] for gold, _ in pairs for span in gold)]))
    rows = []
    for label in [*labels, ""]:
        of_label = [[[span for span in part if not label or span[2] == label] for part in pair] for pair in pairs]
        counts = counts_of_spans((part[0], part[1]) for part in of_label)
        right, in_gold, predicted = counts.sum(axis=0).tolist()
        if not (label or in_gold):
            continue
        low, high = bootstrap_interval(counts.astype(np.float64), f1_of_counts, draws=DRAWS) if right else (0.0, 0.0)
        ratios = _known(list(span_scores([right, in_gold, predicted]).values()), in_gold, predicted)
        interval = f"{low:.4f} to {high:.4f}" if low < high else "–"
        rows.append([label or "all", *ratios, interval, f"{in_gold:,}", f"{predicted:,}"])
    header = ["type", *_RATIOS[:3], "95% interval of F1", *_RATIOS[3:]]
    wrong = [
        (entity["probability"], line["id"], entity["text"], entity["type"])
        for line, (gold, _) in zip(lines, pairs, strict=True)
        for entity in line["prediction"]["entities"]
        if (*entity["words"], entity["type"]) not in gold
    ]
    wrong.sort(key=lambda mistake: -mistake[0])
    mistakes = [[id, text, kind, f"{chance:.4f}"] for chance, id, text, kind in wrong[:WORST]]
    title = f"Most confident of {len(wrong):,} predicted entities that are wrong"
    return html.section("Entities by type", html.table(rows, header)) + html.section(
        title, html.table(mistakes, ["sentence", "text", "predicted", "probability"])
    )


def _texts(column: str, spec: Mapping[str, Any], lines: Lines) -> str:
    """The texts with the lowest scores, next to their targets."""
    worst = sorted(lines, key=lambda line: float(line["score"]))[:WORST]
    rows = [
        (line, (" | ".join(line["gold"]), str(line["prediction"]["text"]), f"{line['score']:.4f}")) for line in worst
    ]
    title = f"Lowest {spec.get('metric', 'score')} of {len(lines):,} texts"
    return html.section(title, _examples(("target", column, "score"), rows))


def _lists(spec: Mapping[str, Any], lines: Lines) -> str:
    """The lists whose rankings have the lowest scores, with the best candidate and the one ranked first."""
    ranked = [line for line in lines if len(set(line["gold"])) > 1]
    rows = []
    for line in sorted(ranked, key=lambda line: float(line["score"]))[:WORST]:
        query, *candidates = line.get("texts") or [""] * (len(line["gold"]) + 1)
        best = candidates[int(np.argmax(line["gold"]))]
        rows.append([str(line["id"]), query, best, str(line["prediction"]["text"]), f"{line['score']:.4f}"])
    title = f"Lowest {spec.get('metric', 'score')} of {len(ranked):,} lists"
    return html.section(title, html.table(rows, ["id", "query", "best candidate", "ranked first", "score"]))


def _coreference(spec: Mapping[str, Any], lines: Lines) -> str:
    """Treats the numbers of candidates as labels; those that an example does not have get probability 0."""
    names = [
        f"candidate {number + 1}" for number in range(max(len(line["prediction"]["candidates"]) for line in lines))
    ]
    chances = np.zeros((len(lines), len(names) + 1))
    for row, line in zip(chances, lines, strict=True):
        candidates = [candidate["probability"] for candidate in line["prediction"]["candidates"]]
        row[: len(candidates)], row[-1] = candidates, line["prediction"]["none_probability"]
    labels = [*names, "none"]
    indices = [[part["index"] for part in (line["gold"], line["prediction"])] for line in lines]
    gold, predicted = zip(*(["none" if n is None else names[n] for n in pair] for pair in indices), strict=True)
    return _by_gender(lines) + _one_of(lines, labels, gold, predicted, chances)


def _by_gender(lines: Lines) -> str:
    """The scores of GAP for all pronouns, and for masculine and feminine ones."""
    answers = [(line["gold"]["index"], line["prediction"]["index"]) for line in lines]
    counts = counts_of(answers, [line["prediction"]["pronoun"]["text"] for line in lines])
    rows = []
    for name, columns in (("all", slice(3)), ("masculine", slice(3, 6)), ("feminine", slice(6, 9))):
        right, gold, predicted = counts[:, columns].sum(axis=0).astype(int).tolist()
        ratios = (right / max(1, predicted), right / max(1, gold), 2 * right / max(1, gold + predicted))
        rows.append([name, *_known(ratios, gold, predicted), f"{gold:,}", f"{predicted:,}"])
    return html.section("Candidates that are meant", html.table(rows, ["pronouns", *_RATIOS]))


def _confusions(title: str, labels: Sequence[str], gold: Sequence[str], predicted: Sequence[str]) -> str:
    """The confusion matrix; with many labels, a list of the most frequent confusions."""
    numbers = {label: number for number, label in enumerate(labels)}
    counts = confusion([numbers[label] for label in gold], [numbers[label] for label in predicted], len(labels))
    if len(labels) <= LARGEST_TABLE:
        return html.section(title, html.counts_table(labels, counts, "gold ↓ predicted →"))
    pairs = collections.Counter((a, b) for a, b in zip(gold, predicted, strict=True) if a != b)
    rows = [[a, b, f"{count:,}"] for (a, b), count in pairs.most_common(2 * WORST)]
    return html.section(f"{title}: the most frequent", html.table(rows, ["gold", "predicted", "times"]))


def _calibration(chances: npt.NDArray[np.float64], gold: Sequence[int], note: str = "") -> str:
    """The reliability diagram and its numbers."""
    bins = reliability(chances, gold)
    chart = diagonal_chart(
        [part.confidence for part in bins],
        [part.accuracy for part in bins],
        x_label="confidence: probability of the most likely label",
        y_label="accuracy",
        limits=(0.0, 1.0),
        joined=True,
    )
    rows = [[f"{part.confidence:.4f}", f"{part.accuracy:.4f}", f"{part.num_examples:,}"] for part in bins]
    error = expected_calibration_error(chances, gold)
    return html.figures([html.figure("reliability: perfect calibration is the dashed line", chart)]) + (
        html.section(
            f"Expected calibration error {error:.4f}",
            html.table(rows, ["confidence", "accuracy", "examples"]),
            html.note(note) if note else "",
        )
    )


def _most_certain(confidence: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> str:
    """The chart of the accuracy that is left if the model answers only the examples that it is most certain of."""
    tried = selections(confidence, right)
    series = Series(
        x=[100 * each.answered for each in tried],
        y=[each.accuracy for each in tried],
        color=COLORS[0],
        style="points",
        intervals=[each.interval for each in tried],
    )
    chart = line_chart([series], x_label="examples that are answered, percent", y_label="accuracy of the answers")
    caption = "accuracy of the most certain answers, with 95% intervals"
    return html.figures([html.figure(caption, chart)])


def _label_scores(labels: Sequence[str], gold: Sequence[str], predicted: Sequence[str]) -> str:
    right = collections.Counter(label for label, other in zip(gold, predicted, strict=True) if label == other)
    counts = (right, collections.Counter(gold), collections.Counter(predicted))
    return _ratios(labels, *([count[label] for label in labels] for count in counts))


def _ratios(labels: Sequence[str], right: Sequence[int], gold: Sequence[int], predicted: Sequence[int]) -> str:
    """Precision, recall and F1 of each label, from its counts."""
    rows = []
    for label, hits, gold_labels, answers in zip(labels, right, gold, predicted, strict=True):
        ratios = (hits / max(1, answers), hits / max(1, gold_labels), 2 * hits / max(1, gold_labels + answers))
        rows.append([label, *_known(ratios, gold_labels, answers), f"{gold_labels:,}", f"{answers:,}"])
    return html.table(rows, ["label", *_RATIOS])


def _known(ratios: Sequence[float], gold: int, predicted: int) -> list[str]:
    """Precision, recall and F1; a dash where examples say nothing: none has the label, or gets it."""
    return [
        f"{ratio:.4f}" if known else "–" for ratio, known in zip(ratios, (gold or predicted, gold, gold), strict=True)
    ]


def _mistakes(rows: Sequence[tuple[Line, Sequence[str]]], wrong: int, total: int) -> str:
    title = f"Most confident of {wrong:,} mistakes among {total:,} examples"
    return html.section(title, _examples(("gold", "predicted", "probability"), rows))


def _examples(header: Sequence[str], rows: Sequence[tuple[Line, Sequence[str]]]) -> str:
    """A table of examples, each with its id, its cells and, if any are known, its texts."""
    has_texts = any(line.get("texts") for line, _ in rows)
    texts = [[" | ".join(line.get("texts") or ())] if has_texts else [] for line, _ in rows]
    cells = [[str(line["id"]), *cells, *text] for (line, cells), text in zip(rows, texts, strict=True)]
    return html.table(cells, ["id", *header, *(["text"] if has_texts else [])])


_KINDS: dict[str, Callable[[Mapping[str, Any], Lines], str]] = {
    "classification": _classification,
    "regression": _regression,
    RERANKING: _lists,
    "choice": _choice,
    "selection": _choice,
    "span": _span,
    "tagging": _tagging,
    "generation": functools.partial(_texts, "written"),
    "extraction": functools.partial(_texts, "chosen"),
    "coreference": _coreference,
    "entities": _nested,
    "entities-by-name": _nested,
}
