"""Layers that `torch.compile` computes: few graphs, whatever the lengths of the sequences.

What is compiled is all of a layer but attention: the products in front of it, and all that follows it. Between them,
attention is one call to the variable-length kernel of a GPU, or a loop over sequences of equal length, which would be
another graph for each batch. The number of tokens is a symbol of the graph, so that batches of any size share it, and
so do the layers: their parameters are inputs. Padding to a few sizes instead would compute tokens that are not read,
and be one graph for each size.

Dropout draws its noise outside, from the generator of its micro-batch, so a compiled run drops the same elements.
"""

import importlib.util
import shutil

import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import require
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.transformer import Layer, TransformerEncoder

REGIONS = ("project", "add_attention", "feed_forward")  # the methods of a layer that are compiled


def compile_layers(encoder: Encoder, device: str, backend: str = "inductor") -> None:
    """Has `torch.compile` compile the layers of an encoder, at first use; its parameters stay as they are."""
    require(
        isinstance(encoder, TransformerEncoder) and all(type(layer) is Layer for layer in encoder.stack),
        expected="an encoder with the layers of BERT, to compile them",
        found=encoder.config.display_name,
        fix="leave --compile out",
    )
    if backend == "inductor":
        _require_compiler(device)
    for layer in encoder.layers:
        for name in REGIONS:
            setattr(layer, name, torch.compile(getattr(layer, name), dynamic=True, backend=backend))


def _require_compiler(device: str) -> None:
    """Checks that there is what torch generates code for: Triton for a GPU, a C++ compiler for the CPU."""
    if device.startswith("cuda"):
        if importlib.util.find_spec("triton") is None:
            raise ConfigError(
                expected="the package triton, to compile for a GPU",
                found="none",
                fix="install it (pip install triton), or leave --compile out",
            )
    elif not (shutil.which("g++") or shutil.which("clang++")):
        raise ConfigError(
            expected="a C++ compiler, to compile for the CPU", found="none", fix="install g++, or leave --compile out"
        )
