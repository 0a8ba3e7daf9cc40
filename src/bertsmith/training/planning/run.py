"""The plan of a pre-training: `bertsmith plan` as a function."""

import dataclasses
import math
import time
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted, said_once
from bertsmith.base.core.requests import parts_of, takes
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import TRAINING_TOKENS, Rank, Runtime, choose
from bertsmith.base.storage.remote import require_host
from bertsmith.models.products.work import Work
from bertsmith.training.loop.budget import Durations, trial_plans
from bertsmith.training.loop.devices import Gpu, named_gpu
from bertsmith.training.loop.guard import StopRequest
from bertsmith.training.loop.settings import BUDGETS
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.loop.workload import StepPlan
from bertsmith.training.planning.gains import NEW_MODEL, expected_gain
from bertsmith.training.planning.memory import ProcessMemory, bare_model, counts_activations, memory_of
from bertsmith.training.planning.plan import RunPlan, seconds_of, size, steps_of
from bertsmith.training.planning.rates import ESTIMATED, MEASURED, Rates, estimated_rates, measure_rates, read_rates
from bertsmith.training.planning.settings import PlanRequest, PlanSettings
from bertsmith.training.planning.text import plan_text
from bertsmith.training.pretraining.fit import check_fit, check_precision, check_row_lengths
from bertsmith.training.pretraining.initialization import initialize_from_corpus
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import config_of, new_model, open_corpus, workload_of
from bertsmith.training.pretraining.workload import Pretraining

_OPEN = 10**9  # steps of a run whose number of steps is not known yet
_GPU, _CPU = "cuda", "cpu"


@takes(PlanRequest)
def plan_pretraining(request: PlanRequest) -> RunPlan:
    """The cost of a pre-training with these settings: memory, steps, hours; without a budget, for `passes`.

    Nothing is written but the index of a corpus at an address, which the run needs too. The rates come from a few
    real steps on this machine, unless `device` names a GPU that is not here, or `rates` a plan that was written
    elsewhere.

    Raises:
        BertsmithError: the corpus or a setting is invalid, or they do not fit; the message says which.
    """
    require_host(request.corpus)
    settings = request.part(PlanSettings)
    others = {name: value for part in parts_of(PlanRequest)[1:] for name, value in request.values(part).items()}
    others = {name: value for name, value in others.items() if name not in vars(settings)}
    has_budget = any(others.get(name) is not None for name in BUDGETS)
    others = others if has_budget else {**others, "steps": _OPEN}
    with said_once():  # the workload is made for its work, and again to be measured
        return _Planning(request.corpus, settings, others, has_budget).plan()


