"""The losses of distillation as the papers write them: one row, one token, one pair of tokens at a time, in fp64."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def softened(logits: Floats, temperature: float) -> Floats:
    """The distribution of logits [C] at a temperature."""
    exact = np.exp(logits / temperature - (logits / temperature).max())
    return exact / exact.sum()


def soft_targets(student: Floats, teacher: Floats, temperature: float) -> float:
    """T^2 times the divergence of one decision, in nats."""
    mine, theirs = softened(student, temperature), softened(teacher, temperature)
    return temperature**2 * sum(q * math.log(q / p) for p, q in zip(mine, theirs, strict=True) if q > 0)


def yes_or_no(student: float, teacher: float, temperature: float) -> float:
    """T^2 times the divergence of one yes or no."""
    return soft_targets(np.array([student, 0.0]), np.array([teacher, 0.0]), temperature)


def states_of_row(
    student: Sequence[Floats], teacher: Sequence[Floats], pairs: Sequence[tuple[int, int]], weight: Floats, bias: Floats
) -> float:
    """The squared errors of one row, mean over tokens and width, summed over the pairs of states.

    Args:
        student: states of its tokens, [s, D] each.
        teacher: [s, E] each.
        weight: of the projection, [E, D].
        bias: [E].
    """
    total = 0.0
    for mine, theirs in pairs:
        errors = [
            (float(weight[column] @ token + bias[column]) - float(wanted[column])) ** 2
            for token, wanted in zip(student[mine], teacher[theirs], strict=True)
            for column in range(len(bias))
        ]
        total += sum(errors) / len(errors)
    return total


def attention_of_row(
    student: Sequence[tuple[Floats, Floats]],
    teacher: Sequence[tuple[Floats, Floats]],
    pairs: Sequence[tuple[int, int]],
    heads: int,
) -> float:
    """The squared errors of the scores of one row before the softmax, mean over heads and pairs of tokens.

    Args:
        student: queries and keys of each layer, [s, D] each.
    """
    total = 0.0
    for mine, theirs in pairs:
        if mine == 0:
            continue
        errors = []
        for head in range(heads):
            length = len(student[0][0])
            for asking in range(length):
                for asked in range(length):
                    scores = []
                    for query, key in (student[mine - 1], teacher[theirs - 1]):
                        width = query.shape[1] // heads
                        part = slice(head * width, (head + 1) * width)
                        scores.append(float(query[asking, part] @ key[asked, part]) / math.sqrt(width))
                    errors.append((scores[0] - scores[1]) ** 2)
        total += sum(errors) / len(errors)
    return total


def cosine_of_row(student: Floats, teacher: Floats) -> float:
    """One minus the cosine, mean over the tokens of a row."""
    result = [1 - float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for a, b in zip(student, teacher, strict=True)]
    return sum(result) / len(result)
