"""The encoder prepared for inference, against the plain encoder."""

import copy

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine import runtime
from bertsmith.base.machine.runtime import Runtime, choose_inference
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.models.products.int8_linear import Int8Linear, quantize_tokens, quantize_weight
from bertsmith.models.products.prepared import PackedLinear, prepare
from model.examples import VOCABULARY, random_batch, shake, small_config
from processors import pretend
from tasks.architecture_samples import ARCHITECTURES, config_of

LENGTHS = [5, 7, 7, 1, 12, 12, 12, 3]
INT8 = Runtime(device="cpu", precision="int8", int8_bits=7)


def wide_model(**changes: object) -> TransformerEncoder:
    model = TransformerEncoder(
        small_config(num_hidden_layers=3, hidden_size=64, intermediate_size=128, **changes)
    ).eval()
    shake(model)
    return model.requires_grad_(False)


def model_of(architecture: str) -> tuple[TransformerEncoder, Batch]:
    """A model, and rows of which one is longer than a window of local attention."""
    config = config_of(architecture)
    sizes = {"vocabulary": config.vocab_size, "num_segments": config.type_vocab_size}
    model = new_encoder(config).eval().requires_grad_(False)
    shake(model)
    return model, random_batch([*LENGTHS, 40], **sizes)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu", "silu"])
def test_a_prepared_bf16_encoder_is_as_close_to_fp32_as_a_plain_one(hidden_act: str) -> None:
    model, batch = wide_model(hidden_act=hidden_act), random_batch(LENGTHS)
    exact = model(batch)
    plain = (model(batch, dtype=torch.bfloat16).float() - exact).abs().max()
    prepared = prepare(copy.deepcopy(model), Runtime(device="cpu", precision="bf16"))
    error = (prepared(batch, dtype=torch.bfloat16).float() - exact).abs().max()
    assert 0 < error < 2 * plain


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu", "silu"])
def test_int8_stays_close_to_fp32(hidden_act: str) -> None:
    model, batch = wide_model(hidden_act=hidden_act), random_batch(LENGTHS)
    exact = model(batch)
    states = prepare(copy.deepcopy(model), INT8)(batch, dtype=INT8.dtype).float()
    assert 0 < float((states - exact).abs().max()) < 0.15
    assert float(torch.cosine_similarity(states, exact).min()) > 0.999


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_int8_of_every_architecture_stays_close_to_fp32(architecture: str) -> None:
    """All positions, or one that represents a row."""
    model, batch = model_of(architecture)
    exact, read = model(batch), model.read_of_rows(batch)
    prepared = prepare(copy.deepcopy(model), INT8)
    for states, expected in (
        (prepared(batch, dtype=INT8.dtype), exact),
        (prepared(batch, read=read, dtype=INT8.dtype), read.pick(exact)),
    ):
        assert 0 < float((states.float() - expected).abs().max()) < 0.3
        assert float(torch.cosine_similarity(states.float(), expected).min()) > 0.99


def test_int8_products_are_exact_for_the_largest_numbers() -> None:
    """A processor without VNNI adds two products in 16 bits; 7-bit weights leave room for that."""
    bits = choose_inference("cpu", "int8").int8_bits
    weight, bias = torch.full((16, 64), 0.5), torch.zeros(16)
    layer = Int8Linear(weight, bias, bits=bits)
    torch.testing.assert_close(layer(torch.full((3, 64), 2.0)), torch.full((3, 16), 64.0), rtol=1e-6, atol=0)


def test_an_int8_token_does_not_depend_on_the_tokens_around_it() -> None:
    layer = Int8Linear(torch.randn(24, 32, generator=torch.Generator().manual_seed(1)), torch.ones(24), bits=7)
    tokens = torch.randn(9, 32, generator=torch.Generator().manual_seed(2))
    tokens[4] *= 1000
    alone = torch.cat([layer(token[None]) for token in tokens])
    torch.testing.assert_close(layer(tokens), alone, rtol=0, atol=0)


def test_the_last_layer_may_be_read_partially() -> None:
    batch = random_batch(LENGTHS)
    for chosen in (INT8, Runtime(device="cpu", precision="bf16")):
        model = prepare(wide_model(), chosen)
        read = Read.first(batch)
        everything = model(batch, dtype=chosen.dtype)[read.positions]
        tolerance = 1e-5 if chosen.dtype == torch.float32 else 0.05
        torch.testing.assert_close(model(batch, read=read, dtype=chosen.dtype), everything, rtol=0, atol=tolerance)


