"""Losses between the states of a student and those of its teacher, one value for each row of a flat batch.

Letters: T tokens, N rows, D width of the student, E width of the teacher, A heads, s tokens of a row.

Each is a mean over the tokens of a row (of attention, over its pairs of tokens and its heads), so that a row counts the
same whatever its length. The released code of TinyBERT takes the mean over a padded batch instead.

Source: Jiao et al. (2020), "TinyBERT: Distilling BERT for Natural Language Understanding", section 3.1; Sanh et al.
(2019), "DistilBERT, a distilled version of BERT", section 2.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.parts.runs import Run

Pairs = Sequence[tuple[int, int]]


def layer_map(student: int, teacher: int) -> tuple[tuple[int, int], ...]:
    """For each hidden state of the student, from 0, the one of the teacher that it learns from.

    Source: Jiao et al. (2020), "TinyBERT", section 3.1: the uniform map g(m) = m N / M.

    >>> layer_map(3, 6)
    ((0, 0), (1, 2), (2, 4), (3, 6))
    """
    if student > teacher or teacher % student:
        fix = "choose another --layers, or leave the losses of states and attention out"
        raise ConfigError.must_be(
            "layers of the student", f"a number that divides the {teacher} of its teacher", student, fix
        )
    return tuple((layer, layer * teacher // student) for layer in range(student + 1))


def mean_of_rows(values: Tensor, lengths: Sequence[int]) -> Tensor:
    """The mean of the values [T] of the tokens of each row, [N]."""
    counts = torch.tensor(tuple(lengths), device=values.device)
    rows = torch.repeat_interleave(torch.arange(len(counts), device=values.device), counts)
    return values.new_zeros(len(counts)).index_add(0, rows, values) / counts


def state_loss(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    pairs: Pairs,
    lengths: Sequence[int],
    projection: nn.Linear | None,
) -> Tensor:
    """The mean squared error of hidden states, summed over the layers, [N].

    The embeddings are state 0. As in the released code, one projection serves all layers.

    Args:
        student: its hidden states, [T, D] each.
        teacher: those of the teacher, [T, E] each.
        pairs: the numbers of the states that are compared, see `layer_map`.
        lengths: tokens of each row.
        projection: from D to E; None where the widths are equal.
    """
    total = torch.zeros(len(lengths), device=student[0].device)
    for mine, theirs in pairs:
        state = student[mine] if projection is None else projection(student[mine])
        total = total + mean_of_rows((state.float() - teacher[theirs].float()).square().mean(-1), lengths)
    return total


def attention_loss(
    student: Sequence[tuple[Tensor, Tensor]],
    teacher: Sequence[tuple[Tensor, Tensor]],
    pairs: Pairs,
    runs: Sequence[Run],
    heads: int,
) -> Tensor:
    """The mean squared error of attention scores before the softmax, summed over the layers, [N].

    Args:
        student: queries and keys of each layer, [T, D] each.
        teacher: those of the teacher, [T, E] each, with as many heads.
        pairs: as in `state_loss`; that of the embeddings is left out.
        runs: how the flat rows are split into sequences.
        heads: A.
    """
    parts = []
    for run in runs:
        total = torch.zeros(run.rows, device=student[0][0].device)
        for mine, theirs in pairs:
            if mine:
                error = _scores(*student[mine - 1], run, heads) - _scores(*teacher[theirs - 1], run, heads)
                total = total + error.square().mean((1, 2, 3))
        parts.append(total)
    return torch.cat(parts)


def cosine_loss(student: Tensor, teacher: Tensor, lengths: Sequence[int]) -> Tensor:
    """One minus the cosine between hidden states of one width [T, D], the mean over the tokens of each row, [N]."""
    return mean_of_rows(1 - F.cosine_similarity(student.float(), teacher.float(), dim=-1), lengths)


def _scores(query: Tensor, key: Tensor, run: Run, heads: int) -> Tensor:
    """The scaled products [n, A, s, s] of queries and keys [T, D], in fp32."""
    begin, end = run.token, run.token + run.rows * run.length
    q, k = (
        part[begin:end].float().view(run.rows, run.length, heads, -1).transpose(1, 2) for part in (query, key)
    )  # [n, A, s, d]
    return torch.matmul(q / math.sqrt(q.shape[-1]), k.transpose(-1, -2))
