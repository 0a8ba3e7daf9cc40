"""Tables about word senses: words in texts, with their senses or without, and glosses of senses.

::

    lemma,text,sense
    bank,They walked along the [[bank]].,bank_river

    lemma,sense,gloss,pos
    bank,bank_river,sloping land beside a body of water,noun

The place of a word in its text is marked with double brackets, or given as the number of the word among those between
spaces (`index`, from 0) or as characters (`start` and `end`, one past the last); a word that occurs once needs none.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bertsmith.base.core.errors import InputError
from bertsmith.inference.search.senses import Occurrence, occurrences_in
from bertsmith.tasks.datasets.cells import Row, first_known, missing_column, plain_name
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.label_cells import gold_of_cell
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens

# The usual names of columns, the preferred one first.
_TEXTS, _LEMMAS, _SENSES, _GLOSSES = (
    ("text", "sentence", "context"),
    ("lemma", "word", "target", "target_word"),
    ("sense", "senses", "sense_key", "synset", "label"),
    ("gloss", "definition"),
)
_SPELLINGS, _ORDINALS = ("word", "target", "target_word"), ("index", "position")
_MARKED = re.compile(r"\[\[(.+?)\]\]", re.DOTALL)
_POS = {"noun": "n", "verb": "v", "adj": "a", "adjective": "a", "s": "a", "adv": "r", "adverb": "r"}


class OfWord(Protocol):
    """What belongs to a word: its lemma, in lower case, and its part of speech, "" if unknown."""

    @property
    def lemma(self) -> str:
        """The lemma."""

    @property
    def pos(self) -> str:
        """The part of speech."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordInText:
    """A word in a text.

    Attributes:
        id: that of its row, or the number of the row, from 1.
        senses: all that are right; empty if unknown.
        location: in its file, for messages.
    """

    id: str
    lemma: str
    pos: str = ""
    occurrence: Occurrence
    senses: tuple[str, ...] = ()
    location: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gloss:
    """What a sense of a word is, in words."""

    lemma: str
    pos: str = ""
    sense: str
    text: str


class ByWord:
    """The indices of items by their words; those of a known part of speech fit any word without one, and vice versa."""

    def __init__(self, items: Sequence[OfWord]) -> None:
        self._items = items
        self._indices: dict[str, list[int]] = {}
        for index, item in enumerate(items):
            self._indices.setdefault(item.lemma, []).append(index)

    def of(self, word: OfWord) -> list[int]:
        """The indices of the items of a word, in order."""
        indices = self._indices.get(word.lemma, [])
        return [index for index in indices if "" in (word.pos, other := self._items[index].pos) or word.pos == other]


def read_words(path: Path, rules: TextRules, *, gold: bool, encoding: str = UTF_8) -> list[WordInText]:
    """The words of a table, at least one.

    Args:
        rules: how a text is split into words, where a word has to be found in it.
        gold: each row needs a sense, or several that are all right; otherwise senses are not read.

    Raises:
        InputError: a column is missing, or a row has no word, no sense or no place of the word.
    """
    wanted = [_TEXTS, *([_SENSES] if gold else [])]
    rows = _rows(path, "words", encoding)
    columns = _columns(path, rows, wanted, (*_LEMMAS, *_SPELLINGS, *_ORDINALS, "start", "end", "pos", "id"))
    words = []
    for number, row in enumerate(rows, start=1):
        cells = {name: row.values.get(column, "").strip() for name, column in columns.items()}
        text = row.values.get(_column(columns, _TEXTS), "")
        senses: tuple[str, ...] = ()
        if gold:
            listed = gold_of_cell(_cell(cells, _SENSES), row.location, "labels")
            senses = listed if isinstance(listed, tuple) else ()
            if not senses:
                raise InputError.at(row.location, "a sense", "none", "add it, or remove the row")
        lemma, spelling = _cell(cells, _LEMMAS), _cell(cells, _SPELLINGS) or _cell(cells, _LEMMAS)
        occurrence = _occurrence(text, cells, spelling, rules, row.location)
        lemma = lemma or occurrence.sentence[occurrence.start : occurrence.end]
        words.append(
            WordInText(
                id=cells.get("id") or str(number),
                lemma=_plain_lemma(lemma),
                pos=_plain_pos(cells.get("pos", "")),
                occurrence=occurrence,
                senses=senses,
                location=row.location,
            )
        )
    return words


