"""Pronouns with candidates: the tables of GAP, and JSON lines.

* A table of GAP has the columns Text, Pronoun, Pronoun-offset, A, A-offset, A-coref, B, B-offset and B-coref. Offsets
  count characters from 0; a coref is TRUE or FALSE, and at most one of the two is TRUE.
* A record of JSON is `{"text": ..., "pronoun": [start, end], "candidates": [[start, end], ...], "answer": 0}`. Spans
  count characters, the end exclusive; the answer is the number of the right candidate, or null if none is right. A span
  may also be an object with start and end, and with a text, which then has to be there.

Source: Webster et al. (2018), "Mind the GAP: A Balanced Corpus of Gendered Ambiguous Pronouns", for the tables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.tasks.datasets.cells import Row, show_columns
from bertsmith.tasks.datasets.examples import NEITHER, ExampleFile, MentionExample
from bertsmith.tasks.datasets.file_text import file_text, quoted, suffix_of
from bertsmith.tasks.datasets.records import json_records
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief, clean
from bertsmith.text.documents.encodings import UTF_8

RECORD = '{"text": ..., "pronoun": [20, 23], "candidates": [[0, 4], [11, 15]], "answer": 0}'
_NAMES = ("A", "B")
_INPUTS = ("Text", *(column for name in ("Pronoun", *_NAMES) for column in (name, f"{name}-offset")))
_GOLD = {"true": True, "false": False}

Span = tuple[int, int]


def read_mentions(path: Path, *, gold: bool = True, encoding: str = UTF_8) -> ExampleFile:
    """The pronouns of a file.

    Raises:
        InputError: a row is wrong, such as an offset where the text does not have that name; the message names it.
    """
    if suffix_of(path) in (".jsonl", ".json"):
        content = file_text(path, kind="pronouns with candidates", encoding=encoding)
        records = json_records(path, content, lines=suffix_of(path) == ".jsonl")
        examples = [
            mention_of(record, location, id=str(number), gold=gold) for number, (location, record) in enumerate(records)
        ]
    else:
        examples = [_of_gap(row, gold) for row in read_table(path, encoding=encoding) if not row.is_empty]
    return ExampleFile.of(examples, expected=f"pronouns with candidates in {quoted(path)}")


def mention_of(record: Any, location: str, *, id: str, gold: bool = False) -> MentionExample:
    """The pronoun of a record, see above; its "id", if it has one, replaces `id`."""
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise InputError(
            expected=f"a record with a text in {location}",
            found=brief(record),
            fix=f"write {RECORD}, or a table of GAP",
        )
    text, candidates = clean(record["text"]), record.get("candidates")
    if not isinstance(candidates, list | tuple) or not candidates:
        raise InputError(
            expected=f"a list of spans as 'candidates' in {location}", found=brief(candidates), fix=f"write {RECORD}"
        )
    return MentionExample(
        id=str(record.get("id", id)),
        text=text,
        pronoun=_span(record.get("pronoun"), text, "the pronoun", location),
        candidates=tuple(
            _span(span, text, f"candidate {number}", location) for number, span in enumerate(candidates, start=1)
        ),
        label=_answer(record, len(candidates), location) if gold else None,
        location=location,
    )


def require_mentions(example: MentionExample) -> None:
    """Checks that a pronoun and its candidates are in the text, apart, and different.

    Raises:
        InputError: they are not; the message names the row.
    """
    text, location = example.text, example.location
    if not text.strip():
        raise InputError.at(location, "a text with a pronoun", "an empty text", "fill it or remove the row")
    names = ["the pronoun", *(f"candidate {number}" for number in range(1, len(example.mentions)))]
    for name, (start, end) in zip(names, example.mentions, strict=True):
        if not (0 <= start < end <= len(text)) or not text[start:end].strip():
            blank = 0 <= start < end <= len(text)
            raise InputError(
                expected=f"{name} inside the {counted(len(text), 'character')} of the text in {location}",
                found=f"characters {start} to {end}{', which are blank' if blank else ''}",
                fix="correct the offsets: they count characters from 0, and the end is exclusive",
            )
    start, end = example.pronoun
    for name, (first, past) in zip(names[1:], example.candidates, strict=True):
        if first < end and start < past:
            raise InputError(
                expected=f"candidates apart from the pronoun in {location}",
                found=f"{name}, {brief(text[first:past])}, which overlaps the pronoun {brief(text[start:end])}",
                fix="correct the offsets, or leave this candidate out",
            )
    if len(set(example.candidates)) < len(example.candidates):
        raise InputError.at(location, "different candidates", "one of them twice", "leave one out")


def _of_gap(row: Row, gold: bool) -> MentionExample:
    needed = (*_INPUTS, *(f"{name}-coref" for name in _NAMES if gold))
    missing = [column for column in needed if column not in row.values]
    if missing:
        raise InputError(
            expected=f"the columns {', '.join(needed)} of GAP in {row.location}",
            found=show_columns(row.values),
            fix=f"add {', '.join(missing)}, or write JSON lines {RECORD}",
        )
    text = row.values["Text"]
    pronoun, *candidates = (_named(row, name) for name in ("Pronoun", *_NAMES))
    return MentionExample(
        id=row.values.get("ID") or row.location,
        text=text,
        pronoun=pronoun,
        candidates=tuple(candidates),
        label=_label_of_gap(row) if gold else None,
        location=row.location,
    )


def _named(row: Row, name: str) -> Span:
    """The span of a name of GAP, which is where its offset says."""
    text, words, offset = (row.values[column] for column in ("Text", name, f"{name}-offset"))
    if not offset.strip().isdecimal() or len(offset) > len(str(len(text))) + 1:
        raise InputError(
            expected=f"a number of characters as {name}-offset in {row.location}", found=brief(offset), fix="correct it"
        )
    start = int(offset)
    there = text[start : start + len(words)]
    if there != words or not words.strip():
        raise InputError(
            expected=f"{brief(words)} at {name}-offset {start} in {row.location}",
            found=brief(there) if there else "nothing there",
            fix="correct the offset, which counts characters from 0",
        )
    return start, start + len(words)


def _label_of_gap(row: Row) -> int:
    values = [row.values[f"{name}-coref"] for name in _NAMES]
    is_right = [_GOLD.get(value.strip().lower()) for value in values]
    if None in is_right or all(is_right):
        raise InputError(
            expected=f"TRUE or FALSE as A-coref and B-coref in {row.location}, and at most one TRUE",
            found=" and ".join(map(brief, values)),
            fix="correct them, or remove the row",
        )
    return is_right.index(True) if any(is_right) else NEITHER


def _span(value: Any, text: str, name: str, location: str) -> Span:
    borders: Sequence[Any] = ()
    if isinstance(value, Mapping):
        borders = (value.get("start"), value.get("end"))
    elif isinstance(value, list | tuple) and len(value) == 2:
        borders = value
    if not borders or any(type(border) is not int for border in borders):
        raise InputError(
            expected=f"start and end of {name} in {location}",
            found="none" if value is None else brief(value),
            fix=f"write {RECORD}",
        )
    start, end = borders
    stated = value.get("text") if isinstance(value, Mapping) else None
    if isinstance(stated, str) and text[max(0, start) : max(0, end)] != clean(stated):
        raise InputError(
            expected=f"{brief(stated)} as {name}, at {start} to {end}, in {location}",
            found=brief(text[max(0, start) : max(0, end)]),
            fix="correct the span: it counts characters from 0, and its end is exclusive",
        )
    return start, end


def _answer(record: Mapping[str, Any], count: int, location: str) -> int:
    answer = record.get("answer", "")
    if answer is None:
        return NEITHER
    if type(answer) is not int or not 0 <= answer < count:
        raise InputError(
            expected=f"the number of a candidate, from 0 to {count - 1}, or null as 'answer' in {location}",
            found=brief(answer) if "answer" in record else "none",
            fix="correct it; the candidates count from 0",
        )
    return answer
