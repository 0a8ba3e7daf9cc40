"""Readers for files of passages, queries and judgements.

===================  ================================================================================
plain text           one per line; its id is the line number
.jsonl .csv .tsv     a column of text, optionally columns of ids (`id`, `_id`, `docid` ...) and titles
.parquet             the same
a folder             the paragraphs of its .txt files, which blank lines divide; see `folder_records`
TREC                 `<doc> <docno> <title> <text>`, `<top> <num> <title>`, under any file name
judgements           `query 0 passage gain` (TREC) or `query passage gain`, with or without a header
===================  ================================================================================

A title is prepended unless the text already starts with it. Records without text are skipped and counted. A TREC field
is read up to its closing tag, without the tags in it; repeated fields are joined. A field that is never closed, as in
topics, ends at the next tag.
"""

import dataclasses
import html
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.settings import require
from bertsmith.inference.search.request import JUDGED_BY
from bertsmith.tasks.datasets.cells import PASSAGE_COLUMNS, Row, first_known, plain_name, show_columns
from bertsmith.tasks.datasets.file_text import file_head, file_text, line_of, lines_of, suffix_of
from bertsmith.tasks.datasets.tables import SUFFIXES, read_table, typed_rows
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.datasets.values import brief, looks_like_json
from bertsmith.text.documents.encodings import UTF_8, EncodingSettings
from bertsmith.text.documents.sources import Skipped, Source, find_sources, shown

ID_COLUMNS = "id _id docid doc_id docno pid passage_id qid query_id num".split()
TITLE_COLUMN = "title"

Judgements = dict[str, dict[str, float]]
"""By query id: the gain of each judged passage, by passage id."""

_WHOLE = 2**22  # bytes; larger files of lines are not read as a whole
_TREC_START = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?(?:<\w+>\s*)?<(doc|top)\b", re.IGNORECASE)
_TREC_RECORD = re.compile(r"<(doc|top)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_TREC_FIELD = re.compile(
    r"<(docno|num|title|text)(?:\s[^<>]*)?>(?:((?:(?!<\1[\s>]).)*?)</\1\s*>|(.*?)(?=</?[a-z]|<!--|\Z))",
    re.IGNORECASE | re.DOTALL,
)
_TAG = re.compile(
    r"<!--.*?-->|</?([a-z][\w:.-]*)(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s<>\"']+))*\s*/?>",
    re.IGNORECASE | re.DOTALL,
)
_TAGS_IN_WORDS = frozenset("a b big em font i small span strong sub sup tt u".split())
_TREC_LABEL = re.compile(r"^\s*(?:Number|Topic)\s*:\s*", re.IGNORECASE)


