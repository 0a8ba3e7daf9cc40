"""Reader for texts whose entities are marked by character offsets, as annotation tools export them.

Records of JSON or rows of Parquet: `{"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}`. The spans may
also be named `entities` or `label(s)` and be written `[0, 4, "PER"]`, as by Prodigy, spaCy and Doccano; a record may be
the pair `[text, {"entities": ...}]` of spaCy. The other format is the JSON export of Label Studio: tasks with `data`
and `annotations`. Ends are exclusive, and characters are code points.

Texts are split into words as in prediction. A span that cuts a word is widened to its ends, and listed on stderr.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import warn
from bertsmith.tasks.datasets.examples import ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import file_head, file_text, quoted, suffix_of
from bertsmith.tasks.datasets.label_cells import BORDERS, LONGEST_LABEL
from bertsmith.tasks.datasets.marked_texts import (
    NO_WORDS,
    OWN_SCHEME,
    MarkedSpan,
    MarkedText,
    require_text,
    sentences_of,
    words_of,
)
from bertsmith.tasks.datasets.records import annotations_of, is_task, json_records, rejection, require_equal, results_of
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json
from bertsmith.text.documents.encodings import UTF_8

SUFFIXES = (".jsonl", ".json")
SPAN_KEYS = ("spans", "entities", "label", "labels")


def has_spans(path: Path, *, encoding: str = UTF_8) -> bool:
    """Whether a file is JSON, by its extension or its first characters."""
    if suffix_of(path) in SUFFIXES:
        return True
    return looks_like_json(file_head(path, encoding=encoding))


def read_spans(
    path: Path,
    *,
    text_column: str | None = None,
    scheme: str = OWN_SCHEME,
    gold: bool = True,
    records: Iterable[tuple[str, Any]] | None = None,
) -> ExampleFile:
    """The texts of a file as sentences with tags; each text is a document.

    Texts without an annotation and texts that the annotator rejected are skipped.

    Args:
        gold: whether spans are read; otherwise sentences have no tags, and only texts without words are skipped.
    """
    if records is None:
        content = file_text(path, kind="texts with marked spans")
        records = json_records(path, content, lines=suffix_of(path) == ".jsonl")
    file = quoted(path)
    if not gold:
        return _plain_sentences(file, records, text_column)
    unread = Counter[str]()
    result = sentences_of(
        file,
        (_marked(record, location, text_column, unread) for location, record in records),
        scheme=scheme,
        fix=f"annotate them, or name the spans {', '.join(SPAN_KEYS[:2])} or {SPAN_KEYS[2]}",
    )
    if unread:
        warn(f"{file}: results of other types are not read: {', '.join(f'{n:,} {kind}' for kind, n in unread.items())}")
    return result


def _plain_sentences(file: str, records: Iterable[tuple[str, Any]], text_column: str | None) -> ExampleFile:
    """The texts of records as sentences without tags."""
    examples, skipped = list[TaggedExample](), list[tuple[str, str]]()
    for location, record in records:
        values = _values_of(record, location, text_column)
        values = values["data"] if is_task(values) else values
        text = "" if values.get(text_column or "text", "") is None else text_of(values, location, text_column)
        sentence = words_of(text, id=str(len(examples)), location=location)
        if sentence.words:
            examples.append(dataclasses.replace(sentence, document=len(examples)))
        else:
            skipped.append((location, NO_WORDS))
    return ExampleFile.of(examples, skipped, expected=f"texts with words in {file}")


def _values_of(record: Any, location: str, text_column: str | None) -> dict[str, Any]:
    """A record by its keys."""
    if isinstance(record, list) and len(record) == 2 and isinstance(record[0], str) and isinstance(record[1], dict):
        record = {**record[1], text_column or "text": record[0]}
    if not isinstance(record, dict):
        raise InputError(
            expected=f"a record with a text and its spans in {location}",
            found=brief(record),
            fix='write {"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}, or rename a file with one '
            "JSON list to end in .json",
        )
    return record


def _marked(record: Any, location: str, text_column: str | None, unread: "Counter[str]") -> MarkedText:
    """The text and the spans of a record; `unread` counts the results of Label Studio that are not spans."""
    record = _values_of(record, location, text_column)
    if is_task(record):
        text = text_of(record["data"], location, text_column)
        kept, skipped = annotations_of(record, location)
        parts = [
            sorted(_results(text, annotation, location, Counter() if number else unread))
            for number, annotation in enumerate(kept)
        ]
        return MarkedText(location, text, tuple(require_equal(parts, location)) if parts else (), skipped)
    text = text_of(record, location, text_column)
    answer = record.get("answer", "accept")
    if answer != "accept":
        return MarkedText(location, skipped=rejection(record) or f"the answer {brief(answer)} of the annotator")
    keys = [key for key in SPAN_KEYS if record.get(key) is not None]
    if not keys:
        return MarkedText(location, skipped="no spans")
    if len(keys) > 1:
        raise InputError.at(
            location, "one list of spans", " and ".join(map(repr, keys)), "remove all but one of these keys"
        )
    items = list_of(record[keys[0]], location, keys[0])
    return MarkedText(location, text, tuple(span_of(item, text, location) for item in items))


def _results(text: str, annotation: Mapping[str, Any], location: str, unread: "Counter[str]") -> Iterator[MarkedSpan]:
    for result in results_of(annotation, location):
        value = result.get("value") if isinstance(result, dict) else None
        if isinstance(value, dict) and "labels" in value and "start" in value:
            yield span_of(value, text, location)
        else:
            unread[str(result.get("type", "unnamed")) if isinstance(result, dict) else "unnamed"] += 1


def span_of(item: Any, text: str, location: str) -> MarkedSpan:
    """A span of a record, as an object or as a list of start, end and label."""
    values: Sequence[Any] = ()
    if isinstance(item, list) and len(item) == 3:
        values = item
    elif isinstance(item, dict):
        first, last = next((keys for keys in BORDERS if keys[0] in item), BORDERS[0])
        labels = item.get("labels", [item.get("label")])
        single_label = labels[0] if isinstance(labels, list) and len(labels) == 1 else None
        values = (item.get(first), item.get(last), single_label)
    label = clean(values[2]).strip() if values and isinstance(values[2], str) else ""
    is_name = bool(label) and len(label) <= LONGEST_LABEL and label.isprintable()
    if not is_name or any(type(border) is not int for border in values[:2]):
        raise InputError(
            expected=f"spans with start, end and one label in {location}",
            found=brief(item),
            fix='write {"start": 0, "end": 4, "label": "PER"} or [0, 4, "PER"]',
        )
    span = MarkedSpan(values[0], values[1], label)
    stated = item.get("text") if isinstance(item, dict) else None
    if isinstance(stated, str):
        require_text(text, span, stated, location)
    return span


def text_of(values: Mapping[str, Any], location: str, text_column: str | None) -> str:
    """The text of a record."""
    text = values.get(text_column or "text")
    if not isinstance(text, str):
        keys = ", ".join(brief(key) for key in list(values)[:8])
        raise InputError(
            expected=f"a text under the key {text_column or 'text'!r} in {location}",
            found=brief(text) if text is not None else f"the keys {keys}" if keys else "an empty record",
            fix="name the key with --text-column, or correct the record",
        )
    return clean(text)


def list_of(value: Any, location: str, key: str) -> Sequence[Any]:
    """The list of spans under a key; empty if there is none."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(
            expected=f"a list of spans under {key!r} in {location}",
            found=brief(value),
            fix="for one label per text, use --task classification; else write a list of spans",
        )
    return value
