"""Pre-training as a workload for the training loop: micro-batches, loss and held-out evaluation.

Letters: T tokens, N rows of a micro-batch, M predicted positions, R positions that are read, V vocabulary.

A step is a fixed list of rows, the same on every rank, sorted by length and split into micro-batches by tokens. Losses
are divided by the counts of the whole step, so the gradient is the same however the step is split.

Source: Devlin et al. (2018), section 3.1 and appendix A; `model_fn_builder` in the original run_pretraining.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertsmith.base.core.progress import Progress
from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.base.processes.distributed import from_all_ranks
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, PreTrainingOutput
from bertsmith.models.heads.sampled_softmax import PieceSample
from bertsmith.models.parts.noise import Noise, noise_for
from bertsmith.models.products.work import PASSES, Work, forward_work
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.teaching import Teaching
from bertsmith.training.loop.workload import StepPlan
from bertsmith.training.pretraining.batch import PretrainingBatch
from bertsmith.training.pretraining.losses import CorpusWorkload, negative_log_likelihood
from bertsmith.training.pretraining.micro_batches import RowsWithTargets
from bertsmith.training.pretraining.segmented_words import LANGUAGES
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.stream import Cursor, Documents, PretrainingStream, Rows
from bertsmith.training.pretraining.targets import FindTargets

# Held-out rows are masked as in the paper, whatever the masks of the training, so that losses can be compared.
_EVALUATION: Mapping[str, Any] = {
    "dupe_factor": 1,
    "dynamic": False,
    "masked_share": 0.15,
    "max_predictions": None,
    "mask_share": 0.8,
    "keep_share": 0.1,
    "random_share": 0.1,
    "whole_word": False,
    **dict.fromkeys(LANGUAGES, False),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the run with one row length, and its share of the steps."""

    stream: PretrainingStream
    find_targets: FindTargets
    share: float


