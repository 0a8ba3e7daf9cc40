"""The updates of Word2Vec and GloVe one example after the other, as in the original programs, for Numba to compile.

One thing differs: the gradients of an example are computed before its outputs learn, which matters only for a noise
word that is drawn twice for it.

The functions are plain Python on arrays: `compiled` returns them as machine code, and tests also run them as they are.
A function takes all of its arrays as arguments, writes into the tables, and holds no lock, so that threads may share
them. Sums are vectorized, which changes the order of additions and nothing else; NaN is kept.

V words, D width, T words of a chunk that stay, E entries, L nodes on the longest path.

Source: `TrainModelThread` of word2vec.c; `glove_thread` of glove.c.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import FIRST_FACTOR, GOLDEN, SECOND_FACTOR
from bertsmith.inference.word_vectors.draws import Ids
from bertsmith.inference.word_vectors.updates import LIMIT, STEPS, Floats

INSTALL = "pip install 'bertsmith[words]'"
_LIMIT = np.float32(LIMIT)
_PER_SCORE = np.float32(STEPS / LIMIT / 2)  # steps of the tables
_LAST = STEPS - 1
_ONE, _ZERO = np.float32(1), np.float32(0)
_LOW = np.uint64(0xFFFFFFFF)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
# Additions may be reordered and joined with products. Not among them: `nnan` and `ninf`, since NaN has to be noticed.
_ARITHMETIC = {"reassoc", "contract", "nsz", "arcp"}

SOFTPLUS: Floats = np.logaddexp(0, (np.arange(STEPS + 2) / STEPS * 2 - 1) * LIMIT).astype(np.float32)
"""float32 [STEPS + 2], log(1 + exp(x)) from -LIMIT to LIMIT, read with linear interpolation (error below 5e-6)."""


def has_compiler() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of this module as machine code; compiled by its first call, and kept on disk by Numba."""
    import numba

    options: dict[str, Any] = {"nogil": True, "fastmath": _ARITHMETIC, "error_model": "numpy"}
    try:
        machine_code: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep it in
        machine_code = numba.njit(**options)(function)
    return machine_code


