"""The models of several low-rank adapters that share the weights of one encoder, to be computed together."""

from collections.abc import Mapping
from pathlib import Path

from bertsmith.app.library.model import Model
from bertsmith.base.machine.runtime import Runtime, choose_inference
from bertsmith.inference.predictors.loading import said_weak, served_as
from bertsmith.inference.predictors.torch_loading import adapted_predictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.models.checkpoints.adapters import read_adapter
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.int8_scales import recorded_int8
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.sentence_transformers import MODULES
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import SIMILARITY
from bertsmith.models.parts.part_names import part_of
from bertsmith.models.products.adapted import SharedEncoder, can_adapt
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.task_data.spec_of_model import spec_of

_UNUSED_HEAD = Head(part="classifier", outputs=1, pooled=False)


def load_adapted(
    base: str, paths: Mapping[str, Path], *, device: str = "auto", precision: str = "fp32", products: str = "auto"
) -> dict[str, Model]:
    """The models of those adapters that can share an encoder, by name; none if fewer than two can.

    Left out are adapters in folders of sentence-transformers, of pre-training heads, of left-to-right models and
    DeBERTa, of other layers than the linear ones, and those that bring pieces of their own: `load` merges each of them
    into weights of its own.

    Args:
        base: the model of all of them.
        paths: their folders, by the names of the models.
        device, precision, products: as in `load`.
    """
    folder = load_any(base)
    encoder = load_for_task(folder, _UNUSED_HEAD, keep_head=False, parameters="mapped").model.encoder
    adapters = {name: read_adapter(folder, path) for name, path in paths.items()}
    weights = {name: tensor for name, tensor in folder.tensors.items() if part_of(name) is None}
    chosen = {
        name: adapter
        for name, adapter in adapters.items()
        if can_adapt(encoder, adapter.products)
        and all(adapter.folder.tensors[name] is tensor for name, tensor in weights.items())
        and not (adapter.folder.path / MODULES).exists()
        and (_is_of_task(adapter.folder) or {"mlm", "nsp"}.isdisjoint(adapter.folder.parts))
    }
    if len(chosen) < 2:
        return {}
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    kept = recorded_int8(folder, runtime).kept
    scaled = [
        {name: (first, adapter.scale * second) for name, (first, second) in adapter.products.items()}
        for adapter in chosen.values()
    ]
    shared = SharedEncoder(encoder, scaled, runtime, kept)
    models = {}
    for number, (name, adapter) in enumerate(chosen.items()):
        with served_as(name):
            models[name] = _model(name, adapter.folder, shared, number, runtime)
    return models


def _is_of_task(folder: ModelFolder) -> bool:
    spec = spec_of(folder)
    return spec is not None and spec.kind != SIMILARITY


def _model(name: str, folder: ModelFolder, shared: SharedEncoder, number: int, runtime: Runtime) -> Model:
    if _is_of_task(folder):
        return Model(name, predictor=said_weak(adapted_predictor(folder, shared, number, runtime), folder.path))
    loaded = load_for_task(folder, _UNUSED_HEAD, keep_head=False, parameters="mapped")
    encoder = FrozenEncoder(
        shared.view(number, getattr(loaded.model.encoder, "pooler", None)),
        loaded.tokenizer,
        runtime,
        has_pooler=folder.config.can_pool and "pooler" not in loaded.new_parts,
    )
    return Model(name, embedder=Embedder(encoder))
