"""Builds and extends indexes: rows, then words, vectors and cells, each stage resumable.

The rows of all new segments are written first, which takes seconds a million, then the words of each segment, its
vectors of each kind block by block, and what they are searched by, see `parts`. Memory holds the rows of one batch and
a part of one segment. Every stage is a function of the texts and the settings, so an interrupted build ends with the
same bytes.
"""

import collections
import contextlib
import dataclasses
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.errors import InputError, RunError
from bertsmith.base.core.progress import Progress, counted, short_repr, tell, warn
from bertsmith.base.storage.arrays import load_array
from bertsmith.base.storage.files import atomic_file, misfit, read_object, remove_partials, write_json
from bertsmith.base.storage.locks import LOCK_FILE, is_unused, locked_folder
from bertsmith.inference.indexes import parts
from bertsmith.inference.indexes.index import SEGMENT_SHAPE, Manifest, record_of
from bertsmith.inference.indexes.parts import NewVectors
from bertsmith.inference.indexes.rows import ID, TEXT, Rows, write_rows
from bertsmith.inference.indexes.segment import Ints, Segment, SegmentRecord
from bertsmith.inference.indexes.token_vectors import CODER
from bertsmith.inference.search.cells import RECALL
from bertsmith.inference.search.passages import Record
from bertsmith.inference.search.request import BUILDING, MANIFEST, TOKENS, named
from bertsmith.tasks.datasets.values import brief

COMPACTING = "compacting"
_SEGMENT = "segment-{:06d}"
_STARTED = {"made_of": {}, "sources": {}, "rows_per_segment": int, "segments": [SEGMENT_SHAPE], "columns": [str]}
_SMALL = 2  # a segment with less than this part of the rows of a full one is joined with others
_FEW = 8  # segments of the same size, within this factor, are due to be joined
_MANY_REMOVED = 10  # a segment of which more than this part is removed is written again


