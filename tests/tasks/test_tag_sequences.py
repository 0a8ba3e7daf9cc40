"""The best allowed sequence of tags is the one that an exhaustive search finds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.tasks.metrics.entities import SCHEMES, following_tags, scheme_errors
from bertsmith.tasks.specs.tag_sequences import best_sequences

TAGS = {
    "IOB1": ("O", "B-A", "I-A", "I-B"),
    "IOB2": ("I-A", "O", "B-A", "B-B", "I-B"),
    "IOBES": ("O", "B-A", "I-A", "E-A", "S-A", "S-B"),
}


def is_allowed(tags: tuple[str, ...], scheme: str) -> bool:
    return not scheme_errors(tags, scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("without_type", [False, True])
def test_the_pairs_that_may_follow_each_other_are_those_of_well_formed_sequences(
    scheme: str, without_type: bool
) -> None:
    labels = tuple(dict.fromkeys(tag.split("-")[0] if without_type else tag for tag in TAGS[scheme]))
    follows, end = following_tags(labels, scheme), len(labels)
    for length in range(1, 5):
        for numbers in itertools.product(range(end), repeat=length):
            path = [end, *numbers, end]
            free = all(follows[a, b] for a, b in itertools.pairwise(path))
            assert free == is_allowed(tuple(labels[number] for number in numbers), scheme), numbers


def test_brackets_are_single_words_and_unknown_tags_are_outside() -> None:
    labels = ("O", "B-A", "E-A", "[-A", "S-A", "X")
    follows = following_tags(labels, "IOBES")
    assert (follows[3] == follows[4]).all()
    assert (follows[:, 3] == follows[:, 4]).all()
    assert (follows[5] == follows[0]).all()


def searched(scores: np.ndarray, labels: tuple[str, ...], scheme: str) -> list[int] | None:
    """The best allowed sequence among all sequences, or None."""
    every = itertools.product(range(len(labels)), repeat=len(scores))
    allowed = [path for path in every if is_allowed(tuple(labels[number] for number in path), scheme)]
    words = np.arange(len(scores))
    return list(max(allowed, key=lambda path: scores[words, list(path)].sum())) if allowed else None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_best_sequence_is_that_of_an_exhaustive_search(scheme: str) -> None:
    labels = TAGS[scheme]
    draw = np.random.default_rng(7)
    lengths = [3, 0, 1, 5, 2, 4, 0, 3, 1, 5, 4, 2] * 3
    borders = np.cumsum([0, *lengths])
    scores = draw.normal(size=(borders[-1], len(labels))) * 2
    tags, without = best_sequences(scores, borders, following_tags(labels, scheme))
    assert without.tolist() == []
    changed = 0
    for begin, end in itertools.pairwise(borders.tolist()):
        result, part = tags[begin:end].tolist(), scores[begin:end]
        assert result == searched(part, labels, scheme)
        best = part.argmax(axis=-1).tolist()
        if is_allowed(tuple(labels[number] for number in best), scheme):
            assert result == best
        changed += result != best
    assert 3 <= changed < len(lengths)


@given(st.lists(st.sampled_from([0, 1, 2, 3, 17]), max_size=8), st.integers(0, 2**32))
def test_no_answer_is_impossible_and_allowed_answers_stay(lengths: list[int], seed: int) -> None:
    borders = np.cumsum([0, *lengths])
    # Few distinct values, so that many sequences are equally good.
    scores = np.random.default_rng(seed).integers(0, 3, size=(borders[-1], 6)).astype(np.float64)
    labels = TAGS["IOBES"]
    tags, _ = best_sequences(scores, borders, following_tags(labels, "IOBES"))
    for begin, end in itertools.pairwise(borders.tolist()):
        named = tuple(labels[number] for number in tags[begin:end].tolist())
        assert is_allowed(named, "IOBES")
        best = scores[begin:end].argmax(axis=-1).tolist()
        if is_allowed(tuple(labels[number] for number in best), "IOBES"):
            assert tags[begin:end].tolist() == best


def test_a_sentence_without_an_allowed_sequence_is_named_and_gets_its_best_tags() -> None:
    follows = following_tags(("B-A", "E-A"), "IOBES")
    scores = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [3.0, 0.0], [0.0, 1.0]])
    tags, without = best_sequences(scores, np.array([0, 1, 3, 5]), follows)
    assert without.tolist() == [0]
    assert tags.tolist() == [1, 0, 1, 0, 1]
