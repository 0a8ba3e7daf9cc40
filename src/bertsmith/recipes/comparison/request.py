"""The parameters of `bertsmith compare`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.errors import ConfigError, nearest
from bertsmith.base.core.parameters import MAP_LABELS, optional
from bertsmith.base.core.requests import COPIED, Request, file_field
from bertsmith.base.core.settings import Help, help_field, require
from bertsmith.base.core.tables import File, local_path
from bertsmith.models.checkpoints.packaged import is_packaged
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs.named_tasks import PRESETS, require_metric, task_name
from bertsmith.tasks.specs.settings import ColumnSettings, SplitSettings, TaskSettings

KIND = "classification"  # of a labelled file
FROZEN = ":frozen"  # after the name of a model: a linear model on its vectors in place of fine-tuning
# Those of `systems.SYSTEMS`, which needs torch.
SYSTEM_NAMES = tuple(
    "one-hot tf-idf word2vec glove ppmi autoencoder-frozen autoencoder awd-lstm-random awd-lstm-frozen awd-lstm ulmfit "
    "ulmfit-target elmo-frozen elmo-bilstm elmo-bilstm-attention elmo gpt-frozen gpt gpt-2018 random bert-frozen bert "
    "starter".split()
)


@dataclasses.dataclass(frozen=True)
class CompareRequest(Request, TaskSettings, ColumnSettings, SplitSettings):
    """A labelled file, the systems to compare on it, and what each of them gets: text, minutes, labels, seeds."""

    task: Annotated[
        File,
        Help(
            "labelled examples, or a task with its own examples, such as spam; with --train the task, as in `finetune`",
            metavar="FILE",
            path="the task",
            kind=str,
            table=True,
        ),
    ]
    out: Annotated[str | Path, Help("the folder of the report", metavar="REPORT", path="the folder", kind=Path)]
    _: dataclasses.KW_ONLY
    kind: str | None = help_field(None, f"the format of FILE: a task as in `finetune --task` [{KIND}]", metavar="NAME")
    train: File | None = file_field("labelled examples of --task NAME, instead of --task FILE --kind NAME", table=True)
    dev: File | None = file_field("dev file [a tenth of the examples]", table=True)
    corpus: Sequence[str | Path] = help_field(
        (),
        "text that systems read: files, folders, or one corpus folder; repeatable",
        metavar="TEXT",
        path=True,
        address=COPIED,
        kind=list[Path],
    )
    systems: Sequence[str] = help_field(
        (),
        f"{', '.join(SYSTEM_NAMES)}; model folders and hub ids, which are fine-tuned; MODEL{FROZEN}, "
        "a linear model on its vectors; folders and files of word vectors [all but starter; without --corpus one-hot, "
        "tf-idf, starter]",
        metavar="A,B,...",
        kind=str,
    )
    minutes: float | None = help_field(None, "minutes on this machine for each system that reads the text [5]")
    tokens: int | None = help_field(None, "tokens for each such system, instead of minutes")
    size: str | None = help_field(
        None, "size of the networks, as in `pretrain` [auto: by the minutes; with --tokens tiny]"
    )
    folds: int | None = help_field(
        None,
        "in place of dev examples: score every system on all examples, in this many folds as in `finetune --folds`, "
        "each by a fit to the other folds",
        least=2,
        most=1000,
    )
    seeds: int | None = help_field(
        None, "training runs of each system with each number of labels [3; with --folds 1]", least=1, most=1000
    )
    labels: Sequence[int | str] = help_field(
        (), "numbers of training examples, such as 100,1000,all [all]", metavar="N,N,...", kind=str
    )
    models: str | Path | None = help_field(
        None,
        "where vectors and pre-trained networks are kept [REPORT/models]",
        metavar="DIR",
        path="the folder of models",
        kind=Path,
    )
    resume: bool = help_field(
        False, "finish what is left in REPORT; you may add systems, labels and seeds; other options keep their values"
    )
    map_labels: LabelMap | None = optional(None, MAP_LABELS)
    metric: str | None = help_field(None, "the score that counts, such as macro_f1 [that of the task]", metavar="NAME")
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")

    def __post_init__(self) -> None:
        super().__post_init__()
        if None not in (self.train, self.kind):
            raise ConfigError(
                expected="--task NAME with --train FILE", found=f"--kind {self.kind} as well", fix="leave --kind out"
            )
        require(
            self.folds is None or self.dev is None,
            expected="one of --folds and --dev",
            found="both",
            fix="leave --dev out: the folds score all examples of the training file",
        )
        for system in self.systems:
            _require_system(system)
        name, _ = self.named_task()
        if self.metric is not None:
            require_metric(name, self.metric)

    def named_task(self) -> tuple[str, Path | None]:
        """The name of the task, and the file with its examples; None for a task with its own."""
        task, file = (self.kind, self.task) if self.train is None else (str(self.task), self.train)
        if task is None and str(file) in PRESETS and not local_path(file).exists():
            return task_name(str(file)), None
        return task_name(task or KIND), local_path(file)


def _require_system(name: str) -> None:
    """Returns if a name is that of a system, or looks like a path or the id of a model."""
    model = name.removesuffix(FROZEN)
    if name not in SYSTEM_NAMES and not is_packaged(model) and "/" not in model and not Path(model).exists():
        raise ConfigError(
            expected=f"a system ({', '.join(SYSTEM_NAMES)}), a model, MODEL{FROZEN} or word vectors",
            found=repr(name),
            fix=nearest(name, SYSTEM_NAMES),
        )
