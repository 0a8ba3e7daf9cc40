"""GPT: a stack of post-norm decoder layers that reads from left to right and predicts the next piece.

There are no segments, no norm after the embeddings, and no pooler: a classifier reads the state of the last token. The
scores of the next piece are the products with the word table. Activations are GELU in its tanh form, which GPT's own
`config.json` calls "gelu"; its matrices are stored as [in, out], and query, key and value as one.

Source: Radford et al. (2018), "Improving Language Understanding by Generative Pre-Training", section 4.1; the names of
Hugging Face's OpenAIGPT.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertsmith.base.core.settings import help_field, require
from bertsmith.models.encoders.post_norm_names import post_norm_layer
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.parameter_names import ParameterNames, Row, output

_INNER = "n_inner"  # which transformers does not read: it is always four times n_embd
_DROPOUTS = ("embd_pdrop", "summary_first_dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptConfig(EncoderConfig):
    """The shape of a GPT.

    >>> GptConfig.named("base").num_parameters()
    116534784
    """

    model_type: ClassVar[str] = "openai-gpt"
    display_name: ClassVar[str] = "GPT"
    has_pooler: ClassVar[bool] = False
    can_pool: ClassVar[bool] = False
    always_causal: ClassVar[bool] = True
    piece_head: ClassVar[str] = "tied"
    norms_embeddings: ClassVar[bool] = False
    json_names: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": _INNER,
        "hidden_act": "afn",
        "hidden_dropout_prob": "resid_pdrop",
        "embedding_dropout_prob": "embd_pdrop",
        "attention_probs_dropout_prob": "attn_pdrop",
        "classifier_dropout": "summary_first_dropout",
        "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon",
    }
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"type_vocab_size", "pad_token_id", "position_embedding_type", "is_causal"}
    )

    vocab_size: int = help_field(40478, "pieces in the vocabulary")
    hidden_act: str = help_field("gelu_new", "activation: gelu_new (tanh approximation), relu or silu")
    hidden_dropout_prob: float = help_field(0.1, "dropout on both residual branches")
    embedding_dropout_prob: float | None = help_field(None, "dropout on the embeddings [that of the hidden states]")
    type_vocab_size: int = help_field(0, "segments; GPT has none")
    layer_norm_eps: float = help_field(1e-5, "added to the variance inside the square root")
    is_causal: bool = help_field(True, "each token sees only the tokens to its left")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.intermediate_size == 4 * self.hidden_size,
            expected=f"a feed-forward width of {4 * self.hidden_size}, four times n_embd, as every GPT has",
            found=self.intermediate_size,
            fix=f"leave {_INNER} out",
        )
        require(
            self.hidden_act in ("gelu_new", "relu", "silu"),
            expected="hidden_act gelu_new, relu or silu for a GPT, whose config.json means the tanh form by gelu",
            found=self.hidden_act,
            fix="use gelu_new",
        )

    @functools.cached_property
    def embedding_dropout(self) -> float:
        """The dropout on the embeddings."""
        return self.hidden_dropout_prob if self.embedding_dropout_prob is None else self.embedding_dropout_prob

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`; see `EncoderConfig.from_dict`.

        Dropouts on the embeddings and before a classifier that equal the layers' follow it when it is changed.
        """
        width = values.get("n_embd")
        changed: dict[str, Any] = {_INNER: 4 * width} if isinstance(width, int) and values.get(_INNER) is None else {}
        if values.get("afn", "gelu") in ("gelu", "gelu_new"):
            changed["afn"] = "gelu_new"
        usual = values.get("resid_pdrop", 0.1)
        changed |= {name: None for name in _DROPOUTS if values.get(name, 0.1) == usual}
        changed |= {name: 0.1 for name in _DROPOUTS if name not in values and usual != 0.1}
        return super().from_dict({**values, **changed})

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `config.json`, every dropout as a number."""
        values = super().to_dict()
        usual = self.hidden_dropout_prob
        named = dict.fromkeys(_DROPOUTS, usual) | {name: values[name] for name in _DROPOUTS if values[name] is not None}
        del values[_INNER]
        return {**values, **named, "afn": self.hidden_act.removesuffix("_new")}


_T = "transformer"
_PARTS = (
    "attn.c_attn.query",
    "attn.c_attn.key",
    "attn.c_attn.value",
    "attn.c_proj",
    "ln_1",
    "mlp.c_fc",
    "mlp.c_proj",
    "ln_2",
)

NAMES = ParameterNames(
    prefix="transformer.",
    class_prefix="OpenAIGPT",
    embeddings=(
        Row("bert.embeddings.word.weight", f"{_T}.tokens_embed.weight", "VD"),
        Row("bert.embeddings.position.weight", f"{_T}.positions_embed.weight", "PD"),
    ),
    layer=post_norm_layer("transformer.h.{i}", _PARTS),
    parts={
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "qa_outputs", "2D"),
    },
    copies={"lm_head.weight": "bert.embeddings.word.weight"},
    buffers=("position_ids", "h.{i}.attn.bias"),
    is_transposed=True,
    fused={"attn.c_attn": ("query", "key", "value")},
    classes={"ForMaskedLM": "LMHeadModel"},
    # Of other tools' classifiers; one that was trained here has a bias.
    variants={"ForSequenceClassification": {"classifier.weight": "score.weight", "classifier.bias": "score.bias"}},
    without_bias={"score.weight": "score.bias"},
)
