"""Compares fine-tuned models with the baselines: whether one of them is better, and what to do then."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bertsmith.baselines.linear import LinearModel
from bertsmith.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.finetuning.baselines import BAG_FOLDER, Baselines
from bertsmith.finetuning.training import FinetuningJob
from bertsmith.model_files.metadata import ModelMetadata
from bertsmith.results.baseline_lines import BAG, VECTORS
from bertsmith.results.comparison import Lines, paired
from bertsmith.tasks.kinds import task_for

LINEAR_FOLDER = "linear"


def better_baseline(
    job: FinetuningJob, baselines: Baselines, scores: Mapping[str, float], lines: Lines, run: Path
) -> dict[str, Any] | None:
    """The best of the baselines if it has a higher main score than the fine-tuned model, else None.

    The linear model on frozen vectors is then written to RUN/linear; that on a bag of words is in RUN/bag-of-words.

    Args:
        scores: those of the fine-tuned model.
        lines: its predictions on the dev examples.

    Returns:
        "name", "metric", "score", "of_model" (the model's score), "examples", "compared" (the score of the test),
        "difference" with its 95% interval "low" to "high" and "p_value" (left out for one example), and the "folder"
        of the linear model in the run, if it has one.
    """
    spec = job.task.spec
    metric = spec.metric
    ranked = sorted(baselines.results, key=lambda result: -result["scores"].get(metric, float("-inf")))
    if not ranked or metric not in scores or not ranked[0]["scores"].get(metric, float("-inf")) > scores[metric]:
        return None
    best = ranked[0]
    found: dict[str, Any] = {
        "name": best["name"],
        "metric": metric,
        "score": best["scores"][metric],
        "of_model": scores[metric],
        "examples": len(lines),
    }
    if len(lines) > 1:
        found["compared"], test = paired(spec.kind, metric, spec.scheme, baselines.lines[best["name"]], lines)
        found |= dataclasses.asdict(test)
    if best["name"] == VECTORS:
        assert baselines.linear is not None, "its weights are kept"
        write_linear(job, baselines.linear, best, run / LINEAR_FOLDER)
        found["folder"] = LINEAR_FOLDER
    elif best["name"] == BAG and (run / BAG_FOLDER).is_dir():  # missing in older runs
        found["folder"] = BAG_FOLDER
    return found


def write_linear(job: FinetuningJob, linear: LinearModel, result: Mapping[str, Any], folder: Path) -> None:
    """Writes the linear model as a model folder: the encoder unchanged, with a head that reads mean vectors.

    Args:
        result: the entry of the linear model in `Baselines.results`.
    """
    settings = dataclasses.replace(job.task.spec.settings, pooling="mean")  # the mean over the windows of long texts
    spec = dataclasses.replace(job.task.spec, reads="mean", settings=settings)
    head = task_for(spec).head
    loaded = load_for_task(job.folder, head, keep_head=False)
    layer = loaded.model.output_layer
    with torch.no_grad():
        layer.get_parameter("weight").copy_(torch.from_numpy(linear.weight))
        layer.get_parameter("bias").copy_(torch.from_numpy(linear.bias))
    metadata = ModelMetadata(
        task=spec.kind,
        labels=spec.labels,
        spec=spec.to_dict(),
        trained_on=job.digests(),
        training={
            "examples": result["train_examples"],
            "dev_examples": len(job.data.dev),
            "penalty": linear.penalty,
            "seed": job.training.seed,
        },
        steps=job.folder.metadata.steps,
        tokens=job.folder.metadata.tokens,
        continued_from=job.folder.metadata.continued_from,
        scores=dict(result["scores"]),
    )
    save_pretrained(folder, loaded.model, loaded.tokenizer, metadata, trained=(head.saved_part,), replace=True)