@pytest.mark.parametrize("flags", [{"avx2"}, {"avx2", "avx512_bf16", "avx512_vnni"}])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_prepared_encoder_can_be_traced(flags: set[str], is_causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, *flags)
    chosen, model, batch = choose_inference("cpu", "int8"), wide_model(is_causal=is_causal), random_batch(LENGTHS)
    exact, traced = Trace(with_attentions=True), Trace(with_attentions=True)
    model(batch, trace=exact)
    prepare(copy.deepcopy(model), chosen, ["0.query", "1.output"])(batch, dtype=chosen.dtype, trace=traced)
    for ours, theirs in zip(traced.hidden_states, exact.hidden_states, strict=True):
        assert float(torch.cosine_similarity(ours.float(), theirs).min()) > 0.99
    for layer, expected in zip(traced.attentions, exact.attentions, strict=True):
        for ours, theirs in zip(layer, expected, strict=True):
            torch.testing.assert_close(ours.float(), theirs, rtol=0, atol=0.05)


def test_kept_layers_stay_exact() -> None:
    model, batch = wide_model(), random_batch(LENGTHS)
    exact = model(batch)
    every = ["query", "key", "value", "attention_output", "intermediate", "output"]
    differences = [
        (prepare(copy.deepcopy(model), INT8, kept)(batch, dtype=INT8.dtype).float() - exact).abs()
        for kept in ([], every[3:], every, ["0.query", "0.key"])
    ]
    errors, means = [float(each.max()) for each in differences], [float(each.mean()) for each in differences]
    assert errors[2] < (1e-5 if INT8.dtype == torch.float32 else 0.1) < 10 * errors[0]
    assert means[2] < means[1] < means[0]
    with pytest.raises(CheckpointError, match="outputs"):
        prepare(copy.deepcopy(model), INT8, ["outputs"])
    with pytest.raises(CheckpointError, match=r"7\.output"):
        prepare(copy.deepcopy(model), INT8, ["7.output"])


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_plain_products_are_unchanged(precision: str) -> None:
    model, batch = wide_model(), random_batch(LENGTHS)
    plain = Runtime(device="cpu", precision=precision, products="plain")
    assert torch.equal(prepare(copy.deepcopy(model), plain)(batch), model(batch))


@pytest.mark.parametrize("bits", [7, 8])
def test_a_weight_is_restored_within_half_a_quantisation_step(bits: int) -> None:
    weight = torch.randn(20, 30, generator=torch.Generator().manual_seed(bits))
    numbers, scale = quantize_weight(weight, bits)
    assert int(numbers.abs().max()) == 2 ** (bits - 1) - 1
    assert bool(((numbers * scale[:, None] - weight).abs() <= scale[:, None] / 2 + 1e-7).all())


def test_tokens_of_any_scale_are_restored_within_half_a_quantisation_step() -> None:
    tokens = torch.randn(50, 30, generator=torch.Generator().manual_seed(3)) * torch.logspace(-6, 6, 50)[:, None]
    numbers, scale = quantize_tokens(tokens)
    assert numbers.min() >= 1
    back = (numbers.float() - 128) * scale
    assert bool(((back - tokens).abs() <= scale * 0.5001).all())


@pytest.mark.parametrize(
    ("flags", "precision", "bits", "told"),
    [
        ({"avx2", "avx512_vnni", "avx512_bf16"}, "int8", 8, ""),
        ({"avx2", "avx_vnni"}, "int8", 8, ""),
        ({"avx2"}, "int8", 7, "7 of 8 bits"),
        (set(), "fp32", 8, "emulated"),
    ],
)
def test_int8_is_chosen_by_the_features_of_the_processor(
    flags: set[str], precision: str, bits: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, *flags, computes=True)
    chosen = choose_inference("cpu", "int8")
    assert (chosen.precision, chosen.int8_bits) == (precision, bits)
    assert told in chosen.note
    assert bool(chosen.note) == bool(told)
    if precision == "int8":
        assert chosen.dtype == (torch.bfloat16 if "avx512_bf16" in flags else torch.float32)


def test_training_does_not_accept_int8() -> None:
    with pytest.raises(ConfigError, match="int8"):
        runtime.choose("cpu", "int8")
    with pytest.raises(ConfigError, match="int9"):
        choose_inference("cpu", "int9")


def test_a_batch_of_one_token_can_be_read() -> None:
    batch = Batch.from_flat(np.array([VOCABULARY - 1]), np.zeros(1, dtype=np.int64), [1])
    assert prepare(wide_model(), INT8)(batch, dtype=INT8.dtype).shape == (1, 64)


PACKED = Runtime(device="cpu", precision="fp32", products="packed")
PLAIN = Runtime(device="cpu", precision="fp32", products="plain")
needs_packing = pytest.mark.skipif(not PACKED.is_packed, reason="oneDNN does not pack fp32 weights here")


