"""The models of several low-rank adapters that share the weights of one encoder, to be computed together."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from bertsmith.app.library.model import Model
from bertsmith.base.machine.runtime import Runtime, choose_inference
from bertsmith.inference.predictors.loading import said_weak, served_as
from bertsmith.inference.predictors.torch_loading import adapted_predictor
from bertsmith.inference.vectors.loading import embedder_of
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.models.checkpoints.adapters import Adapter, read_adapter
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.int8_scales import recorded_int8
from bertsmith.models.checkpoints.late_interaction import is_late_interaction, read_late_recipe
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.sentence_transformers import SentenceRecipe, read_recipe
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import SIMILARITY
from bertsmith.models.model_files.tokenizer_files import lowercased
from bertsmith.models.parts.part_names import part_of
from bertsmith.models.products.adapted import SharedEncoder, can_adapt
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.task_data.spec_of_model import spec_of

_UNUSED_HEAD = Head(part="classifier", outputs=1, pooled=False)


def load_adapted(
    base: str, paths: Mapping[str, Path], *, device: str = "auto", precision: str = "fp32", products: str = "auto"
) -> dict[str, Model]:
    """The models of those adapters that can share an encoder, by name; none if fewer than two can.

    Left out are adapters of models of sparse vectors, of pre-training heads, of left-to-right models, of other layers
    than the linear ones, and those that bring pieces of their own: `load` merges each of them into weights of its own.

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
        and _is_shared(adapter.folder)
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
            models[name] = _model(name, adapter, base, shared, number, runtime)
    return models


def _is_shared(folder: ModelFolder) -> bool:
    """Whether nothing above the encoder of a model has to be computed with it, as heads of pre-training have."""
    recipe = _recipe_of(folder)
    if recipe is not None:
        return recipe.pieces is None and not recipe.is_table
    return _is_of_task(folder) or {"mlm", "nsp"}.isdisjoint(folder.parts)


def _recipe_of(folder: ModelFolder) -> SentenceRecipe | None:
    if folder.metadata.keeps_heads:
        return None
    return read_recipe(folder.path, pooled=not is_late_interaction(folder.path), layers=True)


def _is_of_task(folder: ModelFolder) -> bool:
    spec = spec_of(folder)
    return spec is not None and spec.kind != SIMILARITY


def _model(name: str, adapter: Adapter, base: str, shared: SharedEncoder, number: int, runtime: Runtime) -> Model:
    folder, recipe = adapter.folder, _recipe_of(adapter.folder)
    if recipe is None and _is_of_task(folder):
        return Model(name, predictor=said_weak(adapted_predictor(folder, shared, number, runtime), folder.path))
    if recipe is not None and recipe.lowercase and folder.tokenizer is not None:
        folder = dataclasses.replace(folder, tokenizer=lowercased(folder.tokenizer))
    loaded = load_for_task(folder, _UNUSED_HEAD, keep_head=False, parameters="mapped")
    encoder = FrozenEncoder(
        shared.view(number, getattr(loaded.model.encoder, "pooler", None)),
        loaded.tokenizer,
        runtime,
        base_digest=lambda: digest_of_tensors(load_any(base, adapter=folder.path).tensors),
        has_pooler=folder.config.can_pool and "pooler" not in loaded.new_parts,
    )
    if is_late_interaction(folder.path):
        return Model(name, embedder=TokenEmbedder(encoder, read_late_recipe(folder.path)))
    return Model(name, embedder=embedder_of(encoder, recipe, folder.path))
