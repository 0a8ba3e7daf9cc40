"""Loads a model with its heads (of pre-training or of a task) from any source, and saves it to a folder."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.processes.sharding import Division, divide, put_parameter
from bertsmith.models.checkpoints.architectures import architecture_of, new_encoder
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.plan import LoadReport
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, EncoderForTask
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.layers import initial_values
from bertsmith.models.parts.part_names import BLOCKS, DECODER, OWN_HEAD, READER, TOKEN_PROJECTION, part_of
from bertsmith.text.tokenizers.tokenizer import Tokenizer, warn_of_casing
from bertsmith.text.tokenizers.vocabulary import Vocabulary

# Of a task's model: memory of its own; the tensors of the folder where these are fp32, which are usually mapped from a
# file, for a model that is not trained; or none (the meta device), to check and count before anything is read.
Parameters = Literal["own", "mapped", "meta"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model ready for use.

    Attributes:
        new_heads: the parts (pooler, mlm, nsp) that the source lacks; they are randomly initialized.
    """

    model: EncoderForPreTraining
    tokenizer: Tokenizer | None
    new_heads: tuple[str, ...]
    metadata: ModelMetadata
    report: LoadReport


def load_pretrained(
    folder: ModelFolder,
    *,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    division: Division | None = None,
) -> Pretrained:
    """The model at a path or with a hub id, with both pre-training heads.

    Args:
        changes: fields of the configuration to override, e.g. the dropout of continued pre-training.
        division: the processes to divide the model among, which all call this; each holds its rows alone.
    """
    if folder.tokenizer is not None:
        warn_of_casing(folder.tokenizer, folder.name)
    config = dataclasses.replace(folder.config, **(changes or {}))
    with torch.device("meta"):
        model = EncoderForPreTraining(new_encoder(config), seed=None)
    state = model.state_dict()
    for name, tensor in folder.tensors.items():
        if name in state and state[name].shape != tensor.shape:
            raise ConfigError(
                expected=f"changes that keep {name} at shape {list(tensor.shape)}",
                found=str(list(state[name].shape)),
                fix="do not change the sizes of the model",
            )
    taken = {name: tensor for name, tensor in folder.tensors.items() if name in state}
    give_memory(model, taken, seed, division)
    if folder.tokenizer is not None:
        model.encoder.read_vocabulary(folder.tokenizer.vocabulary)
    absent = {part for name in state if name not in taken and (part := part_of(name)) is not None}
    return Pretrained(
        model=model,
        tokenizer=folder.tokenizer,
        new_heads=tuple(sorted(absent)),
        metadata=folder.metadata,
        report=folder.report,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskModel:
    """An encoder with the head of a task.

    Attributes:
        new_parts: the parts (pooler, classifier, span) that are randomly initialized.
        left_out: the parts of the source that this model does not use.
    """

    model: EncoderForTask
    tokenizer: Tokenizer
    new_parts: tuple[str, ...]
    left_out: tuple[str, ...]
    metadata: ModelMetadata


def load_for_task(
    folder: ModelFolder,
    head: Head,
    *,
    keep_head: bool,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    reinit_layers: int = 0,
    predicts: bool = False,
    copies_layers: bool = False,
    division: Division | None = None,
    parameters: Parameters = "own",
) -> TaskModel:
    """The encoder of any source with the head of a task.

    Args:
        keep_head: keep the head of the source, which must then have one; otherwise the head is new.
        reinit_layers: number of top encoder layers to re-initialize, together with the pooler.
        predicts: also load the head that scores pieces.
        copies_layers: a decoder starts as layers of the encoder, see `heads/decoder.py`.
        parameters: where the parameters are, see `Parameters`.
    """
    tokenizer = folder.require_tokenizer()
    warn_of_casing(tokenizer, folder.name)
    config = dataclasses.replace(folder.config, **(changes or {}))
    layers = config.num_hidden_layers
    if reinit_layers > layers:
        raise ConfigError(
            expected=f"reinit_layers of at most {layers}, the layers of the model",
            found=str(reinit_layers),
            fix="lower it",
        )
    with torch.device("meta"):
        model = EncoderForTask(new_encoder(config), head, seed=None, predicts=predicts)
    state = model.state_dict()
    if reinit_layers and config.num_distinct_layers < layers:
        raise ConfigError(
            expected=f"no reinit_layers for {config.display_name}, whose layers share their parameters",
            found=str(reinit_layers),
            fix="leave it out",
        )
    reinitialized = tuple(f"bert.layers.{number}." for number in range(layers - reinit_layers, layers))
    reinitialized += ("bert.pooler.",) if reinit_layers else ()
    taken = {
        name: tensor
        for name, tensor in folder.tensors.items()
        if name in state
        and not name.startswith(reinitialized or ("-",))
        and (keep_head or part_of(name) not in (head.saved_part, BLOCKS, READER))
    }
    for name, other in architecture_of(config).names.starts_as.items():
        if name in state and name not in taken and other in folder.tensors and not (keep_head or reinit_layers):
            taken[name] = folder.tensors[other]
    if copies_layers and head.is_decoder:
        from bertsmith.models.heads.decoder import Decoder, starts_of

        decoder = model.output_layer
        assert isinstance(decoder, Decoder)
        taken |= {
            name: folder.tensors[other] for name, other in starts_of(model.encoder, decoder) if other in folder.tensors
        }
    if (predicts or head.pieces is not None) and "mlm" not in folder.parts and config.piece_head != "tied":
        of_vectors = head.pieces is not None
        raise CheckpointError(
            expected=f"a head that predicts pieces in '{folder.name}', for "
            + ("sparse vectors" if of_vectors else "the auxiliary language-model loss"),
            found=", ".join(folder.parts) or "no head",
            fix="download the model again"
            if of_vectors
            else "leave --language-model-loss out, or use the model as it was after pre-training",
        )
    if keep_head and head.own is not None:
        _require_own_head(folder, head, state, taken)
    elif keep_head and OWN_HEAD in folder.parts:
        name = folder.metadata.own_head or "of an unknown class"
        raise CheckpointError(
            expected=f"the class of the head in '{folder.name}'",
            found=f"none; the model was fine-tuned with the user's head {name!r}",
            fix="pass the class with --head FILE:CLASS (embed and features work without it)",
        )
    elif keep_head and head.token_width and TOKEN_PROJECTION not in folder.parts:
        raise CheckpointError(
            expected=f"the projection of vectors of tokens in '{folder.name}'",
            found=", ".join(folder.parts) or "no head",
            fix="use a model that was fine-tuned with --vectors tokens",
        )
    elif keep_head and not head.is_vector:
        rows = len(taken.get(f"{head.part}.bias", ()))
        lacks_blocks = any(
            part_of(name) in (BLOCKS, READER, DECODER) and (name not in taken or taken[name].shape != tensor.shape)
            for name, tensor in state.items()
        )
        lacks_pooler = head.uses_pooler(config) and config.can_pool and "bert.pooler.weight" not in taken
        if rows != head.outputs or lacks_blocks or lacks_pooler:
            expected = f"a decoder of {head.layers_of_decoder or layers} layers" if head.is_decoder else ""
            below = " on a pooler" if head.uses_pooler(config) else " on a hidden layer" if lacks_blocks else ""
            raise CheckpointError(
                expected=f"{expected or f'a {head.part} head of {head.outputs} rows{below}'} in '{folder.name}'",
                found=", ".join(folder.parts) + (f" ({rows} rows)" if rows else "") if folder.parts else "no head",
                fix="use a model that was fine-tuned for this task",
            )
    if parameters != "meta":
        give_memory(model, taken, seed, division, mapped=parameters == "mapped")
    model.encoder.read_vocabulary(tokenizer.vocabulary)
    new = {part for name in state if name not in taken and (part := part_of(name)) is not None}
    left = {part for part in folder.parts if not any(part_of(name) == part for name in state)}
    return TaskModel(
        model=model,
        tokenizer=tokenizer,
        new_parts=tuple(sorted(new)),
        left_out=tuple(sorted(left)),
        metadata=folder.metadata,
    )


def save_pretrained(
    path: Path | str,
    model: EncoderForPreTraining | EncoderForTask | ModelFolder,
    tokenizer: Tokenizer,
    metadata: ModelMetadata,
    *,
    trained: Collection[str] = ("pooler", "mlm", "nsp"),
    replace: bool = False,
    weights_of: Path | None = None,
) -> None:
    """Writes a model folder.

    Args:
        trained: the parts to write in addition to the encoder; leave out parts that no objective trained. The hidden
            layer of a head is always written.
        replace: overwrite an existing folder that contains a model.
        weights_of: see `write_model_folder`.
    """
    tensors = {
        name: tensor.detach()
        for name, tensor in (model.tensors if isinstance(model, ModelFolder) else model.state_dict()).items()
        if part_of(name) in (None, BLOCKS, READER, *trained)
    }
    write_model_folder(
        path,
        config=model.config,
        tensors=tensors,
        tokenizer=tokenizer,
        metadata=metadata,
        replace=replace,
        weights_of=weights_of,
    )


def untrained(
    config: EncoderConfig, seed: int, vocabulary: Vocabulary | None = None, division: Division | None = None
) -> EncoderForPreTraining:
    """A randomly initialized model."""
    with torch.device("meta"):
        model = EncoderForPreTraining(new_encoder(config), seed=None)
    give_memory(model, {}, seed, division)
    if vocabulary is not None:
        model.encoder.read_vocabulary(vocabulary)
    return model


def give_memory(
    model: EncoderForPreTraining | EncoderForTask,
    tensors: Mapping[str, Tensor],
    seed: int = 0,
    division: Division | None = None,
    *,
    mapped: bool = False,
) -> None:
    """Allocates the parameters of a model on the meta device in fp32, and sets their values."""

    def values(name: str) -> Tensor:
        if name not in tensors:
            return initial_values(model, name, model.config.initializer_range, seed)
        assert tensors[name].shape == model.get_parameter(name).shape, name
        return tensors[name]

    if division is not None:
        divide(model, division, values)
        return
    # `to_empty` and random numbers on the meta device would load the compiler of torch, which takes seconds.
    for name, _ in list(model.named_parameters()):
        value = values(name).to(torch.float32, copy=not mapped).contiguous()
        put_parameter(model, name, nn.Parameter(value, requires_grad=not mapped))


def _require_own_head(
    folder: ModelFolder, head: Head, state: Mapping[str, Tensor], taken: Mapping[str, Tensor]
) -> None:
    """Checks that the folder contains the parameters of the user's head, in the shapes that its class creates."""
    assert head.own is not None, "a head of the user"
    wanted = {name: list(tensor.shape) for name, tensor in state.items() if part_of(name) == OWN_HEAD}
    stored = {name: list(tensor.shape) for name, tensor in folder.tensors.items() if part_of(name) == OWN_HEAD}
    if not stored:
        raise CheckpointError(
            expected=f"a model that was fine-tuned with the head {head.own.__name__!r} in '{folder.name}'",
            found=", ".join(folder.parts) or "no head",
            fix="omit the head, or name the model that was fine-tuned with it",
        )
    if wanted != stored or (
        head.uses_pooler(folder.config) and folder.config.can_pool and "bert.pooler.weight" not in taken
    ):
        raise CheckpointError(
            expected=f"the parameters of {head.own.__name__} in '{folder.name}': {wanted}",
            found=f"{stored}, written by {folder.metadata.own_head or 'a head of an unknown class'}",
            fix="pass the class that the model was fine-tuned with",
        )
