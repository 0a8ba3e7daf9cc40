"""The cells of CSV and TSV tables, for every command that reads one, and the usual names of their columns.

CSV is what Python's `csv` reads: a row ends at a line feed, a carriage return, or both, unless it is in quotes. TSV has
no quotes, as the official GLUE files have none. The first row has the names of the columns.
"""

import csv
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.progress import counted
from bertsmith.tasks.datasets.file_text import line_of, quoted
from bertsmith.tasks.datasets.values import brief
from bertsmith.text.documents.names import require_unique
from bertsmith.text.documents.sources import LONGEST_RECORD

WORD_KEYS = ("tokens", "words", "tokenized_text")  # of the words of a sentence, in a record
SHOWN_COLUMNS = 12  # in a message
TEXT_COLUMNS = (
    "text sentence query question message review comment comment_text content tweet post body document utterance claim "
    "text1 text_a sentence1 sentence_a premise question1 title headline"
).split()
# For search, in order of preference: the usual names of long texts come first.
PASSAGE_COLUMNS = list(
    dict.fromkeys(["text", *"passage contents content body abstract document paragraph".split(), *TEXT_COLUMNS])
)
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
PREDICTION = "prediction"  # the column of labels that `predict` and `classify` add to a table
LABEL_COLUMNS = (
    "label labels class classes category categories gold_label target sentiment intent topic tags cats accept".split()
)
NUMBER_COLUMNS = "score label rating similarity relatedness_score value target stars".split()
ID_COLUMNS = "id guid index idx pair_id".split()


def plain_name(name: str) -> str:
    """The name of a column as it is compared with known ones: lower case, with underscores."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def show_columns(names: Iterable[str]) -> str:
    """Column names for a message, shortened if there are many."""
    listed = [brief(name) for name in names]
    rest = f" and {len(listed) - SHOWN_COLUMNS} more" if len(listed) > SHOWN_COLUMNS else ""
    return ("column " if len(listed) == 1 else "columns ") + ", ".join(listed[:SHOWN_COLUMNS]) + rest


def first_known(named: Mapping[str, str], known: Iterable[str]) -> str | None:
    """The column with the first known name that there is; None if there is none.

    Args:
        named: the columns by their `plain_name`.
    """
    return next((named[name] for name in known if name in named), None)


def missing_column(name: str, table: str, columns: Collection[str], *, is_fixed: bool = False) -> InputError:
    """The error for a column that a table or a record lacks.

    Args:
        is_fixed: whether no option names the column, so that the table has to change.
    """
    fix = f"add it, or rename the column that is the {name}" if is_fixed else nearest_column(name, columns)
    return InputError.at(table, f"the column {name!r}", show_columns(columns), fix)


def nearest_column(name: str, columns: Collection[str]) -> str:
    """The fix for an unknown column: the nearest name, unless there are more columns than a message shows."""
    return nearest(name, columns) if 0 < len(columns) <= SHOWN_COLUMNS else "name one of the columns"


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table."""

    location: str
    values: dict[str, str]  # text by column name; numbers, lists and records of JSON and Parquet are given as JSON
    unused: str = ""  # why its label is not gold, such as the annotator's rejection; empty if it is

    @property
    def is_empty(self) -> bool:
        """Whether no cell has a text, as in a row of a spreadsheet that was left free."""
        return not any(value.strip() for value in self.values.values())

    def cell(self, column: str, fix: str = "add it to this record") -> str:
        """The value of a column; a record may lack a column of the first one, which is an error."""
        if column not in self.values:
            expected = f"the column {column!r} in {self.location}"
            raise InputError(expected=expected, found=show_columns(self.values), fix=fix)
        return self.values[column]


NumberedCells = tuple[int, list[str]]
"""The number of the first line of a row, from 1, and the cells of the row."""

_MOST_HEADER_LINES = 100
_LONE_RETURN = re.compile(r"(?<=\r)(?!\n)")
_QUOTED_CELL = re.compile(r'(?:(?<=[,;\t])|\A)"(?:[^"]|"")*"')
_OPEN_CELL = re.compile(r'(?:[,;\t]|\A)"')


def csv_rows(lines: Iterable[str], path: Path | str) -> Iterator[NumberedCells]:
    """The rows of a CSV table; a blank line is a row of one empty cell.

    Args:
        lines: with their line ends.
    """
    # The limit is per process. A longer text is not an error, so the limit is raised and never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
    lines = (part for line in lines for part in (_LONE_RETURN.split(line) if "\r" in line else (line,)) if part)
    head = _header_lines(lines)
    header = "".join(head) if len(head) < _MOST_HEADER_LINES else head[0]
    reader = csv.reader(itertools.chain(head, lines), delimiter=separator_of(header, path), strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells or [""]
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            expected=f"a CSV row starting at {line_of(Path(path), line)}",
            found=str(error),
            fix="close every quote, and double quotes inside a cell",
        ) from None


def tsv_rows(lines: Iterable[str]) -> Iterator[NumberedCells]:
    """The rows of a TSV table; a blank line is a row of one empty cell. Quotes are ordinary characters."""
    for number, line in enumerate(lines, start=1):
        yield number, line.removesuffix("\n").removesuffix("\r").split("\t")


def header_and_rows(rows: Iterator[NumberedCells], path: Path | str) -> tuple[list[str], Iterator[NumberedCells]]:
    """The names of the columns, and the rows below them, each with as many cells.

    A blank line is a row of one empty cell, a row of separators alone one of empty cells.
    """
    line, header = next(rows, (1, [""]))
    header = [name.strip() for name in header]
    require_unique(header, line_of(Path(path), line))
    if not any(header):
        raise InputError(
            expected=f"column names in {line_of(Path(path), line)}",
            found="a blank line" if len(header) == 1 else "empty cells",
            fix="give each column a unique name",
        )
    return header, (_whole(row, len(header), path) for row in rows)


def is_blank_line(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Whether these are the cells of a blank line, which is not a row of a table with several columns."""
    return cells == [""] and len(header) > 1


def separator_of(header: str, path: Path | str = "") -> str:
    r"""The separator of the cells of a CSV file with this first row: a comma, unless it has only semicolons or tabs.

    >>> separator_of("text,label"), separator_of("text;label"), separator_of('"a;b",label'), separator_of("text")
    (',', ';', ',', ',')
    >>> separator_of('"text\nof the mail";label')
    ';'
    """
    if re.fullmatch(r'"?sep=.?"?[,;\t]*\s*', header, re.IGNORECASE):
        raise InputError(
            expected=f"the names of the columns in the first line of {quoted(path)}",
            found=f"{header.strip()!r}, which is for Excel",
            fix="remove this line",
        )
    outside = re.sub(r'"[^"]*"', "", header)
    others = [mark for mark in ";\t" if mark in outside]
    return others[0] if len(others) == 1 and "," not in outside else ","


def _header_lines(lines: Iterator[str]) -> list[str]:
    """The lines of the first row, which has several if a name in quotes has line ends."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if len(head) == _MOST_HEADER_LINES or not _OPEN_CELL.search(_QUOTED_CELL.sub("", "".join(head))):
            break
    return head


def _whole(row: NumberedCells, width: int, path: Path | str) -> NumberedCells:
    line, cells = row
    if len(cells) == width or cells == [""]:
        return row
    if not any(cells):
        return line, [""] * width
    raise InputError(
        expected=f"{counted(width, 'column')} in {line_of(Path(path), line)}",
        found=f"{len(cells)}, starting with {brief(cells[0])}",
        fix="fix this line: a column separator is missing, or part of a text",
    )
