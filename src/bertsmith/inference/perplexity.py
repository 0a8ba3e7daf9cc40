"""How well a left-to-right model predicts texts: the perplexity of their pieces, words and characters.

Letters: R predicted pieces, V vocabulary.

Every piece of a text is predicted from those before it. A text longer than the model reads is read in windows that
overlap by half, and a piece counts in the first window that holds it, so that it has at least half a window before it.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsmith.encoding.engine import MASKED_LM, Engine
from bertsmith.encoding.units import Ints, Logits, RowPart, separate_rows
from bertsmith.finite import require_finite
from bertsmith.inference.completion import require_causal
from bertsmith.model.batch import cut_by_tokens
from bertsmith.text.encoded import Ids
from bertsmith.text.pack import PackedRows
from bertsmith.text.tokenizer import Tokenizer

_COST = 8  # tokens that a predicted piece counts as: its logits are as many numbers as the vocabulary has pieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity:
    """How well a model predicts one text or several.

    Attributes:
        nll: the summed negative log-likelihood of the predicted pieces, in nats.
        pieces: the predicted pieces.
        words: the words between white space.
        characters: all characters.
        unknown: those of the pieces that stand for unknown words, which any word would have been; if there are many,
            the numbers say little.
    """

    nll: float
    pieces: int
    words: int
    characters: int
    unknown: int = 0

    @property
    def perplexity(self) -> float:
        """Of a piece; it cannot be compared between vocabularies."""
        return _exp(self.nll, self.pieces)

    @property
    def word_perplexity(self) -> float:
        """Of a word; it can be compared between vocabularies."""
        return _exp(self.nll, self.words)

    @property
    def bits_per_character(self) -> float:
        """It can be compared between vocabularies and, roughly, between languages."""
        return self.nll / math.log(2) / self.characters if self.characters else math.nan

    @staticmethod
    def of_all(found: "Sequence[Perplexity]") -> "Perplexity":
        """The perplexity of several texts together."""
        names = [field.name for field in dataclasses.fields(Perplexity)]
        return Perplexity(**{name: sum(getattr(one, name) for one in found) for name in names})

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where there is nothing to predict."""
        shown = {name: getattr(self, name) for name in ("perplexity", "word_perplexity", "bits_per_character")}
        values = {name: value if math.isfinite(value) else None for name, value in shown.items()}
        return {**values, **dataclasses.asdict(self)}


def perplexities(engine: Engine, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Perplexity]:
    """The perplexity of each text; of an empty one it is not a number.

    Args:
        engine: computes a left-to-right model with a head for pieces.

    Raises:
        CheckpointError: the model does not read from left to right.
        NotFiniteError: the model computed no finite numbers for a text.
    """
    require_causal(engine)
    encoded = tokenizer.encode_batch(texts)
    ids = np.split(encoded.ids, encoded.offsets[1:-1]) if len(texts) else []
    windows = [window for number, one in enumerate(ids) for window in _windows(number, one, engine, tokenizer)]
    losses = np.zeros(len(texts))
    counts = np.zeros(len(texts), dtype=np.int64)
    for number, loss, count in _losses(engine, windows):
        losses[number] += loss
        counts[number] += count
    unknown = tokenizer.vocabulary.unk_id
    return [
        Perplexity(
            nll=float(losses[number]),
            pieces=int(counts[number]),
            words=len(text.split()),
            characters=len(text),
            unknown=int((ids[number] == unknown).sum()),
        )
        for number, text in enumerate(texts)
    ]


@dataclasses.dataclass(frozen=True)
class _Window:
    """Tokens of a text that are read together; those from position `begin` on are predicted from the ones before."""

    text: int
    tokens: Ids
    begin: int


def _windows(text: int, ids: Ids, engine: Engine, tokenizer: Tokenizer) -> list[_Window]:
    """The windows of a text that predict each piece once; the first one only after a special token."""
    start = np.array(tokenizer.template.start, dtype=np.int32)
    room, ahead = engine.max_tokens - len(start), max(1, len(start))
    found, counted, begin = list[_Window](), 0, 0
    while counted < len(ids):
        tokens = np.concatenate([start, ids[begin : begin + room]])
        first = max(ahead, len(start) + counted - begin)
        if len(tokens) > first:
            found.append(_Window(text, tokens, first))
        counted = min(len(ids), begin + room)
        begin = counted - room // 2
    return found


def _losses(engine: Engine, windows: Sequence[_Window]) -> list[tuple[int, float, int]]:
    """(text, summed loss in nats, predicted pieces) of each window."""
    if not windows:
        return []
    lengths = np.array([len(window.tokens) for window in windows], dtype=np.int64)
    counts = np.array([len(window.tokens) - window.begin for window in windows], dtype=np.int64)
    tokens = np.concatenate([window.tokens for window in windows]).astype(np.int32)
    ends = np.cumsum(lengths)
    read = np.concatenate([np.arange(end - 1 - count, end - 1) for end, count in zip(ends, counts, strict=True)])
    rows = PackedRows(tokens, np.zeros_like(tokens), lengths.astype(np.int32), np.zeros(len(windows), dtype=np.int32))
    features = separate_rows(rows, read)
    order = np.lexsort((counts, lengths))
    result: list[tuple[int, float, int]] = []
    for chosen in cut_by_tokens(order, np.maximum(lengths, _COST * counts), engine.masked_lm_tokens):
        part = RowPart(features=features, rows=chosen)
        logits = engine.compute(part, MASKED_LM)
        of_piece = np.repeat(chosen, counts[chosen])
        require_finite(logits, lambda place, texts=of_piece: windows[texts[place]].text)  # type: ignore[misc]
        losses = _negative_log_likelihoods(logits, tokens[read[part.chosen] + 1].astype(np.int64))
        edges = np.cumsum(counts[chosen]) - counts[chosen]
        sums = np.add.reduceat(losses, edges)
        result += [(windows[row].text, float(loss), int(counts[row])) for row, loss in zip(chosen, sums, strict=True)]
    return result


def _negative_log_likelihoods(logits: Logits, gold: Ints) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The loss of each gold piece in nats, float64 [R], given logits [R, V]."""
    highest = logits.max(axis=1)
    totals = np.exp(logits - highest[:, None]).sum(axis=1, dtype=np.float64)
    return np.asarray(np.log(totals) - (logits[np.arange(len(gold)), gold].astype(np.float64) - highest))


def _exp(nll: float, count: int) -> float:
    """The exponential of a mean loss; infinite where it is too large, not a number without predictions."""
    if not count:
        return math.nan
    return math.exp(nll / count) if nll / count < 700 else math.inf
