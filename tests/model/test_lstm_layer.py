"""The LSTM layer on a flat batch against torch's own, row by row."""

import pytest
import torch
from torch import nn

from bertsmith.models.parts.layers import initialize
from bertsmith.models.parts.lstm_layer import LstmLayer

LENGTHS = (3, 7, 1, 7, 4)
K, C = 5, 6


def _filled(layer, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=drawn) * 0.4)
    return layer.double()


def _inputs():
    return torch.randn(sum(LENGTHS), K, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def _state(outputs):
    drawn = torch.Generator().manual_seed(2)
    return tuple(torch.randn(len(LENGTHS), width, generator=drawn, dtype=torch.float64) for width in (outputs, C))


def _torchs(layer):
    theirs = nn.LSTM(K, C, proj_size=layer.projection or 0).double()
    theirs.load_state_dict(layer.state_dict())
    return theirs


@pytest.mark.parametrize("projection", [None, 4])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("carried", [False, True])
def test_rows_of_any_order_equal_the_lstm_of_torch_one_by_one(projection, backward, carried):
    layer = _filled(LstmLayer(K, C, projection=projection))
    theirs, x = _torchs(layer), _inputs()
    state = _state(layer.outputs) if carried else None
    result, (hidden, cells) = layer(x, LENGTHS, state, backward=backward)
    for row, (row_input, got) in enumerate(zip(x.split(LENGTHS), result.split(LENGTHS), strict=True)):
        first = None if state is None else tuple(part[row : row + 1] for part in state)
        expected, (last, last_cells) = theirs(row_input.flip(0) if backward else row_input, first)
        torch.testing.assert_close(got, expected.flip(0) if backward else expected)
        torch.testing.assert_close(hidden[row], last[0])
        torch.testing.assert_close(cells[row], last_cells[0])


def test_gradients_equal_those_of_the_rows_one_by_one():
    layer = _filled(LstmLayer(K, C, projection=4))
    theirs, x = _torchs(layer), _inputs()
    layer(x, LENGTHS)[0].square().sum().backward()
    for row_input in x.split(LENGTHS):
        theirs(row_input)[0].square().sum().backward()
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(layer.get_parameter(name).grad, parameter.grad)


@pytest.mark.parametrize("projection", [None, 4])
@pytest.mark.parametrize("backward", [False, True])
def test_clips_out_of_reach_change_nothing(projection, backward):
    plain = _filled(LstmLayer(K, C, projection=projection))
    clipped = LstmLayer(K, C, projection=projection, cell_clip=1e6, projection_clip=1e6).double()
    clipped.load_state_dict(plain.state_dict())
    x, state = _inputs(), _state(plain.outputs)
    expected, last = plain(x, LENGTHS, state, backward=backward)
    result, clipped_last = clipped(x, LENGTHS, state, backward=backward)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(clipped_last, last)


def test_clips_limit_cells_and_projected_outputs():
    layer = _filled(LstmLayer(K, C, projection=4, cell_clip=0.3, projection_clip=0.05))
    result, (hidden, cells) = layer(_inputs(), LENGTHS)
    assert result.abs().max() == hidden.abs().max() == 0.05
    assert cells.abs().max() == 0.3


def test_another_hidden_matrix_replaces_that_of_the_layer_and_receives_the_gradient():
    layer = _filled(LstmLayer(K, C))
    other = (layer.weight_hh_l0.detach() * 0.5).requires_grad_()
    result, _ = layer(_inputs(), LENGTHS, hidden_weight=other)
    result.sum().backward()
    assert layer.weight_hh_l0.grad is None
    assert other.grad.abs().sum() > 0
    with torch.no_grad():
        layer.weight_hh_l0.mul_(0.5)
    torch.testing.assert_close(layer(_inputs(), LENGTHS)[0], result)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_sequence_in_parts_with_its_state_equals_the_whole(clip):
    layer = _filled(LstmLayer(K, C, cell_clip=clip))
    x = _inputs()[:12]
    whole, last = layer(x, (6, 6))
    rows = x.view(2, 6, K)
    first, state = layer(rows[:, :2].flatten(0, 1), (2, 2))
    second, state = layer(rows[:, 2:].flatten(0, 1), (4, 4), state)
    joined = torch.cat([first.view(2, 2, C), second.view(2, 4, C)], dim=1).flatten(0, 1)
    torch.testing.assert_close(joined, whole)
    torch.testing.assert_close(state, last)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("projection", [None, 4])
def test_tokens_one_by_one_have_the_states_of_the_whole(projection, clip):
    layer = _filled(LstmLayer(K, C, projection=projection, cell_clip=clip))
    x, state = _inputs()[:12], (torch.zeros(2, layer.outputs).double(), torch.zeros(2, C).double())
    whole, last = layer(x, (6, 6))
    for token in range(6):
        state = layer.step(x.view(2, 6, K)[:, token], state, layer.weights(torch.float64))
        torch.testing.assert_close(state[0], whole.view(2, 6, -1)[:, token])
    torch.testing.assert_close(state, last)


def test_half_precision_products_stay_near_those_in_fp32():
    layer = _filled(LstmLayer(K, C)).float()
    exact, _ = layer(_inputs().float(), LENGTHS)
    rough, _ = layer(_inputs().bfloat16(), LENGTHS)
    assert rough.dtype == torch.bfloat16
    assert (rough - exact).abs().max() < 0.05


def test_initial_matrices_keep_the_scale_of_inputs_or_are_those_of_torch_and_biases_are_zero():
    layer = LstmLayer(100, 64)
    initialize(layer, 0.02, seed=0)
    # The normal distribution is truncated at two deviations, which makes it 0.88 times as wide.
    assert layer.weight_ih_l0.std().item() == pytest.approx(0.88 * 100**-0.5, rel=0.02)
    assert layer.weight_hh_l0.std().item() == pytest.approx(0.88 * 64**-0.5 / 3**0.5, rel=0.02)
    assert not layer.bias_ih_l0.any()
    assert not layer.bias_hh_l0.any()
