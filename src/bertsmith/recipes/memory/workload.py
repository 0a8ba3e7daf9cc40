"""A memory network as a workload for the training loop.

A step is a fixed list of questions, a function of (seed, step), as are the gaps between the ages of its facts. Losses
are divided by the questions of the step.

The linear start: as long as the held-out loss without the softmax over the facts falls from one evaluation to the next,
and in the first half of the steps, the model is trained without it. There is no such phase where no answers are
learned. It is a function of the evaluations in the log, so a resumed run ends it after the same step.

Source: Sukhbaatar et al. (2015), sections 4.1 and 4.2.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import ALONE, Rank
from bertsmith.models.encoders.memory_network import MemoryNetwork, MemoryOutput, StoryBatch
from bertsmith.models.parts.batch import Batch, rows_index
from bertsmith.recipes.memory.settings import MemorySettings
from bertsmith.recipes.memory.stories import NO_ANSWER, EncodedStories
from bertsmith.training.loop.workload import StepPlan, Workload
from bertsmith.training.pretraining.losses import negative_log_likelihood

ANSWER, SUPPORT = "answer", "support"
LINEAR_LOSS = "linear_loss"  # held out, without the softmax; only while that is trained
_EVALUATED = 256  # questions computed together


class QuestionBatch(NamedTuple):
    """Questions of a step: the stories, the number of each answer [N], the supporting fact of each hop, [K, N]."""

    stories: StoryBatch
    answers: Tensor
    support: Tensor


class MemoryTraining(Workload):
    """The workload that trains a memory network.

    Args:
        dev: stories for evaluation.
        seed: of the order of the questions and of the ages.

    Attributes:
        softmax_from: the step from which the softmax is trained; None in the linear phase.
    """

    model: MemoryNetwork

    def __init__(
        self,
        model: MemoryNetwork,
        stories: EncodedStories,
        dev: EncodedStories,
        device: torch.device,
        settings: MemorySettings,
        seed: int,
    ) -> None:
        self.model, self.device = model.to(device), device
        self.stories, self.dev, self.settings, self.seed = stories, dev, settings, seed
        self._starts_linear = settings.linear_start and self.has_answers
        self.softmax_from = None if self._starts_linear else 0
        self._half = 0.0
        self._order = functools.lru_cache(maxsize=2)(self._order_of_epoch)

    @property
    def has_answers(self) -> bool:
        """Whether there are answers to learn; otherwise the supporting facts are."""
        return bool(self.model.answers)

    @property
    def support_weight(self) -> float:
        """The weight of the loss of supporting facts."""
        weight = self.settings.support_weight
        return (0.0 if self.has_answers else 1.0) if weight is None else weight

    def fix_steps(self, total: int) -> None:
        """See `Workload.fix_steps`; the linear phase ends after half of the steps."""
        self._half = total / 2

    def note_evaluations(self, evaluations: Mapping[int, Mapping[str, float]]) -> None:
        """See `Workload.note_evaluations`: ends the linear phase."""
        if self._starts_linear:
            self.softmax_from = end_of_linear_phase(evaluations, self._half)

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The questions of a step; a pure function of the step."""
        size = self.settings.rows_per_step
        epochs, within = np.divmod(np.arange(step * size, (step + 1) * size), len(self.stories))
        rows = [int(self._order(int(epoch))[index]) for epoch, index in zip(epochs, within, strict=True)]
        ages = self._ages(rows, step)
        batch = story_batch(self.stories, rows, self.device, hops=self.model.config.num_hidden_layers, ages=ages)
        tokens = batch.stories.facts.num_tokens + batch.stories.questions.num_tokens
        return StepPlan(micro_batches=[batch], tokens=tokens, sequences=size)

    def loss(self, model: nn.Module, micro_batch: QuestionBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the answers, and with its weight that of the supporting facts, per question."""
        output = model(micro_batch.stories, linear=self.softmax_from is None)
        sums: dict[str, Tensor] = {}
        answers, support = _losses(output, micro_batch, sums)
        return (answers + self.support_weight * support) / len(micro_batch.answers), sums

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The loss in nats and the share of right answers; likewise of the supporting facts, over all hops."""
        figures = dict[str, float]()
        for term, prefix in ((ANSWER, ""), (SUPPORT, "support_")):
            if count := sums[f"{term}_count"]:
                figures |= {f"{prefix}loss": sums[f"{term}_nll"] / count}
                figures |= {f"{prefix}accuracy": sums[f"{term}_correct"] / count}
        return figures

    def higher_is_better(self) -> dict[str, bool]:
        """The figures of `evaluate` that can select a model."""
        figures = {"loss": False, "accuracy": True} if self.has_answers else {}
        has_support = any(self.dev.support)
        return figures | ({"support_loss": False, "support_accuracy": True} if has_support else {})

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """The figures of `summarize` on the dev stories, with the softmax; in the linear phase its loss too.

        An answer that no training story has counts as wrong, and not in the loss.
        """
        figures = self._evaluated(model, linear=False)
        if self.softmax_from is None:
            figures[LINEAR_LOSS] = self._evaluated(model, linear=True)["loss"]
        return figures

    def _evaluated(self, model: nn.Module, *, linear: bool) -> dict[str, float]:
        sums: dict[str, float] = {}
        for start in range(0, len(self.dev), _EVALUATED):
            rows = range(start, min(start + _EVALUATED, len(self.dev)))
            batch = story_batch(self.dev, rows, self.device, hops=self.model.config.num_hidden_layers)
            totals: dict[str, Tensor] = {}
            _losses(model(batch.stories, linear=linear), batch, totals)
            for name, value in totals.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        figures = self.summarize(sums)
        if self.has_answers and (asked := int((self.dev.answers != NO_ANSWER).sum())):
            figures["accuracy"] = sums[f"{ANSWER}_correct"] / asked
        return figures

    def _order_of_epoch(self, epoch: int) -> npt.NDArray[np.int64]:
        return generator(self.seed, "order of questions", epoch).permutation(len(self.stories))

    def _ages(self, rows: Sequence[int], step: int) -> npt.NDArray[np.int64]:
        """The ages of the facts of a step, with gaps at random."""
        oldest, ages = self.model.config.max_position_embeddings - 1, []
        for index, row in enumerate(rows):
            count = len(self.stories.facts[row])
            source = generator(self.seed, "ages of facts", step, index)
            most = int(np.ceil(self.settings.age_noise * count))
            empty = int(source.integers(0, most + 1))
            ages.append(np.sort(source.permutation(count + empty)[:count])[::-1])
        return np.minimum(np.concatenate(ages), oldest)


def end_of_linear_phase(evaluations: Mapping[int, Mapping[str, float]], half: float) -> int | None:
    """The step of the first evaluation that is no better than all before it, or after half of the steps.

    >>> losses = {2: 1.5, 4: 1.2, 6: 1.3}
    >>> evaluations = {step: {"linear_loss": loss} for step, loss in losses.items()}
    >>> end_of_linear_phase(evaluations, 50), end_of_linear_phase(evaluations, 3)
    (6, 4)
    """
    best = np.inf
    for step, values in sorted(evaluations.items()):
        loss = values.get(LINEAR_LOSS, np.inf)
        if step and (not loss < best or step >= half):
            return step
        best = min(best, loss) if step else best
    return None


def story_batch(
    stories: EncodedStories,
    rows: Sequence[int],
    device: torch.device,
    *,
    hops: int,
    ages: npt.NDArray[np.int64] | None = None,
) -> QuestionBatch:
    """Some stories as a batch.

    Args:
        hops: of the model; hop k learns to find supporting fact k, and hops that are left over the last one.
        ages: of all facts; by default without gaps.
    """
    counts = np.array([len(stories.facts[row]) for row in rows])
    if ages is None:
        ages = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(counts.sum())

    def texts(numbers: npt.NDArray[np.int64]) -> Batch:
        ids = stories.texts.ids[rows_index(stories.texts.lengths, numbers)]
        return Batch.from_flat(ids, np.zeros_like(ids), stories.texts.lengths[numbers], None, device)

    support = np.full((hops, len(rows)), -1, dtype=np.int64)
    for index, row in enumerate(rows):
        if wanted := stories.support[row]:
            support[:, index] = [wanted[min(hop, len(wanted) - 1)] for hop in range(hops)]
    return QuestionBatch(
        StoryBatch(
            facts=texts(np.concatenate([stories.facts[row] for row in rows])),
            counts=tuple(counts.tolist()),
            ages=torch.from_numpy(np.ascontiguousarray(ages)).to(device),
            questions=texts(stories.questions[list(rows)]),
        ),
        torch.from_numpy(stories.answers[list(rows)]).to(device),
        torch.from_numpy(support).to(device),
    )


def _losses(output: MemoryOutput, batch: QuestionBatch, sums: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The summed losses of the answers, and of the supporting facts as a mean over the hops."""
    asked = (batch.answers >= 0).nonzero().squeeze(1)
    known = (batch.support[0] >= 0).nonzero().squeeze(1)
    hops = list(zip(output.hops, batch.support, strict=True))
    scores = torch.cat([scores[known] for scores, _ in hops])
    wanted = torch.cat([facts[known] for _, facts in hops])
    answers = _nll(output.answers[asked], batch.answers[asked], ANSWER, sums)
    return answers, _nll(scores, wanted, SUPPORT, sums) / len(hops)


def _nll(scores: Tensor, wanted: Tensor, term: str, sums: dict[str, Tensor]) -> Tensor:
    """See `negative_log_likelihood`; 0 without rows, since a model may know no answers."""
    if len(wanted):
        return negative_log_likelihood(scores, wanted, term, sums)
    zero = torch.zeros((), dtype=scores.dtype, device=scores.device)
    sums |= {f"{term}_{name}": zero for name in ("nll", "correct", "count")}
    return zero
