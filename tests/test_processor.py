"""The operators of oneDNN, tried before they are used: absent, failing and wrong ones are found."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from bertsmith import processor
from bertsmith.runtime import choose_inference

PROBES = (processor.has_packed_products, processor.packs_bf16, processor.has_int8_products)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was found before, and in a test, is forgotten."""
    for probe in PROBES:
        probe.cache_clear()
    yield
    for probe in PROBES:
        probe.cache_clear()


def fails(*values: object) -> object:
    raise RuntimeError("could not create a primitive")


@pytest.mark.skipif(not processor.for_onednn().has_avx2, reason="oneDNN may lack these products here")
def test_the_operators_of_this_torch_are_found() -> None:
    assert processor.has_packed_products()
    assert processor.has_int8_products()


@pytest.mark.skipif(not processor.for_onednn().has_avx2, reason="oneDNN may lack these products here")
def test_the_default_device_and_dtype_of_torch_do_not_matter() -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            assert processor.has_packed_products()
            assert processor.has_int8_products()
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("namespace", ["mkldnn", "onednn"])
def test_absent_operators_are_found(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, namespace, SimpleNamespace())
    if namespace == "mkldnn":
        assert not processor.has_packed_products()
        assert not processor.packs_bf16()
    else:
        assert not processor.has_int8_products()


@pytest.mark.parametrize(
    "operator", [fails, lambda numbers, *rest: torch.zeros(len(numbers), 8), lambda *rest: torch.zeros(1)]
)
def test_failing_and_wrong_operators_are_found(
    operator: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    product = SimpleNamespace(qlinear_prepack=lambda *rest: torch.zeros(1), qlinear_pointwise=operator)
    monkeypatch.setattr(torch.ops, "onednn", product)
    monkeypatch.setattr(processor, "_features", lambda: frozenset({"avx512_vnni"}))
    assert not processor.has_int8_products()
    chosen = choose_inference("cpu", "int8", "plain")
    chosen.tell()
    assert chosen.precision == "fp32"
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "lacks the int8 products of oneDNN, so fp32 is used" in line]) == 1
    linear = SimpleNamespace(default=operator, binary=operator)
    monkeypatch.setattr(
        torch.ops, "mkldnn", SimpleNamespace(_reorder_linear_weight=lambda *rest: rest[0], _linear_pointwise=linear)
    )
    assert not processor.has_packed_products()
