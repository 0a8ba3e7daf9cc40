"""The pre-training recipes: the settings that the user did not give.

`2018` is the recipe of the paper; its values are the defaults of the settings classes. `auto` learned most in limited
time on one machine; docs/pretraining-recipe.md has the measurements behind each of its values.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bertsmith.base.core.errors import BertsmithError, ConfigError
from bertsmith.base.core.settings import AUTO, PAPER, require_recipe, split_settings
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.architectures import read_config, require_architecture, require_size
from bertsmith.models.parts.config import BertConfig, EncoderConfig
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.settings import AUTO_SIZE, PretrainingDataSettings, PretrainingRunSettings

# The size for up to that number of processor minutes (minutes times cores), estimated from the cost of a step.
SIZE_FOR_MINUTES = ((30.0, "tiny"), (600.0, "mini"), (6000.0, "small"), (float("inf"), "medium"))
# Rows per step, by the largest width that they are for: a short run needs many steps more than exact gradients.
_ROWS_FOR_WIDTH = ((256, 32), (512, 64), (10**9, 256))
_LEAST_HEADS = 8  # four neighbors on each side
_WIDE = 512

_NEW_MODEL: Mapping[str, Any] = {
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
# What differs for an architecture, by `model_type`: in the recipe auto, and in that of its own paper.
_NEW_OF_ARCHITECTURE: Mapping[str, Mapping[str, Any]] = {
    "openai-gpt": {"contiguous": True, "short_sequence_probability": 0.0},
}
NT_ASGD = "nt-asgd"
# Merity, Keskar and Socher (2018), section 5, and their code.
_AVERAGED: Mapping[str, Any] = {
    "learning_rate": 30.0,
    "schedule": "constant",
    "warmup_share": 0.0,
    "clip_norm": 0.25,
    "weight_decay": 1.2e-6,
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
    },
    # Merity, Keskar and Socher (2018), section 5; the budget in the paper is 750 epochs.
    "awd-lstm": {"max_length": 70, "rows_per_step": 80, "optimizer": NT_ASGD, **_AVERAGED},
}
# `train_elmo.py` of the released code (allenai/bilm-tf); the optimizer there is Adagrad.
_RUNNING_ELMO: Mapping[str, Any] = {"max_length": 20, "rows_per_step": 128, "clip_norm": 10.0}
# The learning rate is that of Gururangan et al. (2020), "Don't stop pretraining", table 13.
_CONTINUED: Mapping[str, Any] = {
    "dynamic": True,
    "rows_per_step": 32,
    "learning_rate": 1e-4,
    "beta2": 0.98,
    "bias_correction": True,
    "warmup_share": 0.1,
    "schedule": "hf_linear",
}


WINDOW, MOST_TRACKS = 70, 32  # tokens and tracks of a step of a recurrent model

# What differs for a new recurrent language model, besides its learning rate.
_RECURRENT: Mapping[str, Any] = {
    "optimizer": "adam",
    "max_length": WINDOW,
    "rows_per_step": MOST_TRACKS,
    "activation_penalty": 0.0,
    "change_penalty": 0.0,
}


def settings_from_recipe(
    options: Mapping[str, Any],
) -> tuple[PretrainingRunSettings, PretrainingDataSettings, TrainSettings]:
    """The settings of a run, from the given ones by name and, for the others, their recipe."""
    classes = [PretrainingRunSettings, PretrainingDataSettings, TrainSettings]
    split_settings(options, classes)  # a name that does not exist is refused as it was given
    parts = split_settings(with_recipe(options), classes)
    return (
        PretrainingRunSettings(**parts[PretrainingRunSettings]),
        PretrainingDataSettings(**parts[PretrainingDataSettings]),
        TrainSettings(**parts[TrainSettings]),
    )


def with_recipe(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings of pre-training, and for the others the values of their recipe.

    Args:
        options: fields of the three settings classes by name; `recipe` is one of them, by default "auto".
    """
    name = require_recipe(options.get("recipe") or AUTO)
    settings = {**options, "recipe": name}
    if settings.get("size") == AUTO_SIZE:
        settings["size"] = size_for(settings.get("minutes"))
    require_size(settings.get("architecture") or "bert", settings.get("size"), AUTO_SIZE)
    if name == PAPER:
        return {**_of_the_paper(settings), **settings}
    if settings.get("init") is not None:
        return {**_CONTINUED, **_of_a_continued_model(settings), **settings}
    return {**_of_a_new_model(settings), **settings}


