"""The model of visits: its parameters, sets without order, attention in trees, the same alone and in a batch."""

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.encoders.g_bert import GBert, GBertConfig, GraphAttention, History, mean_of_rows
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.noise import RowNoise
from bertsmith.text.codes.graph import CodeGraph, graph_of, graphs_of
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.vocabulary import Code, CodeVocabulary

PARENTS = {"top": None, "mid": "top", "a": "mid", "b": "mid", "c": "top"}
TREE = CodeTree({("dx", node): None if parent is None else ("dx", parent) for node, parent in PARENTS.items()})
VOCABULARY = CodeVocabulary([Code("a", "dx"), Code("r", "rx"), Code("b", "dx"), Code("c", "dx"), Code("d", "dx")])


def config(graphs: list[CodeGraph] | None = None, **changes: object) -> GBertConfig:
    graphs = graphs or []
    shape = {"vocab_size": len(VOCABULARY), "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
             "graph_heads": 2, "num_labels": 3}  # fmt: skip
    of_graphs = {
        "graphs": len(graphs),
        "graph_codes": sum(len(graph.ids) for graph in graphs),
        "graph_nodes": sum(graph.nodes for graph in graphs),
    }
    return GBertConfig(**{**shape, **of_graphs, **changes})


def model(*, tree: bool = True) -> GBert:
    graphs = graphs_of(TREE, VOCABULARY, ["dx", "rx"]) if tree else []
    return GBert(config(graphs, initializer_range=0.2), [4, 1], graphs, seed=1).eval()


def paper_graph(first: int, codes: int, nodes: int) -> CodeGraph:
    loops = np.tile(np.arange(nodes), (2, 1))
    return CodeGraph(np.arange(first, first + codes), nodes, loops, loops[:, :codes])


@pytest.mark.parametrize(("with_tree", "published"), [(True, 3_034_045), (False, 2_634_145)])
def test_the_parameters_are_as_many_as_published(with_tree: bool, published: int) -> None:
    """1,997 diagnoses in 2,633 nodes, 468 medications in 561, three special codes; 145 medications are recommended."""
    graphs = [paper_graph(3, 468, 561), paper_graph(471, 1997, 2633)] if with_tree else []
    shape = GBertConfig(
        vocab_size=2468,
        num_labels=145,
        graphs=len(graphs),
        graph_codes=2465 if with_tree else 0,
        graph_nodes=3194 if with_tree else 0,
    )
    with torch.device("meta"):
        built = GBert(shape, [1997, 468], graphs, seed=None)
    counted = sum(p.numel() for name, p in built.named_parameters() if not name.startswith("pretraining."))
    assert counted == published == shape.num_parameters(heads=True)


def test_a_graph_has_edges_from_children_and_from_ancestors() -> None:
    graph = graph_of(TREE, VOCABULARY, "dx")
    assert graph.ids.tolist() == [6, 8, 9, 10]
    assert graph.nodes == 6  # a, b, c and d, which is not in the tree; mid and top
    up = {tuple(edge) for edge in graph.up.T.tolist()}
    assert up == {*((node, node) for node in range(6)), (4, 0), (4, 1), (5, 4), (5, 2)}
    down = {tuple(edge) for edge in graph.down.T.tolist()}
    assert down == {*((code, code) for code in range(4)), (0, 4), (0, 5), (1, 4), (1, 5), (2, 5)}
    assert graph_of(TREE, VOCABULARY, "rx") is None


def test_graph_attention_is_the_weighted_sum_of_the_nodes_that_are_read() -> None:
    """In each head, the softmax of LeakyReLU(a . [W x_i ; W x_j]) over the edges to a node, written out."""
    torch.manual_seed(0)
    layer = GraphAttention(6, 2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    nodes, edges = torch.randn(4, 6), torch.tensor([[0, 0, 0, 1], [0, 2, 3, 1]])
    result = layer(nodes, edges, 2)
    mapped = (nodes @ layer.weight).view(4, 2, 3)
    for head in range(2):
        of_edges = [
            torch.nn.functional.leaky_relu(layer.scores[head] @ torch.cat([mapped[0, head], mapped[other, head]]), 0.2)
            for other in (0, 2, 3)
        ]
        weights = torch.stack(of_edges).softmax(0)
        expected = weights @ mapped[[0, 2, 3], head] + layer.bias.view(2, 3)[head]
        torch.testing.assert_close(result[0].view(2, 3)[head], expected)
    torch.testing.assert_close(result[1], mapped[1].flatten() + layer.bias)


@pytest.mark.parametrize("tree", [True, False])
@torch.no_grad()
def test_the_vector_of_a_visit_depends_on_its_codes_but_not_on_their_order_or_the_batch(tree: bool) -> None:
    network = model(tree=tree)
    visits = [np.array(ids) for ids in ([2, 6, 8, 9], [2, 9, 6, 8], [2, 6], [2, 10])]
    together = network.bert.vectors(Batch.from_rows(visits))
    torch.testing.assert_close(together[0], together[1], rtol=1e-5, atol=1e-6)
    for visit, vector in zip(visits, together, strict=True):
        torch.testing.assert_close(network.bert.vectors(Batch.from_rows([visit]))[0], vector, rtol=1e-5, atol=1e-6)
    assert (together[0] - together[2]).abs().max() > 1e-3
    assert (together[2] - together[3]).abs().max() > 1e-3


@torch.no_grad()
def test_the_kind_of_a_visit_counts_and_so_does_dropout() -> None:
    network = model()
    ids = np.array([2, 6, 8])
    first, second = (Batch.from_flat(ids, np.full(3, kind), [3]) for kind in (0, 1))
    assert (network.bert.vectors(first) - network.bert.vectors(second)).abs().max() > 1e-3
    noisy = [network.bert.vectors(first, RowNoise(1, step, [0])) for step in (0, 0, 1)]
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.equal(noisy[0], noisy[2])


def test_a_code_learns_from_its_siblings_through_the_tree() -> None:
    """The gradient of a visit with code a reaches the vector of its parent, which is part of code b too."""
    network = model()
    network.bert.vectors(Batch.from_rows([np.array([2, 6])])).square().sum().backward()
    (ontology,) = network.bert.embeddings.ontologies
    moved = ontology.nodes.grad.abs().sum(1) > 0
    assert moved.tolist() == [True, True, True, False, True, True]  # all but d, which is not in the tree


@torch.no_grad()
def test_a_recommendation_reads_the_mean_of_each_kind_of_past_visits_and_the_current_one() -> None:
    network = model()
    vectors, kinds = torch.randn(5, 8, generator=torch.manual_seed(1)), torch.tensor([0, 1, 0, 1, 0])
    history = History(past=[[[0, 2], []], [[1, 3], [1]]], current=torch.tensor([4, -1]))
    scores = network.recommendation(vectors, kinds, history)
    head = network.recommendation
    mapped = [torch.relu(head.visits[kind](vectors[row])) for row, kind in enumerate(kinds.tolist())]
    nothing = torch.zeros(8)
    for example, parts in enumerate(
        ([(mapped[0] + mapped[2]) / 2, (mapped[1] + mapped[3]) / 2, mapped[4]], [nothing, mapped[1], nothing])
    ):
        expected = head.scores(torch.relu(head.together(torch.cat(parts))))
        torch.testing.assert_close(scores[example], expected)
    assert mean_of_rows(vectors, [[], [0]]).tolist() == [[0.0] * 8, vectors[0].tolist()]


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="hidden_size divisible by graph_heads"):
        config(hidden_size=8, graph_heads=3)
