"""A model with its pre-training heads from whatever was loaded, and back to a folder."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoints.huggingface import write_model_folder
from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.names import part_of
from bertsmith.checkpoints.plan import LoadReport
from bertsmith.errors import ConfigError
from bertsmith.model.bert import initialize
from bertsmith.model.config import BertConfig
from bertsmith.model.heads import BertForPreTraining
from bertsmith.text.normalize import TextRules
from bertsmith.text.wordpiece import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model ready for use.

    Attributes:
        model: parameters in fp32.
        tokenizer: vocabulary and rules, or None where the source has no vocabulary.
        new_heads: the parts (pooler, mlm, nsp) that the source lacks; they stand at their random start.
        info: what the source says of itself.
        report: what became of every stored name.
    """

    model: BertForPreTraining
    tokenizer: Tokenizer | None
    new_heads: tuple[str, ...]
    info: Mapping[str, Any]
    report: LoadReport


def load_pretrained(
    source: Path | str, *, seed: int = 0, rules: TextRules | None = None, changes: Mapping[str, Any] | None = None
) -> Pretrained:
    """The model at a path or with a hub id, with both pre-training heads. S101, S105.

    Args:
        source: anything that `load_any` takes.
        seed: what missing heads are drawn from.
        rules: how text is cut, in place of what the source says.
        changes: fields of the configuration to set differently, e.g. the dropout of continued pre-training.

    Raises:
        ConfigError: `changes` would change the shape of a tensor.
        InputError, CheckpointError, VocabularyError: as `load_any`.
    """
    folder = load_any(source, rules=rules)
    config = dataclasses.replace(folder.config, **(changes or {}))
    model = untrained(config, seed)
    state = model.state_dict()
    for name, tensor in folder.tensors.items():
        if name in state and state[name].shape != tensor.shape:
            raise ConfigError(
                expected=f"changes that keep {name} at {list(tensor.shape)}",
                found=str(list(state[name].shape)),
                fix="leave the sizes of the model as they are",
            )
    taken = {name: tensor.float() for name, tensor in folder.tensors.items() if name in state}
    model.load_state_dict(taken, strict=False)
    absent = {part for name in state if name not in taken and (part := part_of(name)) is not None}
    return Pretrained(
        model=model, tokenizer=folder.tokenizer, new_heads=tuple(sorted(absent)), info=folder.info, report=folder.report
    )


def save_pretrained(
    path: Path | str,
    model: BertForPreTraining,
    tokenizer: Tokenizer,
    info: Mapping[str, Any],
    *,
    trained: Collection[str] = ("pooler", "mlm", "nsp"),
    replace: bool = False,
) -> None:
    """Writes a model folder.

    Args:
        trained: the parts to write beside the encoder; one that no objective trained is left out.
        replace: write over an existing folder that holds a model.
    """
    tensors = {
        name: tensor.detach().cpu() for name, tensor in model.state_dict().items() if part_of(name) in (None, *trained)
    }
    write_model_folder(
        path, config=model.config, tensors=tensors, tokenizer=tokenizer, info=dict(info), replace=replace
    )


def untrained(config: BertConfig, seed: int) -> BertForPreTraining:
    """A model at its random start."""
    with torch.device("meta"):
        model = BertForPreTraining(config, seed=None)
    model.to_empty(device="cpu")
    initialize(model, config.initializer_range, seed)
    return model
