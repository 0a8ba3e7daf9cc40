"""The cells of a comparison: files on disk, and fitting what is missing; a failed cell does not stop the others.

::

    REPORT/cells/SYSTEM/100-labels-seed-1.json   scores, costs and provenance, or the reason of a failure
    REPORT/cells/SYSTEM/100-labels-seed-1.jsonl  the predictions on the dev examples, see `results.predictions`
    REPORT/cells/SYSTEM/100-labels-seed-1/       while a network is fitted: its run, from which it resumes

With folds, there is such a cell for each: 100-labels-seed-1-fold-2.json has the scores on fold 2.

The .json file comes last, so that a cell that has one is complete.
"""

import dataclasses
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.base.core.errors import BertsmithError, InputError
from bertsmith.base.core.progress import counted, quiet, tell, warn
from bertsmith.base.storage.files import digest_bytes, misfit, read_json, read_json_lines, write_json, write_text
from bertsmith.recipes.comparison.bench import Bench
from bertsmith.recipes.comparison.sources import Kept, Made, Source, digest_of
from bertsmith.recipes.results.resampling import Line, in_order, intervals, scores_of_lines
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.labels import warn_of_unlearned

if TYPE_CHECKING:
    from bertsmith.recipes.comparison.systems import System

CELLS_FOLDER = "cells"
_CELL = {
    "system": str,
    "labels": int,
    "seed": int,
    "fold?": int,
    "scores?": {"*": float},
    "intervals?": {},
    "costs?": {"*": float},
    "making?": {"*": float},
    "error?": str,
}
TIMED = 20  # dev examples that are answered one by one


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellKey:
    """Which cell: a system, its number of training examples, a seed, and with folds the one that it is scored on."""

    system: str
    labels: int
    seed: int
    fold: int = 0  # from 1; 0 without folds, and for the results of all folds together

    @property
    def name(self) -> str:
        """The cell in words."""
        fold = f", fold {self.fold}" if self.fold else ""
        return f"{self.system}, {self.labels:,} labels, seed {self.seed}{fold}"

    def path(self, report: Path) -> Path:
        """The path of its files, without their endings."""
        fold = f"-fold-{self.fold}" if self.fold else ""
        return report / CELLS_FOLDER / file_name(self.system) / f"{self.labels}-labels-seed-{self.seed}{fold}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A finished cell."""

    key: CellKey
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # 95% confidence intervals over the dev examples of the scores that have one
    intervals: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    # "fit_processor_seconds", "fit_seconds", "parameters", "milliseconds" for one text
    costs: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # what making the model or the vectors cost, the same in all cells of a system
    making: Mapping[str, float] = dataclasses.field(default_factory=dict)
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""  # what a reader of the score should know; usually empty
    # for word vectors, how many words of the dev texts have none, and how many words there are
    unknown_words: Sequence[int] | None = None
    error: str = ""  # why there are no scores; empty if there are

    def write(self, report: Path, lines: Iterable[Line] = ()) -> None:
        """Writes the files of the cell, and removes the run that it came from."""
        path = self.key.path(report)
        if not self.error:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_text(path.with_suffix(".jsonl"), text)
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "key"}
        write_json(path.with_suffix(".json"), {**dataclasses.asdict(self.key), **values})
        shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def read(report: Path, key: CellKey) -> "Cell | None":
        """The cell, if it is there."""
        path = key.path(report).with_suffix(".json")
        return _read(path) if path.is_file() else None


def all_cells(report: Path) -> Iterator[Cell]:
    """The cells of a report folder, those of earlier calls included."""
    for path in sorted((report / CELLS_FOLDER).glob("*/*.json")):
        yield _read(path)


def lines_of(report: Path, key: CellKey) -> list[dict[str, Any]]:
    """The predictions of a cell, as plain values."""
    path = key.path(report).with_suffix(".jsonl")
    if not path.is_file():
        raise InputError(expected=f"predictions in '{path}'", found="no such file", fix=_fix(path))
    return read_json_lines(path)


def over_folds(report: Path, cells: Iterable[Cell], bench: Bench) -> list[Cell]:
    """The results of all folds together for each system, number of labels and seed that has them; else the cells.

    A score that cannot be computed from predictions is the mean over the folds.
    """
    if not bench.folds:
        return list(cells)
    of_all: dict[CellKey, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.key.fold):
        if not cell.error:
            of_all.setdefault(dataclasses.replace(cell.key, fold=0), []).append(cell)
    return [_joined(report, key, parts, bench) for key, parts in of_all.items() if len(parts) == len(bench.folds)]


def _joined(report: Path, key: CellKey, cells: Sequence[Cell], bench: Bench) -> Cell:
    spec, lines = bench.spec, lines_over_folds(report, key, bench)
    means = {name: float(np.mean([cell.scores[name] for cell in cells])) for name in cells[0].scores}
    unknown = [cell.unknown_words for cell in cells if cell.unknown_words]
    return dataclasses.replace(
        cells[0],
        key=key,
        scores={**means, **scores_of_lines(spec.kind, means, lines, spec.scheme)},
        intervals=intervals(spec.kind, [spec.metric], lines, spec.scheme),
        costs={name: float(np.mean([cell.costs[name] for cell in cells])) for name in cells[0].costs},
        note="; ".join(f"{cell.note} (fold {cell.key.fold})" for cell in cells if cell.note),
        unknown_words=[sum(counts) for counts in zip(*unknown, strict=True)] or None,
    )


def lines_over_folds(report: Path, key: CellKey, bench: Bench) -> Sequence[Line]:
    """The predictions of a cell, or of those of all folds, in the order of the examples."""
    if not bench.folds:
        return lines_of(report, key)
    of_folds = [lines_of(report, dataclasses.replace(key, fold=number)) for number in bench.parts]
    return in_order(of_folds, [(data.fold, data.dev) for data in bench.folds if data.fold is not None])


