"""EuroBERT: the layers of Llama, which attend in both directions.

Norms are in front of attention and the feed-forward network and only divide, nothing has a bias, positions turn queries
and keys, several heads may share keys and values, and the output layer of the masked-LM head is not the word table. By
default a classifier of whole texts reads the mean of what the pooler makes of each token.

Source: Boizard et al. (2025), "EuroBERT: Scaling Multilingual Encoders for European Languages", section 2.1; the module
names of Hugging Face's EuroBERT.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from bertsmith.base.core.settings import help_field, require, require_known
from bertsmith.models.encoders.rotary import CLASSES, RotaryConfig, layer_rows
from bertsmith.models.parts.config import LINEAR_LAYERS
from bertsmith.models.parts.parameter_names import ParameterNames, Row, dense, output

_POOLINGS = ("bos", "mean", "late")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EuroBertConfig(RotaryConfig):
    """The shape of a EuroBERT.

    >>> EuroBertConfig.named("base").num_parameters(pooler=False)
    211766016
    """

    model_type: ClassVar[str] = "eurobert"
    display_name: ClassVar[str] = "EuroBERT"
    names: ClassVar[str] = "models.encoders.eurobert:NAMES"
    pooler_activation: ClassVar[str] = "gelu"
    piece_head: ClassVar[str] = "untied"
    norms_embeddings: ClassVar[bool] = False
    norms_first: ClassVar[bool] = True
    norms_last: ClassVar[bool] = True
    centers_norms: ClassVar[bool] = False
    without_bias: ClassVar[frozenset[str]] = frozenset(LINEAR_LAYERS)
    drops_inner: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, Any]] = {
        **RotaryConfig.fixed,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }
    json_names: ClassVar[Mapping[str, str]] = {
        "hidden_dropout_prob": "hidden_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "rms_norm_eps",
    }
    absent: ClassVar[Mapping[str, Any]] = {"rope_theta": 10000.0}
    omitted: ClassVar[frozenset[str]] = RotaryConfig.omitted | {"type_vocab_size"}

    vocab_size: int = help_field(128256, "pieces in the vocabulary")
    hidden_act: str = help_field("silu", "activation of the gates")
    hidden_dropout_prob: float = help_field(
        0.0, "dropout on the embeddings, on the result of attention and inside the feed-forward network"
    )
    attention_probs_dropout_prob: float = help_field(0.0, "dropout on the attention probabilities")
    max_position_embeddings: int = help_field(8192, "longest sequence, in tokens")
    type_vocab_size: int = help_field(0, "segments; EuroBERT has none")
    layer_norm_eps: float = help_field(1e-5, "added to the mean square inside the square root")
    rope_theta: float = help_field(250000.0, "base of the rotary positions")
    num_key_value_heads: int | None = help_field(
        None, "heads of keys and values, each for as many heads of queries [num_attention_heads]"
    )
    classifier_pooling: str = help_field(
        "late", "what a classifier of whole texts reads: bos, mean, or late (the mean after the pooler)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        shared = self.num_key_value_heads
        require(
            shared is None or (shared > 0 and self.num_attention_heads % shared == 0),
            expected=f"num_key_value_heads that divides the {self.num_attention_heads} attention heads",
            found=str(shared),
            fix="change one of them",
        )
        require_known("classifier_pooling", self.classifier_pooling, _POOLINGS)

    @property
    def key_width(self) -> int:
        """See `EncoderConfig`."""
        return self.head_size * (self.num_key_value_heads or self.num_attention_heads)

    @property
    def pools_mean(self) -> bool:
        """See `EncoderConfig`."""
        return self.classifier_pooling != "bos"

    @property
    def pools_first(self) -> bool:
        """See `EncoderConfig`."""
        return self.classifier_pooling == "late"


_PARTS = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention_output": "self_attn.o_proj",
    "intermediate": "mlp.gate_proj",
    "multiplier": "mlp.up_proj",
    "output": "mlp.down_proj",
}
NAMES = ParameterNames(
    prefix="model.",
    class_prefix="EuroBert",
    embeddings=(
        Row("bert.embeddings.word.weight", "model.embed_tokens.weight", "VD"),
        Row("bert.final_norm.weight", "model.norm.weight", "D"),
    ),
    layer=layer_rows(EuroBertConfig, "model.layers.{i}", _PARTS, ("input_layernorm", "post_attention_layernorm")),
    parts={
        "pooler": dense("bert.pooler", "dense", "DD"),
        "mlm": (Row("mlm.output.weight", "lm_head.weight", "VD"),),
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "qa_outputs", "2D"),
    },
    copies={},
    classes=CLASSES,
)
