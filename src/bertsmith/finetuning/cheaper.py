"""Fine-tuning against the cheap systems of `baselines`: whether one of them is better, and what to do then."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.checkpoints.metadata import ModelMetadata
from bertsmith.finetuning.baselines import BAG, COSINE, PAIRS, VECTORS, Baselines
from bertsmith.finetuning.comparison import LEVEL, Lines, paired
from bertsmith.finetuning.linear import LinearModel
from bertsmith.finetuning.training import FinetuningJob
from bertsmith.progress import counted
from bertsmith.tasks.kinds import task_for

LINEAR_FOLDER = "linear"

_OFFERS = {
    BAG: "a bag of words is enough for these examples; docs/finetuning.md has its few lines of scikit-learn",
    PAIRS: "vectors of single texts are enough for these pairs: `bertsmith embed`, and a linear model on top",
    COSINE: "vectors of single texts are enough for these pairs: `bertsmith embed`, and their cosine",
}
_OTHERWISE = "try more epochs, another learning rate or a model that was pre-trained longer"


def better_baseline(
    job: FinetuningJob, baselines: Baselines, scores: Mapping[str, float], lines: Lines, run: Path
) -> dict[str, Any] | None:
    """The best of the cheap systems if it has a higher main score than the fine-tuned model, else None.

    The linear model on frozen vectors is then written to RUN/linear.

    Args:
        scores: those of the fine-tuned model.
        lines: its predictions on the dev examples.

    Returns:
        "name", "metric", "score", "of_model" (the model's score), "examples", "compared" (the score of the test),
        "difference" with its 95% interval "low" to "high" and "p_value" (left out for one example), and the "folder"
        of the linear model in the run, if that is the best.
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
        scores=dict(result["scores"]),
    )
    save_pretrained(folder, loaded.model, loaded.tokenizer, metadata, trained=(head.saved_part,), replace=True)


def lines_of_baselines(report: Mapping[str, Any]) -> list[str]:
    """The lines that the command prints: each cheap system with its main score, and whether one is better.

    Args:
        report: the content of report.json; older ones have no cheap systems.
    """
    metric, lines = report["metric"], []
    for one in report.get("baselines", ()):
        if metric not in one["scores"]:
            continue
        between = one["intervals"].get(metric)
        interval = f" (95% interval {between[0]:.4f} to {between[1]:.4f})" if between else ""
        part = one["train_examples"] < report["train_examples"]
        share = f", on {one['train_examples']:,} of the training examples" if part else ""
        lines.append(
            f"baseline, {one['name']}: {metric} {one['scores'][metric]:.4f}{interval}{share}; {one['seconds']:.1f} s"
        )
    better = report.get("better_baseline")
    return [*lines, verdict(better)] if better else lines


def verdict(better: Mapping[str, Any]) -> str:
    """One line: which cheap system is better than the fine-tuned model, whether by more than noise, and what to do.

    Args:
        better: from `better_baseline`.
    """
    said = (
        f"the {better['name']} is better than the fine-tuned model: {better['metric']} {better['score']:.4f} against "
    )
    said += f"{better['of_model']:.4f}"
    if "p_value" in better:
        noise = "more than noise" if better["p_value"] < LEVEL else "within noise"
        compared = "" if better["compared"] == better["metric"] else f" of {better['compared']}"
        said += (
            f"; the difference{compared}, {better['difference']:+.4f} (95% interval {better['low']:+.4f} to "
            f"{better['high']:+.4f}), is {noise} for {counted(better['examples'], 'dev example')}, "
            f"p = {better['p_value']:.4f}"
        )
    if "folder" in better:
        return f"{said}; it is saved as a model, RUN/{better['folder']}"
    return f"{said}; {_OFFERS.get(better['name'], _OTHERWISE)}"


def rows_of_baselines(report: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    """The rows of a table of the cheap systems: name, each score with its interval, training examples, seconds.

    Args:
        names: the scores of the columns.
    """
    rows = []
    for one in report.get("baselines", ()):
        cells = []
        for name in names:
            between = one["intervals"].get(name)
            value = f"{one['scores'][name]:.4f}" if name in one["scores"] else ""
            cells.append(f"{value} ({between[0]:.4f} to {between[1]:.4f})" if between else value)
        rows.append([one["name"], *cells, f"{one['train_examples']:,}", f"{one['seconds']:.1f}"])
    return rows
