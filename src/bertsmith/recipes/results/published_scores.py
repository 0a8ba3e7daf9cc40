"""Published results of BERT (Devlin et al., 2019), tables 1 to 4 and 7, and the user's GLUE scores next to them.

Published values are accuracies, F1 scores or correlations times 100; None means that nothing was published. Own scores
are measured on dev data, published ones on the hidden test data: close, but not the same.
"""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help
from bertsmith.base.storage.files import read_json
from bertsmith.tasks.datasets.glue import GLUE, glue_average

GLUE_COLUMNS = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
"""Metrics: F1 for QQP and MRPC, Matthews for CoLA (the caption says accuracy), Spearman for STS-B, else accuracy."""

GLUE_TRAIN_SIZES = ("392k", "392k", "363k", "108k", "67k", "8.5k", "5.7k", "3.5k", "2.5k")
"""Number of training examples as given in the table, by column."""

GLUE_NOTE = (
    "Published: test results from the evaluation server (Devlin et al., 2019, table 1). BERT and OpenAI GPT are single "
    "models, each trained on a single task. QQP and MRPC: F1; STS-B: Spearman; CoLA: Matthews; else accuracy. Entries "
    "that use BERT as a component are excluded, and so is WNLI, so the average differs from the official score."
)
"""The content of the caption."""
_KEYS = {"MNLI-m": "mnli", "MNLI-mm": "mnli-mm"} | {
    task.title: key for key, task in GLUE.items() if task.title != "MNLI"
}
_ROWS = tuple(_KEYS[column] for column in GLUE_COLUMNS)
_WIDTH = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueRow:
    """A system in the GLUE table."""

    system: str
    scores: tuple[float, ...]
    average: float  # as printed


GLUE_TABLE = (
    GlueRow(system="pre-OpenAI SOTA", scores=(80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7), average=74.0),
    GlueRow(system="BiLSTM+ELMo+Attn", scores=(76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8), average=71.0),
    GlueRow(system="OpenAI GPT", scores=(82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0), average=75.1),
    GlueRow(system="BERT base", scores=(84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4), average=79.6),
    GlueRow(system="BERT large", scores=(86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1), average=82.1),
)
"""Table 1."""


@dataclasses.dataclass(frozen=True)
class Headline:
    """A test score from the abstract, its gain in points over the previous best, and the system that reached it."""

    metric: str
    score: float
    gain: float
    system: str

    def text(self) -> str:
        """The score in one sentence."""
        return f"Published {self.metric}: {self.score} ({self.system}), {self.gain} points above the previous best."


HEADLINES = {
    "glue": Headline("GLUE score with WNLI", 80.5, 7.7, "BERT large on the leaderboard"),
    "mnli": Headline("test accuracy on the matched set, in percent", 86.7, 4.6, "BERT large"),
    "squad": Headline("test F1, in percent", 93.2, 1.5, "an ensemble of BERT large, first fine-tuned on TriviaQA"),
    "squad2": Headline("test F1, in percent", 83.1, 5.1, "BERT large, a single model without TriviaQA"),
}
"""By the name of the task."""


@dataclasses.dataclass(frozen=True)
class SpanRow:
    """A system in a SQuAD table, with exact match and F1 on dev and test."""

    system: str
    dev_exact: float | None = None
    dev_f1: float | None = None
    test_exact: float | None = None
    test_f1: float | None = None


SQUAD1_TABLE = (
    SpanRow("human", None, None, 82.3, 91.2),
    SpanRow("#1 ensemble nlnet", None, None, 86.0, 91.7),
    SpanRow("#2 ensemble QANet", None, None, 84.5, 90.5),
    SpanRow("BiDAF+ELMo (single)", None, 85.6, None, 85.8),
    SpanRow("R.M. Reader (ensemble)", 81.2, 87.9, 82.3, 88.5),
    SpanRow("BERT base (single)", 80.8, 88.5),
    SpanRow("BERT large (single)", 84.1, 90.9),
    SpanRow("BERT large (ensemble of 7)", 85.8, 91.8),
    SpanRow("BERT large (single, TriviaQA)", 84.2, 91.1, 85.1, 91.8),
    SpanRow("BERT large (ensemble, TriviaQA)", 86.2, 92.2, 87.4, 93.2),
)
"""Table 2."""

