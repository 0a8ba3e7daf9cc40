"""`bertsmith compare` as a function: trains what systems are built on, fits every cell, writes the report.

::

    REPORT/settings.json   task, text, budget, systems, machine, versions, digests of the inputs
    REPORT/models/         what was made from the text, see `sources`
    REPORT/cells/          what each system reached, see `fitting`
    REPORT/report.json, report.md, report.html
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.progress import counted, quiet, said_once, short_repr, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require, require_other
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.locks import locked_folder
from bertsmith.recipes.comparison.bench import Bench, Budget
from bertsmith.recipes.comparison.corpus_text import TEXT_FOLDER, CorpusText
from bertsmith.recipes.comparison.fitting import all_cells, fit_all, lines_over_folds, over_folds, sources_of
from bertsmith.recipes.comparison.report import facts, lines_below, table_of, write_report
from bertsmith.recipes.comparison.request import CompareRequest
from bertsmith.recipes.comparison.results import Row, rows_of, to_plain, verdicts
from bertsmith.recipes.comparison.sources import require_same
from bertsmith.recipes.comparison.systems import System, chosen_systems
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import default_settings, with_metric
from bertsmith.tasks.specs.settings import ColumnSettings, SplitSettings, TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.text.tokenizers.pack import require_positions
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import RunFolder

MODELS_FOLDER = "models"
TASK = "comparison"  # of its record
SEEDS = 3
FEW_DEV = 300  # dev examples below which the interval of an accuracy of 0.8 is wider than 0.09
ALL = "all"
# May differ when a comparison is resumed: it then gets further cells.
_MAY_CHANGE = ("corpus", "systems", "labels", "seeds", "models")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """The result of a comparison."""

    report: Mapping[str, Any]
    page: Path

    __repr__ = short_repr

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of the table."""
        return table_of(self.report)

    def lines(self) -> list[str]:
        """What was compared, and the sentences below the table: first which step was worth it."""
        return [facts(self.report), *lines_below(self.report)]


@takes(CompareRequest)
def compare_systems(request: CompareRequest) -> ComparisonResult:
    """Several systems, from word counts to BERT, on one task: their scores and their costs.

    A comparison that is resumed has the systems, text, budget, labels, seeds and models that it had, if none are given.
    Every system is scored on all dev examples.

    Raises:
        KeyboardInterrupt: interrupted; `resume` continues.
    """
    minutes, tokens, size, labels, device = (
        request.minutes, request.tokens, request.size, request.labels, request.device,
    )  # fmt: skip
    with Run.open(request.out, resume=request.resume) as run:
        before = _settings_before(run)

        # The task, the systems and their budget: what does not fit is refused before anything is read.
        choose(device)  # refuses what is not there before anything is made
        asked = _numbers(labels or (ALL,))
        texts = [Path(path) for path in request.corpus or before.get("corpus", ())]
        chosen = chosen_systems(request.systems or before.get("systems", ()), has_text=bool(texts))
        reads_text = any(system.needs_text for system in chosen.values())
        for name, value in (("--minutes", minutes), ("--tokens", tokens), ("--size", size)):
            reader = f"a system that is trained on text, other than {', '.join(chosen)}"
            require_other(reads_text or value is None, name, reader, f"add one to --systems, or leave {name} out")
        if texts and not reads_text:
            warn(f"the text is not read: none of the systems {', '.join(chosen)} needs it")
        for name, system in chosen.items() if "max_length" in request.given else ():
            limit = None if system.source is None else system.source.max_tokens()
            if limit is not None:
                require_positions(request.max_length, limit, name=f"for {name} a max_length")
        seeds = request.seeds or int(before.get("seeds", SEEDS if request.folds is None else 1))
        budget = Budget.of(minutes, tokens, size)
        if before.get("text") and (minutes, tokens, size) == (None, None, None):
            budget = Budget(**before["text"]["budget"])

        # The examples, and the record with all that an earlier part of the comparison had.
        kept = Path(request.models or before.get("models") or run.path / MODELS_FOLDER)
        text = CorpusText(texts, kept / TEXT_FOLDER) if reads_text else None
        bench = _bench(request, text, budget, kept)
        counts = before["labels"] if before and not labels else _label_counts(asked, bench)
        names = list(dict.fromkeys([*before.get("systems", ()), *chosen]))
        record = {
            "task": TASK,
            **bench.record(),
            "corpus": [str(path) for path in texts],
            "systems": names,
            "labels": sorted({*before.get("labels", ()), *counts}),
            "seeds": max(seeds, int(before.get("seeds", 0))),
            **request.values(SplitSettings),
            "models": None if kept == run.path / MODELS_FOLDER else str(kept),
        }
        if text is None and before.get("text"):
            record["text"] = before["text"]  # what is added reads none
        run.start(record, bench.data.digests, may_change=_MAY_CHANGE, request=request)

        # What systems are built on, every cell, the report.
        with said_once():
            with contextlib.nullcontext() if text is None else locked_folder(kept):
                if text is not None:
                    for part in bench.parts.values():
                        require_same(part, sources_of(chosen.values()))
                fit_all(bench, run.path, chosen, counts, seeds)
            return _report(bench, run.folder, {**chosen_systems(names, has_text=True), **chosen})


