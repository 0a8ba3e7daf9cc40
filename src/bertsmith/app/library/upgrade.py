"""What changes when a model is replaced: answers, scores, search results, time and size.

::

    DIR/upgrade.json   shares with their intervals, tests, milliseconds, bytes, labels
    DIR/changes.csv    every text with both answers, the largest changes first
    DIR/report.html    the same as a page

A number has changed if it moved by more than a tenth of the standard deviation of the old numbers; any other answer, if
it is another one.

Letters: E examples, Q queries, P passages.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bertsmith.app.library.inputs import silently
from bertsmith.app.library.loading import load
from bertsmith.app.library.model import Model
from bertsmith.app.library.request import UpgradeRequest
from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.core.progress import counted, short_repr
from bertsmith.base.core.requests import takes
from bertsmith.base.core.tables import local_path
from bertsmith.base.pages import html
from bertsmith.base.storage.files import write_csv, write_json
from bertsmith.base.storage.locks import require_unused
from bertsmith.inference.indexes.index import Manifest
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.search.index import PassageIndex, index_passages, maker_of, query_vectors
from bertsmith.inference.search.passages import TextSet, read_text_set
from bertsmith.inference.search.rankings import Ranking
from bertsmith.inference.search.request import is_index
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.model_files.metadata import folder_of_model, holds_weights
from bertsmith.recipes.distillation.report import BATCH, medians_of, repeated
from bertsmith.recipes.results.comparison import clause_of, tested
from bertsmith.recipes.results.resampling import scored_lines
from bertsmith.tasks.datasets.examples import Example, whole_text
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval, proportion_interval
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import Prediction, TaskSpec
from bertsmith.tasks.task_data.labelled_examples import labelled_of
from bertsmith.tasks.task_data.unlabelled import LINES, read_unlabelled

Side = TypeVar("Side", Predictor, Embedder)

TOP = 10  # passages of a query
_MOVED = 0.1  # standard deviations of the old numbers, from which a number has changed
_SHOWN = 100  # changes on the page
_LONGEST_TEXT = 300  # characters of a text in the results
_COLUMNS = ("changed", "text", "old", "new", "moved", "old_confidence", "new_confidence", "location")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upgrade:
    """The results of a comparison of two models.

    Attributes:
        report: the content of upgrade.json.
        changes: each text with both answers, or the best passages of both, the largest changes first.
    """

    report: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any]]

    __repr__ = short_repr

    @property
    def share(self) -> float:
        """The share of changed answers; without answers, of queries whose best passage changes."""
        return float(self.report.get("answers", self.report.get("searches"))["share"])

    @property
    def passes(self) -> bool:
        """Whether the share is at most the largest that was allowed, if any was."""
        most = self.report["most"]
        return most is None or self.share <= most

    def lines(self) -> list[str]:
        """The results, as lines of text."""
        report, lines = self.report, []
        if answers := report.get("answers"):
            low, high = answers["interval"]
            lines.append(
                f"changed answers: {answers['changed']:,} of {counted(answers['examples'], 'text')}, "
                f"{answers['share']:.1%} (95% interval {low:.1%} to {high:.1%})"
            )
        for name in ("missing", "added"):
            if labels := report.get("labels", {}).get(name):
                lines.append(f"labels that are {name} in the new model: {', '.join(labels)}")
        if scores := report.get("scores"):
            metric = scores["metric"]
            lines.append(f"{metric}: {scores['old']:.4f} before, {scores['new']:.4f} now{clause_of(scores, metric)}")
        elif "without_scores" in report:
            lines.append(f"no scores: {report['without_scores']}")
        if searches := report.get("searches"):
            low, high = searches["interval"]
            lines.append(
                f"of the first {searches['top']} passages of a query, {searches['overlap']:.1%} stay (95% interval "
                f"{low:.1%} to {high:.1%}); the first one changes for {searches['share']:.1%} of "
                f"{searches['queries']:,} queries"
            )
        if reasons := report.get("index"):
            lines.append(f"the index has to be rebuilt: another {', '.join(reasons)}")
        elif reasons is not None:
            lines.append("the index can stay")
        for side in ("old", "new"):
            cost = report["cost"][side]
            size = "" if cost["bytes"] is None else f", {cost['bytes'] / 1e6:,.1f} MB of weights"
            lines.append(
                f"{side}: {cost['one']:.2f} ms of the processor for one text, {cost['batch']:.2f} ms in a batch{size}"
            )
        if not self.passes:
            lines.append(f"more than {report['most']:.1%} of the answers change")
        return lines


@takes(UpgradeRequest)
def upgrade(request: UpgradeRequest) -> Upgrade:
    """Which answers and which search results change when a model is replaced by another one.

    If the texts have labels, both models are scored and compared by a paired test.

    Raises:
        BertsmithError: a file or a model is invalid, or the models are of different tasks; the message says which.
    """
    if request.out is not None:
        require_unused(Path(request.out), "name another folder")
    old, new = (load(source, **request.arguments(load)) for source in (request.old, request.new))
    result = upgrade_of(request, old, new)
    if request.out is not None:
        _write(Path(request.out), result)
    return result


def upgrade_of(request: UpgradeRequest, old: Model, new: Model) -> Upgrade:
    """The same of models that are loaded, whatever their folders have by now; nothing is written."""
    if old.task != new.task:
        raise CheckpointError(
            expected=f"a model {_task(old)} in '{request.new}', as in '{request.old}'",
            found=f"one {_task(new)}",
            fix="name two models of the same task",
        )
    report: dict[str, Any] = {"old": str(request.old), "new": str(request.new), "most": request.most}
    changes: list[dict[str, Any]] = []
    if old.task is not None:
        answers, changes = _answers(request, old, new)
        report |= answers
    if old.task is None or request.passages is not None or request.index is not None:
        searches, moved = _searches(request, old, new)
        report |= searches
        changes = changes or moved
    return Upgrade(report=report, changes=changes)


def _predictor(model: Model) -> Predictor:
    assert model._predictor is not None, "a model with a task"
    return model._predictor


def _task(model: Model) -> str:
    return "without a task head" if model.task is None else f"for {model.task}"


def _answers(request: UpgradeRequest, old: Model, new: Model) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the report says of answers, and the changes."""
    ours, theirs = _predictor(old), _predictor(new)
    examples, why_not = _examples(request, ours.task.spec)
    before, after = (model.predict(examples) for model in (ours, theirs))
    changes = _changes(examples, before, after)
    changed = sum(change["changed"] for change in changes)
    report: dict[str, Any] = {
        "answers": {
            "examples": len(examples),
            "changed": changed,
            "share": changed / len(examples),
            "interval": list(proportion_interval(changed, len(examples))),
        },
        "labels": {
            "missing": [label for label in old.labels if label not in new.labels],
            "added": [label for label in new.labels if label not in old.labels],
        },
        "cost": _cost(request, lambda each, size: each.predict(examples[:size]), ours, theirs, len(examples)),
    }
    if why_not:
        return {**report, "without_scores": why_not}, changes
    (first, lines), (second, others) = (
        scored_lines(model.task, examples, answers) for model, answers in ((ours, before), (theirs, after))
    )
    metric = ours.task.spec.metric
    test = tested(ours.task.spec, [others], [lines])  # positive if the new model is better
    scores = {"metric": metric, "old": first[metric], "new": second[metric], "examples": len(examples), **test}
    return {**report, "scores": scores}, changes


