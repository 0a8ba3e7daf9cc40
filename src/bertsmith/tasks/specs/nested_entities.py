"""Entities that may be inside one another or overlap: every span of words is scored for every label.

Letters: E sentences, W words of all sentences, P spans, K labels, D numbers of a query or a key.

The head gives each word a query and a key of D numbers and, for each label, a score as first and as last word of an
entity. The score of a span for a label is the product of the query of its first word and the key of its last one,
divided by the root of D, plus both of their scores for the label. Queries and keys are rotated by the position of their
word (RoPE), so that the product depends on how long the span is. A sigmoid gives the probability that the span is an
entity with that label. It is predicted from a threshold on, which is fitted to the dev examples.

Only the first piece of a word is read, and long sentences are read in windows, as in `tagging.py`.

Sources: Yu, Bohnet and Poesio (2020), "Named Entity Recognition as Dependency Parsing", section 3, for scores of first
and last words and the choice among spans that exclude each other; Su et al. (2022), "Global Pointer: Novel Efficient
Span-based Approach for Named Entity Recognition", for the rotation and one product for all labels.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample, WordSpan
from bertsmith.tasks.datasets.labels import check_known
from bertsmith.tasks.encoding.units import NO_LABEL, EncodedExamples, Ints, Logits
from bertsmith.tasks.metrics.calibration import all_but_one_fold, best_threshold
from bertsmith.tasks.metrics.entities import counts_of_spans, share_words, span_scores
from bertsmith.tasks.specs.predictions import EntitiesPrediction
from bertsmith.tasks.specs.sentence_windows import (
    encoded_sentences,
    require_no_cutting,
    require_words,
    tagged,
    tokenized_words,
)
from bertsmith.tasks.specs.settings import ANY, MOST_ENTITIES, NONE
from bertsmith.tasks.specs.tagging import entity_of
from bertsmith.tasks.specs.task import ENTITIES, SEEN, TaskSpec, TaskWithLoss
from bertsmith.text.tokenizers.encoded import Encoded, offsets_of, places_of
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch

_WIDTH = 64  # D
RARITY = 6.0  # subtracted from all scores, so that a new head takes no span for an entity
_USUAL = 0.5  # threshold before one is fitted
LOWEST = 0.02  # probability of candidates, and so of a fitted threshold
_MOST_SPANS = 8192  # that are scored at a time in prediction

Scored = tuple[WordSpan, float]


class EntitiesTask(TaskWithLoss):
    """Finds the spans of words that are entities, with their labels."""

    kind = ENTITIES
    baselines = (SEEN,)
    settings_used = frozenset({"long_text", "stride", "document_context", "entity_words", "overlap", "tune_threshold"})

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.max_entities = MOST_ENTITIES, spec.settings.entity_words, spec.settings.overlap != NONE

    @property
    def head(self) -> "Head":
        """A linear layer on the hidden states of words: query, key, and scores of each label as first and last word."""
        return self.head_on_tokens("classifier", 2 * _WIDTH + 2 * len(self.spec.labels))

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that sentences have words and, with `gold`, entities with known labels in them; see `Task.check`."""
        require_no_cutting(self.spec.settings, self.kind)
        sentences = tagged(examples)
        require_words(sentences)
        if not gold:
            return
        for sentence in sentences:
            if not isinstance(sentence, EntityExample):
                raise InputError.at(sentence.location, "a sentence with entities", "none", "add them, or an empty list")
            for span in gold_of(sentence):
                if not 0 <= span.start < span.end <= len(sentence.words):
                    raise InputError.at(
                        sentence.location, f"entities in its {counted(len(sentence.words), 'word')}", str(tuple(span)),
                        "correct the entity",
                    )  # fmt: skip
        self._check_labels(sentences, training=training)
        words = self.spec.settings.entity_words
        longer = sum(span.end - span.start > words for sentence in sentences for span in gold_of(sentence))
        if longer:
            warn(
                f"{counted(longer, 'entity', 'entities')} of more than {counted(words, 'word')}, which the model never "
                "predicts; --entity-words raises the limit"
            )

    def _check_labels(self, sentences: Sequence[TaggedExample], *, training: bool) -> None:
        check_known(sentences, self.spec.labels, training=training, noun="label")

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The sentences with the pieces of their words; see `Task.tokenized`."""
        return tokenized_words(examples, tokenizer)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per window; see `encoded_sentences`.

        The targets of a word, int64 [W, 1 + M], are 0, which counts the word, and a number for each entity that begins
        with it: K times the words that follow in it, plus the number of its label; `NO_LABEL` fills the row. Entities
        with unknown labels and those with too many words are not among them.
        """
        require_no_cutting(self.spec.settings, self.kind)
        sentences = tagged(examples)
        return encoded_sentences(sentences, self._targets(sentences), self.spec.settings, tokenizer)

    def _targets(self, sentences: Sequence[TaggedExample]) -> Ints | None:
        if not sentences or not all(isinstance(sentence, EntityExample) for sentence in sentences):
            return None
        numbers = {label: number for number, label in enumerate(self.spec.labels)}
        rows: list[list[int]] = []
        for sentence in sentences:
            of_words: list[list[int]] = [[0] for _ in sentence.words]
            for start, end, label in gold_of(sentence):
                if label in numbers and end - start <= self.spec.settings.entity_words:
                    of_words[start].append((end - start - 1) * len(numbers) + numbers[label])
            rows += of_words
        targets = np.full((len(rows), max(map(len, rows), default=1)), NO_LABEL, dtype=np.int64)
        for target, row in zip(targets, rows, strict=True):
            target[: len(row)] = row
        return targets

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """The cross-entropy of each yes or no, summed over the spans and labels; see `TaskWithLoss.loss`.

        The spans of a window are those whose first and last word it classifies.
        """
        assert batch.targets is not None, "the sentences have entities"
        scores, spans = self._scores_of_batch(logits, batch)
        gold = scores.new_zeros(scores.shape)
        words, columns = (batch.targets[:, 1:] >= 0).nonzero(as_tuple=True)
        numbers = batch.targets[words, 1 + columns]
        length, labels = numbers // len(self.spec.labels), numbers % len(self.spec.labels)
        counts, offsets = (batch.targets.new_tensor(part.tolist()) for part in (spans.counts, spans.offsets))
        inside = length < counts[words]  # not in the next window
        gold[(offsets[words] + length)[inside], labels[inside]] = 1.0
        return yes_or_no_loss(scores, gold, len(batch.targets))

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence of each yes or no, summed over the spans and labels; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import binary_divergence

        scores, gold = (self._scores_of_batch(outputs, batch)[0] for outputs in (logits, wanted))
        return binary_divergence(scores, gold, temperature).sum()

    def _scores_of_batch(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, Spans]":
        """The scores [P, K] of the spans of all windows, in at least fp32, and the spans."""
        from bertsmith.tasks.specs.soft_targets import exact

        assert batch.read is not None, "the first pieces of words are read"
        spans = Spans.within(batch.read.counts, self.spec.settings.entity_words)
        return _scores(exact(logits), spans, len(self.spec.labels)), spans

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[EntitiesPrediction]:
        """The entities of each sentence; see `Task.decode`.

        The words of a span may be classified in different windows. Of two spans that may not both be entities, by the
        setting `overlap`, the more probable one is.
        """
        sentences = tagged(examples)
        scored = self.probable_spans(sentences, logits)
        return [self.prediction(sentence, spans) for sentence, spans in zip(sentences, scored, strict=True)]

    def probable_spans(
        self, sentences: Sequence[TaggedExample], logits: Logits, wanted: Sequence[Iterable[WordSpan]] = ()
    ) -> Iterator[list[Scored]]:
        """Of each sentence, the spans that are probable enough for the lowest threshold, with their probabilities.

        Args:
            wanted: spans of each sentence, with known labels, that follow in any case.
        """
        labels, words = self.spec.labels, offsets_of([len(sentence.words) for sentence in sentences])
        assert len(logits) == words[-1], "one row of logits per word"
        for number, (begin, end) in enumerate(itertools.pairwise(words.tolist())):
            spans, outputs = Spans.within((end - begin,), self.spec.settings.entity_words), logits[begin:end]
            scores = functools.partial(_scores, outputs.astype(np.float64), labels=len(labels))
            probable = self._probable(spans, scores, labels)
            others = sorted({*wanted[number]} - {span for span, _ in probable}) if wanted else []
            if others:
                firsts, pasts, names = zip(*others, strict=True)
                asked = dataclasses.replace(spans, firsts=np.array(firsts), lasts=np.array(pasts) - 1)
                chances = self._chances(scores(asked))
                columns = [labels.index(name) for name in names]
                probable += zip(others, chances[np.arange(len(others)), columns].tolist(), strict=True)
            yield probable

    def _probable(
        self, every: "Spans", scores_of: Callable[["Spans"], Any], labels: Sequence[str], first: int = 0
    ) -> list[Scored]:
        """The spans with the labels for which they are probable enough for the lowest threshold.

        Args:
            scores_of: the scores [P, K] of some of the spans.
            first: the place in the sentence of the first of the words that they are of.
        """
        candidates = list[Scored]()
        for begin in range(0, len(every.firsts), _MOST_SPANS):
            part = slice(begin, begin + _MOST_SPANS)
            spans = dataclasses.replace(every, firsts=every.firsts[part], lasts=every.lasts[part])
            chances = self._chances(scores_of(spans))
            for span, label in zip(*np.nonzero(chances >= min(LOWEST, self._threshold)), strict=True):
                start, last = first + int(spans.firsts[span]), first + int(spans.lasts[span])
                candidates.append((WordSpan(start, last + 1, labels[label]), float(chances[span, label])))
        return candidates

    def _chances(self, scores: Any) -> Any:
        """The probabilities of scores, of any shape."""
        return 0.5 * (1 + np.tanh(0.5 * scores))  # no exponential that overflows

    @property
    def _threshold(self) -> float:
        return _USUAL if self.spec.threshold is None else self.spec.threshold

    def prediction(self, sentence: TaggedExample, candidates: Iterable[Scored]) -> EntitiesPrediction:
        """The entities of a sentence among spans with probabilities, at most `MOST_ENTITIES` for each word."""
        kept: list[Scored] = []
        overlap = self.spec.settings.overlap
        for span, chance in sorted(candidates, key=lambda candidate: -candidate[1]):  # ties stay in order
            if overlap == ANY or not any(share_words(span, other, overlap) for other, _ in kept):
                kept.append((span, chance))
            if len(kept) == MOST_ENTITIES * len(sentence.words):
                break
        return _above(sentence, kept, self._threshold)

    def tuned(self, examples: Sequence[Example], predictions: Sequence[EntitiesPrediction]) -> TaskSpec:
        """The spec with the threshold that has the best F1 on the dev examples, with `tune_threshold`."""
        if not self.spec.settings.tune_threshold:
            return self.spec
        return dataclasses.replace(self.spec, threshold=self._best_threshold(tagged(examples), predictions))

    def _best_threshold(self, sentences: Sequence[TaggedExample], predictions: Sequence[EntitiesPrediction]) -> float:
        pairs = [
            (span in set(gold_of(sentence)), chance)
            for sentence, prediction in zip(sentences, predictions, strict=True)
            for span, chance in prediction.candidates
        ]
        if not any(is_right for is_right, _ in pairs):
            return _USUAL
        right, chances = (np.array(values) for values in zip(*pairs, strict=True))
        in_gold = sum(len(gold_of(sentence)) for sentence in sentences)

        def f1(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
            hits = np.asarray(gold) & np.asarray(predicted)
            return float(2 * hits.sum() / (in_gold + np.asarray(predicted).sum()))

        return best_threshold(right.astype(np.int64), chances, f1)

    def cross_fitted(
        self, examples: Sequence[Example], predictions: Sequence[EntitiesPrediction]
    ) -> list[EntitiesPrediction] | None:
        """The predictions with a threshold that was fitted to the other folds; see `Task.cross_fitted`."""
        if not self.spec.settings.tune_threshold:
            return None
        sentences, result = tagged(examples), list(predictions)
        for others in all_but_one_fold(len(sentences)):
            chosen = np.flatnonzero(others).tolist()
            best = self._best_threshold([sentences[n] for n in chosen], [predictions[n] for n in chosen])
            for index in np.flatnonzero(~others).tolist():
                result[index] = _above(sentences[index], predictions[index].candidates, best)
        return result

    def answer_without_model(self, example: Example) -> EntitiesPrediction | None:
        """The empty prediction of a sentence without words; None for all others."""
        (sentence,) = tagged([example])
        return None if sentence.words else _above(sentence, (), _USUAL)

    def golds(self, examples: Sequence[Example]) -> list[Any]:
        """The words and the label of each entity."""
        return [[list(span) for span in gold_of(sentence)] for sentence in tagged(examples)]

    def score(self, examples: Sequence[Example], predictions: Sequence[EntitiesPrediction]) -> dict[str, float]:
        """Precision, recall and F1 of entities; one is right if its words and its label are."""
        return span_scores(self._counts(examples, predictions).sum(axis=0))

    def _counts(self, examples: Sequence[Example], predictions: Sequence[EntitiesPrediction]) -> Ints:
        """Of each sentence the right, the gold and the predicted entities, int64 [E, 3]."""
        pairs = zip(tagged(examples), predictions, strict=True)
        return counts_of_spans([(gold_of(sentence), prediction.spans) for sentence, prediction in pairs])

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[EntitiesPrediction]
    ) -> npt.NDArray[np.float64]:
        """The F1 of the entities of each sentence, float64 [E]; 1 if it has none and none is predicted."""
        right, in_gold, predicted = self._counts(examples, predictions).T
        return np.where(in_gold + predicted > 0, 2.0 * right / np.maximum(in_gold + predicted, 1), 1.0)

    def is_collapsed(self, predictions: Sequence[EntitiesPrediction], examples: Sequence[Example]) -> bool:
        """Whether no entity is predicted although there are some."""
        has_gold = any(gold_of(sentence) for sentence in tagged(examples))
        return has_gold and not any(prediction.entities for prediction in predictions)

    def log_sums(self, sums: Any) -> dict[str, float]:
        """The F1 of spans at a probability of 0.5, for a log line."""
        total = sums.get("predicted", 0.0) + sums.get("gold", 0.0)
        return {"f1": 2 * sums["right"] / total} if total else {}


