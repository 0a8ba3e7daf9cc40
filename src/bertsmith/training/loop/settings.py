"""Training settings, independent of what is trained."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bertsmith.base.core.parameters import optional
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import (
    Help,
    help_field,
    require,
    require_known,
    require_limits,
    require_number,
    require_other,
    require_value,
)
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.schedule import SCHEDULES

# The classes are in `optimizer.py`, which needs torch.
OPTIMIZER_NAMES = ("adam", "lamb", "muon", "nt-asgd")
MUON_RATE = 0.02

TRACKER_NAMES = ("tensorboard", "mlflow", "wandb")  # the classes are in `trackers.py`
TRACK = Help(
    "also send the log to a tracker: tensorboard (files in tensorboard/ of the run, or of each seed), mlflow[:URI] "
    "(where MLflow is configured to track, by default mlflow.db in this folder) or wandb[:PROJECT] (without a project "
    "offline, in wandb/ there)",
    metavar="NAME[:DESTINATION]",
)
TENSORBOARD = Help("the same as --track tensorboard, which it can be added to")

BUDGETS = ("steps", "tokens", "minutes")

# These may change when a run is resumed: they affect what is written, not what is learned.
# Like the number of processes, the last two decide who computes what, not what is computed.
MAY_CHANGE_ON_RESUME = (
    "log_every",
    "evaluate_every",
    "save_every",
    "save_minutes",
    "keep_checkpoints",
    "track",
    "tensorboard",
    "shard",
    "activation_checkpointing",
)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of a training run; exactly one of steps, tokens and minutes is set."""

    seed: int = help_field(1, "seed of all random draws", most=2**63)
    steps: int | None = help_field(None, "budget in optimizer steps", most=10**9)
    tokens: int | None = help_field(None, "budget in tokens; converted to steps before training starts", most=10**15)
    minutes: float | None = help_field(
        None,
        "budget in minutes; converted to steps after a few trial steps, and again if steps turn out slower or faster",
        most=10**7,
    )
    replanned: str | None = help_field(
        None, "repeat a run that --minutes replanned: STEP:STEPS,... from its settings.json, with --steps"
    )
    learning_rate: float = help_field(
        1e-4, "peak learning rate; auto: 3e-3, or 2e-3 from a width of 512; with --init: 1e-4"
    )
    warmup_share: float = help_field(
        0.01, "warm-up as a fraction of the steps; short runs need more, such as 0.1; auto: 0.1"
    )
    warmup_steps: int | None = help_field(None, "warm-up in steps; overrides warmup_share")
    schedule: str = help_field(
        "tf_linear",
        "learning-rate schedule: tf_linear (2018), hf_linear (auto), constant, cosine, slanted_triangular (ULMFiT) or "
        "noam (the Transformer of 2017)",
    )
    optimizer: str = help_field(
        "adam",
        "adam (2018), lamb (for large batches), muon (for the layers, adam elsewhere; auto, but not with --init) or "
        "nt-asgd (SGD, whose parameters are averaged once held-out text no longer improves)",
    )
    muon_rate: float | None = help_field(
        None,
        "with muon: peak learning rate of the matrices in the layers; updates are computed in bf16 "
        "if the processor supports it [0.02]",
    )
    weight_decay: float = help_field(0.01, "decoupled weight decay; not applied to biases and norms")
    beta1: float = help_field(0.9, "decay rate of the first moment")
    beta2: float = help_field(0.999, "decay rate of the second moment; auto: 0.98")
    epsilon: float = help_field(1e-6, "added to the square root of the second moment")
    bias_correction: bool = help_field(False, "bias correction of the moments; the 2018 code has none; auto: yes")
    clip_norm: float = help_field(1.0, "gradient clipping: maximum global norm")
    shard: bool = help_field(
        False,
        "with several processes: each holds a part of parameters, gradients and moments, for models "
        "too large for one (FSDP2)",
    )
    activation_checkpointing: bool = help_field(
        False,
        "recompute the states inside each layer in the backward pass instead of storing them: less "
        "memory, about a third more time, the same losses",
    )
    skip_limit: int = help_field(5, "non-finite steps in a row after which training fails")
    log_every: int = help_field(10, "steps between lines in metrics.jsonl")
    evaluate_every: int | None = help_field(None, "steps between evaluations; default: ten evaluations per run")
    evaluate_at_start: bool = help_field(True, "also evaluate before the first step")
    keep_best: str | None = help_field(None, "a held-out metric, such as loss; the model with the best value is kept")
    patience: int | None = help_field(None, "stop after this many evaluations without a better value of keep_best")
    save_every: int | None = help_field(None, "steps between checkpoints; default: only by time")
    save_minutes: float | None = help_field(10.0, "minutes between checkpoints")
    keep_checkpoints: int = help_field(2, "number of checkpoints to keep")
    track: str | None = optional(None, TRACK)
    tensorboard: bool = optional(False, TENSORBOARD)

    def __post_init__(self) -> None:
        budgets = [name for name in BUDGETS if getattr(self, name) is not None]
        require(
            len(budgets) == 1,
            expected="one budget",
            found=" and ".join(budgets) or "none",
            fix="give one of --steps, --tokens and --minutes",
        )
        if self.replanned is not None:
            require(
                self.steps is not None,
                expected="replanned only with a budget in steps",
                found=f"replanned with {budgets[0]}",
                fix="set the steps that were planned; they are in settings.json of the run to repeat",
            )
            self.pace(self.steps or 0)
        for name in (*BUDGETS, "evaluate_every", "save_every", "save_minutes", "patience", "muon_rate"):
            require_number(name, getattr(self, name), above=0)
        for name in ("learning_rate", "clip_norm", "epsilon", "skip_limit", "log_every", "keep_checkpoints"):
            require_number(name, getattr(self, name), above=0)
        for name in ("warmup_share", "beta1", "beta2"):
            require_number(name, getattr(self, name), least=0, below=1)
        require_other(
            self.patience is None or self.keep_best is not None,
            "patience",
            "keep_best, the held-out value to select by",
        )
        require_number("weight_decay", self.weight_decay, least=0)
        require_number("seed", self.seed, least=0)
        for name, known in (("schedule", SCHEDULES), ("optimizer", OPTIMIZER_NAMES)):
            require_known(name, getattr(self, name), known)
        if self.track is not None:
            name, _, destination = self.track.partition(":")
            require_known("tracker", name, TRACKER_NAMES)
            of_tensorboard = "tensorboard, whose files are in RUN/tensorboard"
            require_value(name != "tensorboard" or not destination, "track", of_tensorboard, self.track)
            require(
                re.search("//[^/]*@", destination) is None,
                expected=f"the address of {name} without a name or password, because settings are written to files",
                found="one with an @",
                fix=f"set it in the environment, as {name} describes, and use `--track {name}`",
            )
        require_limits(self)
        if self.steps is not None:
            self.warmup(self.steps)
        require_number("warmup_steps", self.warmup_steps, least=0)

    @property
    def trackers(self) -> Sequence[str]:
        """The trackers, each once, as NAME or NAME:DESTINATION."""
        named = [] if self.track is None else [self.track]
        return list(dict.fromkeys(["tensorboard", *named] if self.tensorboard else named))

    def pace(self, steps: int) -> Pace:
        """The pace of a run that was planned with this number of steps."""
        return Pace(steps) if self.replanned is None else Pace.parse(steps, self.replanned)

    def warmup(self, total: int) -> int:
        """Steps of warm-up in a run of `total` steps; a fraction of a step is cut off, as in the 2018 code."""
        steps = int(total * self.warmup_share) if self.warmup_steps is None else self.warmup_steps
        require(
            steps < total,
            expected=f"a warm-up shorter than the {counted(total, 'step')} of the run",
            found=counted(steps, "step"),
            fix="lower warmup_steps or train longer",
        )
        return steps
