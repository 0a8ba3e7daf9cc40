"""The parameters of `bertsmith pretrain` and `bertsmith rates`."""

import dataclasses
from pathlib import Path
from typing import Annotated, ClassVar

from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field
from bertsmith.models.checkpoints.architectures import require_size
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.settings import (
    AUTO_SIZE,
    CORPUS,
    CORPUS_FOLDER,
    PretrainingDataSettings,
    PretrainingRunSettings,
)


@dataclasses.dataclass(frozen=True)
class PretrainRequest(Request, PretrainingRunSettings, TrainSettings, PretrainingDataSettings):
    """A corpus, and the settings of a pre-training run; the recipe sets what is not given."""

    completed: ClassVar[tuple[type, ...]] = (PretrainingRunSettings, TrainSettings, PretrainingDataSettings)

    corpus: Annotated[str | Path, CORPUS]
    out: Annotated[
        str | Path,
        Help("the run folder; the model is saved in RUN/model/", metavar="RUN", path="the run folder", kind=Path),
    ]
    _: dataclasses.KW_ONLY
    resume: bool = help_field(False, "resume RUN; options that are not given keep their values")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_size(self.architecture or "bert", self.size, AUTO_SIZE)  # before the command imports torch


@dataclasses.dataclass(frozen=True)
class RatesRequest(Request, PretrainingDataSettings):
    """A corpus, and how its rows are made."""

    corpus: Annotated[str | Path, CORPUS_FOLDER]
    _: dataclasses.KW_ONLY
    rows: int = help_field(10_000, "rows to measure", least=1, most=10**8)
