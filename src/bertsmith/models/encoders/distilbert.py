"""DistilBERT: half of BERT's layers, without segments and without a pooler.

Heads pool with the `pre_classifier`, a layer with ReLU that is trained with each of them.

Source: Sanh et al. (2019), "DistilBERT, a distilled version of BERT"; the module names of Hugging Face's DistilBERT.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertsmith.base.core.settings import help_field
from bertsmith.models.encoders.post_norm_names import post_norm_layer, post_norm_names
from bertsmith.models.parts.config import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilBertConfig(EncoderConfig):
    """The shape of a DistilBERT encoder."""

    model_type: ClassVar[str] = "distilbert"
    display_name: ClassVar[str] = "DistilBERT"
    pooler_activation: ClassVar[str] = "relu"
    has_pooler: ClassVar[bool] = False
    json_names: ClassVar[Mapping[str, str]] = {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    }
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"type_vocab_size", "layer_norm_eps", "position_embedding_type", "is_causal", "classifier_dropout"}
    )

    num_hidden_layers: int = help_field(6, "encoder layers")
    type_vocab_size: int = help_field(0, "segments; DistilBERT has none")
    seq_classif_dropout: float = help_field(0.2, "dropout before a classifier of whole texts")
    qa_dropout: float = help_field(0.1, "dropout before a span head")

    def head_dropout(self, part: str, *, pooled: bool) -> float:
        """The dropout before a head; each kind of head has its own field."""
        if part == "span":
            return self.qa_dropout
        return self.seq_classif_dropout if pooled else self.hidden_dropout_prob


_PARTS = (
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)

NAMES = post_norm_names(
    "distilbert.",
    "DistilBert",
    layer=post_norm_layer("distilbert.transformer.layer.{i}", _PARTS),
    pooler="pre_classifier",
    transform=("vocab_transform", "vocab_layer_norm"),
    pieces="vocab_projector",
    copies=("vocab_projector.weight",),
    segments=False,
)