class Record(NamedTuple):
    """A passage or query of a file.

    Attributes:
        text: empty if the record has none.
        location: where it is, for messages.
        fields: the values of all columns of a table, by name.
        is_numbered: whether the id is the number of the record, as the file has no ids.
    """

    id: str
    text: str
    location: str
    fields: Mapping[str, str] = {}
    is_numbered: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSet:
    """Passages or queries with their ids.

    Attributes:
        texts: the texts, one per id.
        skipped: number of records without text.
        columns: returns the other columns of a passage, by its number; None if there are none.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    skipped: int = 0
    columns: Callable[[int], Mapping[str, str | None]] | None = None

    def __len__(self) -> int:
        return len(self.ids)


def read_text_set(
    path: Path,
    *,
    kind: str = "passages",
    text_column: str | None = None,
    option: str = "--text-column",
    encoding: str = UTF_8,
) -> TextSet:
    """The passages or queries of a file; reports how many were skipped.

    Args:
        text_column: the column of the text, if its name is not a common one.
        option: the option that sets this column, for messages.
    """
    texts: dict[str, str] = {}
    skipped = 0
    for id, text, location, *_ in read_records(
        path, kind=kind, text_column=text_column, option=option, encoding=encoding
    ):
        if not text:
            skipped += 1
        elif id in texts:
            raise InputError(expected=f"a unique id in {location}", found=f"{brief(id)} again", fix="rename one")
        else:
            texts[id] = text
    if not texts:
        raise InputError(
            expected=f"{kind} in '{shown(str(path))}'", found=f"{skipped} without text", fix="name another file"
        )
    if skipped:
        tell(f"{skipped:,} of {skipped + len(texts):,} {kind} have no text and are skipped")
    return TextSet(ids=tuple(texts), texts=tuple(texts.values()), skipped=skipped)


def read_records(
    path: Path,
    *,
    kind: str = "passages",
    text_column: str | None = None,
    option: str = "--text-column",
    encoding: str = UTF_8,
    without: Sequence[str] = (),
) -> Iterator[Record]:
    """All records of a file, those without text included; the other arguments are those of `read_text_set`.

    Args:
        without: the columns of vectors of a .parquet file, which are not read; it may have no column of texts then.
    """
    if path.is_dir() and text_column is None:
        return folder_records(path, kind, encoding)
    if suffix_of(path) in SUFFIXES:
        return _table_records(path, text_column, option, encoding, without)
    if text_column is not None:
        raise InputError(
            expected=f"a file with columns ({', '.join(SUFFIXES)}), since {option} is set",
            found=f"'{shown(str(path))}'",
            fix=f"omit {option}",
        )
    is_large = (
        path.is_file() and path.stat().st_size > _WHOLE and not _TREC_START.match(file_head(path, encoding=encoding))
    )
    text = file_head(path, encoding=encoding) if is_large else file_text(path, kind=kind, encoding=encoding)
    if _TREC_START.match(text):
        return _trec_records(path, text)
    if looks_like_json(text):
        raise InputError(
            expected=f"{kind} as plain text in '{shown(str(path))}'", found="JSON", fix="rename it to end in .jsonl"
        )
    reading = EncodingSettings(encoding=encoding)
    lines = enumerate(TextLines(path, reading=reading, may_drop=False) if is_large else lines_of(text), start=1)
    return (Record(str(number), line.strip(), line_of(path, number), is_numbered=True) for number, line in lines)


def read_judgements(path: Path, *, encoding: str = UTF_8) -> Judgements:
    """The judged passages of each query; a negative gain, as in Cranfield, means not relevant and becomes 0."""
    result: Judgements = {}
    for number, line in enumerate(lines_of(file_text(path, kind="judgements", encoding=encoding)), start=1):
        cells = line.split()
        if not cells:
            continue
        location = line_of(path, number)
        if len(cells) not in (3, 4):
            raise InputError(
                expected=f"`query 0 passage gain` or `query passage gain` in {location}",
                found=counted(len(cells), "column"),
                fix="name a judgements file",
            )
        query, passage, said = cells[0], cells[-2], cells[-1]
        try:
            gain = max(0.0, float(said))
        except ValueError:
            if number == 1:
                continue  # the header
            raise InputError(
                expected=f"a number as gain in {location}", found=brief(said), fix="fix the line"
            ) from None
        if passage in result.setdefault(query, {}):
            raise InputError(
                expected=f"each passage once per query, in {location}",
                found=f"{brief(passage)} again",
                fix="remove one",
            )
        result[query][passage] = gain
    if not result:
        raise InputError(
            expected=f"judgements with a number as gain in '{path}'",
            found="none",
            fix="write lines of: query 0 passage gain",
        )
    return result


def judgements_for(judgements: Judgements, queries: TextSet, by: str | None = None) -> Judgements:
    """The judgements, keyed by query id.

    The judgements of Cranfield number the queries 1, 2, 3 ... by position in the file, whatever their ids are.

    Args:
        by: how the judgements refer to queries, "ids" or "places". None uses ids if they match, and places, with a
            notice, if no id matches and all are between 1 and the number of queries.
    """
    if by is not None:
        require(by in JUDGED_BY, expected=" or ".join(JUDGED_BY), found=repr(by), fix="use one of them")
    known = set(queries.ids)
    unknown = [query for query in judgements if query not in known]
    by_place = {} if queries.skipped else {str(number): id for number, id in enumerate(queries.ids, start=1)}
    no_place = [query for query in judgements if query not in by_place]
    if by == "places" and no_place:
        raise InputError(
            expected=f"judgements that number the {len(queries):,} queries from 1",
            found=f"{queries.skipped:,} queries without text" if queries.skipped else f"query {brief(no_place[0])}",
            fix="use ids, or fix the queries file",
        )
    if by is None and unknown and not no_place and len(unknown) < len(judgements):
        raise InputError(
            expected="judgements that use the ids of the queries",
            found=f"query {brief(unknown[0])}, which is not an id, though others are",
            fix="use --judged-by places if they number the queries of the file, as in Cranfield, or --judged-by ids",
        )
    if by == "places" or (by is None and unknown and not no_place):
        if by is None:
            tell(
                f"no judged query is the id of a query (for example {brief(unknown[0])}), "
                "so they are read as positions in the queries file"
            )
        return {by_place[query]: gains for query, gains in judgements.items()}
    if judgements and len(unknown) == len(judgements):
        raise InputError(
            expected="judgements of the given queries",
            found=f"query {brief(unknown[0])}, which is not among them",
            fix="name the queries to which the judgements belong",
        )
    if not unknown:
        return judgements
    tell(f"{len(unknown):,} of {len(judgements):,} judged queries are not among the queries and are ignored")
    return {query: gains for query, gains in judgements.items() if query in known}


def _table_records(
    path: Path, text_column: str | None, option: str, encoding: str, without: Sequence[str] = ()
) -> Iterator[Record]:
    is_large = path.is_file() and suffix_of(path) == ".jsonl" and path.stat().st_size > _WHOLE
    rows = (
        typed_rows(TextLines(path, reading=EncodingSettings(encoding=encoding), may_drop=False).records())
        if is_large
        else read_table(path, encoding=encoding, without=without)
    )
    fix = f"name it with {option}"
    if suffix_of(path) in (".csv", ".tsv"):
        fix += "; the first line must name the columns"
    return _row_records(rows, f"'{shown(str(path))}'", text_column, fix, without)


def row_records(rows: Sequence[Mapping[str, object]]) -> Iterator[Record]:
    """The records of rows in memory, as of those of a .jsonl file."""
    numbered = ((f"row {number}", row) for number, row in enumerate(rows, start=1))
    return _row_records(typed_rows(numbered), "the rows", None, "call it text")


def _row_records(
    rows: Iterator[Row], source: str, text_column: str | None, fix: str, without: Sequence[str] = ()
) -> Iterator[Record]:
    """The records of the rows of a table.

    Args:
        source: the table, in messages.
        fix: what to do without a column of text.
        without: see `read_records`.
    """
    first = next(rows, None)
    if first is None:
        raise InputError(expected=f"rows in {source}", found="none", fix="name another file")
    columns = {plain_name(name): name for name in first.values}
    text = text_column or first_known(columns, PASSAGE_COLUMNS)
    if (text is None and not without) or (text is not None and text not in first.values):
        raise InputError(
            expected=f"a text column{f' {text!r}' if text else ''} in {source}",
            found=show_columns(first.values),
            fix=fix,
        )
    id_column = first_known(columns, ID_COLUMNS)
    title = columns.get(TITLE_COLUMN)
    for number, row in enumerate(itertools.chain([first], rows), start=1):
        if row.is_empty and not without:
            warn(f"{row.location}: skipped, no text in any column")
            continue
        for name in (text, id_column):
            if name is not None and name not in row.values:
                raise InputError(
                    expected=f"the column {name!r} in {row.location}", found=show_columns(row.values), fix="add it"
                )
        heading = row.values.get(title, "") if title not in (None, text) else ""
        id = row.values[id_column] if id_column else str(number)
        content = "" if text is None else _titled(heading, row.values[text])
        yield Record(id, content, row.location, row.values, id_column is None)


def folder_records(folder: Path, kind: str = "passages", encoding: str = UTF_8) -> Iterator[Record]:
    """The paragraphs of the .txt files of a folder and the folders in it, in sorted order, with ids and places.

    The id of a paragraph is the path of its file in the folder without the ending, and if the file has several, a colon
    and the line where it begins. Files of other kinds are counted in a line on stderr.
    """
    sources = [source for source in find_sources([folder]) if isinstance(source, Source | Skipped)]
    files = [Path(source.name) for source in sources if isinstance(source, Source) and source.kind == "text"]
    if not files:
        raise InputError(
            expected=f".txt files with {kind} in '{shown(str(folder))}'",
            found="none",
            fix=f"name a file of {kind}, or a folder of .txt files",
        )
    if len(files) < len(sources):
        tell(f"'{shown(str(folder))}': not .txt files, not read: {len(sources) - len(files):,}")
    for path in files:
        name = path.relative_to(folder).as_posix().partition(".txt")[0]
        paragraphs = list(_paragraphs(lines_of(file_text(path, kind=kind, may_be_blank=True, encoding=encoding))))
        for line, text in paragraphs:
            yield Record(name if len(paragraphs) == 1 else f"{name}:{line}", text, line_of(path, line))


def _paragraphs(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each paragraph on one line, with the number of its first line."""
    number = 0
    for is_text, part in itertools.groupby(lines, key=lambda line: bool(line.strip())):
        begin, of_paragraph = number + 1, list(part)
        number += len(of_paragraph)
        if is_text:
            yield begin, " ".join(" ".join(of_paragraph).split())


