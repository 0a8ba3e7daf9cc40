"""The architectures that can be loaded, trained, exported and served: one dictionary.

The `model_type` in `config.json` selects the configuration, the encoder, the names of its parameters in Hugging Face
folders, and the reader of its tokenizer. A new architecture is a module in `encoders/` and a line here.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, nearest
from bertsmith.base.core.settings import require_known
from bertsmith.models.checkpoints.transformers_folder import encoder_type
from bertsmith.models.encoders import (
    albert,
    awd_lstm,
    bert,
    bilstm,
    distilbert,
    electra,
    elmo,
    gpt,
    modernbert,
    mpnet,
    roberta,
    static,
)
from bertsmith.models.encoders.encoder_decoders import ENCODER_DECODERS
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.sentencepiece_file import OF_ALBERT, describe_albert, describe_xlm_roberta
from bertsmith.models.model_files.tokenizer_files import (
    read_gpt_tokenizer,
    read_pipeline,
    read_tokenizer,
    read_wordpiece,
)
from bertsmith.models.parts.config import BertConfig, EncoderConfig
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.parameter_names import ParameterNames
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

TokenizerReader = Callable[[Path, ModelMetadata], tuple[Tokenizer | None, list[str]]]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The classes and functions of one architecture.

    Attributes:
        config: its configuration.
        encoder: its encoder; called with a configuration and the seed for initialization.
        names: its parameters in Hugging Face folders.
        read_tokenizer: reads the tokenizer of a folder, given the content of `bertsmith.json`; returns None if there is
            no vocabulary, and a list of notes on where the rules come from.
    """

    config: type[EncoderConfig]
    encoder: Callable[..., Encoder]
    names: ParameterNames
    read_tokenizer: TokenizerReader


ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": Architecture(BertConfig, bert.BertModel, bert.NAMES, read_tokenizer),
    "distilbert": Architecture(
        distilbert.DistilBertConfig, distilbert.DistilBertModel, distilbert.NAMES, read_tokenizer
    ),
    "openai-gpt": Architecture(gpt.GptConfig, gpt.GptModel, gpt.NAMES, read_gpt_tokenizer),
    "roberta": Architecture(roberta.RobertaConfig, roberta.RobertaModel, roberta.NAMES, read_pipeline),
    "electra": Architecture(electra.ElectraConfig, electra.ElectraModel, electra.NAMES, read_tokenizer),
    "albert": Architecture(
        albert.AlbertConfig,
        albert.AlbertModel,
        albert.NAMES,
        functools.partial(read_tokenizer, usual=OF_ALBERT, describe=describe_albert),
    ),
    "modernbert": Architecture(
        modernbert.ModernBertConfig,
        modernbert.ModernBertModel,
        modernbert.NAMES,
        functools.partial(read_tokenizer, usual=SPECIAL_PIECES),
    ),
    "xlm-roberta": Architecture(
        roberta.XlmRobertaConfig,
        roberta.RobertaModel,
        roberta.XLM_NAMES,
        functools.partial(read_tokenizer, describe=describe_xlm_roberta),
    ),
    "mpnet": Architecture(mpnet.MpnetConfig, mpnet.MpnetModel, mpnet.NAMES, read_tokenizer),
    "awd-lstm": Architecture(awd_lstm.AwdLstmConfig, awd_lstm.AwdLstmModel, awd_lstm.NAMES, read_tokenizer),
    "static-vectors": Architecture(static.StaticConfig, static.StaticModel, static.NAMES, read_tokenizer),
    "elmo": Architecture(elmo.ElmoConfig, elmo.ElmoModel, elmo.NAMES, read_wordpiece),
    "bilstm": Architecture(bilstm.BiLstmConfig, bilstm.BiLstmModel, bilstm.NAMES, read_tokenizer),
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
    if isinstance(kind, str) and kind in ENCODER_DECODERS:
        raise ConfigError(
            expected="an encoder",
            found=f"a model_type {kind!r}, which is an encoder with a decoder",
            fix="use it with `bertsmith translate`",
        )
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
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
