"""ELMo as an encoder: against an oracle with a loop for everything, and what each direction sees."""

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.encoders.elmo import ElmoConfig, ElmoModel
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import RowNoise
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from oracles.elmo_oracle import hidden_states

VOCABULARY = Vocabulary([*SPECIAL_PIECES, *"the stick to let hang out ##ing ##s camera".split()])
ROWS = ([2, 5, 6, 7, 3], [2, 8, 3], [2, 10, 9, 11, 6, 5, 3], [2, 6, 3])
SHAPE = {"vocab_size": len(VOCABULARY), "hidden_size": 8, "intermediate_size": 6, "num_filters": 64}


def model(**changes: object) -> ElmoModel:
    """Clips that are reached, and all parameters at random."""
    config = ElmoConfig(**{**SHAPE, "cell_clip": 0.4, "projection_clip": 0.3, **changes})
    encoder = ElmoModel(config, seed=0).double()
    drawn = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn) * 0.3)
    encoder.read_vocabulary(VOCABULARY)
    return encoder.eval()


def batch(*rows: list[int]) -> Batch:
    return Batch.from_rows(rows)


@torch.no_grad()
def layers(encoder: ElmoModel, *rows: list[int]) -> list[torch.Tensor]:
    trace = Trace()
    encoder(batch(*rows), trace=trace)
    return trace.hidden_states


def test_all_layers_equal_those_of_the_oracle_row_by_row():
    encoder = model()
    weights = {name: parameter.detach().numpy() for name, parameter in encoder.named_parameters()}
    result = layers(encoder, *ROWS)
    expected = [
        hidden_states([VOCABULARY.pieces[id] for id in row], weights, layers=2, cell_clip=0.4, projection_clip=0.3)
        for row in ROWS
    ]
    assert len(result) == 3
    for number, states in enumerate(result):
        whole = np.concatenate([row[number] for row in expected])
        np.testing.assert_allclose(states.numpy(), whole, atol=1e-12)
    assert np.abs(np.concatenate([row[1] for row in expected])).max() == 0.3, "the clip is reached"


def test_the_lowest_layer_is_the_vector_of_the_piece_twice_and_free_of_context():
    encoder = model()
    lowest, first, second = layers(encoder, *ROWS)
    assert torch.equal(lowest[:, :4], lowest[:, 4:])
    torch.testing.assert_close(lowest, encoder.word_table[np.concatenate(ROWS)])
    stick = [2, 12]  # where the piece occurs, in two rows
    assert torch.equal(*lowest[stick])
    assert (first[stick[0]] - first[stick[1]]).abs().max() > 1e-3
    assert (second[stick[0]] - second[stick[1]]).abs().max() > 1e-3


@pytest.mark.parametrize("layer", [1, 2])
def test_the_forward_half_sees_only_the_left_and_the_backward_half_only_the_right(layer):
    encoder = model()
    before, after = (layers(encoder, row)[layer] for row in ([2, 5, 6, 7, 3], [2, 5, 9, 7, 3]))
    changed = (before - after).abs() > 1e-9
    assert changed[:, :4].any(1).tolist() == [False, False, True, True, True]
    assert changed[:, 4:].any(1).tolist() == [True, True, True, False, False]


def test_a_row_is_read_where_each_half_has_seen_all_of_it():
    encoder = model()
    rows = batch(*ROWS)
    with torch.no_grad():
        whole = encoder(rows)
        result = encoder(rows, read=encoder.read_of_rows(rows))
    ends = np.cumsum(rows.lengths)
    expected = torch.cat([whole[ends - 1, :4], whole[ends - rows.lengths, 4:]], dim=1)
    assert torch.equal(result, expected)
    assert torch.equal(encoder.lower(1)(rows), layers(encoder, *ROWS)[1])


def test_the_forward_half_in_parts_equals_that_at_once():
    encoder, memory = model(), Memory()
    with torch.no_grad():
        whole = encoder(batch([2, 5, 6, 7, 3], [2, 8, 9, 6, 3]))
        first = encoder(batch([2, 5], [2, 8]), memory=memory)
        second = encoder(batch([6, 7, 3], [9, 6, 3]), memory=memory)
    joined = torch.cat([first[:2], second[:3], first[2:], second[3:]])
    torch.testing.assert_close(joined[:, :4], whole[:, :4])
    assert memory.lengths == (5, 5)
    assert not joined[:, 4:].any(), "the other half is not read"


def test_the_backward_half_in_parts_from_right_to_left_equals_that_at_once():
    encoder, memory, trace = model(), Memory(backward=True), Trace()
    with torch.no_grad():
        whole = layers(encoder, [2, 5, 6, 7, 3], [2, 8, 9, 6, 3])
        encoder(batch([7, 3], [6, 3]), memory=memory)
        memory = memory.of_rows([0, 1])
        encoder(batch([2, 5, 6], [2, 8, 9]), memory=memory, trace=trace)
    for state, expected in zip(trace.hidden_states, whole, strict=True):
        torch.testing.assert_close(state[:, 4:], expected[[0, 1, 2, 5, 6, 7], 4:])
        assert not state[:, :4].any()
    assert memory.lengths == (5, 5)
    assert memory.backward


def test_dropout_is_a_function_of_the_row():
    encoder = model(hidden_dropout_prob=0.3)
    rows = batch(*ROWS)
    together = encoder(rows, noise=RowNoise(1, 2, rows.row_ids)).split(rows.lengths)
    for number, row in enumerate(ROWS):
        alone = encoder(batch(row), noise=RowNoise(1, 2, [number]))
        torch.testing.assert_close(alone, together[number])
    assert (together[0] - encoder(batch(ROWS[0]))).abs().max() > 1e-3


def test_the_released_shape_has_the_published_number_of_parameters():
    config = ElmoConfig.named("base", vocab_size=len(VOCABULARY))
    second_biases, row_of_padding = 4 * 4 * 4096, 16
    assert config.num_parameters(pooler=False) - second_biases + row_of_padding == 93_600_864


def test_parameters_are_counted_as_they_are_built():
    config = ElmoConfig(**SHAPE)
    built = sum(parameter.numel() for parameter in ElmoModel(config).parameters())
    assert config.num_parameters() == built


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 9}, "an even hidden_size"),
        ({"num_filters": 100}, "num_filters divisible by 64"),
        ({"num_filters": 0}, "num_filters divisible by 64"),
        ({"cell_clip": -1.0}, "cell_clip must be at least 0"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        ElmoConfig(**{**SHAPE, **changes})
