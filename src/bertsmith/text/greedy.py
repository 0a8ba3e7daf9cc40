"""Greedy longest-match segmentation of one word into pieces.

Source: `WordpieceTokenizer` in the original tokenization.py; Schuster and Nakajima (2012); Wu et al. (2016), section
4.1.
"""

from bertsmith.text.vocabulary import CONTINUATION, Vocabulary


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
        self._initial = vocabulary.index
        self._inner = {
            piece[len(CONTINUATION) :]: id
            for piece, id in vocabulary.index.items()
            if piece.startswith(CONTINUATION) and piece != CONTINUATION
        }
        # Longer slices need not be tried, so the cost of a long word is at most its length times this.
        self._longest_initial = max(map(len, self._initial))
        self._longest_inner = max(map(len, self._inner), default=0)

    def ids(self, word: str) -> tuple[int, ...]:
        """The ids of the pieces of `word`; one [UNK] if the word cannot be segmented or is too long."""
        whole = self._initial.get(word)
        if whole is not None and len(word) <= self.max_word_characters:
            return (whole,)
        return tuple(id for id, _, _ in self.pieces(word))

    def pieces(self, word: str) -> list[tuple[int, int, int]]:
        """(id, start, end) of every piece of `word`, in characters; otherwise one [UNK] that spans the word."""
        unknown = [(self.unk_id, 0, len(word))]
        if len(word) > self.max_word_characters:
            return unknown
        found = []
        table, longest, start = self._initial, self._longest_initial, 0
        while start < len(word):
            for end in range(min(len(word), start + longest), start, -1):
                id = table.get(word[start:end])
                if id is not None:
                    break
            else:
                return unknown
            found.append((id, start, end))
            table, longest, start = self._inner, self._longest_inner, end
        return found
