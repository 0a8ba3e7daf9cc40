"""The sorted table of an index is written as TensorFlow writes it, and read without trusting it."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.models.tensorflow_files import sorted_table
from bertsmith.models.tensorflow_files.crc32c import crc32c, mask
from bertsmith.models.tensorflow_files.sorted_table import MAGIC, read_table, write_table
from bertsmith.models.tensorflow_files.wire import WireError, varint
from oracles.table_reader import read_table_simply

KEYS = st.binary(max_size=12) | st.text(alphabet="ab/\xff", max_size=12).map(str.encode)
TABLES = st.dictionaries(KEYS, st.binary(max_size=30), max_size=60)


def sealed(content: bytes, compression: int = 0) -> bytes:
    body = content + bytes([compression])
    return body + struct.pack("<I", mask(crc32c(body)))


def block(*entries: tuple[int, bytes, bytes], restarts: tuple[int, ...] = (0,)) -> bytes:
    """A block of (shared, rest of the key, value), valid or not."""
    body = b"".join(varint(s) + varint(len(k)) + varint(len(v)) + k + v for s, k, v in entries)
    return body + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table_of(content: bytes, *, upper: bytes = b"z", compression: int = 0, handle: bytes | None = None) -> bytes:
    """A file with one data block, its index and its footer."""
    data = sealed(content, compression)
    meta_at = len(data)
    data += sealed(block())
    index_at = len(data)
    index = block((0, upper, handle if handle is not None else varint(0) + varint(len(content))))
    data += sealed(index)
    places = varint(meta_at) + varint(8) + varint(index_at) + varint(len(index))
    return data + places.ljust(40, b"\0") + MAGIC


@given(TABLES)
def test_a_table_is_read_back_and_a_plain_reader_agrees(table):
    data = write_table(sorted(table.items()))
    assert read_table(data) == table == read_table_simply(data)


@given(TABLES)
@settings(max_examples=30)
def test_a_table_of_many_blocks_is_read_back(table):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_table, "BLOCK_BYTES", 64)
        data = write_table(sorted(table.items()))
    assert read_table(data) == table == read_table_simply(data)
    assert list(read_table(data)) == sorted(table)


def test_the_last_bytes_equal_those_of_a_real_index():
    """TensorFlow wrote them after 4,411 bytes of entries, the last of which was `global_step`."""
    data = table_of(b"\0" * 4411, upper=b"h")
    assert data[-48:] == bytes.fromhex("c0 22 08 cd 22 0f".replace(" ", "")).ljust(40, b"\0") + MAGIC
    assert data[-48 - 20 : -48] == bytes.fromhex("0001036800bb220000000001000000" + "00dd d30adc".replace(" ", ""))


def test_keys_in_the_index_are_shortened_as_in_leveldb():
    assert sorted_table._between(b"bert/abc", b"bert/azz") == b"bert/ac"
    assert sorted_table._between(b"ab", b"abc") == b"ab"
    assert sorted_table._between(b"a\xff", b"b") == b"a\xff"
    assert sorted_table._after(b"global_step") == b"h"
    assert sorted_table._after(b"\xff\xff") == b"\xff\xff"


def test_entries_share_keys_in_runs_of_sixteen():
    data = write_table([(b"key%03d" % number, b"") for number in range(40)])
    (count,) = struct.unpack_from("<I", data, data.index(sealed(block())) - 9)
    assert count == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (block((0, b"a", b"1"), (0, b"a", b"2")), "ascending"),
        (block((0, b"b", b"1"), (0, b"a", b"2")), "ascending"),
        (block((0, b"zz", b"1")), "beyond its key"),
        (block(), "empty"),
        (block((1, b"a", b"1")), "lengths do not fit"),
        (block((0, b"a", b"1"), (2, b"b", b"2")), "lengths do not fit"),
        (block((0, b"a" * 5000, b"1")), "lengths do not fit"),
        (varint(0) + varint(1) + varint(2**40) + b"a" + block(), "lengths do not fit"),
        (block((0, b"a", b"1"), (1, b"b", b"2"), restarts=(0, 5)), "across a restart"),
        (block((0, b"a", b"1"), restarts=(0, 2)), "between its entries"),
        (block((0, b"a", b"1"), restarts=(0, 0)), "not distinct"),
        (block((0, b"a", b"1"), restarts=(3,)), "not distinct or do not begin"),
        (b"", "too short"),
        (struct.pack("<II", 0, 2**32 - 1), "4294967295 restarts"),
        (struct.pack("<II", 0, 0), "0 restarts"),
    ],
)
def test_an_invalid_block_is_refused(content, reason):
    with pytest.raises(WireError, match=reason):
        read_table(table_of(content))


def test_a_valid_block_built_the_same_way_is_read():
    assert read_table(table_of(block((0, b"a", b"1"), (1, b"b", b"2")))) == {b"a": b"1", b"ab": b"2"}


def test_compressed_blocks_are_refused_by_name():
    with pytest.raises(WireError, match="Snappy"):
        read_table(table_of(block((0, b"a", b"1")), compression=1))
    with pytest.raises(WireError, match="unknown compression 9"):
        read_table(table_of(block((0, b"a", b"1")), compression=9))


@pytest.mark.parametrize(
    "handle", [varint(0) + varint(2**40), varint(2**63) + varint(5), varint(7), b"", varint(0) + varint(12) + b"x"]
)
def test_a_location_outside_the_file_is_refused(handle):
    with pytest.raises(WireError):
        read_table(table_of(block((0, b"a", b"1")), handle=handle))


def test_the_same_block_cannot_be_read_twice():
    """A small file must not grow by pointing at itself."""
    content = block((0, b"a", b"1"))
    data = sealed(content)
    meta_at = len(data)
    data += sealed(block())
    handle = varint(0) + varint(len(content))
    index = block((0, b"a", handle), (0, b"b", handle))
    index_at = len(data)
    data += (
        sealed(index) + (varint(meta_at) + varint(8) + varint(index_at) + varint(len(index))).ljust(40, b"\0") + MAGIC
    )
    with pytest.raises(WireError, match="overlap"):
        read_table(data)


def test_more_entries_than_any_index_has_are_refused():
    data = write_table([(b"%06d" % number, b"") for number in range(sorted_table.MOST_ENTRIES + 1)])
    with pytest.raises(WireError, match="more than 20000 entries"):
        read_table(data)


@given(TABLES.filter(bool), st.data())
def test_every_flipped_byte_is_detected(table, draw):
    data = bytearray(write_table(sorted(table.items())))
    position = draw.draw(st.integers(0, len(data) - 1))
    data[position] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        read_table(bytes(data))


@given(TABLES.filter(bool), st.data())
def test_every_truncation_is_detected(table, draw):
    data = write_table(sorted(table.items()))
    with pytest.raises(WireError):
        read_table(data[: draw.draw(st.integers(0, len(data) - 1))])


@given(st.binary(max_size=200))
def test_any_bytes_before_a_footer_are_a_table_or_refused(data):
    try:
        table = read_table(data + MAGIC)
    except WireError:
        return
    assert isinstance(table, dict)
