"""Parameters and pieces of tiny models: two layers, 32 wide; model folders as they are in memory."""

from pathlib import Path

import torch
from torch import Tensor

from bertsmith.models.checkpoints.architectures import architecture_of
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

WORDS = "the a man went to store Store café naïve 中 国 ! , . un ##aff ##able ##s ##a ##b a b é 1 2 ##3".split()
PIECES = [*SPECIAL_PIECES, *dict.fromkeys(WORDS)]


def tiny_tensors(config: EncoderConfig, *parts: str, labels: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Random parameters with the named parts, by our name."""
    generator = torch.Generator().manual_seed(seed)
    names = architecture_of(config).names
    shapes = names.required_shapes(config)
    for part in parts:
        shapes |= names.part_shapes(part, config, labels)
    return {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in shapes.items()}


def write_folder(path: Path, folder: ModelFolder) -> Path:
    """Writes a model folder that is in memory."""
    write_model_folder(
        path, config=folder.config, tensors=folder.tensors, tokenizer=folder.tokenizer, metadata=folder.metadata
    )
    return path
