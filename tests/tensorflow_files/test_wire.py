"""Varints and messages are read back as written, and invalid ones are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.models.tensorflow_files import wire
from bertsmith.models.tensorflow_files.wire import BYTES, FIXED32, VARINT, WireError, field, fields, read_varint, varint


@given(st.integers(0, 2**64 - 1), st.binary(max_size=5))
def test_a_number_is_read_back_with_the_position_after_it(value, rest):
    data = varint(value) + rest
    assert read_varint(data, 0, len(data)) == (value, len(varint(value)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 10, b"\x80" * 11 + b"\0", b"\xff" * 9 + b"\x02"])
def test_a_number_that_is_cut_off_or_too_long_is_refused(data):
    with pytest.raises(WireError):
        read_varint(data, 0, len(data))


def test_nothing_beyond_the_end_is_read():
    with pytest.raises(WireError, match="cut off at byte 2"):
        read_varint(b"\xff\xff\x01", 0, 2)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 2**64 - 1) | st.binary(max_size=9))))
def test_a_message_is_read_back(message):
    data = b"".join(
        field(number, BYTES, value) if isinstance(value, bytes) else field(number, VARINT, varint(value))
        for number, value in message
    )
    assert [(number, value) for number, _, value in fields(data)] == message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (field(1, BYTES, b"abc")[:-1], "3 bytes where 2 are left"),
        (b"\x0a" + varint(2**63), "bytes where 0 are left"),
        (field(6, FIXED32, b"ab"), "4 bytes where 2 are left"),
        (b"\x0b", "kind 3"),
        (b"\x00\x01", "field number 0"),
        (b"\x08", "cut off"),
    ],
)
def test_an_invalid_message_is_refused(data, reason):
    with pytest.raises(WireError, match=reason):
        list(fields(data))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data):
    try:
        parsed = list(fields(data))
    except WireError:
        return
    assert all(number > 0 for number, _, _ in parsed)


def test_a_field_of_the_wrong_kind_is_refused():
    with pytest.raises(WireError, match="bytes instead of a size"):
        wire.expect_number(b"", "a size")
    with pytest.raises(WireError, match="a number instead of a name"):
        wire.expect_bytes(1, "a name")
