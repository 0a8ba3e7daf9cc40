"""The hidden states that represent a token: the six rows of the paper, and any others by number."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.layer_choice import CHOICES, layer_choice
from bertsmith.models.parts.layer_mix import WeightedMix
from model.examples import random_batch, shake, small_config
from oracles.padded_bert import pad, padded_peer

TOKENS, WIDTH = 5, 3


def states(num_layers: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(num_layers)
    return [torch.randn(TOKENS, WIDTH, generator=source) for _ in range(num_layers + 1)]


def looped(name: str, hidden: list[Tensor]) -> Tensor:
    """The vectors of a choice, token by token and number by number."""
    last = len(hidden) - 1
    table = {
        "embeddings": [0],
        "second-to-last": [last - 1],
        "last": [last],
        "sum-last-4": range(last - 3, last + 1),
        "concat-last-4": range(last - 3, last + 1),
        "sum-all": range(1, last + 1),
        "sum-with-embeddings": range(last + 1),
    }
    rows = []
    for token in range(TOKENS):
        vectors = [hidden[layer][token].tolist() for layer in table[name]]
        if name.startswith("sum"):
            rows.append([sum(column) for column in zip(*vectors, strict=True)])
        else:
            rows.append([value for vector in vectors for value in vector])
    return torch.tensor(rows)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("num_layers", [4, 6, 12])
def test_a_choice_equals_a_plain_loop_over_all_hidden_states(name: str, num_layers: int) -> None:
    """The six rows of the table, and the sum that includes the embeddings."""
    choice = layer_choice(name, num_layers)
    mixed = choice.mix(states(num_layers))
    assert mixed.shape == (TOKENS, choice.width(WIDTH))
    torch.testing.assert_close(mixed, looped(name, states(num_layers)))


def test_the_widths_of_the_table_are_those_of_the_paper() -> None:
    widths = {name: layer_choice(name, 12).width(768) for name in CHOICES}
    assert widths.pop("concat-last-4") == 3072
    assert widths == dict.fromkeys(widths, 768)
    assert len(widths) == 6


def test_the_hidden_states_are_those_of_transformers() -> None:
    """Every layer that can be chosen, against the hidden states of transformers."""
    model = EncoderForPreTraining(new_encoder(small_config(num_hidden_layers=4)))
    shake(model)
    batch = random_batch([5, 7, 3])
    trace = Trace()
    model.encoder(batch, trace=trace)
    token_ids, segment_ids, mask = pad(batch)
    peer = padded_peer(model).eval().bert
    expected = peer(token_ids, attention_mask=mask, token_type_ids=segment_ids, output_hidden_states=True).hidden_states
    real = mask.bool()
    theirs = {
        "embeddings": expected[0],
        "second-to-last": expected[-2],
        "last": expected[-1],
        "sum-last-4": expected[1] + expected[2] + expected[3] + expected[4],
        "concat-last-4": torch.cat(expected[1:], dim=-1),
        "sum-all": torch.stack(expected[1:]).sum(0),
        "sum-with-embeddings": torch.stack(expected).sum(0),
        "-1,0": torch.cat([expected[-1], expected[0]], dim=-1),
    }
    for name, wanted in theirs.items():
        mixed = layer_choice(name, 4).mix(trace.hidden_states)
        torch.testing.assert_close(mixed, wanted[real], atol=5e-5, rtol=1e-4, msg=name)


@given(st.integers(1, 12).flatmap(lambda top: st.tuples(st.just(top), st.permutations(range(-top - 1, 0)))))
def test_numbers_from_either_end_select_the_same_layers_in_the_given_order(case: tuple[int, list[int]]) -> None:
    top, numbers = case
    from_end = layer_choice(",".join(map(str, numbers)), top)
    from_start = layer_choice(", ".join(str(number + top + 1) for number in numbers), top)
    assert from_end.layers == from_start.layers
    assert from_end.width(WIDTH) == WIDTH * (top + 1)
    hidden = states(top)
    assert torch.equal(from_end.mix(hidden), torch.cat([hidden[number] for number in numbers], dim=1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("concat-last4", "did you mean 'concat-last-4'"),
        ("secondtolast", "did you mean 'second-to-last'"),
        ("", "use one of"),
        ("1,", "or comma-separated layer numbers"),
        ("1.5", "or comma-separated layer numbers"),
        ("3", "layers from -3 to 2, where 0 is the embeddings; found 3"),
        ("-1,-4", "found -4"),
        ("1,-2", "each layer once"),
        ("sum-last-4", "at least 4 layers for 'sum-last-4'; found 2"),
    ],
)
def test_a_choice_that_the_model_does_not_have_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        layer_choice(name, 2)


def test_second_to_last_is_refused_for_one_layer_and_is_the_first_of_two() -> None:
    with pytest.raises(ConfigError, match="at least 2 layers"):
        layer_choice("second-to-last", 1)
    assert layer_choice("second-to-last", 2).layers == (1,)


def test_a_learned_mix_starts_as_the_mean_and_follows_its_formula() -> None:
    """Equation 1 of Peters et al. (2018)."""
    hidden = states(4)
    picked = layer_choice("sum-last-4", 4).pick(hidden)
    mix = WeightedMix(4)
    torch.testing.assert_close(mix(picked), picked.mean(dim=1))
    scores, gamma = np.array([0.5, -1.0, 2.0, 0.0]), 1.7
    with torch.no_grad():
        mix.scores.copy_(torch.from_numpy(scores))
        mix.gamma.fill_(gamma)
    weights = np.exp(scores) / np.exp(scores).sum()
    expected = gamma * sum(weight * state.numpy() for weight, state in zip(weights, hidden[1:], strict=True))
    np.testing.assert_allclose(mix(picked).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mix.shares().detach().numpy(), weights, rtol=1e-6)


def test_a_learned_mix_finds_the_layer_that_holds_the_answer() -> None:
    picked = layer_choice("sum-all", 4).pick(states(4))
    target = 2 * picked[:, 2]
    mix = WeightedMix(4)
    optimizer = torch.optim.Adam(mix.parameters(), lr=0.1)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = (mix(picked) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.01 * losses[0]
    assert mix.shares().argmax() == 2
    assert mix.gamma.item() == pytest.approx(2, abs=0.2)


def test_a_normalized_mix_forgets_the_scale_of_each_hidden_state() -> None:
    hidden = states(2)
    picked, scaled = torch.stack(hidden, 1), torch.stack([hidden[0], 5 * hidden[1] + 3, hidden[2]], 1)
    mix = WeightedMix(3, normalized=True)
    torch.testing.assert_close(mix(scaled), mix(picked), atol=1e-4, rtol=1e-4)
    assert (WeightedMix(3)(scaled) - WeightedMix(3)(picked)).abs().max() > 1


def test_without_layers_every_sum_is_that_of_the_embeddings() -> None:
    only = states(0)
    for name in ("last", "sum-all", "sum-with-embeddings", "embeddings"):
        assert torch.equal(layer_choice(name, 0).mix(only), only[0]), name
    with pytest.raises(ConfigError, match="at least 4 layers"):
        layer_choice("sum-last-4", 0)