def read_glosses(path: Path, *, encoding: str = UTF_8) -> list[Gloss]:
    """The glosses of a table in file order: the first one of a word counts as its first sense.

    Raises:
        InputError: a column is missing, a row has an empty cell, or a word has a sense twice.
    """
    rows = _rows(path, "glosses", encoding)
    columns = _columns(path, rows, [_LEMMAS, _SENSES, _GLOSSES], ("pos",))
    glosses, seen = [], set[tuple[str, str, str]]()
    for row in rows:
        cells = {name: row.values.get(column, "").strip() for name, column in columns.items()}
        parts = [_cell(cells, names) for names in (_LEMMAS, _SENSES, _GLOSSES)]
        if not all(parts):
            raise InputError.at(row.location, "a lemma, a sense and a gloss", "an empty cell", "fill it")
        lemma, sense, text = parts
        gloss = Gloss(lemma=_plain_lemma(lemma), pos=_plain_pos(cells.get("pos", "")), sense=sense, text=text)
        key = (gloss.lemma, gloss.pos, gloss.sense)
        if key in seen:
            raise InputError.at(row.location, "each sense of a word once", brief(sense), "remove the row")
        seen.add(key)
        glosses.append(gloss)
    return glosses


def _rows(path: Path, kind: str, encoding: str) -> list[Row]:
    """The rows of a table that are not empty, at least one."""
    rows = [row for row in read_table(path, encoding=encoding) if not row.is_empty]
    if not rows:
        raise InputError(expected=f"rows with {kind} in {quoted(path)}", found="none", fix="name another file")
    return rows


def _columns(
    path: Path, rows: Sequence[Row], wanted: Sequence[tuple[str, ...]], others: Sequence[str]
) -> Mapping[str, str]:
    """The columns of a table that are read, by their usual names.

    Args:
        wanted: the usual names of columns of which each group must have one.
        others: those that may be missing.
    """
    named = {plain_name(name): name for row in rows for name in row.values}
    for names in wanted:
        if first_known(named, names) is None:
            raise missing_column(names[0], quoted(path), named.values(), is_fixed=True)
    return {name: named[name] for name in (*(name for names in wanted for name in names), *others) if name in named}


def _column(columns: Mapping[str, str], names: Sequence[str]) -> str:
    return next(columns[name] for name in names if name in columns)


def _cell(cells: Mapping[str, str], names: Sequence[str]) -> str:
    """The cell under the first of some names that there is."""
    return next((cells[name] for name in names if name in cells), "")


def _plain_lemma(lemma: str) -> str:
    return " ".join(lemma.lower().replace("_", " ").split())


def _plain_pos(pos: str) -> str:
    """A part of speech as one letter of WordNet's where it is one of its own, in any spelling."""
    return _POS.get(pos.lower(), pos.lower())


def _occurrence(text: str, cells: Mapping[str, str], spelling: str, rules: TextRules, location: str) -> Occurrence:
    """The word in its text, as the row says where it is."""
    marks, ordinal = list(_MARKED.finditer(text)), _cell(cells, _ORDINALS)
    if len(marks) == 1:
        if ordinal or cells.get("start"):
            column = "start" if cells.get("start") else next(name for name in _ORDINALS if name in cells)
            both = f"{brief(marks[0][0])} and a column {column}"
            raise InputError.at(location, "one way to say which word it is", both, "remove the brackets or the column")
        (mark,) = marks
        text = text[: mark.start()] + mark[1] + text[mark.end() :]
        return _checked(text, mark.start(), mark.start() + len(mark[1]), location)
    if ordinal:
        places = [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]
        number = _number(ordinal, "index", location)
        if number >= len(places):
            raise InputError.at(location, f"an index below {len(places)}, the words of the text", ordinal, "correct it")
        return _checked(text, *places[number], location)
    if cells.get("start"):
        start, end = (_number(cells.get(name, ""), name, location) for name in ("start", "end"))
        return _checked(text, start, end, location)
    parts = basic_tokens(spelling.replace("_", " "), rules)
    if not parts:
        raise InputError.at(location, "a word", "none", "add a column lemma, or mark the word as [[word]] in the text")
    several = occurrences_in(text, parts, rules)
    if len(several) != 1:
        raise InputError.at(
            location,
            f"{brief(spelling)} once in the text",
            f"{len(several)} times" if several else "no such word",
            "mark it as [[word]] in the text, or add a column index or start and end",
        )
    return several[0]


def _number(cell: str, name: str, location: str) -> int:
    if not re.fullmatch(r"\d{1,9}(\.0)?", cell):
        raise InputError.at(location, f"a whole number from 0 as {name}", brief(cell), "correct it")
    return int(cell.partition(".")[0])


def _checked(text: str, start: int, end: int, location: str) -> Occurrence:
    if not (start < end <= len(text) and text[start:end].strip()):
        raise InputError.at(
            location,
            f"a word at its start and end, within {len(text)} characters",
            f"{start} to {end}",
            "correct them: the end is one past the last character, counted in code points",
        )
    return Occurrence(sentence=text, start=start, end=end)
