"""DistilBERT: BERT with half of the layers, without segments and without a pooler of its own.

Heads pool with the `pre_classifier`, a layer with ReLU that is trained with each of them.

Source: Sanh et al. (2019), "DistilBERT, a distilled version of BERT"; the module names of Hugging Face's DistilBERT.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertsmith.model.config import EncoderConfig
from bertsmith.model.parameter_names import ParameterNames, Row, dense, layer_norm, output
from bertsmith.model.transformer import TransformerEncoder
from bertsmith.settings import help_field


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


class DistilBertModel(TransformerEncoder):
    """Word and position embeddings, post-norm layers, a pooler with ReLU."""


_E, _H = "bert.embeddings", "distilbert.embeddings"
_L, _M = "bert.layers.{i}", "distilbert.transformer.layer.{i}"

NAMES = ParameterNames(
    prefix="distilbert.",
    class_prefix="DistilBert",
    embeddings=(
        Row(f"{_E}.word.weight", f"{_H}.word_embeddings.weight", "VD"),
        Row(f"{_E}.position.weight", f"{_H}.position_embeddings.weight", "PD"),
        *layer_norm(f"{_E}.norm", f"{_H}.LayerNorm"),
    ),
    layer=(
        *dense(f"{_L}.query", f"{_M}.attention.q_lin", "DD"),
        *dense(f"{_L}.key", f"{_M}.attention.k_lin", "DD"),
        *dense(f"{_L}.value", f"{_M}.attention.v_lin", "DD"),
        *dense(f"{_L}.attention_output", f"{_M}.attention.out_lin", "DD"),
        *layer_norm(f"{_L}.attention_norm", f"{_M}.sa_layer_norm"),
        *dense(f"{_L}.intermediate", f"{_M}.ffn.lin1", "ID"),
        *dense(f"{_L}.output", f"{_M}.ffn.lin2", "DI"),
        *layer_norm(f"{_L}.output_norm", f"{_M}.output_layer_norm"),
    ),
    parts={
        "pooler": dense("bert.pooler", "pre_classifier", "DD"),
        "mlm": (
            *dense("mlm.transform", "vocab_transform", "DD"),
            *layer_norm("mlm.norm", "vocab_layer_norm"),
            Row("mlm.bias", "vocab_projector.bias", "V"),
        ),
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "qa_outputs", "2D"),
    },
    copies={"vocab_projector.weight": "bert.embeddings.word.weight"},
)