def file_name(system: str) -> str:
    """The name of a system as the name of a folder; a path or an id gets a few digits of its digest.

    >>> file_name("tf-idf"), file_name("runs/a/model")
    ('tf-idf', 'runs-a-model-d5bc82c3')
    """
    plain = re.sub(r"[^\w.-]+", "-", system).strip("-.")[:60]
    return plain if plain == system else f"{plain}-{hashlib.sha256(system.encode()).hexdigest()[:8]}"


def _read(path: Path) -> Cell:
    values = read_json(path)
    if fault := misfit(values, _CELL):
        raise InputError(expected=f"a cell of a comparison in '{path}'", found=fault, fix=_fix(path))
    key = CellKey(**{name: values.pop(name) for name in ("system", "labels", "seed", "fold") if name in values})
    known = {field.name for field in dataclasses.fields(Cell)} - {"key"}
    return Cell(key=key, **{name: value for name, value in values.items() if name in known})


def _fix(path: Path) -> str:
    return f"remove '{path.with_suffix('.json')}', and resume"


def fit_all(bench: Bench, out: Path, chosen: "Mapping[str, System]", counts: Sequence[int], seeds: int) -> None:
    """Makes what is missing and fits every cell that has no scores yet, in the order of labels, seeds and systems."""
    able = {name: system for name, system in chosen.items() if not system.why_not(bench.spec)}
    parts = bench.parts
    keys = [
        CellKey(system=name, labels=count, seed=seed, fold=fold)
        for count in counts
        for seed in range(1, seeds + 1)
        for fold in parts
        for name in able
    ]
    cells = {key: Cell.read(out, key) for key in keys}
    left = [key for key, cell in cells.items() if cell is None or cell.error]
    made: dict[Path, Made | BertsmithError] = {}  # by folder: what reads the training texts has one for each fold
    for source in sources_of(able[key.system] for key in left):
        if isinstance(source, Kept):
            for folder, part in {source.folder(part): part for part in parts.values()}.items():
                made[folder] = _made(source, part, 0, out)
    folds = f", {len(parts):,} folds" if bench.folds else ""
    tell(f"{counted(len(keys), 'cell')}: {counted(len(able), 'system')}, labels {', '.join(map(str, counts))}, "
         f"{counted(seeds, 'seed')}{folds}; {len(keys) - len(left):,} done")  # fmt: skip
    if bench.spec.kind in ("classification", "tagging"):
        for labels, seed, fold in dict.fromkeys((key.labels, key.seed, key.fold) for key in left):
            warn_of_unlearned(bench.spec.labels, parts[fold].train(labels, seed), parts[fold].data.dev)
    for key in left:
        system, scratch, part = able[key.system], key.path(out), parts[key.fold]
        base = None
        if isinstance(system.source, Kept):
            base = made[system.source.folder(part)]
        elif system.source is not None:
            base = _made(system.source, part, key.seed, scratch)
        cell, lines = _cell(part, key, system, base, scratch)
        cell.write(out, lines)
        metric = bench.spec.metric
        reached = f"failed: {cell.error}" if cell.error else (
            f"{metric.replace('_', ' ')} {cell.scores[metric]:.4f}, {cell.costs['fit_processor_seconds']:.1f} s"
        )  # fmt: skip
        (warn if cell.error else tell)(f"{key.name}: {reached}")


def _made(source: Source, bench: Bench, seed: int, scratch: Path) -> Made | BertsmithError:
    try:
        return source.make(bench, seed, scratch)
    except BertsmithError as error:
        return error


def _cell(
    bench: Bench, key: CellKey, system: "System", made: Made | BertsmithError | None, scratch: Path
) -> tuple[Cell, Sequence[Line]]:
    """The cell, with its predictions, or with the reason why there are none."""
    if isinstance(made, BertsmithError):
        return Cell(key=key, error=str(made)), ()
    train, spec = bench.train(key.labels, key.seed), bench.spec
    processor, wall = time.process_time(), time.monotonic()
    try:
        with quiet():
            fitted = system.fit(bench, made, train, key.seed, scratch)
    except BertsmithError as error:
        return Cell(key=key, error=str(error)), ()
    processor, wall = time.process_time() - processor, time.monotonic() - wall
    with quiet():
        latency = milliseconds(fitted.answer, bench.data.dev, bench.clock)
    provenance = {
        "settings": dict(fitted.settings),
        "train": digest_bytes("\n".join(example.id for example in train).encode()),
        "base": "" if made is None else made.path,
        "base_digest": "" if made is None else digest_of(made),
    }
    cell = Cell(
        key=key,
        scores=dict(fitted.scores),
        intervals=intervals(spec.kind, [spec.metric], fitted.lines, spec.scheme),
        costs={
            "fit_processor_seconds": round(processor, 3),
            "fit_seconds": round(wall, 3),
            "parameters": fitted.parameters,
            "milliseconds": round(latency, 4),
        },
        making={} if made is None else dict(made.costs),
        provenance=provenance,
        note=fitted.note,
        unknown_words=fitted.unknown_words,
    )
    return cell, fitted.lines


def milliseconds(
    answer: Callable[[Sequence[Example]], Any], examples: Sequence[Example], clock: Callable[[], float]
) -> float:
    """The median time for the answer to one example, after a first one that is not counted."""
    times = []
    answer(examples[:1])
    for example in examples[:TIMED]:
        start = clock()
        answer([example])
        times.append(clock() - start)
    return 1000 * float(np.median(times))


def sources_of(systems: "Iterable[System]") -> list[Source]:
    """What systems are built on, each once."""
    return list(dict.fromkeys(system.source for system in systems if system.source is not None))
