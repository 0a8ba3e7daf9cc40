"""ROUGE: how many words, pairs of words and words in order a text shares with its references.

Words are runs of letters and digits in lower case, without stemming. On ASCII text the figures are those of Google's
`rouge-score`, which drops all other letters.

Source: Lin (2004), "ROUGE: A Package for Automatic Evaluation of Summaries", sections 2 and 3.
"""

import re
from collections.abc import Sequence

from bertsmith.tasks.metrics.bleu import n_grams

ROUGE = ("rouge1", "rouge2", "rougeL")
_WORDS = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case.

    >>> words_of("The cat's 2nd_life.")
    ['the', 'cat', 's', '2nd', 'life']
    """
    return _WORDS.findall(text.lower())


def rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """The F-measures of ROUGE-1, ROUGE-2 and ROUGE-L from 0 to 1, each with the reference for which it is best.

    >>> scores = rouge("the cat sat", ["the cat is here", "a dog"])
    >>> [round(value, 3) for value in scores.values()]
    [0.571, 0.4, 0.571]

    Args:
        references: at least one.
    """
    words, best = words_of(text), dict.fromkeys(ROUGE, 0.0)
    for reference in references:
        others = words_of(reference)
        of_order = _f_measure(longest_common(words, others), len(words), len(others))
        figures = (*rouge_n(words, others), of_order)
        best = {name: max(best[name], figure) for name, figure in zip(ROUGE, figures, strict=True)}
    return best


def rouge_n(words: Sequence[str], others: Sequence[str]) -> tuple[float, float]:
    """ROUGE-1 and ROUGE-2 of the words of two texts."""
    shared = [(n_grams(words, size) & n_grams(others, size)).total() for size in (1, 2)]
    return _f_measure(shared[0], len(words), len(others)), _f_measure(shared[1], len(words) - 1, len(others) - 1)


def mean_rouge(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means of the figures of `rouge` over texts; 0 without any."""
    figures = [rouge(text, others) for text, others in zip(texts, references, strict=True)]
    return {name: sum(figure[name] for figure in figures) / max(1, len(figures)) for name in ROUGE}


def longest_common(words: Sequence[str], others: Sequence[str]) -> int:
    """The length of the longest common subsequence.

    One row of the table of lengths is a whole number, whose zeros are the places where the length grows; a word of
    `others` updates all places at once.

    >>> longest_common("a b c d".split(), "a x c b d".split())
    3

    Source: Hyyrö (2004), "Bit-Parallel LCS-length Computation Revisited", section 3.
    """
    positions: dict[str, int] = {}
    for position, word in enumerate(words):
        positions[word] = positions.get(word, 0) | 1 << position
    full = (1 << len(words)) - 1
    row = full
    for word in others:
        met = row & positions.get(word, 0)
        row = ((row + met) | (row - met)) & full
    return len(words) - row.bit_count()


def _f_measure(shared: int, of_text: int, of_reference: int) -> float:
    """The harmonic mean of the shares of what is shared in the text and in the reference."""
    return 2 * shared / (of_text + of_reference) if shared else 0.0
