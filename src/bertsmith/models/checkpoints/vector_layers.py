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

IDENTITY = "Identity"
_ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "Tanh": np.tanh,
    IDENTITY: lambda vectors: vectors,
    "ReLU": lambda vectors: np.maximum(vectors, 0),
    "Sigmoid": lambda vectors: np.asarray(0.5 * (1 + np.tanh(0.5 * vectors)), np.float32),
}
_WEIGHTS = "model.safetensors"
_EPSILON = 1e-5  # of LayerNorm in torch
_OF_DENSE = ("in_features", "out_features", "bias", "use_residual", "activation_function")
_VECTORS = "sentence_embedding"  # what a module reads and gives, if it does not say


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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """What a `Dense` has: it gives a(W x + b), or a(W x + b) + R x.

    Attributes:
        weight: W, float32 [K, D].
        bias: b, float32 [K]; None without one.
        residual: R, float32 [K, D]; None without one.
        activation: a, the name of its class in torch.
    """

    weight: Floats
    bias: Floats | None
    residual: Floats | None
    activation: str


def _arrays(folder: Path) -> Mapping[str, Floats]:
    """The tensors of a folder, float32."""
    path = folder / _WEIGHTS
    if not path.is_file():
        names = sorted(file.name for file in folder.glob("*.bin"))
        raise CheckpointError(
            expected=f"weights in {_WEIGHTS} in '{folder}'",
            found=f"only {', '.join(names)}" if names else "none",
            fix="save the model again with sentence-transformers (its save_pretrained writes safetensors)"
            if names
            else "download the model again",
        )
    try:
        return {name: np.asarray(tensor, np.float32) for name, tensor in load_file(path).items()}
    except (SafetensorError, TypeError) as error:
        raise _unsupported(folder, f"float weights in {_WEIGHTS}", str(error)[:100]) from None


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


def read_dense(folder: Path, vectors: str = _VECTORS, read: Callable[[Path], Mapping[str, Floats]] = _arrays) -> Dense:
    """The weights of a `Dense`.

    Args:
        vectors: what it has to read and give, those of texts or of tokens.
        read: returns the tensors of the folder, float32.
    """
    said = read_object(folder / "config.json")
    shape = (said.get("out_features"), said.get("in_features"))
    activation = str(said.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.") or name not in _ACTIVATIONS:
        raise _unsupported(folder, f"an activation among {', '.join(_ACTIVATIONS)}", activation)
    usual = dict.fromkeys(("module_input_name", "module_output_name"), vectors)
    rest = {key: value for key, value in said.items() if key not in _OF_DENSE}
    if other := [key for key, value in rest.items() if value not in (None, usual.get(key))]:
        raise _unsupported(folder, f"no {other[0]} but the usual one", repr(rest[other[0]]))
    is_residual = said.get("use_residual") is True
    names: dict[str, tuple[Any, ...]] = {"linear.weight": shape}
    if said.get("bias") is not False:
        names["linear.bias"] = shape[:1]
    if is_residual and shape[0] != shape[1]:
        names["residual.weight"] = shape
    tensors = _of_shapes(read(folder), names, folder)
    weight = tensors["linear.weight"]
    residual = tensors.get("residual.weight", np.eye(len(weight), dtype=np.float32)) if is_residual else None
    return Dense(weight=weight, bias=tensors.get("linear.bias"), residual=residual, activation=name)


def _dense(folder: Path) -> VectorLayer:
    dense = read_dense(folder)

    def apply(vectors: Floats) -> Floats:
        result = vectors @ dense.weight.T
        result = _ACTIVATIONS[dense.activation](result if dense.bias is None else result + dense.bias)
        return np.asarray(result if dense.residual is None else result + vectors @ dense.residual.T, np.float32)

    width, inputs = dense.weight.shape
    return VectorLayer(width=width, inputs=inputs, digest=digest_file(folder / _WEIGHTS), apply=apply)


def _layer_norm(folder: Path) -> VectorLayer:
    said = read_object(folder / "config.json")
    shape = (said.get("dimension"),)
    tensors = _of_shapes(_arrays(folder), {"norm.weight": shape, "norm.bias": shape}, folder)

    def apply(vectors: Floats) -> Floats:
        exact = vectors.astype(np.float64)
        centered = exact - exact.mean(axis=1, keepdims=True)
        normed = centered / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + _EPSILON)
        return np.asarray(normed * tensors["norm.weight"] + tensors["norm.bias"], np.float32)

    (width,) = tensors["norm.weight"].shape
    return VectorLayer(width=width, inputs=width, digest=digest_file(folder / _WEIGHTS), apply=apply)


_READERS: Mapping[str, Callable[[Path], VectorLayer]] = {"Dense": _dense, "LayerNorm": _layer_norm}
LAYERS = tuple(_READERS)


def _of_shapes(
    tensors: Mapping[str, Floats], names: Mapping[str, tuple[Any, ...]], folder: Path
) -> Mapping[str, Floats]:
    """The tensors of a folder, which must have these names and shapes."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if shapes != dict(names):
        raise CheckpointError(
            expected=f"{', '.join(f'{name} {list(shape)}' for name, shape in names.items())} in '{folder}'",
            found=", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "none",
            fix="download the folder again",
        )
    return tensors


def _unsupported(folder: Path, expected: str, found: str) -> CheckpointError:
    return CheckpointError(
        expected=f"{expected} in '{folder}'",
        found=found[:100],
        fix="use the model with sentence-transformers, or only the folder of its encoder",
    )
