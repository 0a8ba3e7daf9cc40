"""Reader for tagged sentences, one word per line, as in the CoNLL shared tasks, and in CoNLL-U.

Columns are separated by tabs, or by spaces on a line without tabs. A blank line ends a sentence. A line that starts
with -DOCSTART- starts a document. A line that starts with `# ` and lacks the columns of a word is a comment.

The words of a sentence in CoNLL-U are its syntactic words. A range such as `3-4` is a token that several words share,
and an empty node such as `8.1` is not a word at all; both are left out. Any line that starts with # is a comment.

Source: https://universaldependencies.org/format.html and https://universaldependencies.org/ext-format.html.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import LABEL_COLUMNS, TEXT_COLUMNS
from bertsmith.tasks.datasets.examples import ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.values import brief, looks_like_json
from bertsmith.text.documents.encodings import UTF_8

_COLUMNS = tuple("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split())
_PLUS = "# global.columns ="
_ID = re.compile(r"[1-9]\d*(?:-[1-9]\d*)?|\d+\.[1-9]\d*")
_NOT_WORDS = re.compile(r"\d+[-.]\d+")
_ENTITIES = ("NER", "NE")
NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
DOCUMENT_START = "-DOCSTART-"

_FOR_TABLES = (
    "use --task classification for one label of each text; for tags, write a word and its tag per line, or JSON lines "
    "with marked spans; `predict` also reads plain texts, as lines on stdin"
)
_BLANK = " \t\r"
_SPACES = re.compile("[ \t\r]+")
_END, _START, _WORD, _NO_WORD, _COMMENT = "end of a sentence", "start of a document", "word", "no word", "comment"


class Layout(NamedTuple):
    """The names of the columns of a file in CoNLL-U or CoNLL-U Plus."""

    columns: tuple[str, ...]

    def word_column(self) -> int:
        """The number of the column of words."""
        return self.columns.index("FORM")

    def tag_column(self, task: str, file: str) -> int:
        """The number of the column of the tags of a task, `pos` or `ner`."""
        ends = ("UPOS",) if task == "pos" else _ENTITIES
        columns = [number for number, name in enumerate(self.columns) if name.rpartition(":")[2].upper() in ends]
        if len(columns) != 1:
            raise InputError(
                expected=f"one column of {'parts of speech' if task == 'pos' else 'entities'} in {file}",
                found=f"the columns {' '.join(self.columns)} of CoNLL-U",
                fix="name the columns of words and tags with --word-column and --tag-column"
                + ("" if task == "pos" else ", or use --task pos"),
            )
        return columns[0]

    def is_word(self, cells: Sequence[str]) -> bool:
        """Whether a line is a syntactic word, and not a range or an empty node."""
        return _NOT_WORDS.fullmatch(cells[self.columns.index("ID")]) is None


def layout_of(lines: Sequence[str]) -> Layout | None:
    """The columns of a file in CoNLL-U; None if its lines have another form.

    A file is in CoNLL-U Plus if its first line names the columns, and in CoNLL-U if each line that is not blank or a
    comment has ten cells between tabs, the first of which is the number of a word, a range or an empty node.
    """
    if lines and lines[0].startswith(_PLUS):
        columns = tuple(lines[0][len(_PLUS) :].split())
        return Layout(columns) if {"ID", "FORM"} <= set(columns) else None
    is_empty = True
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(_COLUMNS) or not _ID.fullmatch(cells[0]):
            return None
        is_empty = False
    return None if is_empty else Layout(_COLUMNS)


def read_conll(
    path: Path, *, word_column: int = 0, tag_column: int | None = -1, task: str | None = None, encoding: str = UTF_8
) -> ExampleFile:
    """The sentences of a file.

    Args:
        task: `ner` or `pos`: if the columns are the default ones, a file in CoNLL-U finds its own by their names.
        word_column, tag_column: column numbers from 0, or from the end if negative; if `tag_column` is None, the
            sentences have no tags.
    """
    if suffix_of(path) == ".parquet":
        raise _no_sentences(path, "a Parquet table", _FOR_TABLES)
    columns = _word_lines(path, word_column=word_column, tag_column=tag_column, task=task, encoding=encoding)
    count, word_at, tag_at = columns.width, columns.word_at, columns.tag_at
    examples: list[TaggedExample] = []
    words: list[str] = []
    tags: list[str] = []
    document = first_line = left_out = 0
    for number, _, cells, role in columns.roles():
        if words and role in (_END, _START):
            examples.append(
                TaggedExample(
                    id=str(len(examples)),
                    words=tuple(words),
                    tags=None if tag_column is None else tuple(tags),
                    document=document,
                    location=line_of(path, first_line),
                )
            )
            words, tags = [], []
        left_out += role == _NO_WORD
        if role == _START:
            # Sentences before the first mark form a document, too.
            document += bool(examples) and examples[-1].document == document
        elif role == _WORD:
            first_line = first_line if words else number
            word, tag = _word_and_tag(cells, count, word_at, tag_at, line_of(path, number))
            if tag == "_" and columns.has_parts_of_speech:
                raise InputError(
                    expected=f"a part of speech in {line_of(path, number)}",
                    found="'_', which means that it is not annotated",
                    fix="name another column with --tag-column, or another file",
                )
            words.append(word)
            tags.append(tag)
    if not examples:
        raise _no_sentences(path, "only ranges, empty nodes and comments")
    if left_out:
        tell(
            f"{quoted(path)}: {counted(left_out, 'line')} of CoNLL-U left out, with ranges (3-4) and "
            "empty nodes (8.1), which are not words"
        )
    return ExampleFile(examples=tuple(examples))


def with_tags(
    path: Path, tags: Iterable[str], *, word_column: int = 0, tag_column: int = -1, task: str, encoding: str = UTF_8
) -> str:
    """The text of a file with other tags, one for each word in its order; all else is as in the file.

    Args:
        word_column, tag_column, task, encoding: as for `read_conll`.
    """
    columns = _word_lines(path, word_column=word_column, tag_column=tag_column, task=task, encoding=encoding)
    assert columns.tag_at is not None, "a file with tags"
    left, lines = iter(tags), []
    for _, line, cells, role in columns.roles():
        if role == _WORD:
            tag = next(left)
            if tag != cells[columns.tag_at].strip():
                has_tabs = "\t" in line.rstrip(_BLANK)
                parts = re.split("(\t)" if has_tabs else f"({_SPACES.pattern})", line)
                at = 2 * (columns.tag_at + (not has_tabs and not parts[0]))  # white space in front is a border, too
                parts[at] = parts[at].replace(parts[at].strip(), tag)
                line = "".join(parts)
        lines.append(line)
    assert next(left, None) is None, "a tag for each word"
    return "\n".join(lines)


class _WordLines(NamedTuple):
    """The lines of a file, and the columns of words and tags in them."""

    lines: Sequence[str]
    width: int
    word_at: int
    tag_at: int | None
    role_of: Callable[..., str]
    has_parts_of_speech: bool

    def roles(self) -> Iterator[tuple[int, str, list[str], str]]:
        """The number of each line, the line, its cells and what it is; an empty line is added at the end."""
        inside = False
        for number, line in enumerate([*self.lines, ""], start=1):
            cells = _cells(line)
            role = self.role_of(number, line, cells, inside=inside) if cells else _END
            inside = role == _WORD or (inside and role not in (_END, _START))
            yield number, line, cells, role


def _word_lines(path: Path, *, word_column: int, tag_column: int | None, task: str | None, encoding: str) -> _WordLines:
    text = file_text(path, kind="a file of words and tags", encoding=encoding)
    if looks_like_json(text):
        raise _no_sentences(path, "JSON, which --task ner reads as texts with marked spans")
    lines = lines_of(text)
    if _is_header(lines[0]):
        raise _no_sentences(path, f"a table of texts, with the header {brief(lines[0])}", _FOR_TABLES)
    layout = layout_of(lines)
    if layout is not None:
        if task and (word_column, tag_column) == (0, -1):
            file = quoted(path)
            word_column, tag_column = layout.word_column(), layout.tag_column(task, file)
            tell(f"{file}: read as CoNLL-U, words from FORM, tags from {layout.columns[tag_column]}")
        count = len(layout.columns)
        role_of: Callable[..., str] = functools.partial(_role_in_layout, path, layout)
    else:
        count, has_tabs = _layout(lines)
        role_of = functools.partial(_role, count, has_tabs)
    word_at, tag_at = _columns(path, count, word_column, tag_column)
    has_parts_of_speech = layout is not None and tag_at is not None and layout.columns[tag_at] == "UPOS"
    return _WordLines(lines, count, word_at, tag_at, role_of, has_parts_of_speech)


def _role(count: int, has_tabs: bool, number: int, line: str, cells: Sequence[str], *, inside: bool) -> str:
    """What a line is, in files of the shared tasks."""
    if cells[0].startswith(DOCUMENT_START):
        return _START
    return _COMMENT if _may_be_comment(line) and (has_tabs or len(cells) != count) else _WORD


def _role_in_layout(path: Path, layout: Layout, number: int, line: str, cells: Sequence[str], *, inside: bool) -> str:
    """What a line is in CoNLL-U; `inside` a sentence, comments are refused."""
    if line.startswith("#") and not inside:
        return _START if NEW_DOCUMENT.match(line) else _COMMENT
    if line.startswith("#") and layout.columns[0] == "ID":
        raise InputError(
            expected=f"a word in {line_of(path, number)}, since CoNLL-U has comments only before a sentence",
            found=brief(line),
            fix="move the comment before the sentence, or remove it",
        )
    return _WORD if layout.is_word(cells) else _NO_WORD


def _cells(line: str) -> list[str]:
    """The columns of a line; empty for a blank line."""
    stripped = line.strip(_BLANK)
    if not stripped:
        return []
    kept = line.rstrip(_BLANK)
    return kept.split("\t") if "\t" in kept else _SPACES.split(stripped)


def _may_be_comment(line: str) -> bool:
    return line.startswith("# ") and "\t" not in line


def _layout(lines: Iterable[str]) -> tuple[int, bool]:
    """The column count of the first line that is certainly a word, 0 if there is none; and whether it has tabs."""
    for line in lines:
        cells = _cells(line)
        if cells and not cells[0].startswith(DOCUMENT_START) and not _may_be_comment(line):
            return len(cells), "\t" in line.rstrip(_BLANK)
    return 0, False


def _columns(path: Path, count: int, word_column: int, tag_column: int | None) -> tuple[int, int | None]:
    if not count:
        raise _no_sentences(path, "only marks and comments")
    wanted = [word_column] if tag_column is None else [word_column, tag_column]
    numbers = {column % count for column in wanted if -count <= column < count}
    if len(numbers) < len(wanted):
        raise InputError(
            expected=f"a word in column {word_column} of {quoted(path)}"
            + ("" if tag_column is None else f" and a tag in column {tag_column}"),
            found=counted(count, "column"),
            fix=_FOR_TABLES if suffix_of(path) == ".csv" else "name the columns with --word-column and --tag-column",
        )
    return word_column % count, None if tag_column is None else tag_column % count


def _word_and_tag(cells: Sequence[str], count: int, word_at: int, tag_at: int | None, location: str) -> tuple[str, str]:
    """The word and the tag of a line; the tag is empty if there is no tag column."""
    if len(cells) != count:
        raise InputError(
            expected=f"{counted(count, 'column')} in {location}, as in the lines above",
            found=f"{len(cells)}, starting with {brief(cells[0])}",
            fix="fix this line, or name a file with one word per line; tables of texts are for --task classification",
        )
    word = cells[word_at].strip(_BLANK)
    if not word:
        raise InputError(expected=f"a word in {location}", found="an empty column", fix="fix this line")
    if tag_at is None:
        return word, ""
    tag = cells[tag_at].strip()
    if len(tag.split()) != 1:
        fix = "fix this line, or name another column with --tag-column"
        raise InputError.at(location, "a tag without spaces", brief(tag) if tag else "an empty column", fix)
    return word, tag


def _is_header(line: str) -> bool:
    """Whether a line names a column of texts and one of labels, which no line of a word does."""
    names = {name.strip(' "\r').lower() for name in re.split("[\t,;]", line)}
    return not names.isdisjoint(TEXT_COLUMNS) and not names.isdisjoint(LABEL_COLUMNS)


def _no_sentences(path: Path, content: str, fix: str = "name a file in CoNLL format") -> InputError:
    return InputError.at(quoted(path), "sentences with one word per line", content, fix)
