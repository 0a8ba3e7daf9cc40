"""The architectures that write a text from a text, by the `model_type` of their configuration."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.registry import Registry
from bertsmith.base.core.settings import require
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


def encoder_decoder_config(values: Any, where: str) -> EncoderConfig:
    """The configuration in a `config.json`."""
    kind = values.get("model_type") if isinstance(values, Mapping) else None
    require(
        isinstance(kind, str) and kind in ENCODER_DECODERS,
        expected=f"a translation model in '{where}'",
        found=f"model_type {kind!r}",
        fix="train one with `bertsmith train-translation`",
    )
    return ENCODER_DECODERS[str(kind)].from_dict(values)