def size_for(minutes: float | None) -> str:
    """The size of a new model for a number of minutes on this machine's cores."""
    if minutes is None:
        raise ConfigError.needs("--size auto", "--minutes, to choose the size by", "give --minutes, or name a size")
    available = minutes * torch.get_num_threads()
    return next((size for most, size in SIZE_FOR_MINUTES if available <= most), SIZE_FOR_MINUTES[-1][1])


def _of_the_paper(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the recipe of the paper that differ for an architecture with another paper than BERT's."""
    config = _config_of(settings)
    fits = config.has_next_sentence and not config.is_causal
    values = {} if fits else {"objective": objective_for(config)}
    values |= _PAPER_OF_ARCHITECTURE.get(settings.get("architecture") or "bert", {})
    return {**values, **(_RUNNING_ELMO if config.two_directions and _of_tracks(settings) else {})}


def _config_of(settings: Mapping[str, Any]) -> EncoderConfig:
    """The configuration of the model that is trained, with the sizes of its architecture's defaults if it is new."""
    init, config = settings.get("init"), settings.get("config")
    if init is not None:
        folders = (Path(str(init)), Path(str(init)) / "model")  # a model folder, or a run
        config = next((folder / "config.json" for folder in folders if (folder / "config.json").is_file()), None)
    elif config is None:
        return require_architecture(settings.get("architecture") or "bert").config()
    try:
        return BertConfig() if config is None else read_config(read_json(Path(str(config))))
    except BertsmithError:
        return BertConfig()  # what is wrong with the file is said where the model is loaded


def _of_a_continued_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the recipe changes for the architecture of a model folder that is continued from.

    A recurrent model is fine-tuned as in Howard and Ruder (2018), section 3.2: each layer with a rate of its own, and
    slanted triangles.
    """
    config = _config_of(settings)
    if not config.is_recurrent:
        return {"objective": objective_for(config), **_of_architecture(type(config), settings), **_of_tracks(settings)}
    return {
        **_RECURRENT,
        "objective": objective_for(config),
        "learning_rate": 4e-3,
        "layer_decay": round(1 / 2.6, 4),
        "schedule": "slanted_triangular",
        "beta1": 0.7,
        "beta2": 0.99,
    }


def objective_for(config: EncoderConfig) -> str:
    """The objective of a model, if none is given."""
    if config.is_recurrent:
        return "backward-language-model" if config.reads_backward else "language-model"
    if config.two_directions:
        return "forward+backward"
    return "left-to-right" if config.is_causal or config.always_causal else "mlm"


def _of_architecture(config: type[EncoderConfig], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ for an architecture; no contiguous rows if the given objective has rows of two parts."""
    values = dict(_NEW_OF_ARCHITECTURE.get(config.model_type, {}))
    objective = OBJECTIVES.get(str(settings.get("objective")))
    if objective is not None and objective.has_two_parts:
        values.pop("contiguous", None)
    return values


def _of_tracks(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ where the given objective reads tracks, for a model that usually reads rows."""
    objective = OBJECTIVES.get(str(settings.get("objective")))
    if objective is None or not objective.carries_state:
        return {}
    return {"max_length": WINDOW, "rows_per_step": MOST_TRACKS}


def _of_a_new_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the recipe for a new model."""
    values = dict(_NEW_MODEL)
    size, config = settings.get("size"), settings.get("config")
    described = None if config is None else read_config(read_json(Path(str(config))))
    new = require_architecture(settings.get("architecture") or "bert").config
    new = new if described is None else type(described)
    values["objective"] = objective_for(new())
    values |= _of_architecture(new, settings)
    if isinstance(size, str) and size in new.sizes:
        _, width, heads, _ = new.sizes[size]
        if new.has_attention:
            values["heads"] = max(heads, _LEAST_HEADS)
    elif described is not None:
        width = described.hidden_size
    else:
        return values  # the settings class refuses it
    values["rows_per_step"] = next(rows for widest, rows in _ROWS_FOR_WIDTH if width <= widest)
    values |= _RECURRENT if new.is_recurrent else _of_tracks(settings)
    if settings.get("optimizer") == NT_ASGD:
        values |= _AVERAGED
    elif new.is_recurrent and settings.get("optimizer", "adam") == "adam":
        values["learning_rate"] = round(1e-2 * 128 / width, 6)
    elif settings.get("optimizer", values["optimizer"]) != "muon":
        values["learning_rate"] = round(3e-3 * 128 / width, 6)  # Adam alone: the wider, the lower
    elif width >= _WIDE:
        values["learning_rate"] = 2e-3
    return values
