"""The processor as the libraries that compute may use it: its instructions, and the products that oneDNN has there.

The system says what the processor has. A variable of the environment may limit a library to some of its instructions:
`ONEDNN_MAX_CPU_ISA` (earlier `DNNL_MAX_CPU_ISA`) oneDNN, which computes packed products, int8 and bf16;
`MKL_ENABLE_INSTRUCTIONS` and `MKL_CBWR` MKL; `ATEN_CPU_CAPABILITY` the kernels of PyTorch, which report it themselves.
ONNX Runtime has no such limit. What is chosen here must be what the library then does: with 8 bits per weight where
only 7 fit, products in int8 are wrong. So a value counts here only as its library spells it: oneDNN in any case, MKL in
capitals, neither with spaces around it. Each ignores a value that it does not know.

The operators of oneDNN are not part of torch's documented interface. They are tried on a few numbers once: a version
that has moved them, or a build without oneDNN, raises an error or computes something else here, in milliseconds, and
the caller uses plain products instead.

Letters: T tokens, K inputs, O outputs of a layer.
"""

import contextlib
import functools
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Features that decide something, as Linux names them.
_AVX2, _AVX512 = frozenset({"avx2"}), frozenset({"avx2", "avx512f"})
_VNNI = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"})  # products of int8, added in 32 bits
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one on Arm
_NOTHING: frozenset[str] = frozenset()
# What each limit leaves of them.
_ONEDNN_LIMITS = {
    "sse41": _NOTHING,
    "avx": _NOTHING,
    "avx2": _AVX2,
    "avx2_vnni": _AVX2 | {"avx_vnni"},
    "avx2_vnni_2": _AVX2 | {"avx_vnni", "avx_vnni_int8"},
    "avx512_core": _AVX512,
    "avx512_core_vnni": _AVX512 | {"avx512_vnni"},
    "avx512_core_bf16": _AVX512 | {"avx512_vnni", "avx512_bf16"},
    "avx512_core_fp16": _AVX512 | {"avx512_vnni", "avx512_bf16", "avx_vnni"},
    "avx10_1_512": _AVX512 | {"avx512_vnni", "avx512_bf16", "avx_vnni"},
}
_MKL_LIMITS = {"SSE4_2": _NOTHING, "AVX": _NOTHING, "AVX2": _AVX2, "AVX2_E1": _AVX2 | {"avx_vnni"}}
_CBWR_LIMITS = {  # with BRANCH= in front or not, with STRICT after a comma or not
    **dict.fromkeys(("COMPATIBLE", "SSE2", "SSE3", "SSSE3", "SSE4_1", "SSE4_2", "AVX"), _NOTHING),
    "AVX2": _AVX2,
}

_T, _K, _O = 3, 16, 8
_MOST_DIFFERENCE = 1e-3  # of results near 1; a wrong operator is off by more
_STEP = 0.125  # between the small numbers that are multiplied, which are exact in every precision
_ZERO = 128  # the unsigned integer of 0
_LARGEST = 255  # the largest unsigned integer
_MOST_DESCRIPTIONS = 16  # of primitives, in each thread; MiniLM in int8 needs 8 for each number of tokens


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The instructions of the processor that a library may use.

    Attributes:
        features: as Linux names them.
        limit: the variable that takes some away, such as "ONEDNN_MAX_CPU_ISA=AVX2"; empty if none does.
    """

    features: frozenset[str]
    limit: str = ""

    @property
    def name(self) -> str:
        """How a message names it."""
        return f"this CPU with {self.limit}" if self.limit else "this CPU"

    @property
    def has_avx2(self) -> bool:
        """Whether it has AVX2."""
        return "avx2" in self.features

    @property
    def has_avx512(self) -> bool:
        """Whether it has AVX-512."""
        return self.features >= _AVX512

    @property
    def has_bf16(self) -> bool:
        """Whether it multiplies bf16 (AVX512_BF16 or AMX, or the Arm equivalent)."""
        return bool(self.features & _BF16)

    @property
    def int8_bits(self) -> int | None:
        """The bits per int8 weight for which sums of products fit: 8 with VNNI, 7 with AVX2; None: neither."""
        return 8 if self.features & _VNNI else 7 if self.has_avx2 else None


def hardware() -> Processor:
    """The processor as it is, which ONNX Runtime uses."""
    return Processor(features=_features())


def for_onednn() -> Processor:
    """The processor as oneDNN uses it."""
    # The first variable that is not empty counts, even if its value is unknown.
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    variable = next((name for name in names if os.environ.get(name)), names[0])
    return _limited(variable, _ONEDNN_LIMITS.get(os.environ.get(variable, "").lower()))


def for_mkl() -> Processor:
    """The processor as MKL uses it, which computes the plain products of torch in fp32."""
    limited = _limited("MKL_ENABLE_INSTRUCTIONS", _MKL_LIMITS.get(os.environ.get("MKL_ENABLE_INSTRUCTIONS", "")))
    branch = os.environ.get("MKL_CBWR", "").removeprefix("BRANCH=").partition(",")[0]
    return limited if limited.limit else _limited("MKL_CBWR", _CBWR_LIMITS.get(branch))


def _limited(variable: str, kept: frozenset[str] | None) -> Processor:
    """The processor with what the value of a variable leaves of its features; None: all of them."""
    features = _features()
    lost = _NOTHING if kept is None else (_AVX512 | _VNNI | _BF16) - kept
    return Processor(features=features - lost, limit=f"{variable}={os.environ[variable]}" if features & lost else "")


def limit_primitives(most: int) -> None:
    """Limits how many compiled primitives oneDNN caches, unless that is set; it reads this at its first product.

    By default 1,024, one for each number of tokens and shape of weights: hundreds of megabytes. The layer between torch
    and oneDNN (ideep) keeps as many of their descriptions in each thread, of 256 KiB, also of primitives that oneDNN
    has removed. oneDNN keeps its own copies, so a cache for one pass through the layers suffices.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(most))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(_MOST_DESCRIPTIONS))


