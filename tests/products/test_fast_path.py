"""The fast path through a prepared layer, against the path of every other batch."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertsmith.base.machine import thresholds
from bertsmith.base.machine.processor import Processor
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.models.products import fast_path, packed_linear
from bertsmith.models.products.calibration import observe, observed_scales
from bertsmith.models.products.fast_path import PreparedFastPath, float_layers, integer_layers, scripted
from bertsmith.models.products.prepared import prepare
from model.examples import random_batch
from products.test_prepared import wide_model

CALLS = 6  # more than it takes until torch.jit runs the functions
RUNTIMES = {
    "fp32": Runtime(device="cpu", precision="fp32"),
    "bf16": Runtime(device="cpu", precision="bf16"),
    "int8": Runtime(device="cpu", precision="int8", int8_bits=7),
}


def prepared(precision: str, kept: tuple[str, ...] = ()) -> TransformerEncoder:
    """A model with packed products, or with int8 products of fixed scales in all layers but the kept ones."""
    if precision != "int8" and not RUNTIMES[precision].is_packed:
        pytest.skip(f"no packed products in {precision} here")
    model, scales = wide_model(), None
    if precision == "int8":
        observed = copy.deepcopy(model)
        observe(observed)
        observed(random_batch([9, 9, 12, 30]))
        scales = observed_scales(observed)
    return prepare(model, RUNTIMES[precision], kept, scales)


def without_fast_paths(model: TransformerEncoder) -> TransformerEncoder:
    """The model without its fast paths."""
    other = copy.copy(model)
    other.fast_path = None
    return other


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of sequences of the layers that fast paths compute from now on."""
    calls: list[int] = []
    call: Callable[[PreparedFastPath, Tensor, int, int], list[Tensor]] = PreparedFastPath.__call__

    def counting(self: PreparedFastPath, hidden: Tensor, rows: int, most: int) -> list[Tensor]:
        states = call(self, hidden, rows, most)
        calls.extend([rows] * len(states))
        return states

    monkeypatch.setattr(PreparedFastPath, "__call__", counting)
    return calls


