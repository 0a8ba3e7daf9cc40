"""Readers for documents with annotations by character: brat, BioC and PubTator, as texts with marked spans.

brat: texts in `.txt` files, annotations in `.ann` files of the same name. A line `T1<TAB>Person 0 3<TAB>Ann` marks a
span, the end exclusive; `Person 0 3;8 11` marks one with a gap, unless the gap is white space: brat cuts spans at line
ends. Events, relations, attributes and notes are not read.

BioC, in XML or JSON: an annotation has locations, each an offset in the document and a length in characters, the marked
text, and its type as an infon `type`. Each passage, or each of its sentences, becomes a text; the texts of a document
stay together.

PubTator: title, abstract, the mentions in them, a blank line. Offsets count the characters of the title, one more, and
the abstract; ends are exclusive. Relations, lines of an identifier, a type and two concepts, are not read::

    2234245|t|Ann sings
    2234245|a|In Oslo.
    2234245<TAB>0<TAB>3<TAB>Ann<TAB>Person<TAB>P1

Sources: https://brat.nlplab.org/standoff.html; Comeau et al. (2013), "BioC: a minimalist approach to interoperability
for biomedical text processing"; Wei et al. (2013), "PubTator: a web-based text mining tool for assisting biocuration".
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.examples import ExampleFile
from bertsmith.tasks.datasets.file_text import file_head, file_text, line_of, lines_of, quoted, warn_of_places
from bertsmith.tasks.datasets.marked_texts import MarkedSpan, MarkedText, require_text, sentences_of
from bertsmith.tasks.datasets.records import json_records
from bertsmith.tasks.datasets.values import brief, clean
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.names import json_value
from bertsmith.text.documents.sources import shown

ANNOTATIONS, TEXT = ".ann", ".txt"

_SPAN = re.compile(r"T\d+\t(\S+) (\d{1,18} \d{1,18}(?:;\d{1,18} \d{1,18})*)(?:\t(.*))?")
_OTHERS = {"E": "event", "R": "relation", "*": "relation", "A": "attribute", "M": "attribute", "N": "link", "#": "note"}
TYPE_KEYS = ("type", "entity_type", "class")

_XML = re.compile(r"\s*<\?xml.*?<collection\b|\s*<collection\b", re.DOTALL)
_JSON = re.compile(r'\s*[\[{].*?"(?:passages|documents)"\s*:', re.DOTALL)
_PART = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)
_FEWEST_CELLS = 5  # of a mention: document, start, end, text, type; an identifier may follow
_OFFSET = re.compile(r"\d{1,18}")


def is_brat(path: Path) -> bool:
    """Whether a path is a file with annotations of brat, or a folder with some."""
    return path.suffix == ANNOTATIONS or (path.is_dir() and next(path.rglob(f"*{ANNOTATIONS}"), None) is not None)


def read_brat(path: Path, *, scheme: str, encoding: str = UTF_8) -> ExampleFile:
    """The annotated texts of a folder, or of a file, as sentences with tags; each text is a document.

    Spans with a gap are left out and listed, and of spans that share a word the outermost one is kept.
    """
    gaps: list[tuple[str, str]] = []
    unread = Counter[str]()
    files = sorted(path.rglob(f"*{ANNOTATIONS}")) if path.is_dir() else [path]
    file = quoted(path)
    result = sentences_of(
        file,
        (_marked(annotations, gaps, unread, encoding) for annotations in files),
        scheme=scheme,
        flat=False,
        read_as="annotations of brat",
    )
    warn_of_places(f"{file}: {counted(len(gaps), 'span')} with a gap left out", gaps)
    if unread:
        others = ", ".join(counted(number, kind) for kind, number in unread.items())
        warn(f"{file}: only spans of text are read, not {others}")
    annotated = {annotations.with_suffix(TEXT) for annotations in files}
    lone = sorted(set(path.rglob(f"*{TEXT}")) - annotated) if path.is_dir() else []
    skipped = [(f"'{shown(str(text))}'", f"no {ANNOTATIONS} file") for text in lone]
    return ExampleFile(examples=result.examples, skipped=(*result.skipped, *skipped))


def _marked(annotations: Path, gaps: list[tuple[str, str]], unread: "Counter[str]", encoding: str) -> MarkedText:
    source = annotations.with_suffix(TEXT)
    if not source.is_file():
        raise InputError(
            expected=f"the text of '{shown(str(annotations))}' in '{shown(source.name)}', next to it",
            found="nothing there",
            fix="copy it there, or remove the annotations",
        )
    text = file_text(
        source, kind="a text with annotations of brat", may_be_blank=True, keep_ends=True, encoding=encoding
    )
    lines = lines_of(file_text(annotations, kind="annotations of brat", may_be_blank=True, encoding=encoding))
    spans = tuple(_spans(annotations, lines, text, gaps, unread))
    return MarkedText(f"'{shown(str(source))}'", text, spans)


def _spans(
    path: Path, lines: list[str], text: str, gaps: list[tuple[str, str]], unread: "Counter[str]"
) -> Iterator[MarkedSpan]:
    for number, line in enumerate(lines, start=1):
        location = line_of(path, number)
        match = _SPAN.fullmatch(line)
        if match:
            label, stated = match[1], match[3] or ""
            parts = [(int(start), int(end)) for start, end in (part.split() for part in match[2].split(";"))]
            span = MarkedSpan(parts[0][0], parts[-1][1], label)
            between = (text[end:start] for (_, end), (start, _) in itertools.pairwise(parts))
            if any(gap.strip() for gap in between):
                gaps.append((location, f"{label!r} {brief(stated)}"))
                continue
            if stated:
                require_text(text, span, stated, location)
            yield span
        elif line[:1] in _OTHERS:
            unread[_OTHERS[line[0]]] += 1
        elif line.strip():
            raise InputError(
                expected=f"an annotation of brat in {location}",
                found=brief(line),
                fix="write T1, a tab, type, start and end, a tab and the marked text",
            )


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


def is_pubtator(path: Path, *, encoding: str = UTF_8) -> bool:
    """Whether a file starts with the title of a document."""
    first = file_head(path, encoding=encoding).lstrip().partition("\n")[0]
    return re.match(r"[^|\s]+\|t\|", first) is not None


def read_pubtator(path: Path, *, scheme: str, encoding: str = UTF_8) -> ExampleFile:
    """The documents of a file as sentences with tags. Of mentions that share a word the outermost one is kept."""
    unread = Counter[str]()
    lines = lines_of(file_text(path, kind="documents of PubTator", encoding=encoding))
    file = quoted(path)
    texts = _documents(path, lines, unread)
    result = sentences_of(file, texts, scheme=scheme, flat=False, read_as="documents of PubTator")
    if unread:
        warn(f"{file}: only mentions are read, not {counted(unread.total(), 'relation')}")
    return result


def _documents(path: Path, lines: Sequence[str], unread: "Counter[str]") -> Iterator[MarkedText]:
    parts: dict[str, str] = {}
    spans: list[MarkedSpan] = []
    name, text, first = "", "", 0
    for number, line in enumerate([*lines, ""], start=1):
        location = line_of(path, number)
        if not line.strip():
            if parts:
                yield MarkedText(line_of(path, first), text, tuple(spans))
            parts, spans, name = {}, [], ""
            continue
        part = _PART.fullmatch(line)
        cells = line.split("\t")
        if part and part[2] not in parts and part[1] in (name or part[1], name) and not spans:
            first = first if parts else number
            name, parts[part[2]] = part[1], part[3]
            text = "\n".join(parts[key] for key in "ta" if key in parts)
        elif parts and cells[0] == name and len(cells) >= _FEWEST_CELLS and all(map(_OFFSET.fullmatch, cells[1:3])):
            span = MarkedSpan(int(cells[1]), int(cells[2]), cells[4].strip())
            require_text(text, span, cells[3], location)
            spans.append(span)
        elif parts and cells[0] == name and len(cells) > 1 and not cells[1].isdecimal():
            unread[cells[1]] += 1
        else:
            raise InputError(
                expected=f"a title, an abstract or a mention of one document in {location}",
                found=brief(line),
                fix="separate documents by blank lines, and the cells of a mention by tabs",
            )
