"""The memory held by open requests, and how much more is available.

The bytes of a body are held until its answers are computed. The answers are counted by an upper bound (`answer_size`)
before anything is computed for them, and held until the client has received them. Together they stay below `max_held`:
a body that exceeds it gets 429, and so do answers that would exceed three quarters of it, so that new requests can
still be read while large replies are being sent. Answers of up to 128 KiB are always admitted: their number is bounded
by the number of connections, and clients that read large replies slowly cannot block everyone else. A client that
reads its reply more slowly than `write_rate` is disconnected (`replies.ModelReply`), so every byte is released in time.

What outlives a request is not counted: models, and the words that tokenizers keep within bounds of their own. It would
never be released, and a server of several models would refuse large answers for good.
"""

import threading

from bertsmith.app.server.answer_size import AnswerSize
from bertsmith.app.server.prometheus import Metrics
from bertsmith.app.server.refusal import RefusalError
from bertsmith.app.server.settings import ServerSettings

_SHARE_OF_ANSWERS = 0.75
_ALWAYS_ADMITTED = 131_072  # bytes


class HeldMemory:
    """The bytes held by all open requests of a server. Its methods may be called from any thread.

    Args:
        settings: limits.
        metrics: counters to update.

    Attributes:
        most_answers: the most bytes that the answers of one request may take.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self._most, self._metrics = settings.max_held, metrics
        self.most_answers = settings.max_answers
        self._lock = threading.RLock()
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit is exceeded."""
        return self.count > self._most

    def hold(self, count: int) -> None:
        """Adds to the number of bytes held; a negative count releases bytes."""
        with self._lock:
            self.count += count
            self._metrics.held_bytes.set(self.count)

    def try_hold(self, count: int) -> bool:
        """Holds that many bytes for answers if they may be computed now; returns whether they may."""
        with self._lock:
            is_admitted = count <= _ALWAYS_ADMITTED or self.count + count <= _SHARE_OF_ANSWERS * self._most
            if is_admitted:
                self.hold(count)
            return is_admitted


class Lease:
    """The bytes that one request holds, until the lease ends.

    Args:
        memory: the memory of the server.
    """

    def __init__(self, memory: HeldMemory) -> None:
        self._memory, self._count, self._is_over = memory, 0, False
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Holds more bytes, unless the lease is over."""
        with self._lock:
            if not self._is_over:
                self._count += count
                self._memory.hold(count)

    def try_hold(self, count: int) -> bool:
        """Holds that many bytes for answers if they may be computed now; returns whether they may, or it is over."""
        with self._lock:
            if self._is_over:
                return True
            is_admitted = self._memory.try_hold(count)
            if is_admitted:
                self._count += count
            return is_admitted

    def require(self, size: AnswerSize, tokens: int = 0) -> None:
        """Holds the bytes of answers.

        Raises:
            RefusalError: 413, they are more than a request may have; 429, too many are held now.
        """
        count, most = size.of(tokens), self._memory.most_answers
        if count > most:
            sentence = f"the answers could take {count:,} bytes of memory; the limit is {most:,}"
            raise RefusalError(413, f"{sentence}; {size.fix}")
        if not self.try_hold(count):
            raise RefusalError(429, "too many large replies are in progress; try again in 1 s", {"retry-after": "1"})

    def end(self) -> None:
        """Releases all bytes, also those that a thread would hold from now on."""
        with self._lock:
            self._is_over = True
            self._memory.hold(-self._count)
            self._count = 0
