"""Reader for texts with labels from tables: CSV, TSV, JSON, Parquet, Excel, fastText; plain or compressed (.gz, .zst).

The extension gives the format of a file. CSV has a header and quotes; its cells are separated by commas, or by what the
header has in their place (spreadsheets of many countries write semicolons). TSV has a header and no quoting at all, as
the official GLUE files have none. A JSON file holds one record per line, or is one list of records, or has another
shape of `records`. A file with another extension that starts with a label of fastText is read as such. Every value is
read as text.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, quiet, tell, warn
from bertsmith.tasks.datasets.cells import (
    ID_COLUMNS,
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    PAIR_COLUMNS,
    PREDICTION,
    SHOWN_COLUMNS,
    TEXT_COLUMNS,
    WORD_KEYS,
    NumberedCells,
    Row,
    csv_rows,
    header_and_rows,
    is_blank_line,
    missing_column,
    plain_name,
    show_columns,
    tsv_rows,
)
from bertsmith.tasks.datasets.examples import ExampleFile, TextExample
from bertsmith.tasks.datasets.file_text import file_head, file_text, line_of, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.label_cells import (
    NO_GOLD,
    Target,
    binary_columns,
    gold_of_cell,
    holds_spans,
    names_of_ones,
    positions_of_ones,
    width_of_ones,
)
from bertsmith.tasks.datasets.values import as_text, brief, clean, looks_like_json
from bertsmith.text.documents.encodings import UTF_8

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx")
_WITH_HEADER = (".csv", ".tsv")
_OF_WORDS = (".conll", ".iob", ".iob2", ".bio")
_RENAMING = "rename it to end in .tsv or .jsonl if that is its format, or save it as one of these"
_CONVERSIONS = {
    ".spacy": "write its texts as JSON lines: this is a DocBin of spaCy",
    **dict.fromkeys((".xls", ".xlsm", ".ods"), "save its sheet as .xlsx or CSV"),
    **dict.fromkeys(
        (".docx", ".doc", ".odt", ".rtf", ".pdf"), "save its text as .txt, or a table of texts and labels as .csv"
    ),
}
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # a cell that CSV quotes because of quotes inside
_USUAL_COLUMNS = ("text", "text2", "text_pair", "pair", "label", "")
PREFIX = "__label__"

_LABEL = re.compile(rf"(?:(?<=[ \t\v\f\r])|\A){PREFIX}([^ \t\v\f\r]*)[ \t\v\f\r]*")


_read_elsewhere = ContextVar[tuple[str | None, ...]]("columns that others read", default=())


def read_table(path: Path, suffix: str = "", *, encoding: str = UTF_8, without: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a table in file order.

    Args:
        without: columns of a .parquet file that are not read.
    """
    suffix = suffix or suffix_of(path)
    if suffix not in SUFFIXES:
        if path.is_file() and is_fasttext(path, encoding=encoding):
            tell(f"{quoted(path)}: read as texts with labels of fastText")
            return read_fasttext(path, encoding=encoding)
        raise InputError(
            expected=f"a table, a file that ends in {', '.join(SUFFIXES)} (also .gz, .zst)",
            found=f"{'the folder ' if path.is_dir() else ''}{quoted(path)}",
            fix="name a file in it" if path.is_dir() else _CONVERSIONS.get(suffix, _RENAMING),
        )
    if suffix == ".parquet":
        from bertsmith.tasks.datasets.parquet_records import parquet_records

        return typed_rows(parquet_records(path, without))
    if suffix == ".xlsx":
        from bertsmith.tasks.datasets.spreadsheets import read_sheet

        return read_sheet(path)
    text = file_text(path, kind=f"a {suffix[1:].upper()} table", keep_ends=suffix == ".csv", encoding=encoding)
    if suffix in (".jsonl", ".json"):
        return _json_rows(path, text, lines=suffix == ".jsonl")
    if looks_like_json(text):
        raise InputError(
            expected=f"a {suffix[1:].upper()} table in {quoted(path)}",
            found="JSON",
            fix="name a file of this task, or rename a table of records to end in .jsonl",
        )
    is_csv = suffix == ".csv"
    return _with_header(path, csv_rows(io.StringIO(text, newline=""), path) if is_csv else tsv_rows(lines_of(text)))


