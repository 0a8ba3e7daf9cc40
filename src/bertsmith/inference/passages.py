"""Passages, queries and judgements as they lie in files.

===================  ================================================================================
plain text           one a line; its id is the number of the line
.jsonl .csv .tsv     a column of text, one of ids if there is one (`id`, `_id`, `docid` ...), a title
.parquet             the same
TREC                 `<doc> <docno> <title> <text>`, `<top> <num> <title>`, whatever the name of the file
judgements           `query 0 passage gain` (TREC) or `query passage gain`, with or without a header
===================  ================================================================================

A title that the text does not begin with is put before it. Whoever has no text is skipped and counted.
"""

import dataclasses
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bertsmith.corpus.sources import shown
from bertsmith.errors import InputError
from bertsmith.progress import tell
from bertsmith.tasks.file_text import brief, file_text, line_of, lines_of, looks_like_json, suffix_of
from bertsmith.tasks.table_files import SUFFIXES, read_table, show_columns

ID_COLUMNS = "id _id docid doc_id docno pid passage_id qid query_id num".split()
TEXT_COLUMNS = (
    "text passage contents content body abstract document paragraph sentence query question message comment".split()
)
TITLE_COLUMN = "title"

Judgements = dict[str, dict[str, float]]
"""For each query by id, the gain of each judged passage by id."""

