"""Hyper-parameter search over the fine-tuning settings that matter: learning rate, batch size, epochs.

The grid combines the paper's with other common lists. Optuna samples from it without repetition and prunes trials that
fall behind after an epoch. Its journal is in the folder, so a stopped search can be resumed.

Source: Devlin et al. (2018), appendix A.3 (batch sizes 16, 32; learning rates 5e-5, 4e-5, 3e-5, 2e-5; epochs 2, 3, 4).
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ConfigError, RunError
from bertsmith.files import read_json, write_json
from bertsmith.finetuning.finished_run import TABLE_FILE
from bertsmith.finetuning.settings import GRID, FinetuningSettings, RecipeSettings, against_collapse, unless_new
from bertsmith.finetuning.training import BaseModel, FinetuningJob
from bertsmith.heads.own_head import OwnHead
from bertsmith.locks import locked_folder, require_unused
from bertsmith.progress import warn
from bertsmith.settings import to_dict
from bertsmith.tasks.data import TaskData
from bertsmith.tasks.task import TaskSpec
from bertsmith.training.run_folder import CONTINUED, RunFolder

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
    if not resume:
        require_unused(out, "name another folder", besides=(CONTINUED,))
    folder = search_folder(out)
    with locked_folder(folder):
        settings, recipe = search_settings(
            source, spec, data, folder, settings, recipe, trials=trials, resume=resume, grid=grid, head=head
        )
    return Tuning(settings=settings, recipe=recipe, table=read_json(folder / TABLE_FILE))


def search_folder(out: Path) -> Path:
    """The folder of the search for a run in `out`."""
    return out.resolve().with_name(f"{out.resolve().name}-search")


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
        ConfigError: Optuna is not installed, or there are no dev examples to select by.
        RunError: the folder is not empty, or contains a different search.
    """
    optuna = _optuna()
    if not data.dev:
        raise ConfigError(expected="dev examples to select by", found="none", fix="name a file with --dev")
    if not resume:
        require_unused(out, "resume with --resume or remove it")
    out.mkdir(parents=True, exist_ok=True)
    job = FinetuningJob.prepare(source, spec, data, settings, recipe, head)
    record = {
        "digests": job.digests(),
        "run": unless_new(to_dict(settings)),
        "train": unless_new(to_dict(recipe)),
        "grid": dict(grid),
    }
    _require_same(out, record if head is None else {**record, "head": head.__name__})
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / JOURNAL_FILE)))
    study = optuna.create_study(
        storage=storage,
        study_name="search",
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.GridSampler({name: list(choices) for name, choices in grid.items()}, seed=recipe.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0),
    )
    metric = job.task.selection_metric
    finished = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED

    def objective(trial: Any) -> float:
        values = {name: trial.suggest_categorical(name, list(choices)) for name, choices in grid.items()}
        changed, rates = _changed(settings, recipe, values)
        epoch = 0

        def report(scores: Mapping[str, float]) -> None:
            nonlocal epoch
            epoch += 1
            trial.report(scores[metric], epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        folder = out / f"trial-{trial.number:03d}"
        try:
            trained = job.with_settings(changed, rates).train_once(folder, rates.seed, report)
        except optuna.TrialPruned:
            RunFolder.open(folder).clear()
            raise
        trial.set_user_attr("seconds", trained.seconds)
        trial.set_user_attr("collapsed", trained.collapsed)
        return trained.scores[metric]

    combinations = math.prod(len(choices) for choices in grid.values())
    while len(study.get_trials(deepcopy=False, states=finished)) < min(trials, combinations):
        study.optimize(objective, n_trials=1)
        write_json(out / TABLE_FILE, _table(study))
    completed = study.get_trials(deepcopy=False, states=finished[:1])
    if completed and all(trial.user_attrs.get("collapsed") for trial in completed):
        tried = [_changed(settings, recipe, trial.params) for trial in completed]
        advice = against_collapse(
            learning_rate=min(rates.learning_rate for _, rates in tried),
            epochs=max(one.epochs for one, _ in tried),
            bias_correction=recipe.bias_correction,
        )
        warn(f"all trials that were not pruned collapsed to one answer; {advice}")
    return _changed(settings, recipe, study.best_params)


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
