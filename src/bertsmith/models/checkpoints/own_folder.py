"""Model folders of models that are not encoders with heads, in a layout of our own: what recipes write and read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import atomic_folder, read_json, require_file, write_json, write_text
from bertsmith.base.storage.tensor_file import require_fit
from bertsmith.models.checkpoints.architectures import read_other_config
from bertsmith.models.checkpoints.model_folder import ModelFolder, fit_vocabulary, no_vocabulary, require_numbers
from bertsmith.models.checkpoints.plan import LoadReport
from bertsmith.models.checkpoints.weights import MODEL_FOLDER, read_weights, write_safetensors
from bertsmith.models.model_files.metadata import CARD, SAFETENSORS, ModelMetadata, read_metadata, write_metadata
from bertsmith.models.model_files.tokenizer_files import read_tokenizer
from bertsmith.models.model_files.tokenizer_writing import write_tokenizer
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.text.tokenizers.tokenizer import Tokenizer

Config = TypeVar("Config", bound=EncoderConfig)
Model = TypeVar("Model", bound=nn.Module)


def write_own_folder(
    path: Path,
    config: EncoderConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata,
    card: str,
    *,
    replace: bool = False,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Writes a model, its tokenizer if it has one, its metadata and a card.

    Args:
        replace: overwrite an existing folder that contains a model.
        also: writes further files of the model to the folder.
    """
    with atomic_folder(path, replace=MODEL_FOLDER if replace else False) as partial:
        write_json(partial / "config.json", {"model_type": config.model_type, **config.to_dict()})
        write_safetensors(partial / SAFETENSORS, dict(tensors))
        if tokenizer is not None:
            write_tokenizer(partial, tokenizer, config)
        if also is not None:
            also(partial)
        write_text(partial / CARD, card)
        write_metadata(partial, tokenizer, metadata)


def read_own_folder(
    path: Path | str,
    kind: str,
    configs: Mapping[str, type[Config]],
    command: str,
    new_model: Callable[[Config, ModelMetadata, Tokenizer], Model],
) -> tuple[Model, Tokenizer, ModelMetadata]:
    """The model of a folder, or of the run that has it, in evaluation mode; its tokenizer and metadata.

    Args:
        kind: of the model with its article, for messages.
        configs: the class of the configuration for each `model_type` of this kind.
        command: the command that trains such a model.
        new_model: a model without initial values.
    """
    folder, config, metadata = own_folder_of(path, kind, configs, command)
    tokenizer, _ = read_tokenizer(folder, metadata)
    if tokenizer is None:
        raise no_vocabulary(folder)
    fit_vocabulary(tokenizer.vocabulary, config, f"'{folder}'")
    return (
        new_from_weights(folder, config.display_name, lambda: new_model(config, metadata, tokenizer)),
        tokenizer,
        metadata,
    )


def read_other_folder(folder: Path) -> ModelFolder | None:
    """The model in a folder as it is stored, if it is not an encoder of text; None otherwise."""
    config = read_other_config(read_json(folder / "config.json")) if (folder / "config.json").is_file() else None
    if config is None:
        return None
    metadata, tensors = read_metadata(folder), read_weights(folder)
    require_numbers(tensors, f"'{folder}'")
    return ModelFolder(
        path=folder,
        config=config,
        tensors=tensors,
        tokenizer=read_tokenizer(folder, metadata)[0],
        metadata=metadata,
        report=LoadReport(
            source=f"'{folder}'", mapped={name: name for name in tensors}, skipped={}, unknown=(), missing=()
        ),
    )


def own_folder_of(
    path: Path | str, kind: str, configs: Mapping[str, type[Config]], command: str
) -> tuple[Path, Config, ModelMetadata]:
    """The folder of a model, or the one in its run, its configuration and metadata; see `read_own_folder`."""
    folder = Path(path)
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").exists():
        folder = folder / "model"
    require_file(folder / "config.json", f"the configuration of {kind}")
    values = read_json(folder / "config.json")
    return folder, own_config(values, str(folder), kind, configs, command), read_metadata(folder)


def own_config(values: Any, where: str, kind: str, configs: Mapping[str, type[Config]], command: str) -> Config:
    """The configuration in a `config.json`; see `read_own_folder`."""
    name = values.get("model_type") if isinstance(values, Mapping) else None
    require(
        isinstance(name, str) and name in configs,
        expected=f"{kind} in '{where}'",
        found=f"model_type {name!r}",
        fix=f"train one with `bertsmith {command}`",
    )
    return configs[str(name)].from_dict(values)


def new_from_weights(folder: Path, name: str, new_model: Callable[[], Model]) -> Model:
    """A model with the weights of a folder, in evaluation mode.

    Args:
        name: of the model, for messages.
        new_model: a model without initial values.
    """
    tensors = read_weights(folder)
    with torch.device("meta"):
        model = new_model()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    require_fit(shapes, model.state_dict(), f"the {name} in '{folder}'")
    require_numbers(tensors, f"'{folder}'")
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return model.eval()
