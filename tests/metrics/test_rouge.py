"""ROUGE against Google's rouge-score."""

import hypothesis
import hypothesis.strategies as st
import pytest
from rouge_score.rouge_scorer import RougeScorer

from bertsmith.tasks.metrics.rouge import ROUGE, longest_common, mean_rouge, rouge, words_of

_TEXT = st.lists(st.sampled_from("The the cat, cat's sat_on it. 2nd mat - !".split()), max_size=12).map(" ".join)


@hypothesis.given(_TEXT, st.lists(_TEXT, min_size=1, max_size=3))
def test_the_figures_are_those_of_rouge_score(text, references):
    theirs = RougeScorer(list(ROUGE)).score_multi(references, text)
    assert rouge(text, references) == pytest.approx({name: theirs[name].fmeasure for name in ROUGE}, abs=1e-12)


@hypothesis.given(st.text(alphabet="abc", max_size=40), st.text(alphabet="abc", max_size=40))
def test_the_longest_common_subsequence_is_that_of_the_table_of_lengths(text, other):
    row = [0] * (len(other) + 1)
    for letter in text:
        before, row = row, [0]
        for index, match in enumerate(other):
            row.append(before[index] + 1 if letter == match else max(row[-1], before[index + 1]))
    assert longest_common(text, other) == row[-1]


def test_words_of_other_languages_count():
    assert words_of("Größe über_all") == ["größe", "über", "all"]
    assert rouge("größe", ["Größe"])["rougeL"] == 1.0


def test_a_mean_is_that_of_the_texts():
    assert mean_rouge(["a b", "c"], [["a b"], ["d"]]) == {"rouge1": 0.5, "rouge2": 0.5, "rougeL": 0.5}
    assert mean_rouge([], []) == dict.fromkeys(ROUGE, 0.0)
