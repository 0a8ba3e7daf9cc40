"""The fine-tuning recipes: the settings that the user did not give.

`2018` is that of the paper of BERT, the defaults of `FinetuningSettings` and `RecipeSettings`, `ulmfit` that of Howard
and Ruder (2018), `setfit` that of Tunstall et al. (2022). `auto` follows from the number of training examples, the kind
of the task and the width of the model; docs/finetuning-recipe.md has the measurements that it comes from.

Sources: Kumar et al. (2022), "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution", for
the linear start; Mosbach et al. (2021), "On the Stability of Fine-tuning BERT", and Zhang et al. (2021), "Revisiting
Few-sample BERT Fine-tuning", for bias correction and the number of steps.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.settings import PAPER, require_recipe, split_settings
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.model_files.metadata import OF_VECTORS
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.head_inputs import CONCAT, READERS
from bertsmith.recipes.finetuning.settings import (
    BAG_ALONE,
    FINETUNING_RECIPES,
    GRID,
    PROBE,
    SETFIT,
    ULMFIT,
    FinetuningSettings,
    RecipeSettings,
    may_start_linear,
    of_the_paper,
)
from bertsmith.tasks.specs.settings import HIERARCHICAL, TaskSettings
from bertsmith.tasks.specs.task import GENERATION
from bertsmith.training.loop.run_folder import CONTINUED, SETTINGS_FILE, RunFolder

PAIRS_RUN = Path(CONTINUED) / "pairs"  # in RUN, of the recipe setfit: the training of vectors on pairs of texts

_OF_WHOLE_TEXTS = ("classification", "regression")
FEW_EXAMPLES = 500  # below, none is left out of the last training, and the average includes the start
_SMALL = 10_000  # training examples below which embeddings are frozen and three epochs are too few
_BATCH = 16
_MANY_TOKENS = 10**9  # of pre-training, from which embeddings are frozen
_LOWEST_RATE = 2e-5
_READER_RATE = 1e-3  # of a BiLSTM on a frozen encoder, which starts at random
# Peak learning rate times hidden size, and the highest rate: 1e-4 for a width of 384, 5e-5 for 768; of a model that has
# not read many tokens, 5e-4 for 256, or half of it if a teacher has taught it the vectors of texts.
_RATE_TIMES_WIDTH, _HIGHEST_RATE = 0.0384, 3e-4
_RATE_TIMES_WIDTH_AFTER_LITTLE, _HIGHEST_RATE_AFTER_LITTLE = 0.128, 1e-3
_SHARE_AFTER_A_TEACHER = 0.5
# Radford et al. (2018), section 4.1, in place of the values of BERT's paper.
_PAPER_OF_ARCHITECTURE: Mapping[str, Mapping[str, Any]] = {
    "openai-gpt": {
        "batch_size": 32,
        "epochs": 3.0,
        "learning_rate": 6.25e-5,
        "warmup_share": 0.002,
        "epsilon": 1e-8,
        "bias_correction": True,
        "language_model_loss": 0.5,
    }
}
_RATE_OF_ADAPTERS = 10.0  # times the rate of a whole encoder
_EPOCHS = 3.0
_STEPS, _FEWEST_STEPS, _MOST_EPOCHS = 200, 100, 20.0  # of small sets: 200, of very small ones fewer
_QUICKLY = (45, 45)  # the same with `keep` auto and few examples
_TO_WRITE = (4500, 100, 40.0)  # the same where a decoder learns to write texts
_DECODER_RATE = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """What the automatic recipe depends on.

    Attributes:
        kind: the kind of the task.
        examples: the number of training examples.
        config: the shape of the model.
        own_head: whether the layer on top is the user's.
        reads_windows: whether a layer over the windows of a text is in front of the output layer.
        is_well_trained: whether the model was pre-trained for so long that its embeddings need no more training.
        has_learned_vectors: whether a teacher has taught it the vectors of texts.
        has_pooler: whether the model comes with a pooler.
    """

    task: str
    kind: str
    examples: int
    config: EncoderConfig
    own_head: bool = False
    reads_windows: bool = False
    is_well_trained: bool = True
    has_learned_vectors: bool = False
    has_pooler: bool = True


def situation_of(
    task: str,
    kind: str,
    examples: int,
    folder: ModelFolder,
    *,
    own_head: bool = False,
    settings: TaskSettings | None = None,
) -> Situation:
    """What the automatic recipe depends on, from a model folder.

    Args:
        task, kind, examples, own_head: see `Situation`.
        settings: those of the task.
        folder: the base model. One from another tool does not say how long it was trained, and counts as well trained;
            so does a model whose pre-training continued from it.
    """
    before = folder.metadata.as_initial_model()
    well = before["task"] != "pretraining" if before["tokens"] is None else before["tokens"] >= _MANY_TOKENS
    return Situation(
        task=task,
        kind=kind,
        examples=examples,
        config=folder.config,
        own_head=own_head,
        reads_windows=settings is not None and settings.long_text in HIERARCHICAL and kind in _OF_WHOLE_TEXTS,
        is_well_trained=well,
        has_learned_vectors=folder.metadata.has_learned_vectors,
        has_pooler="pooler" in folder.parts,
    )


def recipe_of_run(out: Path | str) -> str | None:
    """The recipe of the run in a folder: that of its settings.json, or else "2018".

    Of the recipe setfit, there may only be the run that trains the vectors. None if there is no run that can be read;
    what resumes it says so.
    """
    for folder in (Path(out), Path(out) / PAIRS_RUN):
        if (folder / SETTINGS_FILE).is_file():
            return str(RunFolder.open(folder).record["settings"].get("recipe", PAPER))
    return None


def reads_of_run(out: Path | str) -> str | None:
    """What the head of the run in a folder reads, as the run recorded it; None if there is no run."""
    if not (Path(out) / SETTINGS_FILE).is_file():
        return None
    reads = RunFolder.open(Path(out)).record["settings"].get("run", {}).get("reads")
    return None if reads is None else str(reads)


def resolved(recipe: str, situation: Situation, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a fine-tuning by name: those that were given, then those of the recipe.

    Settings that are in neither have the defaults of their classes, which are those of 2018.

    Args:
        options: fields of `FinetuningSettings` and `RecipeSettings` that the user set.

    Raises:
        ConfigError: there is no such recipe.
    """
    name = require_recipe(recipe, FINETUNING_RECIPES)
    if name == PAPER:
        of_architecture = _PAPER_OF_ARCHITECTURE.get(situation.config.model_type)
        return {**(of_the_paper(situation.task) if of_architecture is None else of_architecture), **options}
    values = {ULMFIT: _ulmfit, SETFIT: _setfit}.get(name, _automatic)(situation, options)
    return {**values, **options}


