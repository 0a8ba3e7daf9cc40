"""Reader for texts with labels from tables: CSV, TSV, JSON lines and Parquet, plain or compressed (.gz, .zst).

The extension gives the format of a file. CSV has a header and quotes; its cells are separated by commas, or by what the
header has in their place (spreadsheets of many countries write semicolons). TSV has a header and no quoting at all, as
the official GLUE files have none. A JSON file holds one record per line, or is one list of records. Every value is read
as text.
"""

import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.datasets.examples import ExampleFile, TextExample
from bertsmith.datasets.file_text import file_text, json_records, line_of, lines_of, separator_of, suffix_of, unpacked
from bertsmith.datasets.label_cells import NO_GOLD, Target, gold_of_cell, holds_spans
from bertsmith.datasets.values import brief, clean, looks_like_json
from bertsmith.documents.names import require_unique
from bertsmith.documents.sources import shown
from bertsmith.errors import InputError, nearest
from bertsmith.progress import counted, tell, warn

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
TEXT_COLUMNS = (
    "text sentence message review comment content tweet post body document title headline question query utterance "
    "claim text1 text_a sentence1 sentence_a premise question1"
).split()
PAIR_COLUMNS = (
    ("text", "text2"),
    ("text", "text_pair"),
    ("text", "pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence", "sentence2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "answer"),
    ("query", "document"),
    ("query", "passage"),
    ("claim", "evidence"),
)
LABEL_COLUMNS = "label labels class classes category categories gold_label target sentiment intent topic tags".split()
NUMBER_COLUMNS = "score label rating similarity relatedness_score value target stars".split()
ID_COLUMNS = "id guid index idx pair_id".split()

_WITH_HEADER = (".csv", ".tsv")
_OF_WORDS = (".conll", ".iob", ".iob2", ".bio")
_SHOWN_COLUMNS = 12
_USUAL_COLUMNS = ("text", "text2", "text_pair", "pair", "label", "")
_PARQUET_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        place: file and line, or file and row.
        values: text by column name; numbers, lists and records of JSON and Parquet are given as JSON.
    """

    place: str
    values: dict[str, str]


def read_table(path: Path, suffix: str = "") -> Iterator[Row]:
    """The rows of a table in file order.

    Args:
        suffix: the extension that gives the format; by default that of the file.

    Raises:
        InputError: the file is missing, empty, binary, not UTF-8 or in another format, or a row has too many or too
            few columns; the message gives file and line.
    """
    suffix = suffix or suffix_of(path)
    if suffix not in SUFFIXES:
        raise InputError(
            expected=f"a table, a file that ends in {', '.join(SUFFIXES)} (also .gz, .zst)",
            found=f"{'the folder ' if path.is_dir() else ''}'{shown(str(path))}'",
            fix="name a file in it"
            if path.is_dir()
            else "rename it to end in .tsv or .jsonl if that is its format, or save it as one of these",
        )
    if suffix == ".parquet":
        return _parquet_rows(path)
    text = file_text(path, what=f"a {suffix[1:].upper()} table")
    if suffix in (".jsonl", ".json"):
        return _json_rows(path, text, lines=suffix == ".jsonl")
    if looks_like_json(text):
        raise InputError(
            expected=f"a {suffix[1:].upper()} table in '{shown(str(path))}'",
            found="JSON",
            fix="name a file of this task, or rename a table of records to end in .jsonl",
        )
    return _with_header(path, _csv_cells(path, text) if suffix == ".csv" else tsv_cells(text))


def tsv_cells(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each line's number, from 1, and its cells; a blank line has one empty cell. Quotes are ordinary characters."""
    for number, line in enumerate(lines_of(text), start=1):
        yield number, line.removesuffix("\r").split("\t")


def show_columns(names: Iterable[str]) -> str:
    """Column names for a message, shortened if there are many."""
    listed = [brief(name) for name in names]
    rest = f" and {len(listed) - _SHOWN_COLUMNS} more" if len(listed) > _SHOWN_COLUMNS else ""
    return "columns " + ", ".join(listed[:_SHOWN_COLUMNS]) + rest


def nearest_column(name: str, columns: Collection[str]) -> str:
    """The fix for an unknown column: the nearest name, unless there are more columns than a message shows."""
    return nearest(name, columns) if 0 < len(columns) <= _SHOWN_COLUMNS else "name one of the columns"


def read_texts(
    path: Path,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    target: Target | None = "label",
    skip_unlabelled: bool = False,
) -> ExampleFile:
    """The texts, or pairs of texts, of a table. A row with an empty text is skipped and listed.

    So is a row with `-` in a column `gold_label`, which is how SNLI marks pairs without a gold label.

    Args:
        text_column, pair_column, label_column: column names; if None, guessed from common names. A text column without
            a pair column means single texts.
        target: what a label is: one class (`label`), any number of classes, as a JSON list or separated by `|`
            (`labels`), or a number (`number`); if None, labels are not read and may be missing.
        skip_unlabelled: a row with an empty label is skipped and listed, too; otherwise it is an error.

    Raises:
        InputError: the file cannot be read, a column is missing or ambiguous, or a label is missing or not a number;
            the message gives file and line, or the columns of the file.
    """
    if suffix_of(path) in _OF_WORDS:
        raise InputError(
            expected=f"a table of texts with labels, a file that ends in {', '.join(SUFFIXES)}",
            found=f"'{shown(str(path))}', words with tags by its name",
            fix="use --task ner for entities or --task pos for plain tags",
        )
    rows = read_table(path)
    first_row = next(rows, None)
    if first_row is None:
        raise InputError(expected=f"rows in '{shown(str(path))}'", found="none", fix="name a file that holds examples")
    columns = list(first_row.values)
    texts = _text_columns(path, columns, text_column, pair_column)
    known_labels = NUMBER_COLUMNS if target == "number" else LABEL_COLUMNS
    if target and label_column is None and not any(plain_name(name) in known_labels for name in columns):
        _refuse_spans(first_row)
    label = _label_column(path, columns, texts, label_column, known_labels) if target else ""
    if len({*texts, label}) <= len(texts):
        raise InputError(
            expected=f"a column of its own for each text and for the label in '{shown(str(path))}'",
            found=f"{(label if label in texts else texts[0])!r} twice",
            fix="name another one",
        )
    id_column = next((name for name in columns if plain_name(name) in ID_COLUMNS and name not in (*texts, label)), None)
    _tell_columns(path, [name for name in columns if name != id_column], texts, label)
    examples, skipped, unlabelled = [], [], []
    for number, row in enumerate(itertools.chain([first_row], rows)):
        cells = [_cell(row, name) for name in texts]
        cell = _cell(row, label) if label else ""
        if plain_name(label) == "gold_label" and cell.strip() == NO_GOLD:
            skipped.append((row.place, f"the label {NO_GOLD!r}, on which the annotators did not agree"))
            continue
        if target and holds_spans(cell):
            _refuse_spans(row)
        if target in ("label", "number") and not cell.strip():
            unlabelled.append(row.place)
            skipped.append((row.place, f"an empty label in column {label!r}"))
            continue
        gold = gold_of_cell(cell, row.place, target) if target else None
        if empty := [name for name, cell in zip(texts, cells, strict=True) if not cell.strip()]:
            skipped.append((row.place, f"empty text in column {empty[0]!r}"))
            continue
        examples.append(
            TextExample(
                id=(row.values.get(id_column, "") if id_column else "") or str(number),
                first=cells[0],
                second=cells[1] if len(cells) > 1 else None,
                label=gold,
                place=row.place,
            )
        )
    if unlabelled and not skip_unlabelled:
        line = unlabelled[0].partition(" of ")[0]
        raise InputError(
            expected=f"a label in each row of '{shown(str(path))}'",
            found=f"an empty cell in {counted(len(unlabelled), 'row')}, the first in {line}",
            fix="fill them in, remove the rows, or add --skip-unlabelled",
        )
    if not examples:
        raise InputError(
            expected=f"rows with text in '{shown(str(path))}'",
            found=f"{counted(len(skipped), 'row')}, none with text" + (" and a gold label" if target else ""),
            fix="name another file or text_column",
        )
    if suffix_of(path) in _WITH_HEADER and any(label == example.label for example in examples):
        warn(f"'{shown(str(path))}' has the label {label!r}, the name of its label column: the file needs a header")
    return ExampleFile(examples=tuple(examples), skipped=tuple(skipped))


def _refuse_spans(row: Row) -> None:
    """Refuses a row whose text has marked spans instead of a label.

    Raises:
        InputError: it has.
    """
    marked = next((name for name, value in row.values.items() if holds_spans(value)), None)
    if marked is not None:
        raise InputError(
            expected=f"a label of the whole text in {row.place}",
            found=f"spans in {marked!r}: {brief(row.values[marked])}",
            fix="use --task ner for texts with marked spans, or name the label with --label-column",
        )


def _tell_columns(path: Path, columns: Sequence[str], texts: Sequence[str], label: str) -> None:
    """Tells which columns of a table are read, if some are not, or if their names are not the usual ones."""
    unread = [name for name in columns if name not in (*texts, label)]
    if unread or not {*texts, label} <= {*_USUAL_COLUMNS}:
        used = f"text from {' and '.join(map(repr, texts))}{f', gold from {label!r}' if label else ''}"
        tell(f"'{shown(str(path))}': {used}" + (f"; not read: {show_columns(unread)}" if unread else ""))


def _csv_cells(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each row's first line, and the cells of the row."""
    # The limit is per process. A longer text is not an error, so the limit is raised and never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    separator = separator_of(text.partition("\n")[0], path)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells or [""]
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            expected=f"a CSV row starting at {line_of(path, line)}",
            found=str(error),
            fix="close every quote, and double quotes inside a cell",
        ) from None


def _with_header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    """The rows below the header, keyed by its names."""
    header_line, header = next(rows)
    header = [name.strip() for name in header]
    require_unique(header, line_of(path, header_line))
    if not any(header):
        raise InputError(
            expected=f"column names in {line_of(path, header_line)}",
            found="a blank line",
            fix="give each column a unique name",
        )
    is_empty = True
    for line, cells in rows:
        if cells == [""] and len(header) > 1:
            continue
        if len(cells) != len(header):
            raise InputError(
                expected=f"{counted(len(header), 'column')} in {line_of(path, line)}",
                found=f"{len(cells)}, starting with {brief(cells[0])}",
                fix="fix this line: a column separator is missing, or part of a text",
            )
        is_empty = False
        yield Row(line_of(path, line), dict(zip(header, cells, strict=True)))
    if is_empty:
        raise InputError(
            expected=f"rows below the header of '{shown(str(path))}'",
            found=f"none, only {show_columns(header)}",
            fix="name a file that holds examples",
        )


def _json_rows(path: Path, text: str, *, lines: bool) -> Iterator[Row]:
    for place, record in json_records(path, text, lines=lines):
        if not isinstance(record, dict):
            raise InputError(
                expected=f"a JSON record {{...}} in {place}", found=brief(record), fix="write one record per example"
            )
        yield Row(place, {clean(name): _as_text(value) for name, value in record.items()})


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with unpacked(path) as stream:
        try:
            number = 0
            file = pq.ParquetFile(stream)
            require_unique(file.schema_arrow.names, f"'{shown(str(path))}'")
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, use_threads=False):
                for record in batch.to_pylist():
                    number += 1
                    yield Row(line_of(path, number, "row"), {name: _as_text(value) for name, value in record.items()})
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                expected=f"Parquet data in '{shown(str(path))}'", found=f"something else ({error})", fix="save it again"
            ) from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return clean(value)
    is_missing = value is None or value != value  # NaN is what tables of numbers have in an empty cell
    return "" if is_missing else clean(json.dumps(value, ensure_ascii=False, default=str))


