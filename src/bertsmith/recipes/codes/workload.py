"""A model of visits as a workload for the training loop: pre-training and what follows it take turns.

A run consists of rounds: some passes over the visits, whose codes are predicted from visits with masks, and then some
over the subjects, whose current or next visit is predicted. With one round, pre-training comes first. Each step is a
function of (seed, step).

Pre-training: of the codes of each row some are masked, replaced by others of the kind, or kept; the vector of the row
predicts all codes that the visit has of its own kind, and those of the other kind, if it has any. Each pair of kinds
has a loss of its own, the mean binary cross-entropy over its rows and codes, and they are added.

Source: Shang et al. (2019), sections 4.2 to 4.4.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import ALONE, Rank
from bertsmith.models.encoders.g_bert import GBert
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.noise import noise_for
from bertsmith.recipes.codes.encoding import (
    NO_ROW,
    EncodedSubjects,
    Example,
    Ints,
    RecommendationBatch,
    batch_of_examples,
    examples_of,
)
from bertsmith.recipes.codes.settings import SINGLE, CodesSettings
from bertsmith.tasks.metrics.sets import average_precision_of_sets, best_threshold, f1_of_sets, jaccard
from bertsmith.text.codes.vocabulary import CodeVocabulary
from bertsmith.training.loop.workload import StepPlan, Workload

PRETRAINING, MAIN = "pretraining", "main"
_MASKED, _RANDOM = 0.8, 0.9  # of the chosen codes: up to there masked, from there to here replaced; the rest is kept
_EVALUATED = 256  # examples computed together


class MaskedVisits(NamedTuple):
    """Visits of a step of pre-training.

    Attributes:
        visits: their rows with masks.
        kinds: int64 [N], the kind of each row.
        targets: for each kind 1 where the visit of a row has a code, [N, codes]; a visit without codes of a kind has
            none to predict.
    """

    step: int
    visits: Batch
    kinds: Tensor
    targets: Sequence[Tensor]


class CodesTraining(Workload):
    """The workload that trains a model of visits.

    Args:
        train: the training subjects.
        dev: subjects for evaluation.
        kinds: the kinds of codes that the model reads, in their order.
        seed: of the order of visits and subjects, of masks and of dropout.
    """

    model: GBert
    uses_other_parameters = True

    def __init__(
        self,
        model: GBert,
        train: EncodedSubjects,
        dev: EncodedSubjects,
        vocabulary: CodeVocabulary,
        kinds: Sequence[str],
        device: torch.device,
        settings: CodesSettings,
        seed: int,
    ) -> None:
        self.model, self.device = model.to(device), device
        self.train, self.dev, self.settings, self.seed = train, dev, settings, seed
        self.mask_id = vocabulary.mask_id
        self.codes = [vocabulary.ids_of_kind(kind) for kind in kinds]
        self.numbers = [{id: number for number, id in enumerate(ids.tolist())} for ids in self.codes]
        self.visits = [
            Example(subject, visit)
            for subject, rows in enumerate(train.rows)
            for visit in range(len(rows))
            if (rows[visit] != NO_ROW).any() and (settings.pretrain_on != SINGLE or len(rows) == 1)
        ]
        of_subjects = [self._examples(train, subject) for subject in range(len(train))]
        self.subjects = [examples for examples in of_subjects if examples]
        self.dev_examples = self.examples(dev)
        self._order = functools.lru_cache(maxsize=4)(self._order_of_epoch)

    @torch.no_grad()
    def start_from_frequencies(self) -> None:
        """Sets the biases of all outputs to the log-odds of the codes in the training visits.

        From 0, where the released code starts, they take thousands of steps to get there, and only then is more
        learned than frequencies.
        """
        train, recommendation = self.train, self.model.recommendation
        rows = sorted(
            {int(row) for subject, visit in self.visits for row in train.rows[subject][visit] if row != NO_ROW}
        )
        for target, numbers in enumerate(self.numbers):
            of_kind = [train.ids[row] for row in rows if train.kinds[row] == target]
            counts = np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *of_kind]), minlength=1 + max(numbers))
            bias = _log_odds(counts[list(numbers)], len(of_kind))
            for source in range(len(self.numbers)):
                self.model.pretraining[f"{source}-{target}"].get_parameter("2.bias").copy_(bias)
        examples = [example for of_subject in self.subjects for example in of_subject]
        labels = [train.targets[subject][visit] for subject, visit in examples]
        counts = np.bincount(np.concatenate(labels), minlength=len(recommendation.scores.bias))
        recommendation.scores.bias.copy_(_log_odds(counts, len(labels)))

    def examples(self, data: EncodedSubjects) -> list[Example]:
        """The visits of all subjects that the model is scored on."""
        return [example for subject in range(len(data)) for example in self._examples(data, subject)]

    def _examples(self, data: EncodedSubjects, subject: int) -> list[Example]:
        settings = self.settings
        return examples_of(data, subject, recommends=settings.recommends, first_visits=settings.first_visits)

    @property
    def steps_of_round(self) -> tuple[int, int]:
        """The steps of pre-training in a round, and those after it."""
        settings = self.settings
        first = settings.pretraining_epochs * -(-len(self.visits) // settings.visits_per_step)
        return first, settings.epochs * -(-len(self.subjects) // settings.subjects_per_step)

    def phase(self, step: int) -> tuple[str, int]:
        """What a step trains, and its number among the steps that do."""
        first, second = self.steps_of_round
        number, within = divmod(step, first + second)
        return (PRETRAINING, number * first + within) if within < first else (MAIN, number * second + within - first)

    def trains(self, name: str, step: int) -> bool:
        """See `Workload.trains`: the heads of the other phase wait."""
        waiting = "recommendation." if self.phase(step)[0] == PRETRAINING else "pretraining."
        return not name.startswith(waiting)

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The visits or subjects of a step; a pure function of the step."""
        phase, number = self.phase(step)
        if phase == PRETRAINING:
            visits = self._drawn(phase, number, self.settings.visits_per_step, len(self.visits))
            masked = self._masked([self.visits[index] for index in visits], step)
            return StepPlan(micro_batches=[masked], tokens=masked.visits.num_tokens, sequences=len(visits))
        chosen = self._drawn(phase, number, self.settings.subjects_per_step, len(self.subjects))
        examples = [example for index in dict.fromkeys(chosen) for example in self.subjects[index]]
        batch = self._batch(self.train, examples, step)
        return StepPlan(micro_batches=[batch], tokens=batch.visits.num_tokens, sequences=len(examples))

    def loss(
        self, model: nn.Module, micro_batch: MaskedVisits | RecommendationBatch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a step, and its sum for the log."""
        rows = micro_batch.visits.row_ids
        noise = noise_for(self.seed, micro_batch.step, rows, self.device) if self.settings.dropout else None
        if isinstance(micro_batch, RecommendationBatch):
            scores = model(micro_batch.visits, micro_batch.kinds, micro_batch.history, noise)
            loss = F.binary_cross_entropy_with_logits(scores, micro_batch.targets)
            return loss, self._sums(MAIN, loss)
        vectors = self.model.bert.vectors(micro_batch.visits, noise)
        losses = []
        for source in range(len(self.codes)):
            of_source = vectors[micro_batch.kinds == source]
            for target, targets in enumerate(micro_batch.targets):
                of_rows = targets[micro_batch.kinds == source]
                known = of_rows.any(dim=1)
                if known.any():
                    scores = self.model.codes_of_visits(of_source[known], source, target)
                    losses.append(F.binary_cross_entropy_with_logits(scores, of_rows[known]))
        loss = torch.stack(losses).sum()
        return loss, self._sums(PRETRAINING, loss)

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The mean loss of the steps of each phase."""
        names = {PRETRAINING: "pretraining_loss", MAIN: "loss"}
        counts = {phase: sums.get(f"{phase}_count", 0.0) for phase in names}
        return {names[phase]: sums[f"{phase}_loss"] / count for phase, count in counts.items() if count}

    def higher_is_better(self) -> dict[str, bool]:
        """The figures of `evaluate` that can select a model."""
        return {"loss": False, "pr_auc": True, "f1": True, "jaccard": True}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """Loss and scores on the visits of the dev subjects, at the threshold that is best there."""
        scores, targets = self.scores(self.dev, self.dev_examples)
        loss = float(F.binary_cross_entropy_with_logits(torch.from_numpy(scores), torch.from_numpy(targets)))
        chances, gold = 1 / (1 + np.exp(-scores)), targets > 0
        threshold = best_threshold(gold, chances)
        return {
            "loss": loss,
            "pr_auc": float(average_precision_of_sets(gold, chances).mean()),
            "f1": float(f1_of_sets(gold, chances >= threshold).mean()),
            "jaccard": float(jaccard(gold, chances >= threshold).mean()),
            "threshold": threshold,
        }

    @torch.no_grad()
    def scores(self, data: EncodedSubjects, examples: Sequence[Example]) -> tuple[np.ndarray, np.ndarray]:
        """The scores [E, labels], before the sigmoid, and the targets of examples, both float64."""
        return scores_of(self.model, data, examples, self.device, recommends=self.settings.recommends)

    def _batch(self, data: EncodedSubjects, examples: Sequence[Example], step: int = 0) -> RecommendationBatch:
        labels = self.model.config.num_labels
        return batch_of_examples(
            data, examples, self.device, recommends=self.settings.recommends, labels=labels, step=step
        )

    def _drawn(self, phase: str, number: int, size: int, total: int) -> list[int]:
        """The indices of a step of a phase; an epoch ends with a smaller step."""
        epoch, within = divmod(number, -(-total // size))
        return self._order(phase, epoch, total)[within * size : (within + 1) * size]

    def _order_of_epoch(self, phase: str, epoch: int, total: int) -> list[int]:
        order: list[int] = generator(self.seed, f"order of {phase}", epoch).permutation(total).tolist()
        return order

    def _masked(self, visits: Sequence[Example], step: int) -> MaskedVisits:
        """The rows of visits with masks."""
        rows = [
            (row, kind, index)
            for index, (subject, visit) in enumerate(visits)
            for kind, row in enumerate(self.train.rows[subject][visit].tolist())
            if row != NO_ROW
        ]
        rows.sort(key=lambda entry: (len(self.train.ids[entry[0]]), entry[0]))
        ids = [self._mask(self.train.ids[row], kind, step, row) for row, kind, _ in rows]
        lengths = [len(of_row) for of_row in ids]
        kinds = np.array([kind for _, kind, _ in rows])
        batch = Batch.from_flat(
            np.concatenate(ids), np.repeat(kinds, lengths), lengths, [row for row, _, _ in rows], self.device
        )
        targets = []
        for kind, numbers in enumerate(self.numbers):
            of_kind = torch.zeros(len(rows), len(numbers))
            for position, (_, _, index) in enumerate(rows):
                subject, visit = visits[index]
                if (row := int(self.train.rows[subject][visit, kind])) != NO_ROW:
                    of_kind[position, [numbers[id] for id in self.train.ids[row].tolist() if id in numbers]] = 1
            targets.append(of_kind.to(self.device))
        return MaskedVisits(step, batch, torch.from_numpy(kinds).to(self.device), targets)

    def _mask(self, ids: Ints, kind: int, step: int, row: int) -> Ints:
        """The ids of a row, some of them masked or replaced by others of the kind."""
        source = generator(self.seed, "masked codes", step, row)
        chosen, how = source.random(len(ids)), source.random(len(ids))
        others = self.codes[kind][source.integers(len(self.codes[kind]), size=len(ids))]
        replaced = np.where(how < _MASKED, self.mask_id, np.where(how < _RANDOM, others, ids))
        is_chosen = chosen < self.settings.masked_share
        is_chosen[0] = False  # [CLS]
        return np.where(is_chosen, replaced, ids)

    def _sums(self, phase: str, loss: Tensor) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        for name in (PRETRAINING, MAIN):
            sums |= {
                f"{name}_loss": loss.detach() * (name == phase),
                f"{name}_count": torch.tensor(float(name == phase)),
            }
        return sums


def _log_odds(counts: Ints, total: int) -> Tensor:
    """The log-odds of events that occur that often; an unseen one counts as half an occurrence."""
    shares = np.clip(counts / max(total, 1), 0.5 / max(total, 1), 1 - 0.5 / max(total, 1))
    return torch.from_numpy(np.log(shares / (1 - shares))).float()


@torch.no_grad()
def scores_of(
    model: GBert, data: EncodedSubjects, examples: Sequence[Example], device: torch.device, *, recommends: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The scores [E, labels] of examples, before the sigmoid, and their targets, both float64."""
    scores, targets = [], []
    for start in range(0, len(examples), _EVALUATED):
        part = examples[start : start + _EVALUATED]
        batch = batch_of_examples(data, part, device, recommends=recommends, labels=model.config.num_labels)
        scores.append(model(batch.visits, batch.kinds, batch.history).double().cpu().numpy())
        targets.append(batch.targets.double().cpu().numpy())
    return np.concatenate(scores), np.concatenate(targets)