def _examples(request: UpgradeRequest, spec: TaskSpec) -> tuple[Sequence[Example], str]:
    """The examples of the texts, and why they have no labels; "" if they have."""
    path, columns = local_path(request.on), request.part(ColumnSettings)
    if path.suffix.lower() in LINES:
        return read_unlabelled(path, spec.kind, spec, columns), f"'{path}' has no labels"
    try:
        return labelled_of(spec, path, None, columns).examples, ""
    except InputError as error:
        return read_unlabelled(path, spec.kind, spec, columns), str(error)


def _changes(
    examples: Sequence[Example], before: Sequence[Prediction], after: Sequence[Prediction]
) -> list[dict[str, Any]]:
    """Each example with both answers, those that changed first, by how far the confidence, or the number, moved."""
    numbers = [each.outcome for each in before if isinstance(each.outcome, float)]
    tolerance = _MOVED * float(np.std(numbers)) if numbers else 0.0
    rows = []
    for example, old, new in zip(examples, before, after, strict=True):
        was, now = old.outcome, new.outcome
        confidence = [side.confidence for side in (old, new)]
        if isinstance(was, float) and isinstance(now, float):
            moved, changed = abs(now - was), abs(now - was) > tolerance
        else:
            changed = was != now
            known = [0.5 if value is None else float(value) for value in confidence]
            moved = sum(known) / 2 if changed else abs(known[0] - known[1])
        rows.append(
            {
                "changed": changed,
                "text": whole_text(example)[:_LONGEST_TEXT],
                "old": was,
                "new": now,
                "moved": round(moved, 4),
                "old_confidence": confidence[0],
                "new_confidence": confidence[1],
                "location": getattr(example, "location", ""),
            }
        )
    return sorted(rows, key=lambda row: (not row["changed"], -row["moved"]))


