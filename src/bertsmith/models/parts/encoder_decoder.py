"""The parts of every encoder-decoder: a word table, an encoder of the source text, a decoder that writes the target.

Letters: T target tokens, D width, V vocabulary.

The table serves the source, the target and the output layer. Training and search only use the methods here.
"""

import abc
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.source import SourceStates

if TYPE_CHECKING:  # the importer has it already; here it would be one more link of the longest chain
    from bertsmith.models.parts.transformer import Embeddings


class EncoderDecoder(nn.Module, abc.ABC):
    """A word table, an encoder and a decoder; an architecture adds the layers.

    It is no `Encoder`: it has two inputs. Its folder has the files of every model folder, but only `translation/` reads
    it.
    """

    config: EncoderConfig

    def __init__(self, config: EncoderConfig, embeddings: "Embeddings") -> None:
        super().__init__()
        self.config = config
        self.embeddings = embeddings

    @abc.abstractmethod
    def encode(self, batch: Batch, *, noise: Noise | None = None, dtype: torch.dtype | None = None) -> SourceStates:
        """The encoder's states of source texts."""

    @abc.abstractmethod
    def decode(
        self,
        batch: Batch,
        source: SourceStates,
        *,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """The logits [T, V] of the piece that follows each target token.

        Args:
            batch: the target tokens, of the same sequences in the same order as the source.
            memory: of the target tokens before these; afterwards it includes them.
        """

    def forward(
        self, source: Batch, target: Batch, *, noise: Noise | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """The logits [T, V] of the piece that follows each target token, given the source texts."""
        return self.decode(target, self.encode(source, noise=noise, dtype=dtype), noise=noise, dtype=dtype)

    def logits(self, hidden: Tensor, dtype: torch.dtype) -> Tensor:
        """The products [T, V] of the decoder's states [T, D] with the vectors of all pieces."""
        return F.linear(hidden.to(dtype), self.embeddings.word.weight.to(dtype))
