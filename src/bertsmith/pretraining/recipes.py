"""Recipes: the settings of pre-training that were not given.

`2018` is the recipe of the paper, which the settings classes have as their defaults. `auto` is what learns most in a
person's time on one machine; docs/pretraining-recipe.md has the measurements behind each of its values.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bertsmith.errors import nearest
from bertsmith.files import read_json
from bertsmith.model.config import NAMED_SIZES
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.settings import require, split_settings
from bertsmith.training.settings import TrainSettings

AUTO, PAPER = "auto", "2018"
RECIPES = (AUTO, PAPER)
AUTO_SIZE = "auto"  # a model size

# The size that learns most in a budget of processor minutes (minutes times cores), for budgets up to that number.
SIZE_FOR_MINUTES = ((30.0, "tiny"), (600.0, "mini"), (6000.0, "small"), (float("inf"), "medium"))
# Rows of up to 128 tokens per step: a short run needs many steps more than it needs exact gradients.
_ROWS = {"tiny": 32, "mini": 32, "small": 64, "medium": 128, "base": 256, "large": 256, "transformer-2017": 64}
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
    name = given.get("recipe") or AUTO
    require(name in RECIPES, expected="a known recipe", found=repr(name), fix=nearest(str(name), RECIPES))
    settings = {**given, "recipe": name}
    if settings.get("size") == AUTO_SIZE:
        settings["size"] = size_for(settings.get("minutes"))
    if name == PAPER:
        return settings
    if settings.get("init") is not None:
        return {**_CONTINUED, **settings}
    return {**_of_a_new_model(settings), **settings}


def size_for(minutes: float | None) -> str:
    """The size of a new model that learns most in a number of minutes on this machine's cores.

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
    width = NAMED_SIZES[size][1] if size in NAMED_SIZES else None
    if config is not None and Path(str(config)).is_file():
        found = read_json(Path(str(config)))
        width = found.get("hidden_size") if isinstance(found, dict) else None
    if size in NAMED_SIZES:
        values["rows_per_step"] = _ROWS[size]
        values["heads"] = max(NAMED_SIZES[size][2], _LEAST_HEADS)
    if settings.get("optimizer", values["optimizer"]) != "muon" and isinstance(width, int) and width > 0:
        values["learning_rate"] = round(3e-3 * 128 / width, 6)  # Adam alone: the wider, the lower
    elif isinstance(width, int) and width >= _WIDE:
        values["learning_rate"] = 2e-3
    return values
