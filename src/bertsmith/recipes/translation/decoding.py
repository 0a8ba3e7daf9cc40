"""Beam search, with the cached keys and values of a Transformer, or the state of an LSTM.

Letters: N source texts, H hypotheses (open translations of all texts), V vocabulary.

Each step appends one piece to every hypothesis and keeps the best ones of each text. A hypothesis that the model ends
is finished. A text is done when it has as many finished hypotheses as the beam is wide, or when no open one can become
better than these.

Sources: Vaswani et al. (2017), section 6.1; Wu et al. (2016), "Google's Neural Machine Translation System", section 7,
for the length penalty.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertsmith.base.core.errors import InputError
from bertsmith.models.parts.batch import Batch, cut_by_tokens
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.models.parts.memory import Memory
from bertsmith.recipes.translation.pairs import rows_of
from bertsmith.recipes.translation.settings import SearchSettings
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.tokenizer import Tokenizer

_TOKENS = 4096  # of the sources of all hypotheses that are computed together


@dataclasses.dataclass(frozen=True)
class Translation:
    """A text in the other language.

    Attributes:
        text: the translation.
        score: its log probability in nats, divided by the length penalty.
        has_ended: whether the model ended it; otherwise it has the maximum length.
    """

    text: str
    score: float
    has_ended: bool


@dataclasses.dataclass(frozen=True)
class Finished:
    """A finished translation as ids, without special pieces; the fields are those of `Translation`."""

    ids: tuple[int, ...]
    score: float
    has_ended: bool


def translate(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: SearchSettings,
    *,
    places: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
) -> list[Translation]:
    """The best translation of each text that the search finds; a text without words has an empty one.

    Args:
        places: the names of the texts in errors.
    """
    names = places or [f"text {number}" for number in range(1, len(texts) + 1)]
    rows = rows_of(texts, tokenizer)
    most, special = model.config.max_tokens, len(tokenizer.template.start) + len(tokenizer.template.end)
    for row, name in zip(rows, names, strict=True):
        if len(row) > most:
            raise InputError(
                expected=f"at most {most} tokens in {name}", found=str(len(row)), fix="split it into several lines"
            )
    translations = {number: Translation("", 0.0, True) for number, row in enumerate(rows) if len(row) == special}
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    order = np.array([number for number in np.argsort(lengths, kind="stable").tolist() if number not in translations])
    parts = cut_by_tokens(order.astype(np.int64), lengths * settings.beam, _TOKENS) if len(order) else []
    for part in parts:
        chosen = search(model, tokenizer, [rows[number] for number in part.tolist()], settings, dtype=dtype)
        for number, hypothesis in zip(part.tolist(), chosen, strict=True):
            translations[number] = Translation(tokenizer.decode(hypothesis.ids), hypothesis.score, hypothesis.has_ended)
    return [translations[number] for number in range(len(texts))]


@torch.no_grad()
def search(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    rows: Sequence[Ids],
    settings: SearchSettings,
    *,
    dtype: torch.dtype | None = None,
) -> list[Finished]:
    """The best finished translation of each source row, which has its special tokens."""
    device = model.embeddings.word.weight.device
    vocabulary, template = tokenizer.vocabulary, tokenizer.template
    end = template.end[0]
    never = sorted(vocabulary.special_ids - {end})
    source = model.encode(Batch.from_rows(rows, device=device), dtype=dtype)
    limits = [min(len(row) + settings.longer, model.config.max_tokens - 1) for row in rows]
    # One entry for each hypothesis: its text, what was written, the log probability.
    owners, scores = list(range(len(rows))), [0.0] * len(rows)
    written: list[tuple[int, ...]] = [()] * len(rows)
    last, memory = [template.start[0]] * len(rows), Memory()
    finished: list[list[Finished]] = [[] for _ in rows]
    while owners:
        last_pieces = Batch.from_rows([np.array([id]) for id in last], device=device)
        logits = model.decode(last_pieces, source, dtype=dtype, memory=memory)
        log_probabilities = logits.double().log_softmax(dim=1)[:, : len(vocabulary)]
        log_probabilities[:, never] = -torch.inf
        totals = log_probabilities.cpu() + torch.tensor(scores, dtype=torch.float64).unsqueeze(1)  # [H, V]
        extended: list[tuple[int, int, float]] = []  # the hypothesis, its next piece, the new log probability
        for owner in dict.fromkeys(owners):
            of_text = [number for number, other in enumerate(owners) if other == owner]
            hypotheses = _extended(
                totals[of_text], [written[number] for number in of_text], end, finished[owner], settings
            )
            length = len(written[of_text[0]]) + 1
            if length >= limits[owner]:
                finished[owner] += [
                    Finished((*written[of_text[row]], id), total / penalty(length, settings), False)
                    for row, id, total in hypotheses
                ]
            elif not _is_done(finished[owner], hypotheses, limits[owner], settings):
                extended += [(of_text[row], id, total) for row, id, total in hypotheses]
        parents = [number for number, _, _ in extended]
        if parents != list(range(len(owners))) and parents:
            memory, source = memory.of_rows(parents), source.of_rows(parents)
        written = [(*written[number], id) for number, id, _ in extended]
        owners, last, scores = (
            [owners[number] for number in parents],
            [id for _, id, _ in extended],
            [s for *_, s in extended],
        )
    return [max(hypotheses, key=lambda hypothesis: (hypothesis.has_ended, hypothesis.score)) for hypotheses in finished]


def _extended(
    totals: Tensor, written: Sequence[tuple[int, ...]], end: int, finished: list[Finished], settings: SearchSettings
) -> list[tuple[int, int, float]]:
    """The best open continuations of one text's hypotheses: (hypothesis, piece, log probability).

    Those among the best that end are added to `finished`.

    Args:
        totals: the log probability of each continuation, [hypotheses, V].
    """
    width = totals.shape[1]
    best = totals.flatten().topk(min(2 * settings.beam, totals.numel()))
    result: list[tuple[int, int, float]] = []
    for rank, (total, index) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        row, id = divmod(index, width)
        if total == -np.inf or len(result) == settings.beam:
            break
        if id != end:
            result.append((row, id, total))
        elif rank < settings.beam:
            finished.append(Finished(written[row], total / penalty(len(written[row]) + 1, settings), True))
    return result


def _is_done(
    finished: Sequence[Finished], hypotheses: Sequence[tuple[int, int, float]], limit: int, settings: SearchSettings
) -> bool:
    """Whether the search for a text is complete."""
    if len(finished) >= settings.beam or not hypotheses:
        return True
    # A log probability only falls, and the penalty is largest for the longest translation.
    best = max(total for *_, total in hypotheses) / penalty(limit, settings)
    return any(hypothesis.score >= best for hypothesis in finished)


def penalty(pieces: int, settings: SearchSettings) -> float:
    """The divisor of the log probability of a translation of `pieces` pieces, the end included."""
    return math.pow((5 + pieces) / 6, settings.length_penalty)
