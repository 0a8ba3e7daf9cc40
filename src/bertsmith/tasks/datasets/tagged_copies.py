"""A copy of a file of sentences with other tags or entities, in the form of the file.

=====================================================  ==================================================
lines of a word and its tag                            the same lines; only tags differ
JSON of texts with marked spans, or of words and tags  the same records; only spans, or tags, differ
JSON of words and their entities                       the same records; only entities differ
a table with a word in each row                        the table as CSV
Label Studio, brat, BioC, PubTator, Parquet            JSON lines of texts with spans, or of words and tags
tags, if entities share words now                      JSON lines of words and entities
=====================================================  ==================================================
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bertsmith.base.core.progress import quiet, tell
from bertsmith.tasks.datasets.cells import plain_name
from bertsmith.tasks.datasets.conll import with_tags
from bertsmith.tasks.datasets.examples import MARKED, EntityExample, TaggedExample, WordSpan
from bertsmith.tasks.datasets.file_text import file_head, quoted, suffix_of
from bertsmith.tasks.datasets.label_cells import BORDERS
from bertsmith.tasks.datasets.label_spelling import in_scheme
from bertsmith.tasks.datasets.labels import scheme_of_names
from bertsmith.tasks.datasets.marked_texts import OWN_SCHEME, words_of_spans
from bertsmith.tasks.datasets.records import is_task
from bertsmith.tasks.datasets.spans import SPAN_KEYS, span_of
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.tagged_files import COLUMNS, RECORDS, WORD_TABLE, form_of, read_tagged, tagged_records
from bertsmith.tasks.datasets.tagged_records import (
    entities_of_record,
    has_entities,
    has_words,
    tag_column_of,
    tag_key_of,
)
from bertsmith.tasks.metrics.entities import entity_spans, overlap_of, scheme_tags
from bertsmith.text.documents.encodings import UTF_8


def tagged_copy(
    path: Path,
    task: str,
    sentences: Sequence[TaggedExample],
    tags: Sequence[Sequence[Any]],
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    word_column: int = 0,
    tag_column: int = -1,
    encoding: str = UTF_8,
) -> tuple[str, str]:
    """The text of a copy of a file with other tags, and the extension of its form.

    Args:
        sentences: those of the file, with the tags that were read.
        tags: the tags of the copy, one for each word of each sentence; the entities of each sentence for a task in
            `MARKED`.
        text_column, label_column, word_column, tag_column, encoding: as for `read_tagged`.
    """
    columns: Any = {
        "text_column": text_column, "label_column": label_column, "word_column": word_column, "tag_column": tag_column,
        "encoding": encoding,
    }  # fmt: skip
    with quiet():  # what is said of the file was said before
        form = form_of(path, encoding=encoding)
        records = list(tagged_records(path, encoding)) if form == RECORDS else []
        has_tags = form in (COLUMNS, WORD_TABLE) or any(has_words(r) and not has_entities(r) for _, r in records[:1])
        if has_tags and task in MARKED and overlap_of(tags) == "none":
            tagged = cast("Sequence[TaggedExample]", in_scheme(read_tagged("ner", path, **columns).examples))
            return tagged_copy(path, "ner", tagged, _tags_of(tagged, tags), **columns)
        has_form = not has_tags or task not in MARKED  # which the labels can have
        raw = cast("Sequence[TaggedExample]", read_tagged(task, path, **columns).examples)
        # Tags of BILOU, for example, were read as those of IOBES.
        names = dict(
            pair
            for sentence, of_file in zip(sentences, raw, strict=True)
            for pair in zip(sentence.tags or (), of_file.tags or (), strict=True)
        )
        changed = {
            of_file.location: [names.get(label, label) for label in row]
            for sentence, of_file, row in zip(sentences, raw, tags, strict=True)
            if tuple(row) != _labels(sentence)
        }
        flat = [tag for of_file in raw for tag in changed.get(of_file.location, _labels(of_file))]
        if form == COLUMNS and has_form:
            text = with_tags(path, flat, word_column=word_column, tag_column=tag_column, task=task, encoding=encoding)
            return text, suffix_of(path) or ".conll"
        if form == WORD_TABLE and has_form:
            return _table(path, flat, task, label_column, encoding), ".csv"
        if records and has_form and not is_task(records[0][1]):
            by_location = {of_file.location: of_file for of_file in raw}
            sample: Any = next((items[0] for _, record in records if (items := _spans(record))), {})
            values = [
                _changed(record, by_location[location], changed[location], task, label_column, sample)
                if location in changed
                else record
                for location, record in records
            ]
            is_list = suffix_of(path) != ".jsonl" and file_head(path, encoding=encoding).lstrip().startswith("[")
            return (_json(values) + "\n" if is_list else _lines(values)), suffix_of(path) or ".jsonl"
    tell(f"{quoted(path)}: the corrected copy is written as JSON lines")
    return _lines(_record(of_file, changed.get(of_file.location, _labels(of_file)), task) for of_file in raw), ".jsonl"


def _labels(sentence: TaggedExample) -> tuple[Any, ...]:
    """The entities of a sentence, or its tags."""
    return sentence.entities if isinstance(sentence, EntityExample) else sentence.tags or ()


def _entities(labels: Sequence[Any]) -> set[tuple[int, int, str]]:
    """Entities, or those that tags mark."""
    if all(isinstance(label, WordSpan) for label in labels):
        return {(start, end, label) for start, end, label in labels}
    return {(start, end, kind) for kind, start, end in entity_spans(labels, OWN_SCHEME)}


def _tags_of(tagged: Sequence[TaggedExample], entities: Sequence[Sequence[WordSpan]]) -> list[Sequence[str]]:
    """The tags of entities that share no words, in the scheme of a file; those of the file where these are the same."""
    scheme, result = scheme_of_names(tagged), list[Sequence[str]]()
    for sentence, spans in zip(tagged, entities, strict=True):
        tags = sentence.tags or ()
        before = entity_spans(tags, scheme)
        unnamed = {(start, end) for kind, start, end in before if not kind}
        after = [("" if (start, end) in unnamed else label, start, end) for start, end, label in spans]
        result.append(tags if after == before else scheme_tags(after, len(sentence.words), scheme))
    return result


def _table(path: Path, tags: Iterable[str], task: str, label_column: str | None, encoding: str) -> str:
    """A table of words with other tags, as CSV."""
    rows, left = list(read_table(path, encoding=encoding)), iter(tags)
    names = list(rows[0].values)
    tag_at = tag_column_of(path, {plain_name(name): name for name in names}, task, label_column)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = row.values if row.is_empty else {**row.values, tag_at: next(left)}
        writer.writerow([values.get(name, "") for name in names])
    return stream.getvalue()


def _changed(
    record: Any, sentence: TaggedExample, tags: Sequence[Any], task: str, label_column: str | None, sample: Any
) -> Any:
    """A record with other tags or entities, or with the spans that they mark.

    Args:
        sample: a span of the file, in whose form new ones are written; empty if there is none.
    """
    if has_entities(record) and task in MARKED:
        key, entities = entities_of_record(record, sentence.words, sentence.location)
        new = [_entity(span, sample, is_last=key == "ner") for span in sorted(_entities(tags) - {*entities})]
        pairs = zip(record[key], entities, strict=True)
        return {**record, key: [*(item for item, span in pairs if span in _entities(tags)), *new]}
    if has_words(record):
        return {**record, tag_key_of(record, task, label_column, sentence.location): list(tags)}
    if isinstance(record, list):  # of spaCy
        return [record[0], _changed(record[1], sentence, tags, task, label_column, sample)]
    key = next(key for key in SPAN_KEYS if record.get(key) is not None)
    text, items = sentence.text or "", record[key]
    words, _ = words_of_spans(text, sentence, [span_of(item, text, sentence.location) for item in items])
    wanted = _entities(tags)
    kept = [
        (start, item) for (start, end, kind), item in zip(words, items, strict=True) if (start, end, kind) in wanted
    ]
    new = [(span[0], _item(sentence, span, sample)) for span in sorted(wanted - {tuple(span) for span in words})]
    return {**record, key: [item for _, item in sorted([*kept, *new], key=lambda pair: pair[0])]}


def _spans(record: Any) -> Sequence[Any]:
    """The marked spans of a record, or of the pair of a text and a record."""
    values = record[1] if isinstance(record, list) and len(record) > 1 else record
    if not isinstance(values, dict):
        return ()
    return next((values[key] for key in (*SPAN_KEYS, "ner") if isinstance(values.get(key), list)), ())


def _item(sentence: TaggedExample, span: tuple[int, int, str], sample: Any) -> Any:
    """A marked span, as a list or an object with the keys of another one of the file."""
    assert sentence.offsets is not None, "the words of a text"
    start, end = sentence.offsets[span[0]][0], sentence.offsets[span[1] - 1][1]
    if isinstance(sample, list):
        return [start, end, span[2]]
    first, last = next((keys for keys in BORDERS if keys[0] in sample), BORDERS[0])
    return {first: start, last: end, **({"labels": [span[2]]} if "labels" in sample else {"label": span[2]})}


def _entity(span: tuple[int, int, str], sample: Any, *, is_last: bool) -> Any:
    """An entity of words, as a list or an object with the keys of another one of the file."""
    start, end, label = span
    if isinstance(sample, list):
        return [start, end - is_last, label]
    return {"start": start, "end": end - is_last, ("type" if "type" in sample else "label"): label}


def _record(sentence: TaggedExample, tags: Sequence[Any], task: str) -> Mapping[str, Any]:
    """A sentence as a record."""
    if sentence.offsets is None and task in MARKED:
        return {"tokens": list(sentence.words), "entities": sorted(_entities(tags))}
    if sentence.offsets is None:
        return {"tokens": list(sentence.words), f"{task}_tags": list(tags)}
    spans = [_item(sentence, span, {}) for span in sorted(_entities(tags))]
    return {"text": sentence.text, "spans": spans}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(values: Iterable[Any]) -> str:
    return "".join(f"{_json(value)}\n" for value in values)