def _searches(request: UpgradeRequest, old: Model, new: Model) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the report says of searches by vectors, and the queries, those whose passages change most first."""
    column, encoding = request.text_column, request.encoding
    queries = read_text_set(local_path(request.on), kind="queries", text_column=column, encoding=encoding)
    is_own = request.passages is None
    passages = queries if is_own else read_text_set(Path(request.passages or ""), encoding=encoding)
    top = min(TOP, len(passages) - is_own)
    if top < 1:
        raise InputError(expected="two or more passages", found=str(len(passages)), fix="name a larger file")
    ours, theirs = old.embedder, new.embedder
    if request.index is not None:  # which names the digest of a file
        ours, theirs = (load_embedder(each, **request.arguments(load_embedder)) for each in (request.old, request.new))
    first, second = (_nearest(each, queries, passages, top, is_own=is_own) for each in (ours, theirs))
    overlap = np.array([len(set(a) & set(b)) / top for a, b in zip(first, second, strict=True)])
    differs = sum(a[0] != b[0] for a, b in zip(first, second, strict=True))
    report: dict[str, Any] = {
        "searches": {
            "queries": len(queries),
            "passages": len(passages),
            "top": top,
            "overlap": float(overlap.mean()),
            "interval": list(bootstrap_interval(overlap)),
            "share": differs / len(queries),
        }
    }
    if request.index is not None:
        made_of, width = _made_of(Path(request.index))
        wanted = maker_of(theirs.for_passages().varied(pooling=made_of["pooling"]))  # a search uses that of the index
        reasons = [name for name, value in made_of.items() if value != wanted.get(name)]
        report["index"] = [*(["width"] if width != theirs.width else []), *reasons]
    if old.task is None:
        texts = list(queries.texts)
        report["cost"] = _cost(request, lambda each, size: each.embed(texts[:size]), ours, theirs, len(texts))
    moved = [
        {
            "changed": a[0] != b[0],
            "text": queries.texts[number][:_LONGEST_TEXT],
            "old": passages.texts[a[0]][:_LONGEST_TEXT],
            "new": passages.texts[b[0]][:_LONGEST_TEXT],
            "moved": round(1 - float(overlap[number]), 4),
            "old_confidence": None,
            "new_confidence": None,
            "location": queries.ids[number],
        }
        for number, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    return report, sorted(moved, key=lambda row: (not row["changed"], -row["moved"]))


def _made_of(index: Path) -> tuple[Mapping[str, Any], int]:
    """What the vectors of an index, a folder or a file of `search --index`, depend on, and their width."""
    if is_index(index):
        vectors = Manifest.read(index).first
        if not vectors.made_of:
            raise InputError(
                expected=f"an index that records its model in '{index}'",
                found="one of vectors of which nothing is known",
                fix="leave --index out",
            )
        return vectors.made_of, vectors.width
    passages = PassageIndex.load(index)
    return passages.maker, passages.vectors.shape[1]


def _nearest(embedder: Embedder, queries: TextSet, passages: TextSet, top: int, *, is_own: bool) -> list[list[int]]:
    """The numbers of the passages that are nearest to each query, best first; without the query itself."""
    index = index_passages(passages.texts, embedder.for_passages())
    ranking: Ranking = index.search(query_vectors(queries.texts, embedder.for_queries()), top + is_own)
    rows = [[passage for passage, _ in ranking.row(number)] for number in range(len(queries))]
    return [[passage for passage in row if not is_own or passage != number][:top] for number, row in enumerate(rows)]


def _cost(request: UpgradeRequest, ask: Callable[[Side, int], Any], old: Side, new: Side, count: int) -> Any:
    """For the "old" and the "new" model: processor milliseconds of a text, alone and in a batch, and "bytes"."""
    cost: dict[str, dict[str, Any]] = {
        "old": {"bytes": _bytes(request.old)},
        "new": {"bytes": _bytes(request.new)},
    }
    with silently():
        for case, size in (("one", 1), ("batch", min(BATCH, count))):
            measures = {
                name: repeated(functools.partial(ask, model), size) for name, model in (("old", old), ("new", new))
            }
            for name, seconds in medians_of(measures).items():
                cost[name][case] = round(seconds / size * 1000, 4)
    return cost


def _bytes(source: str | Path) -> int | None:
    """The bytes of the weights of a model; None if it is no folder on this machine."""
    folder = folder_of_model(source)
    if not folder.is_dir():
        return None
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and holds_weights(file))


def _write(folder: Path, result: Upgrade) -> None:
    """Writes the results and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "changes.csv", [_COLUMNS, *([change[name] for name in _COLUMNS] for change in result.changes)])
    write_json(folder / "upgrade.json", dict(result.report))
    header = ["text", "old", "new", "moved"]
    rows = [
        [change["text"], *(html.cell(change[name]) for name in header[1:])]
        for change in result.changes
        if change["changed"]
    ]
    title = f"First {_SHOWN} of {len(rows):,} changes" if len(rows) > _SHOWN else counted(len(rows), "change")
    html.write_page(
        folder / html.PAGE_FILE,
        "Upgrade of a model",
        html.section("What changes", html.lines(result.lines())),
        html.section(title, html.table(rows[:_SHOWN], header)),
    )
