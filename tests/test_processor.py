"""What a library may use of the processor, and the operators of oneDNN: absent, failing and wrong ones are found."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertsmith.base.machine import processor
from bertsmith.base.machine.runtime import choose_inference
from processors import LIMITS, pretend
from products import of_choices, of_limits

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
    pretend(monkeypatch, "avx512_vnni")
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


def run_program(file: str, variables: dict[str, str], asked: object = None) -> Any:
    """What a program of these tests prints as JSON, with these variables and with JSON on its stdin."""
    paths = os.pathsep.join([str(Path(file).parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, **variables, "PYTHONPATH": paths}
    command, lines = [sys.executable, "-W", "ignore", file], json.dumps(asked)
    result = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


ZEN4 = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16")


@pytest.mark.parametrize(
    ("variables", "features", "bits", "has_bf16", "has_avx512"),
    [
        ({}, ZEN4, 8, True, True),
        ({}, ("avx2",), 7, False, False),
        ({}, (), None, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "SSE41"}, ZEN4, None, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, ZEN4, 7, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}, ZEN4, 7, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "avx2_vnni"}, (*ZEN4, "avx_vnni"), 8, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, ZEN4, 7, False, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, ZEN4, 8, False, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, (*ZEN4, "amx_int8"), 8, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "ALL", "DNNL_MAX_CPU_ISA": "AVX2"}, ZEN4, 8, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "", "DNNL_MAX_CPU_ISA": "AVX2"}, ZEN4, 7, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, ("avx2",), 7, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "unknown"}, ZEN4, 8, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2 "}, ZEN4, 8, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2,STRICT"}, ZEN4, 8, True, True),
        ({"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, ZEN4, 8, True, True),
    ],
)
def test_limits_of_onednn_take_features_away(
    variables: dict[str, str],
    features: tuple[str, ...],
    bits: int | None,
    has_bf16: bool,
    has_avx512: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, *features)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    limited = processor.for_onednn()
    assert (limited.int8_bits, limited.has_bf16, limited.has_avx512) == (bits, has_bf16, has_avx512)
    whole = processor.hardware()
    assert whole.features == frozenset(features), "ONNX Runtime has no such limit"
    loses = limited.features != whole.features
    assert (limited.name == "this CPU") is not loses
    assert all(f"{name}={value}" in limited.name for name, value in variables.items() if loses and value)


@pytest.mark.parametrize(
    ("variables", "has_avx512"),
    [
        ({}, True),
        ({"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, False),
        ({"MKL_ENABLE_INSTRUCTIONS": "AVX2_E1"}, False),
        ({"MKL_ENABLE_INSTRUCTIONS": "AVX512"}, True),
        ({"MKL_ENABLE_INSTRUCTIONS": "avx2"}, True),
        ({"MKL_ENABLE_INSTRUCTIONS": "AVX2,STRICT"}, True),
        ({"MKL_CBWR": "AVX2,STRICT"}, False),
        ({"MKL_CBWR": "BRANCH=AVX2"}, False),
        ({"MKL_CBWR": "avx2"}, True),
        ({"MKL_CBWR": "AVX512,STRICT"}, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, True),
    ],
)
def test_limits_of_mkl_take_features_away(
    variables: dict[str, str], has_avx512: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, *ZEN4)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert processor.for_mkl().has_avx512 == has_avx512


def spelled(names: Iterable[str]) -> Iterator[str]:
    """The names as a person may write them: in any case, with spaces, a part of MKL's syntax, or a slip."""
    for name in names:
        yield from (name, name.lower(), name.title(), f" {name}", f"{name} ", f"{name},STRICT", f"BRANCH={name}")
        yield from (f"{name}, STRICT", f"BRANCH={name},STRICT", name[:-1], f"{name}_", name.replace("_", "-"))


@pytest.mark.skipif(not processor.for_onednn().has_avx2, reason="oneDNN has no such limits here")
def test_a_limit_is_spelled_as_its_library_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN says what it uses of this processor, and MKL which branch; that of COMPATIBLE it has on every one."""
    values = sorted(
        {"", "ALL", "AVX512_CORE_AMX", "x" * 40, *spelled(name.upper() for name in processor._ONEDNN_LIMITS)}
    )
    cases = [{"ONEDNN_MAX_CPU_ISA": value} for value in values]
    cases += [{"DNNL_MAX_CPU_ISA": value, "ONEDNN_MAX_CPU_ISA": first} for value in values[:9] for first in ("", "x")]
    compatible = [{"MKL_CBWR": value} for value in spelled(["COMPATIBLE"])]
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    answers = run_program(of_limits.__file__, {"OMP_NUM_THREADS": "1"}, cases + compatible)
    for limits, (instructions, branch) in zip(cases + compatible, answers, strict=True):
        with monkeypatch.context() as patch:
            for name, value in limits.items():
                patch.setenv(name, value)
            limited = processor.for_onednn()
            has_avx512 = "AVX-512" in instructions or "AVX10" in instructions
            assert limited.has_avx512 == has_avx512, (limits, instructions)
            assert limited.has_avx2 == (has_avx512 or "AVX2" in instructions), (limits, instructions)
            assert (limited.int8_bits == 8) == ("DL Boost" in instructions), (limits, instructions)
            assert limited.has_bf16 == (has_avx512 and "bfloat16" in instructions), (limits, instructions)
            if "MKL_CBWR" in limits and branch is not None and processor.hardware().has_avx512:
                assert branch in (*of_limits.OFF_OR_AUTO, of_limits.COMPATIBLE)
                assert bool(processor.for_mkl().limit) == (branch == of_limits.COMPATIBLE), limits


@pytest.mark.parametrize(
    "variables",
    [
        {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "default"},
        {"DNNL_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    ],
)
def test_what_is_chosen_under_a_limit_is_what_onednn_computes(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, since oneDNN reads its limit once."""
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    chosen = run_program(of_choices.__file__, variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    limited = processor.for_onednn()
    assert chosen["auto"][:2] == ["fp32", "fp32"]
    assert chosen["bf16"] == ["fp32", "fp32", f"bf16 would be emulated on {limited.name}, so fp32 is used"]
    if limited.int8_bits is None:
        assert chosen["int8"][0] == "fp32"
        return
    assert chosen["int8"][:2] == ["int8", "fp32"]
    assert chosen["bits"] == limited.int8_bits
    assert ("7 of 8 bits" in chosen["int8"][2]) == (limited.int8_bits == 7)
    assert "this build of torch" not in chosen["int8"][2]
    assert max(chosen["errors"]) < 1e-2
