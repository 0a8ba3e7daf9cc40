"""The model of several trainings: the one with the best score, or the average of their weights.

Trainings that start from the same base model and the same linear layer end close to each other, and the average of
their weights is a model as well: no slower than one of them, and usually better than most. With few examples, the
average includes the weights that they started from. Where dev examples were held out from few labelled ones, they only
measure; `FinetuningJob.on_all_examples` is the job that trains on them too.

Sources: Wortsman et al. (2022), "Model soups: averaging weights of multiple fine-tuned models improves accuracy without
increasing inference time", section 2 (the uniform soup); Wortsman et al. (2022), "Robust fine-tuning of zero-shot
models", section 3 (the average with the model before fine-tuning); Hastie, Tibshirani and Friedman, "The Elements of
Statistical Learning" (2nd edition, 2009), section 7.10 (one standard error).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from bertsmith.base.core.progress import warn
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import read_json_lines
from bertsmith.models.checkpoints.adapters import read_factors
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.models.model_files.weakness import LEVEL
from bertsmith.models.parts.low_rank import Factors, average_of_factors
from bertsmith.recipes.finetuning.bag import bag_of, has_bag, judged_bag, result_of_bag, saved_bag
from bertsmith.recipes.finetuning.recipes import FEW_EXAMPLES
from bertsmith.recipes.finetuning.settings import BAG_ALONE
from bertsmith.recipes.results.baseline_lines import lines_of_choice
from bertsmith.recipes.results.comparison import Lines, tested
from bertsmith.recipes.results.finished_run import (
    ADAPTER_FOLDER,
    AVERAGE,
    BAG_FOLDER,
    FITTED,
    MODEL_FOLDER,
    PREDICTIONS_FILE,
    START,
    WITHOUT_TRAINING,
    SeedResult,
    named,
)
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.specs.task import TaskSpec

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.job import FinetuningJob, Judged

ONE_ERROR = 0.3173  # the p-value of a difference of one standard error
Trained = tuple[Path, SeedResult, int]  # the folder of a training, its result, and how often it was restarted
Weights: TypeAlias = Path | ModelFolder | EncoderForTask | NGramModel
Refit: TypeAlias = "tuple[FinetuningJob, list[Trained]]"  # a job on all examples, and its trainings


class Kept(NamedTuple):
    """The model that is kept of several trainings.

    Attributes:
        name: the folder of its training, or one of `WITHOUT_TRAINING`.
        parts: the indices of the trainings that it consists of.
        weights: the model folder of its training, which is not read, or the average, the start, or the bag of words.
        spec: with the values that are fitted to dev examples.
        result: that of the best training; of an average with its own scores, and the cost of all.
        predictions: the file of its predictions on the dev examples; without any, there is none.
        with_start: whether the linear start is one more part of an average.
        others: what was compared and is not kept: the best training, an average, the start, the bag of words.
    """

    name: str
    parts: tuple[int, ...]
    weights: Weights
    spec: TaskSpec
    result: SeedResult
    predictions: Path
    with_start: bool = False
    others: "tuple[Kept, ...]" = ()

    @property
    def lines(self) -> Lines:
        """Its predictions on the dev examples, as they are written; empty without any."""
        return read_json_lines(self.predictions) if self.predictions.is_file() else []


def best_of(job: "FinetuningJob", results: Sequence[SeedResult]) -> int:
    """The index of the result with the best score, the first of equal ones."""
    metric = job.task.spec.metric
    return max(range(len(results)), key=lambda number: results[number].scores.get(metric, 0.0))


def kept_of(job: "FinetuningJob", trained: Sequence[Trained], out: Path) -> Kept:
    """The model that the settings of a job keep of its trainings.

    An average is not kept if it collapsed or the best training is better by a paired test: its parts did not end close
    to each other. Trainings that collapsed are not part of it. With `keep` auto, the linear start is kept in place of
    either if it is better by more than one standard error, and then the bag of words likewise.

    Args:
        trained: empty if the bag of words alone is asked for; a training may stand for several.
        out: the run folder, which gets the predictions of an average, of the start and of the bag of words.
    """
    if job.keep == BAG_ALONE:
        return counted_words(job, out / BAG_FOLDER)
    kept = _of_trainings(job, trained, out)
    if job.keep != "auto" or job.dev is None:
        return kept
    for rival in (started(job, out / START), *([counted_words(job, out / BAG_FOLDER)] if has_bag(job) else [])):
        is_behind = kept.result.collapsed and not rival.result.collapsed
        better = is_behind or _is_better(job, rival, kept, ONE_ERROR)
        winner, other = (rival, kept) if better else (kept, rival)
        kept = winner._replace(others=(*kept.others, other._replace(others=())))
    return kept


def _of_trainings(job: "FinetuningJob", trained: Sequence[Trained], out: Path) -> Kept:
    """The best training, or the average; see `kept_of`."""
    results = [result for _, result, _ in trained]
    best = best_of(job, results)
    path = trained[best][0]
    spec = TaskSpec.from_dict(read_metadata(path / MODEL_FOLDER).spec or {}, str(path))
    single = Kept(path.name, (best,), path / MODEL_FOLDER, spec, results[best], path / PREDICTIONS_FILE)
    parts = tuple(number for number, result in enumerate(results) if not result.collapsed)
    if job.settings.merge != "average" or len(parts) < 2:
        return single
    several = _averaged(job, trained, parts, single, out / AVERAGE)
    lost = several.result.collapsed or _is_better(job, single, several)
    kept, other = (single, several) if lost else (several, single)
    return kept._replace(others=(other,))


def started(job: "FinetuningJob", out: Path) -> Kept:
    """The linear start as a model; writes its predictions on the dev examples to the folder."""
    model = job.started_model(job.training.seed).to(choose(job.runtime.device, "fp32").torch_device)
    result = SeedResult(seed=job.training.seed, scores={}, collapsed=False, best_step=0, steps=0, seconds=0.0, tokens=0)
    return _written(job, START, (), model, job.judge(model, Rank()), result, out)


def counted_words(job: "FinetuningJob", out: Path) -> Kept:
    """The bag of words as a model; writes its predictions on the dev examples to the folder."""
    model = saved_bag(job, out)
    return _written(job, BAG_FOLDER, (), model, judged_bag(job, model), result_of_bag(job), out)


def _is_better(job: "FinetuningJob", model: Kept, other: Kept, level: float = LEVEL) -> bool:
    """Whether a model is better than another, by a paired test on the dev examples; False for too few of them."""
    spec, lines = job.task.spec, model.lines
    if len(lines) < 2 or model.result.scores[spec.metric] <= other.result.scores[spec.metric]:
        return False
    return bool(tested(spec, [lines], [other.lines])["p_value"] < level)


def _averaged(job: "FinetuningJob", trained: Sequence[Trained], parts: tuple[int, ...], best: Kept, out: Path) -> Kept:
    """The average of some trainings; writes its predictions on the dev examples, if there are any, to the folder."""
    chosen = [trained[number] for number in parts]
    costs = {path: result for path, result, _ in chosen}.values()  # a training that stands for several counts once
    # With few examples, the start is one more part, unless it is a rival; with more, it is too far behind.
    few = len(job.data.train) < FEW_EXAMPLES and job.keep != "auto"
    with_start = job.settings.start == "linear" and few
    folder = averaged_weights(job, chosen, with_start)
    model = load_for_task(folder, job.head, keep_head=True).model.to(choose(job.runtime.device, "fp32").torch_device)
    result = dataclasses.replace(
        best.result,
        seconds=round(sum(cost.seconds for cost in costs), 3),
        tokens=sum(cost.tokens for cost in costs),
    )
    return _written(job, AVERAGE, parts, folder, job.judge(model, Rank()), result, out)._replace(with_start=with_start)


def _written(
    job: "FinetuningJob",
    name: str,
    parts: tuple[int, ...],
    weights: Weights,
    judged: "Judged",
    result: SeedResult,
    out: Path,
) -> Kept:
    """A model with its scores on the dev examples; writes its predictions on them, if there are any, to the folder.

    Args:
        result: its cost.
    """
    out.mkdir(exist_ok=True)
    job.write_predictions(out / PREDICTIONS_FILE, judged.predictions)
    result = dataclasses.replace(result, scores=judged.scores, collapsed=judged.collapsed)
    return Kept(name, parts, weights, judged.spec, result, out / PREDICTIONS_FILE)


def averaged_weights(job: "FinetuningJob", trained: Sequence[Trained], with_start: bool) -> ModelFolder:
    """A model folder with the average of trainings as its weights.

    Args:
        with_start: whether the linear start counts as one more of them.
    """
    folders = [load_any(path / MODEL_FOLDER) for path, _, _ in trained]
    every = [folder.tensors for folder in folders]
    if with_start:
        state = job.started_model(job.training.seed).state_dict()
        every.append({name: state[name] for name in every[0]})
    return dataclasses.replace(folders[0], tensors=average_of(every))


def average_of(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over models with the same tensors, computed in float64.

    >>> average_of([{"bias": torch.zeros(2)}, {"bias": torch.tensor([1.0, 3.0])}])
    {'bias': tensor([0.5000, 1.5000])}
    """
    means = {}
    for name, first in models[0].items():
        if first.is_floating_point():
            every = torch.stack([model[name].to(torch.float64) for model in models])
            means[name] = every.mean(dim=0).to(first.dtype)
        else:
            means[name] = first
    return means


