"""Which of two ways of inference is faster, by the kind of processor: every measured threshold, in one table.

All ways give the same answers up to rounding, so these decide nothing but time. Measured: plain weights and attention
in docs/decisions/0014-inference-engine.md, a graph and torch in docs/decisions/0021-without-torch.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bertsmith.base.machine.processor import for_onednn, hardware, is_intel, mkl_has_avx512

_NEVER = 2**63  # tokens


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Of one kind of processor.

    Attributes:
        few_plain: up to this number of tokens, one thread multiplies plain weights in fp32 faster than packed ones.
        many_plain: the same beyond this number of tokens, with any number of threads.
        widest_plain: of layers that have plain weights, the most inputs or outputs, whichever are fewer.
        keys_by_sequence: the fewest keys for which two products per sequence are faster than the fused attention in
            fp32, by the number of threads; with fewer keys, the calls cost more.
        most_keys_by_sequence: with more, the scores leave the cache.
        torch_products: multiplications by weights below which torch is not worth its import, in place of a graph.
        graph_tokens: up to this number, computed together, a graph is as fast as torch.
    """

    few_plain: int = 0
    many_plain: int = _NEVER
    widest_plain: int = 0
    keys_by_sequence: Mapping[int, int] = field(default_factory=dict)
    most_keys_by_sequence: int = 0
    torch_products: float = 6e11
    graph_tokens: int = 256


AVX2 = Thresholds(many_plain=512, widest_plain=_NEVER)  # alone
LIMITED_TO_AVX2 = Thresholds()  # with AVX-512, which a variable forbids
AVX512 = Thresholds(keys_by_sequence={1: 22, 2: 28}, most_keys_by_sequence=143)
# MKL has kernels of its own there; wider layers gain only at some numbers of tokens.
INTEL_AVX512 = Thresholds(
    few_plain=128, widest_plain=384, keys_by_sequence=AVX512.keys_by_sequence, most_keys_by_sequence=255
)


def attention_thresholds() -> Thresholds:
    """Those of attention on a processor with AVX-512, as PyTorch may use it."""
    return INTEL_AVX512 if is_intel() else AVX512


def thresholds_here() -> Thresholds:
    """Those of this processor, as oneDNN and MKL may use it."""
    if mkl_has_avx512():
        return INTEL_AVX512
    if for_onednn().has_avx512:
        return AVX512
    return LIMITED_TO_AVX2 if hardware().has_avx512 else AVX2
