"""The encoder against transformers, against itself with a pruned last layer, and against the paper."""

import dataclasses

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.layers import activation, sinusoidal_positions
from bertsmith.models.parts.noise import RowNoise
from bertsmith.models.parts.transformer import TransformerEncoder
from model.examples import VOCABULARY, random_batch, shake, small_config
from oracles.padded_bert import pad, padded_peer, peer_name

LENGTHS = [5, 7, 7, 1, 12, 12, 12, 3]


def masked_positions(batch: Batch) -> np.ndarray:
    """Two masked positions in each sequence that is long enough."""
    ends = np.cumsum(batch.lengths)
    starts = ends - batch.lengths
    return np.array(
        [s + k for s, n in zip(starts, batch.lengths, strict=True) for k in (1, n - 2) if 0 < k < n and n > 3]
    )


@pytest.mark.parametrize("activation_name", ["gelu", "gelu_new"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_packed_equals_padded_in_outputs_losses_and_every_gradient(dtype, tolerance, activation_name):
    """The first of the five equalities: with a pruned last layer, against transformers."""
    model = EncoderForPreTraining(new_encoder(small_config(hidden_act=activation_name))).to(dtype)
    shake(model)
    peer = padded_peer(model)
    batch = random_batch(LENGTHS)
    token_ids, segment_ids, mask = pad(batch)
    positions = masked_positions(batch)
    starts = batch.first_positions.numpy()
    rng = np.random.default_rng(1)
    originals = torch.from_numpy(rng.integers(0, VOCABULARY, len(positions)))
    labels = torch.from_numpy(rng.integers(0, 2, batch.num_rows))

    read = np.unique(np.concatenate([positions, starts]))
    output = model(
        batch,
        read=Read.at(batch, read),
        masked=torch.from_numpy(np.searchsorted(read, positions)),
        first=torch.from_numpy(np.searchsorted(read, starts)),
    )
    loss = torch.nn.functional.cross_entropy(output.mlm_logits, originals)
    loss = loss + torch.nn.functional.cross_entropy(output.nsp_logits, labels)
    loss.backward()

    targets = torch.full(token_ids.shape, -100)
    flat_targets = torch.full((batch.num_tokens,), -100)
    flat_targets[positions] = originals
    targets[mask.bool()] = flat_targets
    expected = peer(
        input_ids=token_ids,
        token_type_ids=segment_ids,
        attention_mask=mask,
        labels=targets,
        next_sentence_label=labels,
        output_hidden_states=True,
    )
    expected.loss.backward()

    assert torch.allclose(loss, expected.loss, atol=tolerance, rtol=0)
    assert torch.allclose(output.nsp_logits, expected.seq_relationship_logits, atol=tolerance, rtol=0)
    whole = expected.prediction_logits[mask.bool()][positions]
    assert torch.allclose(output.mlm_logits, whole, atol=tolerance, rtol=0)
    peer_gradients = {name: value.grad for name, value in peer.named_parameters()}
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, peer_gradients[peer_name(name)], atol=tolerance, rtol=0), name

    trace = Trace(with_attentions=True)
    model.encoder(batch, trace=trace)
    assert len(trace.hidden_states) == len(expected.hidden_states) == 3
    for ours, theirs in zip(trace.hidden_states, expected.hidden_states, strict=True):
        assert torch.allclose(ours, theirs[mask.bool()], atol=tolerance, rtol=0)


def test_attentions_equal_those_of_the_padded_reference():
    """The attention weights of a trace are those of the reference."""
    model = EncoderForPreTraining(new_encoder(small_config()))
    shake(model)
    peer = padded_peer(model)
    batch = random_batch(LENGTHS)
    token_ids, segment_ids, mask = pad(batch)
    trace = Trace(with_attentions=True)
    model.encoder(batch, trace=trace)
    expected = peer.bert(token_ids, attention_mask=mask, token_type_ids=segment_ids, output_attentions=True).attentions
    for ours, theirs in zip(trace.attentions, expected, strict=True):
        for row, length in enumerate(batch.lengths):
            assert torch.allclose(ours[row], theirs[row, :, :length, :length], atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_a_pruned_last_layer_gives_the_same_as_the_whole_layer(causal):
    model = TransformerEncoder(small_config(is_causal=causal)).double()
    shake(model)
    batch = random_batch(LENGTHS)
    positions = np.unique(np.concatenate([batch.first_positions.numpy(), masked_positions(batch)]))
    pruned = model(batch, read=Read.at(batch, positions))
    assert torch.allclose(pruned, model(batch)[positions], atol=1e-12)
    assert torch.allclose(model(batch, read=Read.first(batch)), model(batch)[batch.first_positions], atol=1e-12)


def test_a_sequence_gives_the_same_alone_and_in_a_batch():
    model = TransformerEncoder(small_config()).double()
    shake(model)
    batch = random_batch(LENGTHS)
    together = model(batch).split(batch.lengths)
    pieces, segments = batch.token_ids.split(batch.lengths), batch.segment_ids.split(batch.lengths)
    for row, length in enumerate(batch.lengths):
        alone = model(Batch.from_flat(pieces[row].numpy(), segments[row].numpy(), [length]))
        assert torch.allclose(alone, together[row], atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_every_layer_output_depends_on_every_token_or_in_a_causal_model_on_those_before_it(causal):
    """One token after the other is changed; another sequence of the batch never changes."""
    model = TransformerEncoder(small_config(is_causal=causal)).double()
    shake(model)
    batch = random_batch([9, 4])

    def layer_outputs(token_ids: torch.Tensor) -> torch.Tensor:
        trace = Trace()
        model(dataclasses.replace(batch, token_ids=token_ids), trace=trace)
        return torch.stack(trace.hidden_states)  # [L + 1, T, D]

    before = layer_outputs(batch.token_ids)
    positions = torch.arange(9)
    for changed in range(9):
        token_ids = batch.token_ids.clone()
        token_ids[changed] = (token_ids[changed] + 1) % VOCABULARY
        moved = (layer_outputs(token_ids) - before).abs().amax(dim=-1)  # [L + 1, T]
        assert (moved[0] > 0).nonzero().flatten().tolist() == [changed], "embeddings see one token"
        seen = positions >= changed if causal else torch.ones(9, dtype=torch.bool)
        for layer in moved[1:]:
            assert (layer[:9][seen] > 1e-6).all(), (changed, layer)
            assert (layer[:9][~seen] == 0).all(), (changed, layer)
            assert (layer[9:] < 1e-12).all(), (changed, layer)


def test_without_positions_the_encoder_is_permutation_equivariant():
    """Shuffled words give shuffled outputs; with learned positions they do not."""
    order = torch.tensor([4, 0, 3, 1, 2, 5])
    for positions, equal in (("none", True), ("absolute", False), ("sinusoidal", False)):
        model = TransformerEncoder(small_config(position_embedding_type=positions)).double()
        shake(model)
        pieces = np.array([5, 9, 13, 2, 7, 40])
        batch = Batch.from_flat(pieces, np.zeros(6, dtype=np.int64), [6])
        shuffled = Batch.from_flat(pieces[order.numpy()], np.zeros(6, dtype=np.int64), [6])
        assert torch.allclose(model(batch)[order], model(shuffled), atol=1e-10) is equal, positions


def test_sinusoidal_positions_follow_the_formulas():
    table = sinusoidal_positions(30, 8)
    for position in (0, 1, 29):
        for pair in range(4):
            angle = position / 10000 ** (2 * pair / 8)
            assert table[position, 2 * pair].item() == pytest.approx(np.sin(angle), abs=1e-6)
            assert table[position, 2 * pair + 1].item() == pytest.approx(np.cos(angle), abs=1e-6)


def test_gelu_is_the_mean_of_a_random_zero_one_map():
    """X * Phi(x) is the expected value when x is kept with probability Phi(x)."""
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    normal = torch.randn((200_000, 1), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kept = (normal <= x).double().mean(0) * x
    assert torch.allclose(activation(x, "gelu"), kept, atol=3 * 3 * 0.5 / 200_000**0.5)


def test_the_two_forms_of_gelu_differ_by_at_most_473_millionths():
    x = torch.linspace(-8, 8, 1_000_001, dtype=torch.float64)
    difference = (activation(x, "gelu") - activation(x, "gelu_new")).abs().max().item()
    assert difference == pytest.approx(4.73e-4, abs=5e-7)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
        ("base", 109_482_240),
        ("large", 335_141_888),
    ],
)
def test_named_sizes_have_the_published_parameter_counts(name, parameters):
    """Counted by the formula and from the modules themselves."""
    config = BertConfig.named(name)
    assert config.num_parameters() == parameters
    with torch.device("meta"):
        model = EncoderForPreTraining(new_encoder(config), seed=None)
    assert sum(p.numel() for p in model.encoder.parameters()) == parameters
    assert sum(p.numel() for p in model.parameters()) == config.num_parameters(heads=True)


def test_hidden_sizes_are_not_feed_forward_widths():
    """768 and 1024 are widths of the hidden states; the feed-forward network is four times as wide."""
    assert [BertConfig.named(name).intermediate_size for name in ("base", "large")] == [4 * 768, 4 * 1024]


def test_initial_parameters_follow_the_paper_and_are_functions_of_the_seed():
    model = EncoderForPreTraining(new_encoder(small_config(hidden_size=64, vocab_size=2000)), seed=5)
    table = model.encoder.embeddings.word.weight
    assert table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.8796 * 0.02, rel=0.02)
    assert model.mlm.bias.count_nonzero() == 0
    assert torch.equal(model.mlm.norm.weight, torch.ones(64))
    assert model.encoder.layers[0].query.bias.count_nonzero() == 0
    again = EncoderForPreTraining(new_encoder(model.config), seed=5)
    other = EncoderForPreTraining(new_encoder(model.config), seed=6)
    alone = TransformerEncoder(model.config, seed=5)
    assert torch.equal(table, again.encoder.embeddings.word.weight)
    assert torch.equal(table, alone.embeddings.word.weight)
    assert not torch.equal(table, other.encoder.embeddings.word.weight)


def test_dropout_noise_of_a_row_does_not_depend_on_other_rows():
    """The noise is a function of (seed, step, row), so a step may be split anywhere."""
    model = TransformerEncoder(small_config()).double()
    batch = random_batch(LENGTHS)
    read = Read.first(batch)
    together = model(batch, read=read, noise=RowNoise(1, 2, batch.row_ids))
    pieces, segments = batch.token_ids.split(batch.lengths), batch.segment_ids.split(batch.lengths)
    for row, length in enumerate(batch.lengths):
        alone = Batch.from_flat(pieces[row].numpy(), segments[row].numpy(), [length], row_ids=[row])
        output = model(alone, read=Read.first(alone), noise=RowNoise(1, 2, alone.row_ids))
        assert torch.allclose(output[0], together[row], atol=1e-12)
    assert not torch.equal(together, model(batch, read=read, noise=RowNoise(1, 3, batch.row_ids)))


def test_noise_drops_the_requested_fraction():
    keep = RowNoise(0, 0, range(4)).keep(0.1, [250_001, 3, 249_996, 0], torch.float32)
    assert len(keep) == 500_000
    assert keep.unique().tolist() == [0.0, 1.0]
    assert keep.mean().item() == pytest.approx(0.9, abs=5 * (0.09 / 500_000) ** 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 5}, "divisible"),
        ({"hidden_act": "gleu"}, "did you mean 'gelu'"),
        ({"position_embedding_type": "rotary"}, "position_embedding_type"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps"),
        ({"pad_token_id": 99}, "pad_token_id"),
        ({"model_type": "gpt2"}, "model_type"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_an_invalid_configuration_is_refused_with_a_one_line_error(changes, words):
    with pytest.raises(ConfigError, match=words):
        small_config(**changes)


def test_an_unknown_size_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'large'"):
        BertConfig.named("larg")


def test_in_training_the_gradients_of_bf16_are_as_close_to_fp32_as_those_of_autocast():
    """Sums and norms of the residual stream are fp32; in evaluation mode they are bf16."""
    model = TransformerEncoder(
        small_config(num_hidden_layers=6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )
    shake(model)
    batch = random_batch([24] * 16)
    goal = torch.randn(batch.num_tokens, model.width, generator=torch.Generator().manual_seed(0))

    def gradient(dtype: torch.dtype, *, training: bool = True, autocast: bool = False) -> torch.Tensor:
        model.train(training).zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            hidden = model(batch, dtype=dtype)
        assert hidden.dtype == dtype
        low = hidden.to(torch.bfloat16) if autocast else hidden  # heads read what products run in
        (low.float() * goal).mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradient(torch.float32)
    kept, rounded = gradient(torch.bfloat16), gradient(torch.bfloat16, training=False)
    error, rounded_error = (float((gradient - exact).norm() / exact.norm()) for gradient in (kept, rounded))
    theirs = float((gradient(torch.float32, autocast=True) - exact).norm() / exact.norm())
    assert 0 < error < 1.1 * theirs
    assert error < 0.75 * rounded_error


def test_the_dtype_of_training_in_fp32_and_fp64_is_unchanged():
    model, batch = TransformerEncoder(small_config()), random_batch(LENGTHS)
    assert torch.equal(model.train()(batch), model.eval()(batch))
    assert model.double().train()(batch).dtype == torch.float64
