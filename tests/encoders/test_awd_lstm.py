"""AWD-LSTM: packed = one by one, parts = whole, dropout as a function of (seed, step, row), truncated gradients."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.encoders.awd_lstm import AwdLstmConfig, AwdLstmModel
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import RowNoise

LENGTHS = (5, 9, 2)
DIRECTIONS = pytest.mark.parametrize("direction", ["forward", "backward"])


def config(**changes):
    return AwdLstmConfig(**{"vocab_size": 50, "hidden_size": 8, "intermediate_size": 12, **changes})


def model(**changes) -> AwdLstmModel:
    return new_encoder(config(**changes), seed=3).double()


def batch(lengths=LENGTHS, row_ids=None, seed=0) -> Batch:
    ids = np.random.default_rng(seed).integers(0, 50, sum(lengths))
    return Batch.from_flat(ids, np.zeros_like(ids), lengths, row_ids)


def row(whole: Batch, number: int) -> Batch:
    ids = whole.token_ids.split(whole.lengths)[number].numpy()
    return Batch.from_flat(ids, np.zeros_like(ids), [len(ids)], [whole.row_ids[number]])


def part(whole: Batch, start: int, stop: int) -> Batch:
    ids = torch.stack([ids[start:stop] for ids in whole.token_ids.split(whole.lengths)]).flatten().numpy()
    return Batch.from_flat(ids, np.zeros_like(ids), [stop - start] * whole.num_rows)


def test_the_hidden_states_are_those_of_three_layers_of_torch():
    result, words = model(), batch()
    states = F.embedding(words.token_ids, result.word_table).split(LENGTHS)
    for layer, (inputs, cells) in zip(result.layers, ((8, 12), (12, 12), (12, 8)), strict=True):
        theirs = nn.LSTM(inputs, cells).double()
        theirs.load_state_dict(layer.state_dict())
        states = [theirs(state)[0] for state in states]
    torch.testing.assert_close(result(words), torch.cat(states))


@DIRECTIONS
@pytest.mark.parametrize("dropped", [False, True])
def test_packed_rows_equal_rows_one_by_one(direction, dropped):
    result, words = model(direction=direction), batch(row_ids=(4, 0, 7))

    def read(batch: Batch) -> torch.Tensor:
        return result(batch, noise=RowNoise(1, 2, batch.row_ids) if dropped else None)

    whole = read(words)
    for number, states in enumerate(whole.split(LENGTHS)):
        torch.testing.assert_close(read(row(words, number)), states)
    assert dropped == bool((whole == 0).any())


@DIRECTIONS
def test_parts_with_a_memory_equal_the_whole(direction):
    result, words = model(direction=direction), batch((6, 6, 6))
    memory, parts = Memory(), {}
    spans = [(0, 1), (1, 4), (4, 6)]
    for span in spans if direction == "forward" else reversed(spans):
        parts[span] = result(part(words, *span), memory=memory).view(3, -1, 8)
    assert memory.lengths == (6, 6, 6)
    torch.testing.assert_close(torch.cat([parts[span] for span in spans], dim=1).flatten(0, 1), result(words))


def test_a_backward_model_is_the_forward_model_on_reversed_rows():
    forward, backward, words = model(), model(direction="backward"), batch((6,))
    mirrored = Batch.from_flat(words.token_ids.numpy()[::-1], np.zeros(6, np.int64), (6,))
    torch.testing.assert_close(backward(words), forward(mirrored).flip(0))
    assert backward.read_of_rows(words).positions.tolist() == [0]
    assert forward.read_of_rows(words).positions.tolist() == [5]


def test_variational_masks_are_one_per_sequence_and_differ_between_sequences_and_steps():
    none = {f"{name}_dropout_prob": 0.0 for name in ("input", "hidden", "embedding", "weight")}
    result, words = model(output_dropout_prob=0.5, **none), batch((6, 6))

    def kept(step: int) -> torch.Tensor:
        return (result(words, noise=RowNoise(1, step, words.row_ids)) != 0).view(2, 6, 8)

    first = kept(0)
    assert (first == first[:, :1]).all()
    assert not (first[0] == first[1]).all()
    assert not (first == kept(1)).all()
    assert (first == kept(0)).all()


def test_dropped_word_types_are_dropped_at_each_of_their_places():
    none = {f"{name}_dropout_prob": 0.0 for name in ("input", "hidden", "output", "weight")}
    result, ids = model(embedding_dropout_prob=0.5, **none), np.tile(np.arange(20), 3)
    words, trace = Batch.from_flat(ids, np.zeros_like(ids), (60,)), Trace()
    result(words, noise=RowNoise(1, 2, (0,)), trace=trace)
    places = trace.hidden_states[0].view(3, 20, 8)
    gone = (places == 0).all(dim=2)
    assert (gone == gone[:1]).all()
    assert 0 < gone[0].sum() < 20
    table = result.word_table[:20]
    torch.testing.assert_close(places[0][~gone[0]], 2 * table[~gone[0]])


def test_the_mask_of_the_hidden_weights_belongs_to_the_step_and_holds_for_a_whole_sequence():
    none = {f"{name}_dropout_prob": 0.0 for name in ("input", "hidden", "output", "embedding")}
    result, words = model(weight_dropout_prob=0.5, **none), batch((8,))
    mask = RowNoise(1, 2, (9,)).keep_in_step(0.5, "weights of layer 1", 48 * 12, torch.float64)
    assert 0.4 < mask.mean() < 0.6
    expected = model(**none, weight_dropout_prob=0.0)
    with torch.no_grad():
        for number, layer in enumerate(expected.layers):
            shape = layer.weight_hh_l0
            kept = RowNoise(1, 2, (0,)).keep_in_step(0.5, f"weights of layer {number}", shape.numel(), shape.dtype)
            shape.mul_(kept.view_as(shape) * 2)
    torch.testing.assert_close(result(words, noise=RowNoise(1, 2, words.row_ids)), expected(words))
    other = result(words, noise=RowNoise(1, 3, words.row_ids))
    assert not torch.allclose(other, expected(words))


def test_positions_that_are_read_are_those_of_the_whole():
    result, words = model(), batch()
    read = Read.at(words, np.array([0, 4, 6, 15]))
    trace = Trace()
    torch.testing.assert_close(result(words, read=read, trace=trace), result(words)[read.positions])
    assert [tuple(state.shape) for state in trace.hidden_states] == [(16, 8), (16, 12), (16, 12), (4, 8)]


@DIRECTIONS
def test_gradients_flow_through_the_last_tokens_that_are_read_and_values_are_those_of_the_whole(direction):
    whole, short = model(direction=direction), model(direction=direction)
    short.gradient_tokens = 4
    words = batch((9, 3, 6))
    noise = (lambda: RowNoise(1, 2, words.row_ids)) if direction == "forward" else (lambda: None)
    expected = whole(words, noise=noise())
    got = short(words, noise=noise())
    torch.testing.assert_close(got, expected)
    early = [*range(5), 12, 13] if direction == "forward" else [*range(4, 9), 16, 17]
    assert not torch.autograd.grad(got[early].sum(), [short.word_table], allow_unused=True, retain_graph=True)[0].any()
    (reached,) = torch.autograd.grad(got.sum(), [short.word_table])
    late = sorted(set(range(18)) - set(early))
    used, only = set(words.token_ids[late].tolist()), set(np.flatnonzero(reached.abs().sum(1)).tolist())
    assert only <= used
    with torch.no_grad():
        torch.testing.assert_close(short(words), whole(words))


def test_lower_encoders_stop_at_their_layer():
    result, words = model(), batch()
    trace = Trace()
    result(words, trace=trace)
    for depth in range(4):
        torch.testing.assert_close(result.lower(depth)(words), trace.hidden_states[depth])
    assert result.widths == (8, 12, 12, 8)


def test_the_base_size_has_the_layers_of_the_paper():
    base = AwdLstmConfig.named("base")
    assert (base.hidden_size, base.intermediate_size, base.num_hidden_layers) == (400, 1150, 3)
    assert base.num_parameters(pooler=False) - base.vocab_size * 400 == 20_211_600
    with torch.device("meta"):
        built = AwdLstmModel(base, seed=None)
    assert sum(parameter.numel() for parameter in built.parameters()) == base.num_parameters()


def test_an_unknown_direction_is_refused():
    with pytest.raises(ConfigError, match="direction"):
        config(direction="sideways")
