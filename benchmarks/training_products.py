"""The products of a training step in fp32 on a processor: oneDNN with packed weights against those of PyTorch (MKL).

    python benchmarks/training_products.py [--rounds 7] [--shapes 384x1536,1536x384]

For the shapes of linear layers in MiniLM and BERT-base (inputs x outputs), both sides compute the outputs, the gradient
of the inputs and the gradient of the weights of 1,024 tokens, in turns, in one thread. Weights change in every step, so
oneDNN packs them in each measurement, as it would in a step of one micro-batch. `step` is all three, with the weights
packed beforehand, as in a step of many micro-batches: the case that favours oneDNN most. The unit is milliseconds of
the processor; a ratio is that of PyTorch to oneDNN (above 1: oneDNN is faster), the median over the rounds with the
lowest and the highest. Before timing, the results are compared. A later call adds its shapes to the result.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn.functional as F
from harness import begun, interleave, ratio_summary, spread, write_result
from torch import Tensor

TOKENS = 1024
SHAPES = "384x1536,1536x384,768x768,768x3072,3072x768"
MOST_ERROR = 1e-5  # relative to the norm of the result
Side = Callable[[], list[Tensor]]


def packed(weight: Tensor) -> Tensor:
    """The weights [O, K] in the layout of oneDNN for `TOKENS` tokens."""
    blocks: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, TOKENS)
    return blocks


def multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product [T, O] by oneDNN of inputs [T, K] and weights [O, K], packed or not."""
    output: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return output


def sides(inputs: int, outputs: int) -> dict[str, dict[str, Side]]:
    """The two sides of each part of a step for a layer of this shape, by the name of the part."""
    source = torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(TOKENS, width, generator=source) for width in (inputs, outputs))
    weight, bias = torch.randn(outputs, inputs, generator=source), torch.randn(outputs, generator=source)
    forward, backward = packed(weight), packed(weight.T.contiguous())

    def plain_step() -> list[Tensor]:
        return [F.linear(x, weight, bias), gradient @ weight, gradient.T @ x]

    def onednn_step() -> list[Tensor]:
        return [multiplied(x, forward, bias), multiplied(gradient, backward, None), weights_of_onednn()[0]]

    def weights_of_onednn() -> list[Tensor]:
        return [multiplied(gradient.T.contiguous(), x.T.contiguous(), None)]

    return {
        "outputs": {
            "pytorch": lambda: [F.linear(x, weight, bias)],
            "onednn": lambda: [multiplied(x, packed(weight), bias)],
        },
        "gradient of the inputs": {
            "pytorch": lambda: [gradient @ weight],
            "onednn": lambda: [multiplied(gradient, packed(weight.T.contiguous()), None)],
        },
        "gradient of the weights": {"pytorch": lambda: [gradient.T @ x], "onednn": weights_of_onednn},
        "step": {"pytorch": plain_step, "onednn": onednn_step},
    }


def require_equal(part: Mapping[str, Side]) -> None:
    """Checks that both sides compute the same numbers."""
    for ours, theirs in zip(part["onednn"](), part["pytorch"](), strict=True):
        error = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
        assert error < MOST_ERROR, error


def main() -> None:
    """Times the shapes and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", default=SHAPES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    about, name, cells = begun("training_products")
    for shape in options.shapes.split(","):
        for part, ways in sides(*map(int, shape.split("x"))).items():
            require_equal(ways)
            taken = interleave(ways, options.rounds, clock=time.process_time)
            cells[f"{shape}, {part}"] = {
                "milliseconds": {key: spread([1e3 * second for second in seconds]) for key, seconds in taken.items()},
                "times_as_fast": ratio_summary(taken["onednn"], taken["pytorch"]),
            }
            print(shape, part, cells[f"{shape}, {part}"]["times_as_fast"], flush=True)
        write_result(
            name, {"machine": about, "tokens": TOKENS, "unit": "milliseconds of the processor", "cells": cells}
        )


if __name__ == "__main__":
    main()
