"""BLEU: how many n-grams a translation shares with its references.

Source: Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation", section 2. One figure
for all texts together, without smoothing.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

LONGEST = 4  # words of an n-gram
_WORDS = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text, between which BLEU does not care about spaces.

    >>> words_of("He's in.")
    ['He', "'", 's', 'in', '.']
    """
    return _WORDS.findall(text)


def bleu(translations: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> float:
    """BLEU from 0 to 1: the geometric mean of the precisions of n-grams of 1 to 4 words, times the brevity penalty.

    It is 0 if no n-gram of some length is shared.

    Args:
        references: for each translation, the words of one or several references.

    >>> bleu([["the"] * 7], [[["the", "cat", "is", "on", "the", "mat"]]])
    0.0
    """
    assert len(translations) == len(references), "references for each translation"
    shared, possible, length, closest = [0] * LONGEST, [0] * LONGEST, 0, 0
    for words, others in zip(translations, references, strict=True):
        length += len(words)
        closest += min((abs(len(other) - len(words)), len(other)) for other in others)[1]
        for size in range(1, LONGEST + 1):
            most: Counter[tuple[str, ...]] = Counter()
            for other in others:
                most |= n_grams(other, size)
            shared[size - 1] += (n_grams(words, size) & most).total()
            possible[size - 1] += max(0, len(words) - size + 1)
    if not all(shared):
        return 0.0
    mean = sum(math.log(part / total) for part, total in zip(shared, possible, strict=True)) / LONGEST
    return math.exp(mean + min(0.0, 1 - closest / length))


def n_grams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram of that many words occurs."""
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))
