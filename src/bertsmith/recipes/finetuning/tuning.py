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
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, RunError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import to_dict
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import from_all_ranks, on_first_rank, result_of_first_rank
from bertsmith.base.storage.files import keep_record, read_json, write_json
from bertsmith.base.storage.locks import require_unused
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.recipes.finetuning.job import BaseModel, FinetuningJob
from bertsmith.recipes.finetuning.settings import GRID, FinetuningSettings, RecipeSettings, against_collapse
from bertsmith.recipes.results.finished_run import MODEL_FOLDER, REPORT_FILE, TABLE_FILE, SeedResult, search_folder
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.run import Run
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

    Every trial trains with the first seed. No settings are tried twice. The table is also in OUT-search/trials.json.

    Args:
        source: as of `finetune`.
        out: of the run that is to use the settings; new, unless `resume`.
        trials: total number of settings to try, including those of an earlier start.
        resume: resume a stopped search in the folder, if there is one.
        grid: values of each setting.
        head: the user's head, in place of the linear layer.

    Raises:
        ConfigError: Optuna is not installed, there are no dev examples to select by, or the model cannot be divided.
        RunError: a folder is not empty, or that of the search contains a different one.
    """
    rank, folder = Rank.from_environment(), search_folder(out)
    if not resume:
        on_first_rank(lambda: require_unused(out, "name another folder", besides=(CONTINUED,)), rank)
    _optuna()
    if not data.dev:
        raise ConfigError(expected="dev examples to select by", found="none", fix="name a file with --dev")
    if not resume:
        on_first_rank(lambda: require_unused(folder, "resume with --resume or remove it"), rank)
    is_started = result_of_first_rank(lambda: resume and (folder / SEARCH_FILE).exists(), rank)
    with Run.open(folder, resume=is_started, device=settings.device, parts=(SEARCH_FILE,)) as run, run.locked():
        job = FinetuningJob.prepare(source, spec, data, settings, recipe, head)
        record = {
            "digests": job.digests(),
            "run": to_dict(settings),
            "train": to_dict(recipe),
            "grid": dict(grid),
            **({} if head is None else {"head": head.__name__}),
        }
        search = _Search(run, job, settings, recipe, grid, trials)
        run.on_first_rank(lambda: _require_same(folder, record))
        while upcoming := run.from_first_rank(search.upcoming):
            attempts = search.attempts(upcoming)
            run.on_first_rank(functools.partial(search.enter, attempts))
        settings, recipe = _changed(settings, recipe, run.from_first_rank(search.best))
    return Tuning(settings=settings, recipe=recipe, table=read_json(folder / TABLE_FILE))


class _Search:
    """A search for the settings of a job: the study of Optuna, which rank 0 has, and the trainings that are its trials.

    Attributes:
        is_shared: whether all processes share every step of a trial, because the model is divided among them.
    """

    def __init__(
        self,
        run: Run,
        job: FinetuningJob,
        settings: FinetuningSettings,
        recipe: RecipeSettings,
        grid: Mapping[str, tuple[float, ...]],
        trials: int,
    ) -> None:
        self.run, self.job, self.settings, self.recipe, self.grid = run, job, settings, recipe, grid
        self.metric = job.task.selection_metric
        self.total = min(trials, math.prod(len(choices) for choices in grid.values()))
        self.is_shared = job.division(run.rank) is not None

    @functools.cached_property
    def _study(self) -> Any:
        """The study of the folder, new or as an earlier start left it."""
        optuna = _optuna()
        journal = optuna.storages.journal.JournalFileBackend(str(self.run.path / JOURNAL_FILE))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(journal),
            study_name="search",
            direction="maximize",
            load_if_exists=True,
            sampler=self._sampler(),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0),
        )

    @functools.cached_property
    def _twin(self) -> Any:
        """A study that draws what that of the folder will draw, before there are scores."""
        twin = _optuna().create_study(direction="maximize", sampler=self._sampler())
        twin.add_trials(self._study.get_trials())
        return twin

    def _sampler(self) -> Any:
        space = {name: list(choices) for name, choices in self.grid.items()}
        return _optuna().samplers.GridSampler(space, seed=self.recipe.seed)

    def upcoming(self) -> list[dict[str, Any]]:
        """The number and the values of the next trials, as many as are trained at the same time; none at the end.

        A process that trains by itself draws the values as it enters the trial.
        """
        states = _optuna().trial.TrialState
        finished = self._study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
        count = min(1 if self.is_shared else self.run.rank.count, self.total - len(finished))
        if self.run.rank.count == 1:
            return [{}] * count
        drawn = list[dict[str, Any]]()
        first = len(self._study.get_trials(deepcopy=False))

        def draw(trial: Any) -> float:
            drawn.append({"number": first + len(drawn), "values": self._suggested(trial)})
            return 0.0

        for _ in range(count):
            self._twin.optimize(draw, n_trials=1)
        return drawn

    def attempts(self, upcoming: Sequence[Mapping[str, Any]]) -> Sequence[dict[str, Any] | None]:
        """For each trial, its scores after each epoch and at the end, on every rank; None for one process.

        Each process trains one, or all share one, which has no end if it falls behind.
        """
        rank = self.run.rank
        if rank.count == 1:
            return [None] * len(upcoming)
        if self.is_shared:
            return [self._attempt(**upcoming[0], rank=rank)]
        mine = upcoming[rank.index : rank.index + 1]
        tried = self.run.on_every_rank(lambda: [self._attempt(**trial, rank=Rank()) for trial in mine])
        return [attempt for attempts in from_all_ranks(tried, rank) for attempt in attempts]

    def _attempt(self, number: int, values: Mapping[str, float], rank: Rank) -> dict[str, Any]:
        by_epoch: list[dict[str, float]] = []

        def judge(scores: Mapping[str, float]) -> None:
            by_epoch.append(dict(scores))
            if self.is_shared and self.run.from_first_rank(lambda: self._falls_behind(by_epoch)):
                raise _optuna().TrialPruned

        try:
            trained = self._train(number, values, judge, rank)
        except _optuna().TrialPruned:
            return {"by_epoch": by_epoch, "trained": None}
        return {"by_epoch": by_epoch, "trained": dataclasses.asdict(trained)}

    def _falls_behind(self, by_epoch: Sequence[Mapping[str, float]]) -> bool:
        """Whether the study would prune a next trial with these scores; nothing is entered."""
        optuna = _optuna()
        copy = optuna.create_study(direction="maximize", pruner=self._study.pruner)
        copy.add_trials(self._study.get_trials())
        trial = copy.ask()
        for epoch, scores in enumerate(by_epoch, start=1):
            trial.report(scores[self.metric], epoch)
        return bool(trial.should_prune())

    def enter(self, attempts: Sequence[Mapping[str, Any] | None]) -> None:
        """Enters trials into the study and the table, in order; one that no process has trained is trained now."""
        for attempt in attempts:
            self._study.optimize(functools.partial(self._objective, attempt), n_trials=1)
            write_json(self.run.path / TABLE_FILE, _table(self._study))

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
                trained = self._train(trial.number, values, report, Rank())
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

    def best(self) -> dict[str, float]:
        """The values of the best trial; warns if no trial is any good."""
        completed = self._study.get_trials(deepcopy=False, states=(_optuna().trial.TrialState.COMPLETE,))
        if completed and all(trial.user_attrs.get("collapsed") for trial in completed):
            tried = [_changed(self.settings, self.recipe, trial.params) for trial in completed]
            advice = against_collapse(
                learning_rate=min(rates.learning_rate for _, rates in tried),
                epochs=max(tuned.epochs for tuned, _ in tried),
                bias_correction=self.recipe.bias_correction,
            )
            warn(f"all trials that were not pruned collapsed to one answer; {advice}")
        return dict(self._study.best_params)

    def _suggested(self, trial: Any) -> dict[str, float]:
        return {name: trial.suggest_categorical(name, list(choices)) for name, choices in self.grid.items()}

    def _train(
        self, number: int, values: Mapping[str, float], on_scores: Callable[[Mapping[str, float]], None], rank: Rank
    ) -> SeedResult:
        # What is there was left by a start of several processes that ended before the trial was entered.
        on_first_rank(lambda: shutil.rmtree(self._folder(number), ignore_errors=True), rank)
        changed, rates = _changed(self.settings, self.recipe, values)
        return self.job.with_settings(changed, rates).train_once(self._folder(number), rates.seed, on_scores, rank=rank)

    def _folder(self, number: int) -> Path:
        return self.run.path / f"trial-{number:03d}"


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


def _require_same(out: Path, record: Mapping[str, Any]) -> None:
    """Records the settings and files of the search, or compares them with an existing record."""
    if keep_record(out / SEARCH_FILE, record):
        raise RunError(
            expected=f"the settings and files that the search in '{out}' was started with",
            found="others",
            fix="use the same ones or name another folder",
        )


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
