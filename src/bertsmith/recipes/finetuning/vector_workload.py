"""Training of vectors: the loss of a step compares texts of all its micro-batches.

A loss that is a sum over units is computed for one micro-batch after another, as in any fine-tuning. Ranking and CoSENT
compare every unit with all others of the step. A step of one micro-batch is computed directly. A larger one is computed
twice: first the vectors of all micro-batches without their graphs, from which follow the loss of the step and its
gradient for each vector; then each micro-batch again, with that gradient of its vectors. Dropout is a function of
(seed, step, row), so both passes drop the same elements, and the gradients are those of one large micro-batch, in the
memory of a small one. Where several processes share a step, each computes the vectors of all of them in the first pass,
and those of its own micro-batches in the second.

Of several sources, such as files with losses of their own, each has its share of the steps. Which steps is a function
of the seed and their number, and a step compares texts of one source alone.

The weight of the regularizer of sparse vectors grows with the square of the steps, as in Formal et al. (2021), "SPLADE:
Sparse Lexical and Expansion Model for First Stage Ranking", section 4.1.

Source: Gao et al. (2021), "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", section 3
(GradCache).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.models.heads.vector_forms import SCALES, VECTOR_FORMS
from bertsmith.models.heads.vector_losses import VectorLoss
from bertsmith.models.parts.noise import noise_for
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.recipes.finetuning.sources import TrainingSource
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.units import EncodedExamples, TaskBatch
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.training.loop.workload import StepPlan

# The part of the steps in which the regularizer of sparse vectors grows to its weight: that of sentence-transformers.
_GROWTH = 1 / 3
_SEVERAL = 2  # micro-batches of a step, whose vectors are computed twice
_LOSS, _STEPS = "sum of losses of ", "share of steps of "  # in front of the name of a source, in sums


class VectorTraining(Finetuning):
    """The workload that trains the vectors of texts; see `Finetuning`.

    Args:
        sources: the first of all is `train`; empty if it is the only one.
    """

    def __init__(self, *arguments: Any, sources: Sequence[TrainingSource] = (), **named: Any) -> None:
        super().__init__(*arguments, **named)
        assert self.task.head.is_vector, "a task of vectors"
        if self.task.spec.settings.query_length:
            self.model.encoder.require_unseen()
        self.sources = sources
        specs = [source.spec for source in sources] or [self.task.spec]
        self._losses = [self.loss_of(spec, self.settings) for spec in specs]
        if not all(loss.is_sum for loss in self._losses):
            self.lanes = 1  # micro-batches that wait for each other gain nothing from threads
        self._growing = 1
        self._source_of_step = np.zeros(0, dtype=np.int64)
        self._layer = self.model.output_layer if self.model.head.outputs else None
        self._gradients: dict[int, Tensor] = {}  # of the vectors of each micro-batch of the step
        self._shares: dict[int, Tensor] = {}

    @staticmethod
    def loss_of(spec: TaskSpec, settings: FinetuningSettings) -> VectorLoss:
        """The loss of the vectors of a task."""
        form = VECTOR_FORMS[spec.vectors]
        similarity = form.similarity_for(spec.objective)
        usual = zip((settings.query_flops, settings.passage_flops), form.flops, strict=True)
        of_queries, of_passages = (weight if chosen is None else chosen for chosen, weight in usual)
        return VectorLoss(
            objective=spec.objective,
            similarity=similarity,
            scale=SCALES[similarity] if settings.scale is None else settings.scale,
            margin=settings.margin,
            widths=spec.widths if form.has_widths else (),
            flops=(of_queries, of_passages),
        )

    def fix_steps(self, total: int) -> None:
        """Sets the steps in which the weights of the regularizer grow, and the source of each; see `Finetuning`."""
        super().fix_steps(total)
        self._growing = max(1, int(total * _GROWTH))
        if self.sources:
            ends = np.cumsum([source.share for source in self.sources])
            counts = np.diff(np.rint(total * ends / ends[-1]).astype(np.int64), prepend=0)
            drawn = generator(self.seed, "sources of the steps").permutation(total)
            self._source_of_step = np.repeat(np.arange(len(counts)), counts)[drawn]

    def _source(self, step: int) -> int:
        """The number of the source of a step."""
        return int(self._source_of_step[step]) if self.sources else 0

    def loss_at(self, step: int) -> VectorLoss:
        """The loss of a step: that of its source."""
        return self._losses[self._source(step)]

    def drawn_from(self, step: int) -> tuple[EncodedExamples, int, str]:
        """The examples of the source of a step; see `Finetuning.drawn_from`."""
        if not self.sources:
            return super().drawn_from(step)
        number = self._source(step)
        before = int((self._source_of_step[:step] == number).sum())
        return self.sources[number].features, before, f"order of examples of source {number}"

    def share_of_flops(self, step: int) -> float:
        """The fraction of the weights of the regularizer at a step, the square of the part of its growth."""
        return min(1.0, step / self._growing) ** 2

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The micro-batches of a rank in a step, and those of all ranks if the loss compares their vectors."""
        plan_of = super().plan  # which a comprehension cannot call
        mine = plan_of(step, rank, world)
        if world == 1 or self.loss_at(step).is_sum:
            return mine
        plans = [mine if other == rank else plan_of(step, other, world) for other in range(world)]
        return dataclasses.replace(mine, everyone=[batch for plan in plans for batch in plan.micro_batches])

    def begin_step(self, model: nn.Module, plan: StepPlan) -> None:
        """Computes the vectors of the step, and the gradient of its loss for each, if its micro-batches share one."""
        self._gradients, self._shares = {}, {}
        everyone = plan.everyone or plan.micro_batches
        if len(everyone) < _SEVERAL or self.loss_at(everyone[0].step).is_sum:
            return
        vector_loss = self.loss_at(everyone[0].step)
        with torch.no_grad():
            parts = [self._vectors(model, micro_batch) for micro_batch in everyone]
        leaves = [part.detach().requires_grad_() for part, _ in parts]
        lengths = [length for _, of_part in parts for length in of_part]
        counts = [_texts_of_units(micro_batch) for micro_batch in everyone]
        targets = [micro_batch.targets for micro_batch in everyone]
        total = sum(len(part) for part in counts)
        vectors, of_units, gold = torch.cat(leaves), torch.cat(counts), torch.cat(targets)
        loss = vector_loss.of(vectors, of_units, gold, self._layer, total, lengths)
        loss = loss + self.share_of_flops(everyone[0].step) * vector_loss.regularizer(vectors, of_units)
        gradients = torch.autograd.grad(loss, leaves)
        for micro_batch, part, gradient in zip(everyone, counts, gradients, strict=True):
            self._gradients[id(micro_batch)] = gradient
            self._shares[id(micro_batch)] = loss.detach() * (len(part) / total)

    def loss(self, model: nn.Module, micro_batch: TaskBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, with that gradient, and the sums of its source."""
        vectors, lengths = self._vectors(model, micro_batch)
        gradient = self._gradients.pop(id(micro_batch), None)
        if gradient is None:
            assert micro_batch.targets is not None, "what the vectors are compared by"
            counts, vector_loss = _texts_of_units(micro_batch), self.loss_at(micro_batch.step)
            total = micro_batch.step_targets
            loss = vector_loss.of(vectors, counts, micro_batch.targets, self._layer, total, lengths)
            loss = loss + self.share_of_flops(micro_batch.step) * vector_loss.regularizer(vectors, counts)
        else:
            product = (vectors * gradient).sum()
            loss = product - product.detach() + self._shares.pop(id(micro_batch))
        if not self.sources:
            return loss, {}
        name = self.sources[self._source(micro_batch.step)].name
        share = torch.tensor(micro_batch.num_units / micro_batch.step_targets)
        return loss, {f"{_LOSS}{name}": loss.detach(), f"{_STEPS}{name}": share}

    def _vectors(self, model: nn.Module, micro_batch: TaskBatch) -> tuple[Tensor, list[int]]:
        """The vectors of the texts of a micro-batch, [R, D], those of each unit one after another.

        Where tokens have vectors, they are the rows of each text, one text after another, and their numbers follow.
        """
        batch = micro_batch.batch
        noise = noise_for(self.seed, micro_batch.step, batch.row_ids, self.runtime.torch_device)
        vectors: Tensor = model(batch, read=micro_batch.read, noise=noise, dtype=self.runtime.dtype)
        most = int(micro_batch.place_in_unit.max()) + 1
        order = (micro_batch.unit_of_row * most + micro_batch.place_in_unit).argsort()
        if not self.task.head.token_width:
            return vectors[order], []
        counts = batch.lengths if micro_batch.read is None else micro_batch.read.counts
        rows, parts = order.tolist(), torch.split(vectors, list(counts))
        return torch.cat([parts[row] for row in rows]), [counts[row] for row in rows]

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The mean loss and the number of the steps of each source, if there are several."""
        result: dict[str, float] = {}
        for source in self.sources:
            if steps := sums.get(f"{_STEPS}{source.name}"):
                result[f"loss of {source.name}"] = sums[f"{_LOSS}{source.name}"] / steps
                result[f"steps of {source.name}"] = round(steps)
        return result


def _texts_of_units(micro_batch: TaskBatch) -> Tensor:
    """The number of texts of each unit, int64 [U]."""
    return torch.bincount(micro_batch.unit_of_row, minlength=micro_batch.num_units)
