"""RoBERTa: BERT's layers, one segment, positions that start after the padding id, byte-level BPE.

A classifier of whole texts has a pooler of its own, which Hugging Face stores in the head. XLM-RoBERTa is the same with
a vocabulary of 100 languages, whose pieces are those of SentencePiece.

Source: Liu et al. (2019), "RoBERTa: A Robustly Optimized BERT Pretraining Approach"; Conneau et al. (2020),
"Unsupervised Cross-lingual Representation Learning at Scale"; the module names of Hugging Face's RoBERTa.
"""

import dataclasses
from typing import ClassVar

from bertsmith.model.config import EncoderConfig
from bertsmith.model.parameter_names import ParameterNames, Row, dense, layer_norm, output
from bertsmith.model.transformer import TransformerEncoder
from bertsmith.settings import help_field


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobertaConfig(EncoderConfig):
    """The shape of a RoBERTa encoder."""

    model_type: ClassVar[str] = "roberta"
    display_name: ClassVar[str] = "RoBERTa"

    vocab_size: int = help_field(50265, "pieces in the vocabulary")
    max_position_embeddings: int = help_field(514, "rows of the position table; two of them are never used")
    type_vocab_size: int = help_field(1, "segments; all tokens are in the same one")
    layer_norm_eps: float = help_field(1e-5, "added to the variance inside the square root")
    pad_token_id: int = help_field(1, "id of <pad>; positions start after it")
    bos_token_id: int = help_field(0, "id of <s>")
    eos_token_id: int = help_field(2, "id of </s>")

    @property
    def first_position(self) -> int:
        """The row of the position table for the first token: the one after the padding id."""
        return self.pad_token_id + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """The shape of an XLM-RoBERTa encoder."""

    model_type: ClassVar[str] = "xlm-roberta"
    display_name: ClassVar[str] = "XLM-RoBERTa"

    vocab_size: int = help_field(250002, "pieces in the vocabulary")


class RobertaModel(TransformerEncoder):
    """Word and position embeddings with one constant segment, post-norm layers, a pooler with tanh."""


_E, _H = "bert.embeddings", "roberta.embeddings"
_L, _M = "bert.layers.{i}", "roberta.encoder.layer.{i}"

NAMES = ParameterNames(
    prefix="roberta.",
    class_prefix="Roberta",
    embeddings=(
        Row(f"{_E}.word.weight", f"{_H}.word_embeddings.weight", "VD"),
        Row(f"{_E}.position.weight", f"{_H}.position_embeddings.weight", "PD"),
        Row(f"{_E}.segment.weight", f"{_H}.token_type_embeddings.weight", "SD"),
        *layer_norm(f"{_E}.norm", f"{_H}.LayerNorm"),
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
        "pooler": dense("bert.pooler", "roberta.pooler.dense", "DD"),
        "mlm": (
            *dense("mlm.transform", "lm_head.dense", "DD"),
            *layer_norm("mlm.norm", "lm_head.layer_norm"),
            Row("mlm.bias", "lm_head.bias", "V"),
        ),
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "qa_outputs", "2D"),
    },
    copies={"lm_head.decoder.weight": "bert.embeddings.word.weight", "lm_head.decoder.bias": "mlm.bias"},
    variants={
        "ForSequenceClassification": {
            "bert.pooler.weight": "classifier.dense.weight",
            "bert.pooler.bias": "classifier.dense.bias",
            "classifier.weight": "classifier.out_proj.weight",
            "classifier.bias": "classifier.out_proj.bias",
        }
    },
)
XLM_NAMES = dataclasses.replace(NAMES, class_prefix="XLMRoberta")
