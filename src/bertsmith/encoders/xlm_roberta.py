"""XLM-RoBERTa: RoBERTa's layers with a vocabulary of 100 languages, whose pieces are those of SentencePiece.

Source: Conneau et al. (2020), "Unsupervised Cross-lingual Representation Learning at Scale"; the module names of
Hugging Face's XLM-RoBERTa, which are RoBERTa's.
"""

import dataclasses
from typing import ClassVar

from bertsmith.encoders import roberta
from bertsmith.encoders.roberta import RobertaConfig
from bertsmith.settings import help_field


@dataclasses.dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """The shape of an XLM-RoBERTa encoder."""

    model_type: ClassVar[str] = "xlm-roberta"
    display_name: ClassVar[str] = "XLM-RoBERTa"

    vocab_size: int = help_field(250002, "pieces in the vocabulary")


NAMES = dataclasses.replace(roberta.NAMES, class_prefix="XLMRoberta")
