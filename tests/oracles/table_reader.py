"""Reads a sorted table the obvious way: byte by byte, without distrusting the file."""

import struct

from oracles.crc32c_bitwise import crc32c_bitwise


def read_table_simply(data: bytes) -> dict[bytes, bytes]:
    """Keys and values of a valid table; for invalid files it crashes or returns wrong values."""
    assert data[-8:] == bytes.fromhex("57fb808b247547db")
    numbers = _varints(data[-48:-8], 4)
    entries = {}
    for _, handle in _entries(_block(data, *numbers[2:])):
        entries.update(_entries(_block(data, *_varints(handle, 2))))
    return entries


def _varints(data: bytes, count: int) -> list[int]:
    numbers, value, digit = [], 0, 0
    for byte in data:
        value += (byte % 128) * 128**digit
        digit += 1
        if byte < 128:
            numbers.append(value)
            value, digit = 0, 0
        if len(numbers) == count:
            break
    return numbers


def _block(data: bytes, offset: int, size: int) -> bytes:
    body, (stored,) = data[offset : offset + size + 1], struct.unpack_from("<I", data, offset + size + 1)
    plain = crc32c_bitwise(body)
    assert stored == ((plain >> 15) + (plain << 17) + 0xA282EAD8) % 2**32
    return body[:-1]


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack("<I", block[-4:])
    rest, entries, key = block[: -4 - 4 * restarts], [], b""
    while rest:
        numbers = _varints(rest, 3)
        for number in numbers:
            rest = rest[max(1, -(-number.bit_length() // 7)) :]
        shared, fresh, size = numbers
        key, value, rest = key[:shared] + rest[:fresh], rest[fresh : fresh + size], rest[fresh + size :]
        entries.append((key, value))
    return entries
