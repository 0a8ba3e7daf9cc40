"""The updates of Word2Vec and GloVe against slow obvious loops, and the random draws against their probabilities."""

import numpy as np
import pytest
from scipy import stats

from bertsmith.base.core.errors import TrainingError
from bertsmith.inference.word_vectors.draws import (
    NO_WORD,
    NoiseWords,
    RandomWords,
    contexts_of,
    keep_probabilities,
    reaches,
)
from bertsmith.inference.word_vectors.glove import GloVe
from bertsmith.inference.word_vectors.huffman import huffman_paths
from bertsmith.inference.word_vectors.settings import WordVectorSettings
from bertsmith.inference.word_vectors.updates import sigmoid
from bertsmith.inference.word_vectors.word2vec import Block, Word2Vec, noise_examples, safe_block, tree_examples
from bertsmith.text.corpus.cooccurrence import UNIT
from bertsmith.text.corpus.pair_counts import PairCounts
from bertsmith.text.corpus.pairs import PairFiles, write_pairs
from oracles.word_vector_oracle import glove_block, huffman_codes, tabled_sigmoid, word2vec_block

COUNTS = np.array([40, 30, 20, 9, 5, 5, 2, 1], dtype=np.int64)
BLOCK = Block(
    np.array([3, 0, 0, 7], dtype=np.int32),
    np.array([[-1, 1, 0, 2], [3, 1, -1, -1], [-1, -1, -1, -1], [0, 0, 6, 5]], dtype=np.int32),
)


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
@pytest.mark.parametrize("outputs", [{}, {"hierarchical": True}, {"hierarchical": True, "negatives": 2}], ids=str)
@pytest.mark.parametrize("scale", [0.3, 4.0])
def test_a_block_is_updated_as_in_the_obvious_loop(method, outputs, scale):
    settings = WordVectorSettings(method=method, width=6, block=4, **outputs).resolved()
    model = Word2Vec(COUNTS, settings)
    rng = np.random.default_rng(5)
    for table in model.tables.values():
        table[:] = scale * rng.standard_normal(table.shape)
    before = {name: table.tolist() for name, table in model.tables.items()}
    gradients = model.update(BLOCK, 0.05, RandomWords(9))

    if method == "skip-gram":
        pairs = [([int(word)], int(center)) for center, line in zip(*BLOCK, strict=True) for word in line if word >= 0]
    else:
        lines = [([int(word) for word in line if word >= 0], int(c)) for c, line in zip(*BLOCK, strict=True)]
        pairs = [(contexts, center) for contexts, center in lines if contexts]
    centers = np.array([center for _, center in pairs], dtype=np.int32)
    draws = RandomWords(9)
    kinds = {}
    if model.noise is not None:
        kinds["outputs"] = noise_examples(centers, model.noise, model.negatives, draws)
    if model.paths is not None:
        kinds["nodes"] = tree_examples(centers, model.paths)
    examples = [
        (
            contexts,
            [
                (name, int(row), float(label), kind.skips_saturated)
                for name, kind in kinds.items()
                for row, label in zip(kind.outputs[position], kind.labels[position], strict=True)
                if row != NO_WORD
            ],
        )
        for position, (contexts, _) in enumerate(pairs)
    ]
    inputs = before.pop("inputs")
    wanted, tables, loss = word2vec_block(inputs, before, examples, 0.05)
    np.testing.assert_allclose(model.tables["inputs"], wanted, rtol=1e-4, atol=2e-4)
    for name, table in tables.items():
        np.testing.assert_allclose(model.tables[name], table, rtol=1e-4, atol=2e-4)
    assert sum(gradient.loss for gradient in gradients) == pytest.approx(loss, rel=1e-4)
    assert sum(gradient.outputs for gradient in gradients) == sum(len(outputs) for _, outputs in examples)
    assert not np.allclose(model.tables["inputs"], inputs)


def test_the_sigmoid_is_that_of_the_table():
    scores = np.array([-8, -6.0, -5.999, -1.234, 0, 0.5, 3.3333, 5.999, 6.0, 7], dtype=np.float32)
    np.testing.assert_allclose(sigmoid(scores), [tabled_sigmoid(float(score)) for score in scores], atol=1e-6)


