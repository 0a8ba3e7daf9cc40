"""Readers of tables of events and of trees of codes: CSV, TSV, JSON lines, Parquet or Excel; plain or compressed.

A table of events has an event on each row::

    subject,time,code,kind
    p1,2020-05-01,J06,diagnosis
    p1,2020-05-01,N02,medication

JSON lines and Parquet may have a subject on each row instead, with its visits; see `text.codes.visits`.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.settings import help_field
from bertsmith.tasks.datasets.cells import Row, first_known, missing_column, plain_name
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import parse_json
from bertsmith.text.codes.tree import CodeTree, TreeRow
from bertsmith.text.codes.visits import KIND, CodeKey, Event, Subject, nested_subject, subjects_of
from bertsmith.text.documents.encodings import UTF_8, require_encoding

_KNOWN = {
    "subject": "subject subject_id patient patient_id person person_id user user_id customer customer_id machine "
    "machine_id device device_id host session video video_id".split(),
    "time": "time date datetime timestamp day start start_time start_date event_time".split(),
    "code": "code event item product action concept code_id item_id product_id event_id".split(),
    "kind": "kind type code_type event_type category".split(),
    "visit": "visit visit_id encounter encounter_id admission hadm_id basket basket_id order_id".split(),
    "description": "description name text label".split(),
}
_REQUIRED = ("subject", "time", "code")
_PARENTS = "parent parent_code parent_id".split()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EventSettings:
    """The columns of tables of events, and what forms a visit."""

    subject_column: str | None = help_field(None, "column of the subject [detected: subject, patient, user, ...]")
    time_column: str | None = help_field(None, "column of the time: ISO dates or numbers [detected: time, date, ...]")
    code_column: str | None = help_field(None, "column of the code [detected: code, event, item, ...]")
    kind_column: str | None = help_field(
        None, "column of the kind of a code, such as diagnosis [detected: kind, type, ...; without one, all are alike]"
    )
    visit_column: str | None = help_field(
        None, "column that names the visit of an event [detected: visit, encounter, ...; without one, the time does]"
    )
    by_day: bool = help_field(False, "events of a subject on one day form a visit, not only those at one time")
    encoding: str = help_field(UTF_8, "encoding of tables of text, such as cp1252")

    def __post_init__(self) -> None:
        require_encoding(self.encoding)


def read_subjects(paths: Sequence[Path | str], settings: EventSettings) -> tuple[list[Subject], dict[CodeKey, str]]:
    """The subjects of tables of events, or of visits, and the descriptions of codes that they have.

    Raises:
        InputError: a file or a row is not what is expected; the message names both.
    """
    events: list[Event] = []
    nested: dict[str, Subject] = {}
    descriptions: dict[CodeKey, str] = {}
    for path in map(Path, paths):
        rows = read_table(path, encoding=settings.encoding)
        first = next(rows, None)
        if first is None:
            raise InputError(expected=f"events in {quoted(path)}", found="none", fix="name a file that has some")
        names = {plain_name(name): name for name in first.values}
        if "visits" in first.values and first_known(names, _KNOWN["code"]) is None:
            _require_events(path, settings)
            for row in (first, *rows):
                subject = _nested(row)
                if subject.name in nested:
                    expected = "each subject once in files of visits"
                    raise InputError.at(row.location, expected, f"{subject.name!r} again", "join its visits")
                nested[subject.name] = subject
        else:
            for event, description in _events(path, itertools.chain([first], rows), settings):
                events.append(event)
                if description:
                    descriptions.setdefault(event.code, description)
    subjects = subjects_of(events, by_day=settings.by_day)
    if twice := next((subject.name for subject in subjects if subject.name in nested), None):
        expected = "a subject in a table of events or in one of visits"
        raise InputError(expected=expected, found=f"{twice!r} in both", fix="move its events into one of them")
    return [*nested.values(), *subjects], descriptions


def read_events(path: Path, settings: EventSettings) -> Iterator[Event]:
    """The events of a table, in the order of its rows.

    Raises:
        InputError: a column or a cell is missing; the message has the row.
    """
    for event, _ in _events(path, read_table(path, encoding=settings.encoding), settings):
        yield event


def _events(path: Path, rows: Iterable[Row], settings: EventSettings) -> Iterator[tuple[Event, str]]:
    """The events of rows with their descriptions."""
    columns: dict[str, str] = {}
    checked: Collection[str] = ()
    for row in rows:
        columns = columns or _columns(path, row, settings)
        if row.values.keys() != checked:
            _require_columns(row, columns)
            checked = row.values.keys()
        yield _event(row, columns)


def read_tree(paths: Sequence[Path | str], encoding: str = UTF_8) -> tuple[CodeTree, dict[CodeKey, str]]:
    """The tree of tables with the columns `code`, `parent` and perhaps `kind`, and the descriptions of its nodes."""
    rows = []
    for path in map(Path, paths):
        named: dict[str, str] = {}
        for row in read_table(path, encoding=encoding):
            named = named or {plain_name(name): name for name in row.values}
            code, parent = (first_known(named, known) for known in (_KNOWN["code"], _PARENTS))
            if code is None or parent is None:
                raise missing_column("code" if code is None else "parent", quoted(path), list(row.values))
            if not row.cell(code).strip():
                raise InputError.at(row.location, "a code", "an empty cell", "fill it in, or remove the row")
            kind, description = (first_known(named, known) for known in (["kind"], _KNOWN["description"]))
            columns = (code, parent, kind, description)
            cells = [_one_line(row.values.get(name, "").strip()) if name else "" for name in columns]
            rows.append(TreeRow(cells[0], cells[1], cells[2], cells[3], row.location))
    return CodeTree.of(rows), {(row.kind, row.code): row.description for row in rows if row.description}


def _columns(path: Path, first: Row, settings: EventSettings) -> dict[str, str]:
    """The name of each column that is read, by what it has."""
    names = list(first.values)
    by_plain_name = {plain_name(name): name for name in names}
    columns: dict[str, str] = {}
    for role, known in _KNOWN.items():
        asked = getattr(settings, f"{role}_column", None)
        if asked is not None and asked not in names:
            raise missing_column(asked, quoted(path), names)
        free = {plain: name for plain, name in by_plain_name.items() if name not in columns.values()}
        column = asked or first_known(free, known)
        if column is None and role in _REQUIRED:
            raise missing_column(role, quoted(path), names)
        if column is not None:
            columns[role] = column
    unread = [name for name in names if name not in columns.values()]
    if unread or any(plain_name(name) != role for role, name in columns.items()):
        read = ", ".join(f"{role} from {name!r}" for role, name in columns.items())
        tell(f"{quoted(path)}: {read}" + (f"; not read: {', '.join(map(repr, unread[:12]))}" if unread else ""))
    return columns


def _require_columns(row: Row, columns: Mapping[str, str]) -> None:
    """Checks that a record has no kind or visit that the first record lacked, since it would not be read."""
    for role in ("kind", "visit"):
        named = {plain_name(name): name for name in row.values.keys() - columns.values()}
        if role not in columns and (extra := first_known(named, _KNOWN[role])) is not None:
            expected = f"the columns of the first record in {row.location}"
            raise InputError(expected=expected, found=f"{extra!r} too", fix="add it to every record, or to none")


def _event(row: Row, columns: dict[str, str]) -> tuple[Event, str]:
    cells = {role: row.cell(name).strip() for role, name in columns.items()}
    for role in _REQUIRED:
        if not cells[role]:
            raise InputError.at(row.location, f"a {role}", f"an empty cell in {columns[role]!r}", "fill it in")
    if "kind" in cells and not cells["kind"]:
        raise InputError.at(row.location, "a kind", f"an empty cell in {columns['kind']!r}", "fill it in")
    code = (cells.get("kind", KIND), _one_line(cells["code"]))
    return (
        Event(cells["subject"], cells["time"], code, cells.get("visit", ""), row.location),
        _one_line(cells.get("description", "")),
    )


def _require_events(path: Path, settings: EventSettings) -> None:
    """Checks that no setting was given that is about events, for a file of visits."""
    columns = [f"--{role}-column" for role in (*_REQUIRED, "kind", "visit") if getattr(settings, f"{role}_column")]
    for option in (*columns, *(["--by-day"] if settings.by_day else [])):
        raise ConfigError.needs(option, f"tables of events, and {quoted(path)} has visits", f"leave {option} out")


def _nested(row: Row) -> Subject:
    values = dict(row.values)
    name = next((values[name] for name in values if plain_name(name) in _KNOWN["subject"]), "")
    return nested_subject({"subject": name, "visits": parse_json(values["visits"], row.location)}, row.location)


def _one_line(text: str) -> str:
    """The text with each tab and line end replaced by a space, as in the tables of our own."""
    return " ".join(text.split()) if set("\t\n\r") & set(text) else text
