"""A cache whose memory is bounded: for the words and chunks of text that a tokenizer has split already.

Text is full of words that recur, and of numbers and identifiers that never do. So a full cache starts again, which
costs a moment, instead of keeping an order of use, which would cost something at every look-up.
"""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_BYTES = 32 << 20


class BoundedCache(dict[Key, Value]):
    """A dictionary that starts again when it has too many entries or takes too many bytes.

    >>> cache = BoundedCache[str, int](2)
    >>> for number, word in enumerate(("the", "film", "was")):
    ...     cache.put(word, number, 100)
    >>> dict(cache), cache.bytes
    ({'was': 2}, 100)
    """

    def __init__(self, most_entries: int, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self._most_entries, self._most_bytes, self.bytes = most_entries, most_bytes, 0

    def put(self, key: Key, value: Value, size: int) -> None:
        """Adds an entry of about `size` bytes."""
        self.bytes += size
        if len(self) >= self._most_entries or self.bytes > self._most_bytes:
            self.clear()
            self.bytes = size
        self[key] = value
