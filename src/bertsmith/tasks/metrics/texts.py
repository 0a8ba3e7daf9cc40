"""The scores of texts that a model writes, against one or several right ones."""

import functools
from collections.abc import Callable, Mapping, Sequence

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.metrics.answers import squad_scores
from bertsmith.tasks.metrics.bleu import bleu_counts, corpus_bleu, words_of
from bertsmith.tasks.metrics.brackets import BRACKETS, Tree, bracket_counts, bracket_scores, read_tree
from bertsmith.tasks.metrics.rouge import ROUGE, mean_rouge

BLEU, EXACT, COMPLETE = "bleu", "exact", "complete"
ANSWERS = ANSWER_EXACT, ANSWER_F1 = "answer_exact", "answer_f1"
OF_TREES = (*BRACKETS, COMPLETE)
OF_TEXTS = (*ROUGE, BLEU, EXACT, *ANSWERS)

Texts = Sequence[str]
References = Sequence[Sequence[str]]


def is_same(text: str, references: Sequence[str]) -> bool:
    """Whether a text is one of its references, apart from case and white space.

    >>> is_same("It 's in .", ["It's in."]), is_same("It is in.", ["It's in."])
    (True, False)
    """
    return _letters(text) in map(_letters, references)


def exact_share(texts: Texts, references: References) -> float:
    """The share of texts that are one of their references; see `is_same`."""
    same = [is_same(text, others) for text, others in zip(texts, references, strict=True)]
    return sum(same) / max(1, len(same))


def complete_share(texts: Texts, references: References) -> float:
    """The share of trees whose brackets are all right, with none missing."""
    pairs = [(_tree(text), read_tree(others[0])) for text, others in zip(texts, references, strict=True)]
    counts = [bracket_counts(tree, gold) for tree, gold in pairs]
    return sum(shared == predicted == gold for shared, predicted, gold in counts) / max(1, len(counts))


def text_scores(names: Sequence[str], texts: Texts, references: References) -> dict[str, float]:
    """The named scores of texts, from 0 to 1."""
    scores: dict[str, float] = {}
    for family, compute in _FAMILIES.items():
        if not set(names).isdisjoint(family):
            scores |= compute(texts, references)
    return {name: scores[name] if name in scores else TEXT_METRICS[name](texts, references) for name in names}


def values_of_text(metric: str, text: str, references: Sequence[str]) -> list[float]:
    """What a score of a text is computed from: its value, or the counts of BLEU or of brackets, whose sums give it.

    Of brackets these are the shared, the gold and the predicted ones.
    """
    if metric == BLEU:
        return list(map(float, bleu_counts(words_of(text), list(map(words_of, references)))))
    if metric in BRACKETS:
        shared, predicted, gold = bracket_counts(_tree(text), read_tree(references[0]))
        return [float(shared), float(gold), float(predicted)]
    return [TEXT_METRICS[metric]([text], [references])]


def _bracket_scores(texts: Texts, references: References) -> dict[str, float]:
    """The bracket scores of texts that are trees; a text that is none has no brackets."""
    return bracket_scores([_tree(text) for text in texts], [read_tree(others[0]) for others in references])


def _answer_scores(texts: Texts, references: References) -> dict[str, float]:
    """Exact match and F1 of answers to questions, by the rules of SQuAD 1.1; from 0 to 1, as the other scores here."""
    golds = {str(number): answers for number, answers in enumerate(references)}
    scores = squad_scores(golds, {str(number): text for number, text in enumerate(texts)})
    return {name: scores[theirs] / 100 for name, theirs in zip(ANSWERS, ("exact", "f1"), strict=True)}


def _tree(text: str) -> Tree | None:
    try:
        return read_tree(text)
    except InputError:
        return None


def _letters(text: str) -> str:
    return "".join(text.casefold().split())


def _one_of(family: tuple[str, ...], name: str, texts: Texts, references: References) -> float:
    return _FAMILIES[family](texts, references)[name]


# Scores that are computed together.
_FAMILIES: Mapping[tuple[str, ...], Callable[[Texts, References], dict[str, float]]] = {
    ROUGE: mean_rouge,
    BRACKETS: _bracket_scores,
    ANSWERS: _answer_scores,
}
TEXT_METRICS: Mapping[str, Callable[[Texts, References], float]] = {
    **{name: functools.partial(_one_of, family, name) for family in _FAMILIES for name in family},
    BLEU: corpus_bleu,
    EXACT: exact_share,
    COMPLETE: complete_share,
}
