"""Nomic BERT: BERT's layers without biases, with rotary positions and a gated feed-forward network.

The encoder of the text models of Nomic. Their `config.json` has the names of GPT-2 (`n_embd`, `n_head`); that of
`transformers` has BERT's. Both are read, and the latter are written. The models with several experts are others.

D width, I inner width.

Source: Nussbaum et al. (2024), "Nomic Embed: Training a Reproducible Long Context Text Embedder", section 3; the module
names of Hugging Face's NomicBert.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertsmith.base.core.settings import help_field, require_number
from bertsmith.models.encoders.post_norm_names import post_norm_names
from bertsmith.models.encoders.rotary import CLASSES, RotaryConfig, layer_rows
from bertsmith.models.parts.config import LINEAR_LAYERS
from bertsmith.models.parts.parameter_names import layer_norm

_OLD = {  # of the models published before `transformers` had them
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "rotary_emb_base": "rope_theta",
}
_GATES = {"swiglu": "silu", "geglu": "gelu"}
_TRAINED = 2048  # tokens of the longest row, where max_trained_positions is not there


@dataclasses.dataclass(frozen=True, kw_only=True)
class NomicBertConfig(RotaryConfig):
    """The shape of a Nomic BERT.

    >>> NomicBertConfig.named("base").num_parameters(pooler=False)
    136731648
    """

    model_type: ClassVar[str] = "nomic_bert"
    display_name: ClassVar[str] = "Nomic BERT"
    names: ClassVar[str] = "models.encoders.nomic:NAMES"
    without_bias: ClassVar[frozenset[str]] = frozenset(LINEAR_LAYERS)
    fixed: ClassVar[Mapping[str, Any]] = {
        **RotaryConfig.fixed,
        "num_experts": 0,
        "prenorm": False,
        "parallel_block": False,
        "parallel_block_tied_norm": False,
        "causal": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "use_rms_norm": False,
    }

    vocab_size: int = help_field(30528, "pieces in the vocabulary")
    hidden_act: str = help_field("silu", "activation of the gates, and of the masked-LM head")
    hidden_dropout_prob: float = help_field(0.0, "dropout on the embeddings and on both residual branches")
    attention_probs_dropout_prob: float = help_field(0.0, "dropout on the attention probabilities")
    max_position_embeddings: int = help_field(2048, "longest sequence, in tokens")
    rope_theta: float = help_field(1000.0, "base of the rotary positions")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`, with the names of `transformers` or of the published models.

        Where positions are scaled beyond the longest row of the training, this is the longest that is read.
        """
        if not isinstance(values, Mapping) or "n_embd" not in values:
            return super().from_dict(values)
        changed = {_OLD.get(name, name): value for name, value in values.items()}
        gate = values.get("activation_function")
        changed["hidden_act"] = _GATES.get(gate, gate) if isinstance(gate, str) else gate
        # Without this key the published code turns nothing.
        changed.setdefault("rotary_emb_fraction", 0.0)
        changed.setdefault("rope_theta", 10000.0)
        if values.get("rotary_scaling_factor") is not None:
            trained = values.get("max_trained_positions") or _TRAINED
            require_number("max_trained_positions", trained, above=0)
            longest = changed.get("max_position_embeddings") or trained
            changed["max_position_embeddings"] = min(trained, longest) if isinstance(longest, int) else longest
        return super().from_dict(changed)


_H = "nomic_bert"
_M = f"{_H}.encoder.layers.{{i}}"
_PARTS = {
    "query": "attn.Wqkv.query",
    "key": "attn.Wqkv.key",
    "value": "attn.Wqkv.value",
    "attention_output": "attn.out_proj",
    "intermediate": "mlp.fc12",
    "multiplier": "mlp.fc11",
    "output": "mlp.fc2",
}
_NORM = layer_norm("bert.embeddings.norm", f"{_H}.emb_ln")
_BERT = post_norm_names(
    f"{_H}.",
    "NomicBert",
    layer=layer_rows(NomicBertConfig, _M, _PARTS, ("norm1", "norm2")),
    pooler=f"{_H}.pooler.dense",
    transform=("cls.predictions.transform.dense", "cls.predictions.transform.layer_norm"),
    pieces="cls.predictions",
    copies=("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
)
NAMES = dataclasses.replace(
    _BERT,
    embeddings=(
        *(row for row in _BERT.embeddings if ".norm." not in row.ours and ".position." not in row.ours),
        *_NORM,
    ),
    fused={"attn.Wqkv": ("query", "key", "value")},
    older_prefixes=("bert.",),
    modules={
        "emb_ln": "embeddings.LayerNorm",
        "encoder.layers": "layers",
        "attn.Wqkv.query": "self_attn.q_proj",
        "attn.Wqkv.key": "self_attn.k_proj",
        "attn.Wqkv.value": "self_attn.v_proj",
        "attn.out_proj": "self_attn.o_proj",
        "mlp.fc12": "mlp.gate_proj",
        "mlp.fc11": "mlp.up_proj",
        "mlp.fc2": "mlp.down_proj",
        "norm1": "post_attention_layernorm",
        "norm2": "post_mlp_layernorm",
    },
    classes=CLASSES,
)
