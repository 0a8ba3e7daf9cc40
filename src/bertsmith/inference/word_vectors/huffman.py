"""The Huffman tree of hierarchical softmax: the path of each word from the root.

V words, I inner nodes (V - 1), L nodes on the longest path.

Source: `CreateBinaryTree` of the original word2vec.c; Mikolov and others, "Distributed representations of words and
phrases and their compositionality" (2013), section 2.1.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
_NO_NODE = -1


class Paths(NamedTuple):
    """The inner nodes between the root and each word, and the turn that is taken at each."""

    nodes: npt.NDArray[np.int32]  # int32 [V, L], numbers of inner nodes from 0; -1 after the end of a path
    turns: npt.NDArray[np.int8]  # int8 [V, L], 0 or 1; 0 after the end


def huffman_paths(counts: Integers) -> Paths:
    """The paths in the Huffman tree of words with these counts.

    Args:
        counts: int64 [V], descending.

    >>> paths = huffman_paths(np.array([4, 2, 1, 1]))
    >>> paths.turns.tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    >>> paths.nodes.tolist()
    [[2, -1, -1], [2, 1, -1], [2, 1, 0], [2, 1, 0]]
    """
    size = len(counts)
    parents, turns = _tree(counts.tolist())
    paths: list[tuple[list[int], list[int]]] = []
    for word in range(size):
        nodes, codes, node = [], [], word
        while node != 2 * size - 2:
            codes.append(turns[node])
            node = parents[node]
            nodes.append(node - size)
        paths.append((nodes[::-1], codes[::-1]))
    longest = max((len(nodes) for nodes, _ in paths), default=0)
    all_nodes = np.full((size, longest), _NO_NODE, dtype=np.int32)
    all_turns = np.zeros((size, longest), dtype=np.int8)
    for word, (nodes, codes) in enumerate(paths):
        all_nodes[word, : len(nodes)] = nodes
        all_turns[word, : len(nodes)] = codes
    return Paths(all_nodes, all_turns)


def _tree(counts: list[int]) -> tuple[list[int], list[int]]:
    """(the parent of each node, the turn from there to it); words first, then inner nodes in the order of creation.

    Of a leaf and an inner node with equal counts the inner node is taken first, as in the original program.
    """
    size = len(counts)
    weights = counts + [0] * max(size - 1, 0)
    parents, turns = [0] * len(weights), [0] * len(weights)
    leaf, inner = size - 1, size
    for made in range(size, 2 * size - 1):
        lightest = []
        for _ in range(2):
            if leaf >= 0 and (inner >= made or weights[leaf] < weights[inner]):
                lightest.append(leaf)
                leaf -= 1
            else:
                lightest.append(inner)
                inner += 1
        first, second = lightest
        weights[made] = weights[first] + weights[second]
        parents[first] = parents[second] = made
        turns[second] = 1
    return parents, turns