def columns_of(path: Path, *, encoding: str = UTF_8) -> list[str]:
    """The names of the columns of a table; none of a table without rows."""
    with quiet():  # the rows are read again, and how is said then
        row = next(read_table(path, encoding=encoding), None)
    return [] if row is None else list(row.values)


def read_texts(
    path: Path,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    target: Target | None = "label",
    skip_unlabelled: bool = False,
    encoding: str = UTF_8,
    ones: int | None = None,
) -> ExampleFile:
    """The texts, or pairs of texts, of a table. A row with an empty text is skipped and listed.

    So is a row with `-` in a column `gold_label`, which is how SNLI marks pairs without a gold label.

    Args:
        text_column, pair_column, label_column: column names; if None, guessed from common names. A text column without
            a pair column means single texts.
        target: what a label is: one class (`label`), any number of classes, as a JSON list or separated by `|`
            (`labels`), or a number (`number`); if None, labels are not read and may be missing.
        skip_unlabelled: rows with an empty label are skipped and counted; otherwise they are an error.
        ones: how lists of labels are read, as `ExampleFile.ones` of the training file says; None if this file decides.
    """
    if suffix_of(path) in _OF_WORDS:
        raise InputError(
            expected=f"a table of texts with labels, a file that ends in {', '.join(SUFFIXES)}",
            found=f"{quoted(path)}, words with tags by its name",
            fix="use --task ner for entities or --task pos for plain tags",
        )
    rows = list(read_table(path, encoding=encoding))
    if not rows:
        raise InputError(expected=f"rows in {quoted(path)}", found="none", fix="name a file that holds examples")
    columns = list(rows[0].values)
    texts = text_columns(path, columns, text_column, pair_column)
    known_labels = NUMBER_COLUMNS if target == "number" else LABEL_COLUMNS
    if target and label_column is None and not any(plain_name(name) in known_labels for name in columns):
        _refuse_spans(rows[0])
    binary = _binary_columns(rows, columns, texts, label_column) if target == "labels" else []
    label = label_column_of(path, columns, texts, label_column, known_labels) if target and not binary else ""
    if len({*texts, label, *binary}) <= len(texts):
        raise InputError(
            expected=f"a column of its own for each text and for the label in {quoted(path)}",
            found=f"{(label if label in texts else texts[0])!r} twice",
            fix="name another one",
        )
    id_column = next((name for name in columns if plain_name(name) in ID_COLUMNS and name not in (*texts, label)), None)
    gold_columns = binary or ([label] if target else [])
    _tell_columns(path, [name for name in columns if name != id_column], texts, gold_columns)
    examples, skipped, unlabelled = [], [], []
    labels, ones = _label_cells(path, rows, label, binary, target, ones)
    for number, (row, cell) in enumerate(zip(rows, labels, strict=True)):
        if row.is_empty and len(columns) > 1:
            skipped.append((row.location, "no text in any column"))
            continue
        cells = [row.cell(name) for name in texts]
        if target and row.unused:
            skipped.append((row.location, row.unused))
            continue
        if plain_name(label) == "gold_label" and cell.strip() == NO_GOLD:
            skipped.append((row.location, f"the label {NO_GOLD!r}, on which the annotators did not agree"))
            continue
        if target and holds_spans(cell):
            _refuse_spans(row)
        gold = gold_of_cell(cell, row.location, target) if target else None
        if target and gold is None:
            unlabelled.append(row.location)
            continue
        if empty := [name for name, cell in zip(texts, cells, strict=True) if not cell.strip()]:
            skipped.append((row.location, f"empty text in column {empty[0]!r}"))
            continue
        examples.append(
            TextExample(
                id=(row.values.get(id_column, "") if id_column else "") or str(number),
                first=cells[0],
                second=cells[1] if len(cells) > 1 else None,
                label=gold,
                location=row.location,
            )
        )
    if unlabelled and not skip_unlabelled:
        line = unlabelled[0].partition(" of ")[0]
        raise InputError(
            expected=f"a label in each row of {quoted(path)}",
            found=f"an empty cell in {counted(len(unlabelled), 'row')}, the first in {line}",
            fix="fill them in, remove the rows, or add --skip-unlabelled",
        )
    if unlabelled:
        warn(f"{quoted(path)}: {counted(len(unlabelled), 'row')} skipped, with an empty label in column {label!r}")
    if not examples:
        raise InputError(
            expected=f"rows with text in {quoted(path)}",
            found=f"{counted(len(skipped) + len(unlabelled), 'row')}, none with text"
            + (" and a gold label" if target else ""),
            fix="name another file or text_column",
        )
    if suffix_of(path) in _WITH_HEADER and any(label == example.label for example in examples):
        warn(f"{quoted(path)} has the label {label!r}, the name of its label column: the file needs a header")
    in_quotes = [example for example in examples if _QUOTED.fullmatch(example.first)]
    if suffix_of(path) == ".tsv" and in_quotes:
        warn(
            f"{quoted(path)}: {counted(len(in_quotes), 'text')} in quotes, with doubled quotes inside, the first in "
            f"{in_quotes[0].location}: TSV has no quotes, so they are read as characters; if a program wrote them as "
            "in CSV, rename the file to end in .csv"
        )
    return ExampleFile(examples=tuple(examples), skipped=tuple(skipped), ones=ones)


