"""Loads a model from any source: a Hugging Face folder, a Google checkpoint, a run folder, an adapter, a hub id.

An ELMo in the layout of AllenNLP is read, too.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.registry import Registry
from bertsmith.models.checkpoints import hub
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.weights import ADAPTER, base_of_adapter
from bertsmith.models.model_files.metadata import GLINER_CONFIG, NGRAM_ENCODER, WEIGHT_FILES, n_gram_folder
from bertsmith.text.tokenizers.normalize import TextRules

Kind = Literal["huggingface", "google", "allennlp", "adapter", "gliner"]
_READERS = Registry[Callable[..., ModelFolder]](
    {
        "huggingface": "models.checkpoints.huggingface:read_model_folder",
        "google": "models.checkpoints.google:read_google",
        "allennlp": "models.checkpoints.allennlp:read_allennlp",
        "adapter": "models.checkpoints.adapters:with_adapter",
        "gliner": "models.checkpoints.gliner:read_gliner",
    }
)
_MOST_SHOWN = 5  # names of other files that a message lists


def kind_of(path: Path) -> Kind | None:
    """The kind of model at a path: folder of Hugging Face, GLiNER or AllenNLP, adapter, Google checkpoint (or file)."""
    if path.is_dir():
        if (path / GLINER_CONFIG).is_file():
            return "gliner"
        if any((path / name).exists() for name in WEIGHT_FILES):
            return "huggingface"
        if (path / ADAPTER).exists():
            return "adapter"
        if any(path.glob("*.hdf5")):
            return "allennlp"
        return "google" if any(path.glob("*.index")) else None
    is_part = path.name.endswith((".index", ".meta")) or ".data-" in path.name
    return "google" if Path(f"{path}.index").exists() or (path.exists() and is_part) else None


def load_any(
    source: Path | str | ModelFolder,
    *,
    rules: TextRules | None = None,
    allow_unknown: bool = False,
    cache: Path | str | None = None,
    endpoint: str | None = None,
    offline: bool = False,
    as_arrays: bool = False,
    adapter: Path | str | None = None,
) -> ModelFolder:
    """The model at a path or with a hub id.

    Args:
        source: a Hugging Face folder; a run folder with `model/` in it; a Google checkpoint (folder, prefix or one of
            its files); a folder with options.json and weights.hdf5 of an ELMo; or, if no such path exists, the name
            of a model in a package, such as "starter", or an id such as `google-bert/bert-base-uncased`; or the folder
            of an adapter, which names its model.
        cache, endpoint, offline: see `hub.resolve`; used only for an id or an address.
        as_arrays: see `read_weights`; for a Hugging Face folder.
        adapter: an adapter of the model, which is merged into it.
    """
    if isinstance(source, ModelFolder):
        return source
    again = functools.partial(
        load_any, rules=rules, allow_unknown=allow_unknown, cache=cache, endpoint=endpoint, offline=offline
    )
    if adapter is not None:
        return _READERS["adapter"](again(source), Path(adapter))
    path, kind = locate(source, cache=cache, endpoint=endpoint, offline=offline)
    if kind == "adapter":
        return _READERS["adapter"](again(base_source(path)), path)
    options: dict[str, Any] = {"as_arrays": True} if as_arrays else {}
    if kind == "gliner":
        options["resolve"] = functools.partial(
            hub.resolve, cache=cache, endpoint=endpoint, offline=offline, of_encoder=True
        )
    return _READERS[kind](path, rules=rules, allow_unknown=allow_unknown, **options)


def base_source(adapter: Path) -> str:
    """The model that the folder of an adapter names, which exists or is the id of one."""
    base = base_of_adapter(adapter)
    try:
        hub.require_source(base)
    except InputError as error:
        raise InputError(
            expected=f"the model of the adapter '{adapter}'",
            found=error.found,
            fix=f"correct base_model_name_or_path in its {ADAPTER}, or name the model: load(MODEL, adapter=...)",
        ) from None
    return base


def locate(
    source: Path | str, *, cache: Path | str | None = None, endpoint: str | None = None, offline: bool = False
) -> tuple[Path, Kind]:
    """Where the files of a model are, and of which kind they are."""
    path = Path(source)
    kind = kind_of(path)
    if kind is None:
        path = hub.resolve(source, cache=cache, endpoint=endpoint, offline=offline)
        kind = kind_of(path)
    if kind is None and kind_of(path / "model") == "huggingface":
        path, kind = path / "model", "huggingface"
    if kind is not None:
        return path, kind
    if (words := n_gram_folder(path)) is not None:
        raise InputError(
            expected=f"a model with an encoder at '{path}'",
            found="a linear model on a cosine" if (words / NGRAM_ENCODER).is_dir() else "a model on words alone",
            fix=f"name '{words / NGRAM_ENCODER}'"
            if (words / NGRAM_ENCODER).is_dir()
            else "use it with predict, evaluate, serve, ask or rank, or name another model",
        )
    raise InputError(
        expected=f"config.json with model.safetensors or pytorch_model.bin, or a Google checkpoint, in '{path}'",
        found=_found(path),
        fix="use the model it was exported from, or run it with onnxruntime"
        if _is_onnx(path)
        else "name a folder that has them",
    )


def _is_onnx(path: Path) -> bool:
    return path.suffix == ".onnx" or any(path.glob("*.onnx"))


def _found(path: Path) -> str:
    if _is_onnx(path):
        return "an ONNX export"
    if not path.is_dir():
        return "a file"
    names = sorted(item.name for item in path.iterdir())
    listed = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    return f"other files ({listed})" if names else "an empty folder"
