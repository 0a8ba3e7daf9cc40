"""Hyper-parameter search over learning rate, batch size and epochs.

The grid combines the paper's with other common lists. Optuna samples from it without repetition and prunes trials that
fall behind after an epoch. Its journal is in the folder, so a stopped search can be resumed.

Several processes of `torchrun` each train whole trials, as many at a time as there are processes. Which settings come
next does not depend on the scores, and a trial is judged against those that one process would have finished before it:
so the table is the same. A trial that falls behind is then trained to its end before that is known. If the model is
divided among the processes, they share every step of one trial after another, and one that falls behind ends at once.

Source: Devlin et al. (2018), appendix A.3 (batch sizes 16, 32; learning rates 5e-5, 4e-5, 3e-5, 2e-5; epochs 2, 3, 4).
"""

import dataclasses
import functools
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, RunError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import to_dict
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import (
    from_all_ranks,
    locked_by_first_rank,
    on_every_rank,
    on_first_rank,
    result_of_first_rank,
)
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.base.storage.locks import require_unused
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.recipes.finetuning.job import BaseModel, FinetuningJob
from bertsmith.recipes.finetuning.settings import GRID, FinetuningSettings, RecipeSettings, against_collapse
from bertsmith.recipes.results.finished_run import MODEL_FOLDER, REPORT_FILE, TABLE_FILE, SeedResult, search_folder
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.run_folder import CONTINUED, RunFolder

