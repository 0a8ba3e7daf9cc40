"""The encoder of ALBERT: BERT's layers, several of which share their parameters.

Its configuration and the names of its parameters are in `albert.py`.
"""

import copy
from collections.abc import Sequence
from typing import Self, cast

from bertsmith.models.encoders.albert import AlbertConfig
from bertsmith.models.parts.transformer import Layer, TransformerEncoder


class AlbertModel(TransformerEncoder):
    """Word, segment and position embeddings, a projection, layers that share parameters, a pooler with tanh."""

    config: AlbertConfig

    def __init__(self, config: AlbertConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, seed=seed)
        self.depth = config.num_hidden_layers

    @property
    def stack(self) -> Sequence[Layer]:
        """The layers in the order in which they are computed, each as often as its parameters are used."""
        layers = cast("Sequence[Layer]", self.layers)
        return [layers[self.config.parameters_of(number)] for number in range(self.depth)]

    def lower(self, depth: int) -> Self:
        """The same encoder without the layers above `depth`; it shares all parameters."""
        lower = copy.copy(self)
        lower.depth = depth
        return lower

    def height(self, name: str) -> int:
        """See `Encoder.height`; parameters that several layers share are as high as the highest of these."""
        height = super().height(name)
        if not name.startswith("layers."):
            return height
        groups = [self.config.parameters_of(layer) for layer in range(self.num_layers)]
        return self.num_layers - groups[::-1].index(height - 1)