def settings_from(values: Mapping[str, Any]) -> tuple[FinetuningSettings, RecipeSettings]:
    """Settings of both classes by name, as objects."""
    parts = split_settings(values, [FinetuningSettings, RecipeSettings])
    return FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])


def search_grid(recipe: str, values: Mapping[str, Any]) -> Mapping[str, tuple[float, ...]]:
    """The grid of a search: `GRID`, or values around those of the automatic recipe.

    Args:
        values: the resolved settings.
    """
    if recipe == PAPER:
        return GRID
    rate, epochs = float(values["learning_rate"]), float(values["epochs"])
    return {
        "learning_rate": tuple(float(f"{rate * factor:.2g}") for factor in (0.25, 0.5, 1.0, 2.0, 4.0)),
        "batch_size": (16, 32),
        "epochs": tuple(round(epochs * factor, 2) for factor in (0.5, 1.0, 2.0)),
    }


def _automatic(situation: Situation, options: Mapping[str, Any]) -> dict[str, Any]:
    small, writes = situation.examples < _SMALL, situation.kind == GENERATION
    asked = options.get("batch_size", _BATCH if small or writes else 2 * _BATCH)
    # A size that is not a positive number is refused by the settings class; until then, one counts in its place.
    quickly = options.get("keep") == "auto" and situation.examples < FEW_EXAMPLES
    batch = min(asked if isinstance(asked, int) and asked > 0 else 1, max(1, situation.examples))
    fitted = may_start_linear(situation.kind, options, own_head=situation.own_head) and not situation.reads_windows
    has_reader = options.get("reads") in READERS
    fitted = fitted and (options.get("reads") != "pooler" or situation.has_pooler)
    scaled, highest = (
        (_RATE_TIMES_WIDTH, _HIGHEST_RATE)
        if situation.is_well_trained
        else (_RATE_TIMES_WIDTH_AFTER_LITTLE, _HIGHEST_RATE_AFTER_LITTLE)
    )
    rate = min(highest, max(_LOWEST_RATE, scaled / situation.config.hidden_size))
    if situation.has_learned_vectors and not situation.is_well_trained:
        rate *= _SHARE_AFTER_A_TEACHER
    if options.get("lora_rank"):
        rate *= _RATE_OF_ADAPTERS
    values: dict[str, Any] = {
        "batch_size": batch,
        "epochs": _epochs(situation.examples, batch, *(_TO_WRITE if writes else _QUICKLY if quickly else ())),
        "learning_rate": float(f"{rate:.2g}"),
        "schedule": "hf_linear",
        "bias_correction": True,
        "keep": "last" if small and options.get("patience") is None else "best",
    }
    if writes:
        return {**values, "keep": "best", "decoder_rate": _DECODER_RATE}
    if situation.kind in OF_VECTORS:
        return {**values, "keep": "best"}
    if small and situation.is_well_trained and not options.get("reinit_layers") and not options.get("lora_rank"):
        values["freeze"] = "embeddings"
    if has_reader:
        values |= {"freeze": "body", "learning_rate": _READER_RATE}
    if not situation.own_head:
        values["reads"] = "mean" if situation.reads_windows or options.get("keep") == BAG_ALONE else PROBE
    if fitted:
        values["start"] = "linear"
        if small and options.get("keep") != "best" and options.get("patience") is None:
            values["merge"] = "average"
            values["refit"] = situation.examples < FEW_EXAMPLES
    return values


