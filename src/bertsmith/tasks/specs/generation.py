"""Texts to write: a summary, a reply, a translation, a tree in brackets, or any other text for a source text.

Letters: U examples (one unit each), N rows (the sources), T tokens of all targets, V vocabulary.

A unit is a source row and, with gold, a target row. The loss is the cross-entropy of each piece of the target given the
pieces before it, the end included. The answers come from a search (`tasks.encoding.generation`), so what `decode` gets
in place of logits are texts as numbers.

Source: Vaswani et al. (2017), section 5; Szegedy et al. (2016), "Rethinking the Inception Architecture", section 7, for
label smoothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.settings import require
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.part_names import DECODER
from bertsmith.tasks.datasets.examples import Example, SequenceExample
from bertsmith.tasks.encoding.units import PER_PIECE, EncodedExamples, Logits
from bertsmith.tasks.encoding.writing import Writing
from bertsmith.tasks.metrics.texts import is_same
from bertsmith.tasks.specs.predictions import TextPrediction
from bertsmith.tasks.specs.settings import OF_WRITING, WINDOWED, TaskSettings
from bertsmith.tasks.specs.task import GENERATION
from bertsmith.tasks.specs.text_answers import TaskOfTexts, check_texts_of, sequences_of
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.tasks.specs.written_forms import WrittenForm, form_of_texts
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.tasks.encoding.units import TaskBatch


class GenerationTask(TaskOfTexts):
    """Writes a text for each source."""

    kind = GENERATION
    settings_used = frozenset({"long_text", *OF_WRITING})

    @property
    def _form(self) -> WrittenForm:
        """How the texts are spelled."""
        return form_of_texts(self.spec.name)

    @property
    def settings_of_answers(self) -> tuple[str, ...]:
        """See `Task.settings_of_answers`."""
        return tuple(name for name in OF_WRITING if name not in ("label_smoothing", "copy", *self._form.unread))

    @property
    def baselines(self) -> tuple[str, ...]:
        """See `Task.baselines`."""
        return self._form.baselines

    @property
    def head(self) -> Head:
        """A decoder."""
        spec = self.spec
        return Head(
            part=DECODER,
            outputs=0,
            pooled=False,
            layers_of_decoder=spec.decoder_layers,
            shares_layers=spec.shares_layers,
            copies=spec.settings.copy,
        )

    def ignored_settings(self) -> list[str]:
        """The ignored settings of `Task`, and those that a guide takes the place of."""
        plain, settings = TaskSettings(), self.spec.settings
        unread = [name for name in self._form.unread if getattr(settings, name) != getattr(plain, name)]
        return [*super().ignored_settings(), *unread]

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that every example has a source and, with `gold`, a target; see `Task.check`."""
        require(
            self.spec.settings.long_text not in WINDOWED,
            expected="a long_text that keeps each source in one row",
            found=repr(self.spec.settings.long_text),
            fix="choose longest_first, head, tail, head_tail or error",
        )
        for example in sequences_of(examples):
            if gold:
                check_texts_of(example)
                self._form.check(example)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example, [CLS] source [SEP], and the first target between the same tokens; see `Task.encode`."""
        settings, sequences = self.spec.settings, sequences_of(examples)
        sources = encoded_texts(sequences, tokenizer)
        rows = pack_rows(
            sources,
            template=tokenizer.template,
            max_length=settings.max_length,
            truncation=settings.long_text,  # type: ignore[arg-type]
            model_limit=settings.max_length,
        )
        targets = self._targets(sequences, tokenizer, training=training)
        return EncodedExamples(
            rows=rows,
            rows_per_unit=np.ones(len(rows), dtype=np.int64),
            example_of_row=np.arange(len(rows)),
            read=rows.offsets[:-1],
            targets=None if targets is None else targets.token_ids,
            targets_per=PER_PIECE,
            target_rows=targets,
            writing=self._writing(tokenizer),
            guides=self._form.guides([example.source for example in sequences], self.spec.labels, tokenizer),
        )

    def _targets(
        self, examples: Sequence[SequenceExample], tokenizer: Tokenizer, *, training: bool
    ) -> PackedRows | None:
        """The first target of each example as a row; one that is too long has no end, so that none is learned there."""
        if not examples or not all(example.targets for example in examples):
            return None
        encoded = self._form.encoded([example.targets[0] for example in examples], tokenizer)
        template, longest = tokenizer.template, self.spec.settings.max_target_length
        if training:
            self._form.require_spelling(self.spec.labels, tokenizer)
        kept = np.minimum(encoded.lengths, longest)
        cut = encoded.lengths - kept
        several = sum(len(example.targets) > 1 for example in examples)
        if training and several:
            have = "has" if several == 1 else "have"
            tell(f"{counted(several, 'example')} {have} several targets; the first one is learned")
        if training and cut.any():
            warn(
                f"{counted(int((cut > 0).sum()), 'target')} of {len(examples):,} cut, with more than {longest} pieces; "
                "raise --max-target-length to read all of them"
            )
        start, end = (np.array(part[:1], dtype=np.int32) for part in (template.start, template.end))
        parts = [
            (start, ids[:count], end if not lost else end[:0])
            for ids, count, lost in zip(encoded, kept.tolist(), cut.tolist(), strict=True)
        ]
        tokens = np.concatenate([part for of_row in parts for part in of_row])
        lengths = (kept + 2 - (cut > 0)).astype(np.int32)
        return PackedRows(tokens, np.zeros_like(tokens), lengths, cut.astype(np.int32))

    def _writing(self, tokenizer: Tokenizer) -> Writing:
        settings = self.spec.settings
        return Writing.with_pieces_of(
            tokenizer,
            longest=settings.max_target_length,
            shortest=settings.min_target_length,
            beam=settings.beam,
            length_penalty=settings.length_penalty,
            no_repeat_ngram=settings.no_repeat_ngram,
            answers=settings.answers,
        )

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """Cross-entropy of every piece of the targets, with smoothed labels; see `TaskWithLoss.loss`.

        Args:
            logits: [T, V], of the piece that follows each token of the targets.
        """
        import torch
        import torch.nn.functional as F

        assert batch.targets is not None, "the examples have targets"
        exact = logits if logits.dtype == torch.float64 else logits.float()
        smoothing = self.spec.settings.label_smoothing
        loss = F.cross_entropy(exact, batch.targets, reduction="sum", label_smoothing=smoothing)
        with torch.no_grad():
            nll = loss if not smoothing else F.cross_entropy(exact, batch.targets, reduction="sum")
            correct = (exact.argmax(-1) == batch.targets).sum()
        return loss, {
            "nll": nll.detach(),
            "correct": correct,
            "count": torch.tensor(len(batch.targets), device=logits.device),
        }

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence of every piece; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import divergence

        return divergence(logits, wanted, temperature).sum()

    def answer_without_model(self, example: Example) -> TextPrediction | None:
        """An empty text for an empty source."""
        assert isinstance(example, SequenceExample)
        return None if example.source.strip() else TextPrediction(text="", score=0.0, answers=(("", 0.0),))

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[TextPrediction]:
        """One `TextPrediction` per example; see `Task.decode`.

        Args:
            logits: the texts as numbers, see `Writing.as_numbers`.
        """
        writing, predictions = features.writing, []
        assert writing is not None, "sources have a way to write"
        guides = features.guides or (None,) * len(examples)
        rows = zip(sequences_of(examples), guides, logits, features.rows.cut_by_row.tolist(), strict=True)
        for example, guide, numbers, cut in rows:
            texts = writing.from_numbers(numbers)
            answers = tuple(
                (self._form.read_back(text.ids, example.source, guide, tokenizer), text.score) for text in texts
            )
            text, score = answers[0]
            predictions.append(
                TextPrediction(text=text, score=score, has_ended=texts[0].has_ended, answers=answers, cut_tokens=cut)
            )
        return predictions

    def is_collapsed(self, predictions: Sequence[TextPrediction], examples: Sequence[Example]) -> bool:
        """Whether the same text is written for every source although the targets differ."""
        golds = self.golds(examples)
        return any(not is_same(targets[0], golds[0]) for targets in golds) and (
            len({answer.text for answer in predictions}) == 1
        )
