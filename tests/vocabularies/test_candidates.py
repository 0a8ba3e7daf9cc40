"""The savings and costs of a piece equal those of splitting all words again."""

from collections.abc import Mapping

import numpy as np
import pytest

from bertsmith.text.vocabularies.candidates import LONGEST_PIECE, Candidates, find_candidates, numbered
from oracles.excess_oracle import cut, excess
from text.corpora import random_words


def candidates_of(counts: Mapping[str, int], least_weight: int = 2) -> Candidates:
    words = sorted(counts)
    weights = np.array([counts[word] for word in words])
    return find_candidates(words, weights, np.zeros(len(words), dtype=bool), least_weight=least_weight)


def names(candidates: Candidates) -> list[str]:
    return [candidates.piece(number) for number in range(len(candidates))]


def without_two_in_one_word(counts: Mapping[str, int]) -> dict[str, int]:
    """Words in which no substring occurs twice, so the values of single pieces are exact."""
    return {word: count for word, count in counts.items() if len(set(word)) == len(word)}


def test_candidates_are_the_frequent_beginnings_and_continuations() -> None:
    result = names(candidates_of({"walking": 3, "talking": 2, "walk": 1}))
    assert result[:9] == ["t", "w", "##a", "##g", "##i", "##k", "##l", "##n", *result[8:9]]
    # `wa` is always followed by `l`; `##alk` is not, since it also ends a word.
    assert "wa" not in result
    assert {"walk", "walking", "talking", "##alk", "##alking", "##ing", "##ng"} <= set(result)


def test_rare_and_overlong_substrings_are_no_candidates_but_all_characters_are() -> None:
    long = "abcdefghijklmnopqrstuvwxyzabc"
    result = names(candidates_of({"walk": 3, "zebu": 1, long: 5}, least_weight=2))
    assert "zebu" not in result
    assert {"z", "##e", "##b", "##u"} <= set(result)
    assert long not in result
    assert max(len(name.removeprefix("##")) for name in result) == LONGEST_PIECE


def test_a_stranger_has_only_candidates_that_occur_elsewhere() -> None:
    words = ["walker", "walk", "xyzzy"]
    candidates = find_candidates(words, np.array([9, 9, 9]), np.array([True, False, True]), least_weight=1)
    result = names(candidates)
    assert "walk" in result
    assert "walker" not in result
    assert [name for name in result if len(name.removeprefix("##")) > 1 and ("z" in name or "r" in name)] == []


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_words_are_split_as_by_the_oracle(seed: int) -> None:
    counts = random_words(seed)
    candidates = candidates_of(counts)
    is_chosen = np.random.default_rng(seed).random(len(candidates)) < 0.3
    is_chosen[: candidates.num_characters] = True
    pieces = {candidates.piece(number) for number in np.flatnonzero(is_chosen).tolist()}
    result = candidates.cut(is_chosen)
    words = sorted(counts, key=lambda word: (-len(word), word))
    assert result.pieces[candidates.first_row_spot].tolist() == [len(cut(word, pieces)) for word in words]
    uses = candidates.uses(result)
    assert uses.sum() == excess(counts, pieces) + sum(counts.values())


@pytest.mark.parametrize("seed", [3, 4])
def test_losses_and_gains_equal_those_of_splitting_again(seed: int) -> None:
    counts = without_two_in_one_word(random_words(seed, number=150))
    candidates = candidates_of(counts)
    is_chosen = np.random.default_rng(seed).random(len(candidates)) < 0.4
    is_chosen[: candidates.num_characters] = True
    pieces = {candidates.piece(number) for number in np.flatnonzero(is_chosen).tolist()}
    before = excess(counts, pieces)
    result = candidates.cut(is_chosen)
    losses, gains = candidates.losses(result), candidates.gains(result)
    assert np.isinf(losses[: candidates.num_characters]).all()
    for number in range(candidates.num_characters, len(candidates)):
        piece = candidates.piece(number)
        if is_chosen[number]:
            assert losses[number] == excess(counts, pieces - {piece}) - before, piece
        else:
            assert gains[number] == before - excess(counts, pieces | {piece}), piece
    assert (losses < 0).any() or (gains < 0).any()


@pytest.mark.parametrize("keys", [[], [0], [7, 3, 7, 0], [5, 1 << 40, 5, 2, 1 << 40]])
def test_numbers_are_positions_among_the_distinct_keys(keys: list[int]) -> None:
    different, places = numbered(np.array(keys, dtype=np.int64))
    assert different.tolist() == sorted(set(keys))
    assert different[places].tolist() == keys