Complete = Callable[
    [Path, Sequence[SegmentRecord], Mapping[str, NewVectors], float, Sequence[SegmentRecord]], list[SegmentRecord]
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexChange:
    """The result of a change of an index.

    Attributes:
        added, removed: rows.
        rows: how many there are now.
        segments: their number.
        recall: see `Manifest.recall`.
    """

    added: int
    removed: int
    rows: int
    segments: int
    recall: float

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """The numbers in words."""
        changes = f"added {self.added:,}, removed {self.removed:,}"
        lines = [f"texts: {self.rows:,} ({changes}); {counted(self.segments, 'segment')}"]
        if self.recall < 1:
            lines.append(f"a search finds {self.recall:.1%} of the 10 nearest texts, measured on texts as queries")
        return lines


def build_index(
    folder: Path,
    records: Iterable[Record],
    vectors: Mapping[str, NewVectors],
    *,
    sources: Mapping[str, str],
    needs_text: bool = True,
    add: bool = False,
    resume: bool = False,
    recall: float | None = None,
    rows_per_segment: int,
    complete: Complete = parts.completed,
) -> IndexChange:
    """Builds an index, or adds rows to one; a row whose id is in the index replaces that row.

    Args:
        records: the texts.
        vectors: by kind; the first is that of a search which names none.
        sources: what the records come from, with digests; a build resumes only with the same. Empty for records that
            cannot be given again: the next change removes what an interrupted addition has left.
        needs_text: records without text are skipped and counted.
        recall: of the 10 nearest rows; sets how many cells a search reads. None for that of the index.
        rows_per_segment: of which all cells are built in memory.
        complete: writes the rest of new segments, whose rows are written, as `parts.completed` does.
    """
    with locked_folder(folder):
        before = _before(folder, add=add, resume=resume)
        if resume and before is not None and not add:
            tell(f"'{folder}' was finished before, so nothing was read; texts are added with --add")
            return _state(before)
        if before is not None:
            _require_same(folder, before, vectors)
        made_of = {kind: dict(new.record.made_of) for kind, new in vectors.items()}
        plan = {"made_of": made_of, "sources": dict(sources), "rows_per_segment": rows_per_segment}
        segments, columns = _rows_of(folder, records, plan, before, needs_text=needs_text)
        wanted = recall or (RECALL if before is None else before.wanted_recall)
        segments = complete(folder, segments, vectors, wanted, () if before is None else before.segments)
        removed: list[SegmentRecord] = []
        number = 1 if before is None else before.changes + 1
        if before is not None:
            removed = _without(folder, before.segments, _shared(folder, before.segments, segments), number)[0]
        manifest = Manifest(
            vectors={kind: new.record for kind, new in vectors.items()},
            columns=columns,
            segments=[*removed, *segments],
            changes=number,
            wanted_recall=wanted,
        )
        return _replaced(folder, manifest, before, added=sum(each.rows for each in segments))


def _require_same(folder: Path, before: Manifest, vectors: Mapping[str, NewVectors]) -> None:
    """Refuses to extend an index with vectors of other kinds, models or settings."""
    if vectors.keys() != before.vectors.keys():
        raise InputError(
            expected=f"{' and '.join(map(named, before.vectors))}, as in '{folder}'",
            found=" and ".join(map(named, vectors)),
            fix="name a model for each kind, or none for those of the index",
        )
    for kind, new in vectors.items():
        known, made_of = before.vectors[kind], new.record.made_of
        other = [name for name in {**made_of, **known.made_of} if known.made_of.get(name) != made_of.get(name)]
        if other:
            raise InputError(
                expected=f"the model and settings of the vectors in '{folder}'",
                found=f"others ({', '.join(other)})",
                fix="use the same, or build another index",
            )
        if known.width != new.record.width:
            raise InputError(
                expected=f"vectors of width {known.width}, as in '{folder}'",
                found=f"width {new.record.width}",
                fix="use the same model, or build another index",
            )


def remove_rows(folder: Path, ids: Sequence[str]) -> IndexChange:
    """Removes the rows with these ids; an id that the index does not have is an error, and nothing is removed."""
    with locked_folder(folder, create=False):
        before = _finished(folder)
        number = before.changes + 1
        segments, missing = _without(folder, before.segments, ids, number)
        if missing:
            raise InputError(
                expected=f"ids of rows in '{folder}'",
                found=f"{brief(missing[0])}, which no row has"
                + (f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""),
                fix="leave them out",
            )
        return _replaced(folder, dataclasses.replace(before, segments=segments, changes=number), before)


def compact_index(
    folder: Path,
    *,
    recall: float | None = None,
    rows_per_segment: int,
    chosen: Callable[[Manifest], Sequence[SegmentRecord]] | None = None,
    exclusive: contextlib.AbstractContextManager[Any] | None = None,
) -> IndexChange:
    """Joins small segments and writes those again of which many rows were removed; no vector is computed.

    The new segments are made in a folder of their own, while the index is searched and may be changed. Rows that were
    removed meanwhile are removed from them when they take the place of the old ones.

    Args:
        recall: as in `build_index`.
        chosen: returns the segments of an index to join; None for all that are small or have many removed rows.
        exclusive: a context in which the index is locked, for moments at the beginning and at the end.
    """
    exclusive = contextlib.nullcontext() if exclusive is None else exclusive
    Manifest.read(folder)  # refuses what is no index
    work = folder / COMPACTING
    with locked_folder(work), contextlib.ExitStack() as undo:
        undo.callback(_clear, work)
        _clear(work)  # of a compaction that was killed
        with exclusive, locked_folder(folder, create=False):
            before = _finished(folder)
            wanted = recall or before.wanted_recall
            _clean(folder, before)
            records = _small(before, rows_per_segment) if chosen is None else chosen(before)
            replaced, groups = _joined(folder, records, rows_per_segment)
        if not replaced:
            return _state(before)
        segments = [
            _copied(work, _SEGMENT.format(number), pieces, before, wanted) for number, pieces in enumerate(groups)
        ]
        with exclusive, locked_folder(folder, create=False):
            after = _finished(folder)
            if missing := replaced - {each.name for each in after.segments}:
                raise RunError(
                    expected=f"{min(missing)} in '{folder}', which is being compacted",
                    found="no such segment",
                    fix="compact the index again",
                )
            for position, (record, pieces) in enumerate(zip(segments, groups, strict=True)):
                name = _SEGMENT.format(_next(after) + position)
                (work / record.name).rename(folder / name)
                rows = _removed_since(folder, pieces, after)
                segments[position] = _less(folder, dataclasses.replace(record, name=name), rows, after.changes + 1)
            kept = [each for each in after.segments if each.name not in replaced]
            manifest = dataclasses.replace(
                after, segments=[*kept, *segments], changes=after.changes + 1, wanted_recall=wanted
            )
            return _replaced(folder, manifest, after)


def due_segments(manifest: Manifest) -> list[SegmentRecord]:
    """The segments that are worth joining while an index is changed by and by.

    They are those of which more than a tenth is removed, and those of about the same size once there are eight of them,
    so that a row is written again a few times, however many additions there are.
    """
    sizes = collections.defaultdict[int, list[SegmentRecord]](list)
    for record in manifest.segments:
        sizes[int(math.log(max(record.rows, 1), _FEW))].append(record)
    of_size = [each for same in sizes.values() if len(same) >= _FEW for each in same]
    return [each for each in manifest.segments if each in of_size or each.num_removed * _MANY_REMOVED > each.rows]


def _small(manifest: Manifest, rows_per_segment: int) -> list[SegmentRecord]:
    return [each for each in manifest.segments if not _is_good(each, rows_per_segment)]


def _joined(
    folder: Path, records: Sequence[SegmentRecord], rows_per_segment: int
) -> tuple[set[str], list[list[tuple[Segment, Ints]]]]:
    """The names of segments that are replaced, and the rows of each segment that takes their place."""
    replaced, groups = set[str](), list[list[tuple[Segment, Ints]]]()
    for _, same in itertools.groupby((Segment(folder, each, is_searched=False) for each in records), _coder):
        run = list(same)
        if len(run) > 1 or run[0].record.num_removed or not parts.is_whole(run[0].record):
            replaced |= {each.record.name for each in run}
            groups += _regrouped(run, rows_per_segment)
    return replaced, groups


def _copied(
    folder: Path, name: str, pieces: Sequence[tuple[Segment, Ints]], manifest: Manifest, recall: float
) -> SegmentRecord:
    """The record of a new segment in `folder`, of rows of other segments."""
    (folder / name).mkdir()
    records = itertools.chain.from_iterable(part.rows.records(rows) for part, rows in pieces)
    count = write_rows(folder / name, records, manifest.columns)
    for kind, about in manifest.vectors.items():
        parts.copy_vectors(folder / name, kind, about.width, pieces)
    record = SegmentRecord(name=name, rows=count, parts=tuple(manifest.vectors))
    return parts.searchable(folder, parts.with_words(folder, [record])[0], recall)


def _removed_since(folder: Path, pieces: Sequence[tuple[Segment, Ints]], after: Manifest) -> Ints:
    """The rows of a new segment that were removed from the segments of its rows since these were opened."""
    removed = {each.name: each.removed for each in after.segments}
    are_gone = [
        np.isin(rows, _removed_rows(folder / part.record.name, removed[part.record.name])) for part, rows in pieces
    ]
    return np.flatnonzero(np.concatenate(are_gone))


def join_indexes(folder: Path, sources: Sequence[Path]) -> IndexChange:
    """Makes a new index of the segments of several, without copying them where the file system has links.

    Of texts with the same id, that of the last index counts. The sources stay, and later changes of either side do not
    reach the other, as the files of segments are never changed.
    """
    with contextlib.ExitStack() as locks:
        locks.enter_context(locked_folder(folder))
        _before(folder, add=False, resume=False)
        for source in sources:
            locks.enter_context(locked_folder(source, create=False))
        manifests = [_finished(source) for source in sources]
        first, number = manifests[0], 1 + max(each.changes for each in manifests)
        for source, manifest in zip(sources, manifests, strict=True):
            same_vectors = _made_of(manifest) == _made_of(first)
            if not same_vectors or manifest.columns != first.columns:
                raise InputError(
                    expected=f"indexes of the same model, settings and columns as '{sources[0]}'",
                    found=f"{'other columns' if same_vectors else 'another model or setting'} in '{source}'",
                    fix="leave it out, or build it again",
                )
        # The segments are those of this change, and a join that is killed starts again.
        started = {"made_of": {}, "sources": {}, "rows_per_segment": 0, "segments": [], "columns": []}
        write_json(folder / BUILDING, started)
        joined = list[SegmentRecord]()
        for source, manifest in zip(sources, manifests, strict=True):
            added = list[SegmentRecord]()
            for record in manifest.segments:
                name = _SEGMENT.format(len(joined) + len(added))
                _link(source / record.name, folder / name, record)
                added.append(dataclasses.replace(record, name=name))
            joined = [*_without(folder, joined, _shared(folder, joined, added), number)[0], *added]
        manifest = dataclasses.replace(first, segments=joined, changes=number)
        return _replaced(folder, manifest, None, added=sum(each.rows for each in manifests))


def _made_of(manifest: Manifest) -> dict[str, Any]:
    """What the vectors of an index depend on, and their widths, by kind."""
    return {kind: (each.made_of, each.width) for kind, each in manifest.vectors.items()}


def _link(segment: Path, target: Path, record: SegmentRecord) -> None:
    """Links or copies the files of a segment, but not those of earlier states."""
    target.mkdir()
    for file in sorted(segment.iterdir()):
        if file.name.startswith("removed-") and file.name != record.removed:
            continue
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copyfile(file, target / file.name)


def _shared(folder: Path, before: Sequence[SegmentRecord], added: Sequence[SegmentRecord]) -> list[str]:
    """The ids of rows of added segments that are not removed which earlier segments have, too."""
    earlier = [Rows(folder / each.name) for each in before]
    ids = list[str]()
    for record in added:
        segment = Segment(folder, record, is_searched=False)
        common = list(dict.fromkeys(itertools.chain.from_iterable(map(segment.rows.shared_with, earlier))))
        positions, rows = segment.rows.find(common)
        is_there = np.ones(len(rows), dtype=bool) if segment.present is None else segment.present[rows]
        ids += [common[position] for position in positions[is_there].tolist()]
    return ids


def _before(folder: Path, *, add: bool, resume: bool) -> Manifest | None:
    """The manifest of an index that is extended; None for a new one. Removes what an earlier change left."""
    if (folder / MANIFEST).is_file():
        if not add and not resume:
            raise RunError(
                expected=f"a new folder '{folder}'",
                found="an index",
                fix="extend it with --add, or name another folder",
            )
        before = Manifest.read(folder)
    elif add:
        raise RunError(expected=f"an index in '{folder}'", found="none", fix="leave out --add to build one")
    else:
        before = None
    is_started = _is_unfinished(folder, before)
    if is_started and not resume:
        raise _unfinished(folder)
    if is_started and before is not None and not add:
        raise RunError(
            expected=f"--add, to finish the addition to '{folder}'", found="no such option", fix="give it again"
        )
    if not is_started:
        if before is not None or _started(folder) is not None:
            _clean(folder, before)
        if before is None and not is_unused(folder, (LOCK_FILE,)):
            raise RunError(
                expected=f"a new folder '{folder}'", found="one that is not empty", fix="name another folder"
            )
    return before


def _started(folder: Path) -> Mapping[str, Any] | None:
    """The content of the file of a started change; None if there is none."""
    path = folder / BUILDING
    if not path.is_file():
        return None
    values: dict[str, Any] = read_object(path)
    if fault := misfit(values, _STARTED):
        raise InputError(
            expected=f"what is being added to an index in '{path}'",
            found=fault,
            fix="restore the file, or finish the change with the version that began it",
        )
    return values


def _is_unfinished(folder: Path, manifest: Manifest | None) -> bool:
    """Whether rows were being added that do not count yet, and can be: their texts were read, and have a source."""
    started = _started(folder)
    if started is None or not started["segments"] or not started["sources"]:
        return False
    names = {each["name"] for each in started["segments"]}
    return manifest is None or not names <= {each.name for each in manifest.segments}


def _finished(folder: Path) -> Manifest:
    """The manifest of an index without an unfinished change."""
    manifest = Manifest.read(folder)
    if _is_unfinished(folder, manifest):
        raise _unfinished(folder)
    return manifest


def _unfinished(folder: Path) -> RunError:
    return RunError(
        expected=f"no unfinished change in '{folder}'", found="one", fix="finish it with `bertsmith index ... --resume`"
    )


def _clean(folder: Path, manifest: Manifest | None) -> None:
    """Removes segments and files of an interrupted change, which the manifest does not name."""
    remove_partials(folder)
    records = [] if manifest is None else manifest.segments
    known = {each.name: each.removed for each in records}
    for segment in folder.glob("segment-*"):
        if segment.name not in known:
            try:
                shutil.rmtree(segment)
            except PermissionError:  # on Windows, while another process has its files open
                warn(f"'{segment}' is in use and stays until the next change of the index")
        else:
            for file in segment.glob("removed-*.npy"):
                if file.name != known[segment.name]:
                    file.unlink()
    (folder / BUILDING).unlink(missing_ok=True)


def _rows_of(
    folder: Path, records: Iterable[Record], plan: Mapping[str, Any], before: Manifest | None, *, needs_text: bool
) -> tuple[list[SegmentRecord], list[str]]:
    """The new segments and the columns of the index, once the rows of the segments are written."""
    path = folder / BUILDING
    if started := _started(folder):
        for name in plan:
            if started[name] != plan[name]:
                raise RunError(
                    expected=f"the {name.replace('_', ' ')} that the change of '{folder}' was started with",
                    found="others",
                    fix=f"give the same again, or remove '{folder if before is None else path}' to give the change up",
                )
        return [record_of(each) for each in started["segments"]], started["columns"]
    # From now on the segments that the manifest does not name are those of this change.
    write_json(path, {**plan, "segments": [], "columns": []})
    source, skipped = iter(records), 0
    columns: list[str] | None = None if before is None else list(before.columns)
    segments: list[SegmentRecord] = []
    names: set[str] = set()
    written: list[Rows] = []
    first = _next(before)

    def with_text() -> Iterator[Record]:
        nonlocal skipped
        for record in source:
            names.update(record.fields)
            if record.text or not needs_text:
                yield record
            else:
                skipped += 1

    texts = with_text()
    with Progress("reading", unit="texts") as progress:
        while (head := next(texts, None)) is not None:
            if columns is None:
                columns = [name for name in head.fields if name not in (ID, TEXT)]
            name = _SEGMENT.format(first + len(segments))
            (folder / name).mkdir()
            part = itertools.chain([head], itertools.islice(texts, plan["rows_per_segment"] - 1))
            count = write_rows(folder / name, _counted(part, progress), columns)
            rows = Rows(folder / name)
            rows.require_unique()
            rows.require_others(written)
            written.append(rows)
            segments.append(SegmentRecord(name=name, rows=count))
    if not segments:
        raise InputError(expected="texts to index", found=f"none ({skipped:,} without text)", fix="name another file")
    if skipped:
        tell(f"{counted(skipped, 'record')} without text skipped")
    assert columns is not None, "there is a segment"
    if others := sorted(names - {ID, TEXT, *columns}):
        owner = "first text" if before is None else "index"
        warn(f"columns that the {owner} does not have are left out: {', '.join(map(brief, others))}")
    if absent := [name for name in columns if name not in names]:
        warn(f"columns of the index that the added texts do not have stay empty: {', '.join(map(brief, absent))}")
    write_json(path, {**plan, "segments": [dataclasses.asdict(each) for each in segments], "columns": columns})
    return segments, columns


def _counted(records: Iterable[Record], progress: Progress) -> Iterator[Record]:
    for record in records:
        yield record
        progress.advance(1)


def _without(
    folder: Path, records: Sequence[SegmentRecord], ids: Iterable[str], number: int
) -> tuple[list[SegmentRecord], list[str]]:
    """The records of segments without the rows of these ids, and the ids that no segment has."""
    missing, removed = list(dict.fromkeys(ids)), dict[str, Any]()
    for record in records:
        segment = Segment(folder, record, is_searched=False)
        positions, rows = segment.rows.find(missing)
        is_there = np.ones(len(rows), dtype=bool) if segment.present is None else segment.present[rows]
        removed[record.name] = rows[is_there]
        gone = set(positions[is_there].tolist())
        missing = [id for position, id in enumerate(missing) if position not in gone]
    return [_less(folder, record, removed[record.name], number) for record in records], missing


def _less(folder: Path, record: SegmentRecord, rows: Any, number: int) -> SegmentRecord:
    if not len(rows):
        return record
    before = _removed_rows(folder / record.name, record.removed)
    name = f"removed-{number:06d}.npy"
    whole = np.union1d(before, rows).astype(np.uint32)
    with atomic_file(folder / record.name / name) as file:
        np.save(file, whole)
    return dataclasses.replace(record, removed=name, num_removed=len(whole))


def _removed_rows(segment: Path, name: str) -> Any:
    return load_array(segment / name) if name else np.empty(0, np.uint32)


def _clear(work: Path) -> None:
    for segment in work.glob("segment-*"):
        shutil.rmtree(segment, ignore_errors=True)


def _replaced(folder: Path, manifest: Manifest, before: Manifest | None, *, added: int = 0) -> IndexChange:
    """Makes a manifest the state of the index, and removes what the last one alone named."""
    manifest.write(folder)
    _clean(folder, manifest)
    rows_before = 0 if before is None else before.rows
    return _state(manifest, added=added, removed=rows_before + added - manifest.rows)


def _state(manifest: Manifest, *, added: int = 0, removed: int = 0) -> IndexChange:
    return IndexChange(
        added=added,
        removed=removed,
        rows=manifest.rows,
        segments=len(manifest.segments),
        recall=manifest.recall,
    )


def _is_good(record: SegmentRecord, rows_per_segment: int) -> bool:
    """Whether compacting leaves a segment as it is."""
    is_large = record.rows * _SMALL >= rows_per_segment
    return is_large and parts.is_whole(record) and record.num_removed * _MANY_REMOVED <= record.rows


def _coder(segment: Segment) -> bytes:
    """The coder of vectors of tokens, without which segments cannot be joined; empty without such vectors."""
    return (segment.folder / CODER).read_bytes() if TOKENS in segment.vectors else b""


def _next(manifest: Manifest | None) -> int:
    """The number of the next segment."""
    return 0 if manifest is None else 1 + max((int(each.name[-6:]) for each in manifest.segments), default=-1)


def _regrouped(parts: Sequence[Segment], size: int) -> Iterator[list[tuple[Segment, Ints]]]:
    """The rows of segments that are not removed, in groups of `size` rows: segments, and the numbers of their rows."""
    group, room = list[tuple[Segment, Ints]](), size
    for part in parts:
        rows = part.numbers()
        while len(rows):
            group.append((part, rows[:room]))
            rows, room = rows[room:], room - len(group[-1][1])
            if not room:
                yield group
                group, room = [], size
    if group:
        yield group
