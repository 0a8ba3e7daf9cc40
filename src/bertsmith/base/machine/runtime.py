"""The machine: device, precision, threads, rank.

Nothing is decided at import, and torch is imported by the functions that ask it, because an ONNX folder answers without
torch. A precision is used only if the hardware supports it natively. If it would be emulated,
fp32 is used instead, and a warning says so.
"""

import contextlib
import dataclasses
import functools
import gc
import importlib
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell, warn
from bertsmith.base.machine.processor import (
    for_onednn,
    has_int8_products,
    has_packed_products,
    limit_primitives,
    packs_bf16,
    processor_name,
)

if TYPE_CHECKING:
    import torch

# The names of the types in torch.
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
PRODUCTS = ("auto", "packed", "plain")
# Tokens per batch at inference. On the CPU, the states of this many tokens stay in its caches between the layers; on a
# GPU, a batch has to take longer than launching its kernels.
INFERENCE_TOKENS = {"cpu": 1536, "cuda": 16384}
# Tokens per micro-batch of pre-training. On a GPU, one must take longer than the launch of its kernels.
TRAINING_TOKENS = {"cpu": 4096, "cuda": 16384, "meta": 4096}
# How far the fp32 outputs of one text may differ (relatively if above 1) between two batches, numbers of threads or
# CPUs, which sum in a different order.
BATCH_TOLERANCE = 1e-5
# The same for probabilities, cosines and numbers of vectors of length 1 in bf16, fp16 and int8: the last digit of a sum
# may round to the next number of the type, and the layers above carry that on.
LOW_PRECISION_TOLERANCE = 0.02
_MOST_PRIMITIVES = 128  # that oneDNN caches, of a third of a megabyte; MiniLM needs 5 to 8 for each number of tokens
_FEW_PRIMITIVES = 32  # where the first model has plain products; later ones may have packed products
# Where Linux has the limit of memory of a container: cgroups of version 2 and 1.
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """Where and how the arithmetic runs.

    Attributes:
        device: "cpu" or "cuda:N".
        precision: the type of the matrix products: fp64, fp32, bf16, fp16, or int8 for inference. Parameters stay
            fp32 in training.
        note: what the user should know, such as why another precision is used; empty if there is nothing.
        products: how linear layers are computed at inference: "packed" (weights packed by oneDNN, with what follows
            fused), "plain" (by torch), or "auto": packed where this machine can.
    """

    device: str
    precision: str
    note: str = ""
    int8_bits: int = 8
    is_auto: bool = False
    products: str = "auto"
    products_given: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether linear layers that are not int8 get packed weights at inference."""
        return self.products != "plain" and can_pack(self.device, self.activations)

    @functools.cached_property
    def activations(self) -> str:
        """The precision of the activations; with int8, bf16 if the hardware supports it, otherwise fp32."""
        if self.precision != "int8":
            return self.precision
        has_bf16 = "bf16" in fast_precisions(self.device) and has_int8_products(self.int8_bits, DTYPES["bf16"])
        return "bf16" if has_bf16 else "fp32"

    @functools.cached_property
    def dtype(self) -> "torch.dtype":
        """The type of the activations."""
        import torch

        dtype: torch.dtype = getattr(torch, DTYPES[self.activations])
        return dtype

    @functools.cached_property
    def inference_tokens(self) -> int:
        """Tokens per batch at inference; affects speed and memory, not the result."""
        return INFERENCE_TOKENS[self.device.split(":")[0]]

    @property
    def training_tokens(self) -> int:
        """Tokens per micro-batch of pre-training, if they are not set; affects memory and speed, not the result."""
        return TRAINING_TOKENS[self.device.split(":")[0]]

    def tell(self) -> None:
        """Writes to stderr what the user should know: the note, or the precision that auto chose if it is not fp32.

        Products that were requested are named, since they change the last digits.
        """
        if self.note:
            warn(self.note)
        elif self.is_auto and self.precision != "fp32":
            tell(f"precision auto: {self.precision}")
        if self.products_given:
            tell(f"products: {self.products}")

    @property
    def torch_device(self) -> "torch.device":
        """The device as a torch object."""
        import torch

        return torch.device(self.device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rank:
    """The rank of this process among those that train together.

    Attributes:
        local_index: its number among those on the same machine.
        local_count: the number of those.
        restarts: how often `torchrun` has started the processes again because one of them ended.
    """

    index: int = 0
    count: int = 1
    local_index: int = 0
    local_count: int = 1
    restarts: int = 0

    @staticmethod
    def from_environment() -> "Rank":
        """The rank that `torchrun` assigned to this process; a single process without `torchrun`."""
        return Rank(
            index=int(os.environ.get("RANK", "0")),
            count=int(os.environ.get("WORLD_SIZE", "1")),
            local_index=int(os.environ.get("LOCAL_RANK", "0")),
            local_count=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            restarts=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )

    def require_alone(self, model: str) -> None:
        """Checks that no other process trains with this one.

        Args:
            model: what a single process trains, for the message.
        """
        if self.count != 1:
            raise ConfigError(
                expected=f"one process for {model}", found=f"{self.count} processes", fix="start it without torchrun"
            )

    def dealt(self, count: int) -> list[tuple[int, bool]]:
        """The numbers of the parts of some work that this process computes, and whether each of them counts.

        All processes get as many, because a model that is divided among them is gathered in every pass of all. So at
        the end some compute one for nothing, which another one computes too.

        >>> Rank(index=1, count=2).dealt(3), Rank(index=0, count=2).dealt(3)
        ([(1, True), (2, False)], [(0, True), (2, True)])
        """
        numbers = range(self.index, -(-count // self.count) * self.count, self.count)
        return [(min(number, count - 1), number < count) for number in numbers]


ALONE = Rank()  # a process that trains or evaluates by itself


def require_torch(source: object) -> None:
    """Checks that torch is installed, which every model but an ONNX folder needs."""
    try:
        _import_torch()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            expected=f"torch, or an ONNX folder, which needs none, for '{source}'",
            found="no torch",
            fix="install it (pip install torch), or export the model elsewhere (bertsmith convert MODEL DIR --to onnx)",
        ) from None


def _import_torch() -> None:
    """Imports torch, if it is not imported yet, without the searches for garbage that this would set off.

    It creates some hundred thousand objects that live as long as the process. Searching them for garbage while they
    are created takes a tenth of the time, and every full search afterwards takes as long again, so they are left out.
    """
    if "torch" in sys.modules:
        return
    searches = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module("torch")
        gc.freeze()
    finally:
        if searches:
            gc.enable()


def choose(device: str = "auto", precision: str = "auto") -> Runtime:
    """The device and precision for a request; "auto" chooses the best that the machine supports natively.

    Of several processes that train on one machine, "cuda" is the GPU of the local rank of this one.
    """
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = str(device)  # it may be a torch.device
    require_names(device)
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise ConfigError(expected="a CUDA device", found="none on this machine", fix="use --device cpu")
        if device == "cuda":
            device = f"cuda:{Rank.from_environment().local_index}"
    require_names(precision=precision)
    if device == "cpu":
        limit_primitives(_MOST_PRIMITIVES)  # in front of every product of a model
        _prepare_for_fork()
    fast = fast_precisions(device)
    if precision == "auto":
        return Runtime(device=device, precision="bf16" if "bf16" in fast else "fp32", is_auto=True)
    if precision not in (*fast, "fp64"):
        where = f"this {device.split(':')[0]}" if device != "cpu" else for_onednn().name
        note = f"{precision} would be emulated on {where}, so fp32 is used"
        return Runtime(device=device, precision="fp32", note=note)
    return Runtime(device=device, precision=precision)


@functools.cache
def _prepare_for_fork() -> None:
    """Has children that are forked from now on compute with one thread: a fork has none of its parent's threads.

    Without this, the first product of such a child waits for them forever.
    """
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=_compute_with_one_thread)


def _compute_with_one_thread() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def choose_inference(device: str = "auto", precision: str = "auto", products: str = "auto") -> Runtime:
    """Like `choose`, but also accepts int8 (integer matrix products on the CPU) and decides how products are computed.

    Without VNNI the weights keep 7 bits. Without AVX2, or where torch lacks the int8 products of oneDNN, the automatic
    precision is used. The note says so.

    Args:
        products: one of `PRODUCTS`; see `Runtime`. Where packed ones are impossible, plain ones are used; the note says
            so if they were requested, or if only torch lacks them.
    """
    if products not in PRODUCTS:
        raise ConfigError(expected="products: auto, packed or plain", found=repr(products), fix="use one of them")
    if precision == "fp32" and device in ("auto", "cpu") and (products == "plain" or not _suits_packing("cpu", "fp32")):
        limit_primitives(_FEW_PRIMITIVES)  # what is left for oneDNN, such as GELU, is compiled again as fast
    runtime = dataclasses.replace(_choose_inference(device, precision), products_given=products != "auto")
    if products == "plain":
        return dataclasses.replace(runtime, products="plain")
    if runtime.is_packed:
        return dataclasses.replace(runtime, products="packed")
    notes = [runtime.note]
    if products == "packed" and not _suits_packing(runtime.device, runtime.activations):
        where = for_onednn().name if runtime.device == "cpu" else "a GPU"
        notes.append(f"packed products in {runtime.activations} are not supported on {where}, so plain ones are used")
    elif _suits_packing(runtime.device, runtime.activations) and not can_pack(runtime.device, runtime.activations):
        notes.append(
            "this build of torch lacks the packed products of oneDNN, so plain ones are used, which are slower"
        )
    return dataclasses.replace(runtime, products="plain", note="; ".join(filter(None, notes)))


def _choose_inference(device: str, precision: str) -> Runtime:
    if precision != "int8":
        require_names(precision=precision, inference=True)
        return choose(device, precision)
    runtime = choose(device, "auto")
    if runtime.device != "cpu":
        note = f"int8 is supported on the CPU only, so {runtime.precision} is used on this GPU"
        return dataclasses.replace(runtime, note=note)
    processor = for_onednn()
    most = processor.int8_bits
    if most is None:
        note = f"int8 would be emulated on {processor.name}, so {runtime.precision} is used"
        return dataclasses.replace(runtime, note=note)
    bits = next((bits for bits in (8, 7) if bits <= most and has_int8_products(bits)), None)
    if bits is None:
        note = f"this build of torch lacks the int8 products of oneDNN, so {runtime.precision} is used"
        return dataclasses.replace(runtime, note=note)
    note = "" if bits == 8 else f"{processor.name} has no native int8 products (VNNI), so the weights keep 7 of 8 bits"
    return Runtime(device="cpu", precision="int8", int8_bits=bits, note=note)


def require_names(device: str = "auto", precision: str = "auto", *, inference: bool = False) -> None:
    """Checks the names of a device and of a precision, of which inference has one more; needs no torch."""
    if device not in ("auto", "cpu") and not device.startswith("cuda"):
        raise ConfigError(expected="a device: auto, cpu, cuda or cuda:N", found=repr(device), fix="use one of them")
    known = ("auto", *DTYPES, *(["int8"] if inference else []))
    if precision not in known:
        raise ConfigError(
            expected=f"a precision: {', '.join(known[:-1])} or {known[-1]}",
            found=repr(precision),
            fix="use one of them",
        )


def fast_precisions(device: str) -> tuple[str, ...]:
    """The precisions that the device supports in hardware."""
    if device.startswith("cuda"):
        import torch

        return ("fp32", "fp16", "bf16") if torch.cuda.get_device_capability(device) >= (8, 0) else ("fp32", "fp16")
    return ("fp32", "bf16") if for_onednn().has_bf16 else ("fp32",)


def can_pack(device: str, precision: str) -> bool:
    """Whether oneDNN multiplies with packed weights of this precision here: fp32 on x86 with AVX2, bf16 in hardware.

    `benchmarks/encode_speed.py` compares them with the plain products of torch, which MKL computes in fp32.
    """
    return _suits_packing(device, precision) and (precision != "bf16" or packs_bf16()) and has_packed_products()


def _suits_packing(device: str, precision: str) -> bool:
    """Whether products of this precision are packed where torch has what it takes."""
    if device != "cpu":
        return False
    processor = for_onednn()
    return processor.has_bf16 if precision == "bf16" else precision == "fp32" and processor.has_avx2


def machine() -> dict[str, Any]:
    """A description of this machine for the records of a run: CPU, threads, memory, versions."""
    import torch

    return {
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{sys.platform} {platform.machine()}",
    }


def memory_bytes() -> int:
    """The memory of the machine, or of the container if that has less, in bytes; 0 if unknown. It is read once."""
    return _memory_bytes(CONTAINER_LIMITS)


@functools.cache
def _memory_bytes(limits: tuple[str, ...]) -> int:
    try:
        sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, ValueError, OSError):
        return 0
    for path in limits:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            sizes.append(int(Path(path).read_text(encoding="ascii")))
    return min(sizes)
