"""The folder of an ONNX export: its graphs, its tokenizer, and the metadata needed to run it; read without torch.

`bertsmith.json` holds the task, as in every model folder, and under "onnx" the shape of the model (`OnnxShape`), so
that neither weights nor architectures have to be imported.
"""

import dataclasses
from pathlib import Path

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.core.settings import from_dict, to_dict
from bertsmith.models.model_files.metadata import METADATA, ModelMetadata, read_metadata
from bertsmith.models.model_files.tokenizer_files import read_tokenizer, with_segments
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.text.tokenizers.tokenizer import Tokenizer

GRAPH, INT8_GRAPH = "model.onnx", "model_int8.onnx"
SHAPE = "onnx"  # the key in the metadata
_OTHER_WEIGHTS = ("*.safetensors", "*.bin", "*.index", "*.safetensors.index.json")
_AGAIN = "export the model again (bertsmith convert MODEL DIR --to onnx)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxShape:
    """The facts about a model that running its graph needs.

    Attributes:
        parts: the parts beyond embeddings and layers that were exported, such as "pooler" and "mlm".
        int8_bits: the bits of a weight in the int8 graph; 0 if there is none.
    """

    parts: tuple[str, ...]
    hidden_size: int
    num_hidden_layers: int
    vocab_size: int
    type_vocab_size: int
    max_tokens: int
    pad_token_id: int
    is_causal: bool
    int8_bits: int = 0

    @staticmethod
    def of(config: EncoderConfig, parts: tuple[str, ...], int8_bits: int = 0) -> "OnnxShape":
        """The shape of a model with this configuration."""
        return OnnxShape(
            parts=parts,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            vocab_size=config.vocab_size,
            type_vocab_size=config.type_vocab_size,
            max_tokens=config.max_tokens,
            pad_token_id=config.pad_token_id,
            is_causal=config.is_causal,
            int8_bits=int8_bits,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxFolder:
    """The folder of an ONNX export."""

    path: Path
    shape: OnnxShape
    tokenizer: Tokenizer
    metadata: ModelMetadata

    def graph(self, precision: str) -> Path:
        """The file to run: of fp32, which is also the choice of auto, or of int8."""
        path = self.path / (INT8_GRAPH if precision == "int8" else GRAPH)
        if precision not in ("auto", "fp32", "int8") or not path.is_file():
            has = [name for name, file in (("fp32", GRAPH), ("int8", INT8_GRAPH)) if (self.path / file).is_file()]
            raise ConfigError(
                expected=f"a precision of the ONNX folder '{self.path}': {' or '.join(has)}",
                found=repr(precision),
                fix="export it with --int8" if precision == "int8" else f"use --precision {has[0]}",
            )
        return path


def is_onnx_folder(source: object) -> bool:
    """Whether a source is a folder with an ONNX graph and no weights that torch could read."""
    if not isinstance(source, str | Path):
        return False
    path = Path(source)
    if path.suffix == ".onnx" and path.is_file():
        raise InputError(
            expected="the folder of an ONNX export", found=f"its file '{path}'", fix=f"name the folder, '{path.parent}'"
        )
    has_graph = path.is_dir() and any((path / name).is_file() for name in (GRAPH, INT8_GRAPH))
    return has_graph and not any(any(path.glob(pattern)) for pattern in _OTHER_WEIGHTS)


def read_onnx_folder(path: Path | str) -> OnnxFolder:
    """The folder of an ONNX export."""
    folder = Path(path)
    if not (folder / METADATA).is_file():
        raise CheckpointError(expected=f"{METADATA} next to the ONNX graph in '{folder}'", found="none", fix=_AGAIN)
    metadata = read_metadata(folder)
    recorded = metadata.other.get(SHAPE)
    if recorded is None:
        raise CheckpointError(
            expected=f"the shape of the model, '{SHAPE}', in '{folder / METADATA}'",
            found="none",
            fix=_AGAIN,
        )
    shape = from_dict(OnnxShape, recorded, f"{SHAPE} of '{folder / METADATA}'")
    tokenizer, _ = read_tokenizer(folder, metadata)
    if tokenizer is None:
        raise CheckpointError(
            expected=f"the vocabulary next to the ONNX graph in '{folder}'",
            found="no vocab.txt or tokenizer.json",
            fix=_AGAIN,
        )
    metadata.check_vocabulary(tokenizer.vocabulary, folder)
    tokenizer = with_segments(tokenizer, shape.type_vocab_size, folder)
    return OnnxFolder(path=folder, shape=shape, tokenizer=tokenizer, metadata=metadata)


def with_shape(metadata: ModelMetadata, shape: OnnxShape) -> ModelMetadata:
    """The metadata of an export, with the shape of its graph."""
    return dataclasses.replace(metadata, other={**metadata.other, SHAPE: to_dict(shape)})
