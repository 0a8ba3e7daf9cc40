"""ONNX files: writing a graph to disk, its int8 version, and a session that runs one.

Source: `quantize_dynamic` of onnxruntime (int8 weights per column, dynamic uint8 activations).
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.errors import CheckpointError
from bertsmith.export.check import Runner
from bertsmith.export.onnx_graph import build_graph, package
from bertsmith.runtime import choose_inference
from bertsmith.tasks.spec_of_model import spec_of

MODEL, INT8_MODEL = "model.onnx", "model_int8.onnx"
# A protobuf file must stay below 2 GiB; everything but the weights takes a few thousand bytes.
LARGEST_FILE = 2**31 - 2**20
QUANTISED = ("MatMul", "Gather")


def write_fp32(folder: ModelFolder, kind: str | None, path: Path, *, largest_file: int = LARGEST_FILE) -> None:
    """Writes the graph of a model; weights of more than `largest_file` bytes go into a second file next to it.

    Args:
        kind: the kind of task of the model's head; None for a pre-trained model or a bare encoder.

    Raises:
        ConfigError: onnx is not installed.
        CheckpointError: the graph is not valid ONNX.
    """
    _write(build_graph(folder.config, folder.tensors, kind, reads=_reads(folder)), path, largest_file)


def _reads(folder: ModelFolder) -> str:
    """What the head of the model reads; the pooler for a model of another tool."""
    spec = spec_of(folder)
    return "pooler" if spec is None else spec.reads


def write_int8(
    folder: ModelFolder, kind: str | None, path: Path, *, reduced: bool, largest_file: int = LARGEST_FILE
) -> None:
    """Writes the graph with matrices and word embeddings in int8.

    Args:
        reduced: weights use 7 of their 8 bits, so that no sum of two products overflows 16 bits; see
            `needs_reduced_range`.

    Raises:
        ConfigError: onnx or onnxruntime is not installed.
        CheckpointError: the graph is not valid ONNX.
    """
    onnx, quantization = package("onnx"), package("onnxruntime.quantization")
    # The decoder of a masked-LM head is transposed and quantized per column, so it cannot share the word embeddings.
    graph = build_graph(folder.config, folder.tensors, kind, reads=_reads(folder), tied=False)
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


def needs_reduced_range() -> bool:
    """Whether this processor adds two uint8 x int8 products in 16 bits, where large sums saturate.

    This is the case on x86 without VNNI. If unknown, the answer is yes, which costs one bit.
    """
    runtime = choose_inference("cpu", "int8")
    return runtime.precision != "int8" or runtime.int8_bits == 7


def session_runner(path: Path) -> Runner:
    """A runner of an ONNX file on padded batches: maps arrays by input name to arrays by output name.

    Raises:
        ConfigError: onnxruntime is not installed.
        CheckpointError: onnxruntime cannot load or run the file.
    """
    onnxruntime = package("onnxruntime")
    # onnxruntime has one exception class per status code, without a common base.
    names_there = vars(onnxruntime.capi.onnxruntime_pybind11_state).values()
    failures: tuple[type[Exception], ...] = tuple(
        value for value in names_there if isinstance(value, type) and issubclass(value, Exception)
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session: Any = None

    def refuse(error: BaseException) -> CheckpointError:
        return CheckpointError(
            expected=f"{path.name} to run in onnxruntime {onnxruntime.__version__}",
            found=str(error)[:300],
            fix="try another version of onnxruntime",
        )

    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except failures as error:
        raise refuse(error) from None
    names = [output.name for output in session.get_outputs()]
    asked = [one.name for one in session.get_inputs()]

    def run(inputs: dict[str, npt.NDArray[np.int64]]) -> dict[str, npt.NDArray[np.float32]]:
        try:
            found = session.run(names, {name: inputs[name] for name in asked})
        except failures as error:
            raise refuse(error) from None
        return dict(zip(names, found, strict=True))

    return run


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
