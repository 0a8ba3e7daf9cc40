"""Compares fine-tuned models with the baselines: which one is the best, and whether it is better."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.heads.vector_forms import DENSE
from bertsmith.models.model_files.metadata import NGRAM_ENCODER, ModelMetadata
from bertsmith.models.parts.head_inputs import APART
from bertsmith.recipes.finetuning.baselines import Baselines
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.results.baseline_lines import MODEL, SAVED, SAVED_IF_BETTER
from bertsmith.recipes.results.comparison import Lines, tested
from bertsmith.recipes.results.finished_run import BAG_FOLDER
from bertsmith.recipes.results.resampling import Line, scored_lines
from bertsmith.tasks.baselines.linear import LinearModel
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import LabelPrediction, NumberPrediction
from bertsmith.tasks.specs.settings import HIERARCHICAL
from bertsmith.tasks.specs.task import BAG, CEILINGS, COSINE, FROZEN_COSINE, PAIRS, TaskSpec


def best_baseline(
    job: FinetuningJob, baselines: Baselines, scores: Mapping[str, float], lines: Lines, run: Path, kept: str = ""
) -> dict[str, Any] | None:
    """The best of the baselines next to the model that is kept; None without dev examples or baselines.

    A baseline on frozen vectors that has a higher main score than the model is written to its folder of
    `SAVED_IF_BETTER`; those on words alone are in folders of their own, see `SAVED`.

    Args:
        scores: those of the model.
        lines: its predictions on the dev examples.
        kept: its name, see `Kept`. A bag of words is not a baseline of itself.

    Returns:
        "name", "metric", "score", "of_model" (the model's score), "examples", "compared" (the score of the test),
        "difference" with its 95% interval "low" to "high" and "p_value" (left out for one example), and the "folder"
        of the baseline in the run, if it is saved as a model.
    """
    spec = job.task.spec
    metric = spec.metric
    systems = [
        result
        for result in baselines.results
        if result["name"] not in CEILINGS and (not kept or SAVED.get(result["name"]) != kept)
    ]
    ranked = sorted(systems, key=lambda result: -result["scores"].get(metric, float("-inf")))
    if not ranked or metric not in scores or metric not in ranked[0]["scores"]:
        return None
    best = ranked[0]
    name = best["name"]
    baseline: dict[str, Any] = {
        "name": name,
        "metric": metric,
        "score": best["scores"][metric],
        "of_model": scores[metric],
        "examples": len(lines),
        **tested(spec, [baselines.lines[name]], [lines]),
    }
    if name in SAVED and (run / SAVED[name]).is_dir():
        baseline["folder"] = SAVED[name]
    elif (name in baselines.linear or name == FROZEN_COSINE) and is_better(baseline):
        write_linear(job, baselines.linear.get(name), best, run / SAVED_IF_BETTER[name])
        baseline["folder"] = SAVED_IF_BETTER[name]
    return baseline


def is_better(baseline: Mapping[str, Any] | None) -> bool:
    """Whether a baseline, from `best_baseline`, has a higher main score than the fine-tuned model."""
    return baseline is not None and baseline["score"] > baseline["of_model"]


def with_bag_of_words(
    job: FinetuningJob,
    spec: TaskSpec,
    baselines: Baselines,
    scores: Mapping[str, float],
    lines: Lines,
    run: Path,
    kept: str = "",
) -> dict[str, Any]:
    """What the mean of the model that is kept and the bag of words scores on the dev examples, for the report.

    The same as `bertsmith evaluate --model RUN/model --also RUN/bag-of-words`, unless thresholds were fitted to the dev
    examples: then, as in `scores`, each fold is scored with thresholds that were fitted to the other folds.

    Args:
        spec: that of the model.
        scores: those of the model.
        lines: its predictions on the dev examples.
        kept: its name, see `Kept`.

    Returns:
        Empty if the task has no such mean, or the model is the bag of words; else "with_bag_of_words", its scores, and
        if its main score is higher than those of both systems "better_mean": "name" and "score" of the better system,
        "examples", and the test as in `best_baseline`.
    """
    if BAG not in baselines.lines or not (run / BAG_FOLDER).is_dir() or kept == BAG_FOLDER:
        return {}
    task, metric = task_for(spec), spec.metric
    parts = {MODEL: lines, BAG: baselines.lines[BAG]}
    averaged = task.averaged([[_prediction(line, spec) for line in part] for part in parts.values()])
    if averaged is None:
        return {}
    used = task.score(job.data.dev, averaged).get(metric, float("-inf"))
    averaged = task.cross_fitted(job.data.dev, averaged) or averaged
    of_mean, mean_lines = scored_lines(task, job.data.dev, averaged)
    entry: dict[str, Any] = {"with_bag_of_words": of_mean}
    of_bag = next(result["scores"] for result in baselines.results if result["name"] == BAG)
    if not {metric} <= of_mean.keys() & scores.keys() & of_bag.keys():
        return entry
    name, score = max(((MODEL, scores[metric]), (BAG, of_bag[metric])), key=lambda system: system[1])
    if min(of_mean[metric], used) > score:  # the mean is used with the thresholds of the model
        better = {"name": name, "score": score, "examples": len(lines)}
        entry["better_mean"] = better | tested(spec, [mean_lines], [parts[name]])
    return entry


def _prediction(line: Line, spec: TaskSpec) -> LabelPrediction | NumberPrediction:
    stored = line["prediction"]
    if spec.kind == "regression":
        return NumberPrediction(value=stored["value"], cut_tokens=stored["cut_tokens"])
    chances = tuple(stored["probabilities"][label] for label in spec.labels)
    return LabelPrediction(
        label=stored["label"],
        probability=max(chances),
        probabilities=chances,
        labels=spec.labels,
        chosen=tuple(stored["chosen"]),
        cut_tokens=stored["cut_tokens"],
    )


def write_linear(job: FinetuningJob, linear: LinearModel | None, result: Mapping[str, Any], folder: Path) -> None:
    """Writes a linear model as a model folder: the encoder unchanged, with a head that reads what it was fitted to.

    These are the mean vectors of texts, the vectors of both texts of a pair, or those of words. A linear model on
    cosines is not a head: it is in a file next to the folder of the encoder, see `text_vectors`.

    Args:
        linear: None for the encoder alone, whose vectors are the baseline.
        result: the entry of the baseline in `Baselines.results`.
    """
    spec = (job.task.of_vectors() if result["name"] == FROZEN_COSINE else job.task).spec
    # The head is one linear layer, whatever the fine-tuned model has in front of its own.
    spec = dataclasses.replace(spec, reads=_read_by(result, job), bilstm_layers="", normalize_layers=False)
    if task_for(spec).head.is_vector:
        spec = dataclasses.replace(spec, widths=(), vectors=DENSE)  # shorter vectors are what the training is for
    elif job.task.head.pooled:
        settings = dataclasses.replace(spec.settings, pooling="mean")  # the mean over the windows of long texts
        if settings.long_text in HIERARCHICAL:
            settings = dataclasses.replace(settings, long_text="windows")
        spec = dataclasses.replace(spec, settings=settings)
    head = task_for(spec).head
    loaded = load_for_task(job.untrained, head, keep_head=False, parameters="mapped")
    on_cosine = result["name"] == COSINE
    layer = None if on_cosine else linear
    if layer is not None:
        layer.copy_to(loaded.model.output_layer)
    metadata = ModelMetadata(
        task=spec.kind,
        labels=spec.labels,
        spec=spec.to_dict(),
        trained_on={**job.digests(), "base": digest_of_tensors(job.untrained.tensors)},
        training={
            "examples": result["train_examples"],
            "dev_examples": len(job.data.dev),
            **({} if linear is None else {"penalty": linear.penalty}),
            "seed": job.training.seed,
        },
        steps=job.untrained.metadata.steps,
        tokens=job.untrained.metadata.tokens,
        continued_from=job.untrained.metadata.continued_from,
        scores=dict(result["scores"]),
    )
    if on_cosine:
        metadata = dataclasses.replace(metadata, task=None, labels=(), spec=None, scores={})
    save_pretrained(
        folder / NGRAM_ENCODER if on_cosine else folder,
        loaded.model,
        loaded.tokenizer,
        metadata,
        trained=(head.saved_part,) if layer is not None else (),
        replace=True,
    )
    if on_cosine and linear is not None:
        from bertsmith.tasks.baselines.text_vectors import write_text_cosine

        write_text_cosine(folder, spec, linear)


def _read_by(result: Mapping[str, Any], job: FinetuningJob) -> str:
    """What the head of a linear model reads; of tags the value of a plain head, which reads the states of tokens."""
    if not (job.task.head.pooled or job.task.head.is_vector):
        return "pooler" if job.folder.config.can_pool else "cls"
    return APART if result["name"] == PAIRS else "mean"
