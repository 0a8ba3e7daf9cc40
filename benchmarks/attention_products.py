"""Attention in bf16 on a processor: two batched products against the fused kernel of PyTorch.

    python benchmarks/attention_products.py [--rounds 7]

For some shapes of a run (sequences of one length, heads, width of a head), `attention_in_parts` of `model/attention.py`
and `torch.nn.functional.scaled_dot_product_attention` compute the same context vectors, without and with gradients, in
turns, in one thread. The unit is milliseconds of the processor; the ratio is that of the fused kernel to the products,
the median over the rounds with the lowest and the highest. Before timing, both are compared with fp64.
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

from bertsmith.model.attention import attention_in_parts

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
MOST_ERROR = 0.02  # of the norm of the context vectors
LEAST_SECONDS = 0.1  # of one measurement

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two batched products."""
    return attention_in_parts(query, key, value)


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The kernel of PyTorch."""
    return F.scaled_dot_product_attention(query, key, value)


def inputs(shape: tuple[int, int, int, int]) -> list[Tensor]:
    """Query, key, value and the gradient of the context vectors, as the encoder has them: views of flat rows."""
    rows, length, heads, width = shape
    source = torch.Generator().manual_seed(1)
    drawn = [torch.randn(rows * length, heads * width, generator=source).bfloat16() for _ in range(4)]
    return [one.view(rows, length, heads, width).transpose(1, 2) for one in drawn]


def milliseconds(attention: Attention, tensors: list[Tensor], *, with_gradients: bool) -> float:
    """The time of one call, after a first one."""
    *given, gradient = tensors
    given = [one.detach().requires_grad_(with_gradients) for one in given]

    def call() -> None:
        context = attention(*given)
        if with_gradients:
            torch.autograd.grad(context, given, gradient)

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
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    about, cases = machine(), {}
    for shape, with_gradients in itertools.product(SHAPES, (False, True)):
        tensors = inputs(shape)
        exact = fused(*(one.double() for one in tensors[:3]))
        for attention in (products, fused):
            error = float((attention(*tensors[:3]).double() - exact).norm() / exact.norm())
            assert error < MOST_ERROR, (attention, shape, error)
        taken = [
            [milliseconds(one, tensors, with_gradients=with_gradients) for one in (products, fused)]
            for _ in range(rounds)
        ]
        ratios = sorted(other / ours for ours, other in taken)
        name = f"{shape[0]} sequences of {shape[1]} tokens, {shape[2]} heads of {shape[3]}"
        name += ", with gradients" if with_gradients else ""
        cases[name] = {
            "products": round(statistics.median(ours for ours, _ in taken), 3),
            "fused": round(statistics.median(other for _, other in taken), 3),
            "ratio": [round(statistics.median(ratios), 2), round(ratios[0], 2), round(ratios[-1], 2)],
        }
        print(name, cases[name], flush=True)
    name = f"attention_products_{machine_label(about)}_torch-{torch.__version__}"
    write_result(name, {"machine": about, "unit": "milliseconds of the processor", "cases": cases})
    print(f"written: {RESULTS / name}.json")


if __name__ == "__main__":
    main()
