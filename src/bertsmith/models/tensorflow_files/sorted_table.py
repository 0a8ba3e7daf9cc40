"""The sorted table that holds the index of a TensorFlow checkpoint: LevelDB's file format, read and written.

A file consists of data blocks, an empty metadata block, an index block (last key of each block to its location), and a
footer. A block contains entries whose keys omit the prefix shared with the previous key, then the offsets of the
entries that share nothing (restarts). Every block is followed by its compression (always none here) and a checksum.

Source: the format description of LevelDB (doc/table_format.md); TensorFlow's lib/io/table_builder.cc for the sizes.
"""

import struct
from collections.abc import Iterable, Iterator

from bertsmith.models.tensorflow_files.crc32c import crc32c, mask
from bertsmith.models.tensorflow_files.wire import WireError, read_varint, varint

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
FOOTER_BYTES = 48
TRAILER_BYTES = 5
BLOCK_BYTES = 262_144
RESTART_INTERVAL = 16
UNCOMPRESSED, SNAPPY = 0, 1

# Far above any real index (BERT-large with optimizer state: 1,200 entries in 90 KB); limits the cost of a hostile one.
MOST_ENTRIES = 20_000
MOST_KEY_BYTES = 4_096
MOST_KEYS_BYTES = 64_000_000


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All keys and values of a table, in ascending order of the keys."""
    if len(data) < FOOTER_BYTES or not data.endswith(MAGIC):
        raise WireError("no table footer at the end")
    footer_at = len(data) - FOOTER_BYTES
    metaindex, at = _read_handle(data, footer_at, len(data) - len(MAGIC))
    index, at = _read_handle(data, at, len(data) - len(MAGIC))
    if any(data[at : len(data) - len(MAGIC)]):
        raise WireError("a table footer whose padding is not zero")
    _block(data, metaindex, footer_at)
    table: dict[bytes, bytes] = {}
    last, free_from, key_bytes = None, 0, 0
    for upper, value in _entries(_block(data, index, footer_at)):
        handle, end = _read_handle(value, 0, len(value))
        if end != len(value) or handle[0] < free_from:
            raise WireError("an index whose blocks overlap or are out of order")
        free_from = handle[0] + handle[1] + TRAILER_BYTES
        block_from = len(table)
        for key, content in _entries(_block(data, handle, footer_at)):
            key_bytes += len(key)
            if last is not None and key <= last:
                raise WireError("keys that are not in ascending order")
            if len(table) >= MOST_ENTRIES or key_bytes > MOST_KEYS_BYTES:
                raise WireError(f"more than {MOST_ENTRIES} entries or {MOST_KEYS_BYTES} bytes of names")
            table[key] = content
            last = key
        # An empty block takes time and adds no entry, so the limits above would not bound the number of such blocks.
        if last is None or len(table) == block_from or last > upper:
            raise WireError("a block that is empty or has keys beyond its key in the index")
    return table


def write_table(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a table; `items` must be in strictly ascending order of their keys."""
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    block: list[tuple[bytes, bytes]] = []
    builder = _BlockBuilder(RESTART_INTERVAL)
    waiting: tuple[bytes, bytes] | None = None  # last key and location of a block, until the next key is known
    for key, value in items:
        assert not block or block[-1][0] < key, "keys out of order"
        if waiting is not None:
            index.append((_between(waiting[0], key), waiting[1]))
            waiting = None
        builder.add(key, value)
        block.append((key, value))
        if builder.size >= BLOCK_BYTES:
            waiting = key, _append_block(out, builder.finish())
            builder, block = _BlockBuilder(RESTART_INTERVAL), []
    if block:
        waiting = block[-1][0], _append_block(out, builder.finish())
    if waiting is not None:
        index.append((_after(waiting[0]), waiting[1]))
    metaindex = _append_block(out, _BlockBuilder(RESTART_INTERVAL).finish())
    index_builder = _BlockBuilder(1)
    for key, value in index:
        index_builder.add(key, value)
    handle = _append_block(out, index_builder.finish())
    return bytes(out) + (metaindex + handle).ljust(FOOTER_BYTES - len(MAGIC), b"\0") + MAGIC


