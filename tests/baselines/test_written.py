"""Baselines that write a text for each source."""

import pytest

from bertsmith.tasks.baselines import written
from bertsmith.tasks.baselines.written import (
    central_sentences,
    nearest_targets,
    right_branching_trees,
    written_by,
)
from bertsmith.tasks.specs.task import WRITTEN

TRAIN = [
    ("The rent of the office rises. More on Monday.", ["The rent of the office"]),
    ("A party for Ann is on Friday. Bring a cake.", ["A party for Ann", "Ann"]),
    ("Please send the report today. Thanks.", ["Please send the report"]),
]


@pytest.mark.parametrize("at_once", [1, 2**23])
def test_the_nearest_target_is_that_of_the_most_similar_source(at_once: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(written, "_AT_ONCE", at_once)
    assert nearest_targets(TRAIN, ["send me the report", "is there a party on Friday?"]) == [
        "Please send the report",
        "A party for Ann",
    ]


def test_first_words_are_as_many_as_fit_the_training_examples():
    assert written_by("first words", TRAIN, ["The lift of the house is broken. It stands."]) == ["The lift of the"]


def test_first_sentences_are_taken_where_targets_are_sentences():
    train = [(source, [source.split(". ")[0] + "."]) for source, _ in TRAIN]
    texts = written_by("first words", train, ["The lift of the house is broken. It stands."])
    assert texts == ["The lift of the house is broken."]


def test_central_sentences_share_words_with_the_others_and_keep_their_order():
    text = "It rained. Ann met Bob in the park. Bob sold Ann the park. Ann and Bob sold the park in May. Well."
    assert central_sentences(text, 2) == "Bob sold Ann the park. Ann and Bob sold the park in May."
    assert central_sentences(text, 9) == text
    assert central_sentences("", 1) == ""
    assert central_sentences("One. Two. Three.", 1) == "One."


def test_empty_sources_get_a_text():
    for name in WRITTEN:
        assert len(written_by(name, TRAIN, ["", " "])) == 2


def test_trees_of_single_words_to_learn_give_a_sentence():
    assert right_branching_trees([("a", ["(NN a)"])], ["c d", ""]) == ["(S (XX c) (XX d))", ""]
