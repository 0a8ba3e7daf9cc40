"""Attention on a processor: two batched products against the fused kernel of PyTorch.

    python benchmarks/attention_products.py [--precision bf16|fp32] [--rounds 7]

For some shapes of a run (sequences of one length, heads, width of a head), two products and
`torch.nn.functional.scaled_dot_product_attention` compute the same context vectors, in turns, in one thread: in bf16
those of `attention_in_parts` in `models/parts/attention.py`, without and with gradients, and in fp32 those of
`attend_by_sequence`, without gradients and at lengths that are a multiple of 16 or not.
The unit is milliseconds of the processor; the ratio is that of the fused kernel to the products, the median over the
rounds with the lowest and the highest. Before timing, both are compared with fp64.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn.functional as F
from harness import RESULTS, machine, machine_label, write_result
from torch import Tensor

from bertsmith.models.parts.attention import attend_by_sequence, attention_in_parts

SHAPES_IN_FP32 = tuple(
    (1536 // length, length, 12, width)
    for width in (32, 64)
    for length in (18, 20, 22, 24, 28, 31, 32, 33, 40, 47, 48, 63, 64, 72, 95, 104, 127, 128, 150, 175, 200, 255, 300)
)
SHAPES = (
    (1, 20, 8, 32),
    (16, 128, 8, 32),
    (48, 32, 12, 32),
    (10, 148, 12, 32),
    (4, 384, 12, 32),
    (48, 32, 12, 64),
    (8, 128, 12, 64),
    (2, 512, 12, 64),
)
MOST_ERROR = {"bf16": 0.02, "fp32": 1e-6}  # of the norm of the context vectors
LEAST_SECONDS = 0.1  # of one measurement

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two batched products."""
    return attention_in_parts(query, key, value)


def by_sequence(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two products for each sequence."""
    return attend_by_sequence(query, key, value)


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The kernel of PyTorch."""
    return F.scaled_dot_product_attention(query, key, value)


def inputs(shape: tuple[int, int, int, int], dtype: torch.dtype) -> list[Tensor]:
    """Query, key, value and the gradient of the context vectors, as the encoder has them: views of flat rows."""
    rows, length, heads, width = shape
    source = torch.Generator().manual_seed(1)
    drawn = [torch.randn(rows * length, heads * width, generator=source).to(dtype) for _ in range(4)]
    return [tensor.view(rows, length, heads, width).transpose(1, 2) for tensor in drawn]


def milliseconds(attention: Attention, tensors: list[Tensor], *, with_gradients: bool) -> float:
    """The time of one call, after a first one."""
    *operands, gradient = tensors
    operands = [operand.detach().requires_grad_(with_gradients) for operand in operands]

    def call() -> None:
        context = attention(*operands)
        if with_gradients:
            torch.autograd.grad(context, operands, gradient)

    call()
    start, calls = time.process_time(), 0
    while time.process_time() - start < LEAST_SECONDS:
        call()
        calls += 1
    return 1e3 * (time.process_time() - start) / calls


def main() -> None:
    """Times all shapes and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--precision", choices=sorted(MOST_ERROR), default="bf16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about, cases = machine(), {}
    is_bf16 = options.precision == "bf16"
    ours: Attention = products if is_bf16 else by_sequence
    shapes = itertools.product(SHAPES, (False, True)) if is_bf16 else itertools.product(SHAPES_IN_FP32, (False,))
    for shape, with_gradients in shapes:
        tensors = inputs(shape, torch.bfloat16 if is_bf16 else torch.float32)
        exact = fused(*(tensor.double() for tensor in tensors[:3]))
        for attention in (ours, fused):
            error = float((attention(*tensors[:3]).double() - exact).norm() / exact.norm())
            assert error < MOST_ERROR[options.precision], (attention, shape, error)
        taken = [
            [milliseconds(attention, tensors, with_gradients=with_gradients) for attention in (ours, fused)]
            for _ in range(options.rounds)
        ]
        ratios = sorted(other / own_time for own_time, other in taken)
        name = f"{shape[0]} sequences of {shape[1]} tokens, {shape[2]} heads of {shape[3]}"
        name += ", with gradients" if with_gradients else ""
        cases[name] = {
            "products": round(statistics.median(own_time for own_time, _ in taken), 3),
            "fused": round(statistics.median(other for _, other in taken), 3),
            "ratio": [round(statistics.median(ratios), 2), round(ratios[0], 2), round(ratios[-1], 2)],
        }
        print(name, cases[name], flush=True)
    kind = "attention_products" if is_bf16 else "attention_products_fp32"
    name = f"{kind}_{machine_label(about)}_torch-{torch.__version__}"
    write_result(name, {"machine": about, "unit": "milliseconds of the processor", "cases": cases})
    print(f"written: {RESULTS / name}.json")


if __name__ == "__main__":
    main()