@needs_packing
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu", "silu"])
def test_packed_products_give_the_plain_numbers(hidden_act: str) -> None:
    model, batch = wide_model(hidden_act=hidden_act), random_batch(LENGTHS)
    packed = prepare(copy.deepcopy(model), PACKED)
    assert isinstance(packed.layers[0].together, PackedLinear)
    torch.testing.assert_close(packed(batch), prepare(model, PLAIN)(batch), rtol=0, atol=1e-5)
    read = Read.first(batch)
    torch.testing.assert_close(packed(batch, read=read), packed(batch)[read.positions], rtol=0, atol=1e-5)


@needs_packing
def test_packed_products_do_not_depend_on_the_batch() -> None:
    model = prepare(wide_model(), PACKED)
    together = model(random_batch(LENGTHS))
    batch, start = random_batch(LENGTHS), 0
    for length in LENGTHS:
        part = slice(start, start + length)
        alone = Batch.from_flat(batch.token_ids[part].numpy(), batch.segment_ids[part].numpy(), [length])
        torch.testing.assert_close(model(alone), together[part], rtol=0, atol=1e-5)
        start += length


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 33])
def test_a_fused_sum_is_the_sum(precision: str, tokens: int) -> None:
    chosen = Runtime(device="cpu", precision=precision)
    if not chosen.is_packed:
        pytest.skip("oneDNN does not pack such weights here")
    source = torch.Generator().manual_seed(tokens)
    weight, bias, x, residual = (
        torch.randn(shape, generator=source) for shape in ((24, 48), (24,), (tokens, 48), (tokens, 24))
    )
    layer = PackedLinear(weight, bias, chosen.dtype)
    before, exact = residual.clone(), x @ weight.T + bias + residual
    tolerance = 1e-5 if precision == "fp32" else 0.2
    torch.testing.assert_close(layer(x, plus=residual.to(chosen.dtype)).float(), exact, rtol=0, atol=tolerance)
    # A residual in another type is added after the product.
    torch.testing.assert_close(layer(x, plus=residual.double()).float(), exact, rtol=0, atol=tolerance)
    assert torch.equal(residual, before)


def test_products_are_chosen_by_the_machine_and_can_be_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "avx2")
    assert choose_inference("cpu", "fp32", "plain").products == "plain"
    assert choose_inference("cpu", "fp64").products == "plain"
    with pytest.raises(ConfigError, match="auto, packed or plain"):
        choose_inference("cpu", "fp32", "fast")
    pretend(monkeypatch)
    chosen = choose_inference("cpu", "fp32")
    assert (chosen.products, chosen.note) == ("plain", "")
    asked = choose_inference("cpu", "fp32", "packed")
    assert asked.products == "plain"
    assert "plain ones are used" in asked.note
    model, batch = wide_model(), random_batch(LENGTHS)
    assert torch.equal(prepare(copy.deepcopy(model), asked)(batch), model(batch))


def test_without_the_packed_products_of_torch_the_plain_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "avx2", "avx512_bf16")
    monkeypatch.setattr(runtime, "has_packed_products", lambda: False)
    for precision in ("fp32", "bf16"):
        chosen = choose_inference("cpu", precision)
        assert (chosen.precision, chosen.products) == (precision, "plain")
        assert chosen.note.count("this build of torch lacks the packed products of oneDNN") == 1
        model = prepare(wide_model(), chosen)
        assert not any(isinstance(module, PackedLinear) for module in model.modules())
        assert torch.isfinite(model(random_batch(LENGTHS), dtype=chosen.dtype)).all()
    # What was requested, and what would never be packed, needs no word.
    assert choose_inference("cpu", "fp32", "plain").note == ""
    assert choose_inference("cpu", "fp64").note == ""


@pytest.mark.parametrize(("flags", "instead"), [("avx2", "fp32"), ("avx512_vnni avx512_bf16", "bf16")])
def test_without_the_int8_products_of_torch_the_automatic_precision_is_used(
    flags: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "has_int8_products", lambda *numbers: False)
    pretend(monkeypatch, *flags.split())
    chosen = choose_inference("cpu", "int8", "plain")
    assert (chosen.precision, chosen.products) == (instead, "plain")
    assert chosen.note == f"this build of torch lacks the int8 products of oneDNN, so {instead} is used"
    model, batch = wide_model(), random_batch(LENGTHS)
    states = prepare(copy.deepcopy(model), chosen)(batch, dtype=chosen.dtype)
    torch.testing.assert_close(states, model(batch, dtype=chosen.dtype), rtol=0, atol=1e-2)


def test_a_packed_model_can_be_copied() -> None:
    model, batch = wide_model(), random_batch(LENGTHS)
    packed = prepare(copy.deepcopy(model), Runtime(device="cpu", precision="fp32", products="packed"))
    assert torch.equal(copy.deepcopy(packed)(batch), packed(batch))