def _trec_records(path: Path, text: str) -> Iterator[Record]:
    for number, record in enumerate(_TREC_RECORD.finditer(text), start=1):
        location = line_of(path, number, "record")
        fields: dict[str, list[str]] = {}
        for field in _TREC_FIELD.finditer(record[2]):
            content = _TAG.sub(_tag_as_text, field[3] if field[2] is None else field[2])
            fields.setdefault(field[1].lower(), []).append(html.unescape(content))
        ids = fields.get("docno") or fields.get("num") or []
        id = _TREC_LABEL.sub("", ids[0]).strip() if ids else ""
        if not id or len(ids) > 1:
            reason = f"{len(ids)} of them" if id else "none"
            raise InputError(expected=f"one <docno> or <num> in {location}", found=reason, fix="fix the file")
        yield Record(id, _titled(" ".join(fields.get("title", [])), " ".join(fields.get("text", []))), location)


def _tag_as_text(tag: re.Match[str]) -> str:
    """An empty string for a tag that may occur inside a word, as in H<sub>2</sub>O; a space for others."""
    return "" if (tag[1] or "").lower() in _TAGS_IN_WORDS else " "


def _titled(title: str, text: str) -> str:
    title, text = " ".join(title.split()), " ".join(text.split())
    return text if text.startswith(title) else f"{title} {text}".strip()
