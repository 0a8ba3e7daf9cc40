"""MPNet: BERT's layers without segments, with relative position biases in attention.

All layers share the bias: one number for each head and each of 32 ranges of distance, apart for both directions.
Positions of the embeddings start after the padding id, as in RoBERTa.

A classifier of whole texts has a pooler of its own, which Hugging Face stores in the head.

The encoder is in `mpnet_model.py`.

Source: Song et al. (2020), "MPNet: Masked and Permuted Pre-training for Language Understanding"; Raffel et al. (2020),
"T5", section 2.1, for the ranges of distance; the module names of Hugging Face's MPNet.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.settings import help_field, require_number
from bertsmith.models.encoders.post_norm_names import (
    BERT_PARTS,
    CLASSIFIER_WITH_POOLER,
    post_norm_layer,
    post_norm_names,
)
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.parameter_names import Row

_RANGES = 32  # of distance, half of them for each direction
# The distance at which each of the wider ranges begins: 8 * 16 ** (k / 8), so that the last one begins below 128.
_WIDE = (8, 12, 16, 23, 32, 46, 64, 91)


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


def ranges_of(longest: int) -> npt.NDArray[np.int64]:
    """The range of distance by the position of the key minus the query's, plus P - 1, int64 [2P - 1].

    Near distances have ranges of their own, then they become ever wider. P is `longest`, in tokens.

    >>> ranges_of(501)[[500, 499, 493, 492, 373, 0, 501, 1000]].tolist()
    [0, 1, 7, 8, 15, 15, 17, 31]
    """
    distances = np.arange(1 - longest, longest)
    far, single = np.abs(distances), _WIDE[0]
    wide = single - 1 + np.searchsorted(_WIDE, far, side="right")
    ranges: npt.NDArray[np.int64] = np.where(far < single, far, wide) + (distances > 0) * (_RANGES // 2)
    return ranges


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