SQUAD2_TABLE = (
    SpanRow("human", 86.3, 89.0, 86.9, 89.5),
    SpanRow("#1 single MIR-MRC (F-Net)", None, None, 74.8, 78.0),
    SpanRow("#2 single nlnet", None, None, 74.2, 77.1),
    SpanRow("unet (ensemble)", None, None, 71.4, 74.9),
    SpanRow("SLQA+ (single)", None, None, 71.4, 74.4),
    SpanRow("BERT large (single)", 78.7, 81.9, 80.0, 83.1),
)
"""Table 3, without TriviaQA."""


@dataclasses.dataclass(frozen=True)
class DevTestRow:
    """A system with one dev score and one test score."""

    system: str
    dev: float | None
    test: float | None


SWAG_TABLE = (
    DevTestRow("ESIM+GloVe", 51.9, 52.7),
    DevTestRow("ESIM+ELMo", 59.1, 59.2),
    DevTestRow("OpenAI GPT", None, 78.0),
    DevTestRow("BERT base", 81.6, None),
    DevTestRow("BERT large", 86.6, 86.3),
    DevTestRow("human (expert, 100 samples)", None, 85.0),
    DevTestRow("human (5 annotations)", None, 88.0),
)
"""Table 4, accuracy."""

CONLL2003_TABLE = (
    DevTestRow("ELMo", 95.7, 92.2),
    DevTestRow("CVT", None, 92.6),
    DevTestRow("CSE", None, 93.1),
    DevTestRow("BERT large (fine-tuned)", 96.6, 92.8),
    DevTestRow("BERT base (fine-tuned)", 96.4, 92.4),
)
"""Table 7, entity F1 of CoNLL-2003; not one of the eleven tasks."""

CONLL2003_TYPES = frozenset({"PER", "LOC", "ORG", "MISC"})


def table_average(scores: Sequence[float]) -> float:
    """The average of BERT's table: the mean of its nine columns, so MNLI counts twice and WNLI not at all.

    >>> round(table_average(GLUE_TABLE[-1].scores), 2)
    82.08
    """
    assert len(scores) == len(GLUE_COLUMNS), f"{len(scores)} scores"
    return sum(scores) / len(scores)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedScore:
    """A published dev score on the scale of our own scores."""

    system: str  # the model, and the dataset it was scored on
    metric: str  # our name of the score
    value: float  # a fraction, or a percentage for question answering


def dev_scores(task: str, labels: Iterable[str] = ()) -> list[PublishedScore]:
    """BERT's published scores on the official dev set of a task; empty if there are none.

    Args:
        labels: its tags; named-entity data counts as CoNLL-2003 if the entity types match.

    >>> [(score.system, score.metric, score.value) for score in dev_scores("swag")]
    [('BERT base on SWAG', 'accuracy', 0.816), ('BERT large on SWAG', 'accuracy', 0.866)]
    """
    if task in ("squad", "squad2"):
        name, table = ("SQuAD 1.1", SQUAD1_TABLE) if task == "squad" else ("SQuAD 2.0", SQUAD2_TABLE)
        return [
            PublishedScore(system=f"{row.system} on {name}", metric=metric, value=value)
            for row in table
            if row.system in ("BERT base (single)", "BERT large (single)")
            for metric, value in (("exact", row.dev_exact), ("f1", row.dev_f1))
            if value is not None
        ]
    single: tuple[DevTestRow, ...]
    types = {label.partition("-")[2] for label in labels if label != "O"}
    if task == "swag":
        name, metric, single = "SWAG", "accuracy", SWAG_TABLE
    elif task == "ner" and types == CONLL2003_TYPES:
        name, metric, single = "CoNLL-2003", "f1", CONLL2003_TABLE
    else:
        return []
    return [
        PublishedScore(system=f"{row.system} on {name}", metric=metric, value=round(row.dev / 100, 4))
        for row in single
        if row.system.startswith("BERT") and row.dev is not None
    ]


