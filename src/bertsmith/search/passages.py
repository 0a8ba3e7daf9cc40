"""Passages, queries and judgements as they lie in files.

===================  ================================================================================
plain text           one a line; its id is the number of the line
.jsonl .csv .tsv     a column of text, one of ids if there is one (`id`, `_id`, `docid` ...), a title
.parquet             the same
TREC                 `<doc> <docno> <title> <text>`, `<top> <num> <title>`, whatever the name of the file
judgements           `query 0 passage gain` (TREC) or `query passage gain`, with or without a header
===================  ================================================================================

A title that the text does not begin with is put before it. Whoever has no text is skipped and counted. A field of TREC
is read up to its closing tag, without the tags in it; fields that come again are joined. One that is never closed, as
in topics, ends at the next tag.
"""

import dataclasses
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bertsmith.corpus.sources import shown
from bertsmith.datasets.file_text import brief, file_text, line_of, lines_of, looks_like_json, suffix_of
from bertsmith.datasets.tables import SUFFIXES, read_table, show_columns
from bertsmith.errors import InputError
from bertsmith.progress import counted, tell
from bertsmith.settings import require

ID_COLUMNS = "id _id docid doc_id docno pid passage_id qid query_id num".split()
TEXT_COLUMNS = (
    "text passage contents content body abstract document paragraph sentence query question message comment".split()
)
TITLE_COLUMN = "title"

JUDGED_BY = ("ids", "places")

Judgements = dict[str, dict[str, float]]
"""For each query by id, the gain of each judged passage by id."""

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


def read_text_set(
    path: Path, *, what: str = "passages", text_column: str | None = None, option: str = "--text-column"
) -> TextSet:
    """The passages or queries of a file; how many were skipped is told.

    Args:
        what: what they are, for messages.
        text_column: the column of the text, where its name is not a usual one.
        option: what names that column, for messages.

    Raises:
        InputError: the file is missing, empty, binary or damaged, has no column of text, or gives an id twice; or a
            column is named and the file has none.
    """
    if suffix_of(path) in SUFFIXES:
        records = _table_records(path, text_column, option)
    elif text_column is not None:
        raise InputError(
            expected=f"a file of columns ({', '.join(SUFFIXES)}), as {option} is given",
            found=f"'{shown(str(path))}'",
            fix=f"leave {option} out",
        )
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
                found=counted(len(cells), "column"),
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


def judgements_for(judgements: Judgements, queries: TextSet, by: str | None = None) -> Judgements:
    """The judgements by the ids of the queries.

    The judgements of Cranfield count the queries 1, 2, 3 ... as they stand in the file, whatever ids they have there.

    Args:
        by: "ids" or "places", what the judgements call the queries by. None takes ids where they match, and places,
            which is told, where no id matches and all are between 1 and the number of queries.

    Raises:
        ConfigError: `by` is something else.
        InputError: no judged query is known, places are asked for and a query is no place or was skipped, or it is
            not clear which of the two is meant: some of them are ids, and all of them could be places.
    """
    require(by in (None, *JUDGED_BY), expected=f"{' or '.join(JUDGED_BY)}", found=repr(by), fix="use one of the two")
    known = set(queries.ids)
    unknown = [query for query in judgements if query not in known]
    by_place = {} if queries.skipped else {str(number): id for number, id in enumerate(queries.ids, start=1)}
    no_place = [query for query in judgements if query not in by_place]
    if by == "places" and no_place:
        raise InputError(
            expected=f"judgements that count the {len(queries):,} queries from 1",
            found=f"{queries.skipped:,} queries without text" if queries.skipped else f"query {brief(no_place[0])}",
            fix="use ids, or mend the file of queries",
        )
    if by is None and unknown and not no_place and len(unknown) < len(judgements):
        raise InputError(
            expected="judgements that use the ids of the queries",
            found=f"query {brief(unknown[0])}, which is no id, though others are",
            fix="say --judged-by places if they count the queries of the file, as in Cranfield, or --judged-by ids",
        )
    if by == "places" or (by is None and unknown and not no_place):
        if by is None:
            tell(
                f"no judged query is an id of the queries (as {brief(unknown[0])}), "
                "so they are taken as places in the file of queries"
            )
        return {by_place[query]: gains for query, gains in judgements.items()}
    if judgements and len(unknown) == len(judgements):
        raise InputError(
            expected="judgements of the queries that were given",
            found=f"query {brief(unknown[0])}, which is not among them",
            fix="name the queries that the judgements belong to",
        )
    if not unknown:
        return judgements
    tell(f"{len(unknown):,} of {len(judgements):,} judged queries are not among the queries and are left out")
    return {query: gains for query, gains in judgements.items() if query in known}


def _table_records(path: Path, text_column: str | None, option: str) -> Iterator[tuple[str, str, str]]:
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
            fix=f"name it with {option}",
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
        fields: dict[str, list[str]] = {}
        for field in _TREC_FIELD.finditer(record[2]):
            content = _TAG.sub(_tag_as_text, field[3] if field[2] is None else field[2])
            fields.setdefault(field[1].lower(), []).append(html.unescape(content))
        ids = fields.get("docno") or fields.get("num") or []
        id = _TREC_LABEL.sub("", ids[0]).strip() if ids else ""
        if not id or len(ids) > 1:
            found = f"{len(ids)} of them" if id else "none"
            raise InputError(expected=f"one <docno> or <num> in {place}", found=found, fix="mend the file")
        yield id, _titled(" ".join(fields.get("title", [])), " ".join(fields.get("text", []))), place


def _tag_as_text(tag: re.Match[str]) -> str:
    """Nothing for a tag that may stand in a word, as in H<sub>2</sub>O; a space for others."""
    return "" if (tag[1] or "").lower() in _TAGS_IN_WORDS else " "


def _titled(title: str, text: str) -> str:
    """Both in one, on one line."""
    title, text = " ".join(title.split()), " ".join(text.split())
    return text if text.startswith(title) else f"{title} {text}".strip()


def _first_of(names: Iterable[str], columns: Mapping[str, str]) -> str | None:
    return next((columns[name] for name in names if name in columns), None)
