"""A program: prints as JSON what is chosen for int8 and bf16 here, and how far products in int8 are off."""

import json
import sys

import torch

from bertsmith.base.machine.runtime import choose_inference
from bertsmith.models.products.int8_linear import FixedInt8Linear, InputScale, Int8Linear


def choices() -> dict[str, object]:
    """The choices by precision, and the largest error of products in int8, as a share of the exact ones."""
    chosen = {precision: choose_inference("cpu", precision) for precision in ("auto", "bf16", "int8")}
    int8, errors = chosen["int8"], []
    if int8.precision == "int8":
        weight, bias, x = torch.full((16, 64), 0.5), torch.zeros(16), torch.full((3, 64), 2.0)
        fixed = FixedInt8Linear(weight, bias, bits=int8.int8_bits, scale=InputScale(0.0, 2.0), dtype=int8.dtype)
        for layer in (Int8Linear(weight, bias, bits=int8.int8_bits), fixed):
            for plus in (None, torch.zeros(3, 16, dtype=int8.dtype)):
                errors.append(float((layer(x.to(int8.dtype), plus=plus).float() / 64 - 1).abs().max()))
    return {
        "errors": errors,
        "bits": int8.int8_bits,
        **{name: [runtime.precision, runtime.activations, runtime.note] for name, runtime in chosen.items()},
    }


if __name__ == "__main__":
    json.dump(choices(), sys.stdout)
