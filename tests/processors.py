"""Other processors than the one that runs the tests: what the system reports of them, without limits."""

import pytest

from bertsmith.base.machine import processor, runtime

LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")


def pretend(patch: pytest.MonkeyPatch, *features: str, computes: bool = False) -> None:
    """From now on in this test, the system reports these features, and no variable takes any away.

    Args:
        computes: whether oneDNN is taken to compute what a processor with these features does. Where products are then
            computed, leave it out: choices are those of the features and of what oneDNN computes here.
    """
    for name in LIMITS:
        patch.delenv(name, raising=False)
    patch.setattr(processor, "_features", lambda: frozenset(features))
    if computes:
        patch.setattr(runtime, "has_int8_products", lambda bits, around="float32": True)
        patch.setattr(runtime, "has_packed_products", lambda: True)
        patch.setattr(runtime, "packs_bf16", lambda: True)
