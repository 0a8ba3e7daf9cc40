"""One-hot and TF-IDF vectors against those of scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from bertsmith.base.core.errors import InputError
from bertsmith.inference.search.word_cosines import WordCosines
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens

WORDS = st.lists(st.sampled_from("a b c d e f".split()), max_size=12).map(" ".join)


def split(text: str) -> list[str]:
    return list(basic_tokens(text, TextRules()))


@given(st.lists(WORDS, min_size=1, max_size=8).filter(any), st.lists(WORDS, min_size=1, max_size=3), st.booleans())
def test_scores_are_the_cosines_of_scikit_learn(passages: list[str], queries: list[str], one_hot: bool) -> None:
    options = {"tokenizer": split, "token_pattern": None, "lowercase": False}
    theirs = CountVectorizer(binary=True, **options) if one_hot else TfidfVectorizer(**options)
    wanted = cosine_similarity(theirs.fit_transform(passages), theirs.transform(queries)).T
    result = WordCosines(passages, one_hot=one_hot).scores(queries)
    np.testing.assert_allclose(result, wanted, atol=1e-12)


def test_a_rare_word_decides_for_tf_idf_and_the_number_of_shared_words_for_one_hot() -> None:
    passages = ["the cat on the mat", "the dog saw the cat", "a zebra", "the end of the cat"]
    assert WordCosines(passages).search(["the zebra"], top=1).places.tolist() == [[2]]
    assert WordCosines(passages, one_hot=True).search(["the mat cat on"], top=1).places.tolist() == [[0]]
    assert WordCosines(passages).search(["nothing here"], top=2).row(0) == []
    with pytest.raises(InputError, match="passages with words; found none"):
        WordCosines(["", " "])
