"""Reader for files of fastText: a text per line, with its labels as words that start with `__label__`.

Source: `Dictionary::getLine` of fastText: words are separated by white space; a label may be anywhere in its line, and
a line without one is not learned.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertsmith.tasks.datasets.file_text import file_head, file_text, line_of, lines_of
from bertsmith.text.documents.encodings import UTF_8

PREFIX = "__label__"

_LABEL = re.compile(rf"(?:(?<=[ \t\v\f\r])|\A){PREFIX}([^ \t\v\f\r]*)[ \t\v\f\r]*")


class LabelledLine(NamedTuple):
    """A line of a file: its place, its text, its labels as a name or a JSON list, and why it is not learned."""

    location: str
    text: str
    label: str
    unused: str


def is_fasttext(path: Path, *, encoding: str = UTF_8) -> bool:
    """Whether a file starts with a label of fastText."""
    return file_head(path, encoding=encoding).lstrip().startswith(PREFIX)


def read_fasttext(path: Path, *, encoding: str = UTF_8) -> Iterator[LabelledLine]:
    """The lines of a file that are not blank, in file order."""
    for number, line in enumerate(
        lines_of(file_text(path, kind="texts with labels of fastText", encoding=encoding)), start=1
    ):
        if line.strip():
            names = _LABEL.findall(line)
            label = names[0] if len(names) == 1 else json.dumps(names, ensure_ascii=False) if names else ""
            text = _LABEL.sub("", line).strip()
            yield LabelledLine(
                line_of(path, number), text, label, "" if names else f"no word that starts with {PREFIX}"
            )