@dataclasses.dataclass(frozen=True)
class GlueRequest(Request):
    """The runs of `bertsmith glue`."""

    runs: Annotated[
        Sequence[str | Path],
        Help(
            "fine-tuning runs on GLUE tasks, or outputs of `evaluate --json`",
            flag="RUN...",
            path="a run",
            kind=list[Path],
        ),
    ]


def read_scores(runs: Sequence[str | Path]) -> dict[str, dict[str, float]]:
    """The scores by task and metric, from the reports of fine-tuning runs or the output of `evaluate --json`.

    MNLI needs two: the run for the matched dev set, and an evaluation of its model on the mismatched one.
    """
    result: dict[str, dict[str, float]] = {}
    for run in map(Path, runs):
        path = run / "report.json" if run.is_dir() else run
        report = read_json(path)
        task = report.get("task") if isinstance(report, dict) else None
        if task not in GLUE or task in result:
            raise InputError(
                expected=f"the report of a GLUE task, one per task, in '{path}'",
                found=f"{task!r}" + (" again" if task in result else ""),
                fix="name one run per task",
            )
        scores = report.get("scores", {})
        result[task] = {name: score["mean"] if isinstance(score, dict) else score for name, score in scores.items()}
    return result


def glue_lines(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The lines of the published table with a column of own scores, of scores on other sets, averages and a note.

    Scores are times 100. The average of the table is that of the paper: the mean of its rows. The averages below it
    count each task once, as the leaderboard does.
    """
    lines = [_line("task", "training", "own dev score", [row.system for row in GLUE_TABLE])]
    for number, (key, size) in enumerate(zip(_ROWS, GLUE_TRAIN_SIZES, strict=True)):
        lines.append(_line(key, size, _scores_of(key, scores), [row.scores[number] for row in GLUE_TABLE]))
    ours = [scores.get(key, {}).get(GLUE[key].metric) for key in _ROWS]
    known = [value for value in ours if value is not None]
    average = f"{100 * table_average(known):.1f}" if len(known) == len(ours) else "-"
    lines.append(_line("average", "", average, [row.average for row in GLUE_TABLE]))
    lines += [_line(key, "-", _scores_of(key, scores), ["-"] * len(GLUE_TABLE)) for key in scores if key not in _ROWS]
    for with_wnli in (False, True):
        title = f"average {'with' if with_wnli else 'without'} WNLI, each task once"
        try:
            lines.append(f"{title}: {100 * glue_average(scores, with_wnli=with_wnli):.1f}")
        except InputError as missing:
            lines.append(f"{title}: incomplete; {missing.expected.removesuffix(' for the GLUE score')} is missing")
    return [*lines, HEADLINES["glue"].text(), *textwrap.wrap(GLUE_NOTE, _WIDTH)]


def _scores_of(key: str, scores: Mapping[str, Mapping[str, float]]) -> str:
    """The scores of a task in its official metrics, or a dash."""
    values = scores.get(key, {})
    return ", ".join(f"{name} {100 * values[name]:.1f}" for name in GLUE[key].metrics if name in values) or "-"


def _line(name: str, size: str, ours: str, published: Sequence[object]) -> str:
    """A line of the table; a column of published scores is as wide as the name of its system."""
    there = [f"{value:>{len(row.system) + 2}}" for row, value in zip(GLUE_TABLE, published, strict=True)]
    return f"{name:<9}{size:<10}{ours:<28}" + "".join(there)
