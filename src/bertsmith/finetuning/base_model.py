"""The model that a fine-tuning starts from: what it must have for the settings, and how it is loaded."""

import dataclasses

from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.finetuning.settings import FinetuningSettings
from bertsmith.progress import warn
from bertsmith.settings import require
from bertsmith.tasks.task import TaskSpec


def require_base(folder: ModelFolder, settings: FinetuningSettings, *, pooled: bool) -> None:
    """Returns if the settings fit the architecture of the model.

    Args:
        pooled: whether the head of the task reads one vector per row.

    Raises:
        ConfigError: they ask for a pooler or a language-model loss that it cannot have.
    """
    config = folder.config
    require(
        not settings.language_model_loss or (config.is_causal and not config.reads_backward),
        expected="a left-to-right model for a language-model loss",
        found=f"a {'right-to-left' if config.reads_backward else 'bidirectional'} {config.display_name}",
        fix="leave --language-model-loss out",
    )
    require(
        settings.reads != "pooler" or config.can_pool or not pooled,
        expected=f"reads as cls or mean for a {config.display_name}, which has no pooler",
        found="pooler",
        fix="use --reads cls",
    )


def fitted(spec: TaskSpec, folder: ModelFolder) -> TaskSpec:
    """The spec with rows no longer than the model reads, and without a pooler where the encoder has none."""
    if not folder.config.can_pool and spec.reads == "pooler":
        spec = dataclasses.replace(spec, reads="cls")
    limit = folder.config.max_tokens
    if spec.settings.max_length <= limit:
        return spec
    warn(f"max_length reduced from {spec.settings.max_length} to {limit}: the model has only {limit} positions")
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, max_length=limit))
