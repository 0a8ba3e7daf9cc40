"""The additions of CoNLL-U to columns: which lines are words, names of the columns, and marks of documents.

The words of a sentence are its syntactic words. A range such as `3-4` is a token that several words share, and an empty
node such as `8.1` is no word at all; both are left out. Any line that starts with # is a comment.

Source: https://universaldependencies.org/format.html and https://universaldependencies.org/ext-format.html.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bertsmith.base.core.errors import InputError

_COLUMNS = tuple("ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split())
_PLUS = "# global.columns ="
_ID = re.compile(r"[1-9]\d*(?:-[1-9]\d*)?|\d+\.[1-9]\d*")
_NOT_WORDS = re.compile(r"\d+[-.]\d+")
_ENTITIES = ("NER", "NE")
NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")


class Layout(NamedTuple):
    """The names of the columns of a file in CoNLL-U or CoNLL-U Plus."""

    columns: tuple[str, ...]

    def word_column(self) -> int:
        """The number of the column of words."""
        return self.columns.index("FORM")

    def tag_column(self, task: str, file: str) -> int:
        """The number of the column of the tags of a task, `pos` or `ner`."""
        ends = ("UPOS",) if task == "pos" else _ENTITIES
        columns = [number for number, name in enumerate(self.columns) if name.rpartition(":")[2].upper() in ends]
        if len(columns) != 1:
            raise InputError(
                expected=f"one column of {'parts of speech' if task == 'pos' else 'entities'} in {file}",
                found=f"the columns {' '.join(self.columns)} of CoNLL-U",
                fix="name the columns of words and tags with --word-column and --tag-column"
                + ("" if task == "pos" else ", or use --task pos"),
            )
        return columns[0]

    def is_word(self, cells: Sequence[str]) -> bool:
        """Whether a line is a syntactic word, and not a range or an empty node."""
        return _NOT_WORDS.fullmatch(cells[self.columns.index("ID")]) is None


def layout_of(lines: Sequence[str]) -> Layout | None:
    """The columns of a file in CoNLL-U; None if its lines have another form.

    A file is in CoNLL-U Plus if its first line names the columns, and in CoNLL-U if each line that is not blank or a
    comment has ten cells between tabs, the first of which is the number of a word, a range or an empty node.
    """
    if lines and lines[0].startswith(_PLUS):
        columns = tuple(lines[0][len(_PLUS) :].split())
        return Layout(columns) if {"ID", "FORM"} <= set(columns) else None
    is_empty = True
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(_COLUMNS) or not _ID.fullmatch(cells[0]):
            return None
        is_empty = False
    return None if is_empty else Layout(_COLUMNS)
