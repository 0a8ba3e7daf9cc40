"""Load a `Model` from any supported source; an ONNX folder needs no torch."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.app.library.inspection import verify_model
from bertsmith.app.library.model import Model
from bertsmith.app.library.opening import Opening
from bertsmith.app.library.record_models import ModelWithRecords, RecordModel
from bertsmith.base.core.registry import Registry
from bertsmith.base.core.requests import parameters_named, require_path
from bertsmith.base.machine.runtime import require_torch
from bertsmith.base.storage.files import read_json
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads, said_weak
from bertsmith.inference.predictors.request import EvaluateRequest
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.hub import model_name
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.onnx_folder import is_onnx_folder, read_onnx_folder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.model_files.metadata import SIMILARITY, ModelMetadata, read_metadata
from bertsmith.tasks.task_data.spec_of_model import spec_of

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead

Served = Model | RecordModel | ModelWithRecords
# What opens models that answer about records, by their `model_type` or by the objective of their pre-training.
_OPENERS = Registry[Callable[..., Served]](
    {
        "g-bert": "app.library.codes:served_codes",
        "memory-network": "app.library.memory:served_memory",
        "text+codes": "app.library.video:served_texts_with_codes",
    }
)
_CONFIG = "config.json"
_NAMED = re.compile(r"([\w.-]+)=(.+)")


@parameters_named(dataclasses.fields(EvaluateRequest))
def load(
    source: str | Path,
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
    verify: bool = False,
) -> Model:
    """The model of a folder (ours, transformers, sentence-transformers or ONNX), run, Google checkpoint or hub id.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: fp32, bf16, int8 and the like; outputs are always fp32.
        products: how linear layers are computed: "packed" (weights packed by oneDNN, with what follows fused), "plain"
            (by torch alone), or "auto", which is packed where this processor supports it. In fp32 the numbers differ by
            at most 1e-5.
        head: the class of your own head that the model was fine-tuned with, if it was.
        verify: first compare every file of the model with its digest in `bertsmith.json`.

    Raises:
        InputError, CheckpointError, VocabularyError: the model is missing or unreadable.
        ConfigError: the device is not available, the precision is unknown, `head` is not the class of a head, or the
            model needs torch, which is not installed.
    """
    require_path(source, "the model")
    if verify:
        verify_model(source)
    options: dict[str, Any] = {"device": device, "precision": precision, "products": products, "head": head}
    model = _loaded(source, **options)
    model.opening = Opening(load, source, options)
    return model


def open_model(source: str | Path, **options: Any) -> Served:
    """A model that `load` opens, or one that answers about records.

    Args:
        options: the other arguments of `load`.
    """
    kind = next((kind for kind in _kinds_of(Path(source)) if kind in _OPENERS), None)
    if kind is None:
        return load(source, **options)
    require_torch(source)
    return _OPENERS[kind](source, **options)


def _kinds_of(path: Path) -> tuple[str, ...]:
    """The `model_type` and the objective that the files of a model folder, or of the one in a run, say."""
    folder = path if (path / _CONFIG).is_file() else path / "model"
    values = read_json(folder / _CONFIG) if (folder / _CONFIG).is_file() else None
    if not isinstance(values, Mapping):
        return ()
    return str(values.get("model_type", "")), read_metadata(folder).objective or ""


def _loaded(source: str | Path, *, head: "type[OwnHead] | None", **options: Any) -> Model:
    """The model; see `load`."""
    name = model_name(source)
    if head is not None:
        return Model(name, predictor=said_weak(load_predictor(source, head=head, **options), source))
    if read_recipe(Path(source)) is not None and not _keeps_heads(read_metadata(Path(source))):
        return Model(name, embedder=load_embedder(source, **options))
    if is_onnx_folder(source):
        exported = read_onnx_folder(source)
        if exported.metadata.spec is not None:
            return Model(name, predictor=said_weak(load_predictor(exported, **options), source))
        pretrained = load_pretraining_heads(exported, **options)
        if {"mlm", "nsp"}.isdisjoint(exported.shape.parts):
            return Model(name, embedder=Embedder(pretrained.engine.encoder(exported.tokenizer)))
        return Model(name, pretrained=pretrained, parts=exported.shape.parts)
    require_torch(source)
    from bertsmith.tasks.encoding.loading import load_frozen_encoder

    folder = load_any(source)
    if read_recipe(folder.path) is not None and not _keeps_heads(folder.metadata):
        return Model(name, embedder=load_embedder(folder.path, **options))
    folder.require_tokenizer()
    spec = spec_of(folder)
    if spec is not None and spec.kind != SIMILARITY:
        return Model(name, predictor=said_weak(load_predictor(folder, **options), folder.path))
    if {"mlm", "nsp"}.isdisjoint(folder.parts):
        return Model(name, embedder=Embedder(load_frozen_encoder(folder, **options)))
    return Model(name, pretrained=load_pretraining_heads(folder, **options), parts=folder.parts)


def _keeps_heads(metadata: ModelMetadata) -> bool:
    """Whether a folder of sentence-transformers is a model of ours that learned its vectors in pre-training."""
    return metadata.gives_vectors and metadata.task == "pretraining"


def name_and_source(text: str) -> tuple[str | None, str]:
    """The name and the source of NAME=SOURCE; no name for a source alone, also if its path exists and contains `=`.

    In a source `~` is the home folder, which a shell does not write out after NAME=.

    >>> name_and_source("mine=runs/a=b/model"), name_and_source("runs/a=b/model")
    (('mine', 'runs/a=b/model'), (None, 'runs/a=b/model'))
    """
    match = None if Path(text).exists() else _NAMED.fullmatch(text)
    name, source = (None, text) if match is None else match.groups()
    return name, os.path.expanduser(source)


def require_torch_if_needed(models: Sequence[str]) -> None:
    """Raises ConfigError if torch is missing, before any of several models is loaded, unless all are ONNX folders."""
    for _, source in map(name_and_source, models):
        if not is_onnx_folder(source):
            require_torch(source)
