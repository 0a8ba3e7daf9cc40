"""The architectures that write a text from a text, by the `model_type` of their configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bertsmith.base.core.registry import Registry
from bertsmith.models.parts.config import EncoderConfig

if TYPE_CHECKING:
    from bertsmith.models.parts.encoder_decoder import EncoderDecoder

ENCODER_DECODERS = Registry[type[EncoderConfig]](
    {
        "transformer": "models.encoders.transformer_encoder_decoder:TransformerConfig",
        "lstm": "models.encoders.lstm_encoder_decoder:LstmConfig",
    }
)
_MODELS = Registry[Callable[..., "EncoderDecoder"]](
    {
        "transformer": "models.encoders.transformer_encoder_decoder:Transformer",
        "lstm": "models.encoders.lstm_encoder_decoder:LstmEncoderDecoder",
    }
)


def new_encoder_decoder(config: EncoderConfig, *, seed: int | None = 0) -> "EncoderDecoder":
    """A new model of this shape."""
    return _MODELS[config.model_type](config, seed=seed)
