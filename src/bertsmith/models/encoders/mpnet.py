"""MPNet: BERT's layers without segments, with relative position biases in attention.

All layers share the bias: one number for each head and each of 32 ranges of distance, apart for both directions.
Positions of the embeddings start after the padding id, as in RoBERTa.

A classifier of whole texts has a pooler of its own, which Hugging Face stores in the head.

P tokens of the longest sequence, A heads.

Source: Song et al. (2020), "MPNet: Masked and Permuted Pre-training for Language Understanding"; Raffel et al. (2020),
"T5", section 2.1, for the ranges of distance; the module names of Hugging Face's MPNet.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from bertsmith.base.core.settings import help_field, require_number
from bertsmith.models.encoders.post_norm_names import (
    BERT_PARTS,
    CLASSIFIER_WITH_POOLER,
    post_norm_layer,
    post_norm_names,
)
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.layers import Embedding, initialize
from bertsmith.models.parts.parameter_names import Row
from bertsmith.models.parts.transformer import Pass, TransformerEncoder

_RANGES, _FARTHEST = 32, 128  # the ranges of distance, and tokens: what is farther away is in the last range


@dataclasses.dataclass(frozen=True, kw_only=True)
class MpnetConfig(EncoderConfig):
    """The shape of an MPNet encoder.

    >>> MpnetConfig.named("base").num_parameters()
    109486464
    """

    model_type: ClassVar[str] = "mpnet"
    display_name: ClassVar[str] = "MPNet"
    names: ClassVar[str] = "models.encoders.mpnet:NAMES"
    head_activation: ClassVar[str] = "gelu"
    absent: ClassVar[Mapping[str, Any]] = {"layer_norm_eps": 1e-12}
    omitted: ClassVar[frozenset[str]] = frozenset({"type_vocab_size", "position_embedding_type", "is_causal"})

    vocab_size: int = help_field(30527, "pieces in the vocabulary")
    max_position_embeddings: int = help_field(514, "rows of the position table; two of them are never used")
    type_vocab_size: int = help_field(0, "segments; MPNet has none")
    layer_norm_eps: float = help_field(1e-5, "added to the variance inside the square root")
    pad_token_id: int = help_field(1, "id of <pad>; positions start after 1, whatever it is")
    relative_attention_num_buckets: int = help_field(_RANGES, "ranges of distance with a bias of their own")

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "relative_attention_num_buckets"
        require_number(name, self.relative_attention_num_buckets, least=_RANGES)

    @functools.cached_property
    def first_position(self) -> int:
        """The row of the position table for the first token."""
        return 2

    @property
    def axes(self) -> dict[str, int]:
        """See `EncoderConfig`; B ranges of distance, A heads."""
        return super().axes | {"B": self.relative_attention_num_buckets, "A": self.num_attention_heads}


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
    distances = torch.arange(1 - longest, longest, device=table.device)
    return table[ranges_of(distances)].T


def ranges_of(distances: Tensor) -> Tensor:
    """The range of distance of each key from its query, int64: near ones one by one, then ever wider ones.

    >>> ranges_of(torch.tensor([0, -1, -7, -8, -127, -500, 1, 500])).tolist()
    [0, 1, 7, 8, 15, 15, 17, 31]
    """
    half = _RANGES // 2
    single = half // 2
    far = distances.abs()
    ratio = torch.log(far.clamp_min(1).float() / single) / math.log(_FARTHEST / single)
    wide = (single + (ratio * (half - single)).to(torch.int64)).clamp_max(half - 1)
    return torch.where(far < single, far, wide) + (distances > 0).to(torch.int64) * half


_PARTS = (
    "attention.attn.q",
    "attention.attn.k",
    "attention.attn.v",
    "attention.attn.o",
    "attention.LayerNorm",
    *BERT_PARTS[5:],
)

NAMES = dataclasses.replace(
    post_norm_names(
        "mpnet.",
        "MPNet",
        layer=post_norm_layer("mpnet.encoder.layer.{i}", _PARTS),
        pooler="mpnet.pooler.dense",
        transform=("lm_head.dense", "lm_head.layer_norm"),
        pieces="lm_head",
        copies=("lm_head.decoder.weight", "lm_head.decoder.bias"),
        segments=False,
        more_embeddings=(Row("bert.embeddings.relative.weight", "mpnet.encoder.relative_attention_bias.weight", "BA"),),
    ),
    variants=CLASSIFIER_WITH_POOLER,
)