def _refuse_spans(row: Row) -> None:
    marked = next((name for name, value in row.values.items() if holds_spans(value)), None)
    if marked is not None:
        raise InputError(
            expected=f"a label of the whole text in {row.location}",
            found=f"spans in {marked!r}: {brief(row.values[marked])}",
            fix="use --task ner for texts with marked spans, or name the label with --label-column",
        )


def _binary_columns(rows: Sequence[Row], columns: Sequence[str], texts: Sequence[str], named: str | None) -> list[str]:
    """The columns of zeros and ones that are labels: the named ones, or, without a column of labels, all there are."""
    if named is not None:
        parts = [] if named in columns else [name.strip() for name in named.split(",")]
        return parts if len(parts) > 1 and set(parts) <= set(columns) else []
    if any(plain_name(name) in LABEL_COLUMNS and name not in texts for name in columns):
        return []
    others = [name for name in columns if name not in texts and plain_name(name) not in ID_COLUMNS]
    return binary_columns(_labelled(rows), others)


def _labelled(rows: Sequence[Row]) -> list[tuple[str, Mapping[str, str]]]:
    return [(row.location, row.values) for row in rows if not row.is_empty]


def _label_cells(
    path: Path, rows: Sequence[Row], label: str, binary: Sequence[str], target: Target | None, ones: int | None
) -> tuple[list[str], int | None]:
    """The cell with the label of each row, with names for zeros and ones, and how lists were read; see `read_texts`."""
    if binary:
        named = iter(names_of_ones(_labelled(rows), binary))
        return ["" if row.is_empty else next(named) for row in rows], None
    if not label:
        return [""] * len(rows), None
    cells = ["" if row.is_empty else row.cell(label) for row in rows]
    if target != "number" and suffix_of(path) == ".parquet":
        from bertsmith.tasks.datasets.parquet_records import class_names, with_names

        if names := class_names(path).get(label):
            tell(f"{quoted(path)}: classes named as in its features: {', '.join(map(brief, names[:SHOWN_COLUMNS]))}")
            return [with_names(cell, names, row.location) for cell, row in zip(cells, rows, strict=True)], None
    if target != "labels":
        return cells, None
    width = width_of_ones([(row.location, cell) for cell, row in zip(cells, rows, strict=True)], ones)
    if not width:
        return cells, width
    tell(f"{quoted(path)}: lists in {label!r} read as a 0 or 1 for each of {width} labels, named 0 to {width - 1}")
    return [positions_of_ones(cell, row.location) for cell, row in zip(cells, rows, strict=True)], width


@contextlib.contextmanager
def read_elsewhere(*columns: str | None) -> Iterator[None]:
    """A context in which these columns, such as that of a group, are not said to be unread."""
    token = _read_elsewhere.set((*_read_elsewhere.get(), *columns))
    try:
        yield
    finally:
        _read_elsewhere.reset(token)


def _tell_columns(path: Path, columns: Sequence[str], texts: Sequence[str], labels: Sequence[str]) -> None:
    """Tells which columns of a table are read, if some are not, or if their names are not the usual ones."""
    unread = [name for name in columns if name not in (*texts, *labels, *_read_elsewhere.get())]
    if unread or not {*texts, *labels} <= {*_USUAL_COLUMNS}:
        gold = repr(labels[0]) if len(labels) == 1 else f"the ones in {show_columns(labels)}"
        used = f"text from {' and '.join(map(repr, texts))}{f', gold from {gold}' if labels else ''}"
        tell(f"{quoted(path)}: {used}" + (f"; not read: {show_columns(unread)}" if unread else ""))


