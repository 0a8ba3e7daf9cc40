"""Reader for relations between two entities of a text: classes of texts in which marks replace the two entities.

* JSON lines (or one JSON list) of records `{"text": ..., "spans": [one, other], "label": ...}`. The spans are written
  as for `datasets.spans`, under `spans` or `entities`, and the relation is under `label` or `relation`. Each of the two
  entities becomes `@TYPE$`, so that a model learns how the words around them relate them, and not which entities are
  often related.
* Tables of texts that are marked already, with a label, like the public files of BioBERT.

Source: Lee et al. (2020), "BioBERT: a pre-trained biomedical language representation model for biomedical text mining",
section 3.3, where target entities are anonymized with tags such as @GENE$.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import ExampleFile, TextExample
from bertsmith.tasks.datasets.file_text import file_text, quoted, suffix_of
from bertsmith.tasks.datasets.label_cells import gold_of_cell
from bertsmith.tasks.datasets.marked_texts import MarkedSpan
from bertsmith.tasks.datasets.records import json_records, rejection
from bertsmith.tasks.datasets.spans import list_of, span_of, text_of
from bertsmith.tasks.datasets.tables import read_texts
from bertsmith.tasks.datasets.values import brief
from bertsmith.text.documents.encodings import UTF_8

SPAN_KEYS, LABEL_KEYS = ("spans", "entities"), ("label", "relation")
MARK = re.compile(r"@[^\s@$]+\$")
_SIGNS = re.compile(r"[\s@$]+")
_RECORD = '{"text": ..., "spans": [[0, 5, "GENE"], [14, 20, "DISEASE"]], "label": ...}'


def read_relations(
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    gold: bool = True,
    encoding: str = UTF_8,
) -> ExampleFile:
    """The texts of a file, their two entities replaced by marks, with the relation as the label."""
    if suffix_of(path) not in (".jsonl", ".json"):
        return _marked_table(path, text_column, label_column, gold=gold, encoding=encoding)
    content = file_text(path, kind="texts with two marked spans and a label", encoding=encoding)
    examples: list[TextExample] = []
    skipped: list[tuple[str, str]] = []
    for location, record in json_records(path, content, lines=suffix_of(path) == ".jsonl"):
        if not isinstance(record, dict):
            raise InputError(expected=f"a record in {location}", found=brief(record), fix=f"write {_RECORD}")
        if gold and (reason := rejection(record)):
            skipped.append((location, reason))
            continue
        text = text_of(record, location, text_column)
        keys = (label_column,) if label_column else LABEL_KEYS
        examples.append(
            TextExample(
                id=str(record.get("id", len(examples))),
                first=anonymized(text, _spans(record, text, location), location),
                label=_label(record, keys, location) if gold else None,
                location=location,
            )
        )
    return ExampleFile(examples=tuple(examples), skipped=tuple(skipped))


def anonymized(text: str, spans: tuple[MarkedSpan, MarkedSpan], location: str = "") -> str:
    """A text with its two entities replaced by marks of their types.

    >>> anonymized("BRCA1 causes cancer.", (MarkedSpan(13, 19, "DISEASE"), MarkedSpan(0, 5, "GENE")))
    '@GENE$ causes @DISEASE$.'
    """
    first, second = sorted(spans)
    for span in (first, second):
        if not 0 <= span.start < span.end <= len(text):
            raise InputError(
                expected=f"spans of at least one of the {len(text):,} characters in {location}",
                found=f"{span.label!r} at {span.start} to {span.end}",
                fix="correct the span: its end is one past its last character, counted in code points",
            )
    if first.end > second.start:
        raise InputError(
            expected=f"two entities that share no character in {location}",
            found=f"{first.label!r} at {first.start} to {first.end} and {second.label!r} at {second.start} to "
            f"{second.end}",
            fix="correct the spans, or leave the record out",
        )
    between = text[first.end : second.start]
    return f"{text[: first.start]}{_mark(first)}{between}{_mark(second)}{text[second.end :]}"


def _mark(span: MarkedSpan) -> str:
    return f"@{_SIGNS.sub('-', span.label)}$"


def _spans(record: Mapping[str, Any], text: str, location: str) -> tuple[MarkedSpan, MarkedSpan]:
    key = next((key for key in SPAN_KEYS if record.get(key) is not None), SPAN_KEYS[0])
    spans = [span_of(item, text, location) for item in list_of(record.get(key), location, key)]
    if len(spans) != 2:
        raise InputError(
            expected=f"two spans in {location}",
            found=str(len(spans)),
            fix=f"write {_RECORD}, with a record of its own for each pair of entities",
        )
    return spans[0], spans[1]


def _label(record: Mapping[str, Any], keys: tuple[str, ...], location: str) -> str | float | tuple[str, ...]:
    value = next((record[key] for key in keys if record.get(key) is not None), "")
    cell = value if isinstance(value, str) else json.dumps(value)
    gold = gold_of_cell(cell, location, "label")
    if gold is None:
        raise InputError(
            expected=f"a relation under the key {' or '.join(map(repr, keys))} in {location}",
            found="none",
            fix="add it; for two entities without a relation, any name such as none",
        )
    return gold


def _marked_table(
    path: Path, text_column: str | None, label_column: str | None, *, gold: bool, encoding: str
) -> ExampleFile:
    table = read_texts(
        path, text_column=text_column, label_column=label_column, target="label" if gold else None, encoding=encoding
    )
    if table.examples and not any(
        MARK.search(example.first) for example in table.examples if isinstance(example, TextExample)
    ):
        raise InputError(
            expected=f"texts with marked entities, such as @GENE$, in {quoted(path)}",
            found="none",
            fix=f"mark them, or give JSON lines {_RECORD}",
        )
    return table
