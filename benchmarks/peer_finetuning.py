"""The peer of `finetuning.py`: fine-tuning as in the example scripts of `transformers`, without their Trainer.

Their recipe: AdamW (weight decay 0, betas 0.9 and 0.999, epsilon 1e-8), linear decay without warm-up, clipping at norm
1, shuffled batches padded to their longest row (or all to one length), fp32, the tokenizer of the model. The peer's
predictions are scored by the same functions as ours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)

from bertsmith.tasks.specs.task import TaskSpec

CLASSES = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "choice": AutoModelForMultipleChoice,
    "tagging": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
}
IGNORED = -100
N_BEST, MAX_ANSWER = 20, 30


@dataclass
class PeerRun:
    """The result of a training run of the peer.

    Attributes:
        predictions: one per example: label number, value, ending number, tags or answer text.
        tokens: real tokens trained on.
    """

    predictions: list[Any]
    tokens: int


class Peer:
    """One task of the peer; features are computed once, before training, as in its scripts."""

    def __init__(self, model: str, spec: TaskSpec, train: Sequence[Any], dev: Sequence[Any]) -> None:
        self.model, self.spec, self.dev = model, spec, dev
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.train_features = list(self._features(train, training=True))
        self.dev_features = list(self._features(dev, training=False))

    def run(self, seed: int, *, rate: float, epochs: int, batch: int, pad_to: int | None = None) -> PeerRun:
        """Trains for all epochs and then predicts the dev examples once, like ours."""
        torch.manual_seed(seed)
        model = self._model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        per_epoch = -(-len(self.train_features) // batch)
        schedule = get_linear_schedule_with_warmup(optimizer, 0, epochs * per_epoch)
        for _ in range(epochs):
            model.train()
            order = torch.randperm(len(self.train_features)).tolist()
            for first in range(0, len(order), batch):
                self._step(model, [self.train_features[i] for i in order[first : first + batch]], pad_to)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        tokens = epochs * sum(len(row) for feature in self.train_features for row in _rows(feature))
        return PeerRun(self._predict(model, batch), tokens)

    def padded_seconds(
        self, steps: int, *, rate: float, batch: int, pad_to: int, seconds: Callable[[], float]
    ) -> tuple[float, float]:
        """Mean seconds of a training step and of an evaluation batch, with all rows padded to one length.

        Each is the mean over several repetitions, by the given clock, after one warm-up.
        """
        torch.manual_seed(0)
        model = self._model().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        order = torch.randperm(len(self.train_features)).tolist() * (steps + 1)
        training, evaluation = [], []
        for number in range(steps + 1):
            began = seconds()
            self._step(model, [self.train_features[i] for i in order[number * batch : (number + 1) * batch]], pad_to)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            training.append(seconds() - began)
        model.eval()
        rows = self.dev_features * (steps + 1)
        with torch.inference_mode():
            for number in range(steps + 1):
                began = seconds()
                model(**self._collate(rows[number * batch : (number + 1) * batch], pad_to))
                evaluation.append(seconds() - began)
        return float(np.mean(training[1:])), float(np.mean(evaluation[1:]))

    def _model(self) -> Any:
        labels = 1 if self.spec.kind == "regression" else max(len(self.spec.labels), 2)
        changes = {} if self.spec.kind in ("choice", "span") else {"num_labels": labels}
        return CLASSES[self.spec.kind].from_pretrained(self.model, ignore_mismatched_sizes=True, **changes)

    def _step(self, model: Any, features: Sequence[Mapping[str, Any]], pad_to: int | None) -> None:
        inputs = self._collate(features, pad_to)
        if self.spec.kind == "span":
            inputs["start_positions"] = torch.tensor([feature["start"] for feature in features])
            inputs["end_positions"] = torch.tensor([feature["end"] for feature in features])
        elif self.spec.kind == "tagging":
            width = inputs["input_ids"].shape[1]
            rows = [feature["labels"] + [IGNORED] * (width - len(feature["labels"])) for feature in features]
            inputs["labels"] = torch.tensor(rows)
        else:
            kind = torch.float32 if self.spec.kind == "regression" else torch.int64
            inputs["labels"] = torch.tensor([feature["labels"] for feature in features], dtype=kind)
        model(**inputs).loss.backward()

    def _collate(self, features: Sequence[Mapping[str, Any]], pad_to: int | None) -> dict[str, torch.Tensor]:
        """Rows padded to the longest of the batch, or to a fixed length."""
        rows = [row for feature in features for row in feature["rows"]]
        width = pad_to or max(len(row["input_ids"]) for row in rows)
        tensors = {}
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            padded = [row[name] + [0] * (width - len(row[name])) for row in rows]
            tensors[name] = torch.tensor(padded)
        if self.spec.kind == "choice":
            endings = len(features[0]["rows"])
            tensors = {name: tensor.view(len(features), endings, width) for name, tensor in tensors.items()}
        return tensors

    def _features(self, examples: Sequence[Any], *, training: bool) -> Iterator[dict[str, Any]]:
        length = self.spec.settings.max_length
        for example in examples:
            if self.spec.kind == "choice":
                count = len(example.endings)
                rows = self.tokenizer(
                    [example.context] * count, list(example.endings), truncation=True, max_length=length
                )
                yield {"rows": _split(rows, count), "labels": example.label}
            elif self.spec.kind == "tagging":
                row = self.tokenizer(list(example.words), is_split_into_words=True, truncation=True, max_length=length)
                words = row.word_ids()
                number = {label: index for index, label in enumerate(self.spec.labels)}
                first = [
                    word is not None and (position == 0 or words[position - 1] != word)
                    for position, word in enumerate(words)
                ]
                labels = [
                    number.get(example.tags[word], 0) if is_first else IGNORED
                    for word, is_first in zip(words, first, strict=True)
                ]
                yield {"rows": [_plain(row)], "labels": labels, "word_ids": words, "words": len(example.words)}
            elif self.spec.kind == "span":
                yield from self._question(example, length, training)
            else:
                row = self.tokenizer(example.first, example.second, truncation=True, max_length=length)
                label = example.label if self.spec.kind == "regression" else self.spec.labels.index(example.label)
                yield {"rows": [_plain(row)], "labels": label}

    def _question(self, example: Any, length: int, training: bool) -> Iterator[dict[str, Any]]:
        encoded = self.tokenizer(
            example.question,
            example.context,
            truncation="only_second",
            max_length=length,
            stride=length - 64 - 3 - self.spec.settings.stride if length > 200 else 16,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for window in range(len(encoded["input_ids"])):
            offsets, parts = encoded["offset_mapping"][window], encoded.sequence_ids(window)
            start = end = 0
            if training:
                answer = example.answers[0]
                last = answer.start + len(answer.text)
                context = [position for position, part in enumerate(parts) if part == 1]
                if offsets[context[0]][0] <= answer.start and offsets[context[-1]][1] >= last:
                    start = max(position for position in context if offsets[position][0] <= answer.start)
                    end = min(position for position in context if offsets[position][1] >= last)
            row = {name: encoded[name][window] for name in ("input_ids", "token_type_ids", "attention_mask")}
            yield {"rows": [row], "start": start, "end": end, "id": example.id, "offsets": offsets, "parts": parts}

    @torch.inference_mode()
    def _predict(self, model: Any, batch: int) -> list[Any]:
        model.eval()
        outputs: list[Any] = []
        for first in range(0, len(self.dev_features), batch):
            part = self.dev_features[first : first + batch]
            output = model(**self._collate(part, None))
            if self.spec.kind == "span":
                outputs += list(zip(output.start_logits.numpy(), output.end_logits.numpy(), strict=True))
            else:
                outputs += list(output.logits.numpy())
        if self.spec.kind == "regression":
            return [float(row[0]) for row in outputs]
        if self.spec.kind in ("classification", "choice"):
            return [int(row.argmax()) for row in outputs]
        if self.spec.kind == "tagging":
            return [self._tags(row, feature) for row, feature in zip(outputs, self.dev_features, strict=True)]
        return self._answers(outputs)

    def _tags(self, logits: np.ndarray, feature: Mapping[str, Any]) -> list[str]:
        """Tags of the first pieces; words that were truncated or have no pieces are O."""
        tags = ["O"] * feature["words"]
        for best, label, word in zip(logits.argmax(-1), feature["labels"], feature["word_ids"], strict=False):
            if label != IGNORED:
                tags[word] = self.spec.labels[best]
        return tags

    def _answers(self, outputs: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[str]:
        """The best span of each question over all its windows."""
        best: dict[str, tuple[float, str]] = {}
        context = {example.id: example.context for example in self.dev}
        for (starts, ends), feature in zip(outputs, self.dev_features, strict=True):
            for start in np.argsort(-starts)[:N_BEST]:
                for end in np.argsort(-ends)[:N_BEST]:
                    inside = max(start, end) < len(feature["parts"]) and start <= end < start + MAX_ANSWER
                    if not inside or feature["parts"][start] != 1 or feature["parts"][end] != 1:
                        continue
                    score = float(starts[start] + ends[end])
                    if score > best.get(feature["id"], (-np.inf, ""))[0]:
                        span = feature["offsets"][start][0], feature["offsets"][end][1]
                        best[feature["id"]] = score, context[feature["id"]][span[0] : span[1]]
        return [best.get(example.id, (0.0, ""))[1] for example in self.dev]


def _rows(feature: Mapping[str, Any]) -> list[list[int]]:
    return [row["input_ids"] for row in feature["rows"]]


def _plain(row: Any) -> dict[str, list[int]]:
    return {name: list(row[name]) for name in ("input_ids", "token_type_ids", "attention_mask")}


def _split(rows: Any, count: int) -> list[dict[str, list[int]]]:
    names = ("input_ids", "token_type_ids", "attention_mask")
    return [{name: list(rows[name][number]) for name in names} for number in range(count)]
