"""Baselines that write a text for each source text, or choose sentences of it, without any model.

- first words: the beginning of the source, as many sentences or words as fit the training examples best
- nearest target: the target of the training example whose source has the most similar words (TF-IDF); as a reply in a
  conversation it is what retrieval gives
- central sentences: those that share most words with the other sentences of the source, in their order

The last is TextRank: sentences vote for those they resemble, and votes of sentences with many votes count more.

Source: Mihalcea and Tarau (2004), "TextRank: Bringing Order into Texts", sections 2 and 4.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.tasks.baselines.bag_of_words import TextSpace
from bertsmith.tasks.datasets.examples import DocumentExample
from bertsmith.tasks.metrics.brackets import Tree, brackets_of, read_tree, right_branching
from bertsmith.tasks.metrics.extracts import oracle_sentences
from bertsmith.tasks.metrics.rouge import mean_rouge, rouge, words_of
from bertsmith.tasks.specs.task import CENTRAL, FIRST, LEAD, NEAREST, ORACLE
from bertsmith.text.documents.sentences import split_sentences

_CHOSEN_ON = 300  # training examples that decide how much of a source is taken
_MOST_SENTENCES = 3
_MOST_SCORED = 200  # sentences of a source that are compared with each other; of more, the first
_DAMPING, _ROUNDS = 0.85, 30
_AT_ONCE = 2**23  # similarities of sources to training sources that are in memory

Pairs = Sequence[tuple[str, Sequence[str]]]


def written_by(name: str, train: Pairs, sources: Sequence[str]) -> list[str]:
    """The text of a baseline for each source.

    Args:
        name: one of `WRITTEN`, or `RIGHT_BRANCHING`.
        train: source and targets of the training examples, at least one.
    """
    sample = train[:_CHOSEN_ON]
    if name == FIRST:
        return _best_of(_beginnings(sample), sample, sources)
    if name == CENTRAL:
        return _best_of(list(map(_central, range(1, _MOST_SENTENCES + 1))), sample, sources)
    return (nearest_targets if name == NEAREST else right_branching_trees)(train, sources)


def chosen_by(
    name: str, train: Sequence[DocumentExample], documents: Sequence[DocumentExample], most: int
) -> list[tuple[int, ...]]:
    """The numbers of the sentences of each text that a baseline chooses.

    Args:
        name: one of `CHOSEN`. The oracle knows the targets, and shows how much the best sentences could score.
        train: the training examples, which decide how many sentences the others choose.
        most: the most sentences of the oracle.
    """
    if name == ORACLE:
        return [oracle_sentences(document.texts, document.targets, most) for document in documents]
    numbers_of, sample = _lead_numbers if name == LEAD else central_numbers, train[:_CHOSEN_ON]

    def score(count: int) -> float:
        texts = [" ".join(row.texts[number] for number in numbers_of(row.texts, count)) for row in sample]
        return mean_rouge(texts, [row.targets for row in sample])["rougeL"]

    best = max(range(1, _MOST_SENTENCES + 1), key=score)
    return [numbers_of(document.texts, best) for document in documents]


def _lead_numbers(sentences: Sequence[str], count: int) -> tuple[int, ...]:
    return tuple(range(min(count, len(sentences))))


def right_branching_trees(train: Pairs, sources: Sequence[str]) -> list[str]:
    """A tree for the words of each source, see `right_branching`, with the most frequent label of the trees to learn.

    >>> right_branching_trees([("a", ["(S (NP (NN a)))"]), ("b", ["(NP (NN b))"])], ["c d e"])
    ['(NP (XX c) (NP (XX d) (XX e)))']
    """
    labels = Counter(label for _, targets in train for label, _, _ in brackets_of(read_tree(targets[0])).elements())
    label = labels.most_common(1)[0][0] if labels else "S"  # trees of single words have none
    words = [[Tree("XX", word=word) for word in source.split()] for source in sources]
    return [str(right_branching(of_source, label)) if of_source else "" for of_source in words]


def nearest_targets(train: Pairs, sources: Sequence[str]) -> list[str]:
    """For each source the first target of the training example whose source is most similar by TF-IDF."""
    space = TextSpace([source for source, _ in train])
    known, nearest = space.weights([source for source, _ in train]), []
    rows = max(1, _AT_ONCE // len(train))
    for start in range(0, len(sources), rows):
        similar = space.weights(sources[start : start + rows]) @ known.T
        nearest += np.asarray(similar.toarray()).argmax(axis=1).tolist()
    return [train[number][1][0] for number in nearest]


def central_sentences(text: str, count: int) -> str:
    """The most central sentences of a text, in its order; the whole text if it has no more.

    >>> central_sentences("The cat sat. A dog and the cat sat there. It rained. The dog sat.", 1)
    'A dog and the cat sat there.'
    """
    sentences = split_sentences(text)
    if len(sentences) <= count:
        return text.strip()
    return " ".join(sentences[number] for number in central_numbers(sentences, count))


def central_numbers(sentences: Sequence[str], count: int) -> tuple[int, ...]:
    """The numbers of the most central sentences of a text, ascending."""
    votes = _votes([words_of(sentence) for sentence in sentences[:_MOST_SCORED]])
    return tuple(np.sort(np.argsort(-votes, kind="stable")[:count]).tolist())


def _votes(sentences: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    """The share of each sentence in all votes, float64 [sentences]."""
    words = [set(sentence) for sentence in sentences]
    lengths = np.log(np.maximum([len(sentence) for sentence in sentences], 2))
    shared = np.array([[len(first & second) for second in words] for first in words], dtype=np.float64)
    np.fill_diagonal(shared, 0.0)
    weights = shared / (lengths[:, None] + lengths[None, :])
    sums = weights.sum(axis=0)
    passed = np.divide(weights, sums, out=np.full_like(weights, 1 / len(words)), where=sums > 0)
    votes = np.full(len(words), 1 / len(words))
    for _ in range(_ROUNDS):
        votes = (1 - _DAMPING) / len(words) + _DAMPING * passed @ votes
    return votes


def _beginnings(train: Pairs) -> list[Callable[[str], str]]:
    """Ways to take the beginning of a text: sentences, or as many words as targets usually have."""
    lengths = [len(target.split()) for _, targets in train for target in targets]
    words = max(1, round(float(np.median(lengths))))
    return [lambda text: " ".join(text.split()[:words]), *map(_sentences, range(1, _MOST_SENTENCES + 1))]


def _sentences(count: int) -> Callable[[str], str]:
    return lambda text: " ".join(split_sentences(text)[:count])


def _central(count: int) -> Callable[[str], str]:
    return lambda text: central_sentences(text, count)


def _best_of(ways: Sequence[Callable[[str], str]], train: Pairs, sources: Sequence[str]) -> list[str]:
    """What the way that has the highest mean ROUGE-L on training examples writes for the sources."""

    def score(write: Callable[[str], str]) -> float:
        return sum(rouge(write(source), targets)["rougeL"] for source, targets in train)

    best = max(ways, key=score)
    return [best(source) for source in sources]
