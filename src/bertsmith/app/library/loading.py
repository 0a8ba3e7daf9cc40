"""Load a `Model` from any supported source; an ONNX folder needs no torch, and a model folder none at first."""

import dataclasses
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.app.library.abilities import OF_TASKS
from bertsmith.app.library.inspection import verify_model
from bertsmith.app.library.model import Model
from bertsmith.app.library.opening import Opening
from bertsmith.app.library.record_models import ModelWithRecords, RecordModel
from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.registry import Registry
from bertsmith.base.core.requests import parameters_named, require_path
from bertsmith.base.machine.runtime import require_torch
from bertsmith.base.storage.files import read_json
from bertsmith.inference.export.built_graph import encoder_graph, graph_folder, heads_graph, task_graph
from bertsmith.inference.predictors.loading import (
    early_heads,
    early_predictor,
    load_predictor,
    load_pretraining_heads,
    said_weak,
    served_as,
)
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import EvaluateRequest
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import early_encoder, late_folder, load_embedder, load_token_embedder
from bertsmith.models.checkpoints.hub import model_name
from bertsmith.models.checkpoints.load import base_source, kind_of, load_any
from bertsmith.models.checkpoints.onnx_folder import is_onnx_folder, read_onnx_folder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.model_files.metadata import SIMILARITY, n_gram_folder, read_metadata
from bertsmith.tasks.encoding.row_encoder import RowEncoder
from bertsmith.tasks.task_data.spec_of_model import spec_of

