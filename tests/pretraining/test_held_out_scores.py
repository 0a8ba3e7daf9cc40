"""A model and the counting models are scored at the same masked positions of held-out text."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import CorpusError
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.readers import Document
from bertsmith.training.pretraining.held_out_scores import TOP, HeldOutRows
from bertsmith.training.pretraining.ngram_baseline import NgramBaseline
from corpus.samples import small_tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("scores") / "corpus"
    tokenizer = small_tokenizer()
    words = [piece for piece in tokenizer.vocabulary.pieces if piece.isalpha()]
    rng = np.random.default_rng(0)
    documents = [Document(f"d{number}", [" ".join(rng.choice(words, 12)) for _ in range(6)]) for number in range(40)]
    build_corpus(documents, tokenizer, folder, held_out=0.2, workers=1)
    return Corpus.open(folder)


class Guesser(torch.nn.Module):
    """Answers with the logits of one row for each position that is read; notes how many were asked for."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits, self.asked = logits, 0

    def forward(self, batch, *, read, masked):
        self.asked += len(masked)
        return SimpleNamespace(mlm_logits=self.logits.expand(len(masked), -1))


def test_rows_are_the_same_at_every_call_with_15_percent_masked(corpus):
    first, other = (HeldOutRows.of(corpus, length=32, rows=20) for _ in range(2))
    assert np.array_equal(first.targets.token_ids, other.targets.token_ids)
    assert np.array_equal(first.targets.positions, other.targets.positions)
    assert len(first.lengths) <= 20
    assert first.num_masked == np.maximum(1, np.rint(0.15 * first.lengths)).sum()


def test_a_model_that_knows_only_frequencies_scores_as_the_unigram_model(corpus):
    """Loss and hits of the model and of the counting model have the same definition."""
    rows = HeldOutRows.of(corpus, length=32, rows=20)
    baseline = NgramBaseline.of(corpus, len(corpus.vocabulary))
    # Pieces that are equally frequent are not a hit of the counting model; distinct frequencies have no ties.
    rng = np.random.default_rng(1)
    baseline = NgramBaseline(baseline.pairs, baseline.counts + rng.permutation(len(baseline.counts)) / 1000)
    unigram, bigram = rows.counted_scores(baseline)
    model = Guesser(torch.from_numpy(np.log(baseline.unigram)).float())
    scores = rows.scores(model)
    assert model.asked == rows.num_masked
    assert scores.loss == pytest.approx(unigram.loss, rel=1e-5)
    assert scores.top == pytest.approx(unigram.top)
    assert scores.top > scores.accuracy > 0
    best = np.argsort(-baseline.unigram)
    assert scores.accuracy == pytest.approx(np.mean(rows.targets.target_ids == best[0]))
    assert scores.top == pytest.approx(np.isin(rows.targets.target_ids, best[:TOP]).mean())
    assert bigram.loss != unigram.loss


def test_a_corpus_without_held_out_documents_is_refused(tmp_path):
    documents = [Document("d", ["un aff able", "the cat sat"])]
    build_corpus(documents, small_tokenizer(), tmp_path / "corpus", held_out=0, workers=1)
    with pytest.raises(CorpusError, match=r"expected held-out documents in .*; found none; build it with --held-out"):
        HeldOutRows.of(Corpus.open(tmp_path / "corpus"), length=32, rows=20)