def _with_header(path: Path, rows: Iterator[NumberedCells]) -> Iterator[Row]:
    header, rows = header_and_rows(rows, path)
    is_empty = True
    for line, cells in rows:
        if not is_blank_line(cells, header):
            is_empty = False
            yield Row(line_of(path, line), dict(zip(header, cells, strict=True)))
    if is_empty:
        raise InputError(
            expected=f"rows below the header of {quoted(path)}",
            found=f"none, only {show_columns(header)}",
            fix="name a file that holds examples",
        )


def _json_rows(path: Path, text: str, *, lines: bool) -> Iterator[Row]:
    from bertsmith.tasks.datasets.records import read_records

    for location, values, unused in read_records(path, text, lines=lines, columns=(*TEXT_COLUMNS, *LABEL_COLUMNS)):
        yield Row(location, {clean(name): as_text(value, location) for name, value in values.items()}, unused)


def typed_rows(records: Iterable[tuple[str, Mapping[str, object]]]) -> Iterator[Row]:
    """Rows of values of any type, with their locations, as rows of texts."""
    for location, values in records:
        yield Row(location, {name: as_text(value, location) for name, value in values.items()})


def text_columns(
    path: Path, columns: Sequence[str], text: str | None = None, pair: str | None = None
) -> tuple[str, ...]:
    """The columns of the texts of a table, the named ones or those with known names: one, or two for pairs.

    Args:
        columns: of the table.
    """
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
    in_pairs = {name for names in pairs for name in names}
    singles = [(named[name],) for name in TEXT_COLUMNS if name in named and named[name] not in in_pairs]
    # A title next to a text is a part of it that few want; a title on its own is the text.
    bodies = [column for column in singles if plain_name(column[0]) not in ("title", "headline")]
    return _only(path, columns, [*pairs, *(bodies if pairs or bodies else singles)], "text", "text_column")


def label_column_of(
    path: Path, columns: Sequence[str], texts: Sequence[str], label: str | None, known: Sequence[str]
) -> str:
    """The column of the label of a table, the named one or the one with a known name.

    Args:
        columns: of the table.
        texts: those of them that hold texts.
        known: plain names of such columns.
    """
    if label is not None:
        _require_column(path, columns, label)
        return label
    named: Mapping[str, str] = {plain_name(name): name for name in columns if name not in texts}
    columns_of = [(named[name],) for name in known if name in named]
    return _only(path, columns, columns_of, "label", "label_column")[0]


def _require_column(path: Path, columns: Sequence[str], name: str) -> None:
    if name not in columns:
        raise missing_column(name, quoted(path), columns)


def _only(
    path: Path, columns: Sequence[str], choices: Sequence[tuple[str, ...]], kind: str, option: str
) -> tuple[str, ...]:
    if len(choices) == 1:
        return choices[0]
    several = "; candidates are " + ", ".join(" with ".join(map(repr, names)) for names in choices)
    has_words = kind == "text" and not choices and not set(WORD_KEYS).isdisjoint(columns)
    raise InputError(
        expected=f"one column with a known name for the {kind} in {quoted(path)}",
        found=show_columns(columns) + (several if choices else ""),
        fix="add a label column"
        if kind == "label" and len(columns) == 1
        else f"name it with --{option.replace('_', '-')}"
        + (f" {PREDICTION}" if kind == "label" and PREDICTION in columns else "")
        + ("; the first line must name the columns" if suffix_of(path) in _WITH_HEADER and not choices else "")
        + ("; sentences of words are for --task ner, pos or nested-ner" if has_words else ""),
    )


def is_fasttext(path: Path, *, encoding: str = UTF_8) -> bool:
    """Whether a file starts with a label of fastText."""
    return file_head(path, encoding=encoding).lstrip().startswith(PREFIX)


def read_fasttext(path: Path, *, encoding: str = UTF_8) -> Iterator[Row]:
    """The lines of a file that are not blank, in file order."""
    for number, line in enumerate(
        lines_of(file_text(path, kind="texts with labels of fastText", encoding=encoding)), start=1
    ):
        if line.strip():
            names = _LABEL.findall(line)
            label = names[0] if len(names) == 1 else json.dumps(names, ensure_ascii=False) if names else ""
            values = {"text": _LABEL.sub("", line).strip(), "label": label}
            yield Row(line_of(path, number), values, "" if names else f"no word that starts with {PREFIX}")
