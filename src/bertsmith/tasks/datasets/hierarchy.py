"""A hierarchy of labels: the parent of each label, from a file or from the codes of a patent classification.

A file has a label and its parent on each line, separated by a tab; a label without a parent need not be listed. In the
codes of CPC and IPC, `H04L` is a subclass of the class `H04` in the section `H`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of
from bertsmith.text.documents.encodings import UTF_8

CPC = "cpc"  # in place of a file: the parents are in the codes
_LEVELS = re.compile(r"([A-HY])(?:(\d\d)([A-Z])?)?")


def read_hierarchy(source: str, labels: Iterable[str], encoding: str = UTF_8) -> dict[str, str]:
    """The parents of some labels, of their parents, and so on; labels without a parent are not in it.

    Args:
        source: a file, or "cpc".
    """
    if source == CPC:
        parents = {code: code_parent(code) for label in labels for code in _codes_of(label)}
        return {code: parent for code, parent in parents.items() if parent}
    path = Path(source)
    parent_of = _read(path, encoding)
    result: dict[str, str] = {}
    for label in labels:
        chain = [label]
        while chain[-1] in parent_of:
            parent = parent_of[chain[-1]]
            if parent in chain:
                raise InputError(
                    expected=f"a hierarchy without a cycle in '{path}'",
                    found=" -> ".join([*chain[chain.index(parent) :], parent]),
                    fix="remove one of these lines",
                )
            result[chain[-1]] = parent
            chain.append(parent)
    return result


def code_parent(code: str) -> str:
    """The parent of a code of CPC or IPC; "" if it is a section, or no such code.

    >>> code_parent("H04L"), code_parent("H04"), code_parent("H"), code_parent("other")
    ('H04', 'H', '', '')
    """
    match = _LEVELS.fullmatch(code)
    if match is None or match[2] is None:
        return ""
    return f"{match[1]}{match[2]}" if match[3] else match[1]


def by_label(labels: Iterable[str], parents: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels with all their ancestors, and the parent of each, "" if it has none.

    >>> by_label(["b", "c"], {"c": "a"})
    (('b', 'c', 'a'), ('', 'a', ''))
    """
    names = list(labels)
    for name in names:  # which grows
        if parents.get(name, name) not in names:
            names.append(parents[name])
    return tuple(names), tuple(parents.get(name, "") for name in names)


def _codes_of(label: str) -> list[str]:
    codes = [label]
    while parent := code_parent(codes[-1]):
        codes.append(parent)
    return codes


def _read(path: Path, encoding: str) -> dict[str, str]:
    parents: dict[str, str] = {}
    for number, line in enumerate(lines_of(file_text(path, kind="a hierarchy of labels", encoding=encoding)), start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise InputError.at(
                line_of(path, number), "a label, a tab and its parent", repr(line[:60]), "write one pair on each line"
            )
        label, parent = cells
        if parents.setdefault(label, parent) != parent:
            raise InputError(
                expected=f"one parent of {label!r} in '{path}'",
                found=f"{parents[label]!r} and {parent!r}",
                fix="remove one of the lines",
            )
    return parents
