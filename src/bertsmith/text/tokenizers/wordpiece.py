"""WordPiece, BERT's tokenizer: text to the ids of word pieces, and back.

`encode_batch` is the fast path, for corpora; `encode`, `tokenize` and `encode_with_offsets` are for single texts. On
every string all of them return the pieces of `basic_tokens` split by `Segmenter` (the algorithm, in
`longest_match.py`). None adds [CLS] or [SEP]: see
`pack.py`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bertsmith.base.core.settings import to_dict
from bertsmith.text.tokenizers.added_tokens import AddedToken, AddedTokens, special_tokens_of
from bertsmith.text.tokenizers.blocks import Strings, is_arrow
from bertsmith.text.tokenizers.encoded import BoundedCache, Encoded, EncodedWithOffsets, Ids, Pieces
from bertsmith.text.tokenizers.fast import FastEncoder
from bertsmith.text.tokenizers.longest_match import Segmenter
from bertsmith.text.tokenizers.normalize import (
    BasicToken,
    TextRules,
    basic_tokens,
    basic_tokens_with_offsets,
    normalized,
    normalized_with_origins,
    tokens_of_normalized,
)
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Flags, SpecialsAsCharacters, SpecialTokens, Tokenizer, say_special
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, Vocabulary, casing_mismatch, lost_letter_marks

ADDED_TOKENS = "added_tokens"  # the name of added tokens in records
# Longer words hardly ever recur and must not fill the cache.
_LONGEST_REMEMBERED = 64
_ENTRY_BYTES = 200  # of a word and its pieces in a cache, besides their characters and ids
# From this many characters on, the fast path is faster than the plain one.
_SMALL = 20_000


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer for one vocabulary and one set of rules.

    Args:
        added: the added tokens, special pieces among them; by default these alone.
        cache_entries: maximum number of words cached with their pieces; they also take a bounded number of bytes.
        threads: threads for `encode_batch`; by default one for each core that this process may use.

    >>> from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES
    >>> words = ["want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]
    >>> tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *words]))
    >>> tokenizer.tokenize("UNwantéd,running")
    ['un', '##want', '##ed', ',', 'runn', '##ing']
    """

    unsettled = 0

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: TextRules | None = None,
        *,
        added: Sequence[AddedToken] | None = None,
        cache_entries: int = 500_000,
        threads: int | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.rules = rules if rules is not None else TextRules()
        self.template = Template.bert(vocabulary.cls_id, vocabulary.sep_id)
        self.cache_entries = cache_entries
        self.threads = threads
        self.added = tuple(special_tokens_of(vocabulary) if added is None else added)
        self._added = AddedTokens(self.added, lambda text: normalized(text, self.rules), vocabulary.special)
        # Whether a text may have added tokens, among them, with True, those that are reserved.
        self._finds_added = {specials: self._added.wanted(specials=specials) for specials in (False, True)}
        self._segmenter = Segmenter(vocabulary, max_word_characters=self.rules.max_word_characters)
        self._specials = SpecialsAsCharacters(self)
        self._memo = BoundedCache[str, tuple[int, ...]](cache_entries)
        self._fast: FastEncoder | None = None
        self._offsets = OffsetEncoder(self.encode_with_offsets, cache_entries)

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(
            WordPieceTokenizer, added=self.added, cache_entries=self.cache_entries, threads=self.threads
        )
        return make, (self.vocabulary, self.rules), {"template": self.template, "max_characters": self.max_characters}

    @property
    def kind(self) -> str:
        """WordPieces, or words if no piece continues one."""
        return "words" if self.begins_word.all() else "WordPieces"

    @property
    def settings(self) -> dict[str, Any]:
        """The text rules, and the added tokens if there are others than the special pieces."""
        return to_dict(self.rules) | self.more_tokens

    @property
    def more_tokens(self) -> dict[str, Any]:
        """The added tokens under their name, as plain values; empty if they are the special pieces alone."""
        if self.added == special_tokens_of(self.vocabulary):
            return {}
        return {ADDED_TOKENS: [token.to_json() for token in self.added]}

    @property
    def casing_problem(self) -> str | None:
        """The problem of `casing_mismatch` or `lost_letter_marks`; None if the rules fit the vocabulary."""
        problem = casing_mismatch(self.vocabulary, lowercase=self.rules.lowercase)
        if problem is None and self.rules.keeps_letter_marks:
            return lost_letter_marks(self.vocabulary)
        return problem

    @functools.cached_property
    def begins_word(self) -> Flags:
        """Whether a piece starts a word, that is, does not start with `##`; bool [V]."""
        return np.array([not piece.startswith(CONTINUATION) for piece in self.vocabulary.pieces], dtype=np.bool_)

    def encode_batch(self, texts: Strings, *, special_tokens: SpecialTokens = False) -> Encoded:
        """The ids of many texts in one flat array; no special pieces are added.

        Args:
            texts: strings, or an Arrow array of strings; a null is an empty text.
            special_tokens: convert `[MASK]` and the other special pieces in a text to their ids; by default ordinary
                text cannot produce special ids, and `[MASK]` is three tokens.
        """
        texts, specials = self.shortened(texts), bool(special_tokens)
        if self._finds_added[specials] and self._may_have_added(texts):
            return self._encode_around_added(texts, special_tokens)
        return self._encode_ordinary(texts)

    def encode(self, text: str, *, special_tokens: SpecialTokens = False) -> Ids:
        """The ids of one text, int32 [P]; see `encode_batch` for `special_tokens`."""
        if len(text) >= _SMALL or self.max_characters is not None:
            return self.encode_batch([text], special_tokens=special_tokens).ids
        ids: list[int] = []
        for segment in self._segments(text, special_tokens):
            ids += self._ids(segment) if isinstance(segment, str) else segment
        return np.array(ids, dtype=np.int32)

    def encode_words(self, words: Strings, spaced: Sequence[bool] | None = None) -> Encoded:
        """The ids of many words; a preceding space makes no difference here."""
        return self.encode_batch(words)

    def encode_with_offsets(self, text: str, *, special_tokens: SpecialTokens = False) -> Pieces:
        """The ids of one text with character offsets."""
        ids, starts, ends = [], [], []
        for start, end, id in self._placed(text, special_tokens):
            ids.append(id)
            starts.append(start)
            ends.append(end)
        return Pieces(*(np.array(column, dtype=np.int32) for column in (ids, starts, ends)))

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> EncodedWithOffsets:
        """The ids of many texts with character offsets."""
        return self._offsets.encode(texts, in_chunks=not self._finds_added[False])

    def locate(self, ids: Sequence[int], words: str, before: Sequence[int] = ()) -> tuple[int, int]:
        """The characters (start, end) of `words` that some of its pieces cover; the whole of `words` if unclear."""
        from bertsmith.text.tokenizers.realign import join_pieces, realign

        predicted, ahead = (join_pieces(self.vocabulary.pieces[id] for id in part) for part in (ids, before))
        return realign(predicted, words, self.rules, len(ahead.replace(" ", "")))

    def decode(self, ids: Iterable[int] | Ids, *, skip_special: bool = True) -> str:
        """The pieces of `ids` joined into words, with one space between words.

        >>> from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES
        >>> tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "un", "##want", "##ed"]))
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

    def _ids(self, text: str) -> list[int]:
        """The ids of a text without special pieces, word by word."""
        self._specials.look(text)
        ids: list[int] = []
        memo = self._memo
        for word in basic_tokens(text, self.rules):
            word_ids = memo.get(word)
            if word_ids is None:
                word_ids = self._segmenter.ids(word)
                if len(word) <= _LONGEST_REMEMBERED:
                    memo.put(word, word_ids, _ENTRY_BYTES + 2 * len(word) + 8 * len(word_ids))
            ids += word_ids
        return ids

    def _fast_encoder(self) -> FastEncoder:
        if self._fast is None:
            self._fast = FastEncoder(
                self.vocabulary,
                self.rules,
                cache_entries=self.cache_entries,
                threads=self.threads,
                look=self._specials.look_in_bytes,
            )
        return self._fast

    def _may_have_added(self, texts: Strings) -> bool:
        """Whether an added token may be in some text."""
        if is_arrow(texts) or self._added.normalized.wanted(specials=True):
            return True
        # Texts with a line feed between them: at most a token with line feeds arises where two texts meet.
        return self._added.raw.may_find("\n".join(texts))

    def _segments(self, text: str, special_tokens: SpecialTokens) -> list[str | list[int]]:
        """The text as parts without added tokens, and lists of ids."""
        specials = bool(special_tokens)
        if not self._finds_added[specials]:
            return [text]
        segments: list[str | list[int]] = []
        within = self._added.normalized
        for start, end, token in self._added.raw.parts(text, specials=specials):
            part = text[start:end]
            if token is not None:
                segments.append([token.id])
                if token.special:
                    say_special(self, (token.content,), special_tokens)
            elif within.wanted(specials=specials) and within.may_find(normalized(part, self.rules)):
                segments.append([id for _, _, id in self._placed_within(part, 0, specials)])
            else:
                segments.append(part)
        return segments

    def _placed(self, text: str, special_tokens: SpecialTokens) -> Iterator[tuple[int, int, int]]:
        """(first character, one past the last, id) of each piece."""
        specials = bool(special_tokens)
        if not self._finds_added[specials]:
            yield from self._placed_within(text, 0, specials)
            return
        for start, end, token in self._added.raw.parts(text, specials=specials):
            if token is not None:
                yield start, end, token.id
                if token.special:
                    say_special(self, (token.content,), special_tokens)
            else:
                yield from self._placed_within(text[start:end], start, specials)

    def _placed_within(self, part: str, begin: int, specials: bool) -> Iterator[tuple[int, int, int]]:
        """The same for a part of a text that starts at `begin`, in which only normalized tokens are left."""
        self._specials.look(part)
        if not self._added.normalized.wanted(specials=specials):
            yield from self._placed_words(basic_tokens_with_offsets(part, self.rules), begin)
            return
        plain = normalized_with_origins(part, self.rules)
        for start, end, token in self._added.normalized.parts(plain.text, specials=specials):
            inside = plain.part(start, end)
            if token is not None:
                yield begin + min(inside.starts), begin + max(inside.ends), token.id
            else:
                yield from self._placed_words(tokens_of_normalized(inside, self.rules), begin)

    def _placed_words(self, words: Iterable[BasicToken], begin: int) -> Iterator[tuple[int, int, int]]:
        for word in words:
            for id, first, last in self._segmenter.pieces(word.text):
                yield begin + min(word.starts[first:last]), begin + max(word.ends[first:last]), id

    def _encode_ordinary(self, texts: Strings) -> Encoded:
        """The ids of texts without added tokens."""
        if is_arrow(texts):
            is_small = texts.nbytes < _SMALL
        else:
            is_small = len(texts) < _SMALL // 20 and sum(map(len, texts)) < _SMALL
        if not is_small:
            return self._fast_encoder().encode(texts)
        plain = texts.to_pylist() if is_arrow(texts) else texts
        return Encoded.from_rows([self._ids(text or "") for text in plain])

    def _encode_around_added(self, texts: Strings, special_tokens: SpecialTokens) -> Encoded:
        """The ids of texts with added tokens: encodes the parts between them, then inserts their ids."""
        strings = texts.to_pylist() if is_arrow(texts) else texts
        rows = [self._segments(text or "", special_tokens) for text in strings]
        between = self._encode_ordinary([part for row in rows for part in row if isinstance(part, str)])
        ids, before, parts = list[int](), list[int](), 0
        num_parts, num_inserted = list[int](), list[int]()
        for row in rows:
            for part in row:
                if isinstance(part, str):
                    parts += 1
                else:
                    ids += part
                    before += [parts] * len(part)
            num_parts.append(parts)
            num_inserted.append(len(ids))
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        offsets[1:] = between.offsets[num_parts] + np.array(num_inserted, dtype=np.int64)
        inserted = np.insert(between.ids, between.offsets[before], np.array(ids, dtype=np.int32))
        return Encoded(inserted.astype(np.int32), offsets)


class OffsetEncoder:
    """Encodes many texts with character offsets and caches the chunks between spaces, which recur.

    Valid only if no rule of the tokenizer looks across a space, so that a chunk has the same pieces everywhere.
    """

    def __init__(self, encode: Callable[[str], Pieces], most_entries: int) -> None:
        self._pieces = encode
        self._memo = BoundedCache[str, tuple[list[int], list[int], list[int]]](most_entries)

    def encode(self, texts: Sequence[str], *, in_chunks: bool = True) -> EncodedWithOffsets:
        """The ids of all texts, with the first character of each piece and one past its last, int64 [P]."""
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        shifts, counts, lengths = [], [], [0]
        for text in texts:
            position = 0
            for part in text.split(" ") if in_chunks else (text,):
                if part:
                    pieces = self._memo.get(part) or self._encode(part)
                    ids += pieces[0]
                    starts += pieces[1]
                    ends += pieces[2]
                    counts.append(len(pieces[0]))
                    shifts.append(position)
                position += len(part) + 1
            lengths.append(len(ids))
        shift = np.repeat(np.array(shifts, np.int64), counts)
        encoded = Encoded(np.array(ids, np.int32), np.array(lengths, np.int64))
        return EncodedWithOffsets(encoded, np.array(starts, np.int64) + shift, np.array(ends, np.int64) + shift)

    def _encode(self, part: str) -> tuple[list[int], list[int], list[int]]:
        pieces = self._pieces(part)
        result = pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist()
        if len(part) <= _LONGEST_REMEMBERED:
            self._memo.put(part, result, 2 * _ENTRY_BYTES + 2 * len(part) + 24 * len(result[0]))
        return result
