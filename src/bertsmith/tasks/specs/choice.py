"""Multiple choice: which of several endings fits a context. Each ending is a row with one score; softmax per example.

Letters: U examples (one unit each), N rows (the endings of all examples), K = 1 output.

Examples may have different numbers of endings.

Source: Devlin et al. (2018), section 4.4 (SWAG).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets.examples import ChoiceExample, Example
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Ints, Logits
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.settings import WINDOWED, TaskSettings
from bertsmith.tasks.specs.task import OVERLAP, TaskWithLoss
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.tasks.specs.whole_texts import require_segments
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch


class ChoiceTask(TaskWithLoss):
    """Chooses one of the endings of each example."""

    kind = "choice"
    baselines = (OVERLAP,)
    settings_used = frozenset({"long_text"})

    @property
    def head(self) -> "Head":
        """A linear layer with one output on the vector of a row: the score of an ending."""
        return self.head_on_rows(1)

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that every example has at least two endings and, with `gold`, a valid label; see `Task.check`.

        For a head that reads pairs, also that every example has a context.
        """
        _require_whole_texts(self.spec.settings)
        for example in _choices(examples):
            count = len(example.endings)
            if count < 2:
                raise InputError.at(
                    example.location, "at least two endings", str(count), "add endings or remove the row"
                )
            if self.spec.needs_segments and not example.context.strip():
                raise InputError(
                    expected=f"a context in {example.location}, for a head that reads {self.spec.reads!r}",
                    found="endings alone",
                    fix="fill it, or fine-tune with --reads mean",
                )
            if gold and (example.label is None or not 0 <= example.label < count):
                raise InputError(
                    expected=f"a label from 0 to {count - 1} in {example.location}",
                    found="none" if example.label is None else str(example.label),
                    fix="count the endings from 0",
                )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example, one row per ending: [CLS] context [SEP] ending [SEP]; see `Task.encode`.

        Without a context, a row is [CLS] ending [SEP].
        """
        settings = self.spec.settings
        _require_whole_texts(settings)
        require_segments(self.spec, tokenizer)
        choices = _choices(examples)
        counts = np.array([len(example.endings) for example in choices], dtype=np.int64)
        example_of_row = np.repeat(np.arange(len(choices)), counts)
        encoded = encoded_texts(choices, tokenizer)
        first = np.cumsum(counts + 1) - (counts + 1)  # of each example: its context
        contexts = encoded.select(first[example_of_row])
        endings = encoded.select(np.delete(np.arange(len(encoded)), first))
        if settings.long_text == "error":
            template = tokenizer.template
            special = np.where(contexts.lengths > 0, template.num_special(2), template.num_special(1))
            tokens = (contexts.lengths, endings.lengths)
            _refuse_long(choices, example_of_row, tokens, special, settings.max_length)
        rows = _pack(contexts, endings, tokenizer, settings)
        labels = [example.label for example in choices if example.label is not None]
        return EncodedExamples(
            rows=rows,
            rows_per_unit=counts,
            example_of_row=example_of_row,
            read=rows.offsets[:-1],
            targets=np.array(labels, dtype=np.int64) if labels and len(labels) == len(choices) else None,
            targets_per=PER_UNIT,
        )

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """Cross-entropy over the endings of each unit; see `TaskWithLoss.loss`.

        Args:
            logits: [n, 1], one score per row.
        """
        import torch
        import torch.nn.functional as F

        assert batch.targets is not None, "the examples have labels"
        exact = logits if logits.dtype == torch.float64 else logits.float()
        scores = _scores_of_units(exact, batch, -torch.inf)
        nll = F.cross_entropy(scores, batch.targets, reduction="sum")
        correct = (scores.detach().argmax(-1) == batch.targets).sum()
        count = torch.tensor(batch.num_units, device=logits.device)
        return nll, {"nll": nll.detach(), "correct": correct, "count": count}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence over the endings of each unit; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import NOWHERE, divergence, exact

        scores, gold = (_scores_of_units(exact(outputs), batch, NOWHERE) for outputs in (logits, wanted))
        return divergence(scores, gold, temperature).sum()

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[ChoicePrediction]:
        """One `ChoicePrediction` per example; see `Task.decode`."""
        if not len(features):
            return []
        first, counts = features.first_rows, features.rows_per_unit
        scores = logits[:, 0].astype(np.float64) / self.spec.temperature
        probabilities = np.exp(scores - np.repeat(np.maximum.reduceat(scores, first), counts))
        probabilities /= np.repeat(np.add.reduceat(probabilities, first), counts)
        cut = np.add.reduceat(features.rows.cut_by_row, first)
        predictions = []
        for example, row, lost in zip(
            _choices(examples), np.split(probabilities, first[1:]), cut.tolist(), strict=True
        ):
            best = int(row.argmax())
            predictions.append(
                ChoicePrediction(
                    index=best, probabilities=tuple(row.tolist()), text=example.endings[best], cut_tokens=lost
                )
            )
        return predictions

    def score(self, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]) -> dict[str, float]:
        """The fraction of correctly chosen endings, as "accuracy"."""
        hits = self.example_scores(examples, predictions)
        return {"accuracy": float(hits.mean()) if len(hits) else 0.0}

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[ChoicePrediction]
    ) -> npt.NDArray[np.float64]:
        """1 if the gold ending is chosen, else 0, float64 [U]."""
        pairs = zip(_choices(examples), predictions, strict=True)
        return np.array([example.label == prediction.index for example, prediction in pairs], dtype=np.float64)

    def is_collapsed(self, predictions: Sequence[ChoicePrediction], examples: Sequence[Example]) -> bool:
        """Whether the same index is chosen for every example although the gold indices differ."""
        gold = {example.label for example in _choices(examples)}
        return len(gold) > 1 and len({prediction.index for prediction in predictions}) == 1


def _scores_of_units(logits: "Tensor", batch: "TaskBatch", missing: float) -> "Tensor":
    """The scores [units, widest] of the endings of each unit, from the scores of the rows [n, 1]."""
    widest = int(batch.place_in_unit.max()) + 1
    empty = logits.new_full((batch.num_units, widest), missing)
    return empty.index_put((batch.unit_of_row, batch.place_in_unit), logits[:, 0])


def _choices(examples: Sequence[Example]) -> list[ChoiceExample]:
    choices = [example for example in examples if isinstance(example, ChoiceExample)]
    assert len(choices) == len(examples), "a choice task takes choice examples"
    return choices


def _require_whole_texts(settings: TaskSettings) -> None:
    if settings.long_text in WINDOWED:
        allowed = "what keeps each ending in one row: longest_first, head, tail, head_tail or error"
        raise ConfigError.must_be("long_text of multiple choice", allowed, settings.long_text)


def _refuse_long(
    choices: Sequence[ChoiceExample], example_of_row: Ints, tokens: tuple[Ints, Ints], special: Ints, most: int
) -> None:
    first, second = tokens
    too_long = np.flatnonzero(first + second + special > most)
    if len(too_long):
        row = int(too_long[0])
        location = choices[example_of_row[row]].location
        raise InputError(
            expected=f"a context and endings that fit into max_length {most} in {location}",
            found=f"{first[row]} tokens of context and {second[row]} of an ending",
            fix="shorten the text, raise max_length or choose another long_text",
        )


def _pack(contexts: Encoded, endings: Encoded, tokenizer: Tokenizer, settings: TaskSettings) -> PackedRows:
    """The rows of all endings in order: pairs if there is a context, single texts otherwise."""
    packed: list[PackedRows] = []
    places: list[Ints] = []
    has_context = contexts.lengths > 0
    for chosen in (np.flatnonzero(has_context), np.flatnonzero(~has_context)):
        if not len(chosen):
            continue
        texts = [endings.select(chosen)]
        if has_context[chosen[0]]:
            texts.insert(0, contexts.select(chosen))
        packed.append(
            pack_rows(
                *texts,
                template=tokenizer.template,
                max_length=settings.max_length,
                truncation=settings.long_text,  # type: ignore[arg-type]
            )
        )
        places.append(chosen)
    if len(packed) == 1:
        return packed[0]
    if not packed:
        return pack_rows([], template=tokenizer.template, max_length=settings.max_length)
    joined = PackedRows(
        np.concatenate([rows.token_ids for rows in packed]),
        np.concatenate([rows.segment_ids for rows in packed]),
        np.concatenate([rows.lengths for rows in packed]),
        np.concatenate([rows.cut_by_row for rows in packed]),
    )
    return joined.select(np.argsort(np.concatenate(places)))
