"""The Transformer as it was published: an encoder of the source text, and a decoder that writes the target text.

Letters: T target tokens, S source tokens, N sequences, D width, V vocabulary.

Layers come from `models/parts/transformer.py`: post-norm, ReLU; those of the decoder have a second attention. One word
table serves both sides and the output layer, and its vectors are multiplied by the square root of the width. Positions
are sines. There is no norm after the last layer.

Source: Vaswani et al. (2017), "Attention Is All You Need", sections 3 and 5.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.earlier import Earlier
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.models.parts.layers import initialize
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.source import SourceStates
from bertsmith.models.parts.transformer import DecoderLayer, Embeddings, Layer, Pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(EncoderConfig):
    """The shape of an encoder-decoder Transformer; `base` is the base model of the paper.

    >>> TransformerConfig.named("base", vocab_size=37000).num_parameters()
    63082496
    """

    model_type: ClassVar[str] = "transformer"
    display_name: ClassVar[str] = "Transformer"
    has_pooler: ClassVar[bool] = False
    can_pool: ClassVar[bool] = False
    norms_embeddings: ClassVar[bool] = False
    scales_embeddings: ClassVar[bool] = True
    in_transformers: ClassVar[bool] = False
    has_graph: ClassVar[bool] = False
    piece_head: ClassVar[str] = "tied"
    omitted: ClassVar[frozenset[str]] = frozenset({"type_vocab_size", "is_causal", "classifier_dropout"})
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        "tiny": (2, 128, 4, 512),
        "mini": (3, 256, 4, 1024),
        "small": (4, 384, 6, 1536),
        "base": (6, 512, 8, 2048),
        "big": (6, 1024, 16, 4096),
    }

    hidden_size: int = help_field(512, "width of the hidden states")
    num_hidden_layers: int = help_field(6, "layers of the encoder, and of the decoder")
    num_attention_heads: int = help_field(8, "attention heads; must divide hidden_size")
    intermediate_size: int = help_field(2048, "width of the feed-forward network")
    hidden_act: str = help_field("relu", "activation: relu, gelu (exact, erf) or gelu_new (tanh approximation)")
    attention_probs_dropout_prob: float = help_field(0.0, "dropout on the attention probabilities")
    type_vocab_size: int = help_field(0, "segments; a Transformer has none")
    layer_norm_eps: float = help_field(1e-6, "added to the variance inside the square root")
    position_embedding_type: str = help_field("sinusoidal", "positions: absolute (learned), sinusoidal or none")

    def num_parameters(self, *, pooler: bool = False, heads: bool = False) -> int:
        """The number of parameters; the output layer is the word table."""
        width, inner = self.hidden_size, self.intermediate_size
        of_attention, of_norm = 4 * (width * width + width), 2 * width
        feed_forward = width * inner + inner + inner * width + width
        positions = self.max_position_embeddings if self.position_embedding_type == "absolute" else 0
        encoder, decoder = of_attention + feed_forward + 2 * of_norm, 2 * of_attention + feed_forward + 3 * of_norm
        return (self.vocab_size + positions) * width + self.num_hidden_layers * (encoder + decoder)


class Transformer(EncoderDecoder):
    """Layers of an encoder and of a decoder."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, Embeddings(config))
        self.encoder = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def encode(self, batch: Batch, *, noise: Noise | None = None, dtype: torch.dtype | None = None) -> SourceStates:
        """See `EncoderDecoder.encode`."""
        dtype = dtype or self.embeddings.word.weight.dtype
        hidden = self.embeddings(batch, noise, self._stream_dtype(dtype))
        shared = Pass(batch=batch, noise=noise, trace=None, dtype=dtype)
        for number, layer in enumerate(self.encoder, start=1):
            hidden = layer(hidden, shared, None, str(number))
        return SourceStates(hidden, batch.lengths)

    def decode(
        self,
        batch: Batch,
        source: SourceStates,
        *,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """See `EncoderDecoder.decode`."""
        assert len(source.lengths) == batch.num_rows, "a source for each target"
        dtype = dtype or self.embeddings.word.weight.dtype
        earlier = None if memory is None else Earlier(memory, batch)
        hidden = self.embeddings(batch, noise, self._stream_dtype(dtype), earlier)
        shared = Pass(batch=batch, noise=noise, trace=None, dtype=dtype, earlier=earlier, source=source)
        for number, layer in enumerate(self.decoder, start=1):
            hidden = layer(hidden, shared, None, str(number))
        if earlier is not None:
            earlier.save()
        return self.logits(hidden, dtype)

    def _stream_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the residual stream: at least fp32 in training."""
        return torch.promote_types(dtype, torch.float32) if self.training else dtype