def test_the_update_goes_down_the_true_gradient_of_the_loss():
    """By finite differences of the loss of skip-gram with noise words, where the table of the sigmoid is close."""
    settings = WordVectorSettings(width=4, learning_rate=1.0).resolved()
    model = Word2Vec(COUNTS, settings)
    rng = np.random.default_rng(1)
    start = {name: 0.5 * rng.standard_normal(table.shape).astype(np.float32) for name, table in model.tables.items()}

    def loss_at(name, row, column, by):
        for key, table in model.tables.items():
            table[:] = start[key]
        model.tables[name][row, column] += by
        return sum(gradient.loss for gradient in model.update(BLOCK, 0.0, RandomWords(2)))

    for key, table in model.tables.items():
        table[:] = start[key]
    model.update(BLOCK, 1e-2, RandomWords(2))
    moved = {name: (table - start[name]) / 1e-2 for name, table in model.tables.items()}
    places = [(name, row, column) for name in ("inputs", "outputs") for row in (0, 1, 3) for column in range(4)]
    slopes = [(loss_at(*entry, 1e-2) - loss_at(*entry, -1e-2)) / 2e-2 for entry in places]
    np.testing.assert_allclose(
        [moved[name][row, column] for name, row, column in places], np.negative(slopes), atol=0.1
    )
    assert np.abs(slopes).max() > 1


@pytest.mark.parametrize("counts", [COUNTS, np.array([3, 3, 3, 3, 3]), np.array([9, 1]), np.array([8, 4, 2, 1, 1])])
def test_huffman_paths_are_those_of_merging_the_lightest_nodes(counts):
    paths = huffman_paths(counts)
    codes = [
        "".join(str(turn) for node, turn in zip(*word, strict=True) if node >= 0)
        for word in zip(paths.nodes.tolist(), paths.turns.tolist(), strict=True)
    ]
    wanted = huffman_codes(counts.tolist())
    assert [len(code) for code in codes] == [len(code) for code in wanted]
    assert codes == wanted
    # A node is the same in all paths that have taken the same turns so far.
    nodes = {}
    for code, line in zip(codes, paths.nodes.tolist(), strict=True):
        for depth in range(len(code)):
            assert nodes.setdefault(code[:depth], line[depth]) == line[depth]
    assert sorted(nodes.values()) == list(range(len(counts) - 1))


def pair_files(tmp_path, table, memory=1e6):
    """The entries of a symmetric table of counts, as files."""
    counts = PairCounts(tmp_path, memory)
    for row, column in np.argwhere(np.triu(table)).tolist():
        value = float(table[row, column]) / (2 if row == column else 1)  # a pair of equal words counts twice
        counts.add(np.array([row * len(table) + column]), round(UNIT * value))
    write_pairs(counts, len(table), 1, tmp_path)
    return PairFiles(tmp_path)


def test_glove_is_updated_as_in_the_obvious_loop(tmp_path):
    table = np.array([[0, 200, 3.5], [200, 1, 0.5], [3.5, 0.5, 0]], dtype=np.float32)
    settings = WordVectorSettings(method="glove", width=3, learning_rate=0.05).resolved()
    model = GloVe(pair_files(tmp_path, table), 3, settings)
    assert all((model.tables[name] == 1).all() for name in ("word_squares", "context_squares"))
    assert np.abs(model.tables["words"]).max() <= 0.5 / 3
    rng = np.random.default_rng(4)
    names = ("words", "contexts", "word_squares", "context_squares")
    model.tables["words"] *= 400  # gradients beyond the limit
    for name in names[2:]:
        model.tables[name] += rng.random((3, 4), dtype=np.float32)
    before = [model.tables[name].tolist() for name in names]
    entries = model.pairs.shuffled(0, np.random.default_rng(1)).part(0, 5)
    listed = list(zip(*(column.tolist() for column in entries), strict=True))
    cost = model.update(entries)
    wanted, loss = glove_block(*before, listed, 0.05, 100.0, 0.75)
    assert cost == pytest.approx(loss, rel=1e-4)
    for name, table in zip(names, wanted, strict=True):
        np.testing.assert_allclose(model.tables[name], table, rtol=2e-4, atol=1e-4)
    np.testing.assert_array_equal(model.vectors, (model.tables["words"] + model.tables["contexts"])[:, :3])


def test_frequent_words_stay_with_the_probability_of_the_original_program():
    counts = np.array([900, 90, 9, 1])
    keep = keep_probabilities(counts, 0.01)
    wanted = [min(1.0, (np.sqrt(c / (0.01 * 1000)) + 1) * (0.01 * 1000) / c) for c in counts]
    np.testing.assert_allclose(keep, wanted)
    ids = np.tile(np.append(np.repeat([0, 1, 2], 300), NO_WORD), 40).astype(np.int32)
    stayed = np.bincount(reaches(ids, keep, 2, np.random.default_rng(1)).centers, minlength=3) / 12_000
    np.testing.assert_allclose(stayed, keep[:3], atol=0.015)
    assert (keep_probabilities(counts, 0) == 1).all()


