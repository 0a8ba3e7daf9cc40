"""The architectures that can be loaded, trained, exported and served: one dictionary.

The `model_type` in `config.json` selects the configuration, the encoder, the names of its parameters in Hugging Face
folders, and the reader of its tokenizer. A new architecture is a module in `encoders/` and a line here.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.registry import Registry, imported
from bertsmith.base.core.settings import require_known
from bertsmith.models.checkpoints.transformers_folder import encoder_type
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.row_json import OF_LLAMA
from bertsmith.models.model_files.sentencepiece_file import (
    OF_ALBERT,
    describe_albert,
    describe_deberta,
    describe_xlm_roberta,
)
from bertsmith.models.model_files.tokenizer_files import (
    read_gpt_tokenizer,
    read_pipeline,
    read_tokenizer,
    read_wordpiece,
)
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.parameter_names import ParameterNames
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

if TYPE_CHECKING:
    from bertsmith.models.parts.encoder import Encoder
    from bertsmith.models.parts.encoder_decoder import EncoderDecoder

_PLAIN_ENCODER = "parts.transformer:TransformerEncoder"
TokenizerReader = Callable[[Path, ModelMetadata], tuple[Tokenizer | None, list[str]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """The classes and functions of one architecture; their module is imported when they are used.

    Attributes:
        module: below `models.encoders`; it holds the table of names and, as a rule, the configuration, and needs no
            torch for an encoder that can be a graph.
        prefix: of the names of its classes, such as "Albert" in `AlbertConfig` and `AlbertModel`.
        encoder_module: below `models.encoders`, of an encoder that is not the plain one of BERT.
        read_tokenizer: reads the tokenizer of a folder, given the content of `bertsmith.json`; returns None if there is
            no vocabulary, and a list of notes on where the rules come from.
    """

    module: str
    prefix: str
    read_tokenizer: TokenizerReader = read_tokenizer
    encoder_module: str = ""
    config_name: str = ""
    table: str = "NAMES"

    @property
    def config(self) -> type[EncoderConfig]:
        """Its configuration."""
        name = self.config_name or f"encoders.{self.module}:{self.prefix}Config"
        return cast("type[EncoderConfig]", imported(f"models.{name}"))

    @property
    def encoder(self) -> "Callable[..., Encoder]":
        """Its encoder; called with a configuration and the seed for initialization."""
        name = f"encoders.{self.encoder_module}:{self.prefix}Model" if self.encoder_module else _PLAIN_ENCODER
        return cast("type[Encoder]", imported(f"models.{name}"))

    @property
    def names(self) -> ParameterNames:
        """Its parameters in Hugging Face folders."""
        return cast("ParameterNames", imported(f"models.encoders.{self.module}:{self.table}"))


ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": Architecture(module="bert", prefix="Bert", config_name="parts.config:BertConfig"),
    "distilbert": Architecture(module="distilbert", prefix="DistilBert"),
    "openai-gpt": Architecture(module="gpt", prefix="Gpt", read_tokenizer=read_gpt_tokenizer),
    "roberta": Architecture(module="roberta", prefix="Roberta", read_tokenizer=read_pipeline),
    "electra": Architecture(module="electra", prefix="Electra"),
    "albert": Architecture(
        module="albert",
        prefix="Albert",
        encoder_module="albert_model",
        read_tokenizer=functools.partial(read_tokenizer, usual=OF_ALBERT, describe=describe_albert),
    ),
    "modernbert": Architecture(
        module="modernbert",
        prefix="ModernBert",
        read_tokenizer=functools.partial(read_tokenizer, usual=SPECIAL_PIECES),
    ),
    "xlm-roberta": Architecture(
        module="roberta",
        prefix="Roberta",
        read_tokenizer=functools.partial(read_tokenizer, describe=describe_xlm_roberta),
        config_name="encoders.roberta:XlmRobertaConfig",
        table="XLM_NAMES",
    ),
    "nomic_bert": Architecture(module="nomic", prefix="NomicBert"),
    "gte": Architecture(
        module="gte", prefix="Gte", read_tokenizer=functools.partial(read_tokenizer, describe=describe_xlm_roberta)
    ),
    "eurobert": Architecture(
        module="eurobert",
        prefix="EuroBert",
        read_tokenizer=functools.partial(read_tokenizer, usual=OF_LLAMA, has_segments=False),
    ),
    "mpnet": Architecture(module="mpnet", prefix="Mpnet", encoder_module="mpnet_model"),
    "deberta-v2": Architecture(
        module="deberta",
        prefix="Deberta",
        encoder_module="deberta_model",
        read_tokenizer=functools.partial(read_tokenizer, usual=SPECIAL_PIECES, describe=describe_deberta),
    ),
    "awd-lstm": Architecture(module="awd_lstm", prefix="AwdLstm", encoder_module="awd_lstm"),
    "static-vectors": Architecture(module="static", prefix="Static", encoder_module="static"),
    "elmo": Architecture(module="elmo", prefix="Elmo", encoder_module="elmo", read_tokenizer=read_wordpiece),
    "bilstm": Architecture(module="bilstm", prefix="BiLstm", encoder_module="bilstm"),
}
_GTE_BEFORE = "new"  # the model_type with which the models of GTE were published
# Models that write a text from a text: their configurations, and their classes.
ENCODER_DECODERS = Registry[type[EncoderConfig]](
    {
        "transformer": "models.encoders.transformer_encoder_decoder:TransformerConfig",
        "lstm": "models.encoders.lstm_encoder_decoder:LstmConfig",
    }
)
_ENCODER_DECODER_MODELS = Registry[Callable[..., "EncoderDecoder"]](
    {
        "transformer": "models.encoders.transformer_encoder_decoder:Transformer",
        "lstm": "models.encoders.lstm_encoder_decoder:LstmEncoderDecoder",
    }
)
# Models that are not encoders of text: their names, the commands that use them, and their configurations.
_OTHER_MODELS: Mapping[str, tuple[str, str, str]] = {
    "memory-network": ("a memory network", "memory answer", "models.encoders.memory_network:MemoryNetworkConfig"),
    "g-bert": ("a model of visits", "codes predict", "models.encoders.g_bert:GBertConfig"),
}


def architecture_of(config: EncoderConfig) -> Architecture:
    """The architecture of a configuration."""
    return ARCHITECTURES[config.model_type]


def require_architecture(name: str) -> Architecture:
    """The architecture with this name."""
    require_known("architecture", name, ARCHITECTURES)
    return ARCHITECTURES[name]


def require_size(architecture: str, size: str | None, *others: str) -> None:
    """Returns if an architecture has a size, or it is one of the others; one without named sizes is refused later."""
    sizes = require_architecture(architecture).config.sizes
    if size is not None and sizes:
        require_known("model size", size, [*sizes, *others])


def read_config(values: Mapping[str, Any]) -> EncoderConfig:
    """The configuration in a `config.json`; without a `model_type` it is read as a BERT."""
    kind = values.get("model_type", "bert") if isinstance(values, Mapping) else "bert"
    if isinstance(kind, str) and kind != encoder_type(kind):
        kind = encoder_type(kind)
        values = {**values, "model_type": kind}
    if kind == _GTE_BEFORE:
        kind, values = "gte", {"rope_theta": 10000.0, **values, "model_type": "gte"}
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        if isinstance(kind, str) and kind in ENCODER_DECODERS:
            raise ConfigError(
                expected="an encoder",
                found=f"a model_type {kind!r}, which is an encoder with a decoder",
                fix="use it with `bertsmith translate`",
            )
        if isinstance(kind, str) and kind in _OTHER_MODELS:
            name, command, _ = _OTHER_MODELS[kind]
            raise ConfigError(expected="an encoder", found=name, fix=f"use it with `bertsmith {command}` or `serve`")
        known = ", ".join(ARCHITECTURES)
        # Not the nearest name: MobileBERT is not a misspelled ModernBERT, and DeBERTa 1 has other layers than 2 and 3.
        raise ConfigError(
            expected=f"a model_type among {known}",
            found=repr(kind),
            fix="use a model of one of these architectures; others have other layers",
        )
    return ARCHITECTURES[kind].config.from_dict(values)


def read_other_config(values: Any) -> EncoderConfig | None:
    """The configuration in a `config.json` of a model that is not an encoder of text; None if it is of an encoder."""
    kind = values.get("model_type") if isinstance(values, Mapping) else None
    if isinstance(kind, str) and kind in ENCODER_DECODERS:
        return ENCODER_DECODERS[kind].from_dict(values)
    if isinstance(kind, str) and kind in _OTHER_MODELS:
        return cast("type[EncoderConfig]", imported(_OTHER_MODELS[kind][2])).from_dict(values)
    return None


def new_encoder(config: EncoderConfig, *, seed: int | None = None) -> "Encoder":
    """An encoder of this shape."""
    return architecture_of(config).encoder(config, seed=seed)


def new_encoder_decoder(config: EncoderConfig, *, seed: int | None = 0) -> "EncoderDecoder":
    """A model of this shape that writes a text from a text."""
    return _ENCODER_DECODER_MODELS[config.model_type](config, seed=seed)