def _settings_before(run: Run) -> Mapping[str, Any]:
    """The settings of a comparison that is resumed; nothing of a new one."""
    settings: Mapping[str, Any] = run.before.get("settings", {})
    if settings.get("task", TASK) != TASK:
        raise RunError(
            expected=f"a comparison in '{run.path}'", found="another run", fix="name the folder of a comparison"
        )
    return settings


def _read(request: CompareRequest, fold: int = 0) -> tuple[TaskSpec, TaskData]:
    """The task with its examples; with folds, those of one as dev examples, or none of them for 0."""
    name, train = request.named_task()
    spec, data = read_task(
        name,
        train,
        path_or_none(request.dev),
        columns=request.part(ColumnSettings),
        settings=dataclasses.replace(default_settings(name), **request.values(TaskSettings)),
        map_labels=request.map_labels,
        group_column=request.group_column,
        fold=None if request.folds is None else (fold, request.folds),
    )
    return spec if request.metric is None else with_metric(spec, request.metric), data


def _bench(request: CompareRequest, text: CorpusText | None, budget: Budget, models: Path) -> Bench:
    """The task with its examples, checked as far as no system is needed for it."""
    spec, data = _read(request)
    with quiet(warnings=True):  # those of the file were given for all examples
        folds = [_read(request, number)[1] for number in range(1, 1 + (request.folds or 0))]
    if not (data.dev or folds):
        fix = "name a file with --dev, or score all examples with --folds"
        raise InputError.needs("a comparison", "dev examples, and no label has one to spare", fix)
    checked = task_for(spec)
    checked.check(data.train, gold=True, training=True)
    checked.check(data.dev, gold=True)
    return Bench(spec=spec, data=data, text=text, budget=budget, models=models, device=request.device, folds=folds)


def _numbers(labels: Sequence[int | str]) -> list[int | None]:
    """The numbers of training examples, None for all."""
    numbers: list[int | None] = []
    for label in labels:
        spelled = str(label).strip().lower()
        number = int(spelled) if spelled.isdecimal() else 0
        if spelled != ALL and not number:
            raise ConfigError(expected="labels as numbers above 0, or all", found=repr(label), fix="write 100,1000,all")
        numbers.append(None if spelled == ALL else number)
    return numbers


def _label_counts(numbers: Sequence[int | None], bench: Bench) -> list[int]:
    """The numbers of training examples, ascending, each once; of folds, all are those of the file."""
    every, available = len(bench.data.train), min(len(part.data.train) for part in bench.parts.values())
    most = max((number for number in numbers if number is not None), default=0)
    require(
        most <= available,
        expected=f"at most the {counted(available, 'training example')} that there are"
        + (" without a fold" if bench.folds else ""),
        found=f"{most:,} labels",
        fix="lower --labels, or write all",
    )
    return sorted({every if number is None else number for number in numbers})


def _advice(rows: Sequence[Row], bench: Bench) -> str:
    """What would decide better than few dev examples; "" if folds would score no more, or there are many."""
    count, every = bench.scored, len(bench.data.train) + (len(bench.data.dev) if bench.data.held_out else 0)
    best = next((row for row in reversed(rows) if row.is_best and row.interval), None)
    if bench.folds or best is None or best.interval is None or count >= min(FEW_DEV, every):
        return ""
    low, high = best.interval
    leave = "" if bench.data.held_out else ", without --dev,"
    return (
        f"{counted(count, 'dev example')} can hardly tell systems apart: the 95% interval of {best.system} is "
        f"{low:.4f} to {high:.4f}; --folds 5{leave} would score all {every:,} examples and decide better"
    )


def _report(bench: Bench, run: RunFolder, systems: Mapping[str, System]) -> ComparisonResult:
    """Writes the report of all cells that are there."""
    spec, data = bench.spec, bench.data
    cells = list(all_cells(run.path))
    joined = over_folds(run.path, cells, bench)
    rows = rows_of(joined, spec, list(systems), lambda cell: lines_over_folds(run.path, cell, bench))
    failures = [
        {"cell": cell.key.name, "labels": cell.key.labels, "system": cell.key.system, "error": cell.error}
        for cell in cells
        if cell.error
    ]
    text = run.record["settings"].get("text")
    report = {
        "task": spec.name,
        "kind": spec.kind,
        "metric": spec.metric,
        "train_examples": len(data.train),
        "dev_examples": bench.scored,
        "folds": len(bench.folds) or None,
        "advice": _advice(rows, bench),
        "seeds": sorted({cell.key.seed for cell in cells}),
        "budget": Budget(**text["budget"]).words() if text else "",
        "allowed_seconds": Budget(**text["budget"]).processor_seconds if text and bench.counts_processor_time else None,
        "verdicts": verdicts(rows, spec.metric),
        "rows": [to_plain(row) for row in rows],
        "systems": [
            {"system": name, "about": system.about, "why_not": system.why_not(spec)} for name, system in systems.items()
        ],
        "failures": failures,
        "settings": run.record["settings"],
        "digests": run.record["digests"],
        "machine": run.record["machine"],
        "versions": run.record["versions"],
    }
    page = write_report(run.path, report)
    if not rows:
        reasons = [failure["error"] for failure in failures] or [line["why_not"] for line in report["systems"]]
        raise ConfigError(
            expected=f"a system that can be fitted to {spec.title}", found=f"none: {reasons[0]}", fix=f"see '{page}'"
        )
    return ComparisonResult(report=report, page=page)