@pytest.mark.parametrize("precision", RUNTIMES)
def test_both_ways_give_the_same_states(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, dtype, calls = prepared(precision), RUNTIMES[precision].dtype, counted(monkeypatch)
    tolerance = 1e-6 if precision == "fp32" else 0.05
    other = without_fast_paths(model)
    for lengths in ([12], [1], [5, 5, 5], [30], [7] * CALLS):
        batch = random_batch(lengths)
        torch.testing.assert_close(
            model(batch, dtype=dtype).float(), other(batch, dtype=dtype).float(), rtol=0, atol=tolerance
        )
    assert calls == [rows for rows in (1, 1, 3, 1, CALLS) for _ in model.layers]


@pytest.mark.parametrize("by_sequence", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_both_kinds_of_attention_give_the_same_states(
    precision: str, by_sequence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, dtype = prepared(precision), RUNTIMES[precision].dtype
    other = without_fast_paths(model)
    monkeypatch.setattr(
        fast_path, "is_faster_by_sequence", lambda hidden, _: by_sequence and hidden.dtype == torch.float32
    )
    for lengths in [[30], [7] * 3] * CALLS:
        batch = random_batch(lengths)
        torch.testing.assert_close(
            model(batch, dtype=dtype).float(),
            other(batch, dtype=dtype).float(),
            rtol=0,
            atol=1e-5 if precision == "fp32" else 0.05,
        )


def test_one_text_is_within_the_tolerance_of_the_plain_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, model, calls = wide_model(), prepared("fp32"), counted(monkeypatch)
    for length in range(1, 1 + CALLS):
        batch = random_batch([length])
        torch.testing.assert_close(model(batch), plain(batch), rtol=0, atol=1e-5)
    assert len(calls) == CALLS * len(model.layers)


@pytest.mark.parametrize("precision", RUNTIMES)
def test_torch_jit_computes_the_same_numbers_as_python(precision: str) -> None:
    model, dtype = prepared(precision), RUNTIMES[precision].dtype
    first, *later = [model(random_batch([11]), dtype=dtype) for _ in range(CALLS)]
    for states in later:
        assert torch.equal(states, first)
    function = integer_layers if precision == "int8" else float_layers
    assert scripted(function) is not function


@pytest.mark.parametrize("error", [RuntimeError("not supported"), SyntaxError("the source has changed")])
def test_without_torch_jit_python_computes_on(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object) -> None:
        raise error

    scripted.cache_clear()
    monkeypatch.setattr(torch.jit, "script", refuse)
    model = prepared("fp32")
    expected = without_fast_paths(model)(random_batch([11]))
    for _ in range(CALLS):
        torch.testing.assert_close(model(random_batch([11])), expected, rtol=0, atol=1e-6)
    assert scripted(float_layers) is float_layers
    scripted.cache_clear()


def test_other_batches_do_not_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = prepared("fp32"), counted(monkeypatch)
    model(random_batch([5, 6]))
    trace = Trace(with_attentions=True)
    model(random_batch([5]), trace=trace)
    assert not calls
    assert [len(layer) for layer in trace.attentions] == [1] * len(model.layers)
    batch: Batch = random_batch([5, 5])
    everything = model(batch)
    read = model(batch, read=Read.first(batch))  # only the last layer skips positions
    assert len(calls) == 2 * len(model.layers) - 1
    torch.testing.assert_close(read, everything[[0, 5]], rtol=0, atol=1e-5)


def test_only_layers_of_bert_with_products_of_one_kind_have_a_fast_path() -> None:
    assert wide_model().fast_path is None
    assert depth(prepared("fp32")) == 3
    causal = wide_model(is_causal=True)
    prepare(causal, RUNTIMES["fp32"])
    per_token = wide_model()
    prepare(per_token, RUNTIMES["int8"])
    assert causal.fast_path is per_token.fast_path is None


def depth(model: TransformerEncoder) -> int:
    """The layers of a fast path."""
    return model.fast_path.depth


def test_it_ends_in_front_of_a_layer_that_has_none() -> None:
    kept = prepared("int8", kept=("1.output",))
    assert depth(kept) == 1
    batch, dtype = random_batch([9]), RUNTIMES["int8"].dtype
    for _ in range(CALLS):
        torch.testing.assert_close(
            kept(batch, dtype=dtype), without_fast_paths(kept)(batch, dtype=dtype), rtol=0, atol=0.05
        )
    trace = Trace()
    kept(batch, dtype=dtype, trace=trace)
    assert torch.equal(kept.lower(1)(batch, dtype=dtype), trace.hidden_states[1])
    assert prepared("int8", kept=("0.output",)).fast_path is None


def test_a_copy_works_without_it() -> None:
    model = prepared("fp32")
    twin = copy.deepcopy(model)
    assert twin.fast_path is None
    torch.testing.assert_close(twin(random_batch([9])), model(random_batch([9])), rtol=0, atol=1e-6)


def test_the_layers_are_scripted_after_the_first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(fast_path, "scripted", lambda function: asked.append(function) or function)
    model = prepared("fp32")
    model(random_batch([4]))
    assert not asked, "a first answer does not wait for it"
    for _ in range(CALLS):
        model(random_batch([4]))
    assert asked == [float_layers]


@pytest.mark.usefixtures("plain_for_few")
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_few_tokens_are_multiplied_by_plain_weights(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(fast_path, "scripted", lambda function: asked.append(function) or scripted(function))
    plain, model = wide_model(hidden_act=activation), wide_model(hidden_act=activation)
    prepare(model, RUNTIMES["fp32"])
    model(random_batch([8]))
    layers = [part for part in model.modules() if isinstance(part, packed_linear.PackedLinear)]
    assert all("plain" in vars(layer) and "weight" not in vars(layer) for layer in layers)
    other = without_fast_paths(model)
    for lengths in [[8], [4, 4], [9], [3, 5], [6, 6]] * CALLS:
        batch = random_batch(lengths)
        expected = plain(batch)
        torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(other(batch), expected, rtol=0, atol=1e-5)
    assert asked == [float_layers, float_layers]


@pytest.mark.usefixtures("plain_for_few")
def test_products_of_few_tokens_are_those_of_a_copy() -> None:
    layer = packed_linear.PackedLinear(drawn(5, 7), drawn(5), torch.float32)
    few, many = drawn(2, 7), drawn(9, 7)
    twin = copy.deepcopy(layer)
    for x in (few, many):
        assert torch.equal(twin(x), layer(x))
        torch.testing.assert_close(layer(x, plus=layer(x)), 2 * layer(x))
        torch.testing.assert_close(layer(x, then="relu"), layer(x).relu())


@pytest.mark.usefixtures("plain_for_few")
def test_weights_are_packed_when_they_are_first_needed() -> None:
    weight = drawn(5, 7)
    layer = packed_linear.PackedLinear(weight, drawn(5), torch.float32)
    layer(drawn(2, 7))
    assert "weight" not in vars(layer)
    assert torch.equal(layer.plain, weight.T)
    assert copy.deepcopy(layer).plain.equal(layer.plain)
    layer(drawn(9, 7))
    assert torch.equal(layer.weight.to_dense(), weight)
    other = packed_linear.PackedLinear(weight, drawn(5), torch.float32)
    other(drawn(9, 7))
    assert "plain" not in vars(other)
    assert torch.equal(other.plain, weight.T), "from the packed ones"


def test_a_copy_chooses_for_the_processor_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    require_packed()
    layer = packed_linear.PackedLinear(drawn(5, 7), drawn(5), torch.float32)
    assert not layer.has_plain
    assert "weight" in vars(copy.deepcopy(layer))
    monkeypatch.setattr(packed_linear, "_is_faster_plain", lambda weight: True)
    assert copy.deepcopy(layer).has_plain


def test_plain_weights_are_used_where_they_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    require_packed()
    monkeypatch.undo()
    monkeypatch.setattr(thresholds, "mkl_has_avx512", lambda: True)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)

    def uses(outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> bool:
        return packed_linear.PackedLinear(drawn(outputs, inputs), drawn(outputs), dtype).has_plain

    assert uses(1536, 384)
    assert uses(384, 1536)
    assert not uses(768, 768)
    if RUNTIMES["bf16"].is_packed:
        assert not uses(8, 8, torch.bfloat16)
    monkeypatch.setattr(thresholds, "mkl_has_avx512", lambda: False)
    avx2, avx512 = Processor(features=frozenset({"avx2"})), Processor(features=frozenset({"avx2", "avx512f"}))
    for limited, whole, is_plain in ((avx512, avx512, False), (avx2, avx2, True), (avx2, avx512, False)):
        monkeypatch.setattr(thresholds, "for_onednn", lambda limited=limited: limited)
        monkeypatch.setattr(thresholds, "hardware", lambda whole=whole: whole)
        assert uses(8, 8) == uses(768, 768) == is_plain


@pytest.mark.parametrize(
    ("has_avx512", "threads", "tokens", "is_plain"),
    [
        (True, 1, 1, True),
        (True, 1, 128, True),
        (True, 1, 129, False),
        (True, 2, 1, False),
        (False, 1, 512, False),
        (False, 1, 513, True),
        (False, 2, 513, True),
    ],
)
def test_plain_weights_are_for_few_tokens_with_avx512_and_for_many_without(
    has_avx512: bool, threads: int, tokens: int, is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_linear, "mkl_has_avx512", lambda: has_avx512)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert packed_linear.prefers_plain(torch.zeros(tokens, 2)) == is_plain


def drawn(*shape: int) -> Tensor:
    """Normal numbers of this shape, always the same ones."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[0]))


def require_packed() -> None:
    """Skips a test where there are no packed products in fp32."""
    if not RUNTIMES["fp32"].is_packed:
        pytest.skip("no packed products in fp32 here")
