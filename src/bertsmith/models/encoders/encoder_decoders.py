"""The architectures that write a text from a text, by the `model_type` of their configuration."""

from collections.abc import Mapping
from typing import Any

from bertsmith.base.core.settings import require
from bertsmith.models.encoders.lstm_encoder_decoder import LstmConfig, LstmEncoderDecoder
from bertsmith.models.encoders.transformer_encoder_decoder import Transformer, TransformerConfig
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder_decoder import EncoderDecoder

# Their configurations; `new_encoder_decoder` has the models.
ENCODER_DECODERS: Mapping[str, type[EncoderConfig]] = {
    config.model_type: config for config in (TransformerConfig, LstmConfig)
}


def new_encoder_decoder(config: EncoderConfig, *, seed: int | None = 0) -> EncoderDecoder:
    """A new model of this shape.

    Args:
        seed: seed for initialization; None leaves that to the caller.
    """
    if isinstance(config, LstmConfig):
        return LstmEncoderDecoder(config, seed=seed)
    assert isinstance(config, TransformerConfig), f"{config.display_name} is no encoder-decoder"
    return Transformer(config, seed=seed)


def encoder_decoder_config(values: Any, where: str) -> EncoderConfig:
    """The configuration in a `config.json`.

    Args:
        where: the folder, for messages.
    """
    kind = values.get("model_type") if isinstance(values, Mapping) else None
    require(
        isinstance(kind, str) and kind in ENCODER_DECODERS,
        expected=f"a translation model in '{where}'",
        found=f"model_type {kind!r}",
        fix="train one with `bertsmith train-translation`",
    )
    return ENCODER_DECODERS[str(kind)].from_dict(values)
