"""The cells of a comparison on disk: a file for each system, number of labels and seed, written when it is finished.

::

    REPORT/cells/SYSTEM/100-labels-seed-1.json   scores, costs and provenance, or the reason of a failure
    REPORT/cells/SYSTEM/100-labels-seed-1.jsonl  the predictions on the dev examples, see `results.predictions`
    REPORT/cells/SYSTEM/100-labels-seed-1/       while a network is fitted: its run, from which it resumes

The .json file comes last, so that a cell that has one is complete.
"""

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import misfit, read_json, read_json_lines, write_json, write_text
from bertsmith.recipes.results.resampling import Line

CELLS_FOLDER = "cells"
_CELL = {
    "system": str,
    "labels": int,
    "seed": int,
    "scores?": {"*": float},
    "intervals?": {},
    "costs?": {"*": float},
    "making?": {"*": float},
    "error?": str,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Which cell: a system, its number of training examples, a seed."""

    system: str
    labels: int
    seed: int

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.system}, {self.labels:,} labels, seed {self.seed}"

    def path(self, report: Path) -> Path:
        """The path of its files, without their endings."""
        return report / CELLS_FOLDER / file_name(self.system) / f"{self.labels}-labels-seed-{self.seed}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A finished cell."""

    place: Place
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
        path = self.place.path(report)
        if not self.error:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_text(path.with_suffix(".jsonl"), text)
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "place"}
        write_json(path.with_suffix(".json"), {**dataclasses.asdict(self.place), **values})
        shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def read(report: Path, place: Place) -> "Cell | None":
        """The cell, if it is there."""
        path = place.path(report).with_suffix(".json")
        return _read(path) if path.is_file() else None


def all_cells(report: Path) -> Iterator[Cell]:
    """The cells of a report folder, those of earlier calls included."""
    for path in sorted((report / CELLS_FOLDER).glob("*/*.json")):
        yield _read(path)


def lines_of(report: Path, place: Place) -> list[dict[str, Any]]:
    """The predictions of a cell, as plain values."""
    path = place.path(report).with_suffix(".jsonl")
    if not path.is_file():
        raise InputError(expected=f"predictions in '{path}'", found="no such file", fix=_fix(path))
    return read_json_lines(path)


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
    place = Place(**{name: values.pop(name) for name in ("system", "labels", "seed")})
    known = {field.name for field in dataclasses.fields(Cell)} - {"place"}
    return Cell(place=place, **{name: value for name, value in values.items() if name in known})


def _fix(path: Path) -> str:
    return f"remove '{path.with_suffix('.json')}', and resume"
