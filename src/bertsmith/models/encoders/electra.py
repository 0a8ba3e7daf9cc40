"""ELECTRA, generator and discriminator: BERT's layers on embeddings with their own width.

A folder of a discriminator has a head that tells replaced tokens from original ones. It is left out: a task trains a
head of its own. A classifier of whole texts has a pooler of its own with GELU, which Hugging Face stores in the head.

Source: Clark et al. (2020), "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", section 3
and table 6; the module names of Hugging Face's ELECTRA.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertsmith.base.core.settings import help_field, require, require_counts
from bertsmith.models.encoders.post_norm_names import CLASSIFIER_WITH_POOLER, post_norm_layer, post_norm_names
from bertsmith.models.parts.config import EncoderConfig

# What the head for multiple choice reads, as in every published model.
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
_NARROW = 128  # width of the embeddings of the small models


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraConfig(EncoderConfig):
    """The shape of an ELECTRA, generator or discriminator.

    >>> ElectraConfig.named("base").embedding_size, ElectraConfig.named("mini").embedding_size
    (768, 128)
    """

    model_type: ClassVar[str] = "electra"
    display_name: ClassVar[str] = "ELECTRA"
    names: ClassVar[str] = "models.encoders.electra:NAMES"
    has_pooler: ClassVar[bool] = False
    pooler_activation: ClassVar[str] = "gelu"
    head_activation: ClassVar[str] = "gelu"
    fixed: ClassVar[Mapping[str, Any]] = {"is_decoder": False}
    omitted: ClassVar[frozenset[str]] = frozenset({"is_causal"})

    embedding_size: int = help_field(_NARROW, "width of the embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_width(self.embedding_size)

    @functools.cached_property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`; see `EncoderConfig.from_dict`."""
        result = super().from_dict(values)
        if "ElectraForMultipleChoice" in (values.get("architectures") or ()):
            for name, usual in _SUMMARY.items():
                value = values.get(name, usual)
                require(value == usual, expected=f"{name} {usual!r}", found=repr(value)[:60], fix="use another model")
        return result

    @classmethod
    def named(cls, name: str, **changes: Any) -> Self:
        """The configuration of a named size; from "base" on, embeddings have the full width. See `EncoderConfig`."""
        result = super().named(name, **changes)
        is_full = "embedding_size" not in changes and result.hidden_size >= cls.hidden_size
        return dataclasses.replace(result, embedding_size=result.hidden_size) if is_full else result


def require_width(width: int) -> None:
    """Checks that the width of the embeddings is a positive number."""
    require_counts(embedding_size=width)


_DETECTS = "the head that detects replaced tokens"

NAMES = dataclasses.replace(
    post_norm_names(
        "electra.",
        "Electra",
        layer=post_norm_layer("electra.encoder.layer.{i}"),
        pooler="sequence_summary.summary",
        transform=("generator_predictions.dense", "generator_predictions.LayerNorm"),
        pieces="generator_lm_head",
        copies=("generator_lm_head.weight",),
        projection="electra.embeddings_project",
    ),
    variants=CLASSIFIER_WITH_POOLER,
    absent=lambda config, name: not config.projects_embeddings and name.startswith("bert.embeddings.projection."),
    unused={
        f"discriminator_predictions.{layer}.{kind}": _DETECTS
        for layer in ("dense", "dense_prediction")
        for kind in ("weight", "bias")
    },
)
