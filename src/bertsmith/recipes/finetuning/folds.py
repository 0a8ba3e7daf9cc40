"""Cross-validation: the score of every training example by a model that was trained without it.

::

    RUN/folds/1/ ...         for each fold, the run that trains on the other folds, with that fold as its dev examples
    RUN/out_of_fold.jsonl    the predictions for all examples, in the order of the file, each by the run of its fold
    RUN/...                  the run on all examples, whose model is kept; its report has the scores of the folds

The model of a fold is made like the one that is kept: an average of trainings, or the first of them that did not
collapse, whichever scores best on the fold. With `--keep auto`, all examples together decide between that, the linear
start and a bag of words. Temperatures and thresholds, which each run fits to its fold, are averaged for the model that
is kept.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertsmith.base.storage.files import read_json, read_json_lines, write_text
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.recipes.finetuning.baselines import Baselines
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.merging import ONE_ERROR, Kept, Trained, counted_words, kept_of, started
from bertsmith.recipes.results.comparison import tested
from bertsmith.recipes.results.finished_run import (
    AVERAGE,
    BAG_FOLDER,
    FITTED,
    MODEL_FOLDER,
    OUT_OF_FOLD,
    PREDICTIONS_FILE,
    REPORT_FILE,
    START,
    WITHOUT_TRAINING,
    named,
)
from bertsmith.recipes.results.resampling import Line, Part, in_order, intervals, scores_of_lines
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.training.loop.run_folder import FOLDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """The results of all folds.

    Attributes:
        lines: the predictions for all examples, in their order, with the row, the location and the fold of each.
        scores: of all examples together; of a score that cannot be computed from predictions, the mean over the folds.
        folds: of each fold its number of "examples" and its "scores", for the report.
        name: of the model that has the predictions, see `merging.Kept`; "" for one of trainings.
        fitted: fields of `TaskSpec` that were fitted to the folds, as their means.
        baselines: the predictions of the baselines of the runs, and their scores on all examples.
        choice: the paired tests of what `--keep auto` kept against the others, for the report; else empty.
    """

    lines: Sequence[Line]
    scores: Mapping[str, float]
    folds: Sequence[Mapping[str, Any]]
    name: str
    fitted: Mapping[str, Any]
    baselines: Baselines
    choice: Sequence[Mapping[str, Any]]

    def kept(self, job: FinetuningJob, trained: Sequence[Trained], run: Path) -> Kept:
        """The model that is kept of the trainings on all examples, with the scores of the folds; writes their lines."""
        write_text(run / OUT_OF_FOLD, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines))
        rivals = {START: started, BAG_FOLDER: counted_words}
        model = rivals[self.name](job, run / self.name) if self.name in rivals else kept_of(job, trained, run)
        spec, result = (
            dataclasses.replace(model.spec, **self.fitted),
            dataclasses.replace(model.result, scores=self.scores),
        )
        return model._replace(spec=spec, result=result, predictions=run / OUT_OF_FOLD)

    def in_report(self) -> dict[str, Any]:
        """The entries of report.json."""
        scores = {name: [fold["scores"][name] for fold in self.folds] for name in self.folds[0]["scores"]}
        return {
            "scores": {name: dataclasses.asdict(spread(values)) for name, values in scores.items()},
            "cross_validation": {"examples": len(self.lines), "scores": dict(self.scores), "folds": list(self.folds)},
            **({"choice": list(self.choice)} if self.choice else {}),
        }


def cross_validation(run: Path, spec: TaskSpec, parts: Sequence[Part]) -> CrossValidation:
    """The results of all folds, from the folders of their runs.

    Args:
        run: the folder of the whole run.
        parts: the folds, in order.
    """
    folders = [run / FOLDS / str(fold.number) for fold, _ in parts]
    reports = [read_json(folder / REPORT_FILE) for folder in folders]

    def system(name: str, models: Sequence[str]) -> _System:
        lines = _lines_of(folders, models, parts)
        return _System(name, models, lines, _scores(spec, reports, models, lines))

    if all(AVERAGE in report for report in reports):
        kept = system(named(AVERAGE, reports[0][AVERAGE]["parts"]), [AVERAGE] * len(parts))
    else:
        kept = system("the first training", list(map(_first_trained, reports)))
    others = []
    for name in (START, BAG_FOLDER):
        if all(name in report and report["runs"][0]["folder"] != name for report in reports):
            lost = system(named(name, 0), [name] * len(parts))
            if _is_better(spec, lost, kept):
                kept, lost = lost, kept
            others.append(lost)
    return CrossValidation(
        lines=kept.lines,
        scores=kept.scores,
        folds=[
            {"folder": f"{FOLDS}/{fold.number}", "examples": len(fold.rows), "scores": _scores_of(report, model)}
            for (fold, _), report, model in zip(parts, reports, kept.models, strict=True)
        ],
        name=kept.models[0] if kept.models[0] in (START, BAG_FOLDER) else "",
        fitted=_fitted(folders, reports, kept.models),
        baselines=_baselines(spec, folders, parts),
        choice=[_entry(spec, kept, lost) for lost in others],
    )


class _System(NamedTuple):
    """A way to make the model of each fold, and its results on all examples.

    Attributes:
        name: in words.
        models: the folders of the models in the runs of the folds.
    """

    name: str
    models: Sequence[str]
    lines: Sequence[Line]
    scores: Mapping[str, float]


def _entry(spec: TaskSpec, kept: _System, lost: _System) -> dict[str, Any]:
    """What the report says of a model that is not kept, with the paired test."""
    score, of_model = lost.scores[spec.metric], kept.scores[spec.metric]
    entry = {"name": lost.name, "metric": spec.metric, "score": score, "of_model": of_model}
    return {**entry, "examples": len(kept.lines), **tested(spec, [kept.lines], [lost.lines])}


def _is_better(spec: TaskSpec, model: _System, other: _System) -> bool:
    """Whether a model is better than another on all examples by more than one standard error."""
    if model.scores[spec.metric] <= other.scores[spec.metric]:
        return False
    return bool(tested(spec, [model.lines], [other.lines]).get("p_value", 1.0) < ONE_ERROR)


def _first_trained(report: Mapping[str, Any]) -> str:
    """The folder of the first training of a run that did not collapse, or else of the first."""
    trainings = report["runs"]
    return str(next((run for run in trainings if not run["collapsed"]), trainings[0])["folder"])


def _scores_of(report: Mapping[str, Any], model: str) -> Mapping[str, float]:
    """The scores of a model of a run on its fold."""
    if model in WITHOUT_TRAINING:
        return dict(report[model]["scores"])
    return dict(next(run["scores"] for run in report["runs"] if run["folder"] == model))


def _scores(
    spec: TaskSpec, reports: Sequence[Mapping[str, Any]], models: Sequence[str], lines: Sequence[Line]
) -> dict[str, float]:
    """The scores of all examples together, or else their means over the folds."""
    of_folds = [_scores_of(report, model) for report, model in zip(reports, models, strict=True)]
    means = {name: float(np.mean([scores[name] for scores in of_folds])) for name in of_folds[0]}
    return {**means, **scores_of_lines(spec.kind, means, lines, spec.scheme)}


def _lines_of(folders: Sequence[Path], models: Sequence[str], parts: Sequence[Part]) -> list[Line]:
    """The predictions of a model of each run for its fold, in the order of all examples."""
    files = [folder / model / PREDICTIONS_FILE for folder, model in zip(folders, models, strict=True)]
    return in_order([list(read_json_lines(path)) for path in files], parts)


def _fitted(folders: Sequence[Path], reports: Sequence[Mapping[str, Any]], models: Sequence[str]) -> dict[str, Any]:
    """The means of the values that were fitted to the folds for a model of each run, as far as there are any."""
    values = [
        report[model]["fitted"] if model in WITHOUT_TRAINING else _fitted_by_training(folder / model / MODEL_FOLDER)
        for folder, report, model in zip(folders, reports, models, strict=True)
    ]
    fitted: dict[str, Any] = {"temperature": float(np.mean([part["temperature"] for part in values]))}
    if thresholds := [part["threshold"] for part in values if part["threshold"] is not None]:
        fitted["threshold"] = float(np.mean(thresholds))
    if all(part["thresholds"] for part in values):
        fitted["thresholds"] = tuple(np.mean([part["thresholds"] for part in values], axis=0).tolist())
    return fitted


def _fitted_by_training(folder: Path) -> dict[str, Any]:
    spec = TaskSpec.from_dict(read_metadata(folder).spec or {}, str(folder))
    return {name: getattr(spec, name) for name in FITTED}


def _baselines(spec: TaskSpec, folders: Sequence[Path], parts: Sequence[Part]) -> Baselines:
    """The baselines that all runs have, scored on all examples."""
    runs = [Baselines.read(folder) or Baselines() for folder in folders]
    total = sum(len(fold.rows) for fold, _ in parts)
    results, every = [], {}
    for name in [result["name"] for result in runs[0].results]:
        of_runs = [result for run in runs for result in run.results if result["name"] == name]
        if len(of_runs) < len(runs):
            continue
        lines = every[name] = in_order([run.lines[name] for run in runs], parts)
        means = {
            score: float(np.mean([result["scores"][score] for result in of_runs]))
            for score in of_runs[0]["scores"]
            if all(score in result["scores"] for result in of_runs)
        }
        # One that was fitted to all examples of the other folds counts as one on all examples.
        uses_all = all(
            result["train_examples"] == total - len(fold.rows) for result, (fold, _) in zip(of_runs, parts, strict=True)
        )
        results.append(
            {
                "name": name,
                "scores": {**means, **scores_of_lines(spec.kind, means, lines, spec.scheme)},
                "intervals": intervals(spec.kind, means, lines, spec.scheme),
                "seconds": round(sum(result["seconds"] for result in of_runs), 3),
                "train_examples": total if uses_all else max(result["train_examples"] for result in of_runs),
            }
        )
    return Baselines(results=results, lines=every)
