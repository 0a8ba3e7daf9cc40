"""The graph of a model folder, built in memory from its weights: a first answer without torch.

The graph is the one that `--to onnx` writes, but for the order of the weights in memory. ONNX Runtime loads it in a
tenth of the time that torch takes to import, and computes single texts as fast; torch is ahead where there is much to
compute. What cannot be built here, or is damaged, is left to torch, which then says what is wrong.
"""

import dataclasses
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bertsmith.base.core.errors import BertsmithError, ConfigError
from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.thresholds import thresholds_here
from bertsmith.base.storage.files import file_state
from bertsmith.inference.export.onnx_encoder import needs_library_tables
from bertsmith.inference.export.onnx_graph import graph_of
from bertsmith.models.checkpoints.load import load_any, locate
from bertsmith.models.checkpoints.model_folder import ModelFolder, parts_of
from bertsmith.models.checkpoints.onnx_folder import OnnxFolder, OnnxShape
from bertsmith.models.checkpoints.packaged import is_packaged
from bertsmith.models.checkpoints.weights import weight_file
from bertsmith.models.model_files.metadata import SAFETENSORS, ModelMetadata
from bertsmith.models.parts.head_inputs import CONCAT
from bertsmith.models.parts.part_names import BLOCKS, DECODER, OWN_HEAD, READER, part_of
from bertsmith.tasks.encoding.early_engine import Later
from bertsmith.tasks.encoding.onnx_session import BuiltGraph
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.spec_of_model import spec_of_head
from bertsmith.text.tokenizers.tokenizer import warn_of_casing

if TYPE_CHECKING:
    from torch import Tensor

_CHARACTERS_PER_TOKEN = 4  # of English text, about


class Built(NamedTuple):
    """What an engine needs of the export of a model, built from its folder, and when torch takes over."""

    folder: OnnxFolder
    graph: BuiltGraph
    later: Later


def encoder_graph(
    source: object, *, characters: int = 0, device: str = "auto", precision: str = "fp32", products: str = "auto"
) -> Built | None:
    """The encoder of a model folder as a graph; None if torch is there, is faster, or has to compute it.

    Args:
        source: a folder, or what `graph_folder` has read.
        characters: that are to be read, about.
    """
    folder = graph_folder(source, device=device, precision=precision, products=products)
    if folder is None or folder.config.is_causal or characters > _CHARACTERS_PER_TOKEN * _few_tokens(folder):
        return None
    return _without_task(folder, ("pooler",))


def task_graph(
    source: object, *, device: str = "auto", precision: str = "fp32", products: str = "auto"
) -> Built | None:
    """A fine-tuned model as a graph, see `encoder_graph`; None if torch is there, or has to compute it."""
    folder = graph_folder(source, device=device, precision=precision, products=products)
    if folder is None:
        return None
    try:
        spec = spec_of_head(folder)
    except BertsmithError:
        return None
    if spec is None or not {OWN_HEAD, DECODER, READER}.isdisjoint(folder.parts):
        return None
    head, config, tensors = task_for(spec).head, folder.config, folder.tensors
    lacks_pooler = head.uses_pooler(config) and config.can_pool and "bert.pooler.weight" not in tensors
    lacks_blocks = (head.reads == CONCAT) != (BLOCKS in folder.parts)
    rows = len(tensors.get(f"{head.part}.bias", ()))
    if head.has_reader or head.is_decoder or head.of_sentences or rows != head.outputs or lacks_pooler or lacks_blocks:
        return None
    labels = spec.labels or folder.metadata.labels
    metadata = dataclasses.replace(folder.metadata, task=spec.kind, spec=spec.to_dict(), labels=labels)
    try:
        return _built(folder, tensors, spec.kind, spec.reads, metadata)
    except ConfigError:  # no graph computes this encoder below this head
        return None


def heads_graph(
    source: object,
    needs: Sequence[str],
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> Built | None:
    """A model with its pre-training heads as a graph, see `encoder_graph`; None if torch has to compute it.

    Args:
        needs: the heads that must have been trained, "mlm" or "nsp".
    """
    folder = graph_folder(source, device=device, precision=precision, products=products)
    if folder is None or folder.config.is_causal:
        return None
    if not set(needs) <= set(folder.parts) or ("nsp" in needs and "pooler" not in folder.parts):
        return None
    return _without_task(folder, ("pooler", "mlm", "nsp"))


def graph_folder(source: object, *, device: str, precision: str, products: str) -> ModelFolder | None:
    """A model folder with arrays of NumPy; None if it cannot be computed without torch, or torch is imported already.

    On a machine with a GPU, only torch can use it.
    """
    if isinstance(source, ModelFolder):
        return source
    if precision != "fp32" or products != "auto" or has_torch() or not _is_installed("onnxruntime"):
        return None
    if device != "cpu" and (device != "auto" or any(Path("/dev").glob("nvidia*"))):
        return None
    if not isinstance(source, str | Path) or not (is_packaged(source) or Path(source).is_dir()):
        return None
    try:
        with quiet():
            path, kind = locate(source)
            path = path.absolute()  # torch may read it later, from another working directory
            if kind != "huggingface" or weight_file(path).name != SAFETENSORS:
                return None
            folder = load_any(path, as_arrays=True)
    except BertsmithError:
        return None
    if folder.tokenizer is None or not folder.config.has_graph or needs_library_tables(folder.config):
        return None
    warn_of_casing(folder.tokenizer, folder.name)
    return folder


def has_torch() -> bool:
    """Whether this process has imported torch, so that nothing is left to save."""
    return "torch" in sys.modules


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _few_tokens(folder: ModelFolder) -> int:
    """The most tokens for which torch is not worth its import; without limit if it is not installed."""
    if not _is_installed("torch"):
        return sys.maxsize
    width, inner = folder.config.hidden_size, folder.config.intermediate_size
    return int(thresholds_here().torch_products / (folder.config.num_hidden_layers * (4 * width + 2 * inner) * width))


def _without_task(folder: ModelFolder, parts: Sequence[str]) -> Built:
    """The encoder with those of its parts that were trained."""
    tensors = {name: tensor for name, tensor in folder.tensors.items() if part_of(name) in (None, *parts)}
    return _built(folder, tensors, None, "pooler", dataclasses.replace(folder.metadata, task=None, spec=None))


def _built(
    folder: ModelFolder, tensors: "Mapping[str, Tensor]", kind: str | None, reads: str, metadata: ModelMetadata
) -> Built:
    config = folder.config
    graph = graph_of(config, tensors, kind, reads=reads, in_memory=True)
    exported = OnnxFolder(
        path=folder.path,
        shape=OnnxShape.of(config, parts_of(tensors, config)),
        tokenizer=folder.require_tokenizer(),
        metadata=metadata,
    )
    content = BuiltGraph(folder.path / SAFETENSORS, graph.message(), graph.large)
    later = Later(
        tokens=_few_tokens(folder),
        small=thresholds_here().graph_tokens,
        is_there=_is_installed("torch"),
        attention_maps=config.attention_maps,
        weights=content.path,
        state=file_state(content.path),
    )
    return Built(exported, content, later)
