"""Splits a UTF-8 buffer into units: byte ranges that can be encoded one by one, in any order.

A unit is a run of letters, digits and anything else that is neither white space nor a sign; or one punctuation
character; or one Chinese character. The basic tokens of a text are the basic tokens of its units in order, because no
rule of `normalize.py` looks across those borders, with one exception: with the rules `google`, Σ becomes ς or σ
depending on its context, even beyond a full stop. There, everything up to the next white space is one unit.

Everything works on whole arrays of bytes. ASCII letters are lower-cased along the way, which affects no later step.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from bertsmith.text.tokenizers.characters import characters_of
from bertsmith.text.tokenizers.encoded import places_of
from bertsmith.text.tokenizers.keys import PADDING, Bytes, Integers
from bertsmith.text.tokenizers.normalize import TextRules

Flags = npt.NDArray[np.bool_]

_PART, _GAP, _SOLO, _SIGMA, _NOT_LOOKED_UP = range(5)
_PAGE = 256


@dataclasses.dataclass(frozen=True)
class Units:
    """The units of a buffer.

    Args:
        buffer: uint8 [n + PADDING], the text with ASCII in lower case if the rules say so. White space is zero, so a
            unit ends before the next zero or the next start; no unit contains a zero.
        reaches: int64 [U], the number of bytes from each start to the next one, or to the end of the text.
        plain_ascii: true if every pure ASCII unit consists of letters and digits, or is one sign.
    """

    buffer: Bytes
    starts: Integers
    reaches: Integers
    plain_ascii: bool


class UnitFinder:
    """Finds the units of texts under one set of rules."""

    def __init__(self, rules: TextRules) -> None:
        self.rules = rules
        self._known = characters_of(rules.control_rule)
        self._kinds = np.full(0x110000, _NOT_LOOKED_UP, dtype=np.uint8)

    def find(self, data: Bytes, borders: Integers) -> Units:
        """The units of `data`, uint8 [n] of UTF-8."""
        size = len(data)
        buffer = np.zeros(size + PADDING, dtype=np.uint8)
        body = buffer[:size]
        if self.rules.lowercase:
            np.negative((data - np.uint8(ord("A")) < 26).view(np.uint8), out=body)
            body &= 32
            body |= data
        else:
            body[:] = data
        beyond_ascii = body >= 128
        part = (body | 32) - np.uint8(ord("a")) < 26
        part |= body - np.uint8(ord("0")) < 10
        sign = body - np.uint8(33) < 94
        sign &= ~part
        part |= beyond_ascii
        gap = body == 32
        for other in (9, 10, 13):
            gap |= body == other
        # Control characters are later dropped from their word; here they stay part of the unit.
        control = ~(part | sign | gap)
        plain = not control.any()
        if not plain:
            part |= control
            body[body == 0] = 1
        if beyond_ascii.any():
            self._look_beyond_ascii(buffer, size, borders, part, sign, gap)
        body &= gap.view(np.uint8) - np.uint8(1)
        first = sign
        first[:1] |= part[:1]
        first[1:] |= part[1:] > part[:-1]
        inside = borders[np.searchsorted(borders, 1) : np.searchsorted(borders, size)]
        first[inside] |= part[inside]
        starts = np.flatnonzero(first)
        return Units(buffer, starts, np.diff(starts, append=size), plain)

    def _look_beyond_ascii(
        self, buffer: Bytes, size: int, borders: Integers, part: Flags, sign: Flags, gap: Flags
    ) -> None:
        """Marks white space and single characters beyond ASCII in `part`, `sign` and `gap`."""
        leads = np.flatnonzero(buffer[:size] >= 0xC0)
        codes, widths = _decode(buffer, leads)
        kinds = self._kinds_of(codes)
        gaps = _bytes_of(leads, widths, kinds == _GAP)
        part[gaps] = False
        gap[gaps] = True
        part[_bytes_of(leads, widths, kinds == _SOLO)] = False
        sign[leads[kinds == _SOLO]] = True
        sigmas = leads[kinds == _SIGMA]
        if len(sigmas):
            _join_around(sigmas, borders, part, sign, gap)

    def _kinds_of(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        kinds = self._kinds.take(codes)
        unknown = kinds == _NOT_LOOKED_UP
        if unknown.any():
            for page in np.unique(codes[unknown] // _PAGE).tolist():
                for code in range(page * _PAGE, (page + 1) * _PAGE):
                    self._kinds[code] = self._kind(chr(code))
            kinds = self._kinds.take(codes)
        return kinds

    def _kind(self, character: str) -> int:
        if self._known.is_dropped(character):
            return _PART
        if character.isspace():
            return _GAP
        if self._known.is_punctuation(character) or (self.rules.split_cjk and self._known.is_cjk(character)):
            return _SOLO
        looks_around = self.rules.lowercase and self.rules.control_rule == "google"
        return _SIGMA if character == "Σ" and looks_around else _PART


def _decode(buffer: Bytes, leads: Integers) -> tuple[npt.NDArray[np.int32], Integers]:
    """The code points that start at the bytes `leads`, and the number of bytes of each."""
    lead = buffer.take(leads).astype(np.int32)
    second, third, fourth = (buffer.take(leads + step).astype(np.int32) & 63 for step in (1, 2, 3))
    two = (lead & 31) << 6 | second
    three = (lead & 15) << 12 | second << 6 | third
    four = (lead & 7) << 18 | second << 12 | third << 6 | fourth
    codes = np.where(lead < 0xE0, two, np.where(lead < 0xF0, three, four))
    return codes, 2 + (lead >= 0xE0).astype(np.int64) + (lead >= 0xF0)


def _bytes_of(leads: Integers, widths: Integers, chosen: Flags) -> Integers:
    """The positions of the bytes of the chosen characters."""
    firsts, widths = leads[chosen], widths[chosen]
    return np.concatenate([firsts[widths > byte] + byte for byte in range(4)])


def _join_around(sigmas: Integers, borders: Integers, part: Flags, sign: Flags, gap: Flags) -> None:
    """Merges everything between the gaps or borders around each position in `sigmas` into one unit."""
    gaps = np.flatnonzero(gap)
    stops = np.unique(np.concatenate([[0], gaps, gaps + 1, borders, [len(gap)]]))
    after = np.unique(np.searchsorted(stops, sigmas, side="right"))
    inside = places_of(stops[after - 1], stops[after] - stops[after - 1])
    part[inside] = True
    sign[inside] = False
