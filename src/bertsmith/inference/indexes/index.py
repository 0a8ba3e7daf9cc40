"""An index of texts: a folder of segments and a manifest, searched as one.

::

    index.json            manifest: what made the vectors, the columns, the segments
    building.json         while rows are added: what is being added, and from what
    compacting/           while segments are joined: those that are to take their place
    segment-000000/       rows.arrow, ids.npy, the words of the texts, see `words`, and vectors of one or several
                          kinds, see `segment_vectors`

What is added goes to new segments, and what is removed is listed in a new file; both count once the manifest, which is
replaced as a whole, names them. So a process that is killed leaves the last state, and no search sees half a change.

Letters: Q queries, k ranked rows.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import FORMAT, FileState, file_state, misfit, read_json, require_format, write_json
from bertsmith.inference.indexes.filters import conditions
from bertsmith.inference.indexes.rows import ID, TEXT, refused_if_damaged
from bertsmith.inference.indexes.segment import Segment, SegmentRecord, VectorsRecord
from bertsmith.inference.indexes.words import IndexWords
from bertsmith.inference.search.cells import RECALL
from bertsmith.inference.search.postings import TextColumn, value_at
from bertsmith.inference.search.rankings import Ranking, merged, no_rows
from bertsmith.inference.search.request import BUILDING, DENSE, MANIFEST, SPARSE, TOKENS, WORDS
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim

KIND = "bertsmith index"
SEGMENT_SHAPE = {
    "name": str,
    "rows": int,
    "removed": str,
    "num_removed": int,
    "probes": int,
    "compared?": int,
    "recall": float,
    "parts": [str],
}
_SHAPE = {
    "kind": str,
    "vectors": {"*": {"model": str, "made_of": {"pooling?": str, "max_length?": int}, "width": int}},
    "columns": [str],
    "segments": [SEGMENT_SHAPE],
    "changes": int,
    "wanted_recall?": float,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an index is made of.

    Attributes:
        vectors: by kind, at least one; the first is that of a search which names none.
        columns: of the rows, besides id and text.
        changes: how many times the index was changed; numbers the files of removed rows.
        wanted_recall: the share of the nearest rows that searches of new segments should find.
    """

    vectors: Mapping[str, VectorsRecord]
    columns: Sequence[str]
    segments: Sequence[SegmentRecord]
    changes: int = 0
    wanted_recall: float = RECALL

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """The manifest of an index."""
        path = folder / MANIFEST
        if not path.is_file():
            is_started = (folder / BUILDING).is_file()
            raise InputError(
                expected=f"an index in '{folder}'",
                found="one that is not finished" if is_started else f"no {MANIFEST}",
                fix="finish it with `bertsmith index ... --resume`"
                if is_started
                else "build one with `bertsmith index`",
            )
        values = _with_parts(read_json(path))
        if isinstance(values, dict):
            require_format(values, path)  # before its shape, which another format may change
        if (fault := misfit(values, _SHAPE)) or values["kind"] != KIND:
            raise InputError(
                expected=f"the manifest of an index in '{path}'", found=fault or "another file", fix="restore it"
            )
        return Manifest(
            vectors={
                kind: VectorsRecord(**{name: about[name] for name in ("model", "made_of", "width")})
                for kind, about in values["vectors"].items()
            },
            columns=values["columns"],
            segments=[record_of(each) for each in values["segments"]],
            changes=values["changes"],
            wanted_recall=values.get("wanted_recall", RECALL),  # that of an older version
        )

    def write(self, folder: Path) -> None:
        """Writes the manifest, which makes it the state of the index."""
        write_json(folder / MANIFEST, {"kind": KIND, "format": FORMAT, **dataclasses.asdict(self)})

    @property
    def rows(self) -> int:
        """The number of rows that are not removed."""
        return sum(each.rows - each.num_removed for each in self.segments)

    @property
    def kind(self) -> str:
        """The kind of its vectors; of several, the first."""
        return next(iter(self.vectors))

    @property
    def first(self) -> VectorsRecord:
        """Its vectors of that kind."""
        return self.vectors[self.kind]

    @property
    def recall(self) -> float:
        """The share of the nearest rows that a search finds, as measured when it was built; of its worst segment."""
        return min((each.recall for each in self.segments), default=1.0)


def record_of(values: Mapping[str, Any]) -> SegmentRecord:
    """The record of a segment in a file of its index."""
    names = [field.name for field in dataclasses.fields(SegmentRecord) if field.name in values]
    return SegmentRecord(**{**{name: values[name] for name in names}, "parts": tuple(values["parts"])})


def _with_parts(values: Any) -> Any:
    """A manifest in which vectors have kinds; that of an older version has vectors of one kind, which it does not name.

    A damaged one is returned as it is.
    """
    about = ("model", "made_of", "width")
    if not isinstance(values, dict) or not values.keys() >= {*about, "segments"} or "vectors" in values:
        return values
    segments = values["segments"]
    if not isinstance(segments, list) or not all(isinstance(each, dict) for each in segments):
        return values
    kind = SPARSE if any(each.get("sparse") for each in segments) else DENSE
    parts = [{**each, "parts": [*([WORDS] if each.get("words") else ()), kind]} for each in segments]
    return {**values, "vectors": {kind: {name: values[name] for name in about}}, "segments": parts}


