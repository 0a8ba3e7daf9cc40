"""Added tokens: pieces that a text becomes as a whole, before it is split into words.

A tokenizer has its special pieces as such, and what `add_tokens` of `transformers` added. A token that is `normalized`
is looked for in the normalized text, in its own normalized spelling; all others in the text as it is, and first. Of
several that begin at a character the longest counts. This is what `AddedVocabulary` of the package `tokenizers` does.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from bertsmith.base.core.errors import VocabularyError
from bertsmith.text.tokenizers.characters import HUGGINGFACE, SPACES
from bertsmith.text.tokenizers.vocabulary import Vocabulary

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A piece that a text becomes as a whole.

    Attributes:
        single_word: only if there is no letter or digit before or after it.
        lstrip, rstrip: the white space before it, or after it, belongs to it.
        special: `transformers` leaves it out of decoded text.
    """

    content: str
    id: int
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], source: str) -> Self:
        """The token of an entry of `added_tokens` in a `tokenizer.json`."""
        content, id = entry.get("content"), entry.get("id")
        flags = {name: entry.get(name, False) for name in _FLAGS}
        if (
            not isinstance(content, str)
            or not content
            or type(id) is not int
            or set(map(type, flags.values())) != {bool}
        ):
            raise VocabularyError(
                expected=f"added tokens with a content, an id, and true or false for {', '.join(_FLAGS)} in {source}",
                found=repr(dict(entry))[:120],
                fix="restore the file",
            )
        return cls(content=content, id=id, **flags)

    def to_json(self) -> dict[str, Any]:
        """The entry of `added_tokens` in a `tokenizer.json`."""
        flags = {name: getattr(self, name) for name in _FLAGS}
        return {"id": self.id, "content": self.content, **flags}


def special_tokens_of(vocabulary: Vocabulary) -> tuple[AddedToken, ...]:
    """The special pieces of a vocabulary as added tokens, in the order of their ids."""
    return tuple(
        AddedToken(content=vocabulary.pieces[id], id=id, special=True) for id in sorted(vocabulary.special_ids)
    )


class Part(NamedTuple):
    """Some characters of a text: an added token, without the white space around it, or ordinary text."""

    start: int
    end: int
    token: AddedToken | None


class AddedTokens:
    """Finds added tokens.

    Args:
        tokens: in the order in which they were added; of those with the same spelling, the first one counts.
        reserved: the pieces that ordinary text does not become where special pieces are not wanted.
    """

    def __init__(
        self,
        tokens: Iterable[AddedToken],
        normalize: Callable[[str], str],
        reserved: Collection[str],
        source: str = "the tokenizer",
    ) -> None:
        self.tokens = tuple(tokens)
        self.raw = Finder({token.content: token for token in reversed(self.tokens) if not token.normalized}, reserved)
        spelled = {normalize(token.content): token for token in reversed(self.tokens) if token.normalized}
        if "" in spelled:
            raise VocabularyError(
                expected=f"added tokens of {source} of which something remains after normalization",
                found=repr(spelled[""].content),
                fix="set its 'normalized' to false in the tokenizer.json",
            )
        self.normalized = Finder(spelled, reserved)

    def wanted(self, *, specials: bool) -> bool:
        """Whether any token can be found, as `Finder.wanted` says."""
        return self.raw.wanted(specials=specials) or self.normalized.wanted(specials=specials)


class Finder:
    """Finds tokens by their spelling."""

    def __init__(self, tokens: Mapping[str, AddedToken], reserved: Collection[str]) -> None:
        self._tokens, self._reserved = tokens, frozenset(reserved)
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if tokens else None
        self._has_ordinary = any(token.content not in self._reserved for token in tokens.values())

    def wanted(self, *, specials: bool) -> bool:
        """Whether any token can be found: with `specials`, all; without, the unreserved ones."""
        return self._pattern is not None and (specials or self._has_ordinary)

    def may_find(self, text: str) -> bool:
        """Whether the spelling of a token occurs."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def parts(self, text: str, *, specials: bool) -> list[Part]:
        """The text as tokens and what is between them; a text without tokens is a single part, an empty one none."""
        return list(self._parts(text, specials))

    def _parts(self, text: str, specials: bool) -> Iterator[Part]:
        position = 0
        for match in () if self._pattern is None else self._pattern.finditer(text):
            token, (start, end) = self._tokens[match[0]], match.span()
            if not specials and token.content in self._reserved:
                continue
            if token.single_word and _touches_word(text, start, end):
                continue
            before = len(text[:start].rstrip(SPACES)) if token.lstrip else start
            if position < max(before, position):
                yield Part(position, before, None)
            yield Part(start, end, token)
            position = len(text) - len(text[end:].lstrip(SPACES)) if token.rstrip else end
        if position < len(text):
            yield Part(position, len(text), None)


def tokens_in(entries: Any, source: str) -> tuple[AddedToken, ...]:
    """The tokens in `added_tokens` of a `tokenizer.json`."""
    listed: Sequence[Any] = entries if isinstance(entries, list) else []
    return tuple(AddedToken.from_json(entry if isinstance(entry, dict) else {}, source) for entry in listed)


def _touches_word(text: str, start: int, end: int) -> bool:
    return any(map(HUGGINGFACE.is_word, (*text[start - 1 : start], *text[end : end + 1])))
