"""The graph of a model folder, built in memory from its weights: a first answer without torch.

The graph is the one that `--to onnx` writes. ONNX Runtime loads it in a tenth of the time that torch takes to import,
and computes single texts as fast; torch is ahead where there is much to compute, in the ratio of `_MOST_PRODUCTS`.
What cannot be built here, or is damaged, is left to torch, which then says what is wrong.
"""

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import quiet
from bertsmith.inference.export.onnx_encoder import needs_library_tables
from bertsmith.inference.export.onnx_graph import graph_of
from bertsmith.models.checkpoints.hub import STARTER
from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.models.checkpoints.load import locate
from bertsmith.models.checkpoints.model_folder import ModelFolder, parts_of
from bertsmith.models.checkpoints.onnx_folder import OnnxFolder, OnnxShape
from bertsmith.models.checkpoints.weights import weight_file
from bertsmith.models.model_files.metadata import SAFETENSORS, ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.part_names import part_of
from bertsmith.tasks.encoding.onnx_session import BuiltGraph
from bertsmith.text.tokenizers.tokenizer import warn_of_casing

if TYPE_CHECKING:
    from torch import Tensor

# With fewer multiplications and additions of numbers by weights than this, torch is not worth its import.
_MOST_PRODUCTS = 2.5e11
_BYTES_PER_TOKEN = 4  # of English text, about


def encoder_graph(
    source: Path | str, *, characters: int, device: str, precision: str, products: str
) -> tuple[OnnxFolder, BuiltGraph] | None:
    """The encoder of a model folder as a graph; None if torch is there, is faster, or has to compute it.

    Args:
        characters: that are to be read, about.
    """
    folder = _read(source, device=device, precision=precision, products=products)
    if folder is None or folder.config.is_causal or _is_much(folder.config, characters):
        return None
    tensors = {name: tensor for name, tensor in folder.tensors.items() if part_of(name) in (None, "pooler")}
    metadata = dataclasses.replace(folder.metadata, task=None, spec=None)
    return _built(folder, tensors, None, "pooler", metadata)


def _read(source: Path | str, *, device: str, precision: str, products: str) -> ModelFolder | None:
    """A model folder with arrays of NumPy; None if it cannot be computed without torch, or torch is imported already.

    On a machine with a GPU, only torch can use it.
    """
    is_plain = precision == "fp32" and products == "auto" and isinstance(source, str | Path)
    on_processor = device == "cpu" or (device == "auto" and not any(Path("/dev").glob("nvidia*")))
    if not (is_plain and on_processor) or has_torch() or importlib.util.find_spec("onnxruntime") is None:
        return None
    if str(source) != STARTER and not Path(source).is_dir():
        return None
    try:
        with quiet():
            path, kind = locate(source)
            if kind != "huggingface" or weight_file(path).name != SAFETENSORS:
                return None
            folder = read_model_folder(path, as_arrays=True)
    except BertsmithError:
        return None
    if folder.tokenizer is None or not folder.config.has_graph or needs_library_tables(folder.config):
        return None
    warn_of_casing(folder.tokenizer, folder.name)
    return folder


def has_torch() -> bool:
    """Whether this process has imported torch, so that nothing is left to save."""
    return "torch" in sys.modules


def _is_much(config: EncoderConfig, characters: int) -> bool:
    """Whether texts of this length are so much to compute that torch, and its import, take less time."""
    width = config.hidden_size
    weights = config.num_hidden_layers * (4 * width + 2 * config.intermediate_size) * width
    return weights * characters / _BYTES_PER_TOKEN > _MOST_PRODUCTS


def _built(
    folder: ModelFolder, tensors: "Mapping[str, Tensor]", kind: str | None, reads: str, metadata: ModelMetadata
) -> tuple[OnnxFolder, BuiltGraph]:
    """What an engine needs of the export of a model with these tensors."""
    config = folder.config
    graph = graph_of(config, tensors, kind, reads=reads)
    exported = OnnxFolder(
        path=folder.path,
        shape=OnnxShape.of(config, parts_of(tensors, config)),
        tokenizer=folder.require_tokenizer(),
        metadata=metadata,
    )
    return exported, BuiltGraph(folder.path / SAFETENSORS, graph.message(), graph.large)
