"""Multiple choice: which of several endings fits a context. Each ending is a row with one score; softmax per example.

Letters: U examples (one unit each), N rows (the endings of all examples), K = 1 output.

Examples may have different numbers of endings.

Source: Devlin et al. (2018), section 4.4 (SWAG).
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import ChoiceExample, Example
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Ints, Logits
from bertsmith.tasks.specs.candidates import ChoosingTask, choices_of, require_whole_texts, rows_in_order
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.selection import SelectionTask
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import Task, TaskWithLoss
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.tasks.specs.whole_texts import require_segments
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch


class ChoiceTask(ChoosingTask, TaskWithLoss):
    """Chooses one of the endings of each example."""

    kind = "choice"
    settings_used = frozenset({"long_text", "scorer"})

    @property
    def head(self) -> "Head":
        """A linear layer with one output on the vector of a row: the score of an ending."""
        return self.head_on_rows(1)

    def of_vectors(self) -> Task:
        """Of a ranking, the task that ranks the same examples by vectors; see `Task.of_vectors`."""
        if not self.spec.ranks:
            return self
        return SelectionTask(dataclasses.replace(self.spec, kind=SelectionTask.kind, reads="mean", bilstm_layers=""))

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks the number of endings and the labels; for a head that reads pairs, that every example has a context.

        See `Task.check`.
        """
        for example in choices_of(examples) if self.spec.needs_segments else ():
            if not example.context.strip():
                raise InputError(
                    expected=f"a context in {example.location}, for a head that reads {self.spec.reads!r}",
                    found="endings alone",
                    fix="fill it, or fine-tune with --reads mean",
                )
        super().check(examples, gold=gold, training=training)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example, one row per ending: [CLS] context [SEP] ending [SEP]; see `Task.encode`.

        Without a context, a row is [CLS] ending [SEP].
        """
        settings = self.spec.settings
        require_whole_texts(self.spec)
        require_segments(self.spec, tokenizer)
        choices = choices_of(examples)
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
        scores = scores_of_units(exact, batch, -torch.inf)
        nll = F.cross_entropy(scores, batch.targets, reduction="sum")
        correct = (scores.detach().argmax(-1) == batch.targets).sum()
        count = torch.tensor(batch.num_units, device=logits.device)
        return nll, {"nll": nll.detach(), "correct": correct, "count": count}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence over the endings of each unit; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import NOWHERE, divergence, exact

        scores, gold = (scores_of_units(exact(outputs), batch, NOWHERE) for outputs in (logits, wanted))
        return divergence(scores, gold, temperature).sum()

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[ChoicePrediction]:
        """One `ChoicePrediction` per example; see `Task.decode`."""
        if not len(features):
            return []
        scores = logits[:, 0].astype(np.float64) / self.spec.temperature
        return self.predictions(examples, scores, np.add.reduceat(features.rows.cut_by_row, features.first_rows))


def scores_of_units(logits: "Tensor", batch: "TaskBatch", missing: float) -> "Tensor":
    """The scores [units, widest] of the endings of each unit, from the scores of the rows [n, 1]."""
    widest = int(batch.place_in_unit.max()) + 1
    empty = logits.new_full((batch.num_units, widest), missing)
    return empty.index_put((batch.unit_of_row, batch.place_in_unit), logits[:, 0])


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
    if not packed:
        return pack_rows([], template=tokenizer.template, max_length=settings.max_length)
    return rows_in_order(packed, places)