def refitted(kept: Kept, again: Refit) -> tuple["FinetuningJob", Weights, SeedResult] | None:
    """The job, weights and result of a model that is kept, from trainings on all examples, with the scores of before.

    None if all of these trainings collapsed: then the model is the one that was scored.
    """
    job, every = again
    if kept.name == START:
        return job, job.started_model(job.training.seed), kept.result
    if kept.name == BAG_FOLDER:
        return job, bag_of(job)[0], kept.result
    learned = [training for training in every if not training[1].collapsed]
    if not learned:
        warn("every training on all examples collapsed, so the model is the one that was scored")
        return None
    path, result, _ = learned[0]
    averages = kept.name == AVERAGE
    weights = averaged_weights(job, learned, kept.with_start) if averages else path / MODEL_FOLDER
    return job, weights, dataclasses.replace(result, scores=kept.result.scores)


def adapter_of(kept: Kept, trained: Sequence[Trained], again: "Refit | None", job: "FinetuningJob") -> Factors | None:
    """The adapter of a model that is kept: of an average of A and B of all of its parts; None without a training.

    Args:
        again: the trainings on all examples that the model is made of, if it is.
    """
    if not kept.parts:
        return None
    if again is None:
        chosen = [trained[number % len(trained)] for number in kept.parts]  # a single one stands for all
    else:
        chosen = [training for training in again[1] if not training[1].collapsed]
        chosen = chosen if kept.name == AVERAGE else chosen[:1]
    every = [read_factors(path / ADAPTER_FOLDER, job.adapted, job.folder.config) for path, _, _ in chosen]
    parts = len(every) + kept.with_start
    return every[0] if parts == 1 else average_of_factors(every, parts)


