"""The nine tasks of GLUE and its diagnostic set: official files, labels, metrics and submissions.

Columns and label order follow BERT's original code (the processors of `run_classifier.py`) and of the official
files. Fields are separated by tabs; quotes are ordinary characters.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.storage.files import write_text
from bertsmith.tasks.datasets.cells import show_columns, tsv_rows
from bertsmith.tasks.datasets.examples import ExampleFile, TextExample
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted
from bertsmith.tasks.datasets.values import brief, looks_like_json, number_in
from bertsmith.text.documents.encodings import UTF_8

WNLI_WARNING = (
    "WNLI's dev set contains sentences of its training set with the opposite label, so models score below chance; "
    "BERT's authors left the task out of their table"
)
# The tasks of the same kind as MNLI that `nli` reads.
NLI_TITLES = {"snli": "SNLI", "xnli": "XNLI"}
NLI_LABELS = ("contradiction", "entailment", "neutral")  # in the order of MNLI
LOWEST_SIMILARITY, HIGHEST_SIMILARITY = 0.0, 5.0

_ID_COLUMNS = ("index", "id")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a file that hold texts and label: by name, or by number from 0 if the file has no header."""

    first: str | int
    second: str | int | None = None
    label: str | int | None = None
    count: int | None = None  # the number of columns of a file without a header; None if there is a header


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A task of GLUE."""

    title: str
    labels: tuple[str, ...]  # in the order of the head's outputs; empty for STS-B, whose labels are numbers from 0 to 5
    metrics: tuple[str, ...]  # the official metrics, the one of BERT's table first; the score of the task is their mean
    labelled: Columns | None
    unlabelled: Columns
    submission: str
    # number of examples in the official training file; None if the model of another task is used
    train_size: int | None
    trained_as: str
    skips_broken_rows: bool = False  # the official files have rows with missing fields, which every reader skips

    @property
    def metric(self) -> str:
        """The metric of BERT's table. For CoLA the caption says accuracy, but the values are Matthews correlations."""
        return self.metrics[0]

    @property
    def pair(self) -> bool:
        """Whether examples have a text B."""
        return self.unlabelled.second is not None


def _task(
    title: str, labels: tuple[str, ...], metrics: tuple[str, ...], texts: Columns, label: str, size: int, **others: Any
) -> GlueTask:
    """A task whose test file has the columns of the labelled ones, but for the label, and whose model is its own."""
    return GlueTask(
        title=title,
        labels=labels,
        metrics=metrics,
        train_size=size,
        unlabelled=texts,
        **{
            "labelled": dataclasses.replace(texts, label=label),
            "submission": f"{title}.tsv",
            "trained_as": title.lower(),
            **others,
        },
    )


_BINARY, _ENTAILMENT = ("0", "1"), ("entailment", "not_entailment")
_SENTENCE, _SENTENCES = Columns(first="sentence"), Columns(first="sentence1", second="sentence2")
_STRINGS = Columns(first="#1 String", second="#2 String")
_QUESTIONS = Columns(first="question1", second="question2")
_ANSWERS = Columns(first="question", second="sentence")
_NO_HEADER = Columns(first=3, label=1, count=4)
_MNLI = _task("MNLI", NLI_LABELS, ("accuracy",), _SENTENCES, "gold_label", 392_702, submission="MNLI-m.tsv")

GLUE: dict[str, GlueTask] = {
    "cola": _task("CoLA", _BINARY, ("matthews",), _SENTENCE, "", 8_551, labelled=_NO_HEADER),
    "sst-2": _task("SST-2", _BINARY, ("accuracy",), _SENTENCE, "label", 67_349),
    "mrpc": _task("MRPC", _BINARY, ("f1", "accuracy"), _STRINGS, "Quality", 3_668),
    "sts-b": _task("STS-B", (), ("spearman", "pearson"), _SENTENCES, "score", 5_749),
    "qqp": _task("QQP", _BINARY, ("f1", "accuracy"), _QUESTIONS, "is_duplicate", 363_846, skips_broken_rows=True),
    "mnli": _MNLI,
    "mnli-mm": dataclasses.replace(_MNLI, title="MNLI-mm", submission="MNLI-mm.tsv", train_size=None),
    "qnli": _task("QNLI", _ENTAILMENT, ("accuracy",), _ANSWERS, "label", 104_743),
    "rte": _task("RTE", _ENTAILMENT, ("accuracy",), _SENTENCES, "label", 2_490),
    "wnli": _task("WNLI", _BINARY, ("accuracy",), _SENTENCES, "label", 635),
    "ax": dataclasses.replace(
        _MNLI, title="diagnostic", metrics=("matthews",), labelled=None, submission="AX.tsv", train_size=None
    ),
}


