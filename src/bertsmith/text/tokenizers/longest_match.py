"""The WordPiece algorithm, greedy longest match: of one word, and of many words at once.

Source: `WordpieceTokenizer` in the original tokenization.py; Schuster and Nakajima (2012); Wu et al. (2016), section
4.1.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.text.tokenizers.encoded import Encoded, places_of
from bertsmith.text.tokenizers.keys import (
    LONGEST,
    PADDING,
    WIDTHS,
    Integers,
    Keys,
    KeyTable,
    Values,
    Words,
    bytes_of,
    keys_at,
    keys_of,
    lengths_of,
    windows_of,
)
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, Vocabulary


class Segmenter:
    """Splits words into the longest pieces in the vocabulary, from left to right.

    >>> vocabulary = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tweet", "##ing", "xa", "##nax"])
    >>> segmenter = Segmenter(vocabulary, max_word_characters=100)
    >>> [segmenter.ids(word) for word in ("tweeting", "xanax", "tweets")]
    [(5, 6), (7, 8), (1,)]
    """

    def __init__(self, vocabulary: Vocabulary, *, max_word_characters: int) -> None:
        self.unk_id = vocabulary.unk_id
        self.max_word_characters = max_word_characters
        self._initial = vocabulary.words
        self._inner = {
            piece[len(CONTINUATION) :]: id
            for piece, id in vocabulary.words.items()
            if piece.startswith(CONTINUATION) and piece != CONTINUATION
        }
        # Longer slices need not be tried, so the cost of a long word is at most its length times this.
        self._longest_initial = max(map(len, self._initial))
        self._longest_inner = max(map(len, self._inner), default=0)

    def ids(self, word: str) -> tuple[int, ...]:
        """The ids of the pieces of `word`; one [UNK] if the word cannot be segmented or is too long."""
        id = self._initial.get(word)
        if id is not None and len(word) <= self.max_word_characters:
            return (id,)
        return tuple(id for id, _, _ in self.pieces(word))

    def pieces(self, word: str) -> list[tuple[int, int, int]]:
        """(id, start, end) of every piece of `word`, in characters; otherwise one [UNK] that spans the word."""
        unknown = [(self.unk_id, 0, len(word))]
        if len(word) > self.max_word_characters:
            return unknown
        result = []
        table, longest, start = self._initial, self._longest_initial, 0
        while start < len(word):
            for end in range(min(len(word), start + longest), start, -1):
                id = table.get(word[start:end])
                if id is not None:
                    break
            else:
                return unknown
            result.append((id, start, end))
            table, longest, start = self._inner, self._longest_inner, end
        return result


class BatchSegmenter:
    """Splits arrays of words into pieces."""

    def __init__(self, vocabulary: Vocabulary, *, max_word_characters: int) -> None:
        self.unk_id = vocabulary.unk_id
        self.max_word_characters = max_word_characters
        pieces = {piece.encode(): id for piece, id in vocabulary.words.items()}
        mark = CONTINUATION.encode()
        self.initial = PieceTable(pieces)
        self.inner = PieceTable({p[len(mark) :]: id for p, id in pieces.items() if p.startswith(mark) and p != mark})

    @property
    def is_usable(self) -> bool:
        """False if some pieces did not fit into a hash table, which takes a vocabulary built to cause collisions."""
        return self.initial.is_complete and self.inner.is_complete

    def segment(self, keys: Keys) -> tuple[Values, Integers]:
        """(ids of all pieces, int32 [P]; pieces per word, int64 [n]) for words of 1 to `LONGEST` bytes."""
        windows = windows_of(np.concatenate([bytes_of(keys).reshape(-1), np.zeros(PADDING, dtype=np.uint8)]))
        lengths = lengths_of(keys)
        starts = np.arange(len(lengths)) * (8 * len(keys))
        is_unknown = self._is_too_long(keys, lengths)
        active = np.flatnonzero(~is_unknown)
        words, ids = [np.flatnonzero(is_unknown)], [np.full(int(is_unknown.sum()), self.unk_id, dtype=np.int32)]
        places, left = starts[active], lengths[active]
        table = self.initial
        while len(active):
            longest_ids, taken = table.longest_at(windows, places, left)
            is_stuck = taken == 0
            is_unknown[active[is_stuck]] = True
            words.append(active)
            ids.append(np.where(is_stuck, self.unk_id, longest_ids).astype(np.int32))
            goes_on = (taken < left) & ~is_stuck
            active = active[goes_on]
            places, left = (places + taken)[goes_on], (left - taken)[goes_on]
            table = self.inner
        return _in_order(np.concatenate(words), np.concatenate(ids), is_unknown, self.unk_id)

    def _is_too_long(self, keys: Keys, lengths: Integers) -> npt.NDArray[np.bool_]:
        if self.max_word_characters >= LONGEST:
            return np.zeros(len(lengths), dtype=np.bool_)
        # All bytes except UTF-8 continuation bytes.
        num_characters = lengths - np.count_nonzero(bytes_of(keys) & 0xC0 == 0x80, axis=1)
        too_long: npt.NDArray[np.bool_] = num_characters > self.max_word_characters
        return too_long


class PieceTable:
    """The ids of all pieces of up to `LONGEST` bytes, for lookups of whole arrays.

    A longer piece cannot be part of a word of at most that many bytes.
    """

    def __init__(self, pieces: dict[bytes, int]) -> None:
        self._tables = []
        self.is_complete = True
        self.longest = 0
        shorter = 0
        for width in WIDTHS:
            chosen = {piece: id for piece, id in pieces.items() if shorter < len(piece) <= 8 * width}
            table = KeyTable(width)
            left_out = table.insert(keys_of(list(chosen), width), np.array(list(chosen.values()), dtype=np.int32))
            self.is_complete &= left_out == 0
            self._tables.append(table)
            self.longest = max([self.longest, *map(len, chosen)])
            shorter = 8 * width

    def longest_at(self, windows: Words, places: Integers, left: Integers) -> tuple[Values, Integers]:
        """(ids, lengths) of the longest piece that starts at each of `places`; the length is 0 where there is none.

        Args:
            windows: the 8 bytes from each position on, as returned by `windows_of`.
            places: int64 [n].
            left: int64 [n], the maximum length of the piece in bytes.
        """
        ids = np.zeros(len(places), dtype=np.int32)
        taken = np.zeros(len(places), dtype=np.int64)
        order = np.argsort(-left)
        open_from_longest = order
        reach = -left[order]
        for length in range(min(self.longest, LONGEST, int(left.max(initial=0))), 0, -1):
            candidates = open_from_longest[: np.searchsorted(reach, -length, side="right")]
            if not len(candidates):
                continue
            table = next(table for table in self._tables if length <= 8 * table.width)
            sizes = np.full(len(candidates), length)
            values, missing = table.find(keys_at(windows, places[candidates], sizes, table.width))
            is_found = np.ones(len(candidates), dtype=np.bool_)
            is_found[missing] = False
            hit = candidates[is_found]
            ids[hit], taken[hit] = values[is_found], length
            still = np.concatenate([~is_found, np.ones(len(open_from_longest) - len(candidates), dtype=np.bool_)])
            open_from_longest, reach = open_from_longest[still], reach[still]
        return ids, taken


class WordsSegmenter:
    """Splits lists of words into pieces, with the result of `Segmenter` on each."""

    def __init__(self, vocabulary: Vocabulary, *, max_word_characters: int) -> None:
        self._alone = Segmenter(vocabulary, max_word_characters=max_word_characters)
        self.batch = BatchSegmenter(vocabulary, max_word_characters=max_word_characters)

    def segment(self, words: Sequence[str]) -> tuple[Values, Integers]:
        """(ids of all pieces, int32 [P]; pieces per word, int64 [n]); long words are split one by one."""
        encoded = [word.encode("utf-8", "surrogatepass") for word in words]
        is_short = np.array([len(word) <= LONGEST for word in encoded], dtype=np.bool_) & self.batch.is_usable
        short, long = np.flatnonzero(is_short).tolist(), np.flatnonzero(~is_short).tolist()
        alone = Encoded.from_rows([self._alone.ids(words[number]) for number in long])
        together, counts_together = self.batch.segment(keys_of([encoded[number] for number in short], WIDTHS[-1]))
        counts = np.empty(len(words), dtype=np.int64)
        counts[long], counts[short] = alone.lengths, counts_together
        starts = np.cumsum(counts) - counts
        ids = np.empty(int(counts.sum()), dtype=np.int32)
        ids[places_of(starts[long], counts[long])] = alone.ids
        ids[places_of(starts[short], counts[short])] = together
        return ids, counts


def _in_order(words: Integers, ids: Values, is_unknown: npt.NDArray[np.bool_], unk_id: int) -> tuple[Values, Integers]:
    """The pieces word by word; an unknown word gives one [UNK]."""
    order = np.argsort(words, kind="stable")
    words, ids = words[order], ids[order]
    is_first = np.ones(len(words), dtype=np.bool_)
    is_first[1:] = words[1:] != words[:-1]
    kept = is_first | ~is_unknown[words]
    ids = np.where(is_unknown[words], unk_id, ids).astype(np.int32)
    return ids[kept], np.bincount(words[kept], minlength=len(is_unknown))
