"""Texts as blocks of UTF-8 bytes: the first step of the fast path.

Strings are joined into one buffer; Arrow arrays are read in place. A long buffer is split into blocks between texts, or
at white space inside a long text.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from bertsmith.text.tokenizers.encoded import Offsets, offsets_of
from bertsmith.text.tokenizers.keys import Bytes

# The arrays for a block of this size fit into the cache of one core.
BLOCK_BYTES = 1 << 18
_BATCH_BYTES = 1 << 20
_SAMPLE = 1000

# Strings, or an Arrow array of strings; pyarrow has no type annotations.
Strings: TypeAlias = Sequence[str] | Any


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a buffer and the positions where texts start in it.

    Args:
        borders: int64, ascending; a text that continues from an earlier block has no border.
    """

    data: Bytes
    borders: Offsets


def is_arrow(texts: Strings) -> TypeGuard[Any]:
    """Whether the texts are in Arrow, without importing pyarrow: that is slow, and few short texts need none."""
    return hasattr(texts, "to_pylist")


def batches(texts: Strings) -> Iterator[Strings]:
    """The texts in batches of about a megabyte; a longer text is a separate batch."""
    if is_arrow(texts):
        if hasattr(texts, "chunks"):
            for chunk in texts.chunks:
                yield from batches(chunk)
            return
        average = texts.nbytes / max(1, len(texts))
    else:
        sample = texts[:: max(1, len(texts) // _SAMPLE)]
        average = sum(map(len, sample)) / max(1, len(sample))
    count = max(1, int(_BATCH_BYTES / (average + 1)))
    for begin in range(0, len(texts), count):
        yield texts[begin : begin + count]


def blocks_of(texts: Strings) -> list[Block]:
    """The bytes of a batch, split into blocks."""
    data, offsets = _buffer_of(texts)
    blocks, text, begin = [], 0, 0
    while text < len(offsets) - 1 or begin < len(data):
        end = _cut(data, offsets, begin)
        # Empty texts at the very end start where the last block ends.
        next_text = int(np.searchsorted(offsets[:-1], end)) if end < len(data) else len(offsets) - 1
        blocks.append(Block(data[begin:end], offsets[text:next_text] - begin))
        text, begin = next_text, end
    return blocks


def _buffer_of(texts: Strings) -> tuple[Bytes, Offsets]:
    """(the bytes of all texts, the start of each text and the end of the last); a null counts as an empty text."""
    if not is_arrow(texts):
        try:
            return buffer_of_strings(texts)
        except TypeError:  # a null among them, or bytes
            pass
    import pyarrow as pa

    if not isinstance(texts, pa.Array):
        texts = pa.array(texts, type=pa.large_string())
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, starts, data = texts.buffers()
    width = np.int32 if pa.types.is_string(texts.type) else np.int64
    if not len(texts):
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(starts, dtype=width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    buffer = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return buffer[offsets[0] : offsets[-1]], offsets - offsets[0]


def buffer_of_strings(texts: Sequence[str]) -> tuple[Bytes, Offsets]:
    """(the bytes of all texts in UTF-8, the start of each and the end of the last); lone surrogates are kept.

    Not with `pyarrow.array`, which imports pandas where it is installed: half a second.
    """
    joined = "".join(texts)
    if joined.isascii():
        data, lengths = joined.encode(), np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        data, lengths = b"".join(parts), np.fromiter(map(len, parts), np.int64, len(parts))
    return np.frombuffer(data, dtype=np.uint8), offsets_of(lengths)


def _cut(data: Bytes, offsets: Offsets, begin: int) -> int:
    """The end of the block that starts at `begin`: at most `BLOCK_BYTES` later, unless there is no place to cut."""
    limit = begin + BLOCK_BYTES
    if limit >= len(data):
        return len(data)
    border = int(offsets[np.searchsorted(offsets, limit, side="right") - 1])
    if border > begin:
        return border
    gap = _last_gap(data, begin, limit)
    while gap is None and limit < len(data):
        following = int(offsets[np.searchsorted(offsets, limit, side="right")])
        begin, limit = limit, min(limit + BLOCK_BYTES, following)
        gap = _last_gap(data, begin, limit)
        if gap is None and limit == following:
            return limit
    return len(data) if gap is None else gap + 1


def _last_gap(data: Bytes, begin: int, end: int) -> int | None:
    part = data[begin:end]
    gaps = np.flatnonzero((part == ord(" ")) | (part == ord("\n")))
    return begin + int(gaps[-1]) if len(gaps) else None
