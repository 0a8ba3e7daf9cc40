"""Loads torch models for inference, from a model folder, a Google checkpoint or a hub id."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertsmith.base.machine.runtime import Runtime, choose_inference
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor, relation_of, require_heads
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained
from bertsmith.models.checkpoints.int8_scales import recorded_int8
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder, no_vocabulary
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.products.adapted import SharedEncoder
from bertsmith.models.products.int8_linear import InputScale
from bertsmith.models.products.prepared import prepare
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.spec_of_model import require_spec


def torch_predictor(
    source: str | Path | ModelFolder,
    *,
    device: str,
    precision: str,
    products: str,
    kept: Sequence[str] | None,
    scales: Mapping[str, InputScale] | None,
    head: type[OwnHead] | None,
) -> Predictor:
    """The predictor of a model in torch; see `loading.load_predictor`."""
    folder = source if isinstance(source, ModelFolder) else load_any(source)
    spec = require_spec(folder)
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    if kept is None:
        kept, scales, _ = recorded_int8(folder, runtime)
    task = task_for(spec)
    loaded = load_for_task(folder, dataclasses.replace(task.head, own=head), keep_head=True)
    prepare(loaded.model.to(runtime.torch_device), runtime, kept, scales)
    predictor = Predictor(loaded.model, task, loaded.tokenizer, runtime)
    predictor.describe(folder.path, folder.metadata)
    return predictor


def adapted_predictor(folder: ModelFolder, shared: SharedEncoder, adapter: int, runtime: Runtime) -> Predictor:
    """The predictor of a model whose encoder is a shared one with one of its adapters.

    Args:
        folder: the model, with the heads of the adapter.
        adapter: its number.
    """
    task = task_for(require_spec(folder))
    loaded = load_for_task(folder, task.head, keep_head=True, parameters="mapped")
    loaded.model.put_encoder(shared.view(adapter, getattr(loaded.model.encoder, "pooler", None)))
    predictor = Predictor(loaded.model, task, loaded.tokenizer, runtime)
    predictor.describe(folder.path, folder.metadata)
    return predictor


def torch_pretraining_heads(
    source: str | Path | ModelFolder, *, device: str, precision: str, products: str, needs: Sequence[str]
) -> PretrainedPredictor:
    """A predictor with pre-training heads in torch; see `loading.load_pretraining_heads`."""
    folder = load_any(source)
    loaded = load_pretrained(folder)
    name = source.name if isinstance(source, ModelFolder) else source
    require_heads(folder.parts, needs, name)
    if loaded.tokenizer is None:
        raise no_vocabulary(name)
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    kept, scales, _ = recorded_int8(folder, runtime)
    prepare(loaded.model.to(runtime.torch_device), runtime, kept, scales)
    return PretrainedPredictor(loaded.model, loaded.tokenizer, runtime, relation_of(folder.metadata.objective))