def origin_of(
    job: "FinetuningJob", kept: Kept, writer: "FinetuningJob", results: Sequence[SeedResult]
) -> dict[str, Any]:
    """What the metadata of a model that is kept says of an average, of a training on all examples, and of their cost.

    Starts that collapsed, trials of a search and what was trained before, such as pairs, are not counted.

    Args:
        job: whose dev examples were scored.
        writer: whose examples the model was trained on.
        results: of all trainings; the cost of a single one is that of the model.
    """
    origin: dict[str, Any] = {"average_of": len(kept.parts)} if kept.name == AVERAGE else {}
    if kept.name == START:
        origin |= {"layer": "fitted to the vectors of the base model, which is unchanged", "epochs": 0.0}
    if choice := choice_in_report(job, kept):
        origin["not_kept"] = "; ".join(lines_of_choice(choice))
    if writer is not job:
        origin |= {"dev_examples": len(job.data.dev), "trained_on_dev": True}
    if len(results) > 1:
        steps, tokens = (sum(counts) for counts in zip(*((r.steps, r.tokens) for r in results), strict=True))
        origin |= {"trainings": len(results), "total_steps": steps, "total_tokens": tokens}
    return origin


def models_in_report(job: "FinetuningJob", kept: Kept) -> dict[str, Any]:
    """What report.json says of the average, the start and the bag of words, if they were made, and of the choice."""
    models: dict[str, Any] = {
        made.name: {
            "scores": made.result.scores,
            "parts": len(made.parts),
            "collapsed": made.result.collapsed,
            "fitted": {name: getattr(made.spec, name) for name in FITTED},
        }
        for made in (kept, *kept.others)
        if made.name in WITHOUT_TRAINING
    }
    choice = choice_in_report(job, kept)
    return {**models, "choice": choice} if choice else models


def choice_in_report(job: "FinetuningJob", kept: Kept) -> list[dict[str, Any]]:
    """The paired tests of the model that is kept against the others of `keep` auto; empty for other values."""
    if job.keep != "auto" or job.dev is None:
        return []
    metric = job.task.spec.metric
    return [
        {
            "name": named(other.name, len(other.parts)),
            "metric": metric,
            "score": other.result.scores[metric],
            "of_model": kept.result.scores[metric],
            "examples": len(kept.lines),
            **tested(job.task.spec, [kept.lines], [other.lines]),
        }
        for other in kept.others
    ]
