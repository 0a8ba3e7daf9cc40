"""BLEU: how many n-grams a translation shares with its references; one figure for all texts together.

Source: Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation", section 2; words and
smoothing as in sacreBLEU's defaults (Post, 2018, "A Call for Clarity in Reporting BLEU Scores"), which are those of
mteval-v13a.pl.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

LONGEST = 4  # words of an n-gram
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
# Where tokenization 13a puts spaces: around ASCII punctuation, around a period or comma unless digits are on both
# sides, and around a hyphen after a digit.
_SPACED = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text by tokenization 13a, between which spaces do not matter.

    >>> words_of("He's in, at 3,5 m.")
    ["He's", 'in', ',', 'at', '3,5', 'm', '.']
    """
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES if "&" in text else ():
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, spaced in _SPACED:
        text = pattern.sub(spaced, text)
    return text.split()


def corpus_bleu(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU from 0 to 1 of texts, as sacreBLEU computes it by default."""
    words = [[words_of(reference) for reference in others] for others in references]
    return bleu([words_of(text) for text in translations], words, smoothed=True)


def bleu(
    translations: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], *, smoothed: bool = False
) -> float:
    """BLEU from 0 to 1: the geometric mean of the precisions of n-grams of 1 to 4 words, times the brevity penalty.

    It is 0 if no n-gram of some length is shared.

    Args:
        smoothed: the first precision of 0 counts as half a shared n-gram, the next as a quarter, and so on; BLEU is 0
            only if no word is shared, or no translation has four words.

    >>> bleu([["the"] * 7], [[["the", "cat", "is", "on", "the", "mat"]]])
    0.0
    """
    counts = [bleu_counts(words, others) for words, others in zip(translations, references, strict=True)]
    return bleu_of_counts([sum(column) for column in zip(*counts, strict=True)], smoothed=smoothed)


def bleu_counts(words: Sequence[str], references: Sequence[Sequence[str]]) -> list[int]:
    """What BLEU counts in a translation, whose sums over all texts give it.

    These are the shared n-grams of each length, the n-grams of each length, the words, and the words of the reference
    whose length is closest.
    """
    shared, possible = [], []
    for size in range(1, LONGEST + 1):
        most: Counter[tuple[str, ...]] = Counter()
        for other in references:
            most |= n_grams(other, size)
        shared.append((n_grams(words, size) & most).total())
        possible.append(max(0, len(words) - size + 1))
    closest = min((abs(len(other) - len(words)), len(other)) for other in references)[1]
    return [*shared, *possible, len(words), closest]


def bleu_of_counts(counts: Sequence[float], *, smoothed: bool = False) -> float:
    """BLEU from the sums of `bleu_counts`; see `bleu`."""
    if not counts:
        return 0.0
    shared, possible, (length, closest) = counts[:LONGEST], counts[LONGEST : 2 * LONGEST], counts[2 * LONGEST :]
    if not any(shared) or not all(possible) or not (smoothed or all(shared)):
        return 0.0
    mean, credit = 0.0, 1.0
    for part, total in zip(shared, possible, strict=True):
        credit = credit if part else credit / 2
        mean += math.log((part or credit) / total) / LONGEST
    return math.exp(mean + min(0.0, 1 - closest / length))


def n_grams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram of that many words occurs."""
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))