@dataclasses.dataclass(frozen=True)
class Spans:
    """Spans of the words of some sentences.

    Args:
        firsts, lasts: int64 [P], the first and the last word of each, counted over all sentences.
        counts: int64 [W], the spans that begin with each word.
    """

    firsts: Ints
    lasts: Ints
    counts: Ints

    @classmethod
    def within(cls, lengths: Sequence[int], longest: int) -> "Spans":
        """All spans of at most `longest` words that are inside one of the sentences of these lengths."""
        ends = np.repeat(np.cumsum(lengths), lengths)
        words = np.arange(len(ends))
        counts = np.minimum(ends - words, longest)
        return cls(np.repeat(words, counts), places_of(words, counts), counts)

    def beginning_with(self, words: npt.NDArray[np.bool_]) -> "Spans":
        """Those that begin with one of these words, bool [W]."""
        kept = words[self.firsts]
        return Spans(self.firsts[kept], self.lasts[kept], self.counts * words)

    @property
    def offsets(self) -> Ints:
        """The index of the first span that begins with each word, int64 [W]."""
        return offsets_of(self.counts)[:-1]


def _scores(outputs: Any, spans: Spans, labels: int) -> Any:
    """The scores [P, K] of spans, from the outputs [W, 2D + 2K] of words; arrays or tensors."""
    half = _WIDTH // 2
    first, last = outputs[spans.firsts], outputs[spans.lasts]
    queries, keys = first[:, :_WIDTH], last[:, _WIDTH : 2 * _WIDTH]
    # A rotation of both by their positions is one of the key by the words between them.
    angles = (spans.lasts - spans.firsts)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cosines: Any = np.cos(angles)
    sines: Any = np.sin(angles)
    if not isinstance(outputs, np.ndarray):
        import torch

        cosines, sines = (torch.from_numpy(part).to(outputs) for part in (cosines, sines))
    (a, b), (c, d) = ((part[:, :half], part[:, half:]) for part in (queries, keys))
    products = (a * (c * cosines - d * sines) + b * (c * sines + d * cosines)).sum(-1) / _WIDTH**0.5
    of_labels = first[:, 2 * _WIDTH : 2 * _WIDTH + labels] + last[:, 2 * _WIDTH + labels :]
    return products[:, None] + of_labels - RARITY


