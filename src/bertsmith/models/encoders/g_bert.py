"""G-BERT: a Transformer over the codes of a visit, which are a set, with vectors that come from a tree over the codes.

Letters: T codes of all visits with their [CLS], N visits, V vocabulary, C codes in graphs, G nodes of a graph, E edges,
D width, H heads of the graph attention, W their width.

A visit is one row per kind of codes, `[CLS]` and the codes, without positions; its vector is the state of `[CLS]`. With
a tree, the vectors of the codes are not a table: in a first pass of graph attention each ancestor reads its children,
from the leaves on, and in a second pass with the same parameters each code reads all its ancestors. Layers are
pre-norm; query, key and value have no biases, and no norm follows the last layer.

On top there are two kinds of heads. For pre-training, the vector of a visit of each kind predicts the set of codes of
its own kind, from which some were masked, and that of the other kind. The recommendation reads the mean of the past
visits of each kind and the current visit of the first kind.

What differs from the released code: as `codes train` starts it, matrices have a deviation of one over the square root
of the width, with which a signal passes all layers, not of 0.02, and the biases of all outputs are the log-odds of the
codes in the training, not 0; vectors of codes and attention weights of graphs start from a truncated normal of
the same deviation, not from a uniform distribution; a code of the second kind has its own type in pre-training too,
where the released code has that of the first; no visit is cut at 55 codes; nothing but real codes is attended to,
while the released code hides [CLS] together with the padding; past visits are those of the subject, while the released
code mixes up the two kinds for more than one of them; codes that replace others at random are of the same kind.

Source: Shang et al. (2019), "Pre-training of Graph Augmented Transformers for Medication Recommendation", section 4;
graph_models.py, bert_models.py and predictive_models.py of the released code.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field, require, require_number
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.layers import Embedding, activation, initialize, linear, norm
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.transformer import Embeddings, Layer, Pass, TransformerEncoder, joined
from bertsmith.text.codes.graph import CodeGraph

if TYPE_CHECKING:
    from bertsmith.models.parts.earlier import Earlier

_SLOPE = 0.2  # of the LeakyReLU of graph attention


@dataclasses.dataclass(frozen=True, kw_only=True)
class GBertConfig(EncoderConfig):
    """The shape of a G-BERT.

    The model of the paper, with the tree and without it, as it recommends medications:

    >>> paper = dict(vocab_size=2468, num_labels=145)
    >>> GBertConfig(graphs=2, graph_codes=2465, graph_nodes=3194, **paper).num_parameters(heads=True)
    3034045
    >>> GBertConfig(**paper).num_parameters(heads=True)
    2634145
    """

    model_type: ClassVar[str] = "g-bert"
    display_name: ClassVar[str] = "G-BERT"
    can_pool: ClassVar[bool] = False
    norms_first: ClassVar[bool] = True
    in_transformers: ClassVar[bool] = False
    has_graph: ClassVar[bool] = False  # in ONNX
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"max_position_embeddings", "position_embedding_type", "is_causal", "classifier_dropout"}
    )

    hidden_size: int = help_field(300, "width of all vectors")
    num_hidden_layers: int = help_field(2, "encoder layers")
    num_attention_heads: int = help_field(4, "attention heads; must divide hidden_size")
    intermediate_size: int = help_field(300, "width of the feed-forward network")
    hidden_act: str = help_field("gelu_new", "activation of the feed-forward network")
    hidden_dropout_prob: float = help_field(0.4, "dropout on both residual branches, inside the second, and on layers")
    position_embedding_type: str = help_field("none", "positions; there are none, since a visit is a set")
    type_vocab_size: int = help_field(2, "kinds of codes")
    graphs: int = help_field(0, "kinds of codes with a tree")
    graph_codes: int = help_field(0, "codes of these kinds")
    graph_nodes: int = help_field(0, "nodes of their trees, codes included")
    graph_heads: int = help_field(4, "heads of the graph attention; must divide hidden_size")
    num_labels: int = help_field(1, "codes that the recommendation chooses from")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (
            ("graphs", 0),
            ("graph_codes", 0),
            ("graph_nodes", 0),
            ("graph_heads", 1),
            ("num_labels", 1),
        ):
            require_number(name, getattr(self, name), least=least)
        require(
            self.hidden_size % self.graph_heads == 0,
            expected="hidden_size divisible by graph_heads",
            found=f"{self.hidden_size} and {self.graph_heads}",
            fix="change one of them",
        )

    def num_parameters(self, *, pooler: bool = False, heads: bool = False) -> int:
        """The number of parameters of the encoder; with `heads`, of the recommendation too, but not of pre-training."""
        width, inner, kinds = self.hidden_size, self.intermediate_size, self.type_vocab_size
        layer = 4 * width * width + width + 2 * width * inner + inner + width + 4 * width
        table = self.vocab_size * width + kinds * width + 2 * width  # a norm, too
        if self.graphs:
            rows = self.vocab_size - self.graph_codes + self.graph_nodes + kinds
            table = rows * width + self.graphs * (width * width + 3 * width)
        total = table + self.num_hidden_layers * layer
        if heads:
            total += kinds * (width * width + width)
            total += ((kinds + 1) * width + 1) * 2 * width + (2 * width + 1) * self.num_labels
        return total


class GraphAttention(nn.Module):
    """Attention of some nodes to others along edges, in several heads.

    Source: Veličković et al. (2018), "Graph Attention Networks", section 2.1.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.scores = nn.Parameter(torch.zeros(heads, 2 * (width // heads)))  # of the reader, then of what is read
        self.bias = nn.Parameter(torch.zeros(width))
        # As in the released code, `glorot` of their last two axes.
        self.initial_deviations = {
            "weight": math.sqrt(2 / (2 * width)),
            "scores": math.sqrt(2 / (heads + 2 * (width // heads))),
        }

    def forward(self, nodes: Tensor, edges: Tensor, readers: int) -> Tensor:
        """The vectors of the first `readers` nodes, [readers, D], of the nodes [G, D] and edges [2, E] to them."""
        to, origin = edges
        mapped = (nodes @ self.weight).view(len(nodes), self.heads, -1)  # [G, H, W]
        reader, neighbor = self.scores.chunk(2, dim=1)  # [H, W]
        scores = (mapped * reader).sum(2)[to] + (mapped * neighbor).sum(2)[origin]  # [E, H]
        scores = F.leaky_relu(scores, _SLOPE)
        most = scores.detach().new_full((readers, self.heads), -torch.inf)
        most = most.scatter_reduce(0, to[:, None].expand_as(scores), scores.detach(), "amax")
        weights = (scores - most[to]).exp()
        sums = weights.new_zeros(readers, self.heads).index_add(0, to, weights)
        read = (weights / sums[to]).unsqueeze(2) * mapped[origin]  # [E, H, W]
        together = read.new_zeros(readers, *mapped.shape[1:]).index_add(0, to, read)
        return together.flatten(1) + self.bias


class OntologyEmbedding(nn.Module):
    """The vectors of the codes of a kind from those of the nodes of its tree."""

    up: Tensor
    down: Tensor

    def __init__(self, config: GBertConfig, graph: CodeGraph) -> None:
        super().__init__()
        self.codes = len(graph.ids)
        self.nodes = nn.Parameter(torch.zeros(graph.nodes, config.hidden_size))
        self.attention = GraphAttention(config.hidden_size, config.graph_heads)
        self.initial_deviations = {"nodes": math.sqrt(2 / (graph.nodes + config.hidden_size))}
        for name, edges in (("up", graph.up), ("down", graph.down)):
            self.register_buffer(name, torch.tensor(edges, device="cpu"), persistent=False)

    def forward(self) -> Tensor:
        """The vectors of the codes [C, D]."""
        up, down = (edges.to(self.nodes.device) for edges in (self.up, self.down))
        return torch.as_tensor(self.attention(self.attention(self.nodes, up, len(self.nodes)), down, self.codes))


class GraphEmbeddings(Embeddings):
    """The sum of the vectors of codes, those of trees or of a table, and of their kinds; no norm and no dropout."""

    def __init__(self, config: GBertConfig, graphs: Sequence[CodeGraph]) -> None:
        nn.Module.__init__(self)
        self.config = config
        in_graphs = np.concatenate([graph.ids for graph in graphs])
        others = np.setdiff1d(np.arange(config.vocab_size), in_graphs)
        self.others = nn.Parameter(torch.zeros(len(others), config.hidden_size))  # special codes, kinds without a tree
        self.initial_deviations = {"others": math.sqrt(2 / (len(others) + config.hidden_size))}
        self.ontologies = nn.ModuleList(OntologyEmbedding(config, graph) for graph in graphs)
        self.segment = Embedding(config.type_vocab_size, config.hidden_size)
        self.rows = np.argsort(np.concatenate([others, in_graphs]))  # [V]: the row of each id in what is concatenated

    def table(self) -> Tensor:
        """The vectors of all codes [V, D]."""
        parts = [self.others, *(ontology() for ontology in self.ontologies)]
        return torch.cat(parts)[torch.from_numpy(self.rows).to(self.others.device)]

    def forward(
        self, batch: Batch, noise: Noise | None, dtype: torch.dtype, earlier: "Earlier | None" = None
    ) -> Tensor:
        """The input representation [T, D]."""
        total = F.embedding(batch.token_ids, self.table()) + F.embedding(batch.segment_ids, self.segment.weight)
        return total.to(dtype)


class GBertLayer(Layer):
    """Attention and a feed-forward network, each of a norm of the residual stream, to which it is added; dropout."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        for part in (self.query, self.key, self.value):
            part.register_parameter("bias", None)

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """See `Layer.forward`."""
        normed = norm(hidden, self.attention_norm)
        asking, residual = (x if read is None else x[read.positions] for x in (normed, hidden))  # [R, D]
        counts = shared.batch.lengths if read is None else read.counts
        probability, width = self.config.hidden_dropout_prob, residual.shape[1]
        context = self.attend(normed, asking, shared, read, name)
        keep = self.kept(width, counts, shared, probability)
        attended = joined(residual, context, self.attention_output, keep, probability)
        inner = activation(linear(norm(attended, self.output_norm), self.intermediate), self.config.hidden_act)
        inner = dropped(inner, shared.noise, probability, counts)
        keep = self.kept(width, counts, shared, probability)
        return dropped(joined(attended, inner, self.output, keep, probability), shared.noise, probability, counts)


class GBertModel(TransformerEncoder):
    """The encoder of visits.

    Args:
        graphs: of the kinds of codes with a tree; without any, the codes have a table, a norm and dropout.
    """

    config: GBertConfig

    def __init__(self, config: GBertConfig, graphs: Sequence[CodeGraph] = (), *, seed: int | None = 0) -> None:
        Encoder.__init__(self)
        sizes = len(graphs), sum(len(graph.ids) for graph in graphs), sum(graph.nodes for graph in graphs)
        assert sizes == (config.graphs, config.graph_codes, config.graph_nodes), "the graphs of the configuration"
        self.config, self.final_norm = config, None
        self.embeddings = GraphEmbeddings(config, graphs) if graphs else Embeddings(config)
        self.layers = nn.ModuleList(GBertLayer(config) for _ in range(config.num_hidden_layers))
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    @property
    def word_table(self) -> Tensor:
        """The vectors of the codes [V, D]."""
        return self.embeddings.table() if isinstance(self.embeddings, GraphEmbeddings) else self.embeddings.word.weight

    def vectors(self, visits: Batch, noise: Noise | None = None) -> Tensor:
        """The vectors of visits [N, D]: the states of their [CLS]."""
        dtype = self.embeddings.segment.weight.dtype
        return torch.as_tensor(self(visits, read=Read.first(visits), noise=noise, dtype=dtype))


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """What a recommendation reads, as rows of the vectors of visits.

    Attributes:
        past: for each kind, of each example the rows of its past visits; there may be none.
        current: int64 [E], the row of the current visit; -1 if there is none.
    """

    past: Sequence[Sequence[Sequence[int]]]
    current: Tensor


class Recommendation(nn.Module):
    """The head that scores codes: linear layers with ReLU on past visits and the current one, then two more."""

    def __init__(self, config: GBertConfig) -> None:
        super().__init__()
        width, kinds = config.hidden_size, config.type_vocab_size
        self.visits = nn.ModuleList(nn.Linear(width, width) for _ in range(kinds))
        self.together = nn.Linear((kinds + 1) * width, 2 * width)
        self.scores = nn.Linear(2 * width, config.num_labels)

    def forward(self, vectors: Tensor, kinds: Tensor, history: History) -> Tensor:
        """The scores of the codes [E, labels], from the vectors [N, D] of visits of these kinds, int64 [N].

        The mean of no visits is 0, as is no current visit.
        """
        mapped = torch.cat([torch.zeros_like(vectors), vectors.new_zeros(1, vectors.shape[1])])  # row -1 stays 0
        for kind, layer in enumerate(self.visits):
            rows = (kinds == kind).nonzero().squeeze(1)
            mapped = mapped.index_copy(0, rows, F.relu(layer(vectors[rows])))
        parts = [mean_of_rows(mapped, past) for past in history.past]
        together = torch.cat([*parts, mapped[history.current]], dim=1)
        return torch.as_tensor(self.scores(F.relu(self.together(together))))


class GBert(nn.Module):
    """An encoder of visits with the heads of its pre-training and its recommendation.

    Args:
        sizes: the number of codes of each kind.
    """

    def __init__(
        self, config: GBertConfig, sizes: Sequence[int], graphs: Sequence[CodeGraph] = (), *, seed: int | None = 0
    ) -> None:
        super().__init__()
        assert len(sizes) == config.type_vocab_size
        self.config = config
        self.bert = GBertModel(config, graphs, seed=None)
        width = config.hidden_size
        self.pretraining = nn.ModuleDict(
            {
                f"{source}-{target}": nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, size))
                for source in range(len(sizes))
                for target, size in enumerate(sizes)
            }
        )
        self.recommendation = Recommendation(config)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def codes_of_visits(self, vectors: Tensor, source: int, target: int) -> Tensor:
        """The scores [N, codes] of the codes of one kind, from the vectors [N, D] of visits of another, or the same."""
        return torch.as_tensor(self.pretraining[f"{source}-{target}"](vectors))

    def forward(self, visits: Batch, kinds: Tensor, history: History, noise: Noise | None = None) -> Tensor:
        """The scores [E, labels] of what is recommended."""
        return torch.as_tensor(self.recommendation(self.bert.vectors(visits, noise), kinds, history))


def mean_of_rows(vectors: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """The mean [E, D] of the rows of each example; 0 where there are none."""
    flat = [row for of_example in rows for row in of_example]
    counts = torch.tensor([len(of_example) for of_example in rows], device=vectors.device)
    owners = torch.repeat_interleave(torch.arange(len(rows), device=vectors.device), counts)
    sums = vectors.new_zeros(len(rows), vectors.shape[1])
    if flat:
        sums = sums.index_add(0, owners, vectors[torch.tensor(flat, device=vectors.device)])
    return sums / counts.clamp(min=1).unsqueeze(1)