_TREC_START = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?(?:<\w+>\s*)?<(doc|top)\b", re.IGNORECASE)
_TREC_RECORD = re.compile(r"<(doc|top)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_TREC_FIELD = re.compile(r"<(docno|num|title|text)>(.*?)(?=<)", re.IGNORECASE | re.DOTALL)
_TREC_LABEL = re.compile(r"^\s*(?:Number|Topic)\s*:\s*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSet:
    """Texts with their ids, passages or queries.

    Attributes:
        ids: what the file calls each of them.
        texts: as many.
        skipped: how many had no text.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.ids)


def read_text_set(path: Path, *, what: str = "passages", text_column: str | None = None) -> TextSet:
    """The passages or queries of a file; how many were skipped is told.

    Args:
        what: what they are, for messages.
        text_column: the column of the text, where its name is not a usual one.

    Raises:
        InputError: the file is missing, empty, binary or damaged, has no column of text, or gives an id twice.
    """
    if suffix_of(path) in SUFFIXES:
        records = _table_records(path, text_column)
    else:
        text = file_text(path, what=what)
        if _TREC_START.match(text):
            records = _trec_records(path, text)
        elif looks_like_json(text):
            raise InputError(
                expected=f"{what} as plain text in '{shown(str(path))}'", found="JSON", fix="end its name in .jsonl"
            )
        else:
            records = (
                (str(number), line.strip(), line_of(path, number))
                for number, line in enumerate(lines_of(text), start=1)
            )
    texts: dict[str, str] = {}
    skipped = 0
    for id, text, place in records:
        if not text:
            skipped += 1
        elif id in texts:
            raise InputError(expected=f"an id of its own in {place}", found=f"{brief(id)} again", fix="rename one")
        else:
            texts[id] = text
    if not texts:
        raise InputError(
            expected=f"{what} in '{shown(str(path))}'", found=f"{skipped} without text", fix="name another file"
        )
    if skipped:
        tell(f"{skipped:,} of {skipped + len(texts):,} {what} have no text and are left out")
    return TextSet(ids=tuple(texts), texts=tuple(texts.values()), skipped=skipped)


def read_judgements(path: Path) -> Judgements:
    """The judged passages of each query; a negative gain, as Cranfield has, means not relevant and is 0.

    Raises:
        InputError: a line has another form, or judges a passage for a query twice.
    """
    found: Judgements = {}
    for number, line in enumerate(lines_of(file_text(path, what="judgements")), start=1):
        cells = line.split()
        if not cells:
            continue
        place = line_of(path, number)
        if len(cells) not in (3, 4):
            raise InputError(
                expected=f"`query 0 passage gain` or `query passage gain` in {place}",
                found=f"{len(cells)} columns",
                fix="name a file of judgements",
            )
        query, passage, said = cells[0], cells[-2], cells[-1]
        try:
            gain = max(0.0, float(said))
        except ValueError:
            if number == 1:
                continue  # the names of the columns
            raise InputError(expected=f"a number as gain in {place}", found=brief(said), fix="mend the line") from None
        if passage in found.setdefault(query, {}):
            raise InputError(
                expected=f"each passage once for a query, in {place}", found=f"{brief(passage)} again", fix="remove one"
            )
        found[query][passage] = gain
    return found


def judgements_for(judgements: Judgements, queries: TextSet) -> Judgements:
    """The judgements by the ids of the queries.

    The judgements of Cranfield count the queries 1, 2, 3 ... as they stand in the file, whatever ids they have there.
    That is taken where the judged queries are all between 1 and the number of queries and not all of them are ids; it
    is told.

    Raises:
        InputError: judged queries are unknown, and are no such numbers either.
    """
    known = set(queries.ids)
    unknown = [query for query in judgements if query not in known]
    if not unknown:
        return judgements
    by_place = {str(number): id for number, id in enumerate(queries.ids, start=1)}
    if queries.skipped or not all(query in by_place for query in judgements):
        if len(unknown) < len(judgements):
            tell(f"{len(unknown):,} of {len(judgements):,} judged queries are not among the queries and are left out")
            return {query: gains for query, gains in judgements.items() if query in known}
        raise InputError(
            expected="judgements of the queries that were given",
            found=f"query {brief(unknown[0])}, which is not among them",
            fix="name the queries that the judgements belong to",
        )
    tell(
        f"the judgements do not use the ids of the queries (no query {unknown[0]}), "
        "so their numbers are taken as places in the file of queries, as in Cranfield"
    )
    return {by_place[query]: gains for query, gains in judgements.items()}


def _table_records(path: Path, text_column: str | None) -> Iterator[tuple[str, str, str]]:
    rows = read_table(path)
    first = next(rows, None)
    if first is None:
        raise InputError(expected=f"rows in '{shown(str(path))}'", found="none", fix="name another file")
    columns = {name.strip().lower(): name for name in first.values}
    text = text_column or _first_of(TEXT_COLUMNS, columns) or columns.get(TITLE_COLUMN)
    if text is None or text not in first.values:
        raise InputError(
            expected=f"a column of text{f' {text!r}' if text else ''} in '{shown(str(path))}'",
            found=show_columns(first.values),
            fix="name it with --text-column",
        )
    id_column = _first_of(ID_COLUMNS, columns)
    title = columns.get(TITLE_COLUMN)
    for number, row in enumerate(itertools.chain([first], rows), start=1):
        for name in (text, id_column):
            if name is not None and name not in row.values:
                raise InputError(
                    expected=f"the column {name!r} in {row.place}", found=show_columns(row.values), fix="add it"
                )
        heading = row.values.get(title, "") if title not in (None, text) else ""
        yield row.values[id_column] if id_column else str(number), _titled(heading, row.values[text]), row.place


def _trec_records(path: Path, text: str) -> Iterator[tuple[str, str, str]]:
    for number, record in enumerate(_TREC_RECORD.finditer(text), start=1):
        place = line_of(path, number, "record")
        fields: Mapping[str, str] = {
            field[1].lower(): html.unescape(field[2]) for field in _TREC_FIELD.finditer(f"{record[2]}<")
        }
        id = _TREC_LABEL.sub("", fields.get("docno", fields.get("num", ""))).strip()
        if not id:
            raise InputError(expected=f"<docno> or <num> in {place}", found="none", fix="mend the file")
        yield id, _titled(fields.get("title", ""), fields.get("text", "")), place


def _titled(title: str, text: str) -> str:
    """Both in one, on one line."""
    title, text = " ".join(title.split()), " ".join(text.split())
    return text if text.startswith(title) else f"{title} {text}".strip()


def _first_of(names: Iterable[str], columns: Mapping[str, str]) -> str | None:
    return next((columns[name] for name in names if name in columns), None)
