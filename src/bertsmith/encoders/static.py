"""Static vectors: one vector per piece, whatever its neighbors; an encoder without layers.

Letters: T tokens in the flat batch, N sequences, R positions that are read, V vocabulary, D width.

The vector of a text is the mean of those of its pieces. Special pieces ([CLS], [SEP], [UNK] ...) have the vector 0 and
get no gradient, so they change the length of a mean but not its direction, and a text without known pieces has the
vector 0.

The table is stored as `embedding.weight`, which `StaticEmbedding` of sentence-transformers reads.

Source: Arora et al. (2017), "A Simple but Tough-to-Beat Baseline for Sentence Embeddings"; Tulkens and van Dongen
(2024), Model2Vec, for tables made by an encoder (`sentence_encoders/static.py`).
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.model.batch import Batch, Read
from bertsmith.model.config import EncoderConfig
from bertsmith.model.encoder import Encoder, Trace
from bertsmith.model.layers import Embedding, initialize
from bertsmith.model.memory import Memory
from bertsmith.model.noise import Noise, dropped
from bertsmith.model.parameter_names import ParameterNames, Row, output
from bertsmith.settings import help_field
from bertsmith.text.vocabulary import Vocabulary

_ANY_LENGTH = 1_000_000  # tokens; a limit only for what allocates memory by it


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaticConfig(EncoderConfig):
    """The shape of static vectors."""

    model_type: ClassVar[str] = "static-vectors"
    display_name: ClassVar[str] = "static vectors"
    can_pool: ClassVar[bool] = False
    has_pooler: ClassVar[bool] = False
    has_attention: ClassVar[bool] = False
    norms_embeddings: ClassVar[bool] = False
    is_static: ClassVar[bool] = True
    in_transformers: ClassVar[bool] = False
    has_graph: ClassVar[bool] = False
    omitted: ClassVar[frozenset[str]] = frozenset(
        {
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "hidden_act",
            "attention_probs_dropout_prob",
            "max_position_embeddings",
            "type_vocab_size",
            "layer_norm_eps",
            "position_embedding_type",
            "is_causal",
            "classifier_dropout",
        }
    )
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {}

    num_hidden_layers: int = help_field(0, "encoder layers; static vectors have none")
    num_attention_heads: int = help_field(1, "attention heads; static vectors have none")
    type_vocab_size: int = help_field(0, "segments; static vectors have none")
    hidden_dropout_prob: float = help_field(0.0, "dropout on the vectors")

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, which nothing in the model limits."""
        return _ANY_LENGTH

    @property
    def shape_in_words(self) -> str:
        """The width, for people to read."""
        return f"one vector of width {self.hidden_size} per piece, no layers"


class StaticModel(Encoder):
    """A table of vectors.

    Args:
        seed: seed for initialization; None leaves that to the caller.
    """

    def __init__(self, config: EncoderConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.ModuleDict({"word": Embedding(config.vocab_size, config.hidden_size)})
        self.layers = nn.ModuleList()
        self._special = np.zeros(0, dtype=np.int64)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def read_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Notes which pieces are special; see `Encoder.read_vocabulary`."""
        self._special = special_ids(vocabulary)

    @property
    def word_table(self) -> Tensor:
        """The vectors of the pieces [V, D]."""
        return self.embeddings["word"].get_parameter("weight")

    @property
    def can_prune(self) -> bool:
        """False: there is no layer."""
        return False

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """The vectors of the tokens, in the dtype of the table: [T, D], or [R, D]; see `Encoder.forward`."""
        assert memory is None, "static vectors need no memory"
        special = torch.from_numpy(self._special).to(batch.token_ids.device)
        is_special = torch.isin(batch.token_ids, special)
        hidden = F.embedding(batch.token_ids, self.word_table).masked_fill(is_special[:, None], 0.0)
        hidden = dropped(hidden, noise, self.config.hidden_dropout_prob, batch.lengths)
        hidden = hidden if read is None else read.pick(hidden)
        if trace is not None:
            trace.hidden_states.append(hidden)
        return hidden


def special_ids(vocabulary: Vocabulary) -> np.ndarray:
    """The ids of the special pieces, int64, ascending."""
    names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    found = {getattr(vocabulary, name, None) for name in names}
    return np.array(sorted(one for one in found if one is not None), dtype=np.int64)


NAMES = ParameterNames(
    prefix="static_vectors.",
    class_prefix="StaticVectors",
    embeddings=(Row("bert.embeddings.word.weight", "static_vectors.embedding.weight", "VD"),),
    layer=(),
    parts={"classifier": output("classifier", "classifier", "KD"), "span": output("span", "qa_outputs", "2D")},
    copies={},
    classes={},
)