def plain_name(name: str) -> str:
    """The name of a column as it is compared with known ones: lower case, with underscores."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _cell(row: Row, column: str) -> str:
    """The value of a column; raises InputError if a record lacks a column of the first one."""
    if column not in row.values:
        raise InputError(
            expected=f"the column {column!r} in {row.place}",
            found=show_columns(row.values),
            fix="add it to this record",
        )
    return row.values[column]


def _text_columns(path: Path, columns: Sequence[str], text: str | None, pair: str | None) -> tuple[str, ...]:
    """The one or two columns of text."""
    for name in (text, pair):
        if name is not None:
            _require_column(path, columns, name)
    if text is not None:
        return (text,) if pair is None else (text, pair)
    named = {plain_name(name): name for name in columns if name != pair}
    singles: list[tuple[str, ...]]
    if pair is not None:
        singles = [(named[name], pair) for name in TEXT_COLUMNS if name in named]
        return _only(path, columns, singles, "text", "text_column")
    pairs = [(named[a], named[b]) for a, b in PAIR_COLUMNS if a in named and b in named]
    in_pairs = {name for found in pairs for name in found}
    singles = [(named[name],) for name in TEXT_COLUMNS if name in named and named[name] not in in_pairs]
    # A title next to a text is a part of it that few want; a title on its own is the text.
    bodies = [found for found in singles if plain_name(found[0]) not in ("title", "headline")]
    return _only(path, columns, [*pairs, *(bodies if pairs or bodies else singles)], "text", "text_column")


def _label_column(
    path: Path, columns: Sequence[str], texts: Sequence[str], label: str | None, known: Sequence[str]
) -> str:
    """The column of labels."""
    if label is not None:
        _require_column(path, columns, label)
        return label
    named: Mapping[str, str] = {plain_name(name): name for name in columns if name not in texts}
    found = [(named[name],) for name in known if name in named]
    return _only(path, columns, found, "label", "label_column")[0]


def _require_column(path: Path, columns: Sequence[str], name: str) -> None:
    if name not in columns:
        raise InputError(
            expected=f"the column {name!r} in '{shown(str(path))}'",
            found=show_columns(columns),
            fix=nearest_column(name, columns),
        )


def _only(
    path: Path, columns: Sequence[str], found: Sequence[tuple[str, ...]], what: str, option: str
) -> tuple[str, ...]:
    """The only candidate.

    Raises:
        InputError: there are none or several.
    """
    if len(found) == 1:
        return found[0]
    several = "; candidates are " + ", ".join(" with ".join(map(repr, names)) for names in found)
    raise InputError(
        expected=f"one column with a known name for the {what} in '{shown(str(path))}'",
        found=show_columns(columns) + (several if found else ""),
        fix="add a label column"
        if what == "label" and len(columns) == 1
        else f"name it with --{option.replace('_', '-')}"
        + ("; the first line must name the columns" if suffix_of(path) in _WITH_HEADER and not found else ""),
    )
