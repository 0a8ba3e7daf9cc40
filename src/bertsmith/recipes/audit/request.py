"""The parameters of `bertsmith audit`."""

import dataclasses
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.requests import Request, file_field
from bertsmith.base.core.settings import Help, help_field, require, require_other
from bertsmith.base.core.tables import File
from bertsmith.tasks.datasets.examples import NESTED_NER
from bertsmith.tasks.specs.named_tasks import TAGS, known_task
from bertsmith.tasks.specs.settings import ColumnSettings

CLASSIFICATION, SEVERAL_LABELS = "classification", "multi-label"
_TASKS = (CLASSIFICATION, SEVERAL_LABELS, *TAGS, NESTED_NER)
MOST_PAIRED = 20_000  # examples among which similar texts are searched, as every pair is compared


@dataclasses.dataclass(frozen=True)
class AuditRequest(Request, ColumnSettings):
    """A labelled table, and what predicts each of its rows without having seen it."""

    table: Annotated[
        File, Help("labelled texts, as for `finetune --train`", flag="TABLE", path="the table", kind=str, table=True)
    ]
    out: Annotated[str | Path, Help("the folder of the results", metavar="DIR", path="the folder", kind=Path)]
    _: dataclasses.KW_ONLY
    task: str = help_field(
        CLASSIFICATION,
        "the task: classification, multi-label for texts with several labels, ner for entities, nested-ner for those "
        "that share words, pos for other tags",
        metavar="NAME",
    )
    model: str | None = help_field(
        None,
        "model folder, checkpoint, hub id, starter or minilm: a linear model on its vectors predicts next to the bag "
        "of words",
        metavar="DIR",
        path=True,
    )
    run: str | Path | None = help_field(
        None,
        "a run of `finetune --folds` on the same table, whose predictions for the rows of each fold are used as well",
        metavar="RUN",
        path=True,
        kind=str,
    )
    folds: int = help_field(
        5, "parts of the table, of which each is predicted by models fitted to the others", least=2, most=100
    )
    next: int | None = help_field(
        None,
        "write the unlabelled rows that are worth a label most, that many, for a spreadsheet, Label Studio and doccano",
        least=1,
        metavar="N",
    )
    unlabelled: File | None = help_field(
        None,
        "where --next looks: a table, whose labels are ignored, or .txt with a text on each line [the rows of TABLE "
        "without a label]",
        metavar="FILE",
        path=True,
        kind=Path,
        table=True,
    )
    dev: File | None = file_field(
        "other examples, such as the dev or test file, in which no text of TABLE should be", table=True
    )
    fix: str | Path | None = help_field(
        None,
        "issues.csv of an earlier audit of TABLE, in which only the rows to correct are left: these corrections alone "
        "are made, and nothing is predicted",
        metavar="FILE",
        path=True,
        kind=Path,
    )
    group_column: str | None = help_field(
        None, "column of a group, such as an author: rows of one group are in one part", metavar="NAME"
    )
    max_length: int | None = help_field(
        None, "maximum tokens per row, including [CLS] and [SEP] [128, or what the model reads]", least=3, most=10**6
    )
    near: float = help_field(
        0.9, "cosine of the words of two texts, by TF-IDF, from which they are near-duplicates", least=0, most=1
    )
    seed: int = help_field(1, "seed of the parts, the fits and the interval")
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")

    def __post_init__(self) -> None:
        super().__post_init__()
        name = known_task(self.task)
        if name is None:
            raise ConfigError.unknown("task", self.task, _TASKS)
        object.__setattr__(self, "task", name)
        require(
            self.task in _TASKS,
            expected=f"--task {', '.join(_TASKS[:-1])} or {_TASKS[-1]}, the tasks that can be audited",
            found=self.task,
            fix="give a table of texts with labels, or sentences with tags or entities",
        )
        require_other(
            self.model is None or self.task != NESTED_NER,
            "--model",
            f"a task other than {NESTED_NER}",
            "name a run with folds by --run, whose models score spans",
        )
        for option in ("model", "run", "next", "dev"):
            require(
                self.fix is None or getattr(self, option) is None,
                expected=f"no --{option} with --fix, which predicts nothing",
                found="both",
                fix="leave one of the two out",
            )
        require_other(self.next is None or self.task == CLASSIFICATION, "--next", f"--task {CLASSIFICATION}")
        require_other(
            self.unlabelled is None or self.next is not None, "--unlabelled", "--next", "add it, or leave both out"
        )
        require_other(
            self.next is None or self.run is None,
            "--next",
            "--model in place of --run",
            "a run has no predictions for unlabelled rows: name its model with --model",
        )
