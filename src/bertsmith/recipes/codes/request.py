"""The parameters of the commands for sequences of codes.

=================  =====================================================================================
codes build        tables of events, and a tree over their codes, to a folder: a vocabulary and visits
codes train        such a folder to a model of visits (G-BERT), compared with simple baselines
codes predict      a model and events to the codes that each subject is likely to have
codes anomalies    a model and events to how improbable each visit is
codes embed        a model and events to a file with a vector per subject
=================  =====================================================================================
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from bertsmith.base.core.parameters import DEVICE, optional
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field
from bertsmith.recipes.codes.settings import CodesSettings
from bertsmith.recipes.codes.tables import EventSettings
from bertsmith.training.loop.run_request import input_field, out_field, require_input, resume_field, training_of
from bertsmith.training.loop.settings import TrainSettings

MODEL = Help("a model of `bertsmith codes train`", metavar="DIR", path="model", kind=Path)
_EVALUATIONS = 20  # of a run

EVENTS = Help(
    "tables of events with subject, time, code and perhaps kind: .csv, .tsv, .jsonl, .parquet (also .gz, .zst); or "
    "visits as JSON lines",
    flag="EVENTS...",
    path="the events",
    kind=list[Path],
)


@dataclasses.dataclass(frozen=True)
class BuildCodesRequest(Request, EventSettings):
    """Tables of events, and how they become a vocabulary of codes and visits."""

    events: Annotated[Sequence[Path | str], EVENTS]
    out: Annotated[
        Path | str, Help("the folder of codes; must not exist yet", metavar="DIR", path="the folder", kind=Path)
    ]
    _: dataclasses.KW_ONLY
    tree: Sequence[Path | str] = help_field(
        (),
        "a tree over the codes: a table with code, parent and perhaps kind; an empty parent, or ROOT, is the top; "
        "repeatable",
        metavar="FILE",
        path="a tree",
        kind=list[Path],
    )
    minimum_count: int = help_field(1, "codes in fewer visits are unknown", least=1, most=10**9)
    replace: bool = help_field(False, "replace DIR when the new folder is complete")


@dataclasses.dataclass(frozen=True)
class TrainCodesRequest(Request, CodesSettings, TrainSettings):
    """A folder of codes, and the settings of a model of its visits and its training."""

    completed: ClassVar[tuple[type, ...]] = (TrainSettings,)
    usual: ClassVar[Mapping[str, Any]] = {
        "schedule": "hf_linear",
        "learning_rate": 1e-3,
        "warmup_share": 0.05,
        "bias_correction": True,
        "weight_decay": 0.0,
        "keep_best": "pr_auc",
        "log_every": 50,
        "evaluate_at_start": False,
    }

    codes: str | Path | None = input_field("codes", "a folder of `bertsmith codes build`", "that")
    out: str | Path = out_field()
    _: dataclasses.KW_ONLY
    resume: bool = resume_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_input(self, "codes", "codes train")
        self.training(10**6)  # checks what was given

    def training(self, steps: int) -> TrainSettings:
        """The settings of a training of that many steps: what was given, and a recipe for the rest.

        The rate of the paper is 5e-4 in all steps.
        """
        return training_of(self, steps, _EVALUATIONS)


@dataclasses.dataclass(frozen=True)
class PredictCodesRequest(Request, EventSettings):
    """A model of visits, and the events of subjects."""

    events: Annotated[Sequence[Path | str], EVENTS]
    model: Annotated[str | Path, MODEL]
    _: dataclasses.KW_ONLY
    top: int | None = help_field(
        None, "at most that many codes of each subject, the most likely ones [all from the threshold]", least=1
    )
    threshold: float | None = help_field(
        None, "probability from which a code is predicted [that of the model, or with --top any]", least=0.0, most=1.0
    )
    device: str = optional("auto", DEVICE)


@dataclasses.dataclass(frozen=True)
class AnomaliesRequest(Request, EventSettings):
    """A model of visits, and the events of subjects whose visits are compared with what the model expects."""

    events: Annotated[Sequence[Path | str], EVENTS]
    model: Annotated[str | Path, MODEL]
    _: dataclasses.KW_ONLY
    top: int | None = help_field(None, "only that many visits, the most improbable first [all, in order]", least=1)
    device: str = optional("auto", DEVICE)


@dataclasses.dataclass(frozen=True)
class EmbedSubjectsRequest(Request, EventSettings):
    """A model of visits, and the events of subjects that get a vector each."""

    events: Annotated[Sequence[Path | str], EVENTS]
    model: Annotated[str | Path, MODEL]
    out: Annotated[Path | str, Help("the folder of the vectors", metavar="DIR", path="the folder", kind=Path)]
    _: dataclasses.KW_ONLY
    replace: bool = help_field(False, "replace DIR when the new vectors are complete")
    device: str = optional("auto", DEVICE)
