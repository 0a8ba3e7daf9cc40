"""Peak rates of GPUs, and what share of them a training reaches: model FLOPs utilization.

The utilization of a step is the floating-point operations of the matrix products that it needs
(`models/products/work.py`), divided by its seconds and by the peak of the device in the precision of the products. It
is omitted for a device that is not listed here, and for an architecture whose products are not counted.

Source: Chowdhery et al. (2022), "PaLM: Scaling Language Modeling with Pathways", appendix B.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from bertsmith.base.core.errors import ConfigError, nearest


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The published figures of a GPU.

    Attributes:
        pattern: what `torch.cuda.get_device_name` returns, a regular expression for the whole name.
        memory: GB, as published.
        half: dense bf16 and fp16 products with sums in fp32, TFLOP/s; without the doubling of sparse matrices.
        single: fp32 products outside the tensor cores, which is what torch uses by default, TFLOP/s.
    """

    pattern: str
    memory: float
    half: float
    single: float
    has_bf16: bool = True
    source: str

    def peak(self, precision: str) -> float | None:
        """FLOP/s in a precision; None if it has no products of that kind, or they are not listed."""
        if precision == "fp32":
            return self.single * 1e12
        return self.half * 1e12 if precision == "fp16" or (precision == "bf16" and self.has_bf16) else None


# Figures of the whole card at its boost clock, as in the documents named; those given with sparsity are halved.
GPUS: Mapping[str, Gpu] = {
    "h200": Gpu(pattern=r"NVIDIA H200", memory=141, half=989.5, single=67, source="NVIDIA H200 datasheet, H200 SXM"),
    "h100": Gpu(
        pattern=r"NVIDIA H100 (80GB HBM3|SXM.*)",
        memory=80,
        half=989.5,
        single=67,
        source="NVIDIA H100 datasheet, H100 SXM",
    ),
    "h100-pcie": Gpu(
        pattern=r"NVIDIA H100 PCIe", memory=80, half=756, single=51, source="NVIDIA H100 datasheet, H100 PCIe"
    ),
    "a100": Gpu(
        pattern=r"NVIDIA A100.*80GB.*", memory=80, half=312, single=19.5, source="NVIDIA A100 datasheet, 80 GB"
    ),
    "a100-40": Gpu(
        pattern=r"NVIDIA A100.*40GB.*", memory=40, half=312, single=19.5, source="NVIDIA A100 datasheet, 40 GB"
    ),
    "l40s": Gpu(pattern=r"NVIDIA L40S", memory=48, half=362, single=91.6, source="NVIDIA L40S datasheet"),
    "l4": Gpu(pattern=r"NVIDIA L4", memory=24, half=121, single=30.3, source="NVIDIA L4 datasheet"),
    "a10": Gpu(pattern=r"NVIDIA A10", memory=24, half=125, single=31.2, source="NVIDIA A10 datasheet"),
    "t4": Gpu(
        pattern=r"(NVIDIA |Tesla )T4", memory=16, half=65, single=8.1, has_bf16=False, source="NVIDIA T4 datasheet"
    ),
    "v100": Gpu(
        pattern=r"Tesla V100-SXM2.*",
        memory=32,
        half=125,
        single=15.7,
        has_bf16=False,
        source="NVIDIA V100 datasheet, V100 SXM2",
    ),
}


def named_gpu(name: str) -> Gpu:
    """The GPU with a short name, such as "h200"."""
    if name not in GPUS:
        raise ConfigError(
            expected="auto, cpu, cuda, cuda:N or the name of a GPU", found=repr(name), fix=nearest(name, GPUS)
        )
    return GPUS[name]


def peak_of(device_name: str, precision: str) -> float | None:
    """The peak of a device in FLOP/s; None if it is not listed.

    Args:
        device_name: as `torch.cuda.get_device_name` returns it.

    >>> peak_of("NVIDIA H200", "bf16"), peak_of("Tesla T4", "bf16"), peak_of("NVIDIA A10G", "bf16")
    (989500000000000.0, None, None)
    """
    known = next((gpu for gpu in GPUS.values() if re.fullmatch(gpu.pattern, device_name)), None)
    return None if known is None else known.peak(precision)


def peak_of_device(device: torch.device, precision: str) -> float | None:
    """The peak of a device of this machine in FLOP/s; None for a CPU, whose peak depends on its clock and load."""
    return peak_of(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None
