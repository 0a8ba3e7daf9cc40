"""BM25 against a direct implementation of its formula."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.rankings import NO_PASSAGE
from bertsmith.inference.search.word_index import Words
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

words = st.lists(st.sampled_from("a b c d e f".split()), max_size=12).map(" ".join)


def written_out(query: str, passages: list[str], k1: float, b: float) -> list[float]:
    split = [passage.split() for passage in passages]
    mean = sum(map(len, split)) / len(split)
    scores = []
    for passage in split:
        score = 0.0
        for word in query.split():
            found_in = sum(word in other for other in split)
            rarity = math.log(1 + (len(split) - found_in + 0.5) / (found_in + 0.5))
            times = passage.count(word)
            score += rarity * times * (k1 + 1) / (times + k1 * (1 - b + b * len(passage) / mean)) if times else 0.0
        scores.append(score)
    return scores


@given(st.lists(words, min_size=1, max_size=8).filter(any), words, st.floats(0, 3), st.floats(0, 1))
def test_scores_equal_the_formula(passages: list[str], query: str, k1: float, b: float) -> None:
    result = BM25(passages, k1=k1, b=b).scores([query, "a"])
    assert result[0] == pytest.approx(written_out(query, passages, k1, b))
    assert result[1] == pytest.approx(written_out("a", passages, k1, b))


def test_a_rare_word_decides_and_case_and_accents_do_not() -> None:
    passages = ["the cat sat on the mat", "the dog sat", "the Café was closed", "the bird"]
    ranking = BM25(passages).search(["the CAFE", "dog", "nothing of this"], top=2)
    assert ranking.places[0, 0] == 2
    assert ranking.places[1].tolist() == [1, NO_PASSAGE], "only passages that share a word are ranked"
    assert ranking.places[2].tolist() == [NO_PASSAGE, NO_PASSAGE]
    assert ranking.row(2) == []


def test_of_equal_passages_the_first_comes_first() -> None:
    assert BM25(["b", "a", "a", "a"]).search(["a"], top=2).places.tolist() == [[1, 2]]


def test_pieces_of_a_vocabulary_find_parts_of_words() -> None:
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "play", "##ing", "##ed", "the"]))
    passages = ["the played", "the", "unknown"]
    by_pieces = BM25(passages, words=Words(tokenizer)).scores(["playing"])[0]
    assert by_pieces[0] > 0
    assert by_pieces[1:].tolist() == [0, 0]
    assert not BM25(passages).scores(["playing"]).any()
    assert not BM25(passages, words=Words(tokenizer)).scores(["stranger"]).any(), "two unknown words are not the same"


def test_many_queries_are_searched_like_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    passages = ["a b", "b c", "c d d", "a d"]
    model = BM25(passages)
    together = model.search(["a", "d", "b c", "x"], top=3)
    monkeypatch.setattr("bertsmith.inference.search.inverted_index._SCORES_AT_ONCE", 1)
    alone = model.search(["a", "d", "b c", "x"], top=3)
    assert np.array_equal(together.places, alone.places)
    assert np.array_equal(together.scores, alone.scores)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="passages with words"):
        BM25(["", " "])
    for wrong in ({"k1": -1}, {"b": 1.5}):
        with pytest.raises(ConfigError):
            BM25(["a"], **wrong)
