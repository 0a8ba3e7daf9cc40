"""Models that answer, from a folder, a checkpoint or a hub id."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertsmith.checkpoints.assembly import load_for_task, load_pretrained
from bertsmith.checkpoints.int8_scales import read_scales
from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.model_folder import ModelFolder, no_vocabulary
from bertsmith.errors import CheckpointError
from bertsmith.inference.predictor import Predictor
from bertsmith.inference.pretraining_heads import PretrainedPredictor
from bertsmith.model.heads import OwnHead
from bertsmith.model.int8_linear import InputScale
from bertsmith.model.our_names import part_of
from bertsmith.model.prepared import prepare
from bertsmith.pretraining.objectives import FOLLOWS, OBJECTIVES
from bertsmith.runtime import choose_inference
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.spec_of_model import require_spec


def load_predictor(
    source: str | Path | ModelFolder,
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    kept: Sequence[str] | None = None,
    scales: Mapping[str, InputScale] | None = None,
    head: type[OwnHead] | None = None,
) -> Predictor:
    """The predictor of a model folder, ours or one of `transformers`, or of a Google checkpoint with a head.

    Args:
        products: how linear layers are computed; see `choose_inference`.
        kept: with int8, the linear layers kept in higher precision; by default what `bertsmith quantize` recorded, the
            layers and the scales.
        scales: with int8 and `kept`, the scales that calibration fixed; None for one scale per token.
        head: the class of the user's head that the model was fine-tuned with, if it was.

    Raises:
        CheckpointError: the model has no task head, or a different one, or cannot be read.
        ConfigError: `head` is not the class of a head.
    """
    folder = source if isinstance(source, ModelFolder) else load_any(source)
    spec = require_spec(folder)
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    if kept is None:
        kept = folder.metadata.kept_layers(folder.path)
        scales = read_scales(folder)[0] if runtime.precision == "int8" else None
    task = task_for(spec)
    loaded = load_for_task(folder, dataclasses.replace(task.head, own=head), keep_head=True)
    prepare(loaded.model.to(runtime.torch_device), runtime, kept, scales)
    return Predictor(loaded.model, task, loaded.tokenizer, runtime)


def load_pretraining_heads(
    source: str | Path | ModelFolder,
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    needs: Sequence[str] = (),
) -> PretrainedPredictor:
    """A predictor from a model folder, a Google checkpoint, or a hub id.

    Args:
        products: how linear layers are computed; see `choose_inference`.
        needs: the heads that must have been trained, "mlm" or "nsp".

    Raises:
        CheckpointError: the model cannot be read, has no vocabulary, or lacks a required head.
    """
    folder = load_any(source)
    loaded = load_pretrained(folder)
    place = source.path if isinstance(source, ModelFolder) else source
    trained = {part_of(name) for name in loaded.model.state_dict()} - {*loaded.new_heads}
    for head in needs:
        if head not in trained:
            raise CheckpointError(
                expected=f"a model with a trained {head} head in '{place}'",
                found="none",
                fix="name a pre-trained model that has it",
            )
    if loaded.tokenizer is None:
        raise no_vocabulary(place)
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    prepare(loaded.model.to(runtime.torch_device), runtime)
    objective = OBJECTIVES.get(folder.metadata.objective or "")
    relation = FOLLOWS if objective is None else objective.relation
    return PretrainedPredictor(loaded.model, loaded.tokenizer, runtime, relation)
