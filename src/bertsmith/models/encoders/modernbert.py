"""ModernBERT: pre-norm layers without biases, rotary positions, a gated feed-forward network, mostly local attention.

Every third layer attends to the whole sequence, the others to a window of 128 tokens; the two kinds have rotary
positions with bases of their own. The first layer has no norm in front of its attention, because one follows the
embeddings, and a norm follows the last layer. Heads of tasks, also on single tokens, read through a layer with
GELU and a norm.

D width, I inner width, L layers.

Source: Warner et al. (2024), "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory
Efficient, and Long Context Finetuning and Inference", section 2.1; the module names of Hugging Face's ModernBERT.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertsmith.base.core.settings import help_field, require, require_known, require_number
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.parameter_names import ParameterNames, Row, output

_POOLINGS = ("cls", "mean")
_LOCAL, _GLOBAL = "sliding_attention", "full_attention"  # in `layer_types`


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """The shape of a ModernBERT.

    >>> ModernBertConfig.named("base").num_parameters(pooler=False)
    149014272
    """

    model_type: ClassVar[str] = "modernbert"
    display_name: ClassVar[str] = "ModernBERT"
    names: ClassVar[str] = "models.encoders.modernbert:NAMES"
    has_pooler: ClassVar[bool] = False
    pooler_activation: ClassVar[str] = "gelu"
    head_activation: ClassVar[str] = "gelu"
    norms_pooler: ClassVar[bool] = True
    pools_tokens: ClassVar[bool] = True
    has_equal_layers: ClassVar[bool] = False
    norms_first: ClassVar[bool] = True
    norms_last: ClassVar[bool] = True
    is_gated: ClassVar[bool] = True
    drops_inner: ClassVar[bool] = True
    has_biases: ClassVar[bool] = False
    fixed: ClassVar[Mapping[str, Any]] = {  # what every published model has
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "classifier_activation": "gelu",
        "rope_scaling": None,
        "partial_rotary_factor": None,
    }
    json_names: ClassVar[Mapping[str, str]] = {
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_dropout_prob": "mlp_dropout",
        "embedding_dropout_prob": "embedding_dropout",
    }
    omitted: ClassVar[frozenset[str]] = frozenset({"type_vocab_size", "position_embedding_type", "is_causal"})
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        "tiny": (2, 128, 2, 192),
        "mini": (4, 256, 4, 384),
        "small": (4, 512, 8, 768),
        "medium": (8, 512, 8, 768),
        "base": (22, 768, 12, 1152),
        "large": (28, 1024, 16, 2624),
    }

    vocab_size: int = help_field(50368, "pieces in the vocabulary")
    num_hidden_layers: int = help_field(22, "encoder layers")
    intermediate_size: int = help_field(1152, "width of each half of the gated feed-forward network")
    hidden_dropout_prob: float = help_field(0.0, "dropout inside the feed-forward network")
    attention_probs_dropout_prob: float = help_field(0.0, "dropout on the attention probabilities and on their result")
    embedding_dropout_prob: float = help_field(0.0, "dropout on the embeddings")
    max_position_embeddings: int = help_field(8192, "longest sequence, in tokens")
    type_vocab_size: int = help_field(0, "segments; ModernBERT has none")
    classifier_dropout: float | None = help_field(0.0, "dropout before the output layer of a task")
    layer_norm_eps: float = help_field(1e-5, "added to the variance inside the square root")
    position_embedding_type: str = help_field(
        "none", "positions: none in the embeddings, as they turn queries and keys"
    )
    global_attn_every_n_layers: int = help_field(3, "the first of every that many layers attends to the whole sequence")
    local_attention: int = help_field(128, "window of the other layers, in tokens, half of it on each side")
    global_rope_theta: float = help_field(160000.0, "base of the rotary positions of global layers")
    local_rope_theta: float = help_field(10000.0, "base of the rotary positions of local layers")
    classifier_pooling: str = help_field("cls", "what a classifier of whole texts reads: cls or mean")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("global_attn_every_n_layers", "local_attention", "global_rope_theta", "local_rope_theta"):
            require_number(name, getattr(self, name), above=0)
        require(
            self.head_size % 2 == 0,
            expected="heads of an even width, for rotary positions",
            found=self.head_size,
            fix="change hidden_size or num_attention_heads",
        )
        require_known("classifier_pooling", self.classifier_pooling, _POOLINGS)

    @property
    def axes(self) -> dict[str, int]:
        """See `EncoderConfig`; G both halves of the feed-forward network."""
        return super().axes | {"G": 2 * self.intermediate_size}

    @functools.cached_property
    def embedding_dropout(self) -> float:
        """The dropout on the embeddings."""
        return self.embedding_dropout_prob

    @property
    def attended_dropout(self) -> float:
        """See `EncoderConfig`."""
        return self.attention_probs_dropout_prob

    @property
    def pools_mean(self) -> bool:
        """Whether the pooler reads the mean of all tokens."""
        return self.classifier_pooling == "mean"

    @classmethod
    def dropout_changes(cls, probability: float) -> dict[str, float | None]:
        """The fields that set the dropout of the encoder to this rate."""
        return super().dropout_changes(probability) | {"embedding_dropout_prob": probability}

    def head_dropout(self, part: str, *, pooled: bool) -> float:
        """The dropout before a head."""
        return self.classifier_dropout or 0.0

    def is_local(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to a window."""
        return layer % self.global_attn_every_n_layers != 0

    def window_of(self, layer: int) -> int | None:
        """See `EncoderConfig`."""
        return self.local_attention // 2 if self.is_local(layer) else None

    def rotary_base_of(self, layer: int) -> float:
        """See `EncoderConfig`."""
        return self.local_rope_theta if self.is_local(layer) else self.global_rope_theta

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`, with the fields of `transformers` 4 or 5."""
        changed = {**values}
        bases = values.get("rope_parameters")
        for kind, name in ((_GLOBAL, "global_rope_theta"), (_LOCAL, "local_rope_theta")):
            of_kind = bases.get(kind) if isinstance(bases, Mapping) else None
            if isinstance(of_kind, Mapping):
                rope = {name: value for name, value in of_kind.items() if name != "rope_theta"}
                require(
                    rope in ({}, {"rope_type": "default"}),
                    expected=f"a rope_theta alone for {kind}, with rope_type default",
                    found=repr(rope)[:80],
                    fix="use another model",
                )
                changed[name] = of_kind.get("rope_theta", values.get(name))
        if "local_rope_theta" in values and values["local_rope_theta"] is None:
            changed["local_rope_theta"] = changed.get("global_rope_theta")
        kinds = values.get("layer_types")
        if isinstance(kinds, list) and kinds:
            global_layers = [number for number, kind in enumerate(kinds) if kind == _GLOBAL]
            distance = global_layers[1] if len(global_layers) > 1 else len(kinds)
            require(
                kinds == [_LOCAL if number % distance else _GLOBAL for number in range(len(kinds))],
                expected="a layer of global attention at equal distances in layer_types",
                found=f"global ones at {', '.join(map(str, global_layers)) or 'none'} of {len(kinds)}",
                fix="use another model",
            )
            changed["global_attn_every_n_layers"] = distance
        return super().from_dict(changed)


_L, _M = "bert.layers.{i}", "model.layers.{i}"

NAMES = ParameterNames(
    prefix="model.",
    class_prefix="ModernBert",
    embeddings=(
        Row("bert.embeddings.word.weight", "model.embeddings.tok_embeddings.weight", "VD"),
        Row("bert.embeddings.norm.weight", "model.embeddings.norm.weight", "D"),
        Row("bert.final_norm.weight", "model.final_norm.weight", "D"),
    ),
    layer=(
        Row(f"{_L}.attention_norm.weight", f"{_M}.attn_norm.weight", "D"),
        Row(f"{_L}.query.weight", f"{_M}.attn.Wqkv.query.weight", "DD"),
        Row(f"{_L}.key.weight", f"{_M}.attn.Wqkv.key.weight", "DD"),
        Row(f"{_L}.value.weight", f"{_M}.attn.Wqkv.value.weight", "DD"),
        Row(f"{_L}.attention_output.weight", f"{_M}.attn.Wo.weight", "DD"),
        Row(f"{_L}.intermediate.weight", f"{_M}.mlp.Wi.weight", "GD"),
        Row(f"{_L}.output.weight", f"{_M}.mlp.Wo.weight", "DI"),
        Row(f"{_L}.output_norm.weight", f"{_M}.mlp_norm.weight", "D"),
    ),
    parts={
        "pooler": (
            Row("bert.pooler.weight", "head.dense.weight", "DD"),
            Row("bert.pooler.norm.weight", "head.norm.weight", "D"),
        ),
        "mlm": (
            Row("mlm.transform.weight", "mlm.transform.weight", "DD"),
            Row("mlm.norm.weight", "mlm.norm.weight", "D"),
            Row("mlm.bias", "mlm.bias", "V"),
        ),
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "span", "2D"),
    },
    copies={"decoder.weight": "bert.embeddings.word.weight"},
    # Hugging Face calls the layer in front of the output layer "head" in every class, so that a new classifier of a
    # masked language model starts with the layer of the latter.
    variants={
        "ForMaskedLM": {
            "mlm.transform.weight": "head.dense.weight",
            "mlm.norm.weight": "head.norm.weight",
            "mlm.bias": "decoder.bias",
            "bert.pooler.weight": "pooler.dense.weight",
            "bert.pooler.norm.weight": "pooler.norm.weight",
        },
        "ForQuestionAnswering": {"span.weight": "classifier.weight", "span.bias": "classifier.bias"},
    },
    starts_as={"bert.pooler.weight": "mlm.transform.weight", "bert.pooler.norm.weight": "mlm.norm.weight"},
    fused={"attn.Wqkv": ("query", "key", "value")},
    absent=lambda config, name: name == "bert.layers.0.attention_norm.weight",
)
