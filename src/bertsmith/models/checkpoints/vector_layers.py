"""Layers that a sentence-transformers folder applies to the vector of a text, after its pooling: `Dense`, `LayerNorm`.

Letters: E texts, D width of a layer's input, K of its output.

Source: Reimers and Gurevych (2019), "Sentence-BERT"; the modules of these names in sentence-transformers.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.storage.files import digest_file, read_object

Floats = npt.NDArray[np.float32]

_ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "Tanh": np.tanh,
    "Identity": lambda vectors: vectors,
    "ReLU": lambda vectors: np.maximum(vectors, 0),
    "Sigmoid": lambda vectors: np.asarray(0.5 * (1 + np.tanh(0.5 * vectors)), np.float32),
}
_WEIGHTS = "model.safetensors"
_EPSILON = 1e-5  # of LayerNorm in torch
_INPUTS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class VectorLayer:
    """A layer.

    Attributes:
        width: K.
        inputs: D.
        digest: of its file of weights.
        apply: returns the vectors [E, K] of vectors [E, D].
    """

    width: int
    inputs: int
    digest: str
    apply: Callable[[Floats], Floats]


def read_layers(modules: Sequence[tuple[str, Path]]) -> tuple[VectorLayer, ...]:
    """The layers of modules, each with its kind and its folder."""
    layers = [_READERS[kind](folder) for kind, folder in modules]
    for (_, folder), layer, before in zip(modules[1:], layers[1:], layers, strict=False):
        if layer.inputs != before.width:
            raise CheckpointError(
                expected=f"a layer of {before.width} inputs in '{folder}'",
                found=str(layer.inputs),
                fix="download the folder again",
            )
    return tuple(layers)


def _dense(folder: Path) -> VectorLayer:
    said = read_object(folder / "config.json")
    sizes = {name: said.get(name) for name in ("in_features", "out_features", "bias", "use_residual")}
    activation = str(said.get("activation_function", "torch.nn.modules.activation.Tanh"))
    rest = {name: value for name, value in said.items() if name not in (*sizes, "activation_function")}
    if not activation.startswith("torch.nn.") or activation.rpartition(".")[2] not in _ACTIVATIONS:
        raise _unsupported(folder, f"an activation among {', '.join(_ACTIVATIONS)}", activation)
    if other := [name for name, value in rest.items() if value not in (None, _INPUTS.get(name))]:
        raise _unsupported(folder, f"no {other[0]} but the usual one", repr(rest[other[0]]))
    activate = _ACTIVATIONS[activation.rpartition(".")[2]]
    shape = (sizes["out_features"], sizes["in_features"])
    names: dict[str, tuple[Any, ...]] = {"linear.weight": shape}
    if sizes["bias"] is not False:
        names["linear.bias"] = shape[:1]
    is_residual = sizes["use_residual"] is True
    if is_residual and shape[0] != shape[1]:
        names["residual.weight"] = shape
    tensors, digest = _tensors(folder, names)

    def apply(vectors: Floats) -> Floats:
        made = vectors @ tensors["linear.weight"].T + tensors.get("linear.bias", np.float32(0))
        result = activate(made)
        if is_residual:
            weight = tensors.get("residual.weight")
            result = result + (vectors if weight is None else vectors @ weight.T)
        return np.asarray(result, np.float32)

    width, inputs = tensors["linear.weight"].shape
    return VectorLayer(width=width, inputs=inputs, digest=digest, apply=apply)


def _layer_norm(folder: Path) -> VectorLayer:
    said = read_object(folder / "config.json")
    shape = (said.get("dimension"),)
    tensors, digest = _tensors(folder, {"norm.weight": shape, "norm.bias": shape})

    def apply(vectors: Floats) -> Floats:
        exact = vectors.astype(np.float64)
        centered = exact - exact.mean(axis=1, keepdims=True)
        normed = centered / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + _EPSILON)
        return np.asarray(normed * tensors["norm.weight"] + tensors["norm.bias"], np.float32)

    (width,) = tensors["norm.weight"].shape
    return VectorLayer(width=width, inputs=width, digest=digest, apply=apply)


_READERS: Mapping[str, Callable[[Path], VectorLayer]] = {"Dense": _dense, "LayerNorm": _layer_norm}
LAYERS = tuple(_READERS)


def _tensors(folder: Path, names: Mapping[str, tuple[Any, ...]]) -> tuple[dict[str, Floats], str]:
    """The tensors of these names and shapes, float32, and the digest of their file."""
    path = folder / _WEIGHTS
    if not path.is_file():
        raise _unsupported(folder, f"weights in {_WEIGHTS}", "none")
    try:
        tensors = {name: np.asarray(tensor, np.float32) for name, tensor in load_file(path).items()}
    except (SafetensorError, TypeError) as error:
        raise _unsupported(folder, f"float weights in {_WEIGHTS}", str(error)[:100]) from None
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes != dict(names):
        raise CheckpointError(
            expected=f"{', '.join(f'{name} {list(shape)}' for name, shape in names.items())} in '{path}'",
            found=", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "none",
            fix="download the folder again",
        )
    return tensors, digest_file(path)


def _unsupported(folder: Path, expected: str, found: str) -> CheckpointError:
    return CheckpointError(
        expected=f"{expected} in '{folder}'",
        found=found[:100],
        fix="use the model with sentence-transformers, or only the folder of its encoder",
    )
