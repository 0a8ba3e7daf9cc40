"""The parameters of `bertsmith train-translation` and `bertsmith translate`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from bertsmith.base.core.parameters import DEVICE, optional
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field
from bertsmith.recipes.translation.settings import SearchSettings, TranslationSettings
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.training.loop.run_request import input_field, out_field, require_input, resume_field
from bertsmith.training.loop.settings import TrainSettings

_WARMUP = 4000  # steps in the paper, from which its highest rate follows


@dataclasses.dataclass(frozen=True)
class TrainTranslationRequest(Request, TranslationSettings, TrainSettings):
    """Pairs of texts, and the settings of a translation model and its training."""

    completed: ClassVar[tuple[type, ...]] = (TrainSettings,)
    usual: ClassVar[Mapping[str, Any]] = {
        "schedule": "noam",
        "learning_rate": None,  # that of the paper for the width
        "warmup_share": 0.1,
        "beta2": 0.98,
        "epsilon": 1e-9,
        "bias_correction": True,
        "weight_decay": 0.0,
    }

    pairs: str | Path | None = input_field(
        "pairs", "a file with a text, a tab and its translation on each line", "that"
    )
    out: str | Path = out_field()
    _: dataclasses.KW_ONLY
    dev: str | Path | None = help_field(
        None, "further pairs, for evaluation with BLEU", metavar="FILE", path=True, kind=Path
    )
    resume: bool = resume_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_input(self, "pairs", "train-translation")

    @property
    def training(self) -> TrainSettings:
        """The settings of the training: those that were given and, for the others, the recipe of the paper.

        The highest learning rate is that of the paper for the width of the model, where its warm-up takes 4,000 steps;
        here it takes a tenth of the steps unless `warmup_steps` is given.
        """
        width = self.part(TranslationSettings).config(1).hidden_size
        rate = round((width * _WARMUP) ** -0.5, 6)
        return TrainSettings(**{**self.usual, "learning_rate": rate, **self.values(TrainSettings)})


@dataclasses.dataclass(frozen=True)
class TranslateRequest(Request, SearchSettings, EncodingSettings):
    """A translation model, and how a translation is searched."""

    model: Annotated[
        str | Path, Help("a model of `bertsmith train-translation`", metavar="DIR", path="model", kind=Path)
    ]
    texts: "Sequence[str]" = help_field((), "the texts, all at once", in_library_only=True)
    _: dataclasses.KW_ONLY
    device: str = optional("auto", DEVICE)
