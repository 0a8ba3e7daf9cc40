"""Events of subjects, grouped into visits: what happened to a patient, a machine or a customer, and when.

A code is a name together with a kind, such as `("medication", "N02")`; without kinds all have the kind `code`. Events
of a subject at one time, or of one visit, form a visit, whose codes are a set.

A file of visits has a subject on each line::

    {"subject": "p1", "visits": [{"time": "2020-05-01", "codes": {"diagnosis": ["J06"], "medication": ["N02"]}}]}
"""

import dataclasses
import datetime as dt
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import atomic_file, read_json_lines

KIND = "code"  # of codes where a table names no kinds

CodeKey = tuple[str, str]
"""The kind and the name of a code."""


class Event(NamedTuple):
    """Something that happened to a subject.

    Attributes:
        time: as written in the table.
        visit: the visit that it belongs to; if empty, that of its time.
        location: in a file, for messages.
    """

    subject: str
    time: str
    code: CodeKey
    visit: str = ""
    location: str = "the event"


@dataclasses.dataclass(frozen=True)
class Visit:
    """What happened to a subject at one time: a set of codes.

    Attributes:
        time: as written in the table; empty if it is not known.
        codes: in alphabetical order, each once.
    """

    time: str
    codes: tuple[CodeKey, ...]

    def of_kind(self, kind: str) -> tuple[CodeKey, ...]:
        """The codes of a kind."""
        return tuple(code for code in self.codes if code[0] == kind)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A subject with its visits, in the order of time; at least one."""

    name: str
    visits: tuple[Visit, ...]


def all_codes(subjects: Iterable[Subject]) -> Iterator[CodeKey]:
    """Each code of each visit."""
    return (code for subject in subjects for visit in subject.visits for code in visit.codes)


def moment(text: str) -> tuple[bool, float] | None:
    """A time as something to sort by: whether it is a date, and its number; None if it is neither a date nor a number.

    A date without a time zone is read as one of UTC.

    >>> moment("2020-05-01"), moment("17.5"), moment("May"), moment("1_0")
    ((True, 1588291200.0), (False, 17.5), None, None)
    """
    try:
        number = float(text.replace("_", "?"))  # Python would read 1_0 as 10
    except ValueError:
        try:
            date = dt.datetime.fromisoformat(text.strip())
        except ValueError:
            return None
        return True, (date if date.tzinfo else date.replace(tzinfo=dt.UTC)).timestamp()
    return (False, number) if math.isfinite(number) else None


def subjects_of(events: Iterable[Event], *, by_day: bool = False) -> list[Subject]:
    """The subjects of events, in the order in which they appear first, with their visits in the order of time.

    Events with a visit of their own form one visit, at their earliest time. Visits at one time keep their order.

    Args:
        by_day: events of a subject on one day form a visit, not only those at one time; needs dates.

    Raises:
        InputError: a time is neither an ISO date nor a number, or only some of the times are dates.
    """
    visits: dict[str, dict[tuple[str, object], list[tuple[float, str, CodeKey]]]] = {}
    first: tuple[bool, str] | None = None
    for event in events:
        parsed = moment(event.time)
        if parsed is None:
            expected = "an ISO date, such as 2020-05-01 or 2020-05-01T08:30, or a number as time"
            raise InputError.at(event.location, expected, repr(event.time[:40]), "correct it")
        is_date, number = parsed
        if first is None:
            first = is_date, event.location
        if by_day and not is_date:
            raise InputError.at(event.location, "a date as time", repr(event.time[:40]), "leave --by-day out")
        if is_date != first[0]:
            expected = f"a {'date' if first[0] else 'number'} as time, as in {first[1]},"
            raise InputError.at(event.location, expected, repr(event.time[:40]), "write all times alike")
        key: tuple[str, object] = ("visit", event.visit) if event.visit else ("time", number)
        if by_day and not event.visit:
            key = "day", dt.datetime.fromisoformat(event.time.strip()).date()
        visits.setdefault(event.subject, {}).setdefault(key, []).append((number, event.time, event.code))
    subjects = []
    for name, of_subject in visits.items():
        timed = []
        for entries in of_subject.values():
            start, time, _ = min(entries, key=lambda entry: entry[0])
            timed.append((start, Visit(time, tuple(sorted({code for _, _, code in entries})))))
        timed.sort(key=lambda pair: pair[0])
        subjects.append(Subject(name, tuple(visit for _, visit in timed)))
    return subjects


def split_subjects(subjects: Sequence[Subject], shares: Sequence[float], seed: int) -> list[list[Subject]]:
    """The subjects in as many parts as there are shares, and the rest as the last part; each part in file order.

    All visits of a subject are in the same part. A part has at least one subject if its share is above 0.

    >>> subjects = [Subject(str(number), (Visit("", ()),)) for number in range(10)]
    >>> [len(part) for part in split_subjects(subjects, [0.2, 0.1], seed=1)]
    [2, 1, 7]
    """
    counts = [max(1, round(share * len(subjects))) if share else 0 for share in shares]
    if sum(counts) >= len(subjects):
        raise InputError(
            expected=f"more than {counted(sum(counts), 'subject')}, which are held out",
            found=f"{len(subjects):,}",
            fix="add subjects, or lower the fractions that are held out",
        )
    order = generator(seed, "subjects").permutation(len(subjects)).tolist()
    parts, start = [], 0
    for count in (*counts, len(subjects) - sum(counts)):
        parts.append([subjects[index] for index in sorted(order[start : start + count])])
        start += count
    return parts


def nested_subject(record: object, location: str) -> Subject:
    """The subject of a record with visits, as in a file of visits; a visit may have a plain list of codes."""
    expected = 'a record {"subject": ..., "visits": [{"time": ..., "codes": ...}]}'
    if not isinstance(record, Mapping) or not isinstance(record.get("visits"), list) or not record.get("subject"):
        raise InputError.at(location, expected, repr(record)[:60], "write it so, with at least one visit")
    visits = []
    for number, visit in enumerate(record["visits"], start=1):
        codes = visit.get("codes") if isinstance(visit, Mapping) else None
        of_kinds = {KIND: codes} if isinstance(codes, list) else codes
        if not isinstance(of_kinds, Mapping) or not all(
            isinstance(names, list) and all(isinstance(name, str | int) and str(name).strip() for name in names)
            for names in of_kinds.values()
        ):
            expected = 'codes as ["A", "B"] or {"KIND": ["A", "B"]}'
            raise InputError.at(f"visit {number} in {location}", expected, repr(codes)[:60], "correct them")
        keys = {(kind, str(name).strip()) for kind, names in of_kinds.items() for name in names}
        time = visit.get("time")
        visits.append(Visit("" if time is None else str(time), tuple(sorted(keys))))
    if not visits:
        raise InputError.at(location, "at least one visit", "none", "remove this subject, or add its visits")
    if any(visit.time for visit in visits):
        times = [moment(visit.time) or (None, 0.0) for visit in visits]
        if len({is_date for is_date, _ in times}) > 1 or times[0][0] is None:
            expected = "ISO dates, or numbers, as the times of all visits"
            raise InputError.at(location, expected, repr([visit.time for visit in visits])[:60], "correct them")
        visits = [visits[index] for index in sorted(range(len(visits)), key=lambda index: times[index][1])]
    return Subject(str(record["subject"]), tuple(visits))


def write_visits(path: Path, subjects: Iterable[Subject]) -> None:
    """Writes a file of visits."""
    with atomic_file(path) as file:
        for subject in subjects:
            visits = []
            for visit in subject.visits:
                codes: dict[str, list[str]] = {}
                for kind, name in visit.codes:
                    codes.setdefault(kind, []).append(name)
                visits.append({"time": visit.time, "codes": codes})
            line = json.dumps({"subject": subject.name, "visits": visits}, ensure_ascii=False)
            file.write(line.encode("utf-8") + b"\n")


def read_visits(path: Path) -> Iterator[Subject]:
    """The subjects of a file of visits, as `write_visits` writes it."""
    for number, record in enumerate(read_json_lines(path), start=1):
        yield nested_subject(record, f"line {number} of '{path}'")
