"""The interface of a tokenizer for the rest of the package: text to ids and back, and the template of a row.

WordPiece (`wordpiece.py`) is implemented in this package; any other `tokenizer.json` is run by the package `tokenizers`
(`pipeline.py`). Other subpackages use only this class.
"""

import abc
import functools
import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.progress import warn
from bertsmith.text.tokenizers.blocks import Strings, is_arrow
from bertsmith.text.tokenizers.encoded import Encoded, EncodedWithOffsets, Ids, Pieces, offsets_of, places_of
from bertsmith.text.tokenizers.keys import Bytes
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.vocabulary import Vocabulary

Flags = npt.NDArray[np.bool_]
SpecialTokens = bool | Literal["own"]


class Tokenizer(abc.ABC):
    """Converts text to the ids of pieces, and back. No method adds special tokens: `pack.py` does, by the template.

    Attributes:
        rules: how text is split into words where words are needed (search by word, answers); for WordPiece also how
            text is cleaned before its words are looked up.
        max_characters: of a text, which loses the others before it is encoded, as in Model2Vec; None for any number.
        unsettled: how many of the last characters of a decoded text a further piece may change: bytes become a
            character, or words one such as "isn't".
    """

    unsettled: ClassVar[int] = 8
    vocabulary: Vocabulary
    rules: TextRules
    template: Template
    max_characters: int | None = None

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The name of its pieces, for texts about a model."""

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings besides the vocabulary that determine the ids of a text, as plain values for JSON."""

    @property
    @abc.abstractmethod
    def begins_word(self) -> Flags:
        """Whether a piece starts a word inside a text, bool [V]; the first piece of a text always does."""

    def starts_of_words(self, ids: Ids) -> Flags:
        """Whether each of consecutive pieces starts a word inside a text, bool [P]."""
        return self.begins_word[ids]

    @property
    def casing_problem(self) -> str | None:
        """The problem if the case or the marks of cleaned text do not fit the vocabulary; else None."""
        return None

    @abc.abstractmethod
    def encode_batch(self, texts: Strings, *, special_tokens: SpecialTokens = False) -> Encoded:
        """The ids of many texts in one flat array.

        Args:
            texts: strings, or an Arrow array of strings; a null is an empty text.
            special_tokens: special pieces in a text become their ids; by default ordinary text cannot make special
                ids. `[MASK]` is the mask of every model, next to its own spelling (`<mask>` for RoBERTa), unless
                this is "own": only the spelling of the vocabulary counts.
        """

    def shortened(self, texts: Strings) -> Strings:
        """The texts without what exceeds `max_characters`; warns how many are longer."""
        most = self.max_characters
        if most is None:
            return texts
        strings = texts.to_pylist() if is_arrow(texts) else texts
        if longer := sum(len(text or "") > most for text in strings):
            warn(f"texts longer than {most:,} characters, truncated as in Model2Vec: {longer:,}")
        return [(text or "")[:most] for text in strings]

    @abc.abstractmethod
    def encode_words(self, words: Strings, spaced: Sequence[bool] | None = None) -> Encoded:
        """The ids of many words, each encoded as inside a text; by default with a space before each (`spaced`)."""

    def encode_repeated_words(self, words: Sequence[str]) -> Encoded:
        """The ids of many words, as in `encode_words`, with [UNK] for a word without pieces.

        Words that occur several times are encoded once.
        """
        numbers: dict[str, int] = {}
        chosen = np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)
        different = self.encode_words(list(numbers))
        # Words without pieces point to the [UNK] appended after all others.
        ids = np.append(different.ids, np.int32(self.vocabulary.unk_id))
        starts = np.where(different.lengths > 0, different.offsets[:-1], len(different.ids))[chosen]
        counts = np.maximum(different.lengths, 1)[chosen]
        return Encoded(ids[places_of(starts, counts)], offsets_of(counts))

    @abc.abstractmethod
    def encode_with_offsets(self, text: str, *, special_tokens: SpecialTokens = False) -> Pieces:
        """The ids of one text with character offsets."""

    @abc.abstractmethod
    def encode_batch_with_offsets(self, texts: Sequence[str]) -> EncodedWithOffsets:
        """The ids of many texts with character offsets."""

    @abc.abstractmethod
    def locate(self, ids: Sequence[int], words: str, before: Sequence[int] = ()) -> tuple[int, int]:
        """The characters (start, end) of `words` that some of its pieces cover; the whole of `words` if unclear.

        Args:
            words: whole words that contain them, with one space between words.
            before: the pieces of these words before `ids`.
        """

    @abc.abstractmethod
    def decode(self, ids: Iterable[int] | Ids, *, skip_special: bool = True) -> str:
        """The text of some pieces."""

    def encode(self, text: str, *, special_tokens: SpecialTokens = False) -> Ids:
        """The ids of one text, int32 [P]; see `encode_batch`."""
        return self.encode_batch([text], special_tokens=special_tokens).ids

    def tokenize(self, text: str, *, special_tokens: SpecialTokens = False) -> list[str]:
        """The pieces of one text; see `encode_batch`."""
        pieces = self.vocabulary.pieces
        return [pieces[id] for id in self.encode(text, special_tokens=special_tokens).tolist()]


