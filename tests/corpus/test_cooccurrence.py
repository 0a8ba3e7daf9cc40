"""Counts of neighboring pieces against a count by hand, and the vectors made from them."""

import json

import numpy as np
import pytest
from scipy import sparse

from bertsmith.text.corpus import cooccurrence
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.cooccurrence import (
    PpmiOfCounts,
    cooccurrences,
    count_neighbors,
    neighbor_matrix,
    ppmi,
    reduced,
)
from bertsmith.text.corpus.pair_counts import PairCounts
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


def corpus_of(folder, documents: list[str]) -> Corpus:
    lines = "".join(json.dumps({"text": document}) + "\n" for document in documents)
    (folder / "text.jsonl").write_text(lines, encoding="utf-8")
    tokenizer = WordPieceTokenizer(Vocabulary(PIECES), TextRules())
    build_corpus([folder / "text.jsonl"], tokenizer, folder / "corpus", held_out=0, workers=1)
    return Corpus.open(folder / "corpus")


def counted_by_hand(corpus: Corpus, window: int) -> np.ndarray:
    counts = np.zeros((len(PIECES), len(PIECES)))
    for document in range(corpus.num_documents):
        tokens = corpus.document_tokens(document).tolist()
        for position, piece in enumerate(tokens):
            for other in tokens[max(0, position - window) : position] + tokens[position + 1 : position + 1 + window]:
                counts[piece, other] += 1
    return counts


@pytest.mark.parametrize("window", [1, 2, 5])
def test_pieces_are_counted_within_the_window_and_the_document(tmp_path, window):
    corpus = corpus_of(tmp_path, ["a b c a d e f a", "b b c", "a"])
    assert corpus.num_documents == 3
    result = cooccurrences(corpus, window=window)
    np.testing.assert_array_equal(result.toarray(), counted_by_hand(corpus, window))


def test_a_part_of_a_large_corpus_is_counted_spread_over_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    corpus = corpus_of(tmp_path, ["a b"] * 4 + ["c d"] * 4)
    half = cooccurrences(corpus, window=1, most_tokens=corpus.num_tokens // 2)
    a, b, c, d = (PIECES.index(piece) for piece in "abcd")
    assert (half[a, b], half[c, d]) == (2, 2)
    said = "neighboring pieces are counted in 8 of 16 tokens, in documents spread evenly over the corpus\n"
    assert said in capsys.readouterr().err
    whole = cooccurrences(corpus, window=1, most_tokens=corpus.num_tokens)
    assert whole[a, b] == 4
    assert capsys.readouterr().err == ""
    assert cooccurrences(corpus, window=1, most_tokens=1)[a, b] == 1, "one document, even if it is longer"


def test_mutual_information_follows_the_formula_and_is_never_negative():
    counts = np.array([[0, 8, 1], [8, 2, 1], [1, 1, 0]], dtype=np.float32)
    rows = counts.sum(axis=1)
    contexts = rows**0.75 / (rows**0.75).sum()
    with np.errstate(divide="ignore"):
        expected = np.maximum(np.log(counts / rows[:, None] / contexts), 0)
    np.testing.assert_allclose(ppmi(sparse.csr_matrix(counts)).toarray(), expected, rtol=1e-6)


def test_reduced_vectors_have_the_products_of_the_best_approximation():
    rng = np.random.default_rng(3)
    factors = rng.standard_normal((60, 4)).astype(np.float32)
    matrix = factors @ factors.T  # of rank 4, with no negative eigenvalue
    vectors = reduced(sparse.csr_matrix(matrix), 4, np.random.default_rng(1))
    lengths = np.linalg.norm(factors, axis=1)
    np.testing.assert_allclose(vectors @ vectors.T, matrix / np.outer(lengths, lengths), atol=1e-4)


def test_a_piece_without_neighbors_has_no_vector_and_the_others_unit_length():
    matrix = np.zeros((6, 6), dtype=np.float32)
    matrix[:4, :4] = 1 + np.eye(4)
    vectors = reduced(sparse.csr_matrix(matrix), 8, np.random.default_rng(1))
    assert vectors.shape == (6, 8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 1, 0, 0], atol=1e-5)


def test_the_vectors_depend_on_the_generator_alone():
    matrix = sparse.csr_matrix(np.random.default_rng(5).random((20, 20)).astype(np.float32))
    first, again = (reduced(matrix, 5, np.random.default_rng(2)) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_matrix_that_stays_on_disk_has_the_same_products_and_vectors(tmp_path, monkeypatch):
    monkeypatch.setattr(cooccurrence, "_BLOCK_PAIRS", 50)
    rng = np.random.default_rng(7)
    size = 50
    ids = (rng.zipf(1.5, size=6000) - 1) % (size - 2)  # two pieces do not occur
    counts = PairCounts(tmp_path, 1)
    count_neighbors(ids, size, counts, window=3)
    on_disk, in_memory = (PpmiOfCounts(counts, size, memory=memory) for memory in (1.0, 1e9))
    whole = ppmi(neighbor_matrix(counts, size))
    assert counts.spilled > 1
    assert on_disk.pairs > 150, "several blocks"
    assert on_disk._held is None
    assert len(in_memory._held) == len(list(on_disk._blocks())) > 3
    other = rng.standard_normal((size, 4))
    for matrix in (on_disk, in_memory):
        np.testing.assert_allclose(matrix @ other, whole @ other, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(matrix.T @ other, whole.T @ other, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(matrix.seen, np.diff(whole.indptr) > 0)
    vectors = [reduced(matrix, 8, np.random.default_rng(1)) for matrix in (on_disk, in_memory, whole)]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_allclose(vectors[0] @ vectors[0].T, vectors[2] @ vectors[2].T, atol=1e-3)