class Index:
    """An index that is searched; its rows are numbered through its segments, removed ones included.

    Args:
        where: conditions on the columns that a row must meet, see `filters`.
        exact: all rows are compared, not only those in the nearest cells.
        earlier: the same index, opened before; what has not changed since is shared with it.

    Attributes:
        ids, texts: of all rows, read from the disk when they are asked for.
        state: of the file of the manifest before it was read: another one means that the index was changed since.
    """

    def __init__(
        self, folder: Path, *, where: Sequence[str] = (), exact: bool = False, earlier: "Index | None" = None
    ) -> None:
        self.folder, self._exact = folder, exact
        self.segments: Sequence[Segment]
        self.state, self.manifest, self.segments = _opened(folder, () if earlier is None else earlier.segments)
        self._kind = self.manifest.kind
        self._starts = np.cumsum([0, *(each.record.rows for each in self.segments)])[:-1].tolist()
        columns = pa.schema([(name, pa.large_string()) for name in (ID, TEXT, *self.manifest.columns)])
        self.table = pa.concat_tables([columns.empty_table(), *(each.rows.table for each in self.segments)])
        self.ids, self.texts = TextColumn(self.table[ID]), TextColumn(self.table[TEXT])
        self._where = conditions(where, self.table.schema.names)

    def narrowed(self, where: Sequence[str] = (), *, exact: bool = False) -> "Index":
        """The same open index, searched under other conditions; the arguments are those of the class."""
        index = copy.copy(self)
        index._where, index._exact = conditions(where, self.table.schema.names), exact
        return index

    def by(self, kind: str) -> "Index":
        """This open index, searched by vectors of a kind in place of the first one."""
        index = copy.copy(self)
        index._kind = kind
        return index

    def search(self, queries: Any, top: int) -> Ranking:
        """The best rows for each query by vectors.

        Args:
            queries: their vectors: an array of normalized ones, a sparse matrix, or vectors of tokens.
        """
        top = max(1, min(top, len(self.ids)))
        rankings = [each.search(self._kind, queries, top, self._where, exact=self._exact) for each in self.segments]
        count = len(queries) if isinstance(queries, TokenMatrix) else queries.shape[0]
        return merged([no_rows(count), *rankings], [0, *self._starts], top)

    def token_scores(self, query: TokenMatrix, rows: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The scores of some rows, ascending, for one query by vectors of tokens, float32 [rows]."""
        numbers = np.asarray(rows, dtype=np.int64)
        borders = np.searchsorted(numbers, [*self._starts, len(self.ids)])
        parts = [np.empty((1, 0), np.float32)]
        for segment, start, begin, end in zip(self.segments, self._starts, borders[:-1], borders[1:], strict=True):
            with refused_if_damaged(segment.folder):
                parts.append(max_sim(query, segment.vectors[TOKENS].stored(numbers[begin:end] - start)))
        return np.asarray(np.hstack(parts)[0], dtype=np.float32)

    @property
    def has_words(self) -> bool:
        """Whether it can be searched by words."""
        return all(each.words is not None for each in self.segments) and any(
            each.words.num_words for each in self.segments if each.words is not None
        )

    def by_words(self, *, k1: float, b: float) -> IndexWords:
        """The search of its rows by words."""
        words = [each.words for each in self.segments if each.words is not None]
        if len(words) < len(self.segments):
            raise InputError(
                expected=f"the words of all texts of '{self.folder}'",
                found="an index without them, of an older version",
                fix="add them with `bertsmith index compact`",
            )
        return IndexWords(words, [each.allowed(self._where) for each in self.segments], k1=k1, b=b)

    def columns(self, row: int) -> dict[str, str | None]:
        """The values of a row besides id and text, by column."""
        return {name: value_at(self.table[name], row) for name in self.manifest.columns}


def _opened(folder: Path, earlier: Sequence[Segment]) -> tuple[FileState, Manifest, list[Segment]]:
    """The state of the file of a manifest, the manifest, and its segments.

    A change that ends meanwhile may remove files which the manifest names; then the next manifest is read.
    """
    known = {each.record.name: each for each in earlier}
    while True:
        state = file_state(folder / MANIFEST)
        manifest = Manifest.read(folder)
        try:
            return state, manifest, [_segment(folder, record, known.get(record.name)) for record in manifest.segments]
        except InputError:
            if file_state(folder / MANIFEST) == state:
                raise


def _segment(folder: Path, record: SegmentRecord, earlier: Segment | None) -> Segment:
    """A segment; what is open of it, if that is still the same."""
    return earlier.changed(record) if earlier is not None and earlier.is_of(record) else Segment(folder, record)
