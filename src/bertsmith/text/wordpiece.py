"""The tokenizer: text to the ids of word pieces, and back.

`encode_batch` is the fast path, for corpora; `encode`, `tokenize` and `encode_with_offsets` are for single texts. All
of them give the pieces of `basic_tokens` cut by `Segmenter`, on every string. None adds [CLS] or [SEP]: see `pack.py`.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from bertsmith.text.encoded import Encoded, Ids, Pieces
from bertsmith.text.greedy import Segmenter
from bertsmith.text.normalize import TextRules, basic_tokens, basic_tokens_with_offsets
from bertsmith.text.vocabulary import CONTINUATION, SPECIAL_PIECES, Vocabulary

__all__ = ["Encoded", "Pieces", "TextRules", "Tokenizer", "Vocabulary"]

_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_PIECES)))
# A longer word is hardly ever met twice, and must not fill the memory.
_LONGEST_REMEMBERED = 64


class Tokenizer:
    """BERT's tokenizer for one vocabulary and one set of rules.

    Args:
        vocabulary: the pieces.
        rules: how text is cleaned and cut into words.
        cache_entries: how many words are remembered with their pieces; memory stays below about 150 bytes a word.

    >>> words = ["want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]
    >>> tokenizer = Tokenizer(Vocabulary([*SPECIAL_PIECES, *words]))
    >>> tokenizer.tokenize("UNwantéd,running")
    ['un', '##want', '##ed', ',', 'runn', '##ing']
    """

    def __init__(
        self, vocabulary: Vocabulary, rules: TextRules | None = None, *, cache_entries: int = 1_000_000
    ) -> None:
        self.vocabulary = vocabulary
        self.rules = rules if rules is not None else TextRules()
        self.cache_entries = cache_entries
        self._segmenter = Segmenter(vocabulary, max_word_characters=self.rules.max_word_characters)
        self._memo: dict[str, tuple[int, ...]] = {}

    def encode_batch(
        self, texts: Sequence[str] | pa.Array | pa.ChunkedArray, *, special_tokens: bool = False
    ) -> Encoded:
        """The ids of many texts in one flat array; no special pieces are added.

        Args:
            texts: strings, or an Arrow array of strings; a null is an empty text.
            special_tokens: `[MASK]` and the other special pieces in a text become their ids; by default ordinary text
                cannot make special ids, and `[MASK]` is three tokens.
        """
        plain = texts.to_pylist() if isinstance(texts, pa.Array | pa.ChunkedArray) else texts
        return Encoded.from_rows([self.encode(text or "", special_tokens=special_tokens) for text in plain])

    def encode(self, text: str, *, special_tokens: bool = False) -> Ids:
        """The ids of one text, int32 [P]; see `encode_batch` for `special_tokens`."""
        ids: list[int] = []
        for part, special in self._parts(text, special_tokens):
            if special:
                ids.append(self.vocabulary.index[part])
            else:
                self._extend(ids, part)
        return np.array(ids, dtype=np.int32)

    def tokenize(self, text: str, *, special_tokens: bool = False) -> list[str]:
        """The pieces of one text; see `encode_batch` for `special_tokens`."""
        pieces = self.vocabulary.pieces
        return [pieces[id] for id in self.encode(text, special_tokens=special_tokens).tolist()]

    def encode_with_offsets(self, text: str, *, special_tokens: bool = False) -> Pieces:
        """The ids of one text with the characters of `text` that each piece stands for."""
        ids, starts, ends = [], [], []
        position = 0
        for part, special in self._parts(text, special_tokens):
            if special:
                ids.append(self.vocabulary.index[part])
                starts.append(position)
                ends.append(position + len(part))
            else:
                for word in basic_tokens_with_offsets(part, self.rules):
                    for id, first, last in self._segmenter.pieces(word.text):
                        ids.append(id)
                        starts.append(position + min(word.starts[first:last]))
                        ends.append(position + max(word.ends[first:last]))
            position += len(part)
        return Pieces(*(np.array(column, dtype=np.int32) for column in (ids, starts, ends)))

    def decode(self, ids: Iterable[int] | Ids, *, skip_special: bool = True) -> str:
        """The pieces of `ids` joined to words, with one space between words.

        >>> tokenizer = Tokenizer(Vocabulary([*SPECIAL_PIECES, "un", "##want", "##ed"]))
        >>> tokenizer.decode([2, 5, 6, 7, 3, 5]), tokenizer.decode([2, 5, 6, 3], skip_special=False)
        ('unwanted un', '[CLS] unwant [SEP]')
        """
        special = self.vocabulary.special_ids if skip_special else frozenset()
        words: list[str] = []
        for id in np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int64).tolist():
            if id in special:
                continue
            piece = self.vocabulary.pieces[id]
            if piece.startswith(CONTINUATION) and words:
                words[-1] += piece[len(CONTINUATION) :]
            else:
                words.append(piece)
        return " ".join(words)

    def _extend(self, ids: list[int], text: str) -> None:
        memo, segment = self._memo, self._segmenter.ids
        for word in basic_tokens(text, self.rules):
            found = memo.get(word)
            if found is None:
                found = segment(word)
                if len(memo) >= self.cache_entries:
                    memo.clear()
                if len(word) <= _LONGEST_REMEMBERED:
                    memo[word] = found
            ids.extend(found)

    @staticmethod
    def _parts(text: str, special_tokens: bool) -> list[tuple[str, bool]]:
        """The text cut at special pieces: (part, whether it is a special piece)."""
        if not special_tokens:
            return [(text, False)]
        parts, position = [], 0
        for match in _SPECIAL.finditer(text):
            parts += [(text[position : match.start()], False), (match.group(), True)]
            position = match.end()
        return [*parts, (text[position:], False)]
