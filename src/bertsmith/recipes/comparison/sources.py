"""The sources of a system's vectors or network, and how what was trained on the text is cached.

::

    MODELS/NAME/              the run folder of a pre-training, or a folder of word vectors
    MODELS/NAME/made.json     what it was made from, and what that cost; the last file, so that what has it is complete

What has been made is used again by a resumed comparison, and by others with the same folder, text and budget.
"""

import abc
import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from bertsmith.base.core.errors import RunError
from bertsmith.base.core.progress import tell
from bertsmith.base.storage.files import digest_file, misfit, read_json, write_json
from bertsmith.recipes.comparison.bench import Bench

MADE_FILE = "made.json"
SEED = 1  # of what is made once, for all seeds of the comparison

_MADE = {"record": {}, "processor_seconds": float, "seconds": float, "tokens?": int, "epochs?": int}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """Something that systems are built on."""

    path: str  # a model folder, a run folder or a folder of word vectors, or what names one
    # of making it: "processor_seconds" over all threads, "seconds", and "tokens" and "epochs" where they are known;
    # empty if it was not made here
    costs: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Source(abc.ABC):
    """Where vectors or a network come from; equal sources are made once."""

    needs_text: ClassVar[bool] = True

    def max_tokens(self) -> int | None:
        """The positions of the network; None if it has no network."""
        return None

    @abc.abstractmethod
    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """What was made, now or earlier.

        Args:
            scratch: the folder of the cell, for what is not kept.
        """


class Kept(Source):
    """A source that is made once and kept in MODELS/NAME."""

    name: str

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`."""
        folder, record = self.folder(bench), self.record(bench)
        done = folder / MADE_FILE
        if not done.is_file():
            tell(f"{self.name}: {bench.budget.words()} on the text")
            costs = self.make_in(bench, folder)
            write_json(done, {"record": record, **costs})
        recorded = read_json(done)
        costs = {name: value for name, value in recorded.items() if name != "record"}
        return Made(path=str(self.result(folder)), costs=costs)

    def folder(self, bench: Bench) -> Path:
        """The folder in which it is kept."""
        return bench.models / self.name

    def result(self, folder: Path) -> Path:
        """What `make_in` made, in the folder in which it is kept."""
        return folder

    def require_same(self, bench: Bench) -> None:
        """Checks that what an earlier comparison left is of this text and budget."""
        folder = self.folder(bench)
        if not (folder / MADE_FILE).is_file():
            return
        made = read_json(folder / MADE_FILE)
        wrong = misfit(made, _MADE) or ("" if made["record"] == self.record(bench) else "that of another comparison")
        if wrong:
            raise RunError(
                expected=f"{self.name} of this text and budget in '{folder}'",
                found=wrong,
                fix="name another folder with --models",
            )

    def record(self, bench: Bench) -> dict[str, Any]:
        """What it is made from, as plain values for JSON."""
        values = {key: value for key, value in vars(self).items() if value is not None}
        budget = {key: value for key, value in vars(bench.budget).items() if value is not None}
        return {"text": bench.reading().digest, "budget": budget, "seed": SEED, **values}

    @abc.abstractmethod
    def make_in(self, bench: Bench, folder: Path) -> dict[str, float]:
        """Makes it in a folder, in which an interrupted attempt may have left its state; returns the costs."""


def require_same(bench: Bench, sources: Iterable[Source]) -> None:
    """Checks that what earlier comparisons left in MODELS is of this text and budget, and notes which text it is."""
    note, digest = bench.reading().folder / "digest.json", bench.reading().digest
    if not note.is_file():
        write_json(note, digest)
    elif read_json(note) != digest:
        raise RunError(
            expected=f"models of this text in '{bench.models}'",
            found="those of another text",
            fix="name another folder with --models",
        )
    for source in sources:
        if isinstance(source, Kept):
            source.require_same(bench)


def digest_of(made: Made) -> str:
    """The digest of the weights or vectors, for the record of a cell; "" if their files are elsewhere."""
    if Path(made.path).is_file():
        return digest_file(Path(made.path))
    for name in ("vectors.safetensors", "model/model.safetensors", "model.safetensors"):
        path = Path(made.path) / name
        if path.is_file():
            return digest_file(path)
    return ""


@contextlib.contextmanager
def timed() -> Iterator[dict[str, float]]:
    """A dictionary that has "processor_seconds" and "seconds" of the block after it."""
    spent: dict[str, float] = {}
    processor, wall = time.process_time(), time.monotonic()
    yield spent
    spent["processor_seconds"] = round(time.process_time() - processor, 3)
    spent["seconds"] = round(time.monotonic() - wall, 3)
