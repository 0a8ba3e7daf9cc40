"""BLEU against sacreBLEU, and the worked examples of its paper and of NLTK's documentation."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest
import sacrebleu
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from bertsmith.tasks.metrics.bleu import bleu, corpus_bleu, n_grams, words_of

GUIDE = "It is a guide to action which ensures that the military always obeys the commands of the party".split()
GUIDE_REFERENCES = [
    "It is a guide to action that ensures that the military will forever heed Party commands".split(),
    "It is the guiding principle which guarantees the military forces always being under the command of the "
    "Party".split(),
    "It is the practical guide for the army always to heed the directions of the party".split(),
]
BOOK = "he read the book because he was interested in world history".split()
BOOK_REFERENCE = "he was interested in world history because he read the book".split()


def test_the_worked_examples_of_nltk():
    assert bleu([GUIDE], [GUIDE_REFERENCES]) == pytest.approx(0.5045666840058485, abs=1e-12)
    assert bleu([GUIDE, BOOK], [GUIDE_REFERENCES, [BOOK_REFERENCE]]) == pytest.approx(0.5920778868801042, abs=1e-12)


def test_repeated_words_count_as_often_as_in_a_reference():
    """The example of the paper: the modified precision of seven times "the" is 2/7."""
    references = ["the cat is on the mat".split(), "there is a cat on the mat".split()]
    most = n_grams(references[0], 1) | n_grams(references[1], 1)
    assert (n_grams(["the"] * 7, 1) & most).total() == 2
    assert bleu([["the"] * 7], [references]) == 0.0


def test_a_perfect_translation_has_1_and_a_shorter_one_less():
    whole = "a b c d e f g h".split()
    assert bleu([whole], [[whole]]) == 1.0
    assert bleu([whole[:6]], [[whole]]) == pytest.approx(math.exp(1 - 8 / 6))
    assert bleu([whole], [[whole[:5]]]) < 1.0


def test_the_closest_reference_decides_on_brevity_and_the_shorter_of_two_as_close():
    words = "a b c d e f".split()
    assert bleu([words], [[words[:4], [*words, "g", "h"]]]) == 1.0


@hypothesis.given(
    st.text(alphabet="ab é5,.-'!?;()<>&$#[]{}~`_/%\"\n", max_size=30) | st.sampled_from(["a&amp;b", "1-2", "<skipped>"])
)
def test_words_are_those_of_sacrebleu(text):
    assert words_of(text) == Tokenizer13a()(text).split()


_SENTENCE = st.lists(st.sampled_from("the cat sat on a mat , . 3,5 it's".split()), max_size=10).map(" ".join)


@hypothesis.given(
    st.integers(1, 3).flatmap(
        lambda several: st.lists(
            st.tuples(_SENTENCE, st.lists(_SENTENCE, min_size=several, max_size=several)), min_size=1, max_size=4
        )
    )
)
def test_the_figure_is_that_of_sacrebleu(pairs):
    texts, references = [text for text, _ in pairs], [others for _, others in pairs]
    theirs = sacrebleu.corpus_bleu(texts, [list(column) for column in zip(*references, strict=True)])
    assert corpus_bleu(texts, references) == pytest.approx(theirs.score / 100, abs=1e-9)
