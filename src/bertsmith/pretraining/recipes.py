"""Recipes: the settings of pre-training that were not given.

`2018` is the recipe of the paper, which the settings classes have as their defaults. `auto` is what learns most in a
person's time on one machine; docs/pretraining-recipe.md has the measurements behind each of its values.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoints.architectures import read_config, require_architecture
from bertsmith.files import read_json
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.settings import AUTO, PAPER, require, require_recipe, split_settings
from bertsmith.training.settings import TrainSettings

AUTO_SIZE = "auto"  # a model size

# The size for up to that number of processor minutes (minutes times cores), estimated from the cost of a step.
SIZE_FOR_MINUTES = ((30.0, "tiny"), (600.0, "mini"), (6000.0, "small"), (float("inf"), "medium"))
# Rows per step, by the largest width that they are for: a short run needs many steps more than exact gradients.
_ROWS_FOR_WIDTH = ((256, 32), (512, 64), (10**9, 256))
_LEAST_HEADS = 8  # four neighbors on each side
_WIDE = 512

_NEW_MODEL: Mapping[str, Any] = {
    "objective": "mlm",
    "masked_share": 0.3,
    "dynamic": True,
    "initialization": "corpus",
    "dropout": 0.0,
    "optimizer": "muon",
    "learning_rate": 3e-3,
    "beta2": 0.98,
    "bias_correction": True,
    "warmup_share": 0.1,
    "schedule": "hf_linear",
}
# What differs for a new model of an architecture: in the recipe auto, and in that of its own paper.
_NEW_OF_ARCHITECTURE: Mapping[str, Mapping[str, Any]] = {
    "openai-gpt": {"contiguous": True, "short_sequence_probability": 0.0}
}
# Radford et al. (2018), section 4.1; the budget in the paper is 100 epochs.
_PAPER_OF_ARCHITECTURE: Mapping[str, Mapping[str, Any]] = {
    "openai-gpt": {
        "objective": "left-to-right",
        "contiguous": True,
        "short_sequence_probability": 0.0,
        "max_length": 512,
        "rows_per_step": 64,
        "learning_rate": 2.5e-4,
        "schedule": "cosine",
        "warmup_steps": 2000,
        "epsilon": 1e-8,
        "bias_correction": True,
    }
}
# The learning rate is that of Gururangan et al. (2020), "Don't stop pretraining", table 13.
_CONTINUED: Mapping[str, Any] = {
    "objective": "mlm",
    "dynamic": True,
    "rows_per_step": 32,
    "learning_rate": 1e-4,
    "beta2": 0.98,
    "bias_correction": True,
    "warmup_share": 0.1,
    "schedule": "hf_linear",
}


def settings_from_recipe(
    given: Mapping[str, Any],
) -> tuple[PretrainingRunSettings, PretrainingDataSettings, TrainSettings]:
    """The settings of a run, from those that were given by name and, for the others, their recipe.

    Raises:
        ConfigError: a name, a value or the recipe is unknown.
    """
    classes = [PretrainingRunSettings, PretrainingDataSettings, TrainSettings]
    split_settings(given, classes)  # a name that does not exist is refused as it was given
    parts = split_settings(with_recipe(given), classes)
    return (
        PretrainingRunSettings(**parts[PretrainingRunSettings]),
        PretrainingDataSettings(**parts[PretrainingDataSettings]),
        TrainSettings(**parts[TrainSettings]),
    )


def with_recipe(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings of pre-training, and those of their recipe for what was not given.

    Args:
        given: fields of the three settings classes by name; `recipe` is one of them, by default "auto".

    Raises:
        ConfigError: the recipe is unknown, or the size "auto" has no budget in minutes to go by.
    """
    name = require_recipe(given.get("recipe") or AUTO)
    settings = {**given, "recipe": name}
    if settings.get("size") == AUTO_SIZE:
        settings["size"] = size_for(settings.get("minutes"))
    if name == PAPER:
        return {**_PAPER_OF_ARCHITECTURE.get(settings.get("architecture") or "bert", {}), **settings}
    if settings.get("init") is not None:
        return {**_CONTINUED, **settings}
    return {**_of_a_new_model(settings), **settings}


def size_for(minutes: float | None) -> str:
    """The size of a new model for a number of minutes on this machine's cores.

    Raises:
        ConfigError: there is no budget in minutes.
    """
    require(
        minutes is not None,
        expected="--minutes with --size auto, to choose the size by",
        found="no budget in minutes",
        fix="give --minutes, or name a size",
    )
    assert minutes is not None
    available = minutes * torch.get_num_threads()
    return next((size for most, size in SIZE_FOR_MINUTES if available <= most), SIZE_FOR_MINUTES[-1][1])


def _of_a_new_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the recipe for a new model."""
    values = dict(_NEW_MODEL)
    size, config = settings.get("size"), settings.get("config")
    new = require_architecture(settings.get("architecture") or "bert").config
    if new.always_causal:
        values["objective"] = "left-to-right"
    values |= _NEW_OF_ARCHITECTURE.get(new.model_type, {})
    if isinstance(size, str) and size in new.sizes:
        _, width, heads, _ = new.sizes[size]
        values["heads"] = max(heads, _LEAST_HEADS)
    elif config is not None:
        width = read_config(read_json(Path(str(config)))).hidden_size
    else:
        return values  # the settings class refuses it
    values["rows_per_step"] = next(rows for widest, rows in _ROWS_FOR_WIDTH if width <= widest)
    if settings.get("optimizer", values["optimizer"]) != "muon":
        values["learning_rate"] = round(3e-3 * 128 / width, 6)  # Adam alone: the wider, the lower
    elif width >= _WIDE:
        values["learning_rate"] = 2e-3
    return values