JOURNAL_FILE, SEARCH_FILE = "journal.log", "search.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """The result of a search.

    Attributes:
        settings, recipe: those of the best trial.
        table: what trials.json holds, the best trial first.
    """

    settings: FinetuningSettings
    recipe: RecipeSettings
    table: Sequence[Mapping[str, Any]]


def tune(
    source: BaseModel,
    spec: TaskSpec,
    data: TaskData,
    out: Path,
    settings: FinetuningSettings,
    recipe: RecipeSettings,
    *,
    trials: int,
    resume: bool = False,
    grid: Mapping[str, tuple[float, ...]] = GRID,
    head: type[OwnHead] | None = None,
) -> Tuning:
    """The best settings for a run in the folder `out`, from a search in the folder OUT-search next to it.

    Args:
        source: as of `finetune`.
        out: of the run that is to use the settings; new, unless `resume`.
        trials, resume, grid, head: as of `search_settings`.

    Raises:
        ConfigError, RunError: as `search_settings`, or `out` holds something already.
    """
    rank = Rank.from_environment()
    if not resume:
        on_first_rank(lambda: require_unused(out, "name another folder", besides=(CONTINUED,)), rank)
    folder = search_folder(out)
    with locked_by_first_rank(folder, rank):
        settings, recipe = search_settings(
            source, spec, data, folder, settings, recipe, trials=trials, resume=resume, grid=grid, head=head
        )
    return Tuning(settings=settings, recipe=recipe, table=read_json(folder / TABLE_FILE))


def search_settings(
    source: BaseModel,
    spec: TaskSpec,
    data: TaskData,
    out: Path,
    settings: FinetuningSettings,
    recipe: RecipeSettings,
    *,
    trials: int,
    resume: bool = False,
    grid: Mapping[str, tuple[float, ...]] = GRID,
    head: type[OwnHead] | None = None,
) -> tuple[FinetuningSettings, RecipeSettings]:
    """The settings of the best trial; writes a table of all trials to out/trials.json.

    Every trial trains with the first seed. No settings are tried twice.

    Args:
        source: as of `finetune`.
        out: the folder of the search.
        trials: total number of settings to try, including those of an earlier start.
        resume: resume a stopped search in the folder, if there is one.
        grid: values of each setting.
        head: the user's head, in place of the linear layer.

    Raises:
        ConfigError: Optuna is not installed, there are no dev examples to select by, or the model cannot be divided.
        RunError: the folder is not empty, or contains a different search.
    """
    _optuna()
    if not data.dev:
        raise ConfigError(expected="dev examples to select by", found="none", fix="name a file with --dev")
    rank = Rank.from_environment()
    if not resume:
        on_first_rank(lambda: require_unused(out, "resume with --resume or remove it"), rank)
    job = FinetuningJob.prepare(source, spec, data, settings, recipe, head)
    together = job.division(rank) is not None
    record = {
        "digests": job.digests(),
        "run": to_dict(settings),
        "train": to_dict(recipe),
        "grid": dict(grid),
    }
    on_first_rank(lambda: _require_same(out, record if head is None else {**record, "head": head.__name__}), rank)
    search = _Search(job, out, settings, recipe, grid, trials)
    study = on_first_rank(search.study, rank)
    at_once = 1 if together else rank.count
    while upcoming := result_of_first_rank(lambda: search.upcoming(study, at_once, drawn=rank.count > 1), rank):
        attempts: Sequence[Mapping[str, Any] | None] = (
            [search.attempt_of_all(study, upcoming[0], rank)] if together else search.attempts(upcoming, rank)
        )
        on_first_rank(functools.partial(search.enter, study, attempts), rank)
    return _changed(settings, recipe, result_of_first_rank(lambda: search.best(study), rank))


class _Search:
    """A search for the settings of a job in a folder: the study of Optuna, and the trainings that are its trials."""

    def __init__(
        self,
        job: FinetuningJob,
        out: Path,
        settings: FinetuningSettings,
        recipe: RecipeSettings,
        grid: Mapping[str, tuple[float, ...]],
        trials: int,
    ) -> None:
        self.job, self.out, self.settings, self.recipe, self.grid = job, out, settings, recipe, grid
        self.metric = job.task.selection_metric
        self.total = min(trials, math.prod(len(choices) for choices in grid.values()))
        self._twin: Any = None

    def study(self) -> Any:
        """The study of the folder, new or as an earlier start left it."""
        optuna = _optuna()
        journal = optuna.storages.journal.JournalFileBackend(str(self.out / JOURNAL_FILE))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(journal),
            study_name="search",
            direction="maximize",
            load_if_exists=True,
            sampler=self._sampler(),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0),
        )
        # It draws what the study will draw, before there are scores.
        self._twin = optuna.create_study(direction="maximize", sampler=self._sampler())
        self._twin.add_trials(study.get_trials())
        return study

    def _sampler(self) -> Any:
        space = {name: list(choices) for name, choices in self.grid.items()}
        return _optuna().samplers.GridSampler(space, seed=self.recipe.seed)

    def upcoming(self, study: Any, most: int, *, drawn: bool) -> list[dict[str, Any]]:
        """The number and the values of the next trials, at most `most`; none at the end.

        Args:
            drawn: whether they are needed; a process that trains by itself draws the values as it enters the trial.
        """
        states = _optuna().trial.TrialState
        finished = study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
        count, first = min(most, self.total - len(finished)), len(study.get_trials(deepcopy=False))
        if not drawn:
            return [{}] * count
        found = list[dict[str, Any]]()

        def draw(trial: Any) -> float:
            found.append({"number": first + len(found), "values": self._suggested(trial)})
            return 0.0

        for _ in range(count):
            self._twin.optimize(draw, n_trials=1)
        return found

    def attempts(self, upcoming: Sequence[Mapping[str, Any]], rank: Rank) -> list[dict[str, Any] | None]:
        """For each trial, its scores after each epoch and at the end; each process trains one. None for one process."""
        if rank.count == 1:
            return [None] * len(upcoming)
        by_epoch: list[dict[str, float]] = []

        def train() -> dict[str, Any] | None:
            if rank.index >= len(upcoming):
                return None
            number, values = upcoming[rank.index]["number"], upcoming[rank.index]["values"]
            trained = self._train(number, values, lambda scores: by_epoch.append(dict(scores)))
            return {"by_epoch": by_epoch, "trained": dataclasses.asdict(trained)}

        return from_all_ranks(on_every_rank(train, rank), rank)[: len(upcoming)]

    def attempt_of_all(self, study: Any, upcoming: Mapping[str, Any], rank: Rank) -> dict[str, Any]:
        """The scores of one trial whose steps all processes share, as in `attempts`; no end if it falls behind."""
        by_epoch: list[dict[str, float]] = []

        def judge(scores: Mapping[str, float]) -> None:
            by_epoch.append(dict(scores))
            if result_of_first_rank(lambda: self._falls_behind(study, by_epoch), rank):
                raise _optuna().TrialPruned

        try:
            trained = self._train(upcoming["number"], upcoming["values"], judge, rank)
        except _optuna().TrialPruned:
            return {"by_epoch": by_epoch, "trained": None}
        return {"by_epoch": by_epoch, "trained": dataclasses.asdict(trained)}

    def _falls_behind(self, study: Any, by_epoch: Sequence[Mapping[str, float]]) -> bool:
        """Whether the study would prune a next trial with these scores; nothing is entered."""
        optuna = _optuna()
        copy = optuna.create_study(direction="maximize", pruner=study.pruner)
        copy.add_trials(study.get_trials())
        trial = copy.ask()
        for epoch, scores in enumerate(by_epoch, start=1):
            trial.report(scores[self.metric], epoch)
        return bool(trial.should_prune())

    def enter(self, study: Any, attempts: Sequence[Mapping[str, Any] | None]) -> None:
        """Enters trials into the study and the table, in order; one that no process has trained is trained now."""
        for attempt in attempts:
            study.optimize(functools.partial(self._objective, attempt), n_trials=1)
            write_json(self.out / TABLE_FILE, _table(study))

    def _objective(self, attempt: Mapping[str, Any] | None, trial: Any) -> float:
        """The score of a trial; reports those of its epochs, so that it may be pruned."""
        pruned, values, epoch = _optuna().TrialPruned, self._suggested(trial), 0

        def report(scores: Mapping[str, float]) -> None:
            nonlocal epoch
            epoch += 1
            trial.report(scores[self.metric], epoch)
            if trial.should_prune():
                raise pruned

        try:
            if attempt is None:
                trained = self._train(trial.number, values, report)
            else:
                for scores in attempt["by_epoch"]:
                    report(scores)
                assert attempt["trained"] is not None, "the last report prunes a trial without an end"
                trained = SeedResult(**attempt["trained"])
        except pruned:
            folder = self._folder(trial.number)
            RunFolder.open(folder).clear()
            (folder / REPORT_FILE).unlink(missing_ok=True)
            shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
            raise
        trial.set_user_attr("seconds", trained.seconds)
        trial.set_user_attr("collapsed", trained.collapsed)
        return trained.scores[self.metric]

    def best(self, study: Any) -> dict[str, float]:
        """The values of the best trial; warns if no trial is any good."""
        completed = study.get_trials(deepcopy=False, states=(_optuna().trial.TrialState.COMPLETE,))
        if completed and all(trial.user_attrs.get("collapsed") for trial in completed):
            tried = [_changed(self.settings, self.recipe, trial.params) for trial in completed]
            advice = against_collapse(
                learning_rate=min(rates.learning_rate for _, rates in tried),
                epochs=max(one.epochs for one, _ in tried),
                bias_correction=self.recipe.bias_correction,
            )
            warn(f"all trials that were not pruned collapsed to one answer; {advice}")
        return dict(study.best_params)

    def _suggested(self, trial: Any) -> dict[str, float]:
        return {name: trial.suggest_categorical(name, list(choices)) for name, choices in self.grid.items()}

    def _train(
        self,
        number: int,
        values: Mapping[str, float],
        on_scores: Callable[[Mapping[str, float]], None],
        rank: Rank | None = None,
    ) -> SeedResult:
        # What is there was left by a start of several processes that ended before the trial was entered.
        on_first_rank(lambda: shutil.rmtree(self._folder(number), ignore_errors=True), rank or Rank())
        changed, rates = _changed(self.settings, self.recipe, values)
        return self.job.with_settings(changed, rates).train_once(self._folder(number), rates.seed, on_scores, rank=rank)

    def _folder(self, number: int) -> Path:
        return self.out / f"trial-{number:03d}"


def _changed(
    settings: FinetuningSettings, recipe: RecipeSettings, values: Mapping[str, float]
) -> tuple[FinetuningSettings, RecipeSettings]:
    """The settings with the values of a trial."""
    mine: dict[str, Any] = {name: value for name, value in values.items() if hasattr(settings, name)}
    rates: dict[str, Any] = {name: value for name, value in values.items() if name not in mine}
    return dataclasses.replace(settings, **mine), dataclasses.replace(recipe, **rates)


def _table(study: Any) -> list[dict[str, Any]]:
    """All trials, best first; `value` is the dev score, None for a pruned trial."""
    rows = [
        {
            "trial": trial.number,
            **trial.params,
            "state": trial.state.name.lower(),
            "value": trial.value if trial.state.name == "COMPLETE" else None,
            "by_epoch": list(trial.intermediate_values.values()),
            "seconds": trial.user_attrs.get("seconds"),
        }
        for trial in study.trials
    ]
    return sorted(rows, key=lambda row: (row["value"] is None, -(row["value"] or 0.0)))


def _require_same(out: Path, record: dict[str, Any]) -> None:
    """Records the settings and files of the search, or compares them with an existing record."""
    path = out / SEARCH_FILE
    out.mkdir(parents=True, exist_ok=True)
    if path.exists():
        if read_json(path) != _as_read(record):
            raise RunError(
                expected=f"the settings and files that the search in '{out}' was started with",
                found="others",
                fix="use the same ones or name another folder",
            )
        return
    write_json(path, record)


def _as_read(record: Any) -> Any:
    """Plain values as read back from JSON."""
    return json.loads(json.dumps(record))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            expected="the package optuna, for --search",
            found="none",
            fix="install it (pip install 'bertsmith[search]') or omit the option",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
