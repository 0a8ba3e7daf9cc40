"""The parameters of `bertsmith distill` and `bertsmith distill corpus`."""

import dataclasses
from pathlib import Path
from typing import Annotated, ClassVar

from bertsmith.base.core.parameters import MAP_LABELS, optional
from bertsmith.base.core.requests import Request, file_field
from bertsmith.base.core.settings import Help, help_field, require_recipe
from bertsmith.base.core.tables import File
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings, DistillationSettings
from bertsmith.recipes.finetuning.settings import OF_ONE_TRAINING, FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs.named_tasks import task_name
from bertsmith.tasks.specs.settings import ColumnSettings, SplitSettings
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.settings import CORPUS, PretrainingDataSettings, PretrainingRunSettings

_TEACHER = Help("the model to learn from: folder, checkpoint or hub id", metavar="DIR", path="the teacher", kind=str)
_OUT = Help("the run folder; the student is saved in RUN/model/", metavar="RUN", path="the run folder", kind=Path)


@dataclasses.dataclass(frozen=True)
class DistillRequest(Request, DistillationSettings, FinetuningSettings, RecipeSettings, ColumnSettings, SplitSettings):
    """A fine-tuned teacher, examples with labels or without, and the settings of the student's training."""

    teacher: Annotated[str | Path, _TEACHER]
    out: Annotated[str | Path, _OUT]
    _: dataclasses.KW_ONLY
    train: File | None = help_field(
        None, "labelled examples of the teacher's task", metavar="FILE", path=True, kind=Path, table=True
    )
    dev: File | None = file_field("dev file [a tenth of the training examples]", table=True)
    unlabelled: File | None = help_field(
        None,
        "examples that the teacher answers: a file of the task, whose labels are ignored, or .txt with lines as "
        "`predict` reads them",
        metavar="FILE",
        path=True,
        kind=Path,
        table=True,
    )
    task: str | None = help_field(None, "format of the files [that of the teacher's task]", metavar="NAME")
    seeds: int | None = help_field(
        None, "number of seeds to train with [3 below 10,000 examples, else 1]", least=1, most=1000
    )
    limit: int | None = help_field(
        None, "use only this many labelled examples, the same random sample each time", least=1
    )
    resume: bool = help_field(False, "resume RUN; give the same options again")
    without_teacher: bool | None = help_field(
        None, "also train the same student on labels alone, which doubles the time [yes below 10,000 labels]"
    )
    logits: str | Path | None = help_field(
        None,
        "keep the teacher's logits there, for several runs [RUN/teacher]",
        metavar="DIR",
        path=True,
        kind=Path,
    )
    map_labels: LabelMap | None = optional(
        None, dataclasses.replace(MAP_LABELS, library="new names of the labels in the files, to those of the teacher")
    )
    recipe: str | None = help_field(
        None, "as in `finetune`: auto, 2018 or ulmfit [auto; with --resume that of RUN]", metavar="NAME"
    )
    times: bool = help_field(True, "measure how long answers of teacher and student take", in_library_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None:
            object.__setattr__(self, "task", task_name(self.task))
        if self.recipe is not None:
            require_recipe(self.recipe, OF_ONE_TRAINING)


@dataclasses.dataclass(frozen=True)
class DistillCorpusRequest(
    Request, CorpusDistillationSettings, TrainSettings, PretrainingDataSettings, PretrainingRunSettings
):
    """A pre-trained teacher, a corpus, and the settings of the student's pre-training."""

    completed: ClassVar[tuple[type, ...]] = (TrainSettings, PretrainingDataSettings, PretrainingRunSettings)

    teacher: Annotated[str | Path, _TEACHER]
    corpus: Annotated[
        str | Path,
        dataclasses.replace(
            CORPUS,
            library="a folder that `build_corpus` wrote with the teacher's tokenizer (`bertsmith corpus --model DIR`); "
            "for method=\"vectors\" with the student's, which is the corpus's own if the student is a new model",
        ),
    ]
    out: Annotated[str | Path, _OUT]
    _: dataclasses.KW_ONLY
    resume: bool = help_field(False, "resume RUN; give the same options again")
