"""Compressed request bodies: gzip, decompressed chunk by chunk, so that a small body cannot become a large one."""

import zlib
from collections.abc import Mapping

from bertsmith.server.refusal import RefusalError

_GZIP = frozenset({"gzip", "x-gzip"})
_WITH_HEADER = 16 + zlib.MAX_WBITS  # zlib's value for gzip


class Decompressor:
    """Turns the chunks of a gzip body into the bytes that were compressed."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_WITH_HEADER)

    def bytes(self, chunk: bytes, most: int) -> bytes:
        """The decompressed bytes of a chunk: if they are more than `most`, one more, and the rest is not computed.

        Raises:
            RefusalError: 400, the chunk is not gzip, or something follows the end.
        """
        try:
            found = self._member.decompress(chunk, most + 1)
        except zlib.error:
            raise _damaged() from None
        # A second member is allowed by the format and sent by no client; thousands of empty ones would be slow.
        if self._member.unused_data:
            raise _damaged()
        return found

    def end(self) -> None:
        """Returns if the body was complete.

        Raises:
            RefusalError: 400, it ended early.
        """
        if not self._member.eof:
            raise _damaged()


def decompressor(headers: Mapping[str, str]) -> Decompressor | None:
    """The decompressor for a body with these headers; None if it is not compressed.

    Raises:
        RefusalError: 415, it is compressed in another way.
    """
    said = headers.get("content-encoding", "").strip().lower()
    if said in ("", "identity"):
        return None
    if said in _GZIP:
        return Decompressor()
    sentence = f"expected content-encoding: gzip, or none; found {said[:60]!r}; send the body as it is"
    raise RefusalError(415, sentence, {"accept-encoding": "gzip"})


def _damaged() -> RefusalError:
    return RefusalError(400, "expected one complete stream of gzip; found a damaged body; send the body as it is")
