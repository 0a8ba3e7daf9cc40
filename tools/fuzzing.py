"""What the fuzzing tools share: how values and bytes are damaged, and what is printed at the end.

Every change is a function of the generator that is passed in, so a case can be repeated by its seed and number.
"""

import collections
import json
import sys
from typing import Any, NoReturn

import numpy as np

MOST_BYTES = 2_000_000  # of a part of a JSON body that is repeated
TEXTS = ("", " ", "the film", "[MASK]", "[MASK] " * 9, "\x00", "\u202e", "\ud7ff", "\U0001f600" * 50, "e\u0301",
         "x" * 5000, "the " * 700, "[CLS][SEP][PAD]", "\u1e9e\u0130", "a\r\nb", "\u4e2d\u6587", "##s",
    "\ufeff")  # fmt: skip
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    3,
    999,
    10**20,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [None],
    {"": 0},
    "",
)
VALUES += TEXTS


def changed(value: Any, draw: np.random.Generator) -> Any:
    """A JSON value with one change somewhere inside."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = sorted(value)[int(draw.integers(len(value)))]
        pick = draw.random()
        if pick < 0.1:
            return {other: inner for other, inner in value.items() if other != name}
        if pick < 0.2:
            return {**value, TEXTS[int(draw.integers(len(TEXTS)))]: value[name]}
        if pick < 0.3:
            return {**value, ("top", "n_best", "dimensions", "model", "pair")[int(draw.integers(5))]: _value(draw)}
        return {**value, name: changed(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        index = int(draw.integers(len(value)))
        if draw.random() < 0.2:
            return value * _times(value, int(draw.integers(2, 3000)))
        return [*value[:index], changed(value[index], draw), *value[index + 1 :]]
    if isinstance(value, str) and draw.random() < 0.3:
        return value * _times(value, int(draw.integers(0, 300)))
    return _value(draw)


def _times(value: Any, wanted: int) -> int:
    """How often a value may be repeated: at most so that a few such changes still fit into memory."""
    return min(wanted, max(1, MOST_BYTES // len(json.dumps(value))))


def _value(draw: np.random.Generator) -> Any:
    return VALUES[int(draw.integers(len(VALUES)))]


def damaged(data: bytes, draw: np.random.Generator) -> bytes:
    """Bytes with a few of them flipped, inserted, removed, repeated or cut off."""
    content = bytearray(data)
    for _ in range(int(draw.integers(1, 4))):
        start, size = int(draw.integers(len(content) + 1)), int(draw.integers(1, 30))
        match int(draw.integers(5)):
            case 0 if start < len(content):
                content[start] ^= 1 << int(draw.integers(8))
            case 1:
                content[start:start] = draw.bytes(size)
            case 2:
                del content[start : start + size]
            case 3:
                content[start:start] = content[start : start + size]
            case 4:
                del content[start:]
    return bytes(content)


def finish(counts: collections.Counter[str], findings: int) -> NoReturn:
    """Prints the counts, and exits with 1 if there are findings."""
    for name, count in sorted(counts.items()):
        print(f"{count:7,}  {name}")
    print(f"{sum(counts.values()):,} cases, {findings} findings")
    sys.exit(1 if findings else 0)
