"""The encoder of MPNet: BERT's layers with one bias by distance for all of them; its configuration is in `mpnet.py`.

P tokens of the longest sequence, A heads.
"""

import dataclasses

import torch
from torch import Tensor

from bertsmith.models.encoders.mpnet import MpnetConfig, ranges_of
from bertsmith.models.parts.layers import Embedding, initialize
from bertsmith.models.parts.transformer import Pass, TransformerEncoder


class MpnetModel(TransformerEncoder):
    """Word and position embeddings, post-norm layers with a shared bias by distance, a pooler with tanh."""

    config: MpnetConfig

    def __init__(self, config: MpnetConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, seed=None)
        self.embeddings.relative = Embedding(config.relative_attention_num_buckets, config.num_attention_heads)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def shared(self, basis: Pass) -> Pass:
        """The bias of every distance in the batch, once for all layers."""
        table = self.embeddings.get_submodule("relative").get_parameter("weight")
        longest = max(basis.batch.lengths) if basis.earlier is None else basis.earlier.longest
        bias = bias_by_distance(table, longest).to(basis.dtype)
        return dataclasses.replace(basis, bias=bias)


def bias_by_distance(table: Tensor, longest: int) -> Tensor:
    """The bias [A, 2P - 1] by the position of the key minus the query's, plus P - 1; see `Pass.bias`.

    Args:
        table: a bias for each range of distance, [ranges, A].
    """
    return table[torch.from_numpy(ranges_of(longest)).to(table.device)].T
