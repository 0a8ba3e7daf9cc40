"""The settings of a plan, and the parameters of `bertsmith plan`: the machines, and where their rates come from."""

import dataclasses
from pathlib import Path
from typing import Annotated, ClassVar

from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import help_field, require, require_limits, require_number, require_other
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.request import PretrainRequest
from bertsmith.training.pretraining.settings import CORPUS, PretrainingDataSettings, PretrainingRunSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The assumptions of a plan besides the settings of the run itself."""

    machines: int = help_field(1, "machines that train together", most=10**6)
    processes: int = help_field(1, "processes on each machine: one for each GPU, or parts of the same cores", most=1024)
    device: str = help_field(
        "auto", "auto, cpu, cuda or cuda:N, measured here; or the name of a GPU that is not here, such as h200"
    )
    rates: str | None = help_field(
        None,
        "take the rates from a plan that --json wrote on another machine, instead of measuring them here",
        path=True,
    )
    utilization: float = help_field(0.35, "for a GPU that is not here: the share of its peak that products reach")
    bandwidth: float | None = help_field(
        None,
        "GB/s between two processes, for the exchange of gradients [20 in one machine, 1.25 (10 Gbit/s) otherwise]",
        most=10**6,
    )
    passes: float = help_field(1.0, "passes over the corpus, if there is no other budget", most=10**9)
    text: str | None = help_field(
        None,
        "plan for this text instead of that of the corpus, with the time of `vocab` and `corpus` on this machine",
        path=True,
    )
    gigabytes: float | None = help_field(
        None, "with --text: plan for that many GB of such text, of which --text has a part", most=10**9
    )
    price: float | None = help_field(None, "price of one machine for one hour, in any currency", most=10**9)
    probe_seconds: float = help_field(
        30.0,
        "measure steps for at most about that long; eleven are enough, or three that take a tenth of it",
        most=10**5,
    )

    def __post_init__(self) -> None:
        require_limits(self)
        for name in ("machines", "processes", "bandwidth", "passes", "gigabytes", "probe_seconds"):
            require_number(name, getattr(self, name), above=0)
        require_other(self.text is not None or self.gigabytes is None, "--gigabytes", "--text")
        require_number("utilization", self.utilization, above=0, most=1)
        require(
            self.device in ("auto", "cpu") or self.rates is None,
            expected="rates of another machine, or a device to take them from",
            found=f"--rates with --device {self.device}",
            fix="leave one of them out",
        )
        require_number("price", self.price, least=0)

    @property
    def bytes_per_second(self) -> float:
        """Between two processes."""
        usual = 20.0 if self.machines == 1 else 1.25
        return (self.bandwidth or usual) * 1e9


@dataclasses.dataclass(frozen=True)
class PlanRequest(Request, PlanSettings, PretrainingRunSettings, TrainSettings, PretrainingDataSettings):
    """A corpus, the settings of a pre-training run, and where it will run."""

    completed: ClassVar[tuple[type, ...]] = PretrainRequest.completed

    corpus: Annotated[str | Path, CORPUS]
