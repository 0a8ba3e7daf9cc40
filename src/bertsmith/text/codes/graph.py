"""The tree over the codes of a kind as edges between numbered nodes, for attention along them.

The codes come first, in the order of their ids; a code that is not in the tree is a node without edges. Then come
their ancestors. Letters: C codes, G nodes, E edges.

Source: Shang et al. (2019), "Pre-training of Graph Augmented Transformers for Medication Recommendation", section 4.1;
`build_stage_one_edges` and `build_stage_two_edges` in the released build_tree.py.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.visits import CodeKey
from bertsmith.text.codes.vocabulary import CodeVocabulary

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class CodeGraph:
    """The nodes and edges of the codes of a kind; every node also has an edge from itself.

    Attributes:
        ids: int64 [C], the ids of the codes in the vocabulary, ascending.
        nodes: G, their number, codes included.
        up: int64 [2, E], to each node that has children from itself and from them.
        down: int64 [2, E], to each code from itself and from each of its ancestors.
    """

    ids: Ints
    nodes: int
    up: Ints
    down: Ints


def graph_of(tree: CodeTree, vocabulary: CodeVocabulary, kind: str) -> CodeGraph | None:
    """The graph of the codes of a kind; None if none of them is in the tree."""
    ids = vocabulary.ids_of_kind(kind)
    codes = [vocabulary.code(id).key for id in ids.tolist()]
    if all(tree.node(code) is None for code in codes):
        return None
    numbers: dict[CodeKey, int] = {}
    for number, code in enumerate(codes):
        numbers[tree.node(code) or code] = number
    above = [tree.ancestors(code) for code in codes]
    for node in sorted({node for ancestors in above for node in ancestors} - numbers.keys()):
        numbers[node] = len(numbers)
    up = {(number, number) for number in range(len(numbers))}
    down = {(number, number) for number in range(len(codes))}
    for node, number in numbers.items():
        parent = tree.parents.get(node)
        if parent is not None:
            up.add((numbers[parent], number))
    for number, ancestors in enumerate(above):
        down.update((number, numbers[node]) for node in ancestors)
    return CodeGraph(ids, len(numbers), _edges(up), _edges(down))


def graphs_of(tree: CodeTree, vocabulary: CodeVocabulary, kinds: Sequence[str]) -> list[CodeGraph]:
    """The graphs of those kinds whose codes are in the tree."""
    return [graph for kind in kinds if (graph := graph_of(tree, vocabulary, kind)) is not None]


def _edges(pairs: set[tuple[int, int]]) -> Ints:
    return np.array(sorted(pairs), dtype=np.int64).T
