"""The architectures that can be loaded, trained, exported and served: one dictionary.

The `model_type` in `config.json` selects the configuration, the encoder, the names of its parameters in Hugging Face
folders, and the reader of its tokenizer. A new architecture is a module in `encoders/` and a line here.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from bertsmith.base.core.errors import ConfigError, nearest
from bertsmith.base.core.registry import imported
from bertsmith.base.core.settings import require_known
from bertsmith.models.checkpoints.transformers_folder import encoder_type
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.sentencepiece_file import OF_ALBERT, describe_albert, describe_xlm_roberta
from bertsmith.models.model_files.tokenizer_files import (
    read_gpt_tokenizer,
    read_pipeline,
    read_tokenizer,
    read_wordpiece,
)
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.parameter_names import ParameterNames
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

TokenizerReader = Callable[[Path, ModelMetadata], tuple[Tokenizer | None, list[str]]]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The classes and functions of one architecture; their module is imported when they are used.

    Args:
        config_name, encoder_name, table_name: of its `config`, `encoder` and `names`, below `models`.
        read_tokenizer: reads the tokenizer of a folder, given the content of `bertsmith.json`; returns None if there is
            no vocabulary, and a list of notes on where the rules come from.
    """

    config_name: str
    encoder_name: str
    table_name: str
    read_tokenizer: TokenizerReader = read_tokenizer

    @property
    def config(self) -> type[EncoderConfig]:
        """Its configuration."""
        return cast("type[EncoderConfig]", imported(f"models.{self.config_name}"))

    @property
    def encoder(self) -> Callable[..., Encoder]:
        """Its encoder; called with a configuration and the seed for initialization."""
        return cast("type[Encoder]", imported(f"models.{self.encoder_name}"))

    @property
    def names(self) -> ParameterNames:
        """Its parameters in Hugging Face folders."""
        return cast("ParameterNames", imported(f"models.{self.table_name}"))


ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": Architecture("parts.config:BertConfig", "encoders.bert:BertModel", "encoders.bert:NAMES"),
    "distilbert": Architecture(
        "encoders.distilbert:DistilBertConfig", "encoders.distilbert:DistilBertModel", "encoders.distilbert:NAMES"
    ),
    "openai-gpt": Architecture(
        "encoders.gpt:GptConfig", "encoders.gpt:GptModel", "encoders.gpt:NAMES", read_gpt_tokenizer
    ),
    "roberta": Architecture(
        "encoders.roberta:RobertaConfig", "encoders.roberta:RobertaModel", "encoders.roberta:NAMES", read_pipeline
    ),
    "electra": Architecture(
        "encoders.electra:ElectraConfig", "encoders.electra:ElectraModel", "encoders.electra:NAMES"
    ),
    "albert": Architecture(
        "encoders.albert:AlbertConfig",
        "encoders.albert:AlbertModel",
        "encoders.albert:NAMES",
        functools.partial(read_tokenizer, usual=OF_ALBERT, describe=describe_albert),
    ),
    "modernbert": Architecture(
        "encoders.modernbert:ModernBertConfig",
        "encoders.modernbert:ModernBertModel",
        "encoders.modernbert:NAMES",
        functools.partial(read_tokenizer, usual=SPECIAL_PIECES),
    ),
    "xlm-roberta": Architecture(
        "encoders.roberta:XlmRobertaConfig",
        "encoders.roberta:RobertaModel",
        "encoders.roberta:XLM_NAMES",
        functools.partial(read_tokenizer, describe=describe_xlm_roberta),
    ),
    "mpnet": Architecture("encoders.mpnet:MpnetConfig", "encoders.mpnet:MpnetModel", "encoders.mpnet:NAMES"),
    "awd-lstm": Architecture(
        "encoders.awd_lstm:AwdLstmConfig", "encoders.awd_lstm:AwdLstmModel", "encoders.awd_lstm:NAMES"
    ),
    "static-vectors": Architecture(
        "encoders.static:StaticConfig", "encoders.static:StaticModel", "encoders.static:NAMES"
    ),
    "elmo": Architecture("encoders.elmo:ElmoConfig", "encoders.elmo:ElmoModel", "encoders.elmo:NAMES", read_wordpiece),
    "bilstm": Architecture("encoders.bilstm:BiLstmConfig", "encoders.bilstm:BiLstmModel", "encoders.bilstm:NAMES"),
}


def architecture_of(config: EncoderConfig) -> Architecture:
    """The architecture of a configuration."""
    return ARCHITECTURES[config.model_type]


def require_architecture(name: str) -> Architecture:
    """The architecture with this name."""
    require_known("architecture", name, ARCHITECTURES)
    return ARCHITECTURES[name]


def read_config(values: Mapping[str, Any]) -> EncoderConfig:
    """The configuration in a `config.json`; without a `model_type` it is read as a BERT.

    Raises:
        ConfigError: the architecture is unknown, or the configuration invalid.
    """
    kind = values.get("model_type", "bert") if isinstance(values, Mapping) else "bert"
    if isinstance(kind, str) and kind != encoder_type(kind):
        kind = encoder_type(kind)
        values = {**values, "model_type": kind}
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        from bertsmith.models.encoders.encoder_decoders import ENCODER_DECODERS

        if isinstance(kind, str) and kind in ENCODER_DECODERS:
            raise ConfigError(
                expected="an encoder",
                found=f"a model_type {kind!r}, which is an encoder with a decoder",
                fix="use it with `bertsmith translate`",
            )
        known = ", ".join(ARCHITECTURES)
        raise ConfigError(
            expected=f"a model_type among {known}", found=repr(kind), fix=nearest(str(kind), ARCHITECTURES)
        )
    return ARCHITECTURES[kind].config.from_dict(values)


def new_encoder(config: EncoderConfig, *, seed: int | None = None) -> Encoder:
    """An encoder of this shape.

    Args:
        seed: seed for initialization; None leaves that to the caller.
    """
    return architecture_of(config).encoder(config, seed=seed)
