r"""Reader for the stand-off format of brat: texts in `.txt` files, annotations in `.ann` files of the same name.

A line `T1<TAB>Person 0 3<TAB>Ann` marks a span by its characters, the end exclusive. `Person 0 3;8 11` marks one with a
gap, unless the gap is white space: brat cuts spans at line ends. Events, relations, attributes and notes are not read.

Source: https://brat.nlplab.org/standoff.html.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.examples import ExampleFile
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, warn_of_places
from bertsmith.tasks.datasets.marked_texts import MarkedText, require_text, sentences_of
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.datasets.words import MarkedSpan
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.sources import shown

ANNOTATIONS, TEXT = ".ann", ".txt"

_SPAN = re.compile(r"T\d+\t(\S+) (\d{1,18} \d{1,18}(?:;\d{1,18} \d{1,18})*)(?:\t(.*))?")
_OTHERS = {"E": "event", "R": "relation", "*": "relation", "A": "attribute", "M": "attribute", "N": "link", "#": "note"}


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
