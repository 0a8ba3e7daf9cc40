"""Writes a table of normalization as SentencePiece compiles it: a double-array trie, then the strings."""

import base64
import struct
from collections.abc import Mapping


def packed(table: Mapping[str, str]) -> str:
    """The table in base64, as a `tokenizer.json` contains it."""
    strings, values = b"", {}
    for text, result in table.items():
        values[text.encode()] = len(strings)
        strings += result.encode() + b"\0"
    units = double_array(values)
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + strings).decode()


def double_array(values: Mapping[bytes, int]) -> list[int]:
    """The units of a trie: the children of a node are where its offset, its place and their labels point together."""
    units: dict[int, int] = {0: 0}
    taken = {0}

    def insert(keys: list[bytes], depth: int, node: int) -> None:
        labels = sorted({key[depth] if len(key) > depth else 0 for key in keys})
        base = next(
            base for base in range(1, 1 << 20) if all(base ^ label not in taken and base ^ label for label in labels)
        )
        taken.update(base ^ label for label in labels)
        units[node] |= (node ^ base) << 10 | (labels[0] == 0) << 8
        for label in labels:
            child = base ^ label
            below = [key for key in keys if (key[depth] if len(key) > depth else 0) == label]
            if label == 0:
                units[child] = values[below[0]] | 1 << 31
            else:
                units[child] = label
                insert(below, depth + 1, child)

    insert(sorted(values), 0, 0)
    # A place that is not a child has a label of its own, which no byte that points to it has.
    size = (max(units) // 256 + 1) * 256
    return [units.get(number, 0) for number in range(size)]
