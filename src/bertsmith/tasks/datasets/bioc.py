"""Reader for BioC, in XML and in JSON: documents of passages (or their sentences) with annotations.

An annotation has locations, each an offset in the document and a length in characters, the marked text, and its type as
an infon `type`. Each passage, or each of its sentences, becomes a text; the texts of a document stay together.

Source: Comeau et al. (2013), "BioC: a minimalist approach to interoperability for biomedical text processing".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.tasks.datasets.examples import ExampleFile
from bertsmith.tasks.datasets.file_text import file_head, file_text, line_of, quoted, warn_of_places
from bertsmith.tasks.datasets.marked_texts import MarkedText, require_text, sentences_of
from bertsmith.tasks.datasets.records import json_records
from bertsmith.tasks.datasets.values import brief, clean
from bertsmith.tasks.datasets.words import MarkedSpan
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.names import json_value

TYPE_KEYS = ("type", "entity_type", "class")

_XML = re.compile(r"\s*<\?xml.*?<collection\b|\s*<collection\b", re.DOTALL)
_JSON = re.compile(r'\s*[\[{].*?"(?:passages|documents)"\s*:', re.DOTALL)


def is_bioc(path: Path, *, encoding: str = UTF_8) -> bool:
    """Whether a file starts like a collection of BioC."""
    head = file_head(path, encoding=encoding)
    return bool(_XML.match(head) or (_JSON.match(head) and '"passages"' in head))


def read_bioc(path: Path, *, scheme: str, encoding: str = UTF_8) -> ExampleFile:
    """The passages of a file as sentences with tags.

    Annotations of several locations are left out and listed; of annotations that share a word, the outermost is kept.
    """
    gaps: list[tuple[str, str]] = []
    text = file_text(path, kind="documents of BioC", encoding=encoding)
    documents = _of_json(path, text) if text.lstrip().startswith(("{", "[")) else _of_xml(path, text)
    file = quoted(path)
    texts = (marked for location, document in documents for marked in _passages(document, location, gaps))
    result = sentences_of(file, texts, scheme=scheme, flat=False, read_as="documents of BioC")
    warn_of_places(f"{file}: {counted(len(gaps), 'annotation')} of several locations left out", gaps)
    return result


def _passages(document: Mapping[str, Any], location: str, gaps: list[tuple[str, str]]) -> Iterator[MarkedText]:
    """The passages of a document, or the sentences of a passage that has no text of its own."""
    for number, passage in enumerate(_list(document, "passages", location), start=1):
        where = f"passage {number} of {location}"
        parts = _list(passage, "sentences", where)
        for part in parts if parts and not passage.get("text") else [passage]:
            text, offset = clean(str(part.get("text") or "")), _number(part, "offset", where)
            marked = [part, *parts] if part is passage else [part]
            annotations = [annotation for owner in marked for annotation in _list(owner, "annotations", where)]
            spans = [_span(annotation, text, offset, where, gaps) for annotation in annotations]
            yield MarkedText(where, text, tuple(span for span in spans if span is not None), document=location)


def _span(annotation: Any, text: str, offset: int, location: str, gaps: list[tuple[str, str]]) -> MarkedSpan | None:
    """The span of an annotation; None if it has several, which are listed in `gaps`."""
    locations = _list(annotation, "locations", location)
    infons = annotation.get("infons")
    types = [infons[key] for key in TYPE_KEYS if infons.get(key)] if isinstance(infons, dict) else []
    label = str(types[0]).strip() if types else ""
    stated = str(annotation.get("text") or "")
    if not locations or not label:
        raise InputError(
            expected=f"a location and an infon {TYPE_KEYS[0]!r} of each annotation in {location}",
            found=brief(stated or annotation),
            fix="add them, or remove the annotation",
        )
    if len(locations) > 1:
        gaps.append((location, f"{label!r} {brief(stated)}"))
        return None
    start = _number(locations[0], "offset", location) - offset
    span = MarkedSpan(start, start + _number(locations[0], "length", location), label)
    if stated:
        require_text(text, span, clean(stated), location)
    return span


def _of_json(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The documents of a collection, of a list of documents or of lines with one document each."""
    try:
        value = json_value(text)
    except (ValueError, RecursionError):
        value = [record for _, record in json_records(path, text, lines=True)]
    while isinstance(value, dict) and "passages" not in value:
        value = value.get("documents", next((part for part in value.values() if isinstance(part, list)), None))
    values = [value] if isinstance(value, dict) else value
    if isinstance(values, list) and all(isinstance(part, dict) and "documents" in part for part in values):
        values = [document for part in values for document in _list(part, "documents", f"{quoted(path)}")]
    for number, document in enumerate(values or [], start=1):
        location = line_of(path, number, "document")
        if not isinstance(document, dict):
            raise InputError(expected=f"a document of BioC in {location}", found=brief(document), fix="correct it")
        yield location, document


def _of_xml(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The documents of a collection, in the form that they have in JSON."""
    file = quoted(path)
    if "<!ENTITY" in text:
        raise InputError(expected=f"XML without entities of its own in {file}", found="<!ENTITY", fix="expand them")
    try:
        root = ET.fromstring(text.lstrip())
    except ET.ParseError as error:
        raise InputError(expected=f"XML in {file}", found=f"an error ({error})", fix="save it again") from None
    for number, document in enumerate(root.iter("document"), start=1):
        yield (
            line_of(path, number, "document"),
            {"passages": [_part(passage) for passage in document.findall("passage")]},
        )


def _part(element: ET.Element) -> dict[str, Any]:
    return {
        "offset": element.findtext("offset"),
        "text": element.findtext("text"),
        "sentences": [_part(sentence) for sentence in element.findall("sentence")],
        "annotations": [
            {
                "infons": {infon.get("key"): infon.text for infon in annotation.findall("infon")},
                "text": annotation.findtext("text"),
                "locations": [dict(location.attrib) for location in annotation.findall("location")],
            }
            for annotation in element.findall("annotation")
        ],
    }


def _list(record: Any, key: str, location: str) -> Sequence[Any]:
    values = record.get(key) if isinstance(record, dict) else record
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(expected=f"a list of records as {key!r} in {location}", found=brief(values), fix="correct it")
    return values


def _number(record: Mapping[str, Any], key: str, location: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not str(value).strip().isdecimal() or len(str(value)) > 18:
        raise InputError(expected=f"a whole number as {key!r} in {location}", found=brief(value), fix="correct it")
    return int(str(value))