def test_windows_have_even_radii_reach_over_gaps_and_end_with_the_sentence():
    ids = np.array([0, 1, 2, 0, 3, NO_WORD, 4, 5, NO_WORD], dtype=np.int32)
    keep = np.array([0.0, 1, 1, 1, 1, 1])

    def draw(seed):
        return reaches(ids, keep, 2, np.random.default_rng(seed))

    seen = {tuple(contexts_of(draw(seed), 2)[0].tolist()) for seed in range(40)}
    assert seen == {(-1, -1, 2, -1), (-1, -1, 2, 3)}, "word 0 is gone, so 3 is two words from 1"
    for seed in range(20):
        result = draw(seed)
        assert result.centers.tolist() == [1, 2, 3, 4, 5]
        contexts = contexts_of(result, 2)
        assert set(contexts[3].tolist()) == {-1, 5}
        assert set(contexts[4].tolist()) == {-1, 4}
        assert ((contexts[:, :2] != NO_WORD).sum(axis=1) == result.left).all()
        assert ((contexts[:, 2:] != NO_WORD).sum(axis=1) == result.right).all()
    many = contexts_of(reaches(np.zeros(30_000, dtype=np.int32), np.ones(1), 5, np.random.default_rng(0)), 5)
    radii = np.bincount((many[5:-5] != NO_WORD).sum(axis=1) // 2, minlength=6)[1:]
    assert stats.chisquare(radii).pvalue > 0.001


def test_noise_words_follow_the_counts_to_the_power_three_quarters():
    drawn = NoiseWords(COUNTS).draw((200_000,), RandomWords(6))
    weights = COUNTS**0.75
    expected = weights / weights.sum() * len(drawn)
    assert stats.chisquare(np.bincount(drawn, minlength=8), expected).pvalue > 0.001
    unsmoothed = COUNTS / COUNTS.sum() * len(drawn)
    assert stats.chisquare(np.bincount(drawn, minlength=8), unsmoothed).pvalue < 1e-6


def test_noise_that_is_the_right_word_is_left_out():
    centers = np.array([0, 0, 1, 7], dtype=np.int32)
    examples = noise_examples(centers, NoiseWords(COUNTS), 50, RandomWords(3))
    assert (examples.outputs[:, 0] == centers).all()
    assert (examples.outputs[:, 1:] != centers[:, None]).all()
    assert (examples.outputs[:, 1:] == NO_WORD).any()


def test_blocks_are_smaller_where_one_output_is_in_every_example():
    even = np.full(10_000, 10)
    keep = np.ones(len(even))
    plain, tree = (WordVectorSettings(hierarchical=flag).resolved() for flag in (False, True))
    assert safe_block(even, keep, plain) == 256
    assert safe_block(even, keep, tree) == 3


def test_training_that_diverges_is_an_error_and_not_a_folder_of_nan(tmp_path):
    from bertsmith.inference.word_vectors.training import train_word_vectors

    (tmp_path / "t.txt").write_text("a b c d e f\n" * 200, encoding="utf-8")
    with pytest.raises(TrainingError, match="finite"), np.errstate(all="ignore"):
        train_word_vectors(
            [tmp_path / "t.txt"], tmp_path / "v", form="lines", learning_rate=9.0, block=5000, epochs=40, subsample=0.0
        )
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize("outputs", [{}, {"hierarchical": True}], ids=str)
def test_inputs_start_evenly_between_both_ends_of_the_range_and_outputs_at_zero(outputs):
    """The range is that of gensim 4, from -1/D to 1/D; the original program has half of it."""
    counts = np.arange(2000, 0, -1)
    settings = WordVectorSettings(method="skip-gram", width=10, **outputs).resolved()
    tables = Word2Vec(counts, settings).tables
    inputs = tables.pop("inputs")
    assert tables
    assert all(not table.any() for table in tables.values())
    assert stats.kstest(inputs.ravel(), stats.uniform(-0.1, 0.2).cdf).pvalue > 0.01
    again, other = (
        Word2Vec(counts, WordVectorSettings(method="skip-gram", width=10, seed=seed, **outputs).resolved())
        for seed in (1, 2)
    )
    assert np.array_equal(again.vectors, inputs)
    assert not np.array_equal(other.vectors, inputs)
