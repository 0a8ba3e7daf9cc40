"""Whether the recorded scores of a fine-tuned model speak against its answers, in one sentence.

A model answers every text, however little it has learned, and its probabilities do not say so. Its scores are in its
metadata: it is weak if it gives one answer to everything, if a baseline scores higher, or if most of its answers to
questions, or most entities, were wrong or missing.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.models.model_files.metadata import METADATA, ModelMetadata, read_metadata

LEVEL = 0.05  # significance level: a difference with a p-value below it is more than noise
TEST = "test_"  # in front of the names of scores on test examples; the others are of dev examples
_GOOD = 0.9  # share of the highest score from which a tie says that the task is easy, not that the model is weak
_TELLING = 100  # dev examples; fewer can hardly tell a model from a baseline, which says little about the model


def weakness_of(metadata: ModelMetadata) -> str:
    """A sentence on what the dev examples say against the answers of a model; "" if nothing, or nothing is recorded."""
    if metadata.training.get("collapsed"):
        return "this model gave the same answer to every example it was checked on: it has learned nothing"
    reasons = [*_mostly_wrong(metadata), *_against_baseline(metadata)]
    baseline = metadata.baseline or {}
    is_of_test = str(baseline.get("metric")).startswith(TEST)
    count = baseline.get("examples") if is_of_test else metadata.training.get("dev_examples")
    examples = f"{'test' if is_of_test else 'dev'} examples"
    examples = f"{count:,} {examples}" if isinstance(count, int) and count != 1 else examples
    return f"this model is weak: on its {examples} {', and '.join(reasons)}" if reasons else ""


def saved_baseline(source: Path) -> str:
    """Where the baseline that is recorded for a model is saved, as the end of a sentence; "" if not in its run."""
    folder = source if (source / METADATA).is_file() else source / "model"
    baseline = read_metadata(folder).baseline or {}
    name = baseline.get("folder")
    saved = folder.parent / name if isinstance(name, str) and Path(name).name == name else None
    return f"; the baseline {baseline.get('name')!r} is saved in '{saved}'" if saved and saved.is_dir() else ""


def _mostly_wrong(metadata: ModelMetadata) -> list[str]:
    """Whether most of its answers, or most of the entities, were wrong or missing."""
    scores, kind = metadata.scores, metadata.task
    f1, recall = _number(scores, "f1"), _number(scores, "recall")
    if kind == "span" and f1 is not None and f1 < 50:  # percent, as the scorer of SQuAD gives it
        return [f"most answers were wrong (F1 {f1:.1f} of 100)"]
    if kind in ("tagging", "entities", "entities-by-name") and recall is not None and recall < 0.5:
        return [f"it found {recall:.0%} of the entities"]
    return []


def _against_baseline(metadata: ModelMetadata) -> list[str]:
    """Whether the best baseline is better, or as good within the noise of enough dev examples."""
    baseline = metadata.baseline or {}
    metric = str(baseline.get("metric"))
    score, model = _number(baseline, "score"), _number(metadata.scores, metric)
    if score is None or model is None:
        return []
    shown = metric.removeprefix(TEST).replace("_", " ")
    both = f"the baseline {str(baseline.get('name'))!r}: {shown} {model:.3g} against {score:.3g}"
    if model < score:
        return [f"it was not better than {both}"]
    p_value, examples = _number(baseline, "p_value"), _number(baseline, "examples")
    highest = 100 if metadata.task == "span" else 1
    if p_value is not None and p_value >= LEVEL and (examples or 0) >= _TELLING and model < _GOOD * highest:
        return [f"it was better only within noise than {both}"]
    return []


def _number(values: Mapping[str, Any], name: str) -> float | None:
    """A finite number of the metadata, which people may have edited; None for anything else."""
    value = values.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number and value is not None else None
