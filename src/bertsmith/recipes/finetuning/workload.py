"""Fine-tuning as a workload for the training loop: a task, a model with a task head, examples.

An optimizer step has a fixed number of units (32 in the paper), split into micro-batches by tokens, without padding.
The order of units is one permutation of the training set after another, each a function of (seed, epoch). Steps
continue across epoch boundaries, so no unit is dropped.

Source: Devlin et al. (2018), section 4 and appendix A.3; `model_fn_builder` in the original run_classifier.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.noise import noise_for
from bertsmith.models.parts.part_names import DECODER, PREFIX, QUERY_TABLE, part_of, plain
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, TaskBatch, micro_batches
from bertsmith.tasks.specs.task import Task, with_loss
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.training.loop.lanes import count_lanes, lanes_for
from bertsmith.training.loop.workload import StepPlan, Workload

if TYPE_CHECKING:
    from bertsmith.training.loop.teaching import Teaching


_RATE_OF_TABLE = 50.0  # as in the examples of sentence-transformers: 1e-3 for an encoder's 2e-5


class Finetuning(Workload):
    """The workload that fine-tunes a model on a task.

    Args:
        model: the encoder with the task's head.
        train: encoded training examples with targets.
        dev: examples with gold labels to evaluate on, or None.
        tokenizer: the model's tokenizer.
        settings: batch size, frozen parts, learning rates of the layers.
        runtime: device and precision.
        seed: for the order of the examples and for dropout.
        on_scores: receives the scores of every evaluation.
        teaching: a teacher, whose loss takes the place of that of the task.
    """

    model: EncoderForTask

    def __init__(
        self,
        model: EncoderForTask,
        task: Task,
        train: EncodedExamples,
        dev: tuple[Sequence[Example], EncodedExamples] | None,
        tokenizer: Tokenizer,
        settings: FinetuningSettings,
        runtime: Runtime,
        *,
        seed: int,
        on_scores: Callable[[Mapping[str, float]], None] | None = None,
        teaching: "Teaching | None" = None,
    ) -> None:
        if teaching is not None:
            teaching.prepare(model, seed)
        self.teaching, self.uses_other_parameters = teaching, teaching is not None
        self.model = model.to(runtime.torch_device)
        self.task, self.train, self.dev, self.tokenizer = task, train, dev, tokenizer
        self.settings, self.runtime, self.seed = settings, runtime, seed
        self.precision = runtime.precision
        # The user's own head may draw from torch's generators, whose draws would depend on which thread is first.
        self.lanes = 1 if any(isinstance(part, OwnHead) for part in model.modules()) else count_lanes(self.model)
        self.frozen = settings.freeze == "body"
        if self.frozen:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(not self._is_body(name))
        if settings.lora_rank is not None:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(not self._is_body(name) or "lora_" in name)
        if settings.freeze == "embeddings":
            for name, parameter in model.encoder.named_parameters():
                if model.encoder.height(name) == 0:
                    parameter.requires_grad_(False)
        if not task.head.uses_pooler(model.config):
            for name, parameter in model.encoder.named_parameters():
                if model.encoder.height(name) > model.encoder.num_layers:
                    parameter.requires_grad_(False)
        self.on_scores = on_scores
        self._stage_steps = 1

    def rate_factor(self, name: str) -> float:
        """The layer decay to the power of the number of layers above the parameter; 1 for the pooler.

        For a head it is 1, for a decoder `decoder_rate`, for the weights of queries 50.
        """
        if part_of(name) == QUERY_TABLE:
            return _RATE_OF_TABLE
        if not name.startswith(PREFIX):
            return self.settings.decoder_rate if part_of(name) == DECODER else 1.0
        encoder = self.model.encoder
        return float(self.settings.layer_decay ** (encoder.num_layers + 1 - encoder.height(plain(name))))

    def recompute(self) -> None:
        """See `Encoder.recompute_layers`."""
        self.model.encoder.recompute_layers()

    def fix_steps(self, total: int) -> None:
        """Sets the steps after which another layer is trained: an epoch, or less if that were half of the run."""
        epoch = max(1, round(len(self.train) / self.settings.batch_size))
        self._stage_steps = max(1, min(epoch, total // (2 * (self.model.encoder.num_layers + 1))))

    def trains(self, name: str, step: int) -> bool:
        """Whether a step changes a parameter: with gradual unfreezing, head and pooler first, then layer by layer."""
        if not self.settings.gradual_unfreezing or not self._is_body(name):
            return True
        encoder = self.model.encoder
        return encoder.num_layers + 1 - encoder.height(plain(name)) <= step // self._stage_steps

    def _is_body(self, name: str) -> bool:
        """Whether a parameter belongs to the embeddings or to a layer."""
        encoder = self.model.encoder
        return name.startswith(PREFIX) and encoder.height(plain(name)) <= encoder.num_layers

    def drawn_from(self, step: int) -> tuple[EncodedExamples, int, str]:
        """The examples that a step draws from, how many steps before it drew from them, and the purpose of the draw."""
        return self.train, step, "order of examples"

    def units_of_step(self, step: int) -> Ints:
        """The units of a step, int64 [batch size]: one permutation of all units after another.

        Each permutation is a function of (seed, epoch), so steps can be requested in any order.
        """
        features, before, purpose = self.drawn_from(step)
        size, count = self.settings.batch_size, len(features)
        epochs, places = np.divmod(np.arange(before * size, (before + 1) * size), count)
        chosen = np.empty(size, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            order = generator(self.seed, purpose, epoch).permutation(count)
            chosen[epochs == epoch] = order[places[epochs == epoch]]
        return chosen

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The micro-batches of a rank in a step; a pure function of the step."""
        units, features = self.units_of_step(step), self.drawn_from(step)[0]
        tokens = int(features.unit_tokens[units].sum())
        batches = micro_batches(
            features,
            units,
            micro_tokens=self.settings.micro_tokens,
            device=self.runtime.device,
            step=step,
            rank=rank,
            world=world,
            least_parts=lanes_for(tokens // world, self.lanes),
        )
        return StepPlan(micro_batches=list(batches), tokens=tokens, sequences=len(units))

    def loss(self, model: nn.Module, micro_batch: TaskBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, and sums for the log."""
        batch = micro_batch.batch
        noise = noise_for(self.seed, micro_batch.step, batch.row_ids, self.runtime.torch_device)
        weight = self.settings.language_model_loss
        trace = Trace() if weight else None
        if self.teaching is not None:
            trace = self.teaching.new_trace()
        logits = model(
            batch,
            read=micro_batch.read,
            noise=noise,
            dtype=self.runtime.dtype,
            frozen=self.frozen,
            trace=trace,
            all_positions=trace is not None,
            target=micro_batch.target,
        )
        loss, sums = with_loss(self.task).loss(logits, micro_batch)
        loss = loss / micro_batch.step_targets
        mix = self.model.mix
        if mix is not None and self.settings.mix_penalty:
            # The micro-batches of a step add up to the whole penalty.
            share = micro_batch.num_units / self.settings.batch_size
            loss = loss + self.settings.mix_penalty * share * mix.penalty()
        if self.teaching is not None:
            loss, more = self.teaching.loss(self.model, micro_batch, logits, trace, loss)
            return loss, {**sums, **more}
        if trace is None:
            return loss, sums
        hidden = trace.hidden_states[-1].to(self.runtime.dtype)
        nll = language_model_losses(self.model, hidden, micro_batch).sum()
        sums = {**sums, "language_model_nll": nll.detach(), "units": torch.tensor(micro_batch.num_units)}
        return loss + weight * nll / self.settings.batch_size, sums

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The values of a log line."""
        line = self.task.log_sums(sums)
        if "language_model_nll" in sums:
            line["language_model_loss"] = sums["language_model_nll"] / sums["units"]
        return line | (self.teaching.figures(sums) if self.teaching is not None else {})

    def higher_is_better(self) -> dict[str, bool]:
        """The score by which the task selects its best epoch; none without dev examples."""
        return {} if self.dev is None else {self.task.selection_metric: True}

    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """The task's scores on the dev examples; empty without any."""
        if self.dev is None:
            return {}
        assert isinstance(model, EncoderForTask)
        examples, features = self.dev[0], self.dev[1].for_selection
        logits = task_logits(model, features, self.runtime, self.settings.micro_tokens, rank=rank)
        scores = self.task.score(examples, self.task.decode(examples, features, logits, self.tokenizer))
        if self.on_scores is not None:
            self.on_scores(scores)
        return scores


def language_model_losses(model: EncoderForTask, hidden: Tensor, micro_batch: TaskBatch) -> Tensor:
    """The language-model loss of each unit, in nats per token: the mean over its rows of their means, [U].

    Every token but the first of a row is predicted from those before it, the special ones included.

    Args:
        hidden: the last hidden states [T, D].

    Source: Radford et al. (2018), section 3.2; `model` in the original train.py.
    """
    batch = micro_batch.batch
    is_last = torch.zeros(batch.num_tokens, dtype=torch.bool, device=hidden.device)
    is_last[batch.last_positions] = True
    before = torch.nonzero(~is_last)[:, 0]
    logits = model.mlm(hidden[before], model.encoder.word_table)
    exact = logits if logits.dtype == torch.float64 else logits.float()
    losses = F.cross_entropy(exact, batch.token_ids[before + 1], reduction="none")
    counts = torch.tensor(batch.lengths, device=hidden.device) - 1
    row = torch.repeat_interleave(torch.arange(batch.num_rows, device=hidden.device), counts)
    empty = losses.new_zeros
    of_rows = empty(batch.num_rows).index_add(0, row, losses) / counts.clamp_min(1)
    return mean_of_units(of_rows, micro_batch)


def mean_of_units(of_rows: Tensor, micro_batch: TaskBatch) -> Tensor:
    """The mean over the rows of each unit, [U], of one value for each row, [N]."""
    rows = torch.bincount(micro_batch.unit_of_row, minlength=micro_batch.num_units)
    return of_rows.new_zeros(micro_batch.num_units).index_add(0, micro_batch.unit_of_row, of_rows) / rows
