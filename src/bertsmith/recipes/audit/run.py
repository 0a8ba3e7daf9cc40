"""Audit of a labelled table: labels that are probably wrong, duplicates that disagree, labels that overlap.

::

    DIR/issues.csv       the rows to look at, the most certain errors first
    DIR/corrected.csv    the table with the suggested labels in place of those that are probably wrong, unless the
                         models are too weak for that; tagged sentences have the form of their file
    DIR/audit.json       the estimated share of errors with its interval, counts, labels that overlap
    DIR/report.html      the same as a page
    DIR/next.csv, .json, .jsonl   with --next, the unlabelled rows to label next; see `next_rows`
    DIR/settings.json    settings, machine, versions, digests of the inputs

Every row is predicted by models that were not fitted to it: a bag of words and, with a model, a linear model on its
vectors. Of tagged sentences, the examples are words. The probabilities of all models are averaged with the weights that
give the labels of the table the highest likelihood.
`tasks.metrics.label_errors` says which labels are probably wrong.

Letters: E examples, U unlabelled rows, K labels.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, quiet, short_repr, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import to_dict
from bertsmith.base.core.tables import local_path
from bertsmith.base.storage.files import digest_file, write_json, write_text
from bertsmith.base.storage.locks import require_unused
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.model_files.metadata import folder_of_model, read_metadata
from bertsmith.recipes.audit.entities import LISTED, EntitiesAudited
from bertsmith.recipes.audit.fixes import fixed_cells, fixed_entities, fixed_tags, read_fixes
from bertsmith.recipes.audit.issues import KINDS, MOST_PAIRS, WRONG, Audited, estimated, issues_of, overlaps_of
from bertsmith.recipes.audit.learning_curve import learning_curve
from bertsmith.recipes.audit.next_rows import NEXT_TABLE, most_informative, write_next
from bertsmith.recipes.audit.out_of_fold import (
    TAGGING,
    Features,
    bag_features,
    listed_spans,
    of_run,
    spans_of_run,
    vector_features,
    word_features,
)
from bertsmith.recipes.audit.request import AuditRequest
from bertsmith.recipes.audit.results import (
    require_names,
    told_of_weak_models,
    write_corrected,
    write_issues,
    write_page,
)
from bertsmith.recipes.audit.several import SeveralAudited, two_answers
from bertsmith.recipes.audit.tags import CORRECTED, TagsAudited
from bertsmith.recipes.results.baseline_lines import MODEL
from bertsmith.tasks.datasets.examples import EntityExample, TaggedExample, TextExample
from bertsmith.tasks.datasets.labels import are_hardly_shared, labels_of, listed
from bertsmith.tasks.datasets.tables import read_elsewhere
from bertsmith.tasks.datasets.tagged_copies import tagged_copy
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.metrics.label_errors import (
    NO_LABEL,
    Floats,
    Ints,
    confident_labels,
    mixture_weights,
    share_of_errors,
)
from bertsmith.tasks.specs.classification import label_matrix
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.specs.task import BAG, ENTITIES, VECTORS, TaskSpec
from bertsmith.tasks.task_data.labelled_examples import warn_of_training_file
from bertsmith.tasks.task_data.row_columns import groups_of
from bertsmith.tasks.task_data.split import TaskData, fold_numbers, inputs_of
from bertsmith.tasks.task_data.task_files import columns_for, named_columns, read_task
from bertsmith.tasks.task_data.unlabelled import read_unlabelled
from bertsmith.training.loop.run import Run

_OF_SENTENCES = (TAGGING, ENTITIES)  # kinds of task
LENGTH = 128  # tokens of a row, unless the model reads fewer


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

    __repr__ = short_repr

    def lines(self) -> list[str]:
        """The lines that the command prints."""
        report, corrected = self.report, next(self.folder.glob("corrected.*"), self.folder)
        if "corrections" in report:
            return [f"{counted(report['corrections'], 'correction')} in {corrected}"]
        low, high = report["interval"]
        metric = "f1" if "f1" in report else "accuracy"
        systems = ", ".join(f"{name} {score:.4f}" for name, score in report[metric].items())
        unit = "sentence" if "words" in report or "entities" in report else "example"
        lines = [
            f"{counted(report['examples'], unit)}, {self._fitted()}; {metric}: {systems}",
            f"estimated share of wrong {self._labels()}: {report['errors']:.4f} (95% interval {low:.4f} to {high:.4f})",
            "; ".join(f"{name}: {count:,}" for name, count in report["issues"].items() if count or name in CORRECTED),
        ]
        if told := told_of_weak_models(report):
            lines.append(told)
        if "corrected" in report:
            lines.append(
                f"{counted(report['corrected'], 'sentence')} changed in {corrected}, "
                "by suggestions that are almost certain; --fix makes all that you leave in issues.csv"
            )
        if "next" in report:
            forecast = report["forecast"]
            low, high = forecast["interval"]
            curve = ", ".join(f"{point['accuracy']:.4f} with {point['labels']:,}" for point in report["curve"])
            lines.append(
                f"accuracy by the number of labels in training: {curve}; {counted(forecast['more'], 'more label')} at "
                f"random would add about {forecast['gain']:.4f} "
                + (
                    f"(95% interval {low:.4f} to {high:.4f})"
                    if low < high
                    else "(no interval: in no draw of the examples does the accuracy grow with the labels)"
                )
            )
            lines.append(
                f"to label next, of {counted(report['unlabelled'], 'unlabelled text')}: {report['next']:,} in "
                f"{self.folder / NEXT_TABLE}; .json for Label Studio, .jsonl for doccano"
            )
        for pair in report["overlaps"][:3]:
            examples = counted(round(pair["examples"]), "example")
            lines.append(
                f"overlap: {pair['label']!r} and {pair['other']!r}, about {examples} of the one "
                f"labelled as the other ({pair['share']:.1%} of both)"
            )
        return lines

    def _fitted(self) -> str:
        """What the models of each row were fitted to: with more rows in training, the same model scores higher."""
        folds = self.report["folds"]
        others = round(self.report["examples"] * (1 - 1 / folds))
        run = ", or trained on the other folds of the run" if self.report["run"] else ""
        return f"each predicted by models fitted to about {others:,} others ({folds} folds){run}"

    def _labels(self) -> str:
        pairs, words = self.report.get("pairs"), self.report.get("words")
        if "entities" in self.report:
            return f"entities among the {self.report['entities']:,} of the file and those missing from it"
        if words:
            return f"tags among the {words:,} words"
        return f"labels among the {pairs:,} pairs of a row and a label" if pairs else "labels"


@takes(AuditRequest)
def audit_labels(request: AuditRequest) -> Audit:
    """The labels of a table that are probably wrong, with the label that they should have, and other doubtful rows.

    Raises:
        BertsmithError: the table, the model or a setting is invalid; the message says which.
    """
    require_unused(Path(request.out), "name another folder")  # an audit is not resumed
    with Run.open(request.out, device=request.device) as run:
        folder = None if request.model is None else load_any(request.model)
        if folder is not None:
            effect = "its vectors may know these labels, wrong ones too; give the model that it was fine-tuned from"
            warn_of_training_file(folder.metadata, local_path(request.table), effect)
        request = _with_columns(request, folder)
        spec, data, groups = _read(request, folder)
        if request.fix is not None:
            return _fixed(request, run, spec, data)
        folds = np.array(fold_numbers(data.train, request.folds, request.seed, groups=groups))
        if spec.kind == TAGGING:
            return _of_tags(request, run, folder, spec, data, folds)
        if spec.kind == ENTITIES:
            return _of_entities(request, run, spec, data, folds)
        if spec.multi_label:
            return _of_several(request, run, folder, spec, data, folds)
        return _of_texts(request, run, folder, spec, data, folds)


def _with_columns(request: AuditRequest, folder: ModelFolder | None) -> AuditRequest:
    """The request with the columns of the training of its model, or of its run, where the table has them."""
    specs = {} if folder is None else {str(folder.path): folder.metadata.spec}
    if request.run is not None:
        path = folder_of_model(request.run)
        specs[str(path)] = read_metadata(path).spec
    for where, values in specs.items():
        named, trained = request.part(ColumnSettings), TaskSpec.from_dict(values, where).columns if values else {}
        columns = columns_for(trained, local_path(request.table), named)
        chosen = {name: value for name, value in named_columns(columns).items() if value != getattr(named, name)}
        request = request.replaced(**chosen) if chosen else request
    return request


def _of_texts(
    request: AuditRequest, run: Run, folder: ModelFolder | None, spec: TaskSpec, data: TaskData, folds: Ints
) -> Audit:
    """The audit of texts with one label each."""
    examples = cast("Sequence[TextExample]", data.train)
    labels = _numbers(spec, (str(example.label) for example in examples))
    judged = _judged(spec, labels, folds)
    unlabelled = _unlabelled(request, spec, examples)
    made = _predicted(request, run, folder, spec, data, labels, folds, unlabelled)
    confident = np.where(judged, confident_labels(made.probabilities, labels), NO_LABEL)
    table = Audited(spec=spec, examples=examples, labels=labels, probabilities=made.probabilities, confident=confident)
    issues = issues_of(table, request.near, made.dev, made.vectors)
    report = _report(table, made.systems, made.weights, judged, issues, request.seed)
    if not told_of_weak_models(report):
        suggested = {issue["location"]: issue["suggested"] for issue in issues if issue["issue"] == WRONG}
        write_corrected(run.path, local_path(request.table), request.part(ColumnSettings), suggested)
    if unlabelled:
        report |= _next(run.path, request, table, made.features, made.weights, folds, unlabelled)
    return _written(run, request, report, issues)


def _of_several(
    request: AuditRequest, run: Run, folder: ModelFolder | None, spec: TaskSpec, data: TaskData, folds: Ints
) -> Audit:
    """The audit of texts with several labels."""
    examples, columns = cast("Sequence[TextExample]", data.train), request.part(ColumnSettings)
    _require_names(request, examples)
    has = label_matrix((labels_of(example) for example in examples), spec.labels).astype(np.int64)
    judged = np.array([len(np.unique(folds[column == 1])) > 1 for column in has.T])
    _require_judged(spec, judged)
    made = _predicted(request, run, folder, spec, data, has, folds)
    table = SeveralAudited(spec=spec, examples=examples, has=has, chances=made.probabilities, judged=judged)
    issues = table.issues(request.near, made.dev, made.vectors)
    report = table.report(made.systems, made.weights, issues, request.seed)
    if not told_of_weak_models(report):
        write_corrected(run.path, local_path(request.table), columns, table.corrected(issues))
    return _written(run, request, report, issues)


def _of_tags(
    request: AuditRequest, run: Run, folder: ModelFolder | None, spec: TaskSpec, data: TaskData, folds: Ints
) -> Audit:
    """The audit of tagged sentences."""
    sentences = cast("Sequence[TaggedExample]", data.train)
    if len(spec.labels) == 1:
        fix = "name the column of tags with --tag-column, or another file"
        raise InputError(expected="at least two different tags in the table", found=repr(spec.labels[0]), fix=fix)
    tags = _numbers(spec, (tag for sentence in sentences for tag in sentence.tags or ()))
    of_words = np.repeat(folds, [len(sentence.words) for sentence in sentences])
    judged = _judged(spec, tags, of_words)
    made = _predicted(request, run, folder, spec, data, tags, of_words)
    table = TagsAudited(spec=spec, sentences=sentences, tags=tags, probabilities=made.probabilities, judged=judged)
    vectors = None if made.vectors is None else np.add.reduceat(made.vectors, table.borders[:-1])
    issues = table.issues(request.near, made.dev, vectors)
    report = table.report(made.systems, made.weights, issues, request.seed)
    if not told_of_weak_models(report):
        corrected = table.corrected(issues)
        _write_tags(run, request, sentences, corrected)
        changed = sum(row != sentence.tags for row, sentence in zip(corrected, sentences, strict=True))
        report |= {"corrected": changed}
    return _written(run, request, report, issues)


def _of_entities(request: AuditRequest, run: Run, spec: TaskSpec, data: TaskData, folds: Ints) -> Audit:
    """The audit of entities that may share words."""
    sentences = cast("Sequence[EntityExample]", data.train)
    parts: dict[str, set[int]] = {label: set() for label in spec.labels}
    for sentence, fold in zip(sentences, folds.tolist(), strict=True):
        for span in sentence.entities:
            parts[span.label].add(fold)
    judged = np.array([len(of_label) > 1 for of_label in parts.values()])
    _require_judged(spec, judged)
    dev = [] if request.dev is None else _texts(spec, local_path(request.dev), request)
    systems = {LISTED: listed_spans(sentences, folds, spec.settings.entity_words)}
    if request.run is not None:
        wanted = [
            scored.keys() | {*sentence.entities} for scored, sentence in zip(systems[LISTED], sentences, strict=True)
        ]
        systems[MODEL] = spans_of_run(Path(request.run), spec, sentences, wanted, request.device)
    _start(run, request, spec, data)
    table = EntitiesAudited(spec=spec, sentences=sentences, systems=systems, judged=judged)
    issues = table.issues(request.near, dev)
    corrected = table.corrected(issues)
    _write_tags(run, request, sentences, corrected)
    changed = sum(row != sentence.entities for row, sentence in zip(corrected, sentences, strict=True))
    return _written(run, request, table.report(issues, request.seed) | {"corrected": changed}, issues)


class _Predicted(NamedTuple):
    """The predictions for a table.

    Attributes:
        dev: the examples of --dev.
        systems: the probabilities of each model, [E, K], by its name.
        weights: of the models, [S].
        probabilities: their weighted mean, [E, K].
    """

    dev: Sequence[TextExample]
    features: Sequence[Features]
    systems: Mapping[str, Floats]
    weights: Floats
    probabilities: Floats

    @property
    def vectors(self) -> Any:
        """The vectors of the labelled examples, [E, D]; None without a model."""
        part = next((part for part in self.features if part.name == VECTORS), None)
        return None if part is None else part.inputs[: len(self.probabilities)]


def _predicted(
    request: AuditRequest,
    run: Run,
    folder: ModelFolder | None,
    spec: TaskSpec,
    data: TaskData,
    labels: Ints,
    folds: Ints,
    others: Sequence[TextExample] = (),
) -> _Predicted:
    """The predictions of all models, each by fits to the other folds; writes the record once all inputs are read.

    Args:
        labels: numbers, [E], or 0 and 1 for each of several labels, [E, K].
        others: unlabelled texts.
    """
    dev = [] if request.dev is None else _texts(spec, local_path(request.dev), request)
    systems = {} if request.run is None else of_run(Path(request.run), spec, data.train, request.device)
    _start(run, request, spec, data)
    examples: Any = [*data.train, *others]
    features = [word_features(examples)] if spec.kind == TAGGING else []
    if spec.kind != TAGGING and BAG not in systems:
        features = [bag_features(spec, examples)]
    if folder is not None:
        features.append(vector_features(spec, examples, folder, request.device))
    systems |= {part.name: part.out_of_fold(spec, labels, folds, request.seed) for part in features}
    answers = [two_answers(part.ravel()) if spec.multi_label else part for part in systems.values()]
    weights = mixture_weights(answers, labels.ravel())
    return _Predicted(dev, features, systems, weights, np.average(list(systems.values()), axis=0, weights=weights))


def _fixed(request: AuditRequest, run: Run, spec: TaskSpec, data: TaskData) -> Audit:
    """The table with the corrections that are left in an issues.csv."""
    assert request.fix is not None, "a file of corrections"
    examples: Any = data.train
    fixes = read_fixes(local_path(request.fix), len(examples))
    if spec.kind in _OF_SENTENCES:
        tags: Any = (fixed_tags if spec.kind == TAGGING else fixed_entities)(spec, examples, fixes)
        _start(run, request, spec, data)
        _write_tags(run, request, examples, tags)
    else:
        if spec.multi_label:
            _require_names(request, examples)
        cells = fixed_cells(spec, examples, fixes)
        _start(run, request, spec, data)
        write_corrected(run.path, local_path(request.table), request.part(ColumnSettings), cells)
    report = {"examples": len(examples), "corrections": len(fixes)}
    write_json(run.path / "audit.json", report)
    return Audit(report=report, issues=(), folder=run.path)


def _write_tags(
    run: Run, request: AuditRequest, sentences: Sequence[TaggedExample], tags: Sequence[Sequence[Any]]
) -> None:
    """Writes the corrected copy of a file of sentences with these tags or entities."""
    columns = request.part(ColumnSettings)
    text, ending = tagged_copy(
        local_path(request.table), request.task, sentences, tags, text_column=columns.text_column,
        label_column=columns.label_column, word_column=columns.word_column, tag_column=columns.tag_column,
        encoding=columns.encoding,
    )  # fmt: skip
    write_text(run.path / f"corrected{ending}", text)


def _start(run: Run, request: AuditRequest, spec: TaskSpec, data: TaskData) -> None:
    """Writes the record of an audit, once all inputs are read and checked."""
    record = {"task": "audit", "spec": spec.to_dict(), **to_dict(request)}
    digests = {**data.digests, **_digests(request)}
    run.start({name: str(value) for name, value in record.items()}, digests, request=request)


def _written(run: Run, request: AuditRequest, report: Mapping[str, Any], issues: Sequence[Mapping[str, Any]]) -> Audit:
    """The results, whose table, report and page are written."""
    report = {**report, "folds": request.folds, "run": request.run is not None}
    write_issues(run.path, local_path(request.table), issues)
    write_json(run.path / "audit.json", report)
    write_page(run.path, report, issues)
    return Audit(report=report, issues=issues, folder=run.path)


def _require_judged(spec: TaskSpec, judged: npt.NDArray[np.bool_]) -> None:
    """Warns of labels that rows of one part alone have.

    Raises:
        InputError: all are.
    """
    if not judged.any():
        raise InputError(expected="a label with rows in two parts of the table", found="none", fix="give more rows")
    if not judged.all():
        names = listed(brief(label) for label, is_judged in zip(spec.labels, judged, strict=True) if not is_judged)
        warn(f"labels that one part alone has are not judged: {names}; give more rows with them")


def _read(request: AuditRequest, folder: ModelFolder | None) -> tuple[TaskSpec, TaskData, Sequence[str] | None]:
    """The task, its examples, and their groups if there is a column of them."""
    table, columns = local_path(request.table), request.part(ColumnSettings)
    if request.next is not None and request.unlabelled is None:
        columns = dataclasses.replace(columns, skip_unlabelled=True)
    most = LENGTH if folder is None else min(LENGTH, folder.config.max_tokens)
    settings = TaskSettings(max_length=request.max_length or most)
    with read_elsewhere(request.group_column):
        spec, data = read_task(request.task, table, None, columns=columns, settings=settings, fold=(0, 1))
    if spec.kind not in _OF_SENTENCES:
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


def _numbers(spec: TaskSpec, labels: Iterable[str]) -> Ints:
    """The numbers of labels, [E]."""
    number = {label: index for index, label in enumerate(spec.labels)}
    return np.array([number[label] for label in labels], dtype=np.int64)


def _require_names(request: AuditRequest, examples: Sequence[TextExample]) -> None:
    """Refuses a table without names of several labels, which a corrected one could not keep."""
    labels = {example.location: labels_of(example) for example in examples}
    require_names(local_path(request.table), request.part(ColumnSettings), labels)


def _judged(spec: TaskSpec, labels: Ints, folds: Ints) -> npt.NDArray[np.bool_]:
    """Whether rows of another fold have the label of a row, [E]; else no model of the row has seen that label.

    Raises:
        InputError: no label has rows in two folds.
    """
    in_one = np.array([len(np.unique(folds[labels == number])) < 2 for number in range(len(spec.labels))])
    judged: npt.NDArray[np.bool_] = ~in_one[labels]
    if not judged.any():
        raise InputError(expected="a label with rows in two parts of the table", found="none", fix="give more rows")
    if not judged.all():
        names = listed(brief(spec.labels[number]) for number in np.unique(labels[~judged]))
        warn(f"rows with a label that one part alone has are not judged: {names}; give more rows with it")
    return judged


def _texts(spec: TaskSpec, path: Path, request: AuditRequest) -> list[TextExample]:
    """The texts of a file, with or without labels, of the shape of the table."""
    columns = request.part(ColumnSettings)
    texts = cast("list[TextExample]", read_unlabelled(path, request.task, spec, columns))
    if spec.kind in _OF_SENTENCES:
        return texts
    are_pairs = bool(spec.pair)
    if (texts[0].second is not None) != are_pairs:
        shapes = ("single texts", "pairs")
        raise InputError(
            expected=f"{shapes[are_pairs]} in '{path}', as in the table",
            found=shapes[not are_pairs],
            fix="name the columns with --text-column and --pair-column, or another file",
        )
    return texts


def _unlabelled(request: AuditRequest, spec: TaskSpec, examples: Sequence[TextExample]) -> list[TextExample]:
    """The different texts of --unlabelled, or of the table itself, that no labelled row has; none without --next."""
    if request.next is None:
        return []
    file = request.table if request.unlabelled is None else request.unlabelled
    known = {inputs_of(example) for example in examples}
    with quiet() if request.unlabelled is None else contextlib.nullcontext():  # how the table is read was said before
        others = {inputs_of(text): text for text in reversed(_texts(spec, local_path(file), request))}
    texts = [text for inputs, text in reversed(others.items()) if inputs not in known]
    if not texts:
        raise InputError(
            expected="texts without a label for --next",
            found="a label for each text",
            fix="name a file of others with --unlabelled" if request.unlabelled is None else "name another file",
        )
    return texts


def _digests(request: AuditRequest) -> dict[str, str]:
    files = {"dev": request.dev, "unlabelled": request.unlabelled, "fix": request.fix}
    return {name: digest_file(local_path(file)) for name, file in files.items() if file is not None}


def _next(
    path: Path,
    request: AuditRequest,
    table: Audited,
    features: Sequence[Features],
    weights: Floats,
    folds: Ints,
    unlabelled: Sequence[TextExample],
) -> dict[str, Any]:
    """What the report says of the rows to label next, which are written to their files."""
    parts = [part.of_others(table.spec, table.labels, request.seed) for part in features]
    probabilities: Floats = np.average(parts, axis=0, weights=weights)
    vectors = features[-1].inputs[len(table.examples) :]  # of the model, or of the bag of words without one
    rows = most_informative(probabilities, vectors, request.next or 0)
    write_next(path, [unlabelled[row] for row in rows], table.spec.labels, probabilities[rows])
    curve = learning_curve(
        features, table.spec, table.labels, folds, weights, table.probabilities, len(rows), request.seed
    )
    return {"unlabelled": len(unlabelled), "next": len(rows), **curve}


def _report(
    table: Audited,
    systems: Mapping[str, Floats],
    weights: Floats,
    judged: npt.NDArray[np.bool_],
    issues: Sequence[Mapping[str, Any]],
    seed: int,
) -> dict[str, Any]:
    """The content of audit.json."""
    names, labels, probabilities = table.spec.labels, table.labels, table.probabilities
    counts = np.bincount(labels, minlength=len(names))
    rows = np.concatenate([probabilities, labels[:, None]], axis=1)[judged]

    def errors(drawn: Any) -> float:
        return share_of_errors(drawn[:, :-1], drawn[:, -1].astype(np.int64))

    kinds = [issue["issue"] for issue in issues]
    return {
        "examples": len(labels),
        "labels": {label: int(count) for label, count in zip(names, counts, strict=True)},
        "accuracy": {name: float((part.argmax(axis=1) == labels).mean()) for name, part in systems.items()},
        "weights": dict(zip(systems, weights.round(4).tolist(), strict=True)),
        **estimated(rows, errors, seed, draws=500),
        "issues": {kind: kinds.count(kind) for kind in KINDS},
        "overlaps": overlaps_of(names, table.confident, labels)[:MOST_PAIRS],
    }