@functools.cache
def torch_uses_avx512() -> bool:
    """Whether the kernels of PyTorch use AVX-512 here, which `ATEN_CPU_CAPABILITY` may forbid."""
    import torch

    return str(torch.backends.cpu.get_cpu_capability()).startswith("AVX512")


@functools.cache
def mkl_has_avx512() -> bool:
    """Whether this is an Intel processor with AVX-512, for which MKL has kernels of its own, and it may use them."""
    return is_intel() and for_mkl().has_avx512


def is_intel() -> bool:
    """Whether this is a processor of Intel."""
    return "Intel" in processor_name()


@functools.cache
def _cpuinfo(*names: str) -> str:
    """The value of the first line with one of these names that Linux reports of the first core; empty if none has."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.lower().startswith(names):
                return line.split(":", 1)[1].strip()
    return ""


def _features() -> frozenset[str]:
    """The features of the first core as Linux reports them; empty if there are none."""
    return frozenset(_cpuinfo("flags", "features").split())


@functools.cache
def processor_name() -> str:
    """The model of the processor, as the system names it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@functools.cache
def has_packed_products() -> bool:
    """Whether linear layers with packed weights work, with an activation and with a sum fused to them."""
    import torch

    x, weight, bias = _numbers()
    exact = x @ weight.T + bias
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _T)
        activated = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "relu", [], "")
        summed = torch.ops.mkldnn._linear_pointwise.binary(x, exact, packed, bias, "add")
    except (AttributeError, RuntimeError):
        return False
    return _is_near(activated, exact.relu()) and _is_near(summed, 2 * exact)


@functools.cache
def packs_bf16() -> bool:
    """Whether oneDNN multiplies bf16 on this processor."""
    import torch

    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


@functools.cache
def has_int8_products(bits: int = 7, around: str = "float32") -> bool:
    """Whether linear layers in int8 work: results in a type, integers after an activation, a sum, large sums.

    Args:
        bits: of the weights; 255 times the largest one must add up without overflow.
        around: the type of the results, as torch names it.
    """
    import torch

    dtype = getattr(torch, around)
    x, weight, bias = _numbers()
    exact = x @ weight.T + bias
    numbers, integers = (x / _STEP + _ZERO).to(torch.uint8), (weight / _STEP).to(torch.int8)
    scale, zeros = (
        torch.full((_O,), _STEP, dtype=torch.float32, device="cpu"),
        torch.zeros(_O, dtype=torch.int64, device="cpu"),
    )
    product, largest = torch.ops.onednn, 2 ** (bits - 1) - 1
    try:
        operands = (numbers, _STEP, _ZERO, product.qlinear_prepack(integers, None), scale, zeros)
        plain = product.qlinear_pointwise(*operands, bias, 1.0, 0, dtype, "none", [], "")
        activated = product.qlinear_pointwise(*operands, bias, 1.0, 0, torch.uint8, "relu", [], "")
        summed = product.qlinear_pointwise.binary(
            *operands, exact.to(dtype), bias, 1.0, 0, dtype, 1.0, 0, "add", 1.0, "none", [], ""
        )
        many, most = torch.full_like(numbers, _LARGEST), torch.full_like(integers, largest)
        large = product.qlinear_pointwise(
            many, 1.0, 0, product.qlinear_prepack(most, None), scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    except (AttributeError, RuntimeError):
        return False
    if not _is_near(large, torch.full_like(exact, _LARGEST * largest * _K * _STEP)):
        return False
    near = _is_near(plain, exact) and _is_near(summed, 2 * exact)
    return near and activated.dtype == torch.uint8 and float((activated.float() - exact.relu()).abs().max()) <= 0.5


def _numbers() -> "tuple[Tensor, Tensor, Tensor]":
    """Inputs [T, K], weights [O, K] and bias [O], float32 on the CPU: multiples of `_STEP` from -1 to 1."""
    import torch

    def cycle(rows: int, columns: int) -> "Tensor":
        # Neither torch's default device nor its default dtype may decide what is cached for the process.
        numbers = torch.arange(rows * columns, device="cpu") * 7 % 17 - 8
        return numbers.to(torch.float32).mul(_STEP).reshape(rows, columns)

    return cycle(_T, _K), cycle(_O, _K), cycle(1, _O)[0]


def _is_near(result: "Tensor", exact: "Tensor") -> bool:
    if result.shape != exact.shape:
        return False
    relative = 2**-7 if result.dtype.itemsize == 2 else 0.0  # of bf16
    return bool(((result.float() - exact).abs() <= _MOST_DIFFERENCE + relative * exact.abs()).all())


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
