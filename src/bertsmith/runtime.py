"""The machine: device, precision, threads, rank.

Nothing is decided at import. A precision is used only where the processor computes in it; where it would be
emulated, fp32 is taken, and whoever asked is told.
"""

import dataclasses
import functools
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import torch

from bertsmith.errors import ConfigError
from bertsmith.progress import tell, warn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
# On the processor the states of so many tokens stay in its caches between the layers.
INFERENCE_TOKENS = {"cpu": 1536, "cuda": 4096}
# How far the numbers of one text may differ in fp32, relative where they are above 1, when it is computed in another
# batch, with another number of threads or on another processor: sums are then added up in another order.
BATCH_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """Where and how the arithmetic runs.

    Attributes:
        device: "cpu" or "cuda:N".
        precision: the type of the matrix products: fp64, fp32, bf16, fp16, and int8 for inference. Parameters stay
            fp32 in training.
        note: what whoever asked should know, such as why the precision is another one; empty if nothing.
        int8_bits: with int8, the bits of a weight.
        is_auto: whether the precision was left to the machine.
    """

    device: str
    precision: str
    note: str = ""
    int8_bits: int = 8
    is_auto: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """The type of the activations; with int8 the fastest that the processor has beside it."""
        if self.precision == "int8":
            return torch.bfloat16 if "bf16" in fast_precisions(self.device) else torch.float32
        return DTYPES[self.precision]

    @property
    def inference_tokens(self) -> int:
        """The tokens that are worked on at once where nothing is learned; changes speed and memory, not the result."""
        return INFERENCE_TOKENS[self.device.split(":")[0]]

    def tell(self) -> None:
        """Says on stderr what whoever asked should know: the note, or what auto took where it is not fp32."""
        if self.note:
            warn(self.note)
        elif self.is_auto and self.precision != "fp32":
            tell(f"precision auto: {self.precision}")

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it."""
        return torch.device(self.device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rank:
    """The place of this process among those that train together."""

    index: int = 0
    count: int = 1
    local_index: int = 0

    @staticmethod
    def from_environment() -> "Rank":
        """The rank that `torchrun` gave this process; a single process where it gave none."""
        return Rank(
            index=int(os.environ.get("RANK", "0")),
            count=int(os.environ.get("WORLD_SIZE", "1")),
            local_index=int(os.environ.get("LOCAL_RANK", "0")),
        )


def choose(device: str = "auto", precision: str = "auto", local_rank: int = 0) -> Runtime:
    """The device and precision for what was asked; "auto" takes the best that the machine really has.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "auto", "fp32", "bf16", "fp16" or "fp64".
        local_rank: which GPU "cuda" means when several processes train on one machine.

    Raises:
        ConfigError: the device is absent or a name is unknown.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cpu" and not device.startswith("cuda"):
        raise ConfigError(expected="a device: auto, cpu, cuda or cuda:N", found=repr(device), fix="name one of them")
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise ConfigError(expected="a CUDA device", found="none on this machine", fix="use --device cpu")
        device = f"cuda:{local_rank}" if device == "cuda" else device
    _require_precision(precision, ("auto", *DTYPES))
    fast = fast_precisions(device)
    if precision == "auto":
        return Runtime(device=device, precision="bf16" if "bf16" in fast else "fp32", is_auto=True)
    if precision not in (*fast, "fp64"):
        note = f"{precision} would be emulated on this {device.split(':')[0]}, so fp32 is used"
        return Runtime(device=device, precision="fp32", note=note)
    return Runtime(device=device, precision=precision)


def choose_inference(device: str = "auto", precision: str = "auto") -> Runtime:
    """As `choose`, with int8 beside it: products of whole numbers on the processor.

    Without VNNI the weights keep 7 bits, and where there is not even AVX2 fp32 is taken; either is told in the note.

    Raises:
        ConfigError: the device is absent or a name is unknown.
    """
    if precision != "int8":
        _require_precision(precision, ("auto", *DTYPES, "int8"))
        return choose(device, precision)
    runtime = choose(device, "auto")
    if runtime.device != "cpu":
        note = f"int8 is computed on the processor only, so {runtime.precision} is used on this GPU"
        return dataclasses.replace(runtime, note=note)
    flags = _cpu_flags()
    if flags & {"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"}:
        return Runtime(device="cpu", precision="int8")
    if "avx2" in flags:
        note = "this processor has no int8 products of its own (VNNI), so the weights keep 7 bits of 8"
        return Runtime(device="cpu", precision="int8", int8_bits=7, note=note)
    return dataclasses.replace(runtime, note=f"int8 would be emulated here, so {runtime.precision} is used")


def _require_precision(precision: str, known: Sequence[str]) -> None:
    if precision not in known:
        raise ConfigError(
            expected=f"a precision: {', '.join(known[:-1])} or {known[-1]}",
            found=repr(precision),
            fix="name one of them",
        )


def fast_precisions(device: str) -> tuple[str, ...]:
    """The precisions that the device computes in hardware."""
    if device.startswith("cuda"):
        return ("fp32", "fp16", "bf16") if torch.cuda.get_device_capability(device) >= (8, 0) else ("fp32", "fp16")
    return ("fp32", "bf16") if _cpu_has_bf16() else ("fp32",)


def _cpu_has_bf16() -> bool:
    """Whether the processor multiplies bf16 itself (AVX512_BF16 or AMX, or the same on Arm)."""
    return bool(_cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})


@functools.cache
def _cpu_flags() -> frozenset[str]:
    """What the first core can do, in the words of Linux; nothing where it does not say."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.lower().startswith(("flags", "features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def machine() -> dict[str, Any]:
    """What this machine is, for the records of a run: processor, cores, memory, versions."""
    return {
        "processor": _processor_name(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{sys.platform} {platform.machine()}",
    }


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """The memory of the machine in bytes; 0 where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
