"""A tree over codes: each node has a parent or is at the top.

On disk it is a table with a header, `tree.tsv`, of `code`, `parent` and `kind`; an empty parent is the top, and a node
without a kind is about the codes of that name in any kind.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import digest_bytes, require_file, write_text
from bertsmith.text.codes.visits import CodeKey
from bertsmith.text.documents.encodings import decoded

FILE = "tree.tsv"
ROOT = "ROOT"  # as a parent, the same as an empty one
_COLUMNS = ("code", "parent", "kind")


class TreeRow(NamedTuple):
    """A row of a table with a tree.

    Attributes:
        parent: empty, or `ROOT`, for a node at the top.
        kind: of the codes that it is about; empty for any kind.
        description: what the node means; may be empty.
        location: in a file, for messages.
    """

    code: str
    parent: str
    kind: str = ""
    description: str = ""
    location: str = "the tree"


@dataclasses.dataclass(frozen=True)
class CodeTree:
    """Nodes and their parents.

    Attributes:
        parents: the parent of each node, None at the top; each parent is a node.
    """

    parents: Mapping[CodeKey, CodeKey | None]

    def __len__(self) -> int:
        return len(self.parents)

    @classmethod
    def of(cls, rows: Iterable[TreeRow]) -> "CodeTree":
        """The tree of the rows of a table.

        Raises:
            InputError: a node has two parents, a parent has no row of its own, or nodes are their own ancestors.
        """
        listed: dict[CodeKey, TreeRow] = {}
        for row in rows:
            before = listed.setdefault((row.kind, row.code), row)
            if before.parent != row.parent:
                both = f"{row.code!r} below {row.parent!r}, and in {before.location} below {before.parent!r}"
                raise InputError.at(
                    row.location, "one parent of each code", both, "remove one, or tell them apart by a column kind"
                )
        parents: dict[CodeKey, CodeKey | None] = {}
        for key, row in listed.items():
            parent = (row.kind, row.parent)
            parents[key] = parent if row.parent not in ("", ROOT) else None
            if parents[key] is not None and parent not in listed:
                expected = f"a row for each parent, or {ROOT} or nothing as parent at the top,"
                raise InputError.at(row.location, expected, f"{row.parent!r}, which has none", "add a row for it")
        seen: set[CodeKey] = set()  # those above which there is no cycle
        for key in parents:
            path: dict[CodeKey, None] = {}
            node: CodeKey | None = key
            while node is not None and node not in seen:
                if node in path:
                    names = [name for _, name in path]
                    cycle = " -> ".join([*names[names.index(node[1]) :], node[1]])
                    raise InputError.at(
                        listed[node].location, "a tree without cycles", cycle[:200], "correct one of these parents"
                    )
                path[node] = None
                node = parents[node]
            seen.update(path)
        return cls(parents)

    def node(self, code: CodeKey) -> CodeKey | None:
        """The node of a code; None if it is not in the tree."""
        return next((key for key in (code, ("", code[1])) if key in self.parents), None)

    def ancestors(self, code: CodeKey) -> tuple[CodeKey, ...]:
        """The ancestors of a code, its parent first; none of one that is at the top or not in the tree."""
        node, above = self.node(code), []
        while node is not None and (node := self.parents[node]) is not None:
            above.append(node)
        return tuple(above)

    def part(self, codes: Iterable[CodeKey]) -> "CodeTree":
        """The tree of these codes and their ancestors."""
        kept: dict[CodeKey, CodeKey | None] = {}
        for code in codes:
            if (node := self.node(code)) is not None:
                kept |= {key: self.parents[key] for key in (node, *self.ancestors(code))}
        return CodeTree(kept)

    @property
    def text(self) -> str:
        """The content of its file."""
        rows = [_COLUMNS, *((name, parent[1] if parent else "", kind) for (kind, name), parent in self.parents.items())]
        return "".join("\t".join(row) + "\n" for row in rows)

    @property
    def digest(self) -> str:
        """The digest of its file."""
        return digest_bytes(self.text.encode("utf-8"))

    def save(self, path: Path) -> None:
        """Writes the table of the tree."""
        write_text(path, self.text)

    @classmethod
    def load(cls, path: Path) -> "CodeTree":
        """The tree of a table that `save` wrote."""
        require_file(path, "a tree of codes")
        rows = []
        text = decoded(path.read_bytes(), name=str(path))
        for number, line in enumerate(text.removesuffix("\n").split("\n")[1:], start=2):
            location, cells = f"line {number} of '{path}'", line.split("\t")
            if len(cells) != len(_COLUMNS):
                raise InputError.at(location, "a code, its parent and its kind", repr(line[:60]), "restore the file")
            rows.append(TreeRow(cells[0], cells[1], cells[2], location=location))
        return cls.of(rows)
