"""The normalization of texts for SentencePiece models, as the steps of a `tokenizer.json` describe it.

The central step is a table from strings to strings that SentencePiece compiles into a double-array trie. Here are also
the steps that published files put around it. Each of them divides a text into units, which it replaces one by one, so
that every character of the result has its place in the original.

Source: the format of `normalizer_spec.precompiled_charsmap` in SentencePiece (Kudo and Richardson, 2018) and of its
trie in darts-clone; the order of steps and the treatment of grapheme clusters of the package `tokenizers`.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from bertsmith.base.core.errors import CheckpointError
from bertsmith.text.tokenizers.characters import SPACES

_CLUSTER_BYTES = 6  # shorter grapheme clusters are looked up as a whole
_ATTACHED = frozenset(("Mn", "Me", "Mc"))
_ATTACHED_TOO = frozenset("\u200c\u200d\uff9e\uff9f\u0e33\u0eb3")
_PREPENDED = frozenset(map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2)))
_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
_JAMO = range(0x1100, 0x1200)  # they compose with each other
SPACES_AND_BREAKS = r"\s{2,}|[\n\r\t]"
# Regular expressions of files, as Oniguruma reads them.
_REGULAR_EXPRESSIONS = {
    " {2,}": " {2,}",
    " +": " +",
    "\\s+": f"[{SPACES}]+",
    SPACES_AND_BREAKS: f"[{SPACES}]{{2,}}|[\n\r\t]",
}


class Unit(NamedTuple):
    """Some characters of a text, and what a step makes of them."""

    result: str
    length: int  # characters of the text


Step = Callable[[str], Iterator[Unit]]


class Charsmap:
    """A compiled table of normalization.

    Args:
        packed: the bytes of `precompiled_charsmap`: the bytes of the trie as uint32, the trie, strings that end with 0.
    """

    def __init__(self, packed: bytes, source: str) -> None:
        size = int.from_bytes(packed[:4], "little")
        if len(packed) < 4 + size or size % 4 or not size:
            raise CheckpointError(
                expected=f"a complete table of normalization in {source}",
                found=f"{len(packed)} bytes for a trie of {size}",
                fix="copy the file again",
            )
        self._trie: list[int] = np.frombuffer(packed, dtype="<u4", count=size // 4, offset=4).tolist()
        self._strings = packed[4 + size :]
        self._replacements: dict[str, str | None] = {}

    def replacement(self, text: str) -> str | None:
        """The replacement of the shortest entry that begins `text`; None if there is no such entry."""
        if text not in self._replacements:
            begin = self._first_value(text.encode("utf-8", "surrogatepass"))
            end = -1 if begin is None else self._strings.find(b"\0", begin)
            replacement = None if begin is None else self._strings[begin : end if end >= 0 else len(self._strings)]
            self._replacements[text] = None if replacement is None else replacement.decode("utf-8", "replace")
        return self._replacements[text]

    def units(self, text: str) -> Iterator[Unit]:
        """The text in units: short grapheme clusters that the table has, and characters."""
        for cluster in _clusters(text):
            if len(cluster) > 1 and len(cluster.encode("utf-8", "surrogatepass")) < _CLUSTER_BYTES:
                replacement = self.replacement(cluster)
                if replacement is not None:
                    yield Unit(replacement, len(cluster))
                    continue
            for character in cluster:
                replacement = self.replacement(character)
                yield Unit(character if replacement is None else replacement, 1)

    def _first_value(self, key: bytes) -> int | None:
        """The value of the shortest key in the trie that begins `key`."""
        trie, node = self._trie, 0
        node ^= _offset(trie[0])
        for byte in key:
            node ^= byte
            if node >= len(trie):
                return None
            unit = trie[node]
            if unit & 0x800000FF != byte:  # the label; a leaf has the highest bit
                return None
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(trie):
                return trie[node] & 0x7FFFFFFF
        return None


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)


def _clusters(text: str) -> Iterator[str]:
    """The grapheme clusters of a text; longer ones may be divided further.

    Source: Unicode Standard Annex 29, rules GB3 to GB9b.
    """
    start = 0
    for position in range(1, len(text) + 1):
        if position < len(text) and _joins(text[position - 1], text[position]):
            continue
        yield text[start:position]
        start = position


def attaches(character: str) -> bool:
    """Whether a character can change what the one before it becomes."""
    return not character.isascii() and (
        character in _ATTACHED_TOO
        or unicodedata.category(character) in _ATTACHED
        or ord(character) in _JAMO
        or unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0
    )


def _joins(before: str, character: str) -> bool:
    if character.isascii():
        return before == "\r" and character == "\n"
    if before in _PREPENDED:
        return unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp")
    if unicodedata.category(before) in ("Cc", "Zl", "Zp") or (
        unicodedata.category(before) == "Cf" and before not in _ATTACHED_TOO
    ):
        return False
    return character in _ATTACHED_TOO or unicodedata.category(character) in _ATTACHED


def _form(name: _Form) -> Step:
    """A normalization form of Unicode, in units that do not depend on each other."""

    def units(text: str) -> Iterator[Unit]:
        if text.isascii():
            yield from (Unit(character, 1) for character in text)
            return
        start = 0
        for position in range(1, len(text) + 1):
            if position < len(text) and attaches(text[position]):
                continue
            yield Unit(unicodedata.normalize(name, text[start:position]), position - start)
            start = position

    return units


def _characters(change: Callable[[str], str]) -> Step:
    return lambda text: (Unit(change(character), 1) for character in text)


def _replace(pattern: re.Pattern[str], content: str) -> Step:
    def units(text: str) -> Iterator[Unit]:
        position = 0
        for match in pattern.finditer(text):
            yield from (Unit(character, 1) for character in text[position : match.start()])
            yield Unit(content, match.end() - match.start())
            position = match.end()
        yield from (Unit(character, 1) for character in text[position:])

    return units


def _strip(*, left: bool, right: bool) -> Step:
    def units(text: str) -> Iterator[Unit]:
        begin = len(text) - len(text.lstrip(SPACES)) if left else 0
        end = len(text.rstrip(SPACES)) if right else len(text)
        yield from (Unit(character if begin <= position < end else "", 1) for position, character in enumerate(text))

    return units


_STRIP_ACCENTS = _characters(lambda character: "" if unicodedata.category(character) in _ATTACHED else character)


def steps_of(normalizer: Any, source: str) -> tuple[Step, ...] | None:
    """The steps of the normalizer in a `tokenizer.json`; None if one of them is unknown here."""
    if normalizer is None:
        return ()
    if not isinstance(normalizer, Mapping):
        return None
    kind = normalizer.get("type")
    if kind == "Sequence":
        parts = [steps_of(part, source) for part in normalizer.get("normalizers", [])]
        return None if None in parts else tuple(step for part in parts if part is not None for step in part)
    if kind in get_args(_Form):
        return (_form(cast(_Form, kind)),)
    if kind == "Lowercase":
        return (_characters(str.lower),)
    if kind == "StripAccents":
        return (_STRIP_ACCENTS,)
    if kind == "Strip":
        return (_strip(left=bool(normalizer.get("strip_left")), right=bool(normalizer.get("strip_right"))),)
    if kind == "Replace":
        pattern, content = normalizer.get("pattern"), normalizer.get("content")
        if not isinstance(pattern, Mapping) or not isinstance(content, str):
            return None
        if isinstance(pattern.get("String"), str) and pattern["String"]:
            return (_replace(re.compile(re.escape(pattern["String"])), content),)
        if pattern.get("Regex") in _REGULAR_EXPRESSIONS:
            return (_replace(re.compile(_REGULAR_EXPRESSIONS[pattern["Regex"]]), content),)
        return None
    if kind == "Precompiled":
        packed = normalizer.get("precompiled_charsmap")
        if not packed:
            return ()
        try:
            return (Charsmap(base64.b64decode(packed, validate=True), source).units,)
        except (binascii.Error, TypeError, ValueError):
            raise CheckpointError(
                expected=f"a table of normalization in base64 in {source}",
                found=repr(packed)[:40],
                fix="copy the file again",
            ) from None
    return None


def marks_spaces(normalizer: Any) -> bool:
    """Whether a step of a normalizer replaces spaces by something else, so that what is around them matters."""
    if not isinstance(normalizer, Mapping):
        return False
    if normalizer.get("type") == "Replace":
        pattern = "".join(map(str, (normalizer.get("pattern") or {}).values()))
        return (" " in pattern or "\\s" in pattern) and str(normalizer.get("content")) != " "
    return any(marks_spaces(step) for step in normalizer.get("normalizers", ()))


def normalized(text: str, steps: tuple[Step, ...]) -> str:
    """The text after all steps."""
    for step in steps:
        text = "".join([unit.result for unit in step(text)])
    return text


def normalized_with_places(text: str, steps: tuple[Step, ...]) -> tuple[str, list[tuple[int, int]]]:
    """The text after all steps, and for each character its origin (start, end) in the original."""
    spans = [(position, position + 1) for position in range(len(text))]
    for step in steps:
        results, origins, position = list[str](), list[tuple[int, int]](), 0
        for result, length in step(text):
            if result:
                origin = spans[position][0], spans[position + length - 1][1]
                results.append(result)
                origins += [origin] * len(result)
            position += length
        text, spans = "".join(results), origins
    return text, spans


def keeps_beginning(text: str, steps: tuple[Step, ...]) -> bool:
    """Whether the package takes the first character after all steps to be from the beginning of the text.

    It does not if `StripAccents` removes the first one, such as an accent without a letter; what another step removes
    counts as part of the next character.
    """
    for step in steps:
        units = list(step(text))
        if step is _STRIP_ACCENTS and units and not units[0].result:
            return False
        text = "".join([unit.result for unit in units])
    return True
