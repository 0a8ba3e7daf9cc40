"""The end-to-end memory network: a question reads a list of facts several times, and then an answer is chosen.

Letters: T words of all facts, F facts of all stories, N stories, M facts of the longest story, A answers, V words and
phrases, D width, K hops.

There are K + 1 word tables. The vector of a fact is the sum of the vectors of its words, each weighted by its position,
plus a vector for the age of the fact (the last one has age 0). Hop k, counted from 0, compares the query with the facts
as table k sees them, and adds their weighted sum as table k + 1 sees them to the query: so the output vectors of a hop
are the keys of the next one (adjacent tying). Table 0 reads the question, and table K scores the answers. An answer
that is not a single word of the vocabulary has a row of its own behind the words.

The layout on disk is our own.

Source: Sukhbaatar et al. (2015), "End-To-End Memory Networks", sections 2 and 4.1.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field, require_number
from bertsmith.models.encoders.without_attention import ConfigWithoutAttention
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.layers import initialize
from bertsmith.models.parts.scored_attention import attend, attention_weights, dot


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryNetworkConfig(ConfigWithoutAttention):
    """The shape of a memory network.

    >>> MemoryNetworkConfig(vocab_size=10, hidden_size=4, num_hidden_layers=2).num_parameters()
    720
    """

    model_type: ClassVar[str] = "memory-network"
    display_name: ClassVar[str] = "memory network"
    can_pool: ClassVar[bool] = False
    norms_embeddings: ClassVar[bool] = False
    omitted: ClassVar[frozenset[str]] = ConfigWithoutAttention.omitted | {
        "intermediate_size",
        "hidden_dropout_prob",
        "is_causal",
        "classifier_dropout",
    }

    hidden_size: int = help_field(50, "width of all vectors")
    num_hidden_layers: int = help_field(3, "hops: how often the facts are read")
    max_position_embeddings: int = help_field(50, "facts of a story that can be read")
    initializer_range: float = help_field(0.1, "standard deviation of the truncated normal for initialization")
    position_embedding_type: str = help_field("none", "positions of BERT; there are none")
    phrases: int = help_field(0, "answers with a row of their own in the word tables, behind the words")
    position_weights: bool = help_field(True, "the weight of a word depends on its position; otherwise it is 1")
    temporal: bool = help_field(True, "a vector for the age of a fact is added to it")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("phrases", self.phrases, least=0)

    def num_parameters(self, *, pooler: bool = False, heads: bool = False) -> int:
        """The number of parameters; the answers are rows of the last word table."""
        ages = self.max_position_embeddings if self.temporal else 0
        return (self.num_hidden_layers + 1) * (self.vocab_size + self.phrases + ages) * self.hidden_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoryBatch:
    """N stories with a question each.

    Attributes:
        facts: the F facts, story by story.
        counts: facts of each story, which add up to F; at least one each.
        ages: int64 [F], 0 for the last fact of a story, ascending towards its first.
        questions: N questions.
    """

    facts: Batch
    counts: tuple[int, ...]
    ages: Tensor
    questions: Batch


class MemoryOutput(NamedTuple):
    """The scores of the answers [N, A], and what each of K hops looked at: the scores of the facts [N, M].

    Where a story has fewer than M facts, the scores of the others are minus infinity.
    """

    answers: Tensor
    hops: list[Tensor]

    def attention(self, counts: Sequence[int]) -> list[list[list[float]]]:
        """The attention of each story: for each hop a weight for each fact."""
        weights = torch.stack([attention_weights(scores) for scores in self.hops], dim=1).tolist()  # [N, K, M]
        return [[hop[:count] for hop in of_story] for of_story, count in zip(weights, counts, strict=True)]


def position_weights(positions: Tensor, lengths: Tensor, width: int) -> Tensor:
    """The weights [T, D] of words at these positions, counted from 0, of texts with that many words: each [T].

    Source: Sukhbaatar et al. (2015), section 4.1: (1 - j/J) - (k/d)(1 - 2j/J), for word j of J and element k of d, both
    counted from 1.

    >>> position_weights(torch.tensor([0, 1]), torch.tensor([2, 2]), 2).tolist()
    [[0.5, 0.5], [0.5, 1.0]]
    """
    share = ((positions + 1) / lengths).unsqueeze(1)  # [T, 1]
    elements = torch.arange(1, width + 1, device=positions.device) / width  # [D]
    return (1 - share) - elements * (1 - 2 * share)


class MemoryNetwork(nn.Module):
    """Word tables and tables of ages, one more than hops.

    Args:
        answers: int64 [A], the row of each answer in the word tables.
    """

    def __init__(self, config: MemoryNetworkConfig, answers: Sequence[int], *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        shape = config.vocab_size + config.phrases, config.hidden_size
        tables = range(config.num_hidden_layers + 1)
        self.words = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for _ in tables)
        ages = config.max_position_embeddings, config.hidden_size
        self.ages = nn.ParameterList(nn.Parameter(torch.zeros(ages)) for _ in tables if config.temporal)
        self.answers = tuple(answers)
        if seed is not None:
            with torch.no_grad():
                initialize(self, config.initializer_range, seed)

    def forward(self, stories: StoryBatch, *, linear: bool = False) -> MemoryOutput:
        """The scores of the answers and of the facts.

        Args:
            linear: facts are weighted by their scores, without a softmax, as in the first phase of the training.
        """
        device = stories.ages.device
        counts = np.asarray(stories.counts)
        rows, most = len(counts), int(counts.max())
        starts = np.repeat(np.arange(rows) * most - (np.cumsum(counts) - counts), counts)
        slots = torch.from_numpy(starts + np.arange(counts.sum())).to(device)  # [F], in [N * M]
        mask = torch.zeros(rows * most, dtype=torch.bool, device=device).index_fill(0, slots, True).view(rows, 1, most)

        weights = self._weights(stories.facts)
        memories = []
        for number, table in enumerate(self.words):
            vectors = self._sums(table, stories.facts, weights)  # [F, D]
            if self.config.temporal:
                vectors = vectors + self.ages[number][stories.ages]
            padded = vectors.new_zeros(rows * most, vectors.shape[1]).index_copy(0, slots, vectors)
            memories.append(padded.view(rows, most, -1))

        query = self._sums(self.words[0], stories.questions, self._weights(stories.questions)).unsqueeze(1)  # [N, 1, D]
        hops: list[Tensor] = []

        def score(query: Tensor, keys: Tensor) -> Tensor:
            scores = dot(query, keys)
            hops.append(scores.masked_fill(~mask, -torch.inf).squeeze(1))
            return scores

        for keys, values in itertools.pairwise(memories):
            context, _ = attend(query, keys, values, score, mask, linear=linear)
            query = query + context
        rows_of_answers = torch.tensor(self.answers, dtype=torch.int64, device=device)
        return MemoryOutput(query.squeeze(1) @ self.words[-1][rows_of_answers].T, hops)

    def _weights(self, texts: Batch) -> Tensor | None:
        """The weights [T, D] of the words of texts; None if all are 1."""
        if not self.config.position_weights:
            return None
        lengths = torch.from_numpy(np.repeat(texts.lengths, texts.lengths)).to(texts.positions.device)
        return position_weights(texts.positions, lengths, self.config.hidden_size).to(self.words[0].dtype)

    def _sums(self, table: Tensor, texts: Batch, weights: Tensor | None) -> Tensor:
        """The vectors of texts: the sums of the weighted vectors of their words."""
        vectors = table[texts.token_ids]
        vectors = vectors if weights is None else vectors * weights
        owners = torch.from_numpy(np.repeat(np.arange(texts.num_rows), texts.lengths)).to(vectors.device)
        return vectors.new_zeros(texts.num_rows, vectors.shape[1]).index_add(0, owners, vectors)
