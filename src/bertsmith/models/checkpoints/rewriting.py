"""Writes a model from any source in another format."""

from pathlib import Path

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import require_outside
from bertsmith.models.checkpoints.google import read_optimizer, write_google
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import kind_of, load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.text.tokenizers.normalize import TextRules

KINDS = ("huggingface", "google")  # that can be written


def convert(
    source: Path | str,
    destination: Path | str,
    *,
    to: str,
    rules: TextRules | None = None,
    allow_unknown: bool = False,
    replace: bool = False,
) -> ModelFolder:
    """Writes a model in another format and returns the model that was read, with its report.

    Optimizer state is copied from Google to Google; otherwise it is dropped, and the report counts it as skipped.

    Args:
        replace: overwrite an existing folder that contains a model, but never the source.
    """
    if to not in KINDS:
        raise ConfigError.unknown("format", to, KINDS)
    model = load_any(source, rules=rules, allow_unknown=allow_unknown)
    require_outside(Path(destination), [model.path])
    if to == "huggingface":
        write_model_folder(
            destination,
            config=model.config,
            tensors=model.tensors,
            tokenizer=model.tokenizer,
            metadata=model.metadata,
            replace=replace,
        )
        return model
    optimizer = read_optimizer(source) if kind_of(Path(source)) == "google" else None
    write_google(
        destination,
        config=model.config,
        tensors=model.tensors,
        tokenizer=model.tokenizer,
        metadata=model.metadata,
        optimizer=optimizer,
        replace=replace,
    )
    return model