def read_glue(task: GlueTask, path: Path, *, labelled: bool, encoding: str = UTF_8) -> ExampleFile:
    """The examples of an official TSV file.

    Rows without labels are kept even if a text is empty, because the server expects an answer for every row.
    """
    columns = task.labelled if labelled else task.unlabelled
    if columns is None:
        raise InputError(
            expected=f"a task with labelled files, to read {quoted(path)}",
            found=f"the {task.title} set, which is test data only",
            fix=f"read it without labels, with a model of {task.trained_as}",
        )
    text = file_text(path, kind=f"the TSV file of {task.title}", encoding=encoding)
    if looks_like_json(text):
        raise _other_file(task, path, "JSON")
    rows = tsv_rows(lines_of(text))
    if columns.count is None:
        header = next(rows)[1]
        first, second, label, number = _find(task, path, columns, header)
        count = len(header)
    else:
        assert isinstance(columns.first, int), "columns of a file without a header are given by number"
        assert isinstance(columns.label, int), "columns of a file without a header are given by number"
        first, second, label, number, count = columns.first, None, columns.label, None, columns.count
    examples, skipped = [], list[tuple[str, str]]()
    for position, (line, cells) in enumerate(row for row in rows if row[1] != [""]):
        location = line_of(path, line)
        if len(cells) != count:
            if not (task.skips_broken_rows and labelled):
                raise InputError(
                    expected=f"{counted(count, 'column')} of {task.title} in {location}",
                    found=f"{len(cells)}, starting with {brief(cells[0])}",
                    fix="restore the official file, or name another task",
                )
            skipped.append((location, f"{counted(len(cells), 'column')} instead of {count}"))
            continue
        gold = _gold(task, cells[label], location) if label is not None else None
        texts = cells[first], None if second is None else cells[second]
        if labelled and not all(part is None or part.strip() for part in texts):
            skipped.append((location, "empty text"))
            continue
        name = str(position) if number is None else cells[number]
        examples.append(TextExample(id=name, first=texts[0], second=texts[1], label=gold, location=location))
    if not examples:
        raise _other_file(task, path, "no examples below its header")
    return ExampleFile(examples=tuple(examples), skipped=tuple(skipped))


def write_submission(task: GlueTask, ids: Sequence[str], labels: Sequence[str | float], folder: Path) -> Path:
    """Writes the answers to a test file in the evaluation server's format and returns the path of the file."""
    assert len(ids) == len(labels), f"{len(ids)} ids and {len(labels)} labels"
    if task.labels:
        assert set(labels) <= set(task.labels), f"labels {set(labels) - set(task.labels)} of {task.title}"
        answers = [str(label) for label in labels]
    else:
        answers = [f"{min(max(float(label), LOWEST_SIMILARITY), HIGHEST_SIMILARITY):.3f}" for label in labels]
    path = folder / task.submission
    lines = ["index\tprediction", *(f"{name}\t{answer}" for name, answer in zip(ids, answers, strict=True))]
    write_text(path, "\n".join(lines) + "\n")
    return path


def glue_average(scores: Mapping[str, Mapping[str, float]], *, with_wnli: bool) -> float:
    """The GLUE score: the mean over tasks, each counted once.

    A task with two metrics counts with their mean, MNLI with the mean of matched (`mnli`) and mismatched (`mnli-mm`),
    as on the leaderboard. The average of BERT's table is computed differently: see `published_scores.table_average`.
    """
    values = {}
    for key, task in GLUE.items():
        if key == "ax" or (key == "wnli" and not with_wnli):
            continue
        for metric in task.metrics:
            if metric not in scores.get(key, {}):
                raise InputError(
                    expected=f"the {metric} of {key} for the GLUE score",
                    found=f"scores of {', '.join(scores) or 'no task'}",
                    fix="score this task first",
                )
        values[key] = sum(scores[key][metric] for metric in task.metrics) / len(task.metrics)
    values["mnli"] = (values["mnli"] + values.pop("mnli-mm")) / 2
    return sum(values.values()) / len(values)


def _find(
    task: GlueTask, path: Path, columns: Columns, header: Sequence[str]
) -> tuple[int, int | None, int | None, int | None]:
    wanted = [name for name in (columns.first, columns.second, columns.label) if name is not None]
    for name in wanted:
        if name not in header:
            raise _other_file(task, path, f"no column {name!r} among {show_columns(header)}")
    numbers = {name: number for number, name in enumerate(header)}
    first, second, label = (
        None if name is None else numbers[str(name)] for name in (columns.first, columns.second, columns.label)
    )
    assert first is not None, "every task has a text A"
    return first, second, label, next((numbers[name] for name in _ID_COLUMNS if name in numbers), None)


def _other_file(task: GlueTask, path: Path, content: str) -> InputError:
    return InputError(
        expected=f"the official TSV file of {task.title} in {quoted(path)}",
        found=content,
        fix="name the file of this task; only test files have no labels",
    )


def _gold(task: GlueTask, cell: str, location: str) -> str | float:
    cell = cell.strip()
    if task.labels:
        if cell not in task.labels:
            raise InputError(
                expected=f"a label of {task.title} in {location}, one of {', '.join(task.labels)}",
                found=brief(cell),
                fix="restore the official file, or name another task",
            )
        return cell
    value = number_in(cell)
    if not LOWEST_SIMILARITY <= value <= HIGHEST_SIMILARITY:
        raise InputError.at(location, "a number from 0 to 5", brief(cell), "restore the official file")
    return value
