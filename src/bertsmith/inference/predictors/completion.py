"""Text completion with a language model: the most likely next pieces, and continuations.

A model that reads backward predicts the piece before a text, and continues it to the left.

Letters: N texts, V vocabulary.

A continuation is read piece by piece with the memory of what was read before (`models/parts/memory.py`), so that each
piece costs one token of work; an exported graph has no memory, and reads the whole text again. Each draw is a function
of the seed and of how many pieces were drawn before it, so a continuation depends neither on other texts nor on
restarts.

Sources: Radford et al. (2018) for the model; Fan, Lewis and Dauphin (2018), section 5.3, for top-k sampling; Holtzman
et al. (2020), "The Curious Case of Neural Text Degeneration", section 3.1, for top-p sampling.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.core.finite import require_finite
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.inference.predictors.pretraining_heads import most_probable
from bertsmith.inference.predictors.request import SamplingSettings
from bertsmith.inference.predictors.streaming import OnText, TextStream, require_single
from bertsmith.models.parts.batch import cut_by_tokens
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.engine import NEXT, PREVIOUS, Engine
from bertsmith.tasks.encoding.units import Logits
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.tokenizer import Tokenizer

LOGITS_AT_ONCE = 2**25  # numbers


@dataclasses.dataclass(frozen=True)
class NextPiece:
    """A piece that may follow, or does; with a model that reads backward, one in front.

    Attributes:
        piece: as the vocabulary spells it.
        text: what it adds to the text; empty for a special piece.
        probability: by a softmax over the whole vocabulary, whatever the sampling.
    """

    piece: str
    text: str
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model expects after a text.

    Attributes:
        next: the most likely next pieces, in descending order.
        continuation: what follows the text, or is in front of it; empty if none was requested.
        pieces: the pieces of the continuation, the one next to the text first.
        has_ended: whether the model ended the text before the requested number of pieces.
        direction: `forward`, or `backward` if the model reads from right to left and continues at the beginning.
    """

    text: str
    next: tuple[NextPiece, ...]
    continuation: str = ""
    pieces: tuple[NextPiece, ...] = ()
    has_ended: bool = False
    direction: str = "forward"

    @property
    def whole(self) -> str:
        """The text with its continuation."""
        return self.continuation + self.text if self.direction == "backward" else self.text + self.continuation

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self) | {
            "next": [dataclasses.asdict(piece) for piece in self.next],
            "pieces": [dataclasses.asdict(piece) for piece in self.pieces],
        }


