"""The plan of a training run: memory, steps, hours, price, and what takes them.

The seconds of a run are of its start, its steps, the exchange of gradients between processes, its evaluations and
its checkpoints.
"""

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import amount, counted, duration, short_repr
from bertsmith.base.core.settings import to_dict
from bertsmith.models.products.work import Work
from bertsmith.training.loop.budget import EVALUATIONS, Durations
from bertsmith.training.loop.clock import RESERVE
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.planning.memory import ProcessMemory
from bertsmith.training.planning.rates import ESTIMATED, MEASURED, Rates
from bertsmith.training.planning.settings import PlanSettings
from bertsmith.training.planning.text import TextPlan

_CENTURY = 100 * 365.25 * 24 * 3600  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The cost of a pre-training.

    Attributes:
        step: the settings that a step of the model depends on.
        corpus_tokens: of the corpus, or of that of the text.
        text: what is planned for instead of the text of the corpus.
        available: bytes of memory for one process; 0 if unknown.
        work: the products of a step, by part; nothing if the architecture is not counted.
        seconds: by part of the run: steps, exchange, evaluations, checkpoints.
        gain: whether pre-training on that much text is worth it for tasks of its domain; None if it was not measured.
    """

    parameters: int
    precision: str
    step: dict[str, Any]
    corpus_tokens: int
    text: TextPlan | None
    steps: int
    tokens: float
    passes: float
    rates: Rates
    memory: ProcessMemory
    available: int
    work: Work
    seconds: dict[str, float]
    notes: tuple[str, ...]
    gain: str | None
    settings: PlanSettings

    __repr__ = short_repr

    @property
    def hours(self) -> float:
        """The hours of the whole run."""
        return sum(self.seconds.values()) / 3600

    @property
    def price(self) -> float | None:
        """Of all machines together; None if the price of one is not given."""
        return None if self.settings.price is None else self.settings.price * self.settings.machines * self.hours

    def lines(self) -> list[str]:
        """The plan for people to read, without the notes."""
        s, memory = self.settings, self.memory
        ranks = s.machines * s.processes
        rate = self.rates
        how = {ESTIMATED: f"estimated at {s.utilization:.0%} of the peak", MEASURED: "measured here"}
        parts = [f"{name} {size(value)}" for name, value in vars(memory).items() if name != "checkpoint" and value]
        fits = f" of {size(self.available)}" if self.available else ""
        peak = memory.peak(rate.kind)
        most = f", at most about {size(peak)} including freed memory that it keeps" if peak > memory.total else ""
        passes, seconds = f"{self.passes:.3g}", self.hours * 3600
        time = f"{duration(seconds)} ({self.hours:.3g} hours)" if seconds >= 1 else "less than 1 s"
        lines = [
            *(self.text.lines() if self.text is not None else ()),
            f"model: {amount(self.parameters)} parameters, {self.precision}",
            f"memory of a process: {size(memory.total)}{fits} ({', '.join(parts)}){most}, besides Python and torch",
            f"disk: {size(memory.checkpoint)} for each checkpoint",
            f"rate: {amount(rate.tokens_per_second)} tokens/s, {rate.seconds_per_step:.3g} s for a step of "
            f"{amount(rate.tokens_per_step)} tokens on {rate.device} ({how.get(rate.source, 'from a plan')})",
            f"run: {counted(self.steps, 'step')}, {amount(self.tokens)} tokens, {passes} "
            f"{'pass' if passes == '1' else 'passes'} over the corpus",
            f"time: {time} on {counted(s.machines, 'machine')} with "
            f"{counted(ranks, 'process', 'processes')}" + ("" if self.price is None else f", price {self.price:,.2f}"),
            f"ends: {ending(seconds)}, if it starts now",
            f"time goes to: {shares(self.seconds)}",
            *([f"gain: {self.gain}"] if self.gain else []),
        ]
        if self.work.total:
            lines.append(f"work of a step: {self.work.total / 1e12:.3g} TFLOP, {shares(vars(self.work))}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        peak = self.memory.peak(self.rates.kind)
        return {
            "parameters": self.parameters,
            "precision": self.precision,
            "step": dict(self.step),
            "corpus_tokens": self.corpus_tokens,
            "text": None if self.text is None else self.text.to_dict(),
            "steps": self.steps,
            "tokens": round(self.tokens),
            "passes": round(self.passes, 4),
            "hours": round(self.hours, 6),
            "price": None if self.price is None else round(self.price, 2),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "bytes": {**vars(self.memory), "total": self.memory.total, "peak": peak, "available": self.available},
            "operations_per_step": dict(vars(self.work)),
            "rates": self.rates.to_dict(),
            "settings": to_dict(self.settings),
            "notes": list(self.notes),
            "gain": self.gain,
        }


def steps_of(training: TrainSettings, durations: Durations, start: float, tokens_per_step: float) -> int:
    """The number of steps of a run with a budget, whose first step begins after `start` seconds."""
    if training.steps is not None:
        return training.steps
    if training.tokens is not None:
        return max(1, round(training.tokens / tokens_per_step))
    assert training.minutes is not None
    steps = durations.fitting(training.minutes * 60 * (1 - RESERVE) - start, training)[0]
    if steps < 1:
        raise ConfigError(
            expected="a budget long enough for one step",
            found=f"{training.minutes:g} minutes; a step takes {durations.step:.1f} s",
            fix="give more --minutes, or --steps",
        )
    return steps


def seconds_of(steps: int, training: TrainSettings, durations: Durations, start: float) -> dict[str, float]:
    """The seconds of a run by part, as the training loop spends them; its first step begins after `start` seconds."""
    interval = training.evaluate_every or -(-steps // EVALUATIONS)
    evaluations = -(-steps // interval) + training.evaluate_at_start
    working = start + steps * durations.step + evaluations * durations.evaluation
    checkpoints = 1.0
    if training.save_every is not None:
        checkpoints += (steps - 1) // training.save_every
    if training.save_minutes is not None:
        checkpoints += working // (training.save_minutes * 60)
    model_folder = 1 / 3  # of a checkpoint, which has the moments too
    return {
        "start": start,
        "steps": steps * durations.step,
        "evaluations": evaluations * durations.evaluation,
        "checkpoints": (checkpoints + model_folder) * durations.checkpoint,
    }


def ending(seconds: float, start: datetime | None = None) -> str:
    """When something ends that takes some seconds, in the time zone of this machine.

    >>> ending(90_000, datetime.fromisoformat("2018-10-11T09:30+00:00")), ending(1e12)
    ('Fri 2018-10-12 10:30 UTC', 'in more than 100 years')
    """
    if seconds > _CENTURY:
        return "in more than 100 years"
    end = (start or datetime.now().astimezone()) + timedelta(seconds=seconds)
    return f"{end:%a %Y-%m-%d %H:%M %Z}"


def size(count: int) -> str:
    """A number of bytes in readable form.

    >>> size(3 * 2**20), size(5 * 2**29)
    ('3.0 MiB', '2.5 GiB')
    """
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def shares(parts: Mapping[str, float]) -> str:
    """The shares of parts in their sum, the largest first; those below half a percent are left out.

    >>> shares({"steps": 90.0, "start": 0.1, "evaluations": 9.9})
    'steps 90 %, evaluations 10 %'
    """
    total = sum(parts.values()) or 1.0
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in ordered if value / total >= 0.005)