def yes_or_no_loss(scores: "Tensor", gold: "Tensor", count: int) -> "tuple[Tensor, dict[str, Tensor]]":
    """The cross-entropy of each yes or no, summed, and sums for the log of a micro-batch with `count` targets."""
    import torch
    import torch.nn.functional as F

    loss = F.binary_cross_entropy_with_logits(scores, gold, reduction="sum")
    predicted = scores.detach() >= 0
    right = (predicted & (gold > 0)).sum()
    sums = {"nll": loss.detach(), "right": right, "predicted": predicted.sum(), "gold": gold.sum()}
    return loss, {**sums, "count": torch.tensor(count, device=scores.device)}


def _above(sentence: TaggedExample, candidates: Iterable[Scored], threshold: float) -> EntitiesPrediction:
    """The prediction of the candidates whose probability is at least the threshold."""
    candidates = tuple(candidates)
    chosen = sorted(
        (candidate for candidate in candidates if candidate[1] >= threshold),
        key=lambda candidate: (candidate[0].start, -candidate[0].end, -candidate[1]),
    )
    return EntitiesPrediction(
        words=sentence.words,
        entities=tuple(entity_of(sentence, span.label, span.start, span.end) for span, _ in chosen),
        probabilities=tuple(chance for _, chance in chosen),
        offsets=sentence.offsets,
        candidates=candidates,
    )


def gold_of(sentence: TaggedExample) -> tuple[WordSpan, ...]:
    """The entities of a labelled sentence."""
    assert isinstance(sentence, EntityExample), "sentences with entities"
    return sentence.entities
