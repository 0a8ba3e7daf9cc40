"""A cross-encoder as the teacher of a sentence encoder: its scores replace labels.

A cross-encoder reads both texts together, which is slower and more accurate than comparing vectors. Its score is the
number it predicts, or the probability of the label for texts that belong together.

Source: Hofstätter et al. (2020), "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
Distillation", section 3.2, for triplets; Thakur et al. (2021), "Augmented SBERT", section 3.1, for pairs.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.datasets.examples import PAIRS, SIMILARITY, TRIPLETS, Example, TextExample, TripletExample
from bertsmith.errors import ConfigError
from bertsmith.inference.loading import load_predictor
from bertsmith.inference.pair_scorer import can_score_pairs
from bertsmith.inference.predictor import Predictor
from bertsmith.progress import tell
from bertsmith.tasks.label_prediction import LabelPrediction
from bertsmith.tasks.regression import NumberPrediction
from bertsmith.tasks.similarity import label_together


def taught(
    teacher: str | Path, task: str, examples: Sequence[Example], *, device: str = "auto"
) -> tuple[str, list[Example]]:
    """The name of the task and the training examples with the scores of a teacher.

    Pairs get its score as their number, and become scored pairs; triplets get the difference of the scores of both
    pairs as their margin.

    Args:
        teacher: a model fine-tuned on pairs: classification or regression.
        task: similarity, pairs or triplets.

    Raises:
        ConfigError: the teacher does not score pairs, or the task has none.
        CheckpointError: the teacher cannot be read.
    """
    if task not in (SIMILARITY, PAIRS, TRIPLETS):
        raise ConfigError(
            expected=f"the task {SIMILARITY}, {PAIRS} or {TRIPLETS} for a teacher",
            found=task,
            fix="leave --teacher out",
        )
    predictor = load_predictor(teacher, device=device)
    spec = predictor.task.spec
    if not can_score_pairs(spec):
        raise ConfigError(
            expected="a teacher that reads pairs: a classification or regression of two texts",
            found=f"'{teacher}', a model for {spec.title}",
            fix="fine-tune one on pairs, for example with --task sts-b",
        )
    tell(f"teacher: '{teacher}' scores {len(examples):,} examples")
    if task == TRIPLETS:
        triplets = [one for one in examples if isinstance(one, TripletExample)]
        near, far = (_scores(predictor, [(one.texts[0], one.texts[place]) for one in triplets]) for place in (1, 2))
        margins = (first - second for first, second in zip(near, far, strict=True))
        return task, [dataclasses.replace(one, margin=margin) for one, margin in zip(triplets, margins, strict=True)]
    pairs = [one for one in examples if isinstance(one, TextExample)]
    scores = _scores(predictor, [(one.first, one.second or "") for one in pairs])
    return SIMILARITY, [dataclasses.replace(one, label=score) for one, score in zip(pairs, scores, strict=True)]


def _scores(predictor: Predictor, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The teacher's score of each pair."""
    examples = [
        TextExample(id=str(number), first=first, second=second, place=f"pair {number}")
        for number, (first, second) in enumerate(pairs, start=1)
    ]
    labels = predictor.task.spec.labels
    chosen = label_together(labels) if labels else ""
    scores = []
    for found in predictor.predict(examples):
        if isinstance(found, LabelPrediction):
            scores.append(found.probabilities[found.labels.index(chosen)])
        else:
            assert isinstance(found, NumberPrediction), "a regression predicts numbers"
            scores.append(found.value)
    return scores
