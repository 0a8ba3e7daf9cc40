"""The head that writes a text: a decoder on an encoder, whose word table, positions and output layer it shares.

Letters: T target tokens, D width, V vocabulary.

Its layers are those of the encoder, with a second attention to the encoder's states, and read from left to right. They
start as layers of the encoder with that attention new, or are these layers, and the layer that scores pieces starts as
the masked-LM head of the model, if it has one.

Source: Rothe, Narayan and Severyn (2020), "Leveraging Pre-trained Checkpoints for Sequence Generation Tasks", of
BERT2BERT and BERTShare.
"""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import require
from bertsmith.models.heads.copying import Copying
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.layers import new_norm, norm
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.part_names import DECODER, PREFIX
from bertsmith.models.parts.source import SourceStates
from bertsmith.models.parts.transformer import Pass, TransformerEncoder

if TYPE_CHECKING:
    from bertsmith.models.parts.memory import Memory

_SOURCE = "source_"  # what the names of the second attention begin with


class Decoder(nn.Module):
    """Layers that write a text, and the head that scores the next piece.

    Args:
        encoder: whose layers they have the shape of.
        depth: the number of layers; 0 for as many as the encoder has.
        head: turns states and word table into logits, see `PIECE_HEADS`.
        copies: whether pieces of the source can be copied, see `copying.py`.
        shares_layers: whether the layers are those of the encoder, with attention to the source of their own.
    """

    def __init__(
        self, encoder: Encoder, depth: int, head: nn.Module, *, copies: bool = False, shares_layers: bool = False
    ) -> None:
        super().__init__()
        below = require_layers(encoder)
        config, stack = below.config, below.stack
        require(
            depth <= len(stack),
            expected=f"at most {len(stack)} layers of a decoder, as the encoder has",
            found=depth,
            fix="lower decoder_layers",
        )
        self.starts = spread(depth or len(stack), len(stack))
        self.layers = nn.ModuleList(below.new_decoder_layer(number) for number in self.starts)
        if shares_layers:
            for layer, number in zip(self.layers, self.starts, strict=True):
                _share(layer, stack[number])
        self.final_norm: nn.LayerNorm | nn.RMSNorm | None = None
        if config.norms_last:
            self.final_norm = new_norm(config)
        self.head = head
        self.copy: nn.Module | None = None
        if copies:
            self.copy = Copying(config.hidden_size)

    def forward(
        self,
        batch: Batch,
        source: SourceStates,
        encoder: Encoder,
        *,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        memory: "Memory | None" = None,
    ) -> Tensor:
        """The logits [T, V] of the piece that follows each target token; see `EncoderDecoder.decode`.

        Args:
            encoder: the one below, for its embeddings.
        """
        assert len(source.lengths) == batch.num_rows, "a source for each target"
        below = require_layers(encoder)
        dtype = dtype or below.word_table.dtype
        earlier = None
        if memory is not None:
            from bertsmith.models.parts.earlier import Earlier

            earlier = Earlier(memory, batch)
        hidden = below.embeddings(batch, noise, below.stream_dtype(dtype), earlier)
        basis = Pass(batch=batch, noise=noise, trace=None, dtype=dtype, earlier=earlier, source=source)
        shared = below.shared(basis)
        for number, layer in enumerate(self.layers, start=1):
            hidden = layer(hidden, shared, None, str(number))
        if self.final_norm is not None:
            hidden = norm(hidden, self.final_norm)
        if earlier is not None:
            earlier.save()
        logits = self.head(hidden.to(dtype), encoder.word_table)
        if self.copy is not None:
            logits = self.copy(logits, hidden.to(dtype), source, batch.lengths)
        assert isinstance(logits, Tensor)
        return logits


def require_layers(encoder: Encoder) -> TransformerEncoder:
    """The encoder, whose layers a decoder can have too.

    Raises:
        ConfigError: it is recurrent, has no layers, or reads from left to right alone.
    """
    if not isinstance(encoder, TransformerEncoder) or not encoder.num_layers or encoder.config.is_causal:
        raise ConfigError(
            expected="a Transformer that reads in both directions, to add a decoder",
            found=encoder.config.display_name,
            fix="use a BERT, RoBERTa, DistilBERT, ELECTRA, ALBERT, MPNet, ModernBERT or DeBERTa",
        )
    return encoder


def _share(layer: nn.Module, other: nn.Module) -> None:
    """Puts the parts of another layer in place of a layer's own, of which only attention to the source is left.

    They remain parts of the other one alone, so they are trained and stored once.
    """
    for name, part in other.named_children():
        del layer._modules[name]
        object.__setattr__(layer, name, part)


def starts_of(encoder: Encoder, decoder: Decoder) -> Iterator[tuple[str, str]]:
    """The parameters of a decoder that start as others of the model below it: both names, with the prefixes of a model.

    A decoder with fewer layers than the encoder starts as layers at equal distances, from the lowest to the highest.
    """
    stack, distinct = require_layers(encoder).stack, list(encoder.layers)
    for name, _ in decoder.named_parameters():
        part, _, rest = name.partition(".")
        if part == "copy":
            continue
        if part != "layers":
            yield f"{DECODER}.{name}", f"mlm.{rest}" if part == "head" else f"{PREFIX}{name}"
            continue
        number, _, parameter = rest.partition(".")
        if not parameter.startswith(_SOURCE):
            below = distinct.index(stack[decoder.starts[int(number)]])
            yield f"{DECODER}.{name}", f"{PREFIX}layers.{below}.{parameter}"


@functools.cache
def spread(count: int, among: int) -> tuple[int, ...]:
    """The numbers of `count` layers at equal distances among `among`, from the lowest to the highest.

    >>> spread(3, 12), spread(1, 12), spread(4, 4)
    ((0, 6, 11), (0,), (0, 1, 2, 3))
    """
    return tuple(np.rint(np.linspace(0, among - 1, count)).astype(int).tolist())
