"""Reader for texts whose entities are marked by character offsets, as annotation tools export them.

JSON lines (or one JSON list) of records: `{"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}`. The spans
may also be named `entities` or `label(s)` and be written `[0, 4, "PER"]`, as by Prodigy, spaCy and Doccano; a record
may be the pair `[text, {"entities": ...}]` of spaCy. The other format is the JSON export of Label Studio: tasks with
`data` and `annotations`. Ends are exclusive, and characters are code points.

Texts are split into words as in prediction. A span that cuts a word is widened to its ends, and listed on stderr.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.datasets.examples import ExampleFile, TaggedExample
from bertsmith.datasets.file_text import file_text, json_records, suffix_of, unpacked, warn_of_places
from bertsmith.datasets.label_cells import BORDERS, LONGEST_LABEL
from bertsmith.datasets.values import brief, clean, looks_like_json
from bertsmith.datasets.words import MarkedSpan, tags_of_spans, words_of
from bertsmith.documents.sources import shown
from bertsmith.errors import InputError
from bertsmith.metrics.entities import convert_tags
from bertsmith.progress import counted, tell, warn

SUFFIXES = (".jsonl", ".json")
SPAN_KEYS = ("spans", "entities", "label", "labels")
ANNOTATION_KEYS = ("annotations", "completions")  # of Label Studio; the second one in its old versions

_HEAD = 4096  # bytes that are checked for JSON
_OWN_SCHEME = "IOB2"


class _Marked(NamedTuple):
    """A text with its spans; or, if `skipped` is not empty, why it is not used."""

    text: str = ""
    spans: tuple[MarkedSpan, ...] = ()
    skipped: str = ""


def has_spans(path: Path) -> bool:
    """Whether a file is JSON, by its extension or its first characters.

    Raises:
        InputError: the file is missing, or its compressed data is damaged.
    """
    if suffix_of(path) in SUFFIXES:
        return True
    with unpacked(path) as file:
        return looks_like_json(file.read(_HEAD).decode("utf-8-sig", errors="replace"))


def read_spans(path: Path, *, text_column: str | None = None, scheme: str = _OWN_SCHEME) -> ExampleFile:
    """The texts of a file as sentences with tags; each text is a document.

    Skipped are texts that no one has annotated, and those that the annotator rejected.

    Args:
        text_column: the key of the text; by default `text`.
        scheme: the scheme of the tags.

    Raises:
        InputError: the file cannot be read, no text is annotated, or a span is invalid: empty, outside of its text,
            without a word, without one label, or sharing a word with another one; the message gives file and line.
    """
    content = file_text(path, what="texts with marked spans")
    examples: list[TaggedExample] = []
    skipped: list[tuple[str, str]] = []
    widened: list[tuple[str, str]] = []
    types, unread = Counter[str](), Counter[str]()
    for place, record in json_records(path, content, lines=suffix_of(path) == ".jsonl"):
        found = _marked(record, place, text_column, unread)
        sentence = words_of(found.text, id=str(len(examples)), place=place)
        if found.skipped or not (sentence.words or found.spans):
            skipped.append((place, found.skipped or "a text without words"))
            continue
        tags, cut = tags_of_spans(found.text, sentence, found.spans)
        widened += [(place, f"{span.label!r} {brief(found.text[span.start : span.end])}") for span in cut]
        types.update(span.label for span in found.spans)
        tags = tags if scheme == _OWN_SCHEME else tuple(convert_tags(tags, _OWN_SCHEME, scheme))
        examples.append(
            TaggedExample(
                id=sentence.id,
                words=sentence.words,
                tags=tags,
                document=len(examples),
                place=place,
                offsets=sentence.offsets,
            )
        )
    file = f"'{shown(str(path))}'"
    if not examples:
        raise InputError(
            expected=f"texts with spans in {file}",
            found=f"{counted(len(skipped), 'record')} without" + (f": {skipped[0][1]}" if skipped else ""),
            fix=f"annotate them, or name the spans {', '.join(SPAN_KEYS[:2])} or {SPAN_KEYS[2]}",
        )
    empty = sum(set(one.tags or ()) == {"O"} for one in examples)
    tell(
        f"{file}: {counted(len(examples), 'text')}, {counted(types.total(), 'span')} of "
        f"{counted(len(types), 'type')}; texts without a span, so all O: {empty:,}"
    )
    warn_of_places(f"{file}: {counted(len(widened), 'span')} cut a word, widened to its ends", widened)
    if unread:
        warn(f"{file}: results of other types are not read: {', '.join(f'{n:,} {kind}' for kind, n in unread.items())}")
    return ExampleFile(examples=tuple(examples), skipped=tuple(skipped))


def _marked(record: Any, place: str, text_column: str | None, unread: "Counter[str]") -> _Marked:
    """The text and the spans of a record; `unread` counts the results of Label Studio that are no spans."""
    if isinstance(record, list) and len(record) == 2 and isinstance(record[0], str) and isinstance(record[1], dict):
        record = {**record[1], text_column or "text": record[0]}
    if not isinstance(record, dict):
        raise InputError(
            expected=f"a record with a text and its spans in {place}",
            found=brief(record),
            fix='write {"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}, or rename a file with one '
            "JSON list to end in .json",
        )
    if isinstance(record.get("data"), dict):
        text = text_of(record["data"], place, text_column)
        key = next((key for key in ANNOTATION_KEYS if key in record), ANNOTATION_KEYS[0])
        return _of_annotations(text, list_of(record.get(key), place, key), place, unread)
    text = text_of(record, place, text_column)
    answer = record.get("answer", "accept")
    if answer != "accept":
        return _Marked(skipped=f"the answer {brief(answer)} of the annotator")
    keys = [key for key in SPAN_KEYS if record.get(key) is not None]
    if not keys:
        return _Marked(skipped="no spans")
    if len(keys) > 1:
        raise InputError(
            expected=f"one list of spans in {place}",
            found=" and ".join(map(repr, keys)),
            fix="remove all but one of these keys",
        )
    return _Marked(text, tuple(span_of(item, text, place) for item in list_of(record[keys[0]], place, keys[0])))


def _of_annotations(text: str, annotations: Sequence[Any], place: str, unread: "Counter[str]") -> _Marked:
    """The annotation of a task of Label Studio: the only one, the one marked as ground truth, or several equal ones."""
    kept = []
    for one in annotations:
        if not isinstance(one, dict):
            raise InputError(
                expected=f"annotations {{...}} in {place}", found=brief(one), fix="export the tasks again as JSON"
            )
        if not (one.get("was_cancelled") or one.get("skipped")):
            kept.append(one)
    kept = [one for one in kept if one.get("ground_truth")] or kept
    if not kept:
        return _Marked(skipped="only cancelled annotations" if annotations else "no annotation")
    found = [tuple(_results(text, one, place, Counter() if number else unread)) for number, one in enumerate(kept)]
    if len({tuple(sorted(spans)) for spans in found}) > 1:
        raise InputError(
            expected=f"one annotation of the task in {place}",
            found=f"{len(kept)} that differ",
            fix="mark one of them as ground truth, or remove the others",
        )
    return _Marked(text, found[0])


def _results(text: str, annotation: Mapping[str, Any], place: str, unread: "Counter[str]") -> Iterator[MarkedSpan]:
    """The spans of an annotation of Label Studio."""
    for result in list_of(annotation.get("result"), place, "result"):
        value = result.get("value") if isinstance(result, dict) else None
        if isinstance(value, dict) and "labels" in value and "start" in value:
            yield span_of(value, text, place)
        else:
            unread[str(result.get("type", "unnamed")) if isinstance(result, dict) else "unnamed"] += 1


def span_of(item: Any, text: str, place: str) -> MarkedSpan:
    """A span of a record, as an object or as a list of start, end and label.

    Raises:
        InputError: it is none, or the text that it names is not there.
    """
    values: Sequence[Any] = ()
    if isinstance(item, list) and len(item) == 3:
        values = item
    elif isinstance(item, dict):
        first, last = next((keys for keys in BORDERS if keys[0] in item), BORDERS[0])
        labels = item.get("labels", [item.get("label")])
        one = labels[0] if isinstance(labels, list) and len(labels) == 1 else None
        values = (item.get(first), item.get(last), one)
    label = clean(values[2]).strip() if values and isinstance(values[2], str) else ""
    is_name = bool(label) and len(label) <= LONGEST_LABEL and label.isprintable()
    if not is_name or any(type(border) is not int for border in values[:2]):
        raise InputError(
            expected=f"spans with start, end and one label in {place}",
            found=brief(item),
            fix='write {"start": 0, "end": 4, "label": "PER"} or [0, 4, "PER"]',
        )
    span = MarkedSpan(values[0], values[1], label)
    marked, given = text[max(span.start, 0) : max(span.end, 0)], item.get("text") if isinstance(item, dict) else None
    if isinstance(given, str) and _letters(given) != _letters(marked):
        raise InputError(
            expected=f"{brief(given)} at {span.start} to {span.end} in {place}",
            found=brief(marked),
            fix="correct the span: its ends count code points of the text as it is, an emoji as one",
        )
    return span


def _letters(text: str) -> str:
    """A text without white space, which Label Studio writes in other ways into its results."""
    return "".join(clean(text).replace("\\n", " ").split())


def text_of(values: Mapping[str, Any], place: str, text_column: str | None) -> str:
    """The text of a record.

    Raises:
        InputError: there is none under the key.
    """
    text = values.get(text_column or "text")
    if not isinstance(text, str):
        keys = ", ".join(brief(key) for key in list(values)[:8])
        raise InputError(
            expected=f"a text under the key {text_column or 'text'!r} in {place}",
            found=brief(text) if text is not None else f"the keys {keys}" if keys else "an empty record",
            fix="name the key with --text-column, or correct the record",
        )
    return clean(text)


def list_of(value: Any, place: str, key: str) -> Sequence[Any]:
    """The list of spans under a key; empty if there is none.

    Raises:
        InputError: the value is no list.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(
            expected=f"a list of spans under {key!r} in {place}",
            found=brief(value),
            fix="for one label per text, use --task classification; else write a list of spans",
        )
    return value
