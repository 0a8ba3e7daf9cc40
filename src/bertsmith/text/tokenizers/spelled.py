"""Ids as lines of text: the pieces, or the numbers, of each text on a line of its own.

Arrow looks up the spelling of all ids at once; no Python string is made for a piece.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bertsmith.text.tokenizers.blocks import buffer_of_strings
from bertsmith.text.tokenizers.encoded import Encoded

_LINE_FEED = ord("\n")


class SpelledLines:
    r"""Writes encoded texts as UTF-8, a line for each text, with one space between the names of its ids.

    >>> lines = SpelledLines(["[PAD]", "sing", "##ing"])
    >>> lines.of(Encoded.from_rows([[1, 2], [], [1]]))
    b'sing ##ing\n\nsing\n'
    """

    def __init__(self, names: Sequence[str]) -> None:
        # The last entry is the line of a text without ids: nothing but the byte that becomes its line end.
        self._no_ids = len(names)
        data, places = buffer_of_strings([*(f"{name} " for name in names), " "])
        buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
        self._names = pa.Array.from_buffers(pa.large_string(), len(names) + 1, buffers)

    def of(self, encoded: Encoded) -> bytes:
        """The lines of all texts, each with a line end."""
        if not len(encoded):
            return b""
        is_empty = encoded.lengths == 0
        ids = np.insert(encoded.ids, encoded.offsets[:-1][is_empty], self._no_ids)
        last = np.cumsum(np.maximum(encoded.lengths, 1)) - 1
        _, places, data = self._names.take(
            pa.Array.from_buffers(pa.int32(), len(ids), [None, pa.py_buffer(ids)])
        ).buffers()
        ends = np.frombuffer(places, dtype=np.int64)[1 : len(ids) + 1]
        written = np.frombuffer(data, dtype=np.uint8)[: ends[-1]].copy()
        # Every name is followed by a space; that of the last one of a line becomes its end.
        written[ends[last] - 1] = _LINE_FEED
        return written.tobytes()
