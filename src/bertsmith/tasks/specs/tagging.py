"""Tagging: a tag for every word of a sentence, such as named entities, parts of speech or chunks.

Letters: E sentences, W words of all sentences, P pieces of all words, N windows (each one row and one unit), K tags.

Only the first piece of a word is classified. A sentence too long for a row is split into windows, and each word is
classified in the window whose middle is nearest. So targets and logits have exactly one entry per word, in the order
of the words of all sentences.

Source: Devlin et al. (2018), sections 4.3 and 5.3 of the versions of 2018 and 2019 (CoNLL-2003).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.examples import Example, TaggedExample
from bertsmith.tasks.datasets.labels import check_known, check_scheme
from bertsmith.tasks.encoding.units import NO_LABEL, EncodedExamples, Ints, Logits
from bertsmith.tasks.metrics.entities import entity_scores, entity_spans, following_tags
from bertsmith.tasks.specs.predictions import Entity, TagsPrediction
from bertsmith.tasks.specs.sentence_windows import (
    encoded_sentences,
    require_no_cutting,
    require_words,
    tagged,
    tokenized_words,
)
from bertsmith.tasks.specs.tag_sequences import best_sequences
from bertsmith.tasks.specs.task import TAGS, VECTORS, TaskWithLoss
from bertsmith.text.tokenizers.encoded import Encoded, offsets_of
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch

_SCORES = ("precision", "recall", "f1", "accuracy")


class TaggingTask(TaskWithLoss):
    """Predicts one of the spec's tags for each word."""

    kind = "tagging"
    baselines = (TAGS, VECTORS)
    settings_used = frozenset({"long_text", "stride", "document_context", "constrained_tags"})

    @property
    def head(self) -> "Head":
        """A linear layer with one output per tag on the hidden states."""
        return self.head_on_tokens("classifier", len(self.spec.labels))

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that sentences have words and, with `gold`, a known tag for each word. See `Task.check`.

        Tags that violate the scheme cause one warning; they are scored as conlleval interprets them.
        """
        require_no_cutting(self.spec.settings, self.kind)
        sentences = tagged(examples)
        require_words(sentences)
        for sentence in sentences:
            _check_sentence(sentence, gold)
        if gold:
            check_known(sentences, self.spec.labels, training=training, noun="tag")
        if gold and self.spec.scheme:
            check_scheme(sentences, self.spec.scheme)

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The sentences with the pieces of their words; see `Task.tokenized`."""
        return tokenized_words(examples, tokenizer)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per window; see `Task.encode`.

        See `encoded_sentences`. Tags that are not among the labels are not used as targets.
        """
        require_no_cutting(self.spec.settings, self.kind)
        sentences = tagged(examples)
        return encoded_sentences(sentences, self._targets(sentences), self.spec.settings, tokenizer)

    def _targets(self, sentences: Sequence[TaggedExample]) -> Ints | None:
        """The tag index of each word, int64 [W], NO_LABEL for unknown tags; None without gold."""
        if all(sentence.tags is None for sentence in sentences):
            return None
        numbers = {label: number for number, label in enumerate(self.spec.labels)}
        targets: list[int] = []
        for sentence in sentences:
            if sentence.tags is None:
                targets += [NO_LABEL] * len(sentence.words)
            else:
                assert len(sentence.tags) == len(sentence.words), "one tag per word"
                targets += [numbers.get(tag, NO_LABEL) for tag in sentence.tags]
        return np.array(targets, dtype=np.int64)

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """Cross-entropy over the words with a known tag; see `TaskWithLoss.loss`."""
        import torch

        assert batch.targets is not None, "the sentences have tags"
        exact = logits if logits.dtype == torch.float64 else logits.float()
        nll = torch.nn.functional.cross_entropy(exact, batch.targets, ignore_index=NO_LABEL, reduction="sum")
        correct = (logits.detach().argmax(-1) == batch.targets).sum()
        return nll, {"nll": nll.detach(), "correct": correct, "count": (batch.targets != NO_LABEL).sum()}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence over the words with a known tag; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import divergence

        assert batch.targets is not None, "the sentences have tags"
        is_known = batch.targets != NO_LABEL
        return divergence(logits[is_known], wanted[is_known], temperature).sum()

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[TagsPrediction]:
        """The tags of each sentence; see `Task.decode`.

        With `constrained_tags`, they are the most likely sequence that the scheme allows, the words taken as
        independent. Without it, or without a scheme, each word has its most likely tag.
        """
        sentences = tagged(examples)
        words = offsets_of([len(sentence.words) for sentence in sentences])
        assert len(logits) == words[-1], "one row of logits per word"
        scaled = logits.astype(np.float64) / self.spec.temperature
        scaled -= scaled.max(axis=-1, keepdims=True)
        numbers = self._tags(scaled, words)
        tags = [self.spec.labels[number] for number in numbers.tolist()]
        chosen_only = np.take_along_axis(scaled, numbers[:, None], axis=-1)[:, 0]
        chances = (np.exp(chosen_only) / np.exp(scaled).sum(axis=-1)).tolist()
        predictions = []
        for sentence, begin, end in zip(sentences, words[:-1].tolist(), words[1:].tolist(), strict=True):
            chosen = tuple(tags[begin:end])
            spans = entity_spans(chosen, self.spec.scheme) if self.spec.scheme else []
            predictions.append(
                TagsPrediction(
                    words=sentence.words,
                    tags=chosen,
                    probabilities=tuple(chances[begin:end]),
                    entities=tuple(entity_of(sentence, *span) for span in spans),
                    offsets=sentence.offsets,
                )
            )
        return predictions

    def _tags(self, scores: npt.NDArray[np.float64], borders: Ints) -> Ints:
        """The number of the tag of each word, int64 [W], from scores [W, K] of sentences with borders [E + 1]."""
        if not (self.spec.scheme and self.spec.settings.constrained_tags):
            return np.asarray(scores.argmax(axis=-1), dtype=np.int64)
        tags, without = best_sequences(scores, borders, following_tags(self.spec.labels, self.spec.scheme))
        if len(without):
            warn(
                f"{counted(len(without), 'sentence')} without a sequence of the model's tags that {self.spec.scheme} "
                "allows: each word has its most likely tag"
            )
        return tags

    def ignored_settings(self) -> list[str]:
        """The ignored settings of `Task`, plus `constrained_tags` for tags without a scheme."""
        is_ignored = not (self.spec.scheme or self.spec.settings.constrained_tags)
        return [*super().ignored_settings(), *(["constrained_tags"] if is_ignored else [])]

    def why_ignored(self, name: str) -> str:
        """Why a setting has no effect; see `Task.why_ignored`."""
        if name == "constrained_tags":
            return "these tags have no scheme, so each word's most likely tag is answered"
        return super().why_ignored(name)

    def answer_without_model(self, example: Example) -> TagsPrediction | None:
        """The empty prediction of a sentence without words; None for all others."""
        assert isinstance(example, TaggedExample), "a tagging task takes tagged examples"
        return None if example.words else TagsPrediction(words=(), tags=(), probabilities=(), offsets=example.offsets)

    def score(self, examples: Sequence[Example], predictions: Sequence[TagsPrediction]) -> dict[str, float]:
        """Entity precision, recall and F1, and word accuracy; without a scheme only the accuracy."""
        gold = [_gold(sentence) for sentence in tagged(examples)]
        predicted = [prediction.tags for prediction in predictions]
        if self.spec.scheme:
            scores = entity_scores(gold, predicted, self.spec.scheme)
            return {name: float(scores[name]) for name in _SCORES}
        hits = [a == b for tags, others in zip(gold, predicted, strict=True) for a, b in zip(tags, others, strict=True)]
        return {"accuracy": sum(hits) / len(hits) if hits else 0.0}

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[TagsPrediction]
    ) -> npt.NDArray[np.float64]:
        """The fraction of correct tags in each sentence, float64 [E]; 1 if it has no words."""
        pairs = [
            (_gold(sentence), prediction.tags)
            for sentence, prediction in zip(tagged(examples), predictions, strict=True)
        ]
        hits = [[a == b for a, b in zip(*pair, strict=True)] for pair in pairs]
        return np.array([sum(row) / len(row) if row else 1.0 for row in hits], dtype=np.float64)

    def is_collapsed(self, predictions: Sequence[TagsPrediction], examples: Sequence[Example]) -> bool:
        """Whether every word gets the same tag although the gold tags differ."""
        gold = {tag for sentence in tagged(examples) for tag in _gold(sentence)}
        return len(gold) > 1 and len({tag for prediction in predictions for tag in prediction.tags}) == 1


def entity_of(sentence: TaggedExample, kind: str, start: int, end: int) -> Entity:
    """The entity of this type in the words from `start` to `end` of a sentence."""
    words, offsets = sentence.words[start:end], sentence.offsets
    if offsets is None:
        return Entity(type=kind, start=start, end=end, text=" ".join(words))
    gaps = [" " if offsets[word][0] > offsets[word - 1][1] else "" for word in range(start + 1, end)]
    text = words[0] + "".join(gap + word for gap, word in zip(gaps, words[1:], strict=True))
    return Entity(type=kind, start=start, end=end, text=text, characters=(offsets[start][0], offsets[end - 1][1]))


def _gold(sentence: TaggedExample) -> tuple[str, ...]:
    assert sentence.tags is not None, "sentences with tags"
    return sentence.tags


def _check_sentence(sentence: TaggedExample, gold: bool) -> None:
    if sentence.tags is None and gold:
        raise InputError(expected=f"a tag for each word in {sentence.location}", found="none", fix="add the tags")
    if sentence.tags is not None and len(sentence.tags) != len(sentence.words):
        raise InputError(
            expected=f"a tag for each word in {sentence.location}",
            found=f"{counted(len(sentence.words), 'word')} and {counted(len(sentence.tags), 'tag')}",
            fix="correct the sentence",
        )
