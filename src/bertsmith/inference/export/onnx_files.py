"""The ONNX files of a model, in fp32 and int8, by the package onnx.

Source: `quantize_dynamic` of onnxruntime (int8 weights per column, dynamic uint8 activations).
"""

from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError
from bertsmith.inference.export.onnx_graph import graph_of
from bertsmith.inference.export.onnx_message import Graph
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.tasks.encoding.onnx_session import package
from bertsmith.tasks.task_data.spec_of_model import spec_of_head

# A protobuf file must stay below 2 GiB; everything but the weights takes a few thousand bytes.
LARGEST_FILE = 2**31 - 2**20
QUANTISED = ("MatMul", "Gather")


def onnx_model(graph: Graph) -> Any:
    """The graph with all its numbers as an `onnx.ModelProto`."""
    model = package("onnx").load_model_from_string(graph.message())
    large = graph.large
    for array in model.graph.initializer:
        if array.name in large:
            array.ClearField("external_data")
            array.ClearField("data_location")
            array.raw_data = large[array.name].tobytes()
    return model


def write_fp32(folder: ModelFolder, kind: str | None, path: Path, *, largest_file: int = LARGEST_FILE) -> None:
    """Writes the graph of a model; weights of more than `largest_file` bytes go into a second file next to it."""
    _write(_model_of(folder, kind), path, largest_file)


def _model_of(folder: ModelFolder, kind: str | None, *, tied: bool = True) -> Any:
    spec = spec_of_head(folder)
    reads = "pooler" if spec is None else spec.reads  # of a model of another tool the pooler
    return onnx_model(graph_of(folder.config, folder.tensors, kind, reads=reads, tied=tied))


def write_int8(
    folder: ModelFolder, kind: str | None, path: Path, *, reduced: bool, largest_file: int = LARGEST_FILE
) -> None:
    """Writes the graph with matrices and word embeddings in int8.

    Args:
        reduced: weights use 7 of their 8 bits, so that no sum of two products overflows 16 bits; see
            `needs_reduced_range`.
    """
    onnx, quantization = package("onnx"), package("onnxruntime.quantization")
    # The decoder of a masked-LM head is transposed and quantized per column, so it cannot share the word embeddings.
    graph = _model_of(folder, kind, tied=False)
    # There is nothing to fold or fuse beforehand; without this mark onnxruntime advises to try.
    onnx.helper.set_model_props(graph, {"onnx.quant.pre_process": "onnxruntime.quant"})
    plain = path.with_name(f"plain-{path.name}")
    outside = _write(graph, plain, largest_file)
    quantization.quantize_dynamic(
        plain,
        path,
        op_types_to_quantize=list(QUANTISED),
        per_channel=True,
        reduce_range=reduced,
        use_external_data_format=outside,
    )
    for file in (plain, _data_file(plain)):
        file.unlink(missing_ok=True)
    onnx.checker.check_model(str(path), full_check=True)


def _write(graph: Any, path: Path, largest_file: int) -> bool:
    """Writes a graph and checks it; returns whether the weights are in a separate file."""
    onnx = package("onnx")
    outside = sum(len(array.raw_data) for array in graph.graph.initializer) > largest_file
    onnx.save_model(
        graph,
        str(path),
        save_as_external_data=outside,
        all_tensors_to_one_file=True,
        location=_data_file(path).name,
    )
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise CheckpointError(
            expected=f"valid ONNX in {path.name}", found=str(error)[:300], fix="try another version of onnx"
        ) from None
    return outside


def _data_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")
