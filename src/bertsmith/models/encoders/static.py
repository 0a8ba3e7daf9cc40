"""Static vectors: one vector per piece, independent of its context; an encoder without layers.

Letters: T tokens in the flat batch, N sequences, R positions that are read, V vocabulary, D width.

The vector of a text is the mean of its pieces' vectors. Special pieces ([CLS], [SEP], [UNK] ...) have the vector 0 and
get no gradient, so they change the length of a mean but not its direction, and a text without known pieces has the
vector 0.

The table is stored as `embedding.weight`, which `StaticEmbedding` of sentence-transformers reads.

Source: Arora et al. (2017), "A Simple but Tough-to-Beat Baseline for Sentence Embeddings"; Tulkens and van Dongen
(2024), Model2Vec, for tables made by an encoder (`recipes/sentence_encoders/static.py`).
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field
from bertsmith.models.encoders.without_attention import ConfigWithoutAttention, EncoderWithoutAttention
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.parameter_names import ParameterNames, Row, output
from bertsmith.text.tokenizers.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaticConfig(ConfigWithoutAttention):
    """The shape of static vectors."""

    model_type: ClassVar[str] = "static-vectors"
    display_name: ClassVar[str] = "static vectors"
    can_pool: ClassVar[bool] = False
    norms_embeddings: ClassVar[bool] = False
    is_static: ClassVar[bool] = True
    omitted: ClassVar[frozenset[str]] = ConfigWithoutAttention.omitted | {
        "num_hidden_layers",
        "intermediate_size",
        "max_position_embeddings",
        "is_causal",
        "classifier_dropout",
    }
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {}

    num_hidden_layers: int = help_field(0, "encoder layers; static vectors have none")
    hidden_dropout_prob: float = help_field(0.0, "dropout on the vectors")

    @property
    def shape_in_words(self) -> str:
        """The width, for people to read."""
        return f"one vector of width {self.hidden_size} per piece, no layers"


class StaticModel(EncoderWithoutAttention):
    """A table of vectors."""

    def __init__(self, config: EncoderConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, seed=seed)
        self._special = np.zeros(0, dtype=np.int64)

    def new_layer(self, number: int) -> nn.Module:
        """Never called: the configuration has no layers."""
        raise AssertionError("static vectors have no layers")

    def read_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Notes which pieces are special; see `Encoder.read_vocabulary`."""
        self._special = special_ids(vocabulary)

    def states(
        self, batch: Batch, read: Read | None, noise: Noise | None, dtype: torch.dtype | None, memory: Memory | None
    ) -> tuple[list[Tensor], Tensor]:
        """The vectors of the tokens, in the dtype of the table."""
        assert memory is None, "static vectors need no memory"
        special = torch.from_numpy(self._special).to(batch.token_ids.device)
        is_special = torch.isin(batch.token_ids, special)
        hidden = F.embedding(batch.token_ids, self.word_table).masked_fill(is_special[:, None], 0.0)
        hidden = dropped(hidden, noise, self.config.hidden_dropout_prob, batch.lengths)
        hidden = hidden if read is None else read.pick(hidden)
        return [hidden], hidden


def special_ids(vocabulary: Vocabulary) -> np.ndarray:
    """The ids of the special pieces, int64, ascending."""
    names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    ids = {getattr(vocabulary, name, None) for name in names}
    return np.array(sorted(id for id in ids if id is not None), dtype=np.int64)


NAMES = ParameterNames(
    prefix="static_vectors.",
    class_prefix="StaticVectors",
    embeddings=(Row("bert.embeddings.word.weight", "static_vectors.embedding.weight", "VD"),),
    layer=(),
    parts={"classifier": output("classifier", "classifier", "KD"), "span": output("span", "qa_outputs", "2D")},
    copies={},
    classes={},
)
