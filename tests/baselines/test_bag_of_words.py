"""Tests of bags of words and letters."""

import numpy as np
import pytest

from bertsmith.tasks.baselines import bag_of_words
from bertsmith.tasks.baselines.bag_of_words import BagOfWords, WordSpace
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import TaskSettings


def test_columns_equal_the_weights_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    examples = [
        TextExample(id=str(n), first=text) for n, text in enumerate(["a good, GOOD film", "the film", "bad é x"])
    ]
    bag = BagOfWords(examples, TaskSettings(), num_outputs=2)
    result = bag.columns(examples).toarray()
    pattern = r"\w+|[^\w\s]"
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=pattern).fit_transform(
        [example.first for example in examples]
    )
    letters = TfidfVectorizer(sublinear_tf=True, ngram_range=(2, 5), analyzer="char_wb").fit_transform(
        [example.first for example in examples]
    )
    gram = words @ words.T + letters @ letters.T
    np.testing.assert_allclose(result @ result.T, gram.toarray(), atol=1e-6)


@pytest.mark.parametrize("one_hot", [False, True])
def test_columns_of_pairs_are_those_of_dense_arrays_and_predict_the_same_without_scipy(one_hot: bool) -> None:
    draws = np.random.default_rng(2)
    words = ["good", "bad", "film", "new", "the", "a"]
    drawn = [[" ".join(draws.choice(words, draws.integers(5))) for _ in "ab"] for _ in range(30)]
    pairs = [TextExample(id=str(n), first=a, second=b) for n, (a, b) in enumerate([*drawn, ["", ""]])]
    bag = BagOfWords(pairs[:20], TaskSettings(), 2, one_hot=one_hot)
    sides = [
        [space.weights([pair.first if side == 0 else pair.second or "" for pair in pairs]) for space in bag._spaces]
        for side in (0, 1)
    ]
    (a, *a_letters), (b, *b_letters) = [[part.matrix().toarray() for part in side] for side in sides]
    columns = [a * b, abs(a - b)]
    if not one_hot:
        lengths = np.array([[len(pair.first.split()), len((pair.second or "").split())] for pair in pairs])
        shares = lengths.min(axis=1) / np.maximum(lengths.max(axis=1), 1)
        overlaps = [(a * b).sum(axis=1), (a_letters[0] * b_letters[0]).sum(axis=1), shares]
        columns = [3 * columns[0], columns[1], 3 * np.stack(overlaps, axis=1)]
    expected = np.concatenate(columns, axis=1)
    np.testing.assert_allclose(bag.columns(pairs).toarray(), expected, rtol=1e-6)
    weight = draws.normal(size=(expected.shape[1], 3))
    np.testing.assert_allclose(bag.rows(pairs) @ weight, expected @ weight, atol=1e-9)
    np.testing.assert_array_equal(bag.rows(pairs[3:4]) @ weight, (bag.rows(pairs) @ weight)[3:4])
    assert (bag.rows([]) @ weight).shape == (0, 3)


def test_texts_are_cut_like_those_of_the_model() -> None:
    long = TextExample(id="0", first=" ".join(["one"] * 8 + ["two"] * 8))
    shares = {}
    for way in ("head", "tail", "head_tail", "windows", "longest_first"):
        bag = BagOfWords([long], TaskSettings(max_length=8, long_text=way), num_outputs=30)  # words only
        shares[way] = len(bag.columns([long]).indices)
    # One word and its pair with itself, or two words and three pairs.
    assert shares == {"head": 2, "tail": 2, "head_tail": 5, "windows": 5, "longest_first": 2}


def test_one_hot_columns_say_which_single_words_a_text_has_and_nothing_more() -> None:
    train = [TextExample(id="0", first="good good film"), TextExample(id="1", first="bad film")]
    result = BagOfWords(train, TaskSettings(), 2, one_hot=True).columns(train).toarray()
    assert result.shape == (2, 3)
    assert sorted(result.sum(axis=1)) == [2, 2]
    assert set(result.reshape(-1)) == {0, 1}
    pairs = [TextExample(id="0", first="good film", second="bad film")]
    both, single = np.split(BagOfWords(pairs, TaskSettings(), 2, one_hot=True).columns(pairs).toarray()[0], 2)
    assert (both.sum(), single.sum()) == (1, 2)
    assert not (both * single).any()


def test_tf_idf_vectors_are_those_of_scikit_learn_and_shared_columns_keep_most_of_the_cosines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    draws = np.random.default_rng(1)
    texts = [" ".join(draws.choice([f"w{number}" for number in range(600)], 30)) for _ in range(40)] + [""]
    others = ["w1 w2 w3", "w1 other"]
    space = WordSpace([*texts, *others])
    vectors = space.vectors(texts, seed=1)
    words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]").fit([*texts, *others]).transform(texts)
    wanted = (words @ words.T).toarray()
    np.testing.assert_allclose(vectors @ vectors.T, wanted, atol=1e-6)
    assert vectors.dtype == np.float32
    assert vectors.shape[1] == len(set(" ".join(texts).split()))
    monkeypatch.setattr(bag_of_words, "MOST_CELLS", 41 * 400)
    shared = space.vectors(texts, seed=1)
    assert shared.shape == (41, 400)
    np.testing.assert_allclose(shared @ shared.T, wanted, atol=0.3)
    assert np.abs(shared @ shared.T - wanted).mean() < 0.05
    np.testing.assert_array_equal(space.vectors(texts, seed=1), shared)
    assert WordSpace(["", ""]).vectors(["", ""], seed=1).tolist() == [[0.0], [0.0]]


def test_words_that_no_text_of_a_space_has_are_as_rare_as_a_word_can_be() -> None:
    space = WordSpace(["good film", "bad film"])
    rarity = space.rarity(2)
    assert rarity["film"] < rarity["good"] == rarity["bad"] < rarity[""]
    texts = ["good film", "new film", "new book"]
    vectors = WordSpace(texts, rarity=rarity).vectors(texts, seed=1)
    known = [rarity["film"] ** 2, rarity["good"], rarity[""]]
    lengths = [np.hypot(rarity["film"], rarity[word]) for word in ("good", "")]
    assert vectors[0] @ vectors[1] == pytest.approx(known[0] / lengths[0] / lengths[1])
    assert vectors[1] @ vectors[2] == pytest.approx(known[2] ** 2 / lengths[1] / np.hypot(known[2], known[2]))
