"""Prediction with the pre-training heads: filling in [MASK], and next-sentence probabilities.

Rows are sorted by length and split into batches by tokens, so there is no padding and memory is bounded. Equal rows are
computed once.

Source: Devlin et al. (2018), section 3.1; Taylor (1953), "Cloze procedure", for the task of filling in words.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.base.core.errors import BertsmithError, CheckpointError, InputError, NotFiniteError
from bertsmith.base.core.finite import require_finite
from bertsmith.base.core.progress import unseen
from bertsmith.base.machine.runtime import Runtime
from bertsmith.inference.predictors.predictor import engine_of
from bertsmith.models.parts.batch import cut_by_tokens
from bertsmith.tasks.datasets.examples import TextExample, named_texts
from bertsmith.tasks.encoding.engine import MASKED, MASKED_LM, NEXT_SENTENCE, Engine
from bertsmith.tasks.encoding.units import Ints, Logits, RowPart, rows_by_first, separate_rows
from bertsmith.tasks.specs.tokenized import encoded_texts, tokenized
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import MASK
from bertsmith.training.pretraining.objectives import FOLLOWS, OBJECTIVES

if TYPE_CHECKING:
    from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining

_MASK_COST = 8  # tokens that a [MASK] counts as: its logits are as many numbers as the vocabulary has pieces


@dataclasses.dataclass(frozen=True)
class Filling:
    """One candidate for a [MASK].

    Attributes:
        piece: the word piece.
        probability: its probability by a softmax over the whole vocabulary.
    """

    piece: str
    probability: float


class FilledText(list[list[Filling]]):
    """The candidates for each [MASK] of a text, most likely first.

    Args:
        text: the text with its [MASK].
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the text, and the same candidates twice, as "masks" and as "gaps"."""
        masks = [[{"piece": filling.piece, "probability": filling.probability} for filling in mask] for mask in self]
        return {"text": self.text, "masks": masks, "gaps": masks}


@dataclasses.dataclass(frozen=True)
class Continuation:
    """How likely it is that one text follows another.

    Attributes:
        text: the second text.
        probability: the probability of the relation, by the next-sentence head.
        cut_tokens: tokens of the pair that were truncated.
        first: the first text.
        relation: what is probable: that the second text `follows` the first rather than being a random one, or, for a
            model of sentence order, that two neighbors are `in order` rather than swapped.
    """

    text: str
    probability: float
    cut_tokens: int
    first: str
    relation: str = FOLLOWS

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "first": self.first,
            "second": self.text,
            "probability": self.probability,
            "cut_tokens": self.cut_tokens,
            "relation": self.relation,
        }


class PretrainedPredictor:
    """A pre-trained model that fills masks and scores sentence pairs.

    Args:
        model: the encoder with its heads in torch, or the engine that computes them.
        tokenizer: the model's tokenizer.
        runtime: device and precision.
        relation: what the next-sentence head was trained to judge, see `Continuation`.
    """

    def __init__(
        self, model: "EncoderForPreTraining | Engine", tokenizer: Tokenizer, runtime: Runtime, relation: str = FOLLOWS
    ) -> None:
        self.relation = relation
        self.engine = engine_of(model, runtime)
        self.tokenizer, self.runtime = tokenizer, runtime

    @property
    def model(self) -> Any:
        """What the engine runs; in torch, an `EncoderForPreTraining`."""
        return self.engine.model

    def fill(self, text: str, top: int = 5) -> FilledText:
        """The `top` pieces for each [MASK] of a text, most likely first; masks are filled independently.

        [MASK] is understood by every model, next to its own spelling of the mask (`<mask>` for RoBERTa).
        """
        return self.fill_texts(named_texts([text]), top)[0]

    def next_sentence(self, first: str, seconds: Sequence[str]) -> list[Continuation]:
        """How likely each of `seconds` is to follow `first`, in order; see `judge_pairs`."""
        pairs = [dataclasses.replace(example, second=example.first, first=first) for example in named_texts(seconds)]
        return self.judge_pairs(tokenized(pairs, self.tokenizer))

    def fill_each(self, texts: Sequence[TextExample], top: int = 5) -> Iterator[FilledText]:
        """As `fill_texts`, but yields the results of all texts before an invalid one before raising the error."""
        texts = tokenized(texts, self.tokenizer, special_tokens=True)
        wrong = self._first_unfit(texts, encoded_texts(texts, self.tokenizer))
        error: BertsmithError | None = None if wrong is None else wrong[1]
        count = len(texts) if wrong is None else wrong[0]
        filled = None
        while filled is None:
            try:
                filled = self.fill_texts(texts[:count], top)
            except NotFiniteError as failure:  # an earlier text may be another one
                count, error = failure.index, NotFiniteError(failure.index, texts[failure.index].location)
        yield from filled
        if error is not None:
            raise error

    def fill_texts(self, texts: Sequence[TextExample], top: int = 5) -> list[FilledText]:
        """For each text and each [MASK] in it, the `top` pieces, most likely first; masks are filled independently.

        Raises:
            CheckpointError: the model predicts the next piece, or the one before.
            InputError: a text has no [MASK], or is longer than the model reads; the message has its location.
            NotFiniteError: the model computed no finite numbers for a text.
        """
        if self.engine.predicts != MASKED:
            raise CheckpointError(
                expected="a model that was trained to fill masks",
                found="a language model, which predicts the next piece or the one before",
                fix="name a model trained with masks",
            )
        if not texts:
            return []
        vocabulary, limit = self.tokenizer.vocabulary, self.engine.max_tokens
        encoded = encoded_texts(texts, self.tokenizer, special_tokens=True)
        if wrong := self._first_unfit(texts, encoded):
            raise wrong[1]
        template = self.tokenizer.template
        rows, which = pack_rows(encoded, template=template, max_length=limit, model_limit=limit).distinct()
        lengths, is_masked = rows.lengths.astype(np.int64), rows.token_ids == vocabulary.mask_id
        masked = np.flatnonzero(is_masked)
        masks_per_row = np.add.reduceat(is_masked.astype(np.int64), rows.offsets[:-1])
        costs = np.maximum(lengths, _MASK_COST * masks_per_row)
        of_rows: list[list[list[Filling]]] = [[] for _ in range(len(rows))]
        features = separate_rows(rows, masked)
        for chosen in cut_by_tokens(np.argsort(lengths, kind="stable"), costs, self.engine.masked_lm_tokens):
            part = RowPart(features=features, rows=chosen)
            logits = self.engine.compute(part, MASKED_LM)
            row_of_mask = np.repeat(chosen, masks_per_row[chosen]).tolist()
            require_finite(logits, lambda mask, rows=row_of_mask: which.tolist().index(rows[mask]))  # type: ignore[misc]
            best, chances = most_probable(logits[:, : len(vocabulary)], min(top, len(vocabulary)))
            for row, ids, values in zip(row_of_mask, best.tolist(), chances.tolist(), strict=True):
                of_rows[row].append(
                    [Filling(vocabulary.pieces[id], value) for id, value in zip(ids, values, strict=True)]
                )
        filled = [FilledText(text.first) for text in texts]
        for answer, row in zip(filled, which.tolist(), strict=True):
            answer.extend(list(mask) for mask in of_rows[row])
        return filled

    def judge_pairs(self, pairs: Sequence[TextExample]) -> list[Continuation]:
        """How likely the second text of each pair is to follow the first, in order.

        A pair longer than the model reads loses the end of its longer text; `cut_tokens` counts the tokens lost.
        """
        if not pairs:
            return []
        for number, pair in enumerate(pairs, start=1):
            if not all(text.strip() for text in pair.texts):
                raise InputError(
                    expected=f"two texts in pair {number}", found="an empty one", fix="give both sentences"
                )
        limit, firsts = self.engine.max_tokens, 2 * np.arange(len(pairs))
        encoded = encoded_texts(pairs, self.tokenizer)
        rows = pack_rows(
            encoded.select(firsts),
            encoded.select(firsts + 1),
            template=self.tokenizer.template,
            max_length=limit,
            model_limit=limit,
        )
        logits = self.engine.logits(rows_by_first(rows), NEXT_SENTENCE, advance=unseen)
        # The first of two shares of a softmax.
        chances = np.exp(-np.logaddexp(0, np.diff(logits.astype(np.float64), axis=1)[:, 0])).astype(np.float32)
        return [
            Continuation(pair.second or "", chance, cut, pair.first, self.relation)
            for pair, chance, cut in zip(pairs, chances.tolist(), rows.cut_by_row.tolist(), strict=True)
        ]

    def _first_unfit(self, texts: Sequence[TextExample], encoded: Encoded) -> tuple[int, InputError] | None:
        """The index of the first text that cannot be filled, from 0, and the error; None if all can be filled."""
        room = self.engine.max_tokens - self.tokenizer.template.num_special(1)
        masks_before = np.concatenate([[0], np.cumsum(encoded.ids == self.tokenizer.vocabulary.mask_id)])
        has_mask = np.diff(masks_before[encoded.offsets]) > 0
        unfit = np.flatnonzero(~has_mask | (encoded.lengths > room))
        if not len(unfit):
            return None
        number = int(unfit[0])
        if encoded.lengths[number] > room:
            return number, InputError(
                expected=f"at most {room} pieces, the most that the model reads, in {texts[number].location}",
                found=f"{encoded.lengths[number]}",
                fix="shorten the text",
            )
        return number, InputError(
            expected=f"a {MASK} in {texts[number].location}",
            found=repr(texts[number].first[:60]),
            fix=f"write {MASK}, in capitals, where a word is missing",
        )


def require_heads(trained: Collection[str], needs: Sequence[str], model: object) -> None:
    """Checks that the pre-training heads that are needed were trained."""
    for head in needs:
        if head not in trained:
            fix = "name a model that was pre-trained with --objective mlm"
            if head == "nsp":
                fix = (
                    "train one in minutes: `bertsmith corpus TEXT --model MODEL --out CORPUS`, then `bertsmith "
                    "pretrain CORPUS --init MODEL --objective nsp --max-length 64 --minutes 10 --out RUN`; to choose "
                    "among candidates, `bertsmith search` by vectors does better"
                )
            raise CheckpointError(expected=f"a model with a trained {head} head in '{model}'", found="none", fix=fix)


def relation_of(objective: str | None) -> str:
    """What the next-sentence head of a model with this pre-training objective judges."""
    known = OBJECTIVES.get(objective or "")
    return FOLLOWS if known is None else known.relation


def most_probable(logits: Logits, top: int) -> tuple[Ints, Logits]:
    """The most probable outputs of each row, most probable first, as int64 [M, top], with float32 [M, top] chances.

    Outputs of equal probability are in the order of their numbers.

    Args:
        logits: float32 [M, V], at least `top` wide.

    >>> most_probable(np.log(np.array([[1, 4, 2, 1]], dtype=np.float32)), 3)
    (array([[1, 2, 0]]), array([[0.5  , 0.25 , 0.125]], dtype=float32))
    """
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    least = np.partition(logits, logits.shape[1] - top, axis=1)[:, -top]
    best = np.empty((len(logits), top), dtype=np.int64)
    for row, (values, limit) in enumerate(zip(logits, least, strict=True)):
        candidates = np.flatnonzero(values >= limit)
        best[row] = candidates[np.argsort(-values[candidates], kind="stable")][:top]
    return best, np.take_along_axis(probabilities, best, axis=1) / probabilities.sum(axis=1, keepdims=True)
