"""The words of sentences as hashes of their text, by which documents and sentences are compared.

Ids would not do: every word without pieces is [UNK], and a vocabulary in lower case has the same ids with and without
accents. Two texts are equal if they have the same words and marks in the same order: characters are compared in
normalization form C of Unicode, in lower case if the vocabulary is, and white space counts only where it separates two
words. Each punctuation mark is a word of its own, and so is each character of a script that puts no spaces between
words (Chinese, kana, Thai, Lao, Khmer, Burmese).
"""

import functools
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.text.corpus.hashing import Hashes, run_hashes
from bertsmith.text.tokenizers import huggingface_tables as tables
from bertsmith.text.tokenizers.characters import borders_of

_SPACE, _ALONE, _JOINED = 0, 1, 2
_SCRIPTS_WITHOUT_SPACES = (
    (0x0E00, 0x0F00),
    (0x1000, 0x10A0),
    (0x1780, 0x1800),
    (0x3041, 0x3100),
    (0x31F0, 0x3200),
    (0xFF66, 0xFFA0),
)


def words_of_text(sentences: Sequence[str], *, lowercase: bool) -> tuple[Hashes, npt.NDArray[np.uint32]]:
    """The hashes of all words, uint64 [W], and the number of words of each sentence, uint32 [S], at least 1."""
    if not sentences:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint32)
    texts = [unicodedata.normalize("NFC", sentence.lower() if lowercase else sentence) for sentence in sentences]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds = _kinds()[codes]
    is_first = np.zeros(len(codes) + 1, dtype=np.bool_)
    is_first[np.cumsum(lengths) - lengths] = True
    begins = (kinds == _ALONE) | is_first[:-1]
    begins[1:] |= kinds[:-1] != _JOINED
    filled = np.flatnonzero(kinds != _SPACE)
    begins[kinds == _SPACE] = False
    starts = np.flatnonzero(begins[filled])
    words = run_hashes(codes[filled], np.diff(starts, append=len(filled)))
    ends = np.concatenate([[0], np.cumsum(begins)])
    edges = ends[np.concatenate([[0], np.cumsum(lengths)])]
    counts = np.diff(edges)
    if not counts.all():  # a sentence of white space alone; its word is empty
        empty = np.flatnonzero(counts == 0)
        words = np.insert(words, edges[empty], np.uint64(0))
        counts[empty] = 1
    return words, counts.astype(np.uint32)


@functools.cache
def _kinds() -> npt.NDArray[np.uint8]:
    """The kind of each code point: white space, a word of its own, or a part of a word."""
    kinds = np.full(0x110000, _JOINED, dtype=np.uint8)
    for table, kind in ((tables.PUNCTUATION, _ALONE), (tables.CHINESE, _ALONE), (tables.SPACES, _SPACE)):
        borders = borders_of(table)
        for begin, end in zip(borders[::2], borders[1::2], strict=True):
            kinds[begin:end] = kind
    for begin, end in _SCRIPTS_WITHOUT_SPACES:
        kinds[begin:end] = _ALONE
    return kinds
