"""Beam search, with the cached keys and values of a Transformer, or the state of an LSTM.

Letters: N source texts, H hypotheses (open texts of all sources), B best continuations of each, V vocabulary.

Each step appends one piece to every hypothesis and keeps the best ones of each source. A hypothesis that the model ends
is finished. A source is done when it has as many finished hypotheses as the beam is wide, or when no open one can
become better than those that are wanted.

Sources: Vaswani et al. (2017), section 6.1; Wu et al. (2016), "Google's Neural Machine Translation System", section 7,
for the length penalty; Paulus et al. (2018), "A Deep Reinforced Model for Abstractive Summarization", section 2.5, for
runs of pieces that do not repeat.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from bertsmith.models.parts.batch import Batch, cut_by_tokens
from bertsmith.tasks.encoding.writing import Finished, Guide, Writing
from bertsmith.text.tokenizers.encoded import Ids

if TYPE_CHECKING:
    from bertsmith.models.parts.memory import Memory
    from bertsmith.models.parts.source import SourceStates

_TOKENS = 4096  # of the sources of all hypotheses that are computed together
_TARGET_SHARE = 4  # the pieces that they may write count as a quarter: their keys and values are kept as well

Continuation = tuple[int, int, float]
"""A hypothesis, its next piece, the log probability of both together."""


class Writer(Protocol):
    """What writes texts: an encoder-decoder, or an encoder with a decoder as its head."""

    def encode(self, batch: Batch, *, dtype: torch.dtype | None = None) -> "SourceStates":
        """The states of source texts."""

    def decode(
        self,
        batch: Batch,
        source: "SourceStates",
        *,
        dtype: torch.dtype | None = None,
        memory: "Memory | None" = None,
    ) -> Tensor:
        """The logits [T, V] of the piece that follows each token of the batch."""


def write_texts(
    model: Writer,
    rows: Sequence[Ids],
    limits: Sequence[int],
    writing: Writing,
    *,
    guides: Sequence[Guide] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> list[list[Finished]]:
    """The best finished texts for each source row, which has its special tokens; the best one comes first.

    Args:
        limits: the most pieces of the text for each row.
        guides: what may be written for each row; they alone decide, in place of `writing`'s minimum length, its
            repeated runs and its ids that are not written.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    weights = np.maximum(lengths, np.array(limits, dtype=np.int64) // _TARGET_SHARE) * writing.beam
    results: dict[int, list[Finished]] = {}
    for part in cut_by_tokens(order, weights, _TOKENS) if len(order) else ():
        chosen = part.tolist()
        source = Batch.from_rows([rows[number] for number in chosen], device=device)
        guided = None if guides is None else [guides[number] for number in chosen]
        texts = _search(model, source, [limits[number] for number in chosen], writing, dtype, guided)
        results |= zip(chosen, texts, strict=True)
    return [results[number] for number in range(len(rows))]


@torch.no_grad()
def _search(
    model: Writer,
    batch: Batch,
    limits: Sequence[int],
    writing: Writing,
    dtype: torch.dtype | None,
    guides: Sequence[Guide] | None,
) -> list[list[Finished]]:
    """The finished texts of the sources of one batch."""
    from bertsmith.models.parts.memory import Memory

    source, device = model.encode(batch, dtype=dtype), batch.token_ids.device
    # One entry for each hypothesis: its source, what was written, the log probability.
    owners, scores = list(range(batch.num_rows)), [0.0] * batch.num_rows
    written: list[tuple[int, ...]] = [()] * batch.num_rows
    last, memory = [writing.start] * batch.num_rows, Memory()
    finished: list[list[Finished]] = [[] for _ in limits]
    while owners:
        last_pieces = Batch.from_rows([np.array([id]) for id in last], device=device)
        logits = model.decode(last_pieces, source, dtype=dtype, memory=memory)
        allowed = None
        if guides is not None:
            places = zip(guides, owners, written, strict=True)
            allowed = [guide.allowed(limits[owner] - len(before)) for guide, owner, before in places]
        best = _best(logits, written, scores, writing, allowed)
        extended: list[Continuation] = []
        for owner in dict.fromkeys(owners):
            of_text = [number for number, other in enumerate(owners) if other == owner]
            ranked = sorted((entry for number in of_text for entry in best[number]), key=lambda entry: -entry[2])
            length = len(written[of_text[0]]) + 1
            if any(np.isnan(total) for *_, total in ranked):
                finished[owner] = [Finished((), float("nan"), has_ended=False)]
                continue
            hypotheses = _extended(ranked, written, finished[owner], writing)
            if length >= limits[owner]:
                finished[owner] += [
                    Finished((*written[row], id), total / writing.penalty(length), has_ended=False)
                    for row, id, total in hypotheses
                ]
            elif not _is_done(finished[owner], hypotheses, limits[owner], writing):
                extended += hypotheses
        parents = [number for number, _, _ in extended]
        before, owners = owners, [owners[number] for number in parents]
        if parents and parents != list(range(len(before))):
            memory = memory.of_rows(parents)
            if owners != before:  # hypotheses of one text have the same source
                source = source.of_rows(parents)
        if guides is not None:
            guides = [guides[number].after(id) for number, id, _ in extended]
        written, last = [(*written[number], id) for number, id, _ in extended], [id for _, id, _ in extended]
        scores = [total for *_, total in extended]
        if written and writing.on_pieces is not None:
            writing.on_pieces(written[0])
    ranking = [sorted(texts, key=lambda text: (text.has_ended, text.score), reverse=True) for texts in finished]
    return [texts[: writing.answers] or [Finished((), 0.0, has_ended=False)] for texts in ranking]


def _best(
    logits: Tensor,
    written: Sequence[tuple[int, ...]],
    scores: Sequence[float],
    writing: Writing,
    allowed: Sequence[Collection[int]] | None,
) -> list[list[Continuation]]:
    """The best B continuations of each hypothesis."""
    log_probabilities = logits.double().log_softmax(dim=1)[:, : writing.pieces]  # [H, V]
    if allowed is not None:
        rows = np.repeat(np.arange(len(allowed)), [len(ids) for ids in allowed])
        index = tuple(
            torch.from_numpy(part).to(logits.device) for part in (rows, np.array([id for ids in allowed for id in ids]))
        )
        limited = torch.full_like(log_probabilities, -torch.inf)
        limited[index] = log_probabilities[index]
        return _continuations(limited, scores, writing)
    log_probabilities[:, list(writing.never)] = -torch.inf
    for row, before in enumerate(written):
        if banned := writing.banned(before):
            log_probabilities[row, sorted(banned)] = -torch.inf
    if len(written[0]) < writing.shortest:  # all have the same length
        log_probabilities[:, writing.end] = -torch.inf
    return _continuations(log_probabilities, scores, writing)


def _continuations(log_probabilities: Tensor, scores: Sequence[float], writing: Writing) -> list[list[Continuation]]:
    """The B most likely continuations of each hypothesis."""
    totals, ids = log_probabilities.topk(min(2 * writing.beam, log_probabilities.shape[1]), dim=1)  # [H, B]
    totals = totals + torch.tensor(scores, dtype=torch.float64, device=totals.device).unsqueeze(1)
    rows = zip(ids.tolist(), totals.tolist(), strict=True)
    return [[(row, id, total) for id, total in zip(*pair, strict=True)] for row, pair in enumerate(rows)]


def _extended(
    ranked: Sequence[Continuation], written: Sequence[tuple[int, ...]], finished: list[Finished], writing: Writing
) -> list[Continuation]:
    """The best open continuations of one text's hypotheses; those among the best that end are added to `finished`.

    Args:
        ranked: its continuations, the best one first.
    """
    result: list[Continuation] = []
    for rank, (row, id, total) in enumerate(ranked[: 2 * writing.beam]):
        if total == -np.inf or len(result) == writing.beam:
            break
        if id != writing.end:
            result.append((row, id, total))
        elif rank < writing.beam:
            finished.append(Finished(written[row], total / writing.penalty(len(written[row]) + 1), has_ended=True))
    return result


def _is_done(finished: Sequence[Finished], hypotheses: Sequence[Continuation], limit: int, writing: Writing) -> bool:
    """Whether the search for a text is complete."""
    if len(finished) >= writing.beam or not hypotheses:
        return True
    # A log probability only falls, and the penalty is largest for the longest text.
    best = max(total for *_, total in hypotheses) / writing.penalty(limit)
    return sum(text.score >= best for text in finished) >= writing.answers
