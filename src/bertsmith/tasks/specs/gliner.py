"""Entities by name as a model of GLiNER reads them: its row, its words, its scores.

Letters: W words of a row, K labels, P spans, H units, R positions that the head reads.

A row is one text, `[CLS] <<ENT>> person <<ENT>> product <<SEP>> words [SEP]`. The head, `heads/span_layers.py`, reads
the piece in front of each label and the first pieces of the words. A plain text is split into runs of letters and
digits, which hyphens and underscores may join, and single other characters. The description of a label replaces its
name.

At the token level, a word has three scores for each label: as the first, the last and any word of an entity. A span has
the lowest of those of its words, so an entity may have any number of words of its row.

A row has at most as many words as the configuration says. `gliner` leaves out what follows; here a longer text is read
in windows, and a span is scored in the window of its first word. A word without pieces, such as a zero-width space, is
left out; `gliner` reads the word after it in its place.

Source: `UniEncoderSpanProcessor`, `WhitespaceTokenSplitter`, `SpanDecoder` and `TokenDecoder` of the package `gliner`.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bertsmith.base.core.settings import require
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.part_names import READER
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample
from bertsmith.tasks.specs.named_entities import NamedEntitiesTask, Row, products
from bertsmith.tasks.specs.nested_entities import Scored, Spans
from bertsmith.tasks.specs.predictions import EntitiesPrediction
from bertsmith.tasks.specs.sentence_windows import sentence_windows, tagged
from bertsmith.tasks.specs.task import GlinerShape
from bertsmith.text.tokenizers.encoded import Encoded, Ids
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows, room_for_text
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Tokenizer

_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")


class GlinerTask(NamedEntitiesTask):
    """Finds the spans of words that are entities of named labels, with a model of GLiNER."""

    @property
    def head(self) -> Head:
        """The layers that GLiNER has on an encoder."""
        return Head(part=READER, outputs=0, pooled=False, spans=self._shape)

    @property
    def _shape(self) -> GlinerShape:
        assert self.spec.gliner is not None, "a model of GLiNER"
        return self.spec.gliner

    def labels_of(self, sentence: TaggedExample) -> tuple[str, ...]:
        """See `NamedEntitiesTask.labels_of`; the model itself has none."""
        labels = super().labels_of(sentence)
        require(
            len(labels) > 0,
            expected="labels to look for, because a model of GLiNER has none of its own",
            found="none",
            fix="name them, such as person,city",
        )
        return labels

    def tokens_of_rows(self, example: Any, template: Template) -> list[int]:
        """The tokens of each of its windows; see `Task.tokens_of_rows`."""
        around = template.num_special(1) + 1 + example.tokens_of_labels
        labels = [np.zeros(example.tokens_of_labels, dtype=np.int32)]
        rows = self._windows(0, (), labels, example.pieces, template)
        return [around + len(row.of_words) for row in rows] or [around]

    def _text_of(self, label: str, description: str) -> str:
        return description or label

    def _pieces_of_labels(self, texts: Sequence[str], tokenizer: Tokenizer) -> Encoded:
        return tokenizer.encode_batch(texts, special_tokens="own")

    def _marked(self, ids: Ids, tokenizer: Tokenizer) -> Ids:
        require(
            self._shape.label_id not in ids,
            expected=f"names of labels without {tokenizer.vocabulary.pieces[self._shape.label_id]}",
            found="one with it",
            fix="rename it",
        )
        return np.append(np.int32(self._shape.label_id), ids)

    def _sentences(self, examples: Sequence[Example], tokenizer: Tokenizer) -> list[TaggedExample]:
        """See `NamedEntitiesTask`; of plain texts those words of GLiNER that have pieces, if any has."""
        sentences = [_in_words(sentence) for sentence in tagged(examples)]
        words = list(dict.fromkeys(word for each in sentences if each.text is not None for word in each.words))
        counts = tokenizer.encode_words(words).lengths.tolist() if words else []
        without = {word for word, count in zip(words, counts, strict=True) if not count}
        return [_without(sentence, without) for sentence in sentences] if without else sentences

    def _room(self, template: Template) -> int:
        longest = self.spec.settings.max_length
        return room_for_text(longest, template, texts=1, model_limit=longest) - 1

    def _windows(
        self, number: int, labels: tuple[str, ...], asked: Sequence[Ids], pieces: Encoded, template: Template
    ) -> Iterator[Row]:
        """The rows of a sentence, of as many words as all of them can have."""
        of_labels = np.concatenate(asked)
        room, starts = self._room(template) - len(of_labels), pieces.offsets
        places = np.arange(len(pieces))
        fitting = np.searchsorted(starts, starts[:-1] + room, side="right") - 1 - places
        most = max(1, min(self._shape.words, *fitting[starts[-1] - starts[:-1] > room].tolist(), len(pieces)))
        cut, before = sentence_windows(np.array([0, len(pieces)]), most, self.spec.settings.stride), -1
        for begin, end, last in zip(cut.begins.tolist(), cut.ends.tolist(), cut.last_scored.tolist(), strict=True):
            inside = places[begin:end]
            window, firsts = pieces.ids[starts[begin] : starts[end]][:room], starts[begin:end] - starts[begin]
            masks = [int(mask) for mask in np.cumsum([0, *map(len, asked)])[:-1]]
            yield Row(number, labels, of_labels, window, masks, firsts, (inside > before) & (inside <= last), begin)
            before = last

    def _joined(self, rows: Sequence[Row], template: Template) -> PackedRows:
        """The labels, the separator and the words of each row as one text."""
        longest, separator = self.spec.settings.max_length, [np.int32(self._shape.separator_id)]
        texts = [np.concatenate([row.of_labels, separator, row.of_words]) for row in rows]
        return pack_rows(texts, template=template, max_length=longest, truncation="error", model_limit=longest)

    def _first_word(self, row: Row, template: Template) -> int:
        return len(template.start) + len(row.of_labels) + 1

    def _scores(self, outputs: Any, spans: Spans, labels: int) -> Any:
        """The scores [P, K] of spans of a row, from the outputs of its labels and words, [R, 2H] or [R, 3M]."""
        if self._shape.labels:
            return _lowest(outputs[labels:, : 3 * labels].reshape(-1, labels, 3), spans)
        units = outputs.shape[1] // 2
        return products(outputs[:labels, :units], outputs[labels:], spans) + outputs[:labels, units]

    def prediction(self, sentence: TaggedExample, candidates: Iterable[Scored]) -> EntitiesPrediction:
        """See `EntitiesTask`; at the token level, spans share scores, and the order of `gliner` decides among them."""
        if self._shape.labels:
            places = {label: number for number, label in enumerate(self.labels_of(sentence))}
            candidates = sorted(candidates, key=lambda each: (each[0].start, places[each[0].label], each[0].end))
        return super().prediction(sentence, candidates)

    def _chances(self, scores: Any) -> Any:
        """See `EntitiesTask`; in fp32, so that the same ones are equal to 1 as there, of which the first counts."""
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-scores.astype(np.float32)))


def _lowest(scores: Any, spans: Spans) -> Any:
    """The lowest score of each span for each label [P, K], from three of each word [W, K, 3]; arrays or tensors."""
    lower: Any = np.minimum
    if not isinstance(scores, np.ndarray):
        import torch

        lower = torch.minimum
    lengths = spans.lasts - spans.firsts + 1
    result = lower(scores[spans.firsts, :, 0], scores[spans.lasts, :, 1])
    of_runs, run = scores[..., 2], 1  # the lowest score of as many words as `run`
    while len(lengths) and run <= lengths.max():
        several = np.flatnonzero((lengths >= run) & (lengths < 2 * run))
        firsts, lasts = spans.firsts[several], spans.lasts[several]
        result[several] = lower(result[several], lower(of_runs[firsts], of_runs[lasts - run + 1]))
        of_runs, run = lower(of_runs[:-run], of_runs[run:]), 2 * run
    return result


def _in_words(sentence: TaggedExample) -> TaggedExample:
    """The sentence in the words of GLiNER, if it is a plain text whose entities are to be found."""
    if sentence.text is None or sentence.pieces is not None or isinstance(sentence, EntityExample):
        return dataclasses.replace(sentence, text=None)
    matches = list(_WORD.finditer(sentence.text))
    offsets = tuple(match.span() for match in matches)
    return dataclasses.replace(sentence, words=tuple(match.group() for match in matches), offsets=offsets)


def _without(sentence: TaggedExample, words: set[str]) -> TaggedExample:
    """The sentence without some words, unless it has no others."""
    kept = [n for n, word in enumerate(sentence.words) if word not in words]
    if sentence.text is None or not kept or len(kept) == len(sentence.words):
        return sentence
    assert sentence.offsets is not None, "a plain text"
    return dataclasses.replace(
        sentence, words=tuple(sentence.words[n] for n in kept), offsets=tuple(sentence.offsets[n] for n in kept)
    )
