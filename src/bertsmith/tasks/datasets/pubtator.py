"""Reader for PubTator: title and abstract of a document, the mentions in them by character, a blank line.

::

    2234245|t|Ann sings
    2234245|a|In Oslo.
    2234245<TAB>0<TAB>3<TAB>Ann<TAB>Person<TAB>P1

Offsets count the characters of the title, one more, and the abstract; ends are exclusive. Relations, lines of
an identifier, a type and two concepts, are not read.

Source: Wei et al. (2013), "PubTator: a web-based text mining tool for assisting biocuration".
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.examples import ExampleFile
from bertsmith.tasks.datasets.file_text import file_head, file_text, line_of, lines_of, quoted
from bertsmith.tasks.datasets.marked_texts import MarkedText, require_text, sentences_of
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.datasets.words import MarkedSpan
from bertsmith.text.documents.encodings import UTF_8

_PART = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)
_FEWEST_CELLS = 5  # of a mention: document, start, end, text, type; an identifier may follow
_OFFSET = re.compile(r"\d{1,18}")


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