class _Planning:
    """A plan in progress: the settings of the run, and the size of its steps."""

    def __init__(self, corpus: Path | str, settings: PlanSettings, others: dict[str, Any], has_budget: bool) -> None:
        self.settings, self.has_budget = settings, has_budget
        self.run, self.data, self.training = settings_from_recipe(others)
        ranks = settings.machines * settings.processes
        self.divided_among = ranks if self.training.shard else 1
        self.gpu: Gpu | None = None
        if settings.device not in ("auto", _CPU) and not settings.device.startswith(_GPU):
            self.gpu = named_gpu(settings.device)
        self.is_here = self.gpu is None and settings.rates is None
        self.started = time.monotonic()
        self.corpus = open_corpus(Path(corpus), self.run, Rank(), verify=self.is_here)
        self.config = config_of(self.run, self.data, self.corpus)
        check_row_lengths(self.config, self.run, self.data)
        if self.is_here:
            check_fit(self.config, self.run, self.data, self.corpus)
        self.parameters = sum(parameter.numel() for parameter in bare_model(self.config).parameters())

    def plan(self) -> RunPlan:
        """The whole plan."""
        settings, data = self.settings, self.data
        planned = None if settings.text is None else plan_text(Path(settings.text), settings.gigabytes, self.corpus)
        plans, work = self._steps_and_work()
        if self.gpu is not None:
            usual = "bf16" if self.gpu.has_bf16 else "fp32"
            precision = usual if self.run.precision == "auto" else self.run.precision
            rates = self._estimated(self.gpu, precision, plans, work)
        elif settings.rates is not None:
            asked = None if self.run.precision == "auto" else self.run.precision
            rates, precision = read_rates(
                Path(settings.rates), parameters=self.parameters, precision=asked, step=self._settings_of_a_step()
            )
        else:
            runtime = choose(settings.device, self.run.precision)
            rates, precision = self._measured(runtime), runtime.precision
        check_precision(precision)
        is_gpu, start = rates.kind == _GPU, rates.seconds_to_start
        ranks = settings.machines * settings.processes
        # Processes on the cores of one machine share them; each GPU has a process of its own.
        workers = ranks if is_gpu else settings.machines
        lanes = rates.lanes if ranks == 1 else 1
        most = self.run.micro_tokens or TRAINING_TOKENS[rates.kind]
        tokens = min(most, int(rates.tokens_per_step / (ranks * lanes)))
        # Of a divided model, every pass gathers the parameters twice, and then exchanges the gradients.
        passes = math.ceil(rates.tokens_per_step / ranks / most)
        times, exchanged = (3 * passes, "parameters and gradients") if self.divided_among > 1 else (2, "gradients")
        exchange = times * (ranks - 1) / ranks * 4 * self.parameters / settings.bytes_per_second
        step = rates.seconds_per_step / workers
        durations = Durations(
            step=step + exchange, evaluation=rates.seconds_per_evaluation, checkpoint=rates.seconds_per_checkpoint
        )
        specials = (3 if data.has_two_parts else 2) * rates.sequences_per_step
        if OBJECTIVES[data.objective].carries_state:
            specials = 0.0
        text, corpus_tokens = rates.tokens_per_step - specials, int(self.corpus.document_lengths.sum())
        if planned is not None:
            corpus_tokens = planned.tokens
        if self.has_budget:
            steps = steps_of(self.training, durations, start, rates.tokens_per_step)
        else:
            steps = max(1, round(settings.passes * corpus_tokens / text))
        training = dataclasses.replace(self.training, steps=steps, tokens=None, minutes=None)
        seconds = seconds_of(steps, training, durations, start)
        if exchange:
            seconds |= {"steps": steps * step, f"exchange of {exchanged}": steps * exchange}
        length = max(data.max_length, self.run.long_length or 0)
        memory = memory_of(
            # The kernel for attention on a GPU keeps no weights, with or without dropout.
            dataclasses.replace(self.config, attention_probs_dropout_prob=0.0) if is_gpu else self.config,
            OBJECTIVES[data.objective],
            training.optimizer,
            dtype=_counted_dtype(precision, is_gpu=is_gpu),
            rows=max(1, tokens // length),
            length=length,
            predictions=data.most_predictions if data.masked else length - 2,
            lanes=lanes,
            recomputes=self.training.activation_checkpointing,
            processes=self.divided_among,
        )
        available = rates.memory if is_gpu else rates.memory // settings.processes
        read = self.corpus.manifest["read"]["words"] * corpus_tokens / max(1, int(self.corpus.document_lengths.sum()))
        arm = NEW_MODEL if self.run.init is None else self.run.init
        return RunPlan(
            gain=expected_gain(arm, round(read)),
            parameters=self.parameters,
            precision=precision,
            step=self._settings_of_a_step(),
            corpus_tokens=corpus_tokens,
            text=planned,
            steps=steps,
            tokens=steps * rates.tokens_per_step,
            passes=steps * text / corpus_tokens,
            rates=rates,
            memory=memory,
            available=available,
            work=work,
            seconds=seconds,
            notes=(*(() if planned is None else planned.notes), *self._notes(rates, ranks, memory, available)),
            settings=settings,
        )

    def _steps_and_work(self) -> tuple[list[StepPlan], Work]:
        """The plans of some steps, and the mean of their work; on the meta device, where they take no time."""
        runtime = Runtime(device="meta", precision="fp32")
        workload = workload_of(bare_model(self.config), self.corpus, self.data, runtime, self.run)
        plans = trial_plans(Trainer(workload, self.training, Rank(), StopRequest()))
        work = Work()
        if isinstance(workload, Pretraining):
            for plan in plans:
                work += workload.work(plan).times(1 / len(plans))
        return plans, work

    def _settings_of_a_step(self) -> dict[str, Any]:
        """The settings that a step of the same model depends on, besides the precision."""
        names = ("rows_per_step", "tokens_per_step", "long_length", "long_share", "micro_tokens", "dropout", "compile")
        return {
            **{name: getattr(self.data, name) for name in ("objective", "max_length")},
            **{name: getattr(self.run, name) for name in names},
            **{name: getattr(self.training, name) for name in ("optimizer", "activation_checkpointing")},
        }

    def _measured(self, runtime: Runtime) -> Rates:
        """The rates on this machine."""
        model = new_model(self.run, self.data, self.training.seed, self.corpus)
        if self.run.initialization == "corpus":
            initialize_from_corpus(model, self.corpus, self.training.seed)
        workload = workload_of(model, self.corpus, self.data, runtime, self.run)
        to_start = time.monotonic() - self.started
        return measure_rates(workload, self.training, self.settings.probe_seconds, to_start)

    def _estimated(self, gpu: Gpu, precision: str, plans: list[StepPlan], work: Work) -> Rates:
        """The rates of a GPU that is not here."""
        require(
            not self.training.activation_checkpointing,
            expected="layers that are computed once, to estimate the rate of a GPU that is not here",
            found="--activation-checkpointing",
            fix="plan it on a machine with the GPU, or leave it out",
        )
        require(
            bool(work.total),
            expected="a Transformer, to estimate its rate on a GPU that is not here",
            found=self.config.display_name,
            fix="plan it on a machine with the GPU",
        )
        peak = gpu.peak(precision)
        if peak is None:
            raise ConfigError(
                expected=f"a precision that {self.settings.device} has a peak for",
                found=precision,
                fix="use --precision fp32",
            )
        return estimated_rates(
            self.settings.device,
            int(gpu.memory * 1e9),
            peak * self.settings.utilization,
            work=work.total,
            tokens=mean(plan.tokens for plan in plans),
            sequences=mean(plan.sequences for plan in plans),
        )

    def _notes(self, rates: Rates, ranks: int, memory: ProcessMemory, available: int) -> list[str]:
        notes = []
        if rates.source == ESTIMATED:
            notes.append(
                f"the rate is an estimate, {self.settings.utilization:.0%} of the published peak of "
                f"{self.settings.device}; evaluations and checkpoints are not counted"
            )
        if ranks > 1:
            notes.append(
                f"the rate of {counted(ranks, 'process', 'processes')} is an estimate from that of one; the exchange "
                "of gradients is assumed to overlap with nothing"
            )
        if self.divided_among > 1:
            notes.append(
                "what a process gathers of the divided model is an estimate; the passes of evaluations gather it too, "
                "which is not counted"
            )
        if rates.source == MEASURED and not rates.seconds_per_checkpoint:
            notes.append("there is no room for a checkpoint among the temporary files, so its time is not counted")
        if available and (needed := memory.peak(rates.kind)) > available:
            notes.append(
                f"a process may need {size(needed)}, more than the {size(available)} available to it: lower "
                "--micro-tokens, use --activation-checkpointing, or --shard with several processes"
            )
        if not counts_activations(self.config):
            notes.append(f"the activations of {self.config.display_name} are not counted in the memory")
        return notes


def _counted_dtype(precision: str, *, is_gpu: bool) -> torch.dtype:
    """The type whose activations are counted, on the CPU.

    For a GPU it is fp16 instead of bf16, which has the same size: PyTorch's fused attention then takes the place of
    the products that a CPU computes in bf16, and keeps as little as the kernel of the GPU.
    """
    if is_gpu and precision in ("bf16", "fp16"):
        return torch.float16
    return Runtime(device=_CPU, precision=precision).dtype
