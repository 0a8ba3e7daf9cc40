"""GTE: BERT's layers with rotary positions and a gated feed-forward network, whose inner layers lack biases.

The encoder of GTE's text models of version 1.5 and of the multilingual ones. They were published with the `model_type`
"new", whose scaled positions ("ntk") are read and written as those of `transformers`, with the same angles.

Source: Zhang et al. (2024), "mGTE: Generalized Long-Context Text Representation and Reranking Models for Multilingual
Text Retrieval", section 2.1; the module names of Hugging Face's GTE; Su (2023), "Transformer upgrade, part 16", for the
scaled positions.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertsmith.base.core.settings import help_field
from bertsmith.models.encoders.post_norm_names import post_norm_names
from bertsmith.models.encoders.rotary import CLASSES, RotaryConfig, layer_rows

_NTK = "ntk"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GteConfig(RotaryConfig):
    """The shape of a GTE.

    >>> GteConfig.named("base").num_parameters(pooler=False)
    305368320
    """

    model_type: ClassVar[str] = "gte"
    display_name: ClassVar[str] = "GTE"
    names: ClassVar[str] = "models.encoders.gte:NAMES"
    head_activation: ClassVar[str] = "gelu"
    without_bias: ClassVar[frozenset[str]] = frozenset({"intermediate", "multiplier"})
    drops_inner: ClassVar[bool] = True
    optional: ClassVar[frozenset[str]] = frozenset({"type_vocab_size"})
    fixed: ClassVar[Mapping[str, Any]] = {
        **RotaryConfig.fixed,
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
        "logn_attention_scale": False,
        "logn_attention_clip1": False,
    }

    vocab_size: int = help_field(250048, "pieces in the vocabulary")
    hidden_act: str = help_field("gelu", "activation of the gates")
    attention_probs_dropout_prob: float = help_field(0.0, "dropout on the attention probabilities")
    max_position_embeddings: int = help_field(8192, "longest sequence, in tokens")
    type_vocab_size: int = help_field(1, "segments; 0 for none")
    pad_token_id: int = help_field(1, "id of <pad>; only for other tools, because batches here have no padding")
    rope_theta: float = help_field(160000.0, "base of the rotary positions")

    @classmethod
    def rope_kinds(cls) -> tuple[str, ...]:
        """See `RotaryConfig`."""
        return (_NTK,)

    @classmethod
    def scaled(cls, kind: str, factor: float, config: Self) -> tuple[float, float]:
        """See `RotaryConfig`; the angle i of a head of width d is divided by the factor to the power 2 (i + 1) / d."""
        if kind != _NTK:
            return super().scaled(kind, factor, config)
        return config.rope_theta * factor, float(factor ** (2 / config.head_size))


_PARTS = {
    "query": "attention.qkv_proj.query",
    "key": "attention.qkv_proj.key",
    "value": "attention.qkv_proj.value",
    "attention_output": "attention.o_proj",
    "intermediate": "mlp.up_gate_proj.gate",
    "multiplier": "mlp.up_gate_proj.up",
    "output": "mlp.down_proj",
}
_BERT = post_norm_names(
    "gte.",
    "Gte",
    layer=layer_rows(GteConfig, "gte.encoder.layer.{i}", _PARTS, ("attn_ln", "mlp_ln")),
    pooler="gte.pooler.dense",
    transform=("lm_head.dense", "lm_head.norm"),
    pieces="lm_head.decoder",
    copies=("lm_head.decoder.weight",),
)
NAMES = dataclasses.replace(
    _BERT,
    embeddings=tuple(row for row in _BERT.embeddings if ".position." not in row.ours),
    fused={"attention.qkv_proj": ("query", "key", "value"), "mlp.up_gate_proj": ("up", "gate")},
    older_prefixes=("new.",),
    modules={
        "encoder.layer": "layers",
        "attention.qkv_proj.query": "self_attn.q_proj",
        "attention.qkv_proj.key": "self_attn.k_proj",
        "attention.qkv_proj.value": "self_attn.v_proj",
        "attention.o_proj": "self_attn.o_proj",
        "attn_ln": "post_attention_layernorm",
        "mlp.up_gate_proj.gate": "mlp.gate_proj",
        "mlp.up_gate_proj.up": "mlp.up_proj",
        "mlp_ln": "post_mlp_layernorm",
        "lm_head.norm": "lm_head.layer_norm",
    },
    classes=CLASSES,
    absent=lambda config, name: name == "bert.embeddings.segment.weight" and not config.type_vocab_size,
)
