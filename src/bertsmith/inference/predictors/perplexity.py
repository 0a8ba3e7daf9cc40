"""How well a language model predicts texts: the perplexity of their pieces, words and characters.

Letters: R predicted pieces, V vocabulary.

Every piece of a text is predicted from those before it, or, backward, from those after it; a model of two directions
does both. A text longer than the model reads is read in windows that overlap by half, and a piece counts in the first
window that holds it (backward: from the end), so that it has at least half a window before it.

Source: Peters et al. (2018), section 3.1, for the backward model.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.finite import require_finite
from bertsmith.models.parts.batch import cut_by_tokens
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.engine import BACKWARD_LM, MASKED_LM, PREVIOUS, Engine
from bertsmith.tasks.encoding.units import Ints, Logits, RowPart, separate_rows
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

_COST = 8  # tokens that a predicted piece counts as: its logits are as many numbers as the vocabulary has pieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity:
    """How well a model predicts one text or several.

    Attributes:
        nll: the summed negative log-likelihood of the predicted pieces, in nats.
        pieces: the predicted pieces.
        words: the words between white space.
        unknown: those of the pieces that stand for unknown words, which any word would have been; if there are many,
            the numbers say little.
        direction: "forward" if pieces are predicted from those before them, "backward" if from those after them.
        backward: of a forward result, that of the backward direction of the same model; None if it has one direction.
    """

    nll: float
    pieces: int
    words: int
    characters: int
    unknown: int = 0
    direction: str = "forward"
    backward: "Perplexity | None" = None

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
    def of_all(of_texts: "Sequence[Perplexity]") -> "Perplexity":
        """The perplexity of several texts together."""
        backward = [text.backward for text in of_texts if text.backward is not None]
        return Perplexity(
            **{name: sum(getattr(text, name) for text in of_texts) for name in _SUMMED},
            direction=of_texts[0].direction if of_texts else "forward",
            backward=Perplexity.of_all(backward) if backward else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where there is nothing to predict."""
        shown = {name: getattr(self, name) for name in ("perplexity", "word_perplexity", "bits_per_character")}
        values = {name: value if math.isfinite(value) else None for name, value in shown.items()}
        backward = None if self.backward is None else self.backward.to_dict()
        return {**values, **dataclasses.asdict(self), "backward": backward}


_SUMMED = ("nll", "pieces", "words", "characters", "unknown")


def require_directions(engine: Engine) -> None:
    """Checks that the model predicts every piece from those on one side of it."""
    if not engine.directions:
        raise CheckpointError(
            expected="a model that predicts the next piece, or the one before",
            found="a bidirectional one, which sees it",
            fix="name a language model, such as one of `bertsmith pretrain --architecture openai-gpt`",
        )


def perplexities(engine: Engine, tokenizer: Tokenizer, texts: Sequence[TextExample]) -> list[Perplexity]:
    """The perplexity of each text; of an empty one it is not a number.

    Args:
        engine: computes a language model with a head for pieces.

    Raises:
        CheckpointError: the model does not predict pieces from one side.
        NotFiniteError: the model computed no finite numbers for a text.
    """
    require_directions(engine)
    ids = list(encoded_texts(texts, tokenizer))
    first, *others = (_in_direction(engine, tokenizer, texts, ids, which) for which in engine.directions)
    for other in others:
        first = [dataclasses.replace(ahead, backward=back) for ahead, back in zip(first, other, strict=True)]
    return first


def _in_direction(
    engine: Engine, tokenizer: Tokenizer, texts: Sequence[TextExample], ids: Sequence[Ids], direction: str
) -> list[Perplexity]:
    """The perplexity of each text in one direction.

    Args:
        ids: the pieces of each text.
        direction: `NEXT` or `PREVIOUS`.
    """
    backward = direction == PREVIOUS
    windows = [
        window
        for number, pieces in enumerate(ids)
        for window in _windows(number, pieces, engine, tokenizer, backward=backward)
    ]
    losses = np.zeros(len(texts))
    counts = np.zeros(len(texts), dtype=np.int64)
    head = MASKED_LM if direction == engine.predicts else BACKWARD_LM
    for number, loss, count in _losses(engine, windows, head, backward=backward):
        losses[number] += loss
        counts[number] += count
    unknown = tokenizer.vocabulary.unk_id
    return [
        Perplexity(
            nll=float(losses[number]),
            pieces=int(counts[number]),
            words=len(text.first.split()),
            characters=len(text.first),
            unknown=int((ids[number] == unknown).sum()),
            direction="backward" if backward else "forward",
        )
        for number, text in enumerate(texts)
    ]


@dataclasses.dataclass(frozen=True)
class _Window:
    """Tokens of a text that are read together.

    Attributes:
        text: its number.
        tokens: int32 [T], in their order in the text.
        begin: how many of them, the first or, backward, the last ones, are not predicted but only read.
    """

    text: int
    tokens: Ids
    begin: int


def _windows(text: int, ids: Ids, engine: Engine, tokenizer: Tokenizer, *, backward: bool) -> list[_Window]:
    """The windows of a text that predict each piece once, the first one (backward: the last) from a special one."""
    if backward:  # the same windows of the reversed text
        ids = ids[::-1]
    template = tokenizer.template
    start = np.array(template.end[::-1] if backward else template.start, dtype=np.int32)
    room, ahead = engine.max_tokens - len(start), max(1, len(start))
    windows, counted, begin = list[_Window](), 0, 0
    while counted < len(ids):
        tokens = np.concatenate([start, ids[begin : begin + room]])
        first = max(ahead, len(start) + counted - begin)
        if len(tokens) > first:
            windows.append(_Window(text, tokens[::-1] if backward else tokens, first))
        counted = min(len(ids), begin + room)
        begin = counted - room // 2
    return windows


def _losses(engine: Engine, windows: Sequence[_Window], head: str, *, backward: bool) -> list[tuple[int, float, int]]:
    """(text, summed loss in nats, predicted pieces) of each window.

    Args:
        head: the one that predicts the pieces.
    """
    if not windows:
        return []
    lengths = np.array([len(window.tokens) for window in windows], dtype=np.int64)
    counts = np.array([len(window.tokens) - window.begin for window in windows], dtype=np.int64)
    tokens = np.concatenate([window.tokens for window in windows]).astype(np.int32)
    ends, step = np.cumsum(lengths), -1 if backward else 1
    begins = ends - lengths + 1 if backward else ends - 1 - counts
    read = np.concatenate([np.arange(begin, begin + count) for begin, count in zip(begins, counts, strict=True)])
    rows = PackedRows(tokens, np.zeros_like(tokens), lengths.astype(np.int32), np.zeros(len(windows), dtype=np.int32))
    features = separate_rows(rows, read)
    order = np.lexsort((counts, lengths))
    result: list[tuple[int, float, int]] = []
    for chosen in cut_by_tokens(order, np.maximum(lengths, _COST * counts), engine.masked_lm_tokens):
        part = RowPart(features=features, rows=chosen)
        logits = engine.compute(part, head)
        of_piece = np.repeat(chosen, counts[chosen])
        require_finite(logits, lambda piece, texts=of_piece: windows[texts[piece]].text)  # type: ignore[misc]
        losses = _negative_log_likelihoods(logits, tokens[read[part.chosen] + step].astype(np.int64))
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
