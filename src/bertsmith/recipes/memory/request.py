"""The parameters of `bertsmith memory train` and `bertsmith memory answer`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from bertsmith.base.core.parameters import DEVICE, optional
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field, require
from bertsmith.recipes.memory.settings import MemorySettings
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.training.loop.run_request import input_field, out_field, require_input, resume_field, training_of
from bertsmith.training.loop.settings import TrainSettings

_EVALUATIONS = 50  # of a run: the linear start ends at one


@dataclasses.dataclass(frozen=True)
class TrainMemoryRequest(Request, MemorySettings, TrainSettings):
    """Stories with questions, and the settings of a memory network and its training."""

    completed: ClassVar[tuple[type, ...]] = (TrainSettings,)
    usual: ClassVar[Mapping[str, Any]] = {
        "schedule": "hf_linear",
        "learning_rate": 0.01,
        "warmup_share": 0.02,
        "bias_correction": True,
        "weight_decay": 0.0,
        "keep_best": "loss",
        "log_every": 50,
        "evaluate_at_start": False,
    }

    stories: str | Path | None = input_field(
        "stories",
        "stories with questions: the format of bAbI, or JSON lines with facts, question, answer and support",
        "those",
    )
    out: str | Path = out_field()
    _: dataclasses.KW_ONLY
    dev: str | Path | None = help_field(
        None,
        "further stories, for evaluation [a tenth of the stories, held out]",
        metavar="FILE",
        path=True,
        kind=Path,
    )
    resume: bool = resume_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_input(self, "stories", "memory train")
        self.training(10**6)  # checks what was given

    def training(self, questions: int) -> TrainSettings:
        """The settings of the training on that many questions: what was given, and a recipe for the rest.

        Adam takes the place of the paper's SGD. The evaluations are many, since the linear start ends at one.
        """
        memory = self.part(MemorySettings)
        settings = training_of(self, memory.epochs * -(-questions // memory.rows_per_step), _EVALUATIONS)
        require(
            memory.starts == 1 or settings.keep_best is not None,
            expected="a held-out value in --keep-best, which selects among several starts",
            found="none",
            fix="name one, such as loss, or leave it out",
        )
        return settings


@dataclasses.dataclass(frozen=True)
class AnswerMemoryRequest(Request, EncodingSettings):
    """A memory network, and facts with a question about them."""

    model: Annotated[str | Path, Help("a model of `bertsmith memory train`", metavar="DIR", path="model", kind=Path)]
    facts: str | Path | None = help_field(
        None,
        "a file with one fact per line [without it, JSON lines with facts and question on stdin]",
        library="a file with one fact per line",
        flag="FACTS",
        path="facts",
        kind=Path,
    )
    question: str | None = help_field(None, "the question", flag="QUESTION")
    _: dataclasses.KW_ONLY
    stories: "Sequence[Mapping[str, Any]]" = help_field(
        (), "records with `facts` and `question`, in place of a file and a question", in_library_only=True
    )
    device: str = optional("auto", DEVICE)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            (self.facts is None) == (self.question is None),
            expected="facts and a question",
            found="only one of them",
            fix='name both: FACTS "QUESTION"',
        )
