"""Audit of a labelled table: labels that are probably wrong, duplicates that disagree, labels that overlap.

::

    DIR/issues.csv       the rows to look at, the most certain errors first
    DIR/corrected.csv    the table with the suggested labels in place of those that are probably wrong
    DIR/audit.json       the estimated share of errors with its interval, counts, labels that overlap
    DIR/report.html      the same as a page
    DIR/settings.json    settings, machine, versions, digests of the inputs

Every row is predicted by models that were not fitted to it: a bag of words and, with a model, a linear model on its
vectors, whose probabilities are averaged. `tasks.metrics.label_errors` says which labels are probably wrong.

Letters: E examples, K labels.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted, tell, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import to_dict
from bertsmith.base.core.tables import local_path
from bertsmith.base.storage.files import read_json, read_json_lines, write_json
from bertsmith.base.storage.locks import require_unused
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.audit.request import MOST_PAIRED, AuditRequest
from bertsmith.recipes.audit.results import write_corrected, write_issues, write_page
from bertsmith.recipes.results.baseline_lines import MODEL
from bertsmith.recipes.results.finished_run import BAG_FOLDER, OUT_OF_FOLD, REPORT_FILE
from bertsmith.recipes.results.resampling import texts_of
from bertsmith.tasks.baselines.bag_of_words import TextSpace
from bertsmith.tasks.baselines.linear import fit_for
from bertsmith.tasks.baselines.n_grams import NGramModel, decoded
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.datasets.labels import are_hardly_shared, listed
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.metrics.label_errors import (
    NO_LABEL,
    Floats,
    Ints,
    confident_labels,
    joint_counts,
    normalized_margins,
    share_of_errors,
)
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval, proportion_interval
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.specs.task import BAG, VECTORS, TaskSpec
from bertsmith.tasks.task_data.row_columns import groups_of
from bertsmith.tasks.task_data.split import TaskData, fold_numbers, inputs_of
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.training.loop.run import Run

WRONG, DIFFERS, NEAR, UNCLEAR = "wrong label", "same text, other label", "similar text, other label", "no clear label"
LENGTH = 128  # tokens of a row, unless the model reads fewer
_DRAWS = 500  # of the bootstrap
_BLOCK = 512  # texts that are compared with all others at once
_MOST_PAIRS = 20  # labels that overlap, in the report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """The results of an audit.

    Attributes:
        report: the content of audit.json.
        issues: the rows to look at, the most certain errors first: "row", "issue", "label", "suggested" and more.
        folder: where the files are.
    """

    report: Mapping[str, Any]
    issues: Sequence[Mapping[str, Any]]
    folder: Path

    def lines(self) -> list[str]:
        """The lines that the command prints."""
        report = self.report
        low, high = report["interval"]
        systems = ", ".join(f"{name} {score:.4f}" for name, score in report["accuracy"].items())
        lines = [
            f"{report['examples']:,} examples, each predicted without having been seen; accuracy: {systems}",
            f"estimated share of wrong labels: {report['errors']:.4f} (95% interval {low:.4f} to {high:.4f})",
            "; ".join(f"{name}: {count:,}" for name, count in report["issues"].items()),
        ]
        for pair in report["overlaps"][:3]:
            lines.append(
                f"overlap: {pair['label']!r} and {pair['other']!r}, about {pair['examples']:.0f} examples of the one "
                f"labelled as the other ({pair['share']:.1%} of both)"
            )
        return lines


@takes(AuditRequest)
def audit_labels(request: AuditRequest) -> Audit:
    """The labels of a table that are probably wrong, with the label that they should have, and other doubtful rows.

    Raises:
        BertsmithError: the table, the model or a setting is invalid; the message says which.
    """
    require_unused(Path(request.out), "name another folder")  # an audit is not resumed
    with Run.open(request.out, device=request.device) as run:
        folder = None if request.model is None else load_any(request.model)
        spec, data, groups = _read(request, folder)
        examples = cast("Sequence[TextExample]", data.train)
        folds = np.array(fold_numbers(examples, request.folds, request.seed, groups=groups))
        given_labels = _numbers(spec, examples)
        judged = _judged(spec, given_labels, folds)
        of_run = {} if request.run is None else _of_run(Path(request.run), spec, examples)
        record = {"task": "audit", "spec": spec.to_dict(), **to_dict(request)}
        run.start({name: str(value) for name, value in record.items()}, data.digests, request=request)
        systems = dict(_systems(request, folder, spec, examples, given_labels, folds, of_run))
        probabilities: Floats = np.mean(list(systems.values()), axis=0)
        confident = np.where(judged, confident_labels(probabilities, given_labels), NO_LABEL)
        issues = _issues(request, spec, examples, given_labels, probabilities, confident)
        report = _report(spec, given_labels, systems, probabilities, confident, judged, issues, request.seed)
        write_issues(run.path, issues)
        suggested = {issue["location"]: issue["suggested"] for issue in issues if issue["issue"] == WRONG}
        write_corrected(run.path, local_path(request.table), request.part(ColumnSettings), suggested)
        write_json(run.path / "audit.json", report)
        write_page(run.path, report, issues)
        return Audit(report=report, issues=issues, folder=run.path)


def _read(request: AuditRequest, folder: ModelFolder | None) -> tuple[TaskSpec, TaskData, Sequence[str] | None]:
    """The task, its examples, and their groups if there is a column of them."""
    table, columns = local_path(request.table), request.part(ColumnSettings)
    most = LENGTH if folder is None else min(LENGTH, folder.config.max_tokens)
    settings = TaskSettings(max_length=request.max_length or most)
    spec, data = read_task(request.task, table, None, columns=columns, settings=settings, fold=(0, 1))
    _require_shared(request, spec, len(data.train))
    groups = groups_of(data.train, table, request.group_column, None, encoding=columns.encoding)
    return spec, data, groups


def _require_shared(request: AuditRequest, spec: TaskSpec, count: int) -> None:
    """Refuses a table in which nearly every row has a label of its own, as in a column of texts."""
    if are_hardly_shared(len(spec.labels), count):
        column = request.values(ColumnSettings).get("label_column")
        raise InputError(
            expected="labels that rows share",
            found=f"{len(spec.labels):,} labels for {count:,} rows",
            fix="name the label column with --label-column" if column is None else f"is {column!r} the label column?",
        )


def _numbers(spec: TaskSpec, examples: Sequence[TextExample]) -> Ints:
    """The numbers of the labels, [E]."""
    number = {label: index for index, label in enumerate(spec.labels)}
    return np.array([number[str(example.label)] for example in examples], dtype=np.int64)


def _judged(spec: TaskSpec, given_labels: Ints, folds: Ints) -> npt.NDArray[np.bool_]:
    """Whether rows of another fold have the label of a row, [E]; else no model of the row has seen that label.

    Raises:
        InputError: no label has rows in two folds.
    """
    in_one = np.array([len(np.unique(folds[given_labels == number])) < 2 for number in range(len(spec.labels))])
    judged: npt.NDArray[np.bool_] = ~in_one[given_labels]
    if not judged.any():
        raise InputError(expected="a label with rows in two parts of the table", found="none", fix="give more rows")
    if not judged.all():
        names = listed(brief(spec.labels[number]) for number in np.unique(given_labels[~judged]))
        warn(f"rows with a label that one part alone has are not judged: {names}; give more rows with it")
    return judged


def _systems(
    request: AuditRequest,
    folder: ModelFolder | None,
    spec: TaskSpec,
    examples: Sequence[TextExample],
    given_labels: Ints,
    folds: Ints,
    of_run: Mapping[str, Floats],
) -> Iterator[tuple[str, Floats]]:
    """The probabilities of each system, [E, K], by models that were fitted to the other folds.

    Args:
        of_run: those of a run, by the name of its model; a bag of words is not fitted again.
    """
    numbers, task = range(1, request.folds + 1), task_for(spec)
    if BAG not in of_run:
        yield BAG, _of_bag(request, spec, examples, given_labels, folds)
    yield from of_run.items()
    if folder is None:
        return
    from bertsmith.tasks.baselines.text_vectors import text_vectors

    encoder = load_frozen_encoder(folder, device=request.device)
    vectors = text_vectors(encoder, task, examples, encoder.choice("last"))
    linear = np.zeros((len(examples), len(spec.labels)))
    with Progress(VECTORS, request.folds, "folds") as progress:
        for number in numbers:
            train, held = np.flatnonzero(folds != number), np.flatnonzero(folds == number)
            fitted = fit_for(spec, vectors[train], given_labels[train], seed=request.seed)
            linear[held] = _chances(
                decoded(task, [examples[row] for row in held.tolist()], fitted.outputs(vectors[held]))
            )
            progress.advance(1)
    yield VECTORS, linear


def _of_bag(
    request: AuditRequest, spec: TaskSpec, examples: Sequence[TextExample], given_labels: Ints, folds: Ints
) -> Floats:
    """The probabilities of bags of words, [E, K], each fitted to the other folds."""
    bag = np.zeros((len(examples), len(spec.labels)))
    with Progress(BAG, request.folds, "folds") as progress:
        for number in range(1, request.folds + 1):
            train, held = np.flatnonzero(folds != number), np.flatnonzero(folds == number)
            texts = [examples[row] for row in train.tolist()]
            model = NGramModel.fitted(spec, texts, given_labels[train], seed=request.seed)
            bag[held] = _chances(model.predict([examples[row] for row in held.tolist()]))
            progress.advance(1)
    return bag


def _of_run(run: Path, spec: TaskSpec, examples: Sequence[TextExample]) -> dict[str, Floats]:
    """The probabilities of a run with folds for the same examples, [E, K], by the name of the model that it kept.

    Raises:
        InputError: the run has no folds, or they are of other examples.
    """
    path = run / OUT_OF_FOLD
    if not path.is_file():
        raise InputError(
            expected=f"a finished run with --folds in '{run}'", found=f"no {OUT_OF_FOLD}", fix="name another run"
        )
    lines = list(read_json_lines(path))
    theirs = [(line["texts"], line["gold"]) for line in lines]
    if theirs != [(texts_of(example), example.label) for example in examples]:
        raise InputError(
            expected=f"the {counted(len(examples), 'example')} of the table in '{path}', in this order",
            found=f"{counted(len(lines), 'example')}, or other texts or labels",
            fix="name the table that the run was trained on, as it was then",
        )
    chances = [line["prediction"]["probabilities"] for line in lines]
    report = read_json(run / REPORT_FILE) if (run / REPORT_FILE).is_file() else {}
    name = BAG if report.get("best") == BAG_FOLDER else MODEL
    return {name: np.array([[chance[label] for label in spec.labels] for chance in chances], dtype=np.float64)}


def _chances(predictions: Sequence[Any]) -> Floats:
    return np.array([prediction.probabilities for prediction in predictions], dtype=np.float64)


def _issues(
    request: AuditRequest,
    spec: TaskSpec,
    examples: Sequence[TextExample],
    given_labels: Ints,
    probabilities: Floats,
    confident: Ints,
) -> list[dict[str, Any]]:
    """The rows to look at: probably wrong labels first, then texts with several labels, then unclear rows."""
    margins = normalized_margins(probabilities, given_labels)

    def issue(row: int, kind: str, other: str = "") -> dict[str, Any]:
        example = examples[row]
        best = int(probabilities[row].argmax() if confident[row] == NO_LABEL else confident[row])
        return {
            "row": row + 1,
            "location": example.location,
            "issue": kind,
            "label": spec.labels[given_labels[row]],
            "suggested": spec.labels[best],
            "probability": round(float(probabilities[row, given_labels[row]]), 4),
            "probability_of_suggested": round(float(probabilities[row, best]), 4),
            "other": other,
            "text": " | ".join(filter(None, (example.first, example.second))),
        }

    order = np.argsort(margins, kind="stable").tolist()
    wrong = [row for row in order if confident[row] not in (NO_LABEL, given_labels[row])]
    unclear = [row for row in order if confident[row] == NO_LABEL and probabilities[row].argmax() != given_labels[row]]
    issues = [issue(row, WRONG) for row in wrong]
    by_text: dict[Any, list[int]] = {}
    for row, example in enumerate(examples):
        by_text.setdefault(inputs_of(example), []).append(row)
    for rows in by_text.values():
        for row in rows:
            others = [other for other in rows if given_labels[other] != given_labels[row]]
            issues += [issue(row, DIFFERS, _other(spec, examples, given_labels, others[0]))] if others else []
    for row, other in _near_duplicates(examples, given_labels, request.near):
        issues.append(issue(row, NEAR, _other(spec, examples, given_labels, other)))
    return [*issues, *(issue(row, UNCLEAR) for row in unclear)]


def _other(spec: TaskSpec, examples: Sequence[TextExample], given_labels: Ints, row: int) -> str:
    return f"{spec.labels[given_labels[row]]} ({examples[row].location})"


def _near_duplicates(examples: Sequence[TextExample], given_labels: Ints, near: float) -> list[tuple[int, int]]:
    """Each row with the most similar one of another label, if their words have at least that cosine."""
    if len(examples) > MOST_PAIRED:
        tell(f"more than {MOST_PAIRED:,} examples: similar texts with different labels are not searched")
        return []
    texts = ["\n".join(filter(None, (example.first, example.second))) for example in examples]
    weights = sp.csr_array(TextSpace(texts).weights(texts), dtype=np.float32)
    pairs = []
    for start in range(0, len(texts), _BLOCK):
        cosines = sp.coo_array(weights[start : start + _BLOCK] @ weights.T)
        rows, others = cosines.row + start, cosines.col
        # Equal texts are another kind of issue.
        kept = (cosines.data >= near) & (given_labels[rows] != given_labels[others])
        best: dict[int, tuple[float, int]] = {}
        for row, other, cosine in zip(
            rows[kept].tolist(), others[kept].tolist(), cosines.data[kept].tolist(), strict=True
        ):
            if inputs_of(examples[row]) != inputs_of(examples[other]):
                best[row] = max(best.get(row, (0.0, 0)), (cosine, -other))
        pairs += [(row, -other) for row, (_, other) in sorted(best.items())]
    return pairs


def _report(
    spec: TaskSpec,
    given_labels: Ints,
    systems: Mapping[str, Floats],
    probabilities: Floats,
    confident: Ints,
    judged: npt.NDArray[np.bool_],
    issues: Sequence[Mapping[str, Any]],
    seed: int,
) -> dict[str, Any]:
    """The content of audit.json."""
    labels, counts = spec.labels, np.bincount(given_labels, minlength=len(spec.labels))
    joint = joint_counts(confident[judged], given_labels[judged], len(labels))
    rows = np.concatenate([probabilities, given_labels[:, None]], axis=1)[judged]

    def errors(drawn: Any) -> float:
        return share_of_errors(drawn[:, :-1], drawn[:, -1].astype(np.int64))

    share = errors(rows)
    low, high = bootstrap_interval(rows, errors, seed=seed, draws=_DRAWS)
    if low == high:  # without a single error, say, draws tell nothing about other rows
        low, high = proportion_interval(round(share * len(rows)), len(rows))
    both = joint + joint.T
    overlaps = [
        {"label": labels[a], "other": labels[b], "examples": both[a, b], "share": both[a, b] / (counts[a] + counts[b])}
        for a in range(len(labels))
        for b in range(a + 1, len(labels))
        if both[a, b] >= 1
    ]
    kinds = [issue["issue"] for issue in issues]
    return {
        "examples": len(given_labels),
        "labels": {label: int(count) for label, count in zip(labels, counts, strict=True)},
        "accuracy": {name: float((part.argmax(axis=1) == given_labels).mean()) for name, part in systems.items()},
        "errors": share,
        "interval": [min(low, share), max(high, share)],
        "issues": {kind: kinds.count(kind) for kind in (WRONG, DIFFERS, NEAR, UNCLEAR)},
        "overlaps": sorted(overlaps, key=lambda pair: -pair["share"])[:_MOST_PAIRS],
    }
