"""ELECTRA, generator and discriminator: BERT's layers on embeddings of a width of their own.

A folder of a discriminator has a head that tells replaced tokens from original ones. It is left out: a task trains a
head of its own. A classifier of whole texts has a pooler of its own with GELU, which Hugging Face stores in the head.

Source: Clark et al. (2020), "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", section 3
and table 6; the module names of Hugging Face's ELECTRA.
"""

import dataclasses
from typing import Any, ClassVar, Self

from bertsmith.model.config import EncoderConfig
from bertsmith.model.parameter_names import ParameterNames, Row, dense, layer_norm, output
from bertsmith.model.transformer import TransformerEncoder
from bertsmith.settings import help_field, require

_NARROW = 128  # width of the embeddings of the small models


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraConfig(EncoderConfig):
    """The shape of an ELECTRA, generator or discriminator.

    >>> ElectraConfig.named("base").embedding_size, ElectraConfig.named("mini").embedding_size
    (768, 128)

    Raises:
        ConfigError: see `EncoderConfig`; the width of the embeddings is not positive.
    """

    model_type: ClassVar[str] = "electra"
    display_name: ClassVar[str] = "ELECTRA"
    has_pooler: ClassVar[bool] = False
    pooler_activation: ClassVar[str] = "gelu"
    omitted: ClassVar[frozenset[str]] = frozenset({"is_causal"})

    embedding_size: int = help_field(_NARROW, "width of the embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_width(self.embedding_size)

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size

    @property
    def head_act(self) -> str:
        """The activation in the masked-LM head, whatever that of the layers is."""
        return "gelu"

    @classmethod
    def named(cls, name: str, **changes: Any) -> Self:
        """The configuration of a named size; from "base" on, embeddings have the full width. See `EncoderConfig`."""
        found = super().named(name, **changes)
        is_full = "embedding_size" not in changes and found.hidden_size >= cls.hidden_size
        return dataclasses.replace(found, embedding_size=found.hidden_size) if is_full else found

    def num_parameters(self, *, pooler: bool = True, heads: bool = False) -> int:
        """See `EncoderConfig`."""
        return NAMES.count(self, pooler=pooler, heads=heads)


def require_width(width: int) -> None:
    """Returns if the width of the embeddings is a positive number.

    Raises:
        ConfigError: it is not.
    """
    require(
        width > 0,
        expected="embedding_size to be a whole number above 0",
        found=repr(width),
        fix="correct embedding_size",
    )


class ElectraModel(TransformerEncoder):
    """Word, segment and position embeddings, a projection if needed, post-norm layers, a pooler with GELU."""


_E, _H = "bert.embeddings", "electra.embeddings"
_L, _M = "bert.layers.{i}", "electra.encoder.layer.{i}"
_DETECTS = "the head that detects replaced tokens"

NAMES = ParameterNames(
    prefix="electra.",
    class_prefix="Electra",
    embeddings=(
        Row(f"{_E}.word.weight", f"{_H}.word_embeddings.weight", "VE"),
        Row(f"{_E}.position.weight", f"{_H}.position_embeddings.weight", "PE"),
        Row(f"{_E}.segment.weight", f"{_H}.token_type_embeddings.weight", "SE"),
        *layer_norm(f"{_E}.norm", f"{_H}.LayerNorm", shape="E"),
        *dense(f"{_E}.projection", "electra.embeddings_project", "DE"),
    ),
    layer=(
        *dense(f"{_L}.query", f"{_M}.attention.self.query", "DD"),
        *dense(f"{_L}.key", f"{_M}.attention.self.key", "DD"),
        *dense(f"{_L}.value", f"{_M}.attention.self.value", "DD"),
        *dense(f"{_L}.attention_output", f"{_M}.attention.output.dense", "DD"),
        *layer_norm(f"{_L}.attention_norm", f"{_M}.attention.output.LayerNorm"),
        *dense(f"{_L}.intermediate", f"{_M}.intermediate.dense", "ID"),
        *dense(f"{_L}.output", f"{_M}.output.dense", "DI"),
        *layer_norm(f"{_L}.output_norm", f"{_M}.output.LayerNorm"),
    ),
    parts={
        "pooler": dense("bert.pooler", "sequence_summary.summary", "DD"),
        "mlm": (
            *dense("mlm.transform", "generator_predictions.dense", "ED"),
            *layer_norm("mlm.norm", "generator_predictions.LayerNorm", shape="E"),
            Row("mlm.bias", "generator_lm_head.bias", "V"),
        ),
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "qa_outputs", "2D"),
    },
    copies={"generator_lm_head.weight": "bert.embeddings.word.weight"},
    variants={
        "ForSequenceClassification": {
            "bert.pooler.weight": "classifier.dense.weight",
            "bert.pooler.bias": "classifier.dense.bias",
            "classifier.weight": "classifier.out_proj.weight",
            "classifier.bias": "classifier.out_proj.bias",
        }
    },
    absent=lambda config, name: not config.projects_embeddings and name.startswith(f"{_E}.projection."),
    unused={
        f"discriminator_predictions.{layer}.{kind}": _DETECTS
        for layer in ("dense", "dense_prediction")
        for kind in ("weight", "bias")
    },
)
