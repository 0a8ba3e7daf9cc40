"""The counting baselines: equal to sums over the whole vocabulary, and what they are for."""

import numpy as np
import pytest
import scipy.sparse as sp

from bertsmith.base.core.errors import CorpusError
from bertsmith.text.corpus.frequencies import entropy
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.training.pretraining.losses import unigram_loss
from bertsmith.training.pretraining.ngram_baseline import NgramBaseline
from oracles.pretraining_oracle import MemoryDocuments

MASK, PIECES = 4, 12


def corpus(*documents: list[int]) -> MemoryDocuments:
    return MemoryDocuments([[document] for document in documents])


def text(count: int, seed: int, pieces: int = 40) -> list[int]:
    """A walk in which each piece is usually followed by one of two others."""
    rng, tokens = np.random.default_rng(seed), [5]
    while len(tokens) < count:
        last = tokens[-1] - 5
        following = int(rng.integers(pieces)) if rng.random() < 0.2 else (3 * last + int(rng.integers(2))) % pieces
        tokens.append(5 + following)
    return tokens


def by_the_formula(model: NgramBaseline, left: int | None, right: int | None) -> np.ndarray:
    """The probability of every piece between two neighbors, from dense counts."""
    pairs, unigram = model.pairs.toarray(), model.unigram
    chances = unigram.copy()
    for counts in ([] if left is None else [pairs[left]]) + ([] if right is None else [pairs[:, right]]):
        lent = model.strength * (counts > 0).sum()
        if lent:
            smoothed = (counts + lent * unigram) / (counts.sum() + lent)
            chances *= (smoothed / unigram) ** model.exponent
    return chances / chances.sum()


def test_pairs_and_pieces_are_counted_within_documents() -> None:
    model = NgramBaseline.of(corpus([5, 6, 5, 6, 7], [7, 5], [6]), PIECES)
    wanted = np.zeros((PIECES, PIECES))
    wanted[5, 6], wanted[6, 5], wanted[6, 7], wanted[7, 5] = 2, 1, 1, 1
    assert model.pairs.toarray().tolist() == wanted.tolist()
    assert model.counts.tolist() == [0, 0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0]
    assert model.unigram[[0, 5]].tolist() == [1 / 20, 4 / 20]


def test_a_tiny_corpus_by_hand() -> None:
    """After 5 comes 6 twice, or 7 once: with a = b = 1, P(6 | 5) = (2 + 2 * 3/11) / 5, where P(6) = 3/11."""
    pairs = np.zeros((8, 8))
    pairs[5, 6], pairs[5, 7] = 2, 1
    model = NgramBaseline(sp.csr_array(pairs), np.array([0.0, 0, 0, 0, 0, 0, 2, 1]), exponent=1.0, strength=1.0)
    scores = model.bigram_scores(np.array([2, 5, MASK, 3]), np.array([2]), np.array([6]))
    assert scores.loss == pytest.approx(-np.log((2 + 2 * 3 / 11) / 5))
    assert scores.top == 1
    assert model.unigram_scores(np.array([6, 6, 5])).loss == pytest.approx(-(2 * np.log(3 / 11) + np.log(1 / 11)) / 3)


@pytest.mark.parametrize(("exponent", "strength"), [(1.0, 1.0), (0.6, 2.0)])
def test_losses_and_ranks_are_those_of_sums_over_the_vocabulary(exponent: float, strength: float) -> None:
    counted = NgramBaseline.of(corpus(text(400, 0), text(300, 1)), 45)
    model = NgramBaseline(counted.pairs, counted.counts, exponent=exponent, strength=strength)
    rng = np.random.default_rng(3)
    tokens = np.array([2, *text(600, 2), 3])
    positions = np.sort(rng.choice(np.arange(1, 600), 90, replace=False))
    targets, seen = tokens[positions], tokens.copy()
    seen[positions[::2]] = MASK  # so some neighbors are masked too
    chances = np.array([by_the_formula(model, seen[position - 1], seen[position + 1]) for position in positions])
    gold = chances[np.arange(90), targets]
    ahead = (chances >= gold[:, None] * (1 - 1e-12)).sum(axis=1) - 1
    for top in (1, 5):
        scores = model.bigram_scores(seen, positions, targets, top=top)
        assert scores.loss == pytest.approx(-np.log(gold).mean())
        assert scores.top == pytest.approx((ahead < top).mean())
        assert 0 < scores.top < 1


