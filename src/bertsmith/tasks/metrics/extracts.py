"""Sentences of a text as its summary: the best ones for a reference, and those with the highest scores."""

from collections.abc import Sequence

from bertsmith.tasks.metrics.bleu import n_grams
from bertsmith.tasks.metrics.rouge import rouge_n, words_of


def oracle_sentences(sentences: Sequence[str], references: Sequence[str], most: int) -> tuple[int, ...]:
    """The numbers of the sentences that together come closest to a reference, ascending; none if none has its words.

    Each step adds the sentence that raises the sum of ROUGE-1 and ROUGE-2 most, the first of equal ones, until none
    does or there are `most`. Of several references, the one counts for which the sum is largest.

    >>> oracle_sentences(["It rained.", "The dog ran home.", "The cat slept."], ["the cat slept, the dog ran"], 2)
    (1, 2)

    Source: Liu and Lapata (2019), "Text Summarization with Pretrained Encoders", section 2; `greedy_selection` in
    their code, which counts each n-gram once.
    """
    words, wanted = [words_of(sentence) for sentence in sentences], [words_of(text) for text in references]
    chosen: tuple[int, ...] = ()
    highest = 0.0
    while len(chosen) < most:
        options = [tuple(sorted((*chosen, number))) for number in range(len(words)) if number not in chosen]
        sums = [_closeness([word for part in option for word in words[part]], wanted) for option in options]
        if not sums or max(sums) <= highest:
            break
        highest = max(sums)
        chosen = options[sums.index(highest)]
    return chosen


def best_sentences(scores: Sequence[float], sentences: Sequence[str], count: int, repeats: int) -> tuple[int, ...]:
    """The numbers of the sentences with the highest scores, ascending, without one that repeats another.

    Args:
        count: the most sentences.
        repeats: a sentence with a run of this many words that one with a higher score has is left out; 0: none is.

    >>> texts = ["A cat sat on a mat.", "It rained.", "The cat sat on a mat!"]
    >>> best_sentences([0.5, 0.3, 0.9], texts, 2, 3), best_sentences([0.5, 0.3, 0.9], texts, 2, 0)
    ((1, 2), (0, 2))

    Source: Paulus et al. (2018), "A Deep Reinforced Model for Abstractive Summarization", section 2.5.
    """
    chosen: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for number in sorted(range(len(scores)), key=lambda number: -scores[number]):
        if len(chosen) == count:
            break
        runs = set(n_grams(words_of(sentences[number]), repeats)) if repeats else set()
        if seen.isdisjoint(runs):
            seen |= runs
            chosen.append(number)
    return tuple(sorted(chosen))


def _closeness(words: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """The sum of ROUGE-1 and ROUGE-2 with the reference for which it is largest."""
    return max(sum(rouge_n(words, others)) for others in wanted)
