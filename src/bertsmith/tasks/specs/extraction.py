"""Extractive summaries: the sentences of a text that say most of it.

Letters: E texts (units), S sentences of all texts, N windows (rows), T tokens.

A window is [CLS] sentence [SEP] [CLS] sentence [SEP] ..., with whole sentences; a sentence alone in it that is still
too long is cut, which is counted. The head takes the mean of the tokens of each sentence, reads these vectors of all
sentences of the text by layers of its own, and gives each the probability that it is chosen.

Source: Liu and Lapata (2019), "Text Summarization with Pretrained Encoders", section 3 (BERTSUM), where the state of
[CLS] is the vector of a sentence.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.heads.head_spec import Head
from bertsmith.tasks.datasets.examples import DocumentExample, Example
from bertsmith.tasks.encoding.units import PER_POSITION, EncodedExamples, Ints, Logits
from bertsmith.tasks.metrics.extracts import best_sentences, oracle_sentences
from bertsmith.tasks.specs.predictions import ExtractPrediction
from bertsmith.tasks.specs.settings import OF_EXTRACTS
from bertsmith.tasks.specs.task import CHOSEN, EXTRACTION
from bertsmith.tasks.specs.text_answers import TaskOfTexts, check_texts_of
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Encoded, offsets_of, places_of
from bertsmith.text.tokenizers.pack import PackedRows, room_for_text
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.tasks.encoding.units import TaskBatch


class ExtractionTask(TaskOfTexts):
    """Chooses sentences of each text."""

    kind = EXTRACTION
    settings_used = frozenset({"long_text", *OF_EXTRACTS})
    baselines = CHOSEN
    settings_of_answers = ("sentences", "no_repeat_ngram")

    @property
    def head(self) -> Head:
        """A linear layer with one output for each sentence, behind layers over all of them."""
        layers = self.spec.settings.sentence_layers
        return Head(part="classifier", outputs=1, pooled=False, of_sentences=True, sentence_layers=layers)

    @property
    def _count(self) -> int:
        """The most sentences of a summary."""
        return max(1, self.spec.settings.sentences)

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that every text has sentences and, with `gold`, a target; see `Task.check`."""
        if self.spec.settings.long_text not in ("longest_first", "windows", "error"):
            limits = "windows or error"
            raise ConfigError.must_be(
                "long_text of extractive summaries, which read every sentence,", limits, self.spec.settings.long_text
            )
        for example in _documents(examples):
            if gold:
                check_texts_of(example)
            if not example.sentences:
                raise InputError.at(example.location, "a text with sentences", "none", "fill it or remove the row")

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per text, with as few windows as its sentences need; see `Task.encode`."""
        settings, documents = self.spec.settings, _documents(examples)
        counts = np.array([len(document.sentences) for document in documents], dtype=np.int64)
        sentences = encoded_texts(documents, tokenizer)
        room = room_for_text(settings.max_length, tokenizer.template, texts=1, model_limit=settings.max_length)
        tokens, lengths, cut = _with_special_tokens(sentences, room, tokenizer)
        window_of_sentence = _windows(lengths, offsets_of(counts), settings.max_length)
        per_row = np.bincount(window_of_sentence)
        first_of_row = offsets_of(per_row)[:-1]
        text_of_row = np.repeat(np.arange(len(counts)), counts)[first_of_row]
        rows = PackedRows(
            tokens,
            np.zeros_like(tokens),
            np.add.reduceat(lengths, first_of_row).astype(np.int32),
            np.add.reduceat(cut, first_of_row).astype(np.int32),
        )
        rows_per_unit = np.bincount(text_of_row, minlength=len(counts))
        if settings.long_text == "error":
            _refuse_long(documents, rows_per_unit, rows, text_of_row, settings.max_length)
        return EncodedExamples(
            rows=rows,
            rows_per_unit=rows_per_unit,
            example_of_row=text_of_row,
            read=offsets_of(lengths)[:-1],
            targets=self._targets(documents),
            targets_per=PER_POSITION,
            windows_of_first=rows_per_unit if settings.sentence_layers else None,
        )

    def _targets(self, documents: Sequence[DocumentExample]) -> npt.NDArray[np.float32] | None:
        """1 for each right sentence and 0 for others, float32 [S]; None without gold."""
        if not documents or not all(document.targets for document in documents):
            return None
        targets = []
        for document in documents:
            of_document = np.zeros(len(document.sentences), dtype=np.float32)
            of_document[list(right_sentences(document, self._count))] = 1
            targets.append(of_document)
        return np.concatenate(targets)

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """Cross-entropy of whether each sentence is right; see `TaskWithLoss.loss`."""
        import torch
        import torch.nn.functional as F

        assert batch.targets is not None, "the texts have right sentences"
        exact = (logits if logits.dtype == torch.float64 else logits.float())[:, 0]
        wanted = batch.targets.to(exact.dtype)
        loss = F.binary_cross_entropy_with_logits(exact, wanted, reduction="sum")
        correct = ((exact.detach() > 0) == (wanted > 0)).sum()
        count = torch.tensor(len(wanted), device=logits.device)
        return loss, {"nll": loss.detach(), "correct": correct, "count": count}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence of every sentence; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import binary_divergence

        return binary_divergence(logits, wanted, temperature).sum()

    def answer_without_model(self, example: Example) -> ExtractPrediction | None:
        """No sentence for a text without any."""
        (document,) = _documents([example])
        return None if document.sentences else ExtractPrediction(sentences=(), scores=())

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[ExtractPrediction]:
        """The sentences with the highest scores; see `Task.decode` and `best_sentences`."""
        documents, repeats = _documents(examples), self.spec.settings.no_repeat_ngram
        cut = np.bincount(features.example_of_row, weights=features.rows.cut_by_row, minlength=len(documents))
        borders = offsets_of([len(document.sentences) for document in documents])
        chances = 1 / (1 + np.exp(-logits[:, 0].astype(np.float64)))
        predictions = []
        for number, document in enumerate(documents):
            scores = tuple(chances[borders[number] : borders[number + 1]].tolist())
            chosen = best_sentences(scores, document.texts, self._count, repeats)
            predictions.append(ExtractPrediction.of(document, chosen, scores, int(cut[number])))
        return predictions

    def is_collapsed(self, predictions: Sequence[ExtractPrediction], examples: Sequence[Example]) -> bool:
        """Whether all sentences of every text have the same score, up to 0.0001."""
        spreads = [max(answer.scores) - min(answer.scores) for answer in predictions if answer.scores]
        several = any(len(answer.scores) > 1 for answer in predictions)
        return several and max(spreads) < 1e-4


def right_sentences(document: DocumentExample, most: int) -> tuple[int, ...]:
    """The numbers of the sentences to choose: those that the file says, or those closest to the targets."""
    if document.chosen is not None:
        return document.chosen
    return oracle_sentences(document.texts, document.targets, most)


def _documents(examples: Sequence[Example]) -> list[DocumentExample]:
    documents = [example for example in examples if isinstance(example, DocumentExample)]
    assert len(documents) == len(examples), "extractive summaries take texts in sentences"
    return documents


def _with_special_tokens(
    sentences: Encoded, room: int, tokenizer: Tokenizer
) -> tuple[npt.NDArray[np.int32], Ints, Ints]:
    """Each sentence between its special tokens: the ids int32 [T], and of each the length and what was cut, [S]."""
    start, end = (np.array(part, dtype=np.int32) for part in (tokenizer.template.start, tokenizer.template.end))
    kept = np.minimum(sentences.lengths, room)
    lengths = kept + len(start) + len(end)
    begins = offsets_of(lengths)[:-1]
    tokens = np.empty(int(lengths.sum()), dtype=np.int32)
    for number, token in enumerate(start):
        tokens[begins + number] = token
    tokens[places_of(begins + len(start), kept)] = sentences.ids[places_of(sentences.offsets[:-1], kept)]
    for number, token in enumerate(end):
        tokens[begins + len(start) + kept + number] = token
    return tokens, lengths, sentences.lengths - kept


def _windows(lengths: Ints, borders: Ints, most: int) -> Ints:
    """The window of each sentence, int64 [S], of at most `most` tokens; `borders` [E + 1] are those of the texts."""
    result, window = np.zeros(len(lengths), dtype=np.int64), -1
    for first, past in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        left = 0
        for number, length in enumerate(lengths[first:past].tolist(), start=first):
            if length > left or number == first:
                window, left = window + 1, most
            result[number], left = window, left - length
    return result


def _refuse_long(
    documents: Sequence[DocumentExample], rows_per_unit: Ints, rows: PackedRows, text_of_row: Ints, most: int
) -> None:
    """Refuses a text that takes more than one window, or in which a sentence was cut."""
    cut = np.bincount(text_of_row, weights=rows.cut_by_row, minlength=len(documents))
    too_long = np.flatnonzero((rows_per_unit > 1) | (cut > 0))
    if len(too_long):
        raise InputError.at(
            documents[int(too_long[0])].location,
            f"at most {most} tokens, special tokens included",
            "more",
            "raise max_length, or choose windows as long_text",
        )