def test_neighbors_help_on_text() -> None:
    model = NgramBaseline.of(corpus(*(text(500, seed) for seed in range(20))), 45)
    tokens = np.array(text(1000, 99), dtype=np.uint16)
    positions = np.arange(1, 999, 3)
    unigram, bigram = (
        model.unigram_scores(tokens[positions]),
        model.bigram_scores(tokens, positions, tokens[positions]),
    )
    assert bigram.loss < 0.7 * unigram.loss
    assert bigram.top > 2 * unigram.top


def test_the_fitted_weights_are_better_than_others_on_new_text() -> None:
    model = NgramBaseline.of(corpus(*(text(300, seed) for seed in range(20))), 45)
    tokens, positions = np.array(text(3000, 99)), np.arange(1, 2999)
    fitted = model.bigram_scores(tokens, positions, tokens[positions]).loss
    other = NgramBaseline(model.pairs, model.counts, exponent=0.5, strength=4.0)
    assert fitted < other.bigram_scores(tokens, positions, tokens[positions]).loss


def test_pieces_and_pairs_that_never_occur_have_a_finite_loss() -> None:
    model = NgramBaseline.of(corpus([5, 6, 7, 5, 6]), PIECES)
    tokens = np.array([11, 11, 11, 5, MASK, 10])
    scores = model.bigram_scores(tokens, np.array([0, 1, 4, 5]), np.array([11, 10, 9, 10]))
    assert np.isfinite(scores.loss)
    assert scores.top == 0


def test_without_neighbors_the_bigram_model_is_the_unigram_model() -> None:
    model = NgramBaseline.of(corpus(text(400, 0), text(400, 1)), 45)
    tokens, targets = np.full(7, MASK), np.array([5, 6, 44])
    scores = model.bigram_scores(tokens, np.array([0, 3, 6]), targets)
    assert scores.loss == pytest.approx(model.unigram_scores(targets).loss)
    assert scores.top == model.unigram_scores(targets).top


def test_spare_pieces_take_hardly_any_probability() -> None:
    words, spare = [5, 6, 5, 6, 7], tuple(range(8, 5000))
    few, many = NgramBaseline.of(corpus(words), 9, (8,)), NgramBaseline.of(corpus(words), 5000, spare)
    assert many.unigram_scores(np.array(words)).loss == pytest.approx(few.unigram_scores(np.array(words)).loss)
    tokens, positions = np.array([2, 5, MASK, 5, 3]), np.array([2])
    losses = [model.bigram_scores(tokens, positions, np.array([6])).loss for model in (few, many)]
    assert losses[0] == pytest.approx(losses[1])
    without = NgramBaseline.of(corpus(words), 5000)
    assert many.unigram_scores(np.array(words)).loss < 2 < 7 < without.unigram_scores(np.array(words)).loss


def test_the_loss_of_frequencies_does_not_depend_on_the_size_of_a_vocabulary_that_is_mostly_spare() -> None:
    pieces = [*SPECIAL_PIECES, *(f"[unused{number}]" for number in range(7000)), *(f"w{n}" for n in range(40))]
    vocabulary = Vocabulary(pieces)
    words = np.array(text(4000, 0)) + 7000
    counts = np.bincount(words, minlength=len(vocabulary))
    loss = unigram_loss(counts, corpus(words.tolist()), vocabulary)
    assert entropy(counts) < loss < entropy(counts) + 0.02
    everything = NgramBaseline(sp.csr_array((7045, 7045)), counts, spare_ids=vocabulary.spare_ids)
    assert everything.unigram_scores(words).loss == pytest.approx(loss)


def test_a_tie_is_a_miss() -> None:
    model = NgramBaseline.of(corpus([5, 6, 7, 8, 9, 10]), PIECES)  # six pieces, once each
    assert model.unigram_scores(np.array([5]), top=5).top == 0
    assert model.unigram_scores(np.array([5]), top=6).top == 1


def test_documents_without_tokens_are_refused() -> None:
    with pytest.raises(CorpusError, match="found 2 documents without tokens"):
        NgramBaseline.of(corpus([], []), PIECES)