def _ulmfit(situation: Situation, options: Mapping[str, Any]) -> dict[str, Any]:
    """The third stage of ULMFiT; the rates of learning and of dropout are those of the paper for an LSTM only.

    Each layer, from the top, is trained from an epoch of its own on, and then all of them for as long again.

    Source: Howard and Ruder (2018), sections 3.3 and 4.1; the momentum and the sizes are those of the code.
    """
    groups, automatic = situation.config.num_hidden_layers + 2, _automatic(situation, options)
    batch = automatic["batch_size"]
    values: dict[str, Any] = {
        "batch_size": batch,
        "epochs": max(_epochs(situation.examples, batch), 2.0 * (groups - 1)),
        "learning_rate": 0.01 if situation.config.is_recurrent else automatic["learning_rate"],
        "schedule": "slanted_triangular",
        "beta1": 0.7,
        "beta2": 0.99,
        "bias_correction": True,
        "layer_decay": round(1 / 2.6, 4),
        "gradual_unfreezing": True,
    }
    if situation.config.is_recurrent:
        values["dropout"] = 0.3
    if not situation.own_head:
        values["reads"] = CONCAT
    return values


def _setfit(situation: Situation, options: Mapping[str, Any]) -> dict[str, Any]:
    """The second stage of SetFit: a linear layer on vectors that stay as they are; see `sentence_encoders.few_labels`.

    Source: Tunstall et al. (2022), section 3.1.
    """
    return {**_automatic(situation, options), "reads": "mean", "freeze": "body", "start": "linear", "epochs": 1.0}


def _epochs(
    examples: int, batch: int, enough: int = _STEPS, fewest: int = _FEWEST_STEPS, most: float = _MOST_EPOCHS
) -> float:
    """Passes over the training set: three, more where that would be too few steps.

    Args:
        enough: the steps that are enough.
        fewest: the steps of the smallest sets.
        most: passes with which a set that is not so small has too few steps all the same.

    >>> _epochs(9, 9), _epochs(90, 16), _epochs(900, 16), _epochs(20_000, 32)
    (100.0, 20.0, 3.56, 3.0)
    """
    of_epoch = max(1, examples) / batch
    steps = max(_EPOCHS * of_epoch, min(enough, max(fewest, most * of_epoch)))
    return math.ceil(100 * steps / of_epoch) / 100
