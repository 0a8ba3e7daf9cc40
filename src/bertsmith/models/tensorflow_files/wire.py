"""The part of the protocol-buffer wire format that a checkpoint index uses: varints, fixed 32 bits, byte strings.

Every length is checked against the bytes that are available. Invalid data raises `WireError`, which the reader of the
file turns into an error that names the file.

Source: the public description of the encoding, protobuf.dev.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_LONGEST_VARINT = 10  # bytes, of 7 bits each: 64 bits


class WireError(ValueError):
    """Bytes that are not what they claim to be; the message says where."""


def varint(value: int) -> bytes:
    """The encoding of a number from 0 to 2**64 - 1: seven bits per byte, lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at` and the position after it; nothing at or after `end` is read."""
    value = 0
    for count in range(_LONGEST_VARINT):
        if at + count >= end:
            raise WireError(f"a number that is cut off at byte {at + count}")
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + count + 1
    raise WireError(f"a number longer than 64 bits at byte {at}")


def field(number: int, kind: int, payload: bytes) -> bytes:
    """One field of a message; `payload` is its encoded value, without the length of a byte string.

    >>> field(2, BYTES, b"ab").hex()
    '12026162'
    """
    length = varint(len(payload)) if kind == BYTES else b""
    return varint(number << 3 | kind) + length + payload


def number_field(number: int, value: int) -> bytes:
    """A varint field, or nothing if the value is 0, the default, as in proto3.

    >>> number_field(5, 16).hex(), number_field(5, 0)
    ('2810', b'')
    """
    return field(number, VARINT, varint(value)) if value else b""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a message in order: number, kind, value."""
    at, end = 0, len(data)
    while at < end:
        key, at = read_varint(data, at, end)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"field number {number} before byte {at}")
        if kind == VARINT:
            value, at = read_varint(data, at, end)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at, end)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise WireError(f"a field of kind {kind} before byte {at}")
        if size > end - at:
            raise WireError(f"a field of {size} bytes where {end - at} are left")
        piece = data[at : at + size]
        yield number, kind, piece if kind == BYTES else int.from_bytes(piece, "little")
        at += size


def expect_number(value: int | bytes, field: str) -> int:
    """The value of a number field."""
    if isinstance(value, bytes):
        raise WireError(f"bytes instead of {field}")
    return value


def expect_bytes(value: int | bytes, field: str) -> bytes:
    """The value of a byte-string field."""
    if isinstance(value, int):
        raise WireError(f"a number instead of {field}")
    return value
