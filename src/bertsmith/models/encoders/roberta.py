"""RoBERTa: BERT's layers, one segment, positions that start after the padding id, byte-level BPE.

A classifier of whole texts has a pooler of its own, which Hugging Face stores in the head. XLM-RoBERTa is the same with
a vocabulary of 100 languages, with pieces of SentencePiece.

Source: Liu et al. (2019), "RoBERTa: A Robustly Optimized BERT Pretraining Approach"; Conneau et al. (2020),
"Unsupervised Cross-lingual Representation Learning at Scale"; the module names of Hugging Face's RoBERTa.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from bertsmith.base.core.settings import help_field
from bertsmith.models.encoders.post_norm_names import CLASSIFIER_WITH_POOLER, post_norm_layer, post_norm_names
from bertsmith.models.parts.config import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobertaConfig(EncoderConfig):
    """The shape of a RoBERTa encoder."""

    model_type: ClassVar[str] = "roberta"
    display_name: ClassVar[str] = "RoBERTa"
    head_activation: ClassVar[str] = "gelu"
    absent: ClassVar[Mapping[str, Any]] = {"layer_norm_eps": 1e-12}

    vocab_size: int = help_field(50265, "pieces in the vocabulary")
    max_position_embeddings: int = help_field(514, "rows of the position table; two of them are never used")
    type_vocab_size: int = help_field(1, "segments; all tokens are in the same one")
    layer_norm_eps: float = help_field(1e-5, "added to the variance inside the square root")
    pad_token_id: int = help_field(1, "id of <pad>; positions start after it")
    bos_token_id: int = help_field(0, "id of <s>")
    eos_token_id: int = help_field(2, "id of </s>")

    @functools.cached_property
    def first_position(self) -> int:
        """The row of the position table for the first token: the one after the padding id."""
        return self.pad_token_id + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """The shape of an XLM-RoBERTa encoder."""

    model_type: ClassVar[str] = "xlm-roberta"
    display_name: ClassVar[str] = "XLM-RoBERTa"

    vocab_size: int = help_field(250002, "pieces in the vocabulary")


NAMES = dataclasses.replace(
    post_norm_names(
        "roberta.",
        "Roberta",
        layer=post_norm_layer("roberta.encoder.layer.{i}"),
        pooler="roberta.pooler.dense",
        transform=("lm_head.dense", "lm_head.layer_norm"),
        pieces="lm_head",
        copies=("lm_head.decoder.weight", "lm_head.decoder.bias"),
    ),
    variants=CLASSIFIER_WITH_POOLER,
)
XLM_NAMES = dataclasses.replace(NAMES, class_prefix="XLMRoberta")
