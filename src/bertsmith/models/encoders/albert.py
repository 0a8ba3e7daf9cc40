"""ALBERT: layers that share their parameters, with narrower embeddings.

The layers are split into groups of equal size, of which the published models have one; all layers of a group have the
same parameters, stored once. A folder of pre-training also has a head that tells the order of two texts; it is left
out.

Source: Lan et al. (2020), "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", section 3.1;
the module names of Hugging Face's ALBERT.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar

from bertsmith.base.core.settings import help_field, require, require_value
from bertsmith.models.encoders.electra import require_width
from bertsmith.models.encoders.post_norm_names import post_norm_layer, post_norm_names
from bertsmith.models.parts.config import NAMED_SIZES, EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(EncoderConfig):
    """The shape of an ALBERT.

    >>> AlbertConfig.named("base").num_parameters(), AlbertConfig.named("xxlarge").num_parameters()
    (11683584, 222595584)
    """

    model_type: ClassVar[str] = "albert"
    display_name: ClassVar[str] = "ALBERT"
    names: ClassVar[str] = "models.encoders.albert:NAMES"
    json_names: ClassVar[Mapping[str, str]] = {"classifier_dropout": "classifier_dropout_prob"}
    omitted: ClassVar[frozenset[str]] = frozenset({"is_causal"})
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        **NAMED_SIZES,
        "xlarge": (24, 2048, 16, 8192),
        "xxlarge": (12, 4096, 64, 16384),
    }

    vocab_size: int = help_field(30000, "pieces in the vocabulary")
    embedding_size: int = help_field(128, "width of the embeddings")
    num_hidden_groups: int = help_field(1, "groups of layers; those of a group share their parameters")
    inner_group_num: int = help_field(1, "different layers that a group repeats in turn; only 1 is supported")
    hidden_act: str = help_field("gelu_new", "activation: gelu (exact, erf), gelu_new (tanh approximation) or relu")
    hidden_dropout_prob: float = help_field(0.0, "dropout on the embeddings and on both residual branches")
    attention_probs_dropout_prob: float = help_field(0.0, "dropout on the attention probabilities")
    classifier_dropout: float | None = help_field(0.1, "dropout before a classifier; a span head has none")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_width(self.embedding_size)
        require(
            0 < self.num_hidden_groups <= self.num_hidden_layers,
            expected=f"num_hidden_groups from 1 to {self.num_hidden_layers}, the layers",
            found=repr(self.num_hidden_groups),
            fix="correct num_hidden_groups",
        )
        is_usual = self.inner_group_num == 1
        require_value(is_usual, "inner_group_num", "1, as in every ALBERT", self.inner_group_num, "use another model")

    @functools.cached_property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size

    @functools.cached_property
    def projects_embeddings(self) -> bool:
        """True: there is a projection even between equal widths."""
        return True

    @property
    def num_distinct_layers(self) -> int:
        """The number of groups."""
        return self.num_hidden_groups

    def parameters_of(self, layer: int) -> int:
        """The group of a layer, both counted from 0.

        >>> config = AlbertConfig(num_hidden_layers=6, num_hidden_groups=2)
        >>> [config.parameters_of(layer) for layer in range(6)]
        [0, 0, 0, 1, 1, 1]
        """
        return int(layer / (self.num_hidden_layers / self.num_hidden_groups))  # as transformers computes it

    @property
    def shape_in_words(self) -> str:
        """See `EncoderConfig`."""
        groups = "one set" if self.num_hidden_groups == 1 else f"{self.num_hidden_groups} sets"
        return f"{super().shape_in_words}, {groups} of parameters, embeddings of width {self.embedding_size}"


_ORDER = "the head that tells the order of two texts"
_PARTS = (
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.dense",
    "attention.LayerNorm",
    "ffn",
    "ffn_output",
    "full_layer_layer_norm",
)

NAMES = dataclasses.replace(
    post_norm_names(
        "albert.",
        "Albert",
        layer=post_norm_layer("albert.encoder.albert_layer_groups.{i}.albert_layers.0", _PARTS),
        pooler="albert.pooler",
        transform=("predictions.dense", "predictions.LayerNorm"),
        pieces="predictions",
        copies=("predictions.decoder.weight", "predictions.decoder.bias"),
        projection="albert.encoder.embedding_hidden_mapping_in",
    ),
    unused={f"sop_classifier.classifier.{kind}": _ORDER for kind in ("weight", "bias")},
)
