"""The scores of an adaptation on a task: the same labels and recipe, with different models to start from.

::

    RUN/task/as-it-is/      the fine-tuning of the model as it was
    RUN/task/adapted/       that of the adapted model
    RUN/task/from-scratch/  on request, that of a new model with a vocabulary of the domain
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.settings import AUTO
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.adaptation.settings import ADAPTED, AS_IT_IS, FROM_SCRATCH, AdaptationSettings
from bertsmith.recipes.finetuning.recipes import resolved, settings_from, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.results.comparison import compare
from bertsmith.recipes.results.finished_run import REPORT_FILE, FinishedRun, read_run
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import default_settings
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import SETTINGS_FILE

TASK_FOLDER = "task"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainTask:
    """A task of the domain, whose score says what the adaptation is worth."""

    spec: TaskSpec
    data: TaskData
    seeds: int | None = None  # the number of trainings of each arm; by default that of `finetune`

    @staticmethod
    def read(
        name: str,
        train: Path | None,
        dev: Path | None,
        *,
        columns: ColumnSettings,
        seeds: int | None,
        folder: ModelFolder,
    ) -> "DomainTask":
        """The task with its examples, checked for a model.

        Args:
            train: the training file; presets come with their own examples.
            dev: the dev file; by default a tenth of the training examples.
        """
        settings = default_settings(name)
        settings = dataclasses.replace(settings, max_length=min(settings.max_length, folder.config.max_tokens))
        spec, data = read_task(name, train, dev, columns=columns, settings=settings)
        if not data.dev:
            raise ConfigError(
                expected="dev examples to compare the models on", found="none", fix="name a file with --dev"
            )
        task = task_for(spec)
        task.check(data.train, gold=True, training=True)
        task.check(data.dev, gold=True)
        return DomainTask(spec=spec, data=data, seeds=seeds)

    def record(self) -> dict[str, Any]:
        """The settings of the task, for the record of the run."""
        return {**self.spec.to_dict(), "seeds": self.seeds}

    def digests(self) -> dict[str, str]:
        """The digests of its files."""
        return {f"task {name}": digest for name, digest in self.data.digests.items()}


def score_arm(arm: str, model: str | Path, task: DomainTask, run: Run, settings: AdaptationSettings) -> None:
    """Fine-tunes a model on the task into RUN/task/ARM, or resumes that; a finished arm is not repeated."""
    out, spec, data = run.path / TASK_FOLDER / arm, task.spec, task.data
    if run.has(out / REPORT_FILE):
        return
    tell(f"fine-tuning on {spec.title}: {arm}")
    folder = load_any(model)
    situation = situation_of(spec.name, spec.kind, len(data.train), folder)
    values = resolved(AUTO, situation, {"device": settings.device, "baselines": False, "shard": settings.shard})
    finetune(
        folder,
        spec,
        data,
        out,
        *settings_from(values),
        seeds=task.seeds,
        resume=run.has(out / SETTINGS_FILE),
        recipe_name=AUTO,
        source_name=str(model),
    )


def task_report(out: Path) -> dict[str, Any]:
    """The scores of the arms that are there, and the comparison of each with the model as it was."""
    runs = {
        arm: read_run(out / TASK_FOLDER / arm, arm, "")
        for arm in (AS_IT_IS, ADAPTED, FROM_SCRATCH)
        if (out / TASK_FOLDER / arm / REPORT_FILE).is_file()
    }
    first = next(iter(runs.values())).report
    return {
        "task": first["task"],
        "metric": first["metric"],
        "train_examples": first["train_examples"],
        "dev_examples": first["dev_examples"],
        "arms": {arm: _scores(run) for arm, run in runs.items()},
        "comparisons": [compare(run, runs[AS_IT_IS]).line() for arm, run in runs.items() if arm != AS_IT_IS],
    }


def _scores(run: FinishedRun) -> Mapping[str, Any]:
    """The score of each seed, their mean, and their standard deviation."""
    score: Mapping[str, Any] = run.report["scores"][run.report["metric"]]
    return score
