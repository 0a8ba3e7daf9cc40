"""Int8 with scales fixed by calibration, against fp32 and against one scale per token."""

import copy

import pytest
import torch

from bertsmith.base.machine.processor import has_int8_products
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.models.products.calibration import observe, observed_scales
from bertsmith.models.products.int8_linear import FixedInt8Linear, InputScale, quantize_fixed
from bertsmith.models.products.prepared import prepare
from model.examples import random_batch
from products.test_prepared import INT8, LENGTHS, model_of, wide_model
from tasks.architecture_samples import ARCHITECTURES


def calibrated(model: TransformerEncoder, batch: Batch) -> dict[str, InputScale]:
    observed = copy.deepcopy(model)
    observe(observed)
    torch.testing.assert_close(observed(batch), model(batch))
    return observed_scales(observed)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu", "silu"])
def test_fixed_scales_stay_close_to_fp32(hidden_act: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bf16 = ("fp32", "bf16") if precision == "bf16" else ("fp32",)
    if precision == "bf16" and not has_int8_products(INT8.int8_bits, "bfloat16"):
        pytest.skip("products of int8 give no bf16 on this processor")
    monkeypatch.setattr("bertsmith.base.machine.runtime.fast_precisions", lambda device: bf16)
    model, batch = wide_model(hidden_act=hidden_act), random_batch(LENGTHS)
    exact, scales = model(batch), calibrated(model, batch)
    assert set(scales) == {
        f"{n}.{name}" for n in range(3) for name in ("query", "attention_output", "intermediate", "output")
    }
    encoder = prepare(copy.deepcopy(model), INT8, scales=scales)
    assert isinstance(encoder.layers[0].output, FixedInt8Linear)
    states = encoder(batch, dtype=INT8.dtype).float()
    assert 0 < float((states - exact).abs().max()) < 0.2
    assert float(torch.cosine_similarity(states, exact).min()) > 0.998


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fixed_scales_of_every_architecture_stay_close_to_fp32(architecture: str) -> None:
    model, batch = model_of(architecture)
    exact, scales = model(batch), calibrated(model, batch)
    encoder = prepare(copy.deepcopy(model), INT8, scales=scales)
    assert isinstance(encoder.layers[0].output, FixedInt8Linear)
    states = encoder(batch, dtype=INT8.dtype).float()
    assert 0 < float((states - exact).abs().max()) < 0.4
    assert float(torch.cosine_similarity(states, exact).min()) > 0.99


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    model, batch = wide_model(), random_batch(LENGTHS)
    prepared = prepare(copy.deepcopy(model), INT8, scales=calibrated(model, batch))
    together, start = prepared(batch, dtype=INT8.dtype), 0
    for length in LENGTHS:
        part = slice(start, start + length)
        alone = Batch.from_flat(batch.token_ids[part].numpy(), batch.segment_ids[part].numpy(), [length])
        states = prepared(alone, dtype=INT8.dtype)
        torch.testing.assert_close(states.float(), together[part].float(), rtol=0, atol=0.05)
        start += length


def test_positions_may_be_read_and_layers_kept() -> None:
    model, batch = wide_model(), random_batch(LENGTHS)
    exact, scales, read = model(batch), calibrated(model, batch), Read.first(batch)
    for kept in ([], ["output"], ["0.intermediate", "1.query"]):
        prepared = prepare(copy.deepcopy(model), INT8, kept, scales)
        states = prepared(batch, read=read, dtype=INT8.dtype).float()
        assert float(torch.cosine_similarity(states, exact[read.positions]).min()) > 0.998


def test_inputs_beyond_the_range_are_cut_to_it() -> None:
    x = torch.tensor([[-50.0, -1.0, 0.0, 0.26, 50.0]])
    assert quantize_fixed(x, torch.full((5,), 10.0), torch.full((5,), 10.5)).tolist() == [[0, 0, 10, 13, 255]]
    assert quantize_fixed(x.bfloat16(), torch.full((5,), 10.0), torch.full((5,), 10.5)).tolist() == [
        [0, 0, 10, 13, 255]
    ]


def test_the_balance_of_an_input_does_not_change_its_product() -> None:
    source = torch.Generator().manual_seed(4)
    weight, x = torch.randn(16, 32, generator=source), torch.randn(9, 32, generator=source)
    x[:, 3] *= 40
    exact = x @ weight.T
    errors = []
    for balance in (torch.ones(32), (x.abs().amax(0) / weight.abs().amax(0)).sqrt()):
        shared = x / balance
        scale = InputScale(min(0.0, float(shared.min())), float(shared.max()), tuple(balance.tolist()))
        layer = FixedInt8Linear(weight, torch.zeros(16), bits=7, scale=scale, dtype=torch.float32)
        errors.append(float((layer(x) - exact).abs().mean()))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.05 * float(exact.abs().mean())


def test_one_product_hands_its_integers_to_the_next() -> None:
    source = torch.Generator().manual_seed(5)
    weight, bias, x = (torch.randn(shape, generator=source) for shape in ((64, 32), (64,), (7, 32)))
    first = InputScale(float(x.min()), float(x.max()))
    after = torch.nn.functional.gelu(x @ weight.T + bias)
    second = InputScale(float(after.min()), float(after.max()))
    layer = FixedInt8Linear(weight, bias, bits=7, scale=first, dtype=torch.float32, next_scale=second)
    numbers = layer(x, "gelu")
    assert numbers.dtype == torch.uint8
    restored = (numbers.float() - second.zero) * second.step
    assert float((restored - after).abs().max()) < 0.1 * float(after.abs().max())
    assert layer(x).dtype == torch.float32


def test_scales_are_used_in_int8_only() -> None:
    model, batch = wide_model(), random_batch(LENGTHS)
    scales, plain = calibrated(model, batch), Runtime(device="cpu", precision="fp32", products="plain")
    assert torch.equal(prepare(copy.deepcopy(model), plain, scales=scales)(batch), model(batch))
