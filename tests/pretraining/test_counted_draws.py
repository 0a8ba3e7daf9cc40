import numpy as np
import pytest

from bertsmith.base.core.randomness import mix
from bertsmith.training.pretraining.counted_draws import count_heads, fold, instance_keys, purpose_keys
from oracles.pretraining_oracle import coins, counted, instance_key


def test_counted_draws_are_the_outputs_of_splitmix64() -> None:
    # The standard test values of splitmix64, from the state 1234567.
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert fold(np.full(5, 1234567, dtype=np.uint64), np.arange(5)).tolist() == expected


def test_keys_and_draws_equal_those_of_whole_number_arithmetic() -> None:
    documents, ordinals = np.array([0, 7, 7, 2**40]), np.array([0, 0, 3, 5])
    keys = instance_keys(12345, 3, documents, ordinals)
    assert keys.tolist() == [
        instance_key(12345, 3, d, o) for d, o in zip(documents.tolist(), ordinals.tolist(), strict=True)
    ]
    draws = fold(purpose_keys(keys, "mask order"), np.array([0, 1, 127, 511]))
    assert draws.tolist() == [
        counted(key, "mask order", p) for key, p in zip(keys.tolist(), [0, 1, 127, 511], strict=True)
    ]


def test_counted_heads_equal_single_coin_tosses() -> None:
    tosses = np.array([0, 1, 5, 63, 64, 65, 200, 0])
    keys = instance_keys(1, 0, np.arange(8), np.zeros(8, dtype=np.int64))
    expected = []
    for key, number in zip(keys.tolist(), tosses.tolist(), strict=True):
        coin = coins(key)
        expected.append(sum(coin("A") for _ in range(number)))
    assert count_heads(keys, "front of A", tosses).tolist() == expected


def test_every_bit_of_the_draws_is_fair_and_neighbors_are_independent() -> None:
    """Neighboring instances, positions and purposes are the inputs that differ least."""
    keys = instance_keys(0, 0, np.repeat(np.arange(100), 10), np.tile(np.arange(10), 100))
    draws = fold(np.repeat(purpose_keys(keys, "mask order"), 100), np.tile(np.arange(100), 1000))
    other = fold(np.repeat(purpose_keys(keys, "mask way"), 100), np.tile(np.arange(100), 1000))
    five_sigma = 5 * 0.5 * np.sqrt(len(draws))
    for bits in (draws, draws ^ other, draws[1:] ^ draws[:-1], draws[100:] ^ draws[:-100]):
        for bit in range(64):
            ones = int(((bits >> np.uint64(bit)) & np.uint64(1)).sum())
            assert abs(ones - len(bits) / 2) < five_sigma, f"bit {bit}"


@pytest.mark.parametrize("position", [0, 17, 126])
def test_draws_are_spread_evenly(position: int) -> None:
    keys = instance_keys(9, 1, np.arange(64_000), np.zeros(64_000, dtype=np.int64))
    draws = fold(purpose_keys(keys, "mask piece"), np.full(64_000, position))
    counts = np.bincount((draws >> np.uint64(58)).astype(np.int64), minlength=64)
    # Chi-square with 63 degrees of freedom: mean 63, standard deviation 11.2.
    assert ((counts - 1000) ** 2 / 1000).sum() < 63 + 5 * 11.2


def test_the_finalizer_is_one_to_one() -> None:
    assert len(np.unique(mix(np.arange(100_000, dtype=np.uint64)))) == 100_000