class _BlockBuilder:
    """Collects the entries of one block."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._out = bytearray()
        self._restarts = [0]
        self._since_restart = 0
        self._last = b""

    @property
    def size(self) -> int:
        """The size of the block in bytes if it were finished now."""
        return len(self._out) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        """Appends an entry."""
        shared = 0
        if self._since_restart < self._interval:
            shared = _common(self._last, key)
        else:
            self._restarts.append(len(self._out))
            self._since_restart = 0
        self._out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._last = key
        self._since_restart += 1

    def finish(self) -> bytes:
        """The bytes of the block, without its trailer."""
        return bytes(self._out) + struct.pack(f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts))


def _append_block(out: bytearray, content: bytes) -> bytes:
    """The location of a block that is appended with its trailer, as bytes."""
    handle = varint(len(out)) + varint(len(content))
    body = content + bytes([UNCOMPRESSED])
    out += body + struct.pack("<I", mask(crc32c(body)))
    return handle


def _between(start: bytes, limit: bytes) -> bytes:
    """A short key that is not before `start` and is before `limit`."""
    shared = _common(start, limit)
    if shared < min(len(start), len(limit)) and start[shared] < 0xFF and start[shared] + 1 < limit[shared]:
        return start[:shared] + bytes([start[shared] + 1])
    return start


def _after(key: bytes) -> bytes:
    """A short key that is not before `key`."""
    for position, byte in enumerate(key):
        if byte != 0xFF:
            return key[:position] + bytes([byte + 1])
    return key


def _common(a: bytes, b: bytes) -> int:
    """The length of the common prefix of two keys, in bytes."""
    longest = min(len(a), len(b))
    return next((position for position in range(longest) if a[position] != b[position]), longest)


def _read_handle(data: bytes, at: int, end: int) -> tuple[tuple[int, int], int]:
    """The offset and size of a block, and the position after them."""
    offset, at = read_varint(data, at, end)
    size, at = read_varint(data, at, end)
    return (offset, size), at


def _block(data: bytes, handle: tuple[int, int], end: int) -> bytes:
    """The content of a block, after its checksum is verified."""
    offset, size = handle
    if offset + size + TRAILER_BYTES > end:
        raise WireError(f"a block of {size} bytes at {offset}, beyond the {end} bytes before the footer")
    compression = data[offset + size]
    if compression == SNAPPY:
        raise WireError("a block compressed with Snappy, which TensorFlow never writes in a checkpoint")
    if compression != UNCOMPRESSED:
        raise WireError(f"a block with the unknown compression {compression}")
    (stored,) = struct.unpack_from("<I", data, offset + size + 1)
    if stored != mask(crc32c(data[offset : offset + size + 1])):
        raise WireError(f"a block at {offset} whose checksum does not match")
    return data[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block, with complete keys."""
    if len(block) < 8:
        raise WireError("a block that is too short")
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * count
    if count < 1 or end < 0:
        raise WireError(f"a block with {count} restarts in {len(block)} bytes")
    restarts = set(struct.unpack_from(f"<{count}I", block, end))
    if len(restarts) != count or 0 not in restarts:
        raise WireError("a block whose restarts are not distinct or do not begin at its start")
    at, key, met = 0, b"", {0}
    while at < end:
        start = at
        shared, at = read_varint(block, at, end)
        fresh, at = read_varint(block, at, end)
        size, at = read_varint(block, at, end)
        if shared > len(key) or fresh + size > end - at or shared + fresh > MOST_KEY_BYTES:
            raise WireError(f"an entry at {start} whose lengths do not fit its block")
        if start in restarts:
            met.add(start)
            if shared:
                raise WireError(f"an entry at {start} that shares a key across a restart")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + size]
        at += size
    if met != restarts:
        raise WireError("a block whose restarts point between its entries")
