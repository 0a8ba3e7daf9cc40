"""CRC-32C against its definition, computed bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.models.tensorflow_files import crc32c as module
from bertsmith.models.tensorflow_files.crc32c import FOLD, FOLD_DISTANCES, POLYNOMIAL, crc32c
from oracles.crc32c_bitwise import crc32c_bitwise


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_published_values(data, value):
    """RFC 3720, appendix B.4."""
    assert crc32c(data) == crc32c_bitwise(data) == value


@given(st.binary(max_size=300))
def test_short_data_has_the_checksum_of_the_definition(data):
    assert crc32c(data) == crc32c_bitwise(data)


@pytest.mark.parametrize("extra", [-9, -8, -1, 0, 1, 7, 8, 9, 63, 64, 65, 8 * 6293, 8 * 6293 + 8, 8 * 4 * FOLD + 3])
def test_long_data_has_the_checksum_of_the_definition(extra):
    data = np.random.default_rng(extra + 100).integers(0, 256, 8 * FOLD + extra, dtype=np.uint8).tobytes()
    assert crc32c(data) == crc32c_bitwise(data)


def test_unaligned_data_has_the_same_checksum():
    data = np.random.default_rng(0).integers(0, 256, 500_003, dtype=np.uint8)
    whole = data.tobytes()
    for start in (1, 3, 4, 8):
        assert crc32c(data[start:]) == crc32c(whole[start:]) == crc32c(memoryview(whole)[start:])


def test_folding_does_not_modify_its_input():
    data = np.random.default_rng(0).integers(0, 256, 8 * FOLD * 3, dtype=np.uint8)
    before = data.copy()
    crc32c(data)
    np.testing.assert_array_equal(data, before)


def test_the_four_term_multiple_is_one():
    """x^(64 FOLD) + the two terms between + 1 is 0 modulo P: folding relies on it."""

    def power(words: int) -> int:
        value = 1 << 31
        for _ in range(64 * words):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        return value

    terms = [FOLD, *(FOLD - distance for distance in FOLD_DISTANCES)]
    total = 0
    for term in terms:
        total ^= power(term)
    assert total == 0
    assert min(FOLD_DISTANCES) > 0


@given(st.binary(min_size=1, max_size=200), st.data())
def test_one_flipped_bit_changes_the_checksum(data, draw):
    position = draw.draw(st.integers(0, len(data) * 8 - 1))
    other = bytearray(data)
    other[position // 8] ^= 1 << position % 8
    assert crc32c(bytes(other)) != crc32c(data)


def test_the_checksum_of_two_parts_follows_from_theirs():
    first, second = b"to be or not", b"to be, that is the question" * 9
    joined = module._shift(crc32c(first), len(second)) ^ crc32c(second)
    assert joined == crc32c(first + second)