def complete(
    engine: Engine,
    tokenizer: Tokenizer,
    texts: Sequence[TextExample],
    *,
    top: int = 5,
    tokens: int = 0,
    sampling: SamplingSettings | None = None,
    remembers: bool = True,
    on_text: OnText | None = None,
) -> list[Completion]:
    """The `top` most likely next pieces of each text, and a continuation of at most `tokens` pieces.

    A continuation ends early where the model ends the text. The other special pieces, the one for unknown words among
    them, are never part of it.

    Args:
        engine: computes a language model with a head for pieces.
        sampling: how pieces are chosen; by default the most likely.
        remembers: use a memory if the engine has one; without, every piece costs a pass over the whole text.
        on_text: receives each part of the continuation while it is written, for a single text.

    Raises:
        CheckpointError: the model does not read in one direction.
        InputError: a text has no tokens, or too many for the model.
        NotFiniteError: the model computed no finite numbers for a text.
    """
    require_causal(engine)
    if on_text is not None:
        require_single(texts)
        require(
            engine.predicts == NEXT,
            expected="a model that reads forward, for a text part by part",
            found="one that continues texts at their beginning",
            fix="leave on_text out",
        )
    backward = engine.predicts == PREVIOUS
    start = np.array(tokenizer.template.end if backward else tokenizer.template.start, dtype=np.int32)
    parts_of_rows = [(ids, start) if backward else (start, ids) for ids in encoded_texts(texts, tokenizer)]
    rows = [np.concatenate(parts) for parts in parts_of_rows]
    room = engine.max_tokens - max(0, tokens - 1)
    for row, text in zip(rows, texts, strict=True):
        if not len(row):
            raise InputError(
                expected=f"a text to continue in {text.location}", found="one without tokens", fix="write a word"
            )
        if len(row) > room:
            raise InputError(
                expected=f"at most {max(0, room - len(start))} pieces, the most that the model reads with "
                f"{tokens} more, in {text.location}",
                found=f"{len(row) - len(start)}",
                fix="shorten the text, or ask for fewer tokens" if tokens else "shorten the text",
            )
    completer = _Completer(engine, tokenizer, sampling or SamplingSettings(), top, tokens, remembers=remembers)
    completer.stream = None if on_text is None else TextStream(on_text, tokenizer.unsettled)
    lengths = np.array([len(row) + tokens for row in rows], dtype=np.int64)
    width = len(tokenizer.vocabulary)
    costs = np.maximum(lengths, -(-width * engine.runtime.inference_tokens // LOGITS_AT_ONCE))
    result: list[Completion] = []
    parts = cut_by_tokens(np.arange(len(rows)), costs, engine.runtime.inference_tokens) if rows else []
    for part in parts:
        completer.first = int(part[0])
        result += completer.complete([texts[row].first for row in part.tolist()], [rows[row] for row in part.tolist()])
    return result


def require_causal(engine: Engine) -> None:
    """Checks that the model reads in one direction."""
    if engine.predicts not in (NEXT, PREVIOUS):
        raise CheckpointError(
            expected="a model that predicts the next piece",
            found="a bidirectional one, which sees it",
            fix="name a language model, such as one of `bertsmith pretrain --architecture openai-gpt`",
        )


class _Completer:
    """Completes texts that are computed together.

    Attributes:
        first: the number of the first of these texts, for errors.
        stream: of the continuation of a single text.
    """

    stream: TextStream | None = None

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        sampling: SamplingSettings,
        top: int,
        tokens: int,
        *,
        remembers: bool,
    ) -> None:
        self.engine, self.tokenizer, self.sampling = engine, tokenizer, sampling
        self.top, self.tokens = min(top, len(tokenizer.vocabulary)), tokens
        self.is_backward = engine.predicts == PREVIOUS
        self.remembers = remembers and not self.is_backward
        self.first = 0
        vocabulary, template = tokenizer.vocabulary, tokenizer.template
        ends = template.start[::-1] if self.is_backward else template.end
        self.end = ends[0] if ends else None
        self.never = sorted(vocabulary.special_ids - {self.end})

    def complete(self, texts: Sequence[str], rows: Sequence[Ids]) -> list[Completion]:
        """The completions of texts, given their tokens with the special ones at the start."""
        memory = self.engine.new_memory() if self.remembers and self.tokens > 1 else None
        logits = self._logits(rows, memory, range(len(rows)))
        best, probabilities = most_probable(logits, self.top)
        chosen, chances, ended = self._continue(rows, logits, memory)
        result = []
        for row, text in enumerate(texts):
            ids = rows[row].tolist()
            before = [self._joined(ids, chosen[row][:number]) for number in range(len(chosen[row]))]
            result.append(
                Completion(
                    text=text,
                    next=self._pieces([ids] * self.top, best[row].tolist(), probabilities[row].tolist()),
                    continuation=self._added(ids, chosen[row]),
                    pieces=self._pieces(before, chosen[row], chances[row]),
                    has_ended=row in ended,
                    direction="backward" if self.is_backward else "forward",
                )
            )
        if self.stream is not None:
            self.stream.end(result[0].continuation)
        return result

    def _continue(
        self, rows: Sequence[Ids], logits: Logits, memory: Any
    ) -> tuple[list[list[int]], list[list[float]], set[int]]:
        """The pieces that continue each row, their probabilities, and the rows that the model ended."""
        chosen: list[list[int]] = [[] for _ in rows]
        chances: list[list[float]] = [[] for _ in rows]
        ended: set[int] = set()
        running = list(range(len(rows)))
        for number in range(self.tokens):
            picked = self._choose(logits, number)
            probabilities = _probabilities(logits, picked)
            ended |= {row for row, id in zip(running, picked, strict=True) if id == self.end}
            going = [index for index, row in enumerate(running) if row not in ended]
            running = [running[index] for index in going]
            for index, row in zip(going, running, strict=True):
                chosen[row].append(picked[index])
                chances[row].append(probabilities[index])
            if running and self.stream is not None:
                self.stream.grow(self._added(rows[0].tolist(), chosen[0]))
            if not running or number == self.tokens - 1:
                break
            if memory is None:
                follows = [np.array(self._joined(rows[row].tolist(), chosen[row])) for row in running]
            else:
                if len(going) < len(picked):
                    memory = memory.of_rows(going)
                follows = [np.array(chosen[row][-1:]) for row in running]
            logits = self._logits(follows, memory, running)
        return chosen, chances, ended

    def _joined(self, ids: list[int], chosen: list[int]) -> list[int]:
        """A row with the pieces that continue it, the one next to it first."""
        return chosen[::-1] + ids if self.is_backward else ids + chosen

    def _logits(self, rows: Sequence[Ids], memory: Any, numbers: Sequence[int]) -> Logits:
        logits = self.engine.next_logits(rows, memory)
        require_finite(logits, lambda row: self.first + numbers[row])
        return logits[:, : len(self.tokenizer.vocabulary)]  # a table may have rows for no piece

    def _choose(self, logits: Logits, number: int) -> list[int]:
        """The next piece of each text."""
        allowed = logits.copy()
        allowed[:, self.never] = -np.inf
        return [sampled(self.sampling, row, number) for row in allowed]

    def _pieces(
        self, before: Sequence[list[int]], ids: Sequence[int], probabilities: Sequence[float]
    ) -> tuple[NextPiece, ...]:
        """Pieces with what each adds to the text of the pieces that it continues."""
        pieces = self.tokenizer.vocabulary.pieces
        return tuple(
            NextPiece(pieces[id], self._added(ahead, [id]), probability)
            for ahead, id, probability in zip(before, ids, probabilities, strict=True)
        )

    def _added(self, before: list[int], ids: list[int]) -> str:
        """What some pieces add to the text of those that they continue."""
        if self.is_backward:
            ahead = before[:_CONTEXT]
            text, whole = self.tokenizer.decode(ahead), self.tokenizer.decode(ids[::-1] + ahead)
            return whole.removesuffix(text) if whole.endswith(text) else self.tokenizer.decode(ids[::-1])
        ahead = before[-_CONTEXT:]
        text, whole = self.tokenizer.decode(ahead), self.tokenizer.decode(ahead + ids)
        return whole[len(text) :] if whole.startswith(text) else self.tokenizer.decode(ids)


def sampled(sampling: SamplingSettings, logits: Logits, number: int) -> int:
    """The next piece, given float32 [V] and the number of pieces that were chosen before it."""
    if not sampling.draws:
        return int(np.argmax(logits))
    ids, probabilities = _candidates(sampling, logits)
    drawn = generator(sampling.seed, "next piece", number).random() * probabilities.sum()
    return int(ids[min(int(np.searchsorted(np.cumsum(probabilities), drawn, side="right")), len(ids) - 1)])


def _candidates(sampling: SamplingSettings, logits: Logits) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The pieces to sample from, most likely first, and their normalized probabilities."""
    scores = logits.astype(np.float64) / (sampling.temperature or 1.0)
    order = np.argsort(-scores, kind="stable")[: sampling.top_k]
    probabilities = np.exp(scores[order] - scores[order[0]])
    probabilities /= probabilities.sum()
    if sampling.top_p is not None:
        enough = int(np.searchsorted(np.cumsum(probabilities), sampling.top_p * (1 - 1e-12))) + 1
        order, probabilities = order[:enough], probabilities[:enough]
    return order, probabilities


_CONTEXT = 8  # pieces next to a piece that decide whether there is a space


def _probabilities(logits: Logits, ids: Sequence[int]) -> list[float]:
    """The probability of one piece per row, by a softmax over [N, V]."""
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: list[float] = (probabilities[np.arange(len(ids)), ids] / probabilities.sum(axis=1)).tolist()
    return result