def warn_of_casing(tokenizer: Tokenizer, origin: object) -> None:
    """Says that text rules do not fit a vocabulary, so that a model would answer from [UNK].

    Said once in a process for each vocabulary: the models that a run trains have the vocabulary of its base model.
    """
    problem = tokenizer.casing_problem
    if problem is not None and (tokenizer.vocabulary.digest, problem) not in _said_of_casing():
        _said_of_casing().add((tokenizer.vocabulary.digest, problem))
        warn(f"'{origin}': {problem}")


def say_special(tokenizer: Tokenizer, pieces: Iterable[str], special_tokens: SpecialTokens) -> None:
    """Says how special pieces in a text are read: as special tokens, as in `transformers`, or as characters.

    Said once in a process for each vocabulary and each of the two. A mask is not a surprise where masks are filled.
    """
    special = tokenizer.vocabulary.special
    known = {piece for piece in special if piece} - ({special.mask} if special_tokens is True else set())
    surprising = sorted(known.intersection(pieces))
    reading = (tokenizer.vocabulary.digest, bool(special_tokens))
    with _SAYING:  # several threads may read texts
        is_new = bool(surprising) and reading not in _said_of_specials()
        if is_new:
            _said_of_specials().add(reading)
    if is_new:
        warn(
            f"{' and '.join(surprising)} in a text: read as "
            + (
                "special tokens, as in transformers"
                if special_tokens
                else "ordinary characters; transformers would read special tokens"
            )
        )


class SpecialsAsCharacters:
    """Looks for special pieces in texts that are read as ordinary characters, and says so.

    Attributes:
        opening: the character that all special pieces start with, often "["; empty if they differ.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # A piece of a single character, such as "!", is ordinary text.
        pieces = sorted((piece for piece in tokenizer.vocabulary.special if len(piece) > 1), key=len, reverse=True)
        self.opening = pieces[0][0] if len({piece[0] for piece in pieces}) == 1 else ""
        # A common first character lets `re` skip to the next of them.
        pattern = re.escape(self.opening) + f"(?:{'|'.join(re.escape(piece[len(self.opening) :]) for piece in pieces)})"
        self._in_text = re.compile(pattern if pieces else "(?!)")
        self._in_bytes = re.compile(self._in_text.pattern.encode())

    def look(self, text: str) -> None:
        """Warns if the text has a special piece."""
        if self.opening in text and (match := self._in_text.search(text)):
            say_special(self._tokenizer, (match[0],), False)

    def look_in_bytes(self, data: Bytes) -> None:
        """Warns if texts in UTF-8 have a special piece."""
        if match := self._in_bytes.search(data.data):
            say_special(self._tokenizer, (match[0].decode(),), False)


_SAYING = threading.Lock()


@functools.cache
def _said_of_specials() -> set[tuple[str, bool]]:
    """The vocabularies that this was said of, by digest, each with the reading; the set of this process."""
    return set()


@functools.cache
def _said_of_casing() -> set[tuple[str, str]]:
    """The vocabularies that a warning was about, by digest, each with the problem; the set of this process."""
    return set()
