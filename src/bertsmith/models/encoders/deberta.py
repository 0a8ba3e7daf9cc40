"""DeBERTa, versions 2 and 3: attention with content and relative positions apart.

A score is the sum of up to three products: of the contents of query and key, of the content of the query with the
vector of a distance (c2p), and of the vector of a distance with the content of the key (p2c). All layers share the
vectors of the distances, of which far ones share a bucket. There are no position embeddings in version 3. The largest
models of version 2 add a convolution of the embeddings to the result of the first layer.

A folder of version 3 also has the head that detects replaced tokens, which is left out. The masked-LM head is read
under its old names (`cls.predictions`) and its new ones (`lm_predictions`), and written under the latter.

Letters: D width, R rows of the table of distances, C tokens that the convolution reads.

The encoder is in `deberta_model.py`.

Source: He et al. (2021), "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1; He et al. (2023),
"DeBERTaV3"; the module names of Hugging Face's DeBERTa-v2.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.settings import help_field, require, require_known, require_number
from bertsmith.models.encoders.post_norm_names import BERT_PARTS, post_norm_layer, post_norm_names
from bertsmith.models.parts.config import ACTIVATIONS, NAMED_SIZES, SAME_ACTIVATIONS, EncoderConfig
from bertsmith.models.parts.parameter_names import Row, dense, layer_norm

_TERMS = ("c2p", "p2c")
_NORMS = ("none", "layer_norm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebertaConfig(EncoderConfig):
    """The shape of a DeBERTa of version 2 or 3; named sizes and defaults are those of version 3.

    >>> DebertaConfig.named("base").num_parameters(pooler=False)
    183831552
    """

    model_type: ClassVar[str] = "deberta-v2"
    display_name: ClassVar[str] = "DeBERTa"
    names: ClassVar[str] = "models.encoders.deberta:NAMES"
    has_pooler: ClassVar[bool] = False
    optional: ClassVar[frozenset[str]] = frozenset({"type_vocab_size"})
    fixed: ClassVar[Mapping[str, Any]] = {"conv_groups": 1}
    absent: ClassVar[Mapping[str, Any]] = {  # as in `transformers`; version 2 or 3 states them
        "relative_attention": False,
        "position_biased_input": True,
        "pos_att_type": "",
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "share_att_key": False,
    }
    json_names: ClassVar[Mapping[str, str]] = {"classifier_dropout": "cls_dropout"}
    omitted: ClassVar[frozenset[str]] = frozenset({"position_embedding_type", "is_causal"})
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        **NAMED_SIZES,
        "xsmall": (12, 384, 6, 1536),
        "small": (6, 768, 12, 3072),
        "xlarge": (24, 1536, 24, 6144),
        "xxlarge": (48, 1536, 24, 6144),
    }

    vocab_size: int = help_field(128100, "pieces in the vocabulary")
    type_vocab_size: int = help_field(0, "segments; 0 for none")
    layer_norm_eps: float = help_field(1e-7, "added to the variance inside the square root")
    position_embedding_type: str = help_field("none", "positions in the embeddings; position_biased_input decides")
    position_biased_input: bool = help_field(False, "whether the embeddings have learned positions")
    relative_attention: bool = help_field(True, "whether attention reads the distances between tokens")
    pos_att_type: str = help_field("p2c|c2p", "products with distances: c2p (of queries), p2c (of keys), or both by |")
    position_buckets: int = help_field(256, "half of the rows of distances; below 1 for a row for each distance")
    max_relative_positions: int = help_field(
        -1, "distance from which on all have the same row; below 1 for that of max_position_embeddings"
    )
    norm_rel_ebd: str = help_field("layer_norm", "norm of the vectors of distances: layer_norm or none")
    share_att_key: bool = help_field(True, "whether distances are projected by the layers for queries and keys")
    conv_kernel_size: int = help_field(0, "tokens that the convolution next to the first layer reads; 0 for none")
    conv_act: str = help_field("tanh", "activation of the convolution")
    pooler_hidden_act: str = help_field("gelu", "activation of the pooler in front of a classifier of whole texts")
    pooler_dropout: float = help_field(0.0, "dropout on what the pooler reads")
    legacy: bool = help_field(False, "old names of the masked-LM head; always written as false")

    def __post_init__(self) -> None:
        positions = "absolute" if self.position_biased_input is True else "none"
        object.__setattr__(self, "position_embedding_type", positions)
        for name in ("conv_act", "pooler_hidden_act"):
            value = getattr(self, name)
            object.__setattr__(self, name, SAME_ACTIVATIONS.get(value, value) if isinstance(value, str) else value)
        super().__post_init__()
        for name in ("conv_act", "pooler_hidden_act"):
            require_known(name, getattr(self, name), ACTIVATIONS)
        require_number("type_vocab_size", self.type_vocab_size, least=0)
        require_known("norm_rel_ebd", self.norm_rel_ebd, _NORMS)
        for term in filter(None, self.pos_att_type.split("|")):
            require_known("pos_att_type", term, _TERMS)
        require(
            self.conv_kernel_size == 0 or (self.conv_kernel_size > 0 and self.conv_kernel_size % 2 == 1),
            expected="an odd conv_kernel_size, or 0",
            found=self.conv_kernel_size,
            fix="use another model",
        )
        near = self.position_buckets // 2
        require(
            not self.relative_attention
            or self.position_buckets < 1
            or (near > 0 and (self.farthest - 1 > near or self.max_position_embeddings - 1 <= near)),
            expected="position_buckets from 2 on, with a max_relative_positions above half of them",
            found=f"{self.position_buckets} and {self.farthest}",
            fix="correct them",
        )

    @property
    def farthest(self) -> int:
        """The distance from which on all have the same row, in tokens."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    @property
    def span(self) -> int:
        """Half of the rows of the table of distances."""
        return self.position_buckets if self.position_buckets > 0 else self.farthest

    @functools.cached_property
    def terms(self) -> frozenset[str]:
        """The products of scores beyond that of the contents."""
        return frozenset(filter(None, self.pos_att_type.split("|")))

    @property
    def pooler_act(self) -> str:
        """See `EncoderConfig`."""
        return self.pooler_hidden_act

    @property
    def pooled_dropout(self) -> float:
        """See `EncoderConfig`."""
        return self.pooler_dropout

    def head_dropout(self, part: str, *, pooled: bool) -> float:
        """See `EncoderConfig`; only heads of whole texts have a dropout of their own."""
        return super().head_dropout(part, pooled=pooled) if pooled or part == "span" else self.hidden_dropout_prob

    @property
    def axes(self) -> dict[str, int]:
        """See `EncoderConfig`; R rows of the table of distances, C tokens that the convolution reads."""
        return super().axes | {"R": 2 * self.span, "C": self.conv_kernel_size}

    @property
    def reads_distances(self) -> bool:
        """Whether scores depend on distances."""
        return self.relative_attention and bool(self.terms)

    def lacks(self, name: str) -> bool:
        """Whether a model of this shape does not have a parameter of the table of names."""
        return (
            (name.startswith("bert.embeddings.segment.") and not self.type_vocab_size)
            or (name.startswith("bert.embeddings.distance.") and not self.relative_attention)
            or (name.startswith("bert.embeddings.distance_norm.") and self.norm_rel_ebd == "none")
            or (".position_key." in name and not self.has_projection("c2p"))
            or (".position_query." in name and not self.has_projection("p2c"))
            or (".convolution" in name and not self.conv_kernel_size)
            or (name == "bert.embeddings.position.weight" and not self.position_biased_input)
        )

    def has_projection(self, term: str) -> bool:
        """Whether the layers have a projection of the distances of their own for this term."""
        return self.relative_attention and not self.share_att_key and term in self.terms

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`; see `EncoderConfig.from_dict`."""
        changed = dict(values) if isinstance(values, Mapping) else values
        if isinstance(changed, dict):
            terms, norms = changed.get("pos_att_type"), changed.get("norm_rel_ebd")
            if isinstance(terms, list) and terms and all(isinstance(term, str) for term in terms):
                changed["pos_att_type"] = "|".join(terms)
            elif isinstance(terms, str):
                changed["pos_att_type"] = "|".join(term.strip() for term in terms.lower().split("|"))
            if isinstance(norms, str):
                changed["norm_rel_ebd"] = norms.lower().strip()
        result = super().from_dict(changed)
        widths = {
            "embedding_size": result.hidden_size,
            "pooler_hidden_size": result.hidden_size,
            "attention_head_size": result.head_size,
        }
        for name, usual in widths.items():
            require(
                values.get(name) in (None, usual),
                expected=f"{name} {usual}, as in every published model of this width",
                found=repr(values.get(name))[:60],
                fix="use another model",
            )
        return dataclasses.replace(result, legacy=False)

    @property
    def shape_in_words(self) -> str:
        """See `EncoderConfig`."""
        added = ", relative positions" if self.reads_distances else ""
        return f"{super().shape_in_words}{added}{', a convolution' if self.conv_kernel_size else ''}"


class Distances(NamedTuple):
    """The rows of the table of distances that a batch needs.

    Attributes:
        first, end: of these rows.
        rows: the row of a distance, counted from `first`, by the position of the key minus the query's, plus P - 1:
            int64 [2P - 1].
    """

    first: int
    end: int
    rows: npt.NDArray[np.int64]


@functools.lru_cache(maxsize=256)
def distances_of(config: DebertaConfig, longest: int) -> Distances:
    """The rows for sequences of up to `longest` tokens.

    Distances up to half of the buckets have rows of their own; from there on, rows belong to ranges of distance that
    grow by a constant factor.

    >>> distances_of(DebertaConfig(position_buckets=0, max_relative_positions=2), 4).rows.tolist()
    [3, 3, 3, 2, 1, 0, 0]
    """
    near, span = config.position_buckets // 2, config.span
    bucket = distance = np.arange(longest - 1, -longest, -1)
    if config.position_buckets > 0 and longest - 1 > near:
        ranges = near + np.ceil(_exponents(config, longest)).astype(np.int64)
        beyond = np.abs(distance) - near
        bucket = np.where(beyond <= 0, distance, np.sign(distance) * ranges[np.maximum(beyond - 1, 0)])
    rows = (bucket + span).clip(0, 2 * span - 1)
    first, end = int(rows.min()), int(rows.max()) + 1
    return Distances(first, end, rows - first)


def needs_logarithms_of_torch(config: DebertaConfig) -> bool:
    """Whether a range of distance begins where logarithms of other libraries could differ from those of torch."""
    near = config.position_buckets // 2
    return config.reads_distances and 0 < near < config.max_tokens - 1 and not _are_clear(config, config.max_tokens)


def _exponents(config: DebertaConfig, longest: int) -> npt.NDArray[np.floating[Any]]:
    """The logarithms of the distances beyond half of the buckets, of which each range has a whole number."""
    near = config.position_buckets // 2
    if _are_clear(config, longest):
        return _clear_exponents(config, longest)
    import torch

    far, base = torch.arange(near + 1, longest), torch.tensor((config.farthest - 1) / near)
    exponents: npt.NDArray[np.float32] = (torch.log(far / near) / torch.log(base) * (near - 1)).numpy()
    return exponents


def _are_clear(config: DebertaConfig, longest: int) -> bool:
    exponents = _clear_exponents(config, longest)
    last = config.farthest - 1 - config.position_buckets // 2 - 1  # where the logarithm is that of the base itself
    return not np.any(np.delete(np.abs(exponents - np.rint(exponents)) < 1e-4, slice(last, last + 1)))


def _clear_exponents(config: DebertaConfig, longest: int) -> npt.NDArray[np.float64]:
    near, farthest = config.position_buckets // 2, config.farthest
    far = np.arange(near + 1, longest)
    exponents = np.log(far / near) / np.log((farthest - 1) / near) * (near - 1)
    return np.where(far == farthest - 1, near - 1, exponents)


_L, _E, _T = "bert.layers.{i}", "bert.embeddings", "deberta.encoder"
_SELF = f"{_T}.layer.{{i}}.attention.self"
_PARTS = ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", *BERT_PARTS[3:])
_DETECTS = "the head that detects replaced tokens"
_HEAD, _NEW_HEAD = "cls.predictions", "lm_predictions.lm_head"

NAMES = dataclasses.replace(
    post_norm_names(
        "deberta.",
        "DebertaV2",
        layer=(
            *post_norm_layer(f"{_T}.layer.{{i}}", _PARTS),
            *dense(f"{_L}.position_key", f"{_SELF}.pos_key_proj", "DD"),
            *dense(f"{_L}.position_query", f"{_SELF}.pos_query_proj", "DD"),
        ),
        pooler="pooler.dense",
        transform=(f"{_HEAD}.transform.dense", f"{_HEAD}.transform.LayerNorm"),
        pieces=_HEAD,
        copies=(f"{_HEAD}.decoder.weight", f"{_HEAD}.decoder.bias"),
        more_embeddings=(
            Row(f"{_E}.distance.weight", f"{_T}.rel_embeddings.weight", "RD"),
            *layer_norm(f"{_E}.distance_norm", f"{_T}.LayerNorm"),
            Row("bert.layers.0.convolution.weight", f"{_T}.conv.conv.weight", "DDC"),
            Row("bert.layers.0.convolution.bias", f"{_T}.conv.conv.bias", "D"),
            *layer_norm("bert.layers.0.convolution_norm", f"{_T}.conv.LayerNorm"),
        ),
    ),
    variants={
        "ForMaskedLM": {
            "mlm.transform.weight": f"{_NEW_HEAD}.dense.weight",
            "mlm.transform.bias": f"{_NEW_HEAD}.dense.bias",
            "mlm.norm.weight": f"{_NEW_HEAD}.LayerNorm.weight",
            "mlm.norm.bias": f"{_NEW_HEAD}.LayerNorm.bias",
            "mlm.bias": f"{_NEW_HEAD}.bias",
        }
    },
    absent=lambda config, name: isinstance(config, DebertaConfig) and config.lacks(name),
    unused={
        f"mask_predictions.{layer}.{kind}": _DETECTS
        for layer in ("dense", "LayerNorm", "classifier")
        for kind in ("weight", "bias")
    },
)