if TYPE_CHECKING:
    from bertsmith.models.checkpoints.model_folder import ModelFolder
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
_INDEX = "index"
_OPENER_OF_INDEXES = Registry[Callable[..., ModelWithRecords]]({_INDEX: "app.library.open_index:open_index"})
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
    adapter: str | Path | None = None,
    verify: bool = False,
) -> Model:
    """The model of a folder (ours, transformers, sentence-transformers, ONNX, peft), run, Google checkpoint or hub id.

    A bag of words is a model as well, which reads neither pieces nor needs torch.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: fp32, bf16, int8 and the like; outputs are always fp32.
        products: how linear layers are computed: "packed" (weights packed by oneDNN, with what follows fused), "plain"
            (by torch alone), or "auto", which is packed where this processor supports it. In fp32 the numbers differ by
            at most 1e-5.
        head: the class of your own head that the model was fine-tuned with, if it was.
        adapter: the folder of a low-rank adapter (LoRA) for this model, which is merged into it. Such a folder is a
            source by itself, too, as it names its model.
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
    if adapter is not None:
        require_path(adapter, "the adapter")
        options["adapter"] = adapter
    model = _loaded(source, **options)
    model.opening = Opening(load, source, options)
    return model


def open_model(source: str | Path, name: str | None = None, **options: Any) -> Served:
    """A model that `load` opens, or one that answers about records.

    Args:
        name: what the user calls it; a line that says that it is weak begins with this, or with its own name.
        options: the other arguments of `load`.
    """
    kind = next((kind for kind in _kinds_of(Path(source)) if kind in _OPENERS), None)
    with served_as(name or model_name(source)):
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


def _loaded(
    source: str | Path, *, head: "type[OwnHead] | None", adapter: str | Path | None = None, **options: Any
) -> Model:
    """The model; see `load`."""
    name = model_name(source if adapter is None else adapter)
    if adapter is not None:
        require_torch(source)
        return _of_folder(name, load_any(source, adapter=adapter), head=head, **options)
    if head is not None:
        return Model(name, predictor=said_weak(load_predictor(source, head=head, **options), source))
    if (words := n_gram_folder(source)) is not None:
        return Model(name, predictor=said_weak(_predictor_of_words(words, **options), words))
    if (late := late_folder(source)) is not None:
        return Model(name, embedder=load_token_embedder(late, **options))
    if read_recipe(Path(source), layers=True) is not None and not read_metadata(Path(source)).keeps_heads:
        return Model(name, embedder=load_embedder(source, sparse=True, early=True, **options))
    if is_onnx_folder(source):
        exported = read_onnx_folder(source)
        if exported.metadata.spec is not None:
            return Model(name, predictor=said_weak(load_predictor(exported, **options), source))
        pretrained = load_pretraining_heads(exported, **options)
        if {"mlm", "nsp"}.isdisjoint(exported.shape.parts):
            return Model(name, embedder=Embedder(pretrained.engine.encoder(exported.tokenizer)))
        return Model(name, pretrained=pretrained, parts=exported.shape.parts)
    if (early := _loaded_early(name, source, **options)) is not None:
        return early
    require_torch(source)
    folder = load_any(source)
    if read_recipe(folder.path, layers=True) is not None and not folder.metadata.keeps_heads:
        return Model(name, embedder=load_embedder(folder.path, sparse=True, **options))
    return _of_folder(name, folder, **options)


def _of_folder(name: str, folder: "ModelFolder", *, head: "type[OwnHead] | None" = None, **options: Any) -> Model:
    """The model of a folder that torch computes."""
    folder.require_tokenizer()
    spec = spec_of(folder)
    if spec is not None and spec.kind != SIMILARITY:
        return Model(name, predictor=said_weak(load_predictor(folder, head=head, **options), folder.path))
    if {"mlm", "nsp"}.isdisjoint(folder.parts):
        return Model(name, embedder=Embedder(_frozen(folder, **options)))
    return Model(name, pretrained=load_pretraining_heads(folder, **options), parts=folder.parts)


def _loaded_early(name: str, source: str | Path, **options: Any) -> Model | None:
    """The model of a folder, as a graph until torch is worth its import; None if only torch computes it.

    See docs/decisions/0021-without-torch.md.
    """
    folder = graph_folder(source, **options)
    if folder is None:
        return None
    if read_recipe(folder.path, layers=True) is not None and not folder.metadata.keeps_heads:
        return Model(name, embedder=load_embedder(folder.path, sparse=True, early=True, **options))
    spec = spec_of(folder)
    if spec is not None and spec.kind != SIMILARITY:
        graph = task_graph(folder, **options)
        return graph and Model(name, predictor=said_weak(early_predictor(graph, **options), folder.path))
    if not {"mlm", "nsp"}.isdisjoint(folder.parts):
        graph = heads_graph(folder, (), **options)
        return graph and Model(name, pretrained=early_heads(graph, **options), parts=folder.parts)
    graph = encoder_graph(folder, **options)
    return graph and Model(name, embedder=Embedder(early_encoder(graph, lambda: _frozen(folder.path, **options))))


def _frozen(source: "Path | ModelFolder", **options: Any) -> RowEncoder:
    from bertsmith.tasks.encoding.loading import load_frozen_encoder

    return load_frozen_encoder(source, **options)


def _predictor_of_words(folder: Path, **options: Any) -> Predictor:
    """The predictor of a model on words, whose task is one of those that `Model` answers."""
    predictor = load_predictor(folder, **options)
    kind = predictor.task.spec.kind
    if kind not in OF_TASKS:
        raise CheckpointError(
            expected="a model with an encoder, for vectors",
            found=f"'{folder}', a model on words for {kind}",
            fix="use it with evaluate, or name another model",
        )
    return predictor


def load_models(
    sources: Sequence[str],
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
) -> dict[str, Served]:
    """The models, by the names under which they are served.

    Args:
        sources: anything that `open_model` accepts, or NAME=SOURCE.
        device, precision, products: as in `load`.
        head: the user's head that all of them were fine-tuned with.
    """
    options = {"device": device, "precision": precision, "products": products}
    chosen_names = dict[str, str | None]()
    paths = dict[str, str]()
    for source in sources:
        chosen, path = name_and_source(source)
        name = chosen or model_name(path)
        _require_new(name, paths, f"--model NAME={path}")
        chosen_names[name], paths[name] = chosen, path
    adapted = _load_adapters(paths, **options) if head is None else {}
    return {
        name: adapted.get(name) or open_model(path, chosen_names[name], head=head, **options)
        for name, path in paths.items()
    }


def load_indexes(
    sources: Sequence[str], models: Mapping[str, Served], *, is_changed: bool, **compute: Any
) -> dict[str, Served]:
    """The models, and the indexes by the names under which they are served, each with the model of its vectors.

    Args:
        sources: folders, or NAME=FOLDER.
        models: one of them searches each index whose vectors it made.
        is_changed: requests may change the indexes.
        compute: device, precision and products.
    """
    result = dict(models)
    texts = [model for model in models.values() if isinstance(model, Model)]
    for source in sources:
        chosen, path = name_and_source(source)
        name = chosen or Path(path).resolve().name
        _require_new(name, result, f"--index NAME={path}")
        result[name] = _OPENER_OF_INDEXES[_INDEX](path, name, texts, is_changed=is_changed, **compute)
    return result


def _require_new(name: str, known: Container[str], option: str) -> None:
    if name in known:
        raise ConfigError(
            expected="a unique name for each model and index",
            found=f"{name!r} twice",
            fix=f"name one of them: {option}",
        )


def _load_adapters(paths: Mapping[str, str], **options: Any) -> Mapping[str, Served]:
    """The models of adapters that share a base, by name."""
    of_base: dict[str, dict[str, Path]] = {}
    for name, path in paths.items():
        if kind_of(Path(path)) == "adapter":
            base = base_source(Path(path))
            of_base.setdefault(os.path.realpath(base) if os.path.exists(base) else base, {})[name] = Path(path)
    models: dict[str, Served] = {}
    for base, adapters in of_base.items():
        if len(adapters) > 1:
            from bertsmith.app.library.adapted_models import load_adapted  # imports torch

            of_adapters = load_adapted(base, adapters, **options)
            for name, model in of_adapters.items():
                model.opening = Opening(load, paths[name], options)
            models |= of_adapters
    return models


def name_and_source(text: str) -> tuple[str | None, str]:
    """The name and the source of NAME=SOURCE; no name for a source alone, also if its path exists and contains `=`.

    In a source `~` is the home folder, which a shell does not write out after NAME=.

    >>> name_and_source("mine=runs/a=b/model"), name_and_source("runs/a=b/model")
    (('mine', 'runs/a=b/model'), (None, 'runs/a=b/model'))
    """
    match = None if Path(text).exists() else _NAMED.fullmatch(text)
    name, source = (None, text) if match is None else match.groups()
    return name, os.path.expanduser(source)
