"""Segments: what is said, and the codes of the same moment, such as the clips of a video or the steps of an operator.

A table of segments has them in order, with the columns `text` and `codes` (separated by spaces, or a list of JSON) and,
if there are several, `subject`. Instead of `codes` it may have `start` and `stop`, in the unit of the times of a table
of events: the codes of a segment are the events of its subject from `start` up to, but not including, `stop`.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.recipes.codes.tables import EventSettings, read_events
from bertsmith.tasks.datasets.cells import Row, missing_column
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import parse_json
from bertsmith.text.codes.visits import KIND, moment
from bertsmith.text.documents.encodings import UTF_8

SILENT_CODES = 16  # of a segment without text, as in the paper


class Segment(NamedTuple):
    """A text and codes that belong together; one of them may be empty.

    Attributes:
        subject: such as the video; segments of a subject are neighbors in their order.
        location: in a file, for messages.
    """

    subject: str
    text: str
    codes: tuple[str, ...]
    location: str = "the segment"


class _Span(NamedTuple):
    subject: str
    start: float
    stop: float
    text: str
    location: str


def read_segments(
    path: str | Path, events: str | Path | None = None, *, encoding: str = UTF_8, silent: bool = True
) -> list[Segment]:
    """The segments of a table.

    Args:
        events: a table of events with `subject`, `time` and `code`, if the segments have a start and a stop.
        silent: events outside of all segments become segments without a text, of at most `SILENT_CODES` codes, and the
            segments are in the order of subjects and times; otherwise each row is a segment, in the order of the table.

    Raises:
        InputError: a column is missing, a row has neither text nor codes, a time is not a number, or no event is within
            any segment.
    """
    path = Path(path)
    rows = [row for row in read_table(path, encoding=encoding) if not row.is_empty]
    require(bool(rows), expected=f"segments in '{path}'", found="none", fix="name a table with text and codes")
    columns = rows[0].values
    require(
        ("codes" in columns) != (events is not None),
        expected=f"codes in '{path}', or `start` and `stop` and a table of events",
        found="both" if events is not None else "neither",
        fix="leave one of them out" if events is not None else "add the column `codes`, or name the events",
    )
    for name in ("text", *(() if events is None else ("subject", "start", "stop"))):
        if name not in columns:
            raise missing_column(name, f"'{path}'", columns, is_fixed=True)
    if events is not None:
        spans, of_subjects = [_span(row) for row in rows], _events(Path(events), encoding)
        segments = _joined(spans, of_subjects) if silent else [_with_codes(span, of_subjects) for span in spans]
        without = sum(bool(segment.text) and not segment.codes for segment in segments)
        require(
            without < len(rows),
            expected=f"events in '{events}' within the segments of '{path}'",
            found="none",
            fix="give both the same subjects, and times in the same unit",
        )
        if without:
            warn(f"segments of '{path}' without events: {without:,} of {len(rows):,}")
        return segments
    segments = [
        Segment(row.values.get("subject", "").strip(), row.cell("text").strip(), _codes(row), row.location)
        for row in rows
    ]
    for segment in segments:
        if not (segment.text or segment.codes):
            raise InputError.at(segment.location, "a text or codes", "neither", "fill one in, or remove the row")
    return segments


def codes_of(text: str) -> tuple[str, ...]:
    """The codes of a text that are separated by spaces.

    >>> codes_of("verb:3  noun:1")
    ('verb:3', 'noun:1')
    """
    return tuple(text.split())


def frequent_codes(segments: Iterable[Segment], minimum_count: int) -> dict[str, int]:
    """The codes that occur often enough, with how often, the most frequent ones first."""
    counts = Counter(code for segment in segments for code in segment.codes)
    often = sorted((-count, code) for code, count in counts.items() if count >= minimum_count)
    return {code: -count for count, code in often}


def split_segments(segments: Sequence[Segment], share: float, seed: int) -> tuple[list[Segment], list[Segment]]:
    """Segments to train on and a share held out: whole subjects, or single segments where there is one subject."""
    subjects = list(dict.fromkeys(segment.subject for segment in segments))
    keys: Sequence[object] = [segment.subject for segment in segments]
    if len(subjects) == 1:
        keys = range(len(segments))
    units = list(dict.fromkeys(keys))
    count = max(1, round(share * len(units)))
    require(
        count < len(units),
        expected="at least two segments, since some are held out",
        found=counted(len(units), "segment"),
        fix="add segments, or name others with --dev",
    )
    chosen = {units[number] for number in generator(seed, "held-out segments").permutation(len(units))[:count].tolist()}
    held_out = [key in chosen for key in keys]
    return (
        [segment for segment, out in zip(segments, held_out, strict=True) if not out],
        [segment for segment, out in zip(segments, held_out, strict=True) if out],
    )


def _codes(row: Row) -> tuple[str, ...]:
    cell = row.cell("codes").strip()
    if not cell.startswith("["):
        return codes_of(cell)
    codes = parse_json(cell, row.location)
    if not all(isinstance(code, str | int) and str(code).strip() for code in codes):
        raise InputError.at(row.location, "texts or whole numbers as codes", repr(cell[:60]), "correct them")
    return tuple(str(code).strip() for code in codes)


def _span(row: Row) -> _Span:
    start, stop = (_number(row.cell(name), name, row.location) for name in ("start", "stop"))
    if not start < stop:
        raise InputError.at(row.location, "a stop after the start", f"{start:g} to {stop:g}", "correct them")
    text = row.cell("text").strip()
    if not text:
        raise InputError.at(row.location, "a text", "none", "remove the row; codes outside of all rows are read too")
    return _Span(row.cell("subject").strip(), start, stop, text, row.location)


def _number(text: str, name: str, location: str) -> float:
    parsed = moment(text)
    if parsed is None:
        raise InputError.at(location, f"a number or an ISO date as {name}", repr(text[:40]), "correct it")
    return parsed[1]


def _events(path: Path, encoding: str) -> Mapping[str, list[tuple[float, str]]]:
    """Times and codes of each subject, by time; a code of a kind is written `kind:code`."""
    events: dict[str, list[tuple[float, str]]] = {}
    for event in read_events(path, EventSettings(encoding=encoding)):
        kind, name = event.code
        time = _number(event.time, "time", event.location)
        events.setdefault(event.subject, []).append((time, name if kind == KIND else f"{kind}:{name}"))
    for of_subject in events.values():
        of_subject.sort(key=lambda timed: timed[0])
    return events


def _joined(spans: Sequence[_Span], events: Mapping[str, list[tuple[float, str]]]) -> list[Segment]:
    """Segments of texts with their codes, and of codes without a text, subject by subject in the order of time."""
    of_subject: dict[str, list[_Span]] = {subject: [] for subject in (*(span.subject for span in spans), *events)}
    for span in spans:
        of_subject[span.subject].append(span)
    return [
        segment
        for subject, listed in of_subject.items()
        for segment in _in_order(subject, sorted(listed, key=lambda span: span.start), events.get(subject, []))
    ]


def _in_order(subject: str, spans: Sequence[_Span], events: Sequence[tuple[float, str]]) -> Iterator[Segment]:
    done = 0
    for span in spans:
        first, end = _within(span, events)
        yield from _silent(subject, events[done:first])
        yield _segment(span, events[first:end])
        done = max(done, end)
    yield from _silent(subject, events[done:])


def _with_codes(span: _Span, events: Mapping[str, list[tuple[float, str]]]) -> Segment:
    of_subject = events.get(span.subject, [])
    return _segment(span, of_subject[slice(*_within(span, of_subject))])


def _within(span: _Span, events: Sequence[tuple[float, str]]) -> tuple[int, int]:
    """The first event from the start, and the first one from the stop."""
    first, end = (bisect.bisect_left(events, time, key=lambda timed: timed[0]) for time in (span.start, span.stop))
    return first, end


def _segment(span: _Span, events: Sequence[tuple[float, str]]) -> Segment:
    return Segment(span.subject, span.text, tuple(code for _, code in events), span.location)


def _silent(subject: str, events: Sequence[tuple[float, str]]) -> Iterator[Segment]:
    for start in range(0, len(events), SILENT_CODES):
        part = events[start : start + SILENT_CODES]
        yield Segment(subject, "", tuple(code for _, code in part), f"'{subject}' at {part[0][0]:g}")
