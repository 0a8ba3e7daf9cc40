"""A program: prints the hidden states of prepared encoders, as JSON; run with oneDNN limited to some instructions."""

import json
import sys

from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.models.products.calibration import observe, observed_scales
from bertsmith.models.products.prepared import prepare
from model.examples import random_batch, shake, small_config

LENGTHS = ([9, 9], [5, 12, 12, 1])  # of one length, as the fast path needs, and of several


def states() -> dict[str, list[list[list[float]]]]:
    """The hidden states of each batch, by precision; "plain" are those of an encoder that is not prepared."""
    outputs = {}
    for name, runtime in {
        "plain": None,
        "fp32": Runtime(device="cpu", precision="fp32", products="packed"),
        "int8": Runtime(device="cpu", precision="int8", int8_bits=7),
    }.items():
        model, observed = _model(), _model()
        if runtime is not None:
            observe(observed)
            for lengths in LENGTHS:
                observed(random_batch(lengths))
            prepare(model, runtime, scales=observed_scales(observed))
        dtype = None if runtime is None else runtime.dtype
        outputs[name] = [model(random_batch(lengths), dtype=dtype).float().tolist() for lengths in LENGTHS]
    return outputs


def _model() -> TransformerEncoder:
    model = TransformerEncoder(small_config(num_hidden_layers=3, hidden_size=64, intermediate_size=128)).eval()
    shake(model)
    return model.requires_grad_(False)


if __name__ == "__main__":
    json.dump(states(), sys.stdout)