class Pretraining(CorpusWorkload):
    """The workload that pre-trains an encoder.

    With `run.sampled_pieces`, the figures of the steps are of the sample; held-out figures are exact.

    Args:
        teaching: a teacher, whose loss replaces the objective's, which predicts masked pieces alone.
    """

    def __init__(
        self,
        model: EncoderForPreTraining,
        documents: Documents,
        held_out: Documents | None,
        vocabulary: Vocabulary,
        data: PretrainingDataSettings,
        runtime: Runtime,
        run: PretrainingRunSettings,
        *,
        unigram: npt.NDArray[np.int64] | None = None,
        teaching: Teaching | None = None,
    ) -> None:
        if teaching is not None:
            teaching.prepare(model, data.seed)
        self.teaching, self.uses_other_parameters = teaching, teaching is not None
        super().__init__(model, held_out, vocabulary, data, runtime, run, unigram)
        if run.compile:
            self.lanes = 1  # the threads of several would compile the same graphs
        self._border: int | None = None
        self._planned_border = 0
        lengths = [(data.max_length, 1.0 if run.long_length is None else 1 - run.long_share)]
        if run.long_length is not None:
            lengths.append((run.long_length, run.long_share))
        self._phases = []
        for length, share in lengths:
            changed = dataclasses.replace(
                data, max_length=length, max_predictions=None if length != data.max_length else data.max_predictions
            )
            # The number of rows per step stays the same with long rows, as in the paper.
            stream = PretrainingStream(
                documents, changed, vocabulary, rows_per_step=run.rows_per_step, tokens_per_step=run.tokens_per_step
            )
            find_targets = self.objective.find_targets(vocabulary, changed)
            self._phases.append(Phase(stream=stream, find_targets=find_targets, share=share))
        self._evaluations: list[tuple[str, PretrainingStream]] = []
        if held_out is not None and held_out.num_documents:
            for phase, prefix in zip(self._phases, ("", "long_"), strict=False):
                fixed = dataclasses.replace(phase.stream.settings, **_EVALUATION)
                self._evaluations.append((prefix, PretrainingStream(held_out, fixed, vocabulary)))

    def recompute(self) -> None:
        """See `Encoder.recompute_layers`."""
        self.model.encoder.recompute_layers()

    def fix_steps(self, total: int) -> None:
        """Sets the number of steps of the run, which determines where the long rows start."""
        self._planned_border = self._border = round(self._phases[0].share * total)

    @property
    def has_even_steps(self) -> bool:
        """Whether all rows have the same maximum length."""
        return len(self._phases) == 1

    def change_pace(self, pace: Pace) -> None:
        """Moves the start of the long rows to the step that is as far through the run as it was planned to be."""
        self._border = pace.first_step(self._planned_border)

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The micro-batches of a rank in a step; a pure function of the step."""
        phase, number = self._phase(step)
        rows = phase.stream.step_rows(number)
        work = self._with_targets(rows, phase.find_targets, step)
        parts = work.cut(self.micro_tokens, rank=rank, world=world, lanes=self.lanes)
        micro_batches = work.batches(parts, self.runtime.device)
        return StepPlan(micro_batches=micro_batches, tokens=int(rows.lengths.sum()), sequences=len(rows.lengths))

    def operations(self, plan: StepPlan) -> float:
        """See `Workload.operations`."""
        return self.work(plan).total

    def work(self, plan: StepPlan) -> Work:
        """The products of the micro-batches of a plan, by part; none if the architecture is not counted."""
        total = Work()
        for part in plan.micro_batches:
            lengths, queries = np.asarray(part.batch.lengths), np.asarray(part.read.counts)
            predictions = 0 if part.predicted is None else len(part.predicted)
            of_part = forward_work(self.model.encoder, self.model.mlm, lengths, queries, predictions)
            total = total if of_part is None else total + of_part.times(PASSES)
        return total

    def loss(self, model: nn.Module, micro_batch: PretrainingBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, and sums for the log."""
        rows = micro_batch.batch.row_ids
        noise = noise_for(self.data.seed, micro_batch.step, rows, self.runtime.torch_device)
        if self.teaching is not None:
            return self._taught(self.teaching, model, micro_batch, noise)
        sample = None if self._sampler is None else self._sampler.of_step(micro_batch.step)
        return self._losses(model, micro_batch, noise, sample)

    def own_figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The figures of the objective, and those of the teacher."""
        line = super().own_figures(sums)
        if self.teaching is not None and (taught := self.teaching.figures(sums)):
            del line["loss"]  # that of the step has more terms
            line = {**(line if self.teaching.trains_own else {}), **taught}
        return line

    def higher_is_better(self) -> dict[str, bool]:
        """The figures of `evaluate` that can select a model; none without held-out documents."""
        directions = self.objective.higher_is_better
        return {f"{prefix}{name}": up for prefix, _ in self._evaluations for name, up in directions.items()}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """Loss, accuracy and perplexity on the held-out rows, without dropout; empty without held-out documents.

        The figures for the long rows of the last phase have the prefix `long_`.
        """
        line: dict[str, float] = {}
        for prefix, stream in self._evaluations:
            figures = self.held_out_figures(self._sums(model, stream, rank))
            line |= {f"{prefix}{name}": value for name, value in figures.items()}
        return line

    def _sums(self, model: nn.Module, stream: PretrainingStream, rank: Rank) -> dict[str, float]:
        """The sums over the first rows of a held-out stream, in the order of its micro-batches, as in one process."""
        rows = stream.materialise(stream.take(Cursor(), min(self.run.evaluation_rows, stream.num_instances(0)))[0])
        work = self._with_targets(rows, self.objective.find_targets(stream.vocabulary, stream.settings), 0)
        parts = work.cut(self.micro_tokens, least_parts=rank.count)
        dealt: list[dict[str, float]] = []
        with Progress("evaluating", total=len(rows.lengths), unit="rows") as progress:
            for number, counts in rank.dealt(len(parts)):
                (micro_batch,) = work.batches([parts[number]], self.runtime.device)
                figures = self._losses(model, micro_batch, noise=None)[1]
                if counts:
                    dealt.append({name: float(value) for name, value in figures.items()})
                progress.advance(sum(map(len, parts[number : number + rank.count])))
        everyone = from_all_ranks(dealt, rank)
        sums: dict[str, float] = {}
        for number in range(len(parts)):
            for name, value in everyone[number % rank.count][number // rank.count].items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def _taught(
        self, teaching: Teaching, model: nn.Module, batch: PretrainingBatch, noise: Noise | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As `_losses`, with a teacher, who may compare the hidden states of all positions."""
        trace = teaching.new_trace()
        output: PreTrainingOutput = model(
            batch.batch, masked=batch.predicted_positions, noise=noise, dtype=self.runtime.dtype, trace=trace
        )
        of_objective, sums = self._own_loss(output, batch, None)
        loss, more = teaching.loss(model, batch, output, trace, of_objective)
        return loss, {**sums, **more}

    def _losses(
        self, model: nn.Module, batch: PretrainingBatch, noise: Noise | None, sample: PieceSample | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, and its sums for the log; no dropout without noise."""
        output: PreTrainingOutput = model(
            batch.batch,
            read=batch.read,
            masked=batch.predicted,
            first=batch.first,
            backward=batch.backward,
            targets=(batch.targets, batch.backward_targets),
            sample=sample,
            noise=noise,
            dtype=self.runtime.dtype,
        )
        return self._own_loss(output, batch, sample)

    def _own_loss(
        self, output: PreTrainingOutput, batch: PretrainingBatch, sample: PieceSample | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the objective, summed over its terms, and the sums for the log."""
        loss = torch.zeros((), device=batch.batch.token_ids.device)
        sums: dict[str, Tensor] = {}
        for term in self.objective.terms:
            logits, targets = term.logits(output), term.targets(batch)
            if logits is not None and targets is not None:
                targets = targets if sample is None else torch.zeros_like(targets)  # the first of its logits
                loss = loss + negative_log_likelihood(logits, targets, term.name, sums) / term.step_count(batch)
        return loss, sums

    def _phase(self, step: int) -> tuple[Phase, int]:
        """The phase of a step, and the index of the step within it."""
        if len(self._phases) == 1:
            return self._phases[0], step
        assert self._border is not None, "fix_steps was called"
        return (self._phases[0], step) if step < self._border else (self._phases[1], step - self._border)

    def _with_targets(self, rows: Rows, find_targets: FindTargets, step: int) -> RowsWithTargets:
        return RowsWithTargets(rows, find_targets, pairs=self.objective.scores_pairs, step=step)