def train_words(
    inputs: Floats,
    outputs: Floats,
    nodes: Floats,
    centers: Ids,
    left: Ids,
    right: Ids,
    first_rate: float,
    last_rate: float,
    lowest_rate: float,
    joins_contexts: bool,
    negatives: int,
    limits: npt.NDArray[np.uint32],
    others: Ids,
    state: np.uint64,
    path_nodes: Ids,
    path_turns: npt.NDArray[np.int8],
    sigmoid: Floats,
    softplus: Floats,
) -> tuple[float, int]:
    """(the sum of the losses, their number) of the words of a chunk, learned one after the other, in place.

    Args:
        inputs, outputs, nodes: float32 tables [V, D], [V, D] and [V - 1, D]; `outputs` is not used without negatives,
            nor `nodes` without a tree.
        centers, left, right: int32 [T], see `Reaches`.
        first_rate, last_rate, lowest_rate: the learning rate falls evenly from the first word to after the last one,
            but not below the lowest.
        joins_contexts: the mean of a window predicts the word (CBOW); otherwise each of its words does (skip-gram).
        limits, others, state: the table of noise words, see `NoiseWords`, and the state of their draws.
        path_nodes, path_turns: [V, L], see `Paths`; L is 0 without a tree.
    """
    size, longest = np.uint64(len(limits)), path_nodes.shape[1]
    width = inputs.shape[1]
    hidden, gradient = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    targets = np.empty(longest + negatives + 1, dtype=np.int32)
    labels = np.empty(longest + negatives + 1, dtype=np.float32)
    scores = np.empty(longest + negatives + 1, dtype=np.float32)
    times = np.empty(longest + negatives + 1, dtype=np.float32)
    loss, count = 0.0, 0
    for position in range(len(centers)):
        center = centers[position]
        rate = np.float32(max(first_rate + (last_rate - first_rate) * (position / len(centers)), lowest_rate))
        in_path = 0
        while in_path < longest and path_nodes[center, in_path] >= 0:
            targets[in_path] = path_nodes[center, in_path]
            labels[in_path] = _ONE - np.float32(path_turns[center, in_path])
            times[in_path] = _ONE
            in_path += 1
        first, end = position - left[position], position + right[position]
        while first <= end:
            last = end if joins_contexts else first
            if first == last == position:  # a word does not predict itself
                first += 1
                continue
            used = in_path
            if negatives:
                targets[used], labels[used], times[used] = center, _ONE, _ONE
                used += 1
                for _ in range(negatives):
                    state += GOLDEN
                    word = (state ^ (state >> _30)) * FIRST_FACTOR
                    word = (word ^ (word >> _27)) * SECOND_FACTOR
                    word ^= word >> _31
                    target = np.int32(((word >> _32) * size) >> _32)
                    if (word & _LOW) >= np.uint64(limits[target]):
                        target = others[target]
                    if target == center:
                        continue
                    same = in_path + 1
                    while same < used and targets[same] != target:
                        same += 1
                    if same < used:
                        times[same] += _ONE
                    else:
                        targets[used], labels[used], times[used] = target, _ZERO, _ONE
                        used += 1
            share = np.float32(1.0 / (last - first + (0 if first <= position <= last else 1)))
            for column in range(width):
                hidden[column] = _ZERO
                gradient[column] = _ZERO
            for around in range(first, last + 1):
                if around != position:
                    row = inputs[centers[around]]
                    for column in range(width):
                        hidden[column] += share * row[column]
            # All scores first: the processor then waits for the rows of all outputs at once.
            for slot in range(used):
                vector = nodes[targets[slot]] if slot < in_path else outputs[targets[slot]]
                score = _ZERO
                for column in range(width):
                    score += vector[column] * hidden[column]
                scores[slot] = score
            for slot in range(used):
                score, label = scores[slot], labels[slot]
                count += int(times[slot])
                wrong = -score if label > _ZERO else score
                if -_LIMIT < score < _LIMIT:
                    point = (wrong + _LIMIT) * _PER_SCORE
                    step = int(point)
                    below = softplus[step]
                    loss += times[slot] * (below + (softplus[step + 1] - below) * (point - np.float32(step)))
                    likely = sigmoid[min(int((score + _LIMIT) * _PER_SCORE), _LAST)]
                else:
                    loss += times[slot] * (max(wrong, _ZERO) + np.log1p(np.exp(-abs(wrong))))
                    if slot < in_path:
                        continue
                    likely = _ONE if score > _ZERO else _ZERO
                by = (label - likely) * rate * times[slot]
                vector = nodes[targets[slot]] if slot < in_path else outputs[targets[slot]]
                for column in range(width):
                    before = vector[column]
                    gradient[column] += by * before
                    vector[column] = before + by * hidden[column]
            for around in range(first, last + 1):
                if around != position:
                    row = inputs[centers[around]]
                    for column in range(width):
                        row[column] += gradient[column]
            first = last + 1
    return loss, count


def train_entries(
    words: Floats,
    contexts: Floats,
    word_squares: Floats,
    context_squares: Floats,
    rows: Ids,
    columns: Ids,
    logarithms: Floats,
    weights: Floats,
    learning_rate: np.float32,
    largest: np.float32,
) -> float:
    """The sum of the costs of entries of the table of counts (GloVe), learned one after the other, in place.

    Args:
        words, contexts, word_squares, context_squares: float32 [V, D + 1], see `GloVe`.
        rows, columns: int32 [E], the word and the context of each entry.
        logarithms, weights: float32 [E], of their counts.
        largest: limit of a component of a gradient.
    """
    width = words.shape[1] - 1
    cost = 0.0
    for position in range(len(rows)):
        word, context = words[rows[position]], contexts[columns[position]]
        of_word, of_context = word_squares[rows[position]], context_squares[columns[position]]
        error = word[width] + context[width] - logarithms[position]
        for column in range(width):
            error += word[column] * context[column]
        weighted = weights[position] * error
        cost += 0.5 * weighted * error
        for column in range(width + 1):
            before = word[column] if column < width else _ONE  # the derivative of a bias
            other = context[column] if column < width else _ONE
            to_word = learning_rate * min(max(weighted * other, -largest), largest)
            to_context = learning_rate * min(max(weighted * before, -largest), largest)
            word[column] -= to_word / np.sqrt(of_word[column])
            context[column] -= to_context / np.sqrt(of_context[column])
            of_word[column] += to_word * to_word
            of_context[column] += to_context * to_context
    return cost
