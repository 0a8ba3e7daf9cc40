"""Entities with labels that are only named: a row has the names of some labels, then the words of a sentence.

Letters: W words of a row, P spans, K labels of a row, H units, R positions that the head reads.

A model reads `[CLS] person [MASK] product [MASK] [SEP] words [SEP]`: each label is known by its name, perhaps with a
description, and the hidden state of the mask behind it is its own. The head is a linear layer on the masks and on the
first pieces of the words. Of a word it gives H units as the first word of an entity, and H as the last one; of a mask,
the weights of the H units and a bias. The score of a span for a label is the product of its weights with the rectified
sum of the units of the first and the last word, divided by the root of H, plus its bias. A sigmoid gives the
probability. No number of the model belongs to a label, so it can be asked for labels that it was not trained on.

In training, a sentence is read with several draws of labels: those of its entities, some of which are left out, and
others of the same file, whose entities it would have if there were any. Rows of a long sentence are windows; a span is
scored in the window of its first word.

Source: Zaratiana et al. (2024), "GLiNER: Generalist Model for Named Entity Recognition using Bidirectional
Transformer".
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample
from bertsmith.tasks.datasets.label_spelling import in_words
from bertsmith.tasks.encoding.units import NO_LABEL, PER_POSITION, EncodedExamples, Ints, Logits
from bertsmith.tasks.specs.nested_entities import RARITY, EntitiesTask, Spans, gold_of, yes_or_no_loss
from bertsmith.tasks.specs.predictions import EntitiesPrediction
from bertsmith.tasks.specs.sentence_windows import sentence_windows, tagged
from bertsmith.tasks.specs.task import BY_NAME
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Encoded, Ids
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows, room_for_text
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch

_UNITS = 256  # H
_DRAWS = 4  # of labels for each sentence in training
_MOST_DRAWN = 16  # labels of a draw
_LEFT_OUT = 0.2  # share of the labels of a sentence that a draw is without
_UNDESCRIBED = 0.5  # share of the labels with a description that a draw has without it
_SHARE = 3, 4  # of a row that labels may fill
_MOST_LABELS = 10_000  # of a row, in the numbers of targets
LABEL, SCORED, CONTEXT = range(3)  # what a position is of: a label, a word whose spans are scored, another word
_KINDS, _LABELS, _FIRSTS = "kinds", "labels", "first words"  # in `EncodedExamples.extra`

Prompts = Mapping[tuple[str, bool], Ids]


class Row(NamedTuple):
    """The labels and a window of words of a sentence, with the positions that are read, from the start of each text."""

    sentence: int
    labels: tuple[str, ...]
    of_labels: Ids
    of_words: Ids
    masks: list[int]
    firsts: Ints
    is_scored: Any
    first_word: int


class NamedEntitiesTask(EntitiesTask):
    """Finds the spans of words that are entities of labels, which a caller may name."""

    kind = BY_NAME
    settings_used = frozenset({"stride", "entity_words", "overlap", "tune_threshold"})
    epochs_count_examples = True

    @property
    def head(self) -> "Head":
        """A linear layer on the hidden states of masks and words."""
        return self.head_on_tokens("classifier", 3 * _UNITS + 1)

    def _check_labels(self, sentences: Sequence[TaggedExample], *, training: bool) -> None:
        # Those of a file need not be labels of the model.
        without = [sentence for sentence in sentences if not _labels_of_file(sentence)]
        super()._check_labels(without, training=training)

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The sentences with the pieces of their words and the number of those of labels; see `Task.tokenized`."""
        sentences = self._sentences(examples, tokenizer)
        prompts = self._prompts(sentences, tokenizer)
        return [
            dataclasses.replace(sentence, tokens_of_labels=sum(len(ids) for ids in self._asked(sentence, prompts)))
            for sentence in super().tokenized(sentences, tokenizer, known)
        ]

    def tokens_of_rows(self, example: Any, template: Template) -> list[int]:
        """The tokens of each of its windows; see `Task.tokens_of_rows`."""
        room = self._room(template) - example.tokens_of_labels
        cut = sentence_windows(np.array([0, len(example.pieces.ids)]), room, self.spec.settings.stride)
        around = self.spec.settings.max_length - room
        return [around + count for count in (cut.ends - cut.begins).tolist()] or [around]

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """Each row one unit; see `Task.encode`.

        A row of training has the labels of a draw, any other all labels: those of the file of the sentence or, without
        any, those of the spec. The first number of a position in the targets, int64 [R, 1 + M], says what it is, as in
        `extra`; the others of a word are entities that begin with it: the words that follow in it times a constant,
        plus the place of its label in the row.
        """
        sentences = self._sentences(examples, tokenizer)
        words = encoded_texts(sentences, tokenizer).split(len(sentence.words) for sentence in sentences)
        prompts = self._prompts(sentences, tokenizer)
        rows: list[Row] = []
        for number, (sentence, pieces) in enumerate(zip(sentences, words, strict=True)):
            draws = [self._drawn(sentence, number, draw, prompts) for draw in range(_DRAWS)] if training else [None]
            for drawn in draws:
                asked = self._asked(sentence, prompts) if drawn is None else [prompts[label] for label in drawn]
                names = self.labels_of(sentence) if drawn is None else tuple(label for label, _ in drawn)
                rows += self._windows(number, names, asked, pieces, tokenizer.template)
        return self._packed(rows, sentences, tokenizer)

    def labels_of(self, sentence: TaggedExample) -> tuple[str, ...]:
        """The labels that a sentence is read with outside training."""
        return _labels_of_file(sentence) or self.spec.labels

    def _asked(self, sentence: TaggedExample, prompts: Prompts) -> list[Ids]:
        """The pieces of all labels of a sentence, with their descriptions."""
        return [prompts[label, True] for label in self.labels_of(sentence)]

    def _prompts(self, sentences: Sequence[TaggedExample], tokenizer: Tokenizer) -> Prompts:
        """The pieces of each label and its mask, with and without its description."""
        descriptions = dict(zip(self.spec.labels, self.spec.descriptions, strict=False))
        sets = dict.fromkeys(self.labels_of(sentence) for sentence in sentences)
        labels = list(dict.fromkeys(label for of_file in (self.spec.labels, *sets) for label in of_file))
        most = self._room(tokenizer.template) * _SHARE[0] // _SHARE[1]
        prompts: dict[tuple[str, bool], Ids] = {}
        for is_described in (False, True):
            texts = [self._text_of(label, descriptions.get(label, "") if is_described else "") for label in labels]
            for label, ids in zip(labels, self._pieces_of_labels(texts, tokenizer), strict=True):
                if not len(ids):  # of control characters alone, say
                    raise InputError(
                        expected="names of labels in pieces", found=f"{label!r} without any", fix="rename it"
                    )
                prompts[label, is_described] = self._marked(ids, tokenizer)
        for of_file in sets:
            total = sum(len(prompts[label, True]) for label in of_file)
            if total > most:
                raise InputError(
                    expected=f"labels of at most {most} pieces, which leave room for words among the "
                    f"{self.spec.settings.max_length} of a row",
                    found=f"{counted(len(of_file), 'label')} of {total:,} pieces",
                    fix="name fewer at a time, shorten the descriptions, or train with a larger --max-length",
                )
        return prompts

    def _text_of(self, label: str, description: str) -> str:
        """What is read for a label."""
        return f"{in_words(label)}: {description}" if description else in_words(label)

    def _pieces_of_labels(self, texts: Sequence[str], tokenizer: Tokenizer) -> Encoded:
        """The pieces of texts for labels."""
        return tokenizer.encode_batch(texts)

    def _marked(self, ids: Ids, tokenizer: Tokenizer) -> Ids:
        """The pieces of a label with the one that is read of it."""
        return np.append(ids, np.int32(tokenizer.vocabulary.mask_id))

    def _sentences(self, examples: Sequence[Example], tokenizer: Tokenizer) -> list[TaggedExample]:
        """The sentences in the words that the model reads."""
        return tagged(examples)

    def _drawn(self, sentence: TaggedExample, number: int, draw: int, prompts: Prompts) -> list[tuple[str, bool]]:
        """The labels of a draw, as many as fit, and whether they have their descriptions.

        Of a file with a single label, the labels of the other files are drawn too: nothing else says that it matters.
        """
        random = generator(self.seed, "labels of a sentence", number, draw)
        labels = self.labels_of(sentence)
        pool = labels if len(labels) > 1 else self.spec.labels
        gold = [label for label in dict.fromkeys(span.label for span in gold_of(sentence)) if label in pool]
        others = [label for label in pool if label not in gold]
        chosen = [label for label in gold if random.random() >= _LEFT_OUT]
        count = random.integers(max(0, min(len(others), _MOST_DRAWN - len(chosen))) + 1)
        chosen += [others[index] for index in random.permutation(len(others))[:count].tolist()]
        chosen = chosen or [pool[random.integers(len(pool))]]
        room, drawn = self.spec.settings.max_length * _SHARE[0] // _SHARE[1], list[tuple[str, bool]]()
        for index in random.permutation(len(chosen)).tolist():
            label = chosen[index], bool(random.random() >= _UNDESCRIBED)
            room -= len(prompts[label])
            if room >= 0 or not drawn:
                drawn.append(label)
        return drawn

    def _room(self, template: Template) -> int:
        """The pieces of labels and words in a row."""
        longest = self.spec.settings.max_length
        return room_for_text(longest, template, texts=2, model_limit=longest)

    def _windows(
        self, number: int, labels: tuple[str, ...], asked: Sequence[Ids], pieces: Encoded, template: Template
    ) -> Iterator[Row]:
        """The rows of a sentence with these labels, in which some words are scored."""
        of_labels = np.concatenate(asked)
        room = self._room(template) - len(of_labels)
        cut = sentence_windows(np.array([0, len(pieces.ids)]), room, self.spec.settings.stride)
        masks = (np.cumsum([len(ids) for ids in asked]) - 1).tolist()
        firsts, before = pieces.offsets[:-1], -1
        for begin, end, last in zip(cut.begins.tolist(), cut.ends.tolist(), cut.last_scored.tolist(), strict=True):
            inside = np.flatnonzero((firsts >= begin) & (firsts < end))
            is_scored = (firsts[inside] > before) & (firsts[inside] <= last)
            before = last
            if is_scored.any():
                window, starts = pieces.ids[begin:end], firsts[inside] - begin
                yield Row(number, labels, of_labels, window, masks, starts, is_scored, int(inside[0]))

    def _packed(self, rows: Sequence[Row], sentences: Sequence[TaggedExample], tokenizer: Tokenizer) -> EncodedExamples:
        template = tokenizer.template
        packed = self._joined(rows, template)
        read, kinds, targets = [], [], list[list[int]]()
        has_gold = bool(rows) and all(isinstance(sentence, EntityExample) for sentence in sentences)
        for row, offset in zip(rows, packed.offsets[:-1].tolist(), strict=True):
            words = offset + self._first_word(row, template)
            read += [np.array(row.masks) + offset + len(template.start), row.firsts + words]
            kinds += [np.full(len(row.masks), LABEL), np.where(row.is_scored, SCORED, CONTEXT)]
            if has_gold:
                targets += [[] for _ in row.masks]
                targets += self._entities(row, cast("EntityExample", sentences[row.sentence]))
        every = np.concatenate(kinds) if kinds else np.zeros(0, dtype=np.int64)
        values = None
        if has_gold:
            values = np.full((len(every), 1 + max(map(len, targets))), NO_LABEL, dtype=np.int64)
            values[:, 0] = every
            for value, of_word in zip(values, targets, strict=True):
                value[1 : 1 + len(of_word)] = of_word
        return EncodedExamples(
            rows=packed,
            rows_per_unit=np.ones(len(rows), dtype=np.int64),
            example_of_row=np.array([row.sentence for row in rows], dtype=np.int64),
            read=np.concatenate(read) if read else np.zeros(0, dtype=np.int64),
            targets=values,
            targets_per=PER_POSITION,
            extra={
                _KINDS: every,
                _LABELS: [row.labels for row in rows],
                _FIRSTS: [row.first_word for row in rows],
            },
        )

    def _joined(self, rows: Sequence[Row], template: Template) -> PackedRows:
        """The labels of each row, and its words as a second text."""
        longest = self.spec.settings.max_length
        return pack_rows(
            [row.of_labels for row in rows],
            [row.of_words for row in rows],
            template=template,
            max_length=longest,
            truncation="error",
            model_limit=longest,
        )

    def _first_word(self, row: Row, template: Template) -> int:
        """The position of the first word in a row."""
        return template.second_text(len(row.of_labels))

    def _entities(self, row: Row, sentence: EntityExample) -> list[list[int]]:
        """The numbers of the entities that begin with each word of a row, if it is scored there."""
        places = {label: number for number, label in enumerate(row.labels)}
        of_words: list[list[int]] = [[] for _ in row.firsts]
        for start, end, label in gold_of(sentence):
            word, length = start - row.first_word, end - start
            is_scored = 0 <= word < len(of_words) and row.is_scored[word]
            if is_scored and label in places and length <= self.spec.settings.entity_words:
                of_words[word].append((length - 1) * _MOST_LABELS + places[label])
        return of_words

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """The cross-entropy of each yes or no, summed over spans and labels of their rows; see `TaskWithLoss.loss`."""
        import torch

        assert batch.targets is not None, "the sentences have entities"
        parts, golds, begin = [], [], 0
        of_rows = self._scores_of_rows(logits, batch)
        targets = batch.targets.cpu().numpy()
        for scores, spans, labels in of_rows:
            numbers = targets[begin + labels : begin + labels + len(spans.counts), 1:]
            words, columns = np.nonzero(numbers >= 0)
            length, asked = np.divmod(numbers[words, columns], _MOST_LABELS)
            inside = length < spans.counts[words]
            gold = np.zeros(scores.shape, dtype=np.float32)
            gold[(spans.offsets[words] + length)[inside], asked[inside]] = 1.0
            parts.append(scores.flatten())
            golds.append(torch.from_numpy(gold.reshape(-1)))
            begin += labels + len(spans.counts)
        scores = torch.cat(parts)
        return yes_or_no_loss(scores, torch.cat(golds).to(scores), len(targets))

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence of each yes or no, summed over the spans and labels; see `TaskWithLoss.soft_loss`."""
        import torch

        from bertsmith.tasks.specs.soft_targets import binary_divergence

        scores, gold = (
            torch.cat([part.flatten() for part, _, _ in self._scores_of_rows(outputs, batch)])
            for outputs in (logits, wanted)
        )
        return binary_divergence(scores[:, None], gold[:, None], temperature).sum()

    def _scores_of_rows(self, logits: "Tensor", batch: "TaskBatch") -> "list[tuple[Tensor, Spans, int]]":
        """Of each row the scores [P, K] of its spans, in at least fp32, the spans, and K."""
        from bertsmith.tasks.specs.soft_targets import exact

        assert batch.read is not None, "masks and words are read"
        assert batch.targets is not None, "which say what is read"
        kinds, begin, result = batch.targets[:, 0].cpu().numpy(), 0, []
        outputs = exact(logits)
        for count in batch.read.counts:
            part = slice(begin, begin + count)
            spans, labels = self._spans(kinds[part])
            result.append((self._scores(outputs[part], spans, labels), spans, labels))
            begin += count
        return result

    def _spans(self, kinds: Ints) -> tuple[Spans, int]:
        """The spans of a row that are scored in it, and the number of its labels, from what its positions are."""
        labels = int((kinds == LABEL).sum())
        every = Spans.within((len(kinds) - labels,), self.spec.settings.entity_words)
        return every.beginning_with(kinds[labels:] == SCORED), labels

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[EntitiesPrediction]:
        """The entities of each sentence; see `Task.decode` and `EntitiesTask.decode`."""
        sentences, offsets = self._sentences(examples, tokenizer), features.read_offsets.tolist()
        kinds, labels, firsts = (cast("Any", features.extra[name]) for name in (_KINDS, _LABELS, _FIRSTS))
        candidates: list[Any] = [[] for _ in sentences]
        for row, example in enumerate(features.example_of_row.tolist()):
            part = slice(offsets[row], offsets[row + 1])
            spans, count = self._spans(kinds[part])
            scores = functools.partial(self._scores, logits[part].astype(np.float64), labels=count)
            candidates[example] += self._probable(spans, scores, labels[row], firsts[row])
        return [self.prediction(sentence, scored) for sentence, scored in zip(sentences, candidates, strict=True)]

    def _scores(self, outputs: Any, spans: Spans, labels: int) -> Any:
        """The scores [P, K] of spans of a row, from the outputs of its labels and words, [R, 3H + 1]."""
        units = (outputs.shape[1] - 1) // 3
        of_labels, of_words = outputs[:labels, 2 * units :], outputs[labels:, : 2 * units]
        return products(of_labels[:, :units], of_words, spans) / units**0.5 + of_labels[:, -1] - RARITY


def products(of_labels: Any, of_words: Any, spans: Spans) -> Any:
    """The products [P, K] of the weights of labels [K, H] with the rectified units of spans; arrays or tensors.

    Args:
        of_words: of each word its units as the first and as the last word of a span, [W, 2H].
    """
    units = of_labels.shape[1]
    sums = of_words[spans.firsts, :units] + of_words[spans.lasts, units:]
    return (sums * (sums > 0)) @ of_labels.T


def _labels_of_file(sentence: TaggedExample) -> tuple[str, ...]:
    return sentence.labels if isinstance(sentence, EntityExample) else ()
