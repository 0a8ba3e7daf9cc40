"""Which Chinese characters in rows of tokens belong to one word, for whole-word masks.

BERT reads every Chinese character as a token of its own, so the pieces do not show where words are. A segmenter finds
them: the package `rjieba` (docs/decisions/0023-chinese-words.md). It is asked while rows are masked, about six million
characters a second, so a corpus is the same with and without it. A word never crosses another token.

Source: Cui et al. (2019), "Pre-training with whole word masking for Chinese BERT".
"""

import importlib.metadata
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bertsmith.errors import ConfigError
from bertsmith.progress import warn
from bertsmith.settings import require
from bertsmith.text.characters import HUGGINGFACE
from bertsmith.text.vocabulary import Vocabulary

Segment = Callable[[str], list[str]]
_WORTH_A_WARNING = 0.05  # fraction of the tokens
_BORDER = ord("\n")


def segmenter() -> Segment:
    """The function that splits Chinese text into words whose concatenation is the text.

    Raises:
        ConfigError: the package `rjieba` is not installed.
    """
    try:
        import rjieba
    except ImportError:
        raise ConfigError(
            expected="the package rjieba, which finds Chinese words (chinese_words)",
            found="it is not installed",
            fix='install it: pip install "bertsmith[chinese]"',
        ) from None
    return lambda text: list(rjieba.cut(text))


def segmenter_version() -> str:
    """The name and version of the segmenter, for the record of a run."""
    return f"rjieba {importlib.metadata.version('rjieba')}"


def chinese_characters(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    """Whether a piece is a Chinese character, bool [V]."""
    return np.array([len(piece) == 1 and HUGGINGFACE.is_cjk(piece) for piece in vocabulary.pieces], dtype=np.bool_)


def warn_of_single_characters(vocabulary: Vocabulary, counts: npt.NDArray[np.int64]) -> None:
    """Says that whole-word masks do not cover Chinese words, if a good part of the tokens is Chinese.

    Args:
        counts: how often each piece occurs in the corpus, int64 [V].
    """
    fraction = counts[chinese_characters(vocabulary)].sum() / max(1, counts.sum())
    if fraction > _WORTH_A_WARNING:
        warn(
            f"{100 * fraction:.0f} % of the tokens are Chinese characters, which --whole-word masks one by one; "
            "--chinese-words masks all of a word"
        )


class ChineseWords:
    """Finds the words among the Chinese characters of tokens.

    Args:
        vocabulary: the pieces.
        segment: see `segmenter`.

    Raises:
        ConfigError: no piece is a Chinese character.
    """

    def __init__(self, vocabulary: Vocabulary, segment: Segment) -> None:
        is_chinese = chinese_characters(vocabulary)
        require(
            bool(is_chinese.any()),
            expected="a vocabulary with Chinese characters (chinese_words)",
            found="none among its pieces",
            fix="leave chinese_words out",
        )
        codes = [ord(piece) if flag else _BORDER for piece, flag in zip(vocabulary.pieces, is_chinese, strict=True)]
        self._codes = np.array(codes, dtype="<u4")
        self._segment = segment

    def continues(self, token_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Whether a token belongs to the same word as the token before it, bool [T].

        Args:
            token_ids: int32 [T].
        """
        codes = self._codes[token_ids]
        text = codes.tobytes().decode("utf-32-le")
        words = self._segment(text)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        assert lengths.sum() == len(text), "the words are the whole text"
        is_inside = np.ones(len(codes), dtype=np.bool_)
        is_inside[np.cumsum(lengths) - lengths] = False
        # The segmenter may join several line ends.
        is_chinese = codes != _BORDER
        is_inside[1:] &= is_chinese[1:] & is_chinese[:-1]
        is_inside[:1] = False
        return is_inside
