"""CRC-32C (Castagnoli) at memory speed, with NumPy alone.

TensorFlow protects every tensor and every block of its index with this checksum. A plain loop over 400 MB would take
minutes, so the work is done on whole arrays:

1. The bits are coefficients of a polynomial over GF(2), and the checksum is its remainder modulo P. P has multiples
   with only four terms; one of them implies that a 64-bit word may be replaced by three copies of itself at later
   positions. Three XORs per word reduce data of any length to 54 KB.
2. The rest is split into equal lanes, whose remainders are computed in parallel by table lookup.
3. Adjacent lanes are joined: the remainder of "AB" is that of A, shifted by the length of B, plus that of B.

Source: RFC 3720 appendix B.4 (the checksum and its test values); lib/hash/crc32c.h of TensorFlow (the mask).
"""

import functools

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Remainders = npt.NDArray[np.uint32]

# P with the coefficient of x^0 in the highest bit, as in the reflected form of the checksum.
POLYNOMIAL = 0x82F63B78

# Modulo P: x^(64 * 6777) = x^(64 * 484) + x^(64 * 100) + 1. FOLD_DISTANCES: how many words later a word is added again.
FOLD = 6777
FOLD_DISTANCES = (FOLD - 484, FOLD - 100, FOLD)
_WINDOW = 4 * FOLD  # words folded at a time: the working set fits in the L2 cache

_LANE_WORDS = 8
_LANE_POWER = 6  # a lane is 2**6 bytes
_MASK_DELTA = 0xA282EAD8


def crc32c(data: Bytes) -> int:
    """The CRC-32C of `data`, from 0 to 2**32 - 1.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    head = len(raw) % 8
    register = 0xFFFFFFFF
    for byte in raw[:head].tolist():
        register = int(_tables()[0, (register ^ byte) & 0xFF]) ^ (register >> 8)
    words = raw[head:].view("<u8")
    return _shift(register, 8 * len(words)) ^ _remainder(_fold(words)) ^ 0xFFFFFFFF


def mask(value: int) -> int:
    """The form in which a checksum is stored, so that checksums of data that contains checksums remain reliable.

    >>> hex(mask(0xE3069283))
    '0xc78ab0e5'
    """
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _fold(words: Words) -> Words:
    """At most `FOLD` words with the same remainder; `words` is not modified."""
    if len(words) <= FOLD:
        return words
    window = np.zeros(FOLD + _WINDOW, dtype=np.uint64)
    window[:FOLD] = words[:FOLD]
    block = min(FOLD_DISTANCES)  # a word may be folded once nothing more can be added to it
    for start in range(FOLD, len(words), _WINDOW):
        fresh = words[start : start + _WINDOW]
        count = len(fresh)
        window[FOLD : FOLD + count] = fresh
        for first in range(0, count, block):
            done = window[first : min(first + block, count)]
            for distance in FOLD_DISTANCES:
                window[first + distance : first + distance + len(done)] ^= done
        window[:FOLD] = window[count : count + FOLD].copy()
    return window[:FOLD]


def _remainder(words: Words) -> int:
    """The register after these words, if it was zero before them."""
    if not len(words):
        return 0
    lanes = -(-len(words) // _LANE_WORDS)
    padded = np.zeros(lanes * _LANE_WORDS, dtype="<u8")  # leading zeros leave a zero register at zero
    padded[len(padded) - len(words) :] = words
    columns = np.ascontiguousarray(padded.reshape(lanes, _LANE_WORDS).T)
    tables = _tables()
    registers: Remainders = np.zeros(lanes, dtype=np.uint32)
    for column in columns:
        places = (column ^ registers).view(np.uint8).reshape(lanes, 8)
        registers = tables[7].take(places[:, 0])
        for byte in range(1, 8):
            registers ^= tables[7 - byte].take(places[:, byte])
    power = _LANE_POWER
    while len(registers) > 1:
        if len(registers) % 2:
            registers = np.concatenate([np.zeros(1, dtype=np.uint32), registers])
        registers = _shift_all(registers[0::2], power) ^ registers[1::2]
        power += 1
    return int(registers[0])


@functools.cache
def _tables() -> Remainders:
    """[8, 256]: the register after byte v and k zero bytes, at [k, v]."""
    values: Remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ (values & np.uint32(1)) * np.uint32(POLYNOMIAL)
    tables = [values]
    for _ in range(7):
        tables.append(values[tables[-1] & 0xFF] ^ (tables[-1] >> 8))
    return np.stack(tables)


@functools.cache
def _zeros(power: int) -> tuple[int, ...]:
    """The result of 2**power zero bytes for each of the 32 bits of a register."""
    if power == 0:
        table = _tables()[0].tolist()
        return tuple(table[bit & 0xFF] ^ (bit >> 8) for bit in (1 << position for position in range(32)))
    half = _zeros(power - 1)
    return tuple(_apply(half, value) for value in half)


def _apply(columns: tuple[int, ...], register: int) -> int:
    result = 0
    for position, column in enumerate(columns):
        if register >> position & 1:
            result ^= column
    return result


def _shift(register: int, zeros: int) -> int:
    """The register after that many zero bytes."""
    power = 0
    while zeros >> power:
        if zeros >> power & 1:
            register = _apply(_zeros(power), register)
        power += 1
    return register


@functools.cache
def _shift_tables(power: int) -> Remainders:
    """[4, 256]: the result of 2**power zero bytes for the value v of byte j of a register, at [j, v]."""
    columns = np.array(_zeros(power), dtype=np.uint32).reshape(4, 8)
    bits = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(bool)  # [256, 8]
    tables: Remainders = np.bitwise_xor.reduce(np.where(bits, columns[:, None, :], np.uint32(0)), axis=2)
    return tables


def _shift_all(registers: Remainders, power: int) -> Remainders:
    """Each register after 2**power zero bytes."""
    tables = _shift_tables(power)
    places = np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 4)
    shifted: Remainders = tables[0].take(places[:, 0])
    for byte in range(1, 4):
        shifted ^= tables[byte].take(places[:, byte])
    return shifted
