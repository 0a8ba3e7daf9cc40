"""The memory network against its formulas: position weights, adjacent tying, ages, batches, the linear phase."""

import numpy as np
import pytest
import torch

from bertsmith.models.encoders.memory_network import (
    MemoryNetwork,
    MemoryNetworkConfig,
    StoryBatch,
    position_weights,
)
from bertsmith.models.parts.batch import Batch

WORDS, PHRASES, WIDTH, HOPS = 12, 1, 6, 3
Story = tuple[list[list[int]], list[int]]  # words of each fact, words of the question


def network(**changes: object) -> MemoryNetwork:
    shape = {"vocab_size": WORDS, "phrases": PHRASES, "hidden_size": WIDTH, "num_hidden_layers": HOPS}
    config = MemoryNetworkConfig(**{**shape, "max_position_embeddings": 7, **changes})
    return MemoryNetwork(config, [3, WORDS, 8], seed=4).double()


def batch_of(stories: list[Story]) -> StoryBatch:
    counts = [len(facts) for facts, _ in stories]
    ages = np.concatenate([np.arange(count)[::-1] for count in counts])
    return StoryBatch(
        facts=Batch.from_rows([np.array(fact) for facts, _ in stories for fact in facts]),
        counts=tuple(counts),
        ages=torch.from_numpy(ages),
        questions=Batch.from_rows([np.array(question) for _, question in stories]),
    )


def stories(count: int, seed: int = 0) -> list[Story]:
    source = np.random.default_rng(seed)

    def words() -> list[int]:
        return source.integers(0, WORDS, source.integers(1, 5)).tolist()

    return [([words() for _ in range(source.integers(1, 7))], words()) for _ in range(count)]


def test_the_position_weights_are_those_of_the_paper_by_hand() -> None:
    # J = 3 words and d = 2: l_kj = (1 - j/3) - (k/2)(1 - 2j/3), with j and k counted from 1
    expected = [
        [2 / 3 - 1 / 2 * (1 / 3), 2 / 3 - 1 / 3],
        [1 / 3 - 1 / 2 * (-1 / 3), 1 / 3 + 1 / 3],
        [0 - 1 / 2 * (-1), 0 + 1],
    ]
    result = position_weights(torch.arange(3), torch.full((3,), 3), 2)
    torch.testing.assert_close(result, torch.tensor(expected))


@pytest.mark.parametrize("linear", [False, True])
def test_the_scores_follow_from_the_tables_with_adjacent_tying(linear: bool) -> None:
    """A of a hop is C of the hop before, B is A of the first hop, and the answers are rows of C of the last."""
    model = network()
    words = [table.detach().numpy() for table in model.words]
    ages = [table.detach().numpy() for table in model.ages]

    def vector(table: np.ndarray, ids: list[int]) -> np.ndarray:
        total = np.zeros(WIDTH)
        for j, word in enumerate(ids, start=1):
            for k in range(1, WIDTH + 1):
                share = j / len(ids)
                total[k - 1] += ((1 - share) - k / WIDTH * (1 - 2 * share)) * table[word, k - 1]
        return total

    ((facts, question),) = asked = stories(1, seed=2)
    state = vector(words[0], question)  # B = A of hop 1
    looked = []
    for hop in range(HOPS):
        a, c = words[hop], words[hop + 1]
        t_a, t_c = ages[hop], ages[hop + 1]
        age = [len(facts) - 1 - index for index in range(len(facts))]
        memory = np.array([vector(a, fact) + t_a[age[index]] for index, fact in enumerate(facts)])
        output = np.array([vector(c, fact) + t_c[age[index]] for index, fact in enumerate(facts)])
        scores = memory @ state
        looked.append(np.exp(scores) / np.exp(scores).sum())
        state = state + (scores if linear else looked[-1]) @ output
    expected = words[HOPS][[3, WORDS, 8]] @ state

    with torch.no_grad():
        result = model(batch_of(asked), linear=linear)
    np.testing.assert_allclose(result.answers[0].numpy(), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.attention([len(facts)])[0], looked, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("changes", [{}, {"position_weights": False, "temporal": False}])
def test_a_story_has_the_same_scores_alone_and_in_any_batch(changes: dict[str, object], linear: bool) -> None:
    model, asked = network(**changes), stories(9)
    with torch.no_grad():
        together = model(batch_of(asked), linear=linear)
        attention = together.attention([len(facts) for facts, _ in asked])
        for row, story in enumerate(asked):
            alone = model(batch_of([story]), linear=linear)
            torch.testing.assert_close(alone.answers[0], together.answers[row], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(alone.attention([len(story[0])])[0], attention[row], rtol=1e-9)


def test_without_ages_and_positions_order_does_not_matter_and_with_them_it_does() -> None:
    facts, question = [[1, 2, 3], [4, 5]], [6, 7]
    for changes, same in (({"position_weights": False, "temporal": False}, True), ({}, False)):
        model = network(**changes)
        with torch.no_grad():
            first = model(batch_of([(facts, question)])).answers
            second = model(batch_of([([facts[1], facts[0][::-1]], question[::-1])])).answers
        assert torch.allclose(first, second, rtol=1e-12) == same


def test_the_number_of_parameters_is_that_of_the_configuration() -> None:
    for changes in ({}, {"temporal": False}):
        model = network(**changes)
        assert sum(parameter.numel() for parameter in model.parameters()) == model.config.num_parameters()
        assert MemoryNetworkConfig.from_dict(model.config.to_dict()) == model.config
