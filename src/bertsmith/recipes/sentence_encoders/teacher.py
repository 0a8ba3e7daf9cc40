"""A model whose scores replace the labels of a training of a sentence encoder or of a reranker: its teacher.

A cross-encoder reads both texts together, which is slower and more accurate than comparing vectors. Its score is the
number it predicts, or the probability of the label for texts that belong together. The score of a sentence encoder,
such as a larger one, is the cosine of its vectors; teacher and student may differ in width and vocabulary.

Source: Hofstätter et al. (2020), "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
Distillation", section 3.2, for triplets; Thakur et al. (2021), "Augmented SBERT", section 3.1, for pairs; Tung and Mori
(2019), "Similarity-Preserving Knowledge Distillation", section 3, for the similarities of a teacher's vectors.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.pair_scorer import PairScorer, can_score_pairs
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.onnx_folder import is_onnx_folder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.models.model_files.metadata import n_gram_folder
from bertsmith.recipes.sentence_encoders.evaluation import cosines_of
from bertsmith.tasks.datasets.examples import (
    PAIRS,
    SIMILARITY,
    TRIPLETS,
    Example,
    ListExample,
    TextExample,
    TripletExample,
    pairs_of,
    texts_of_group,
)
from bertsmith.tasks.specs.predictions import LabelPrediction, NumberPrediction
from bertsmith.tasks.specs.vector_gold import label_together


def taught(
    teacher: str | Path, task: str, examples: Sequence[Example], *, device: str = "auto"
) -> tuple[str, list[Example]]:
    """The name of the task and the training examples with the scores of a teacher.

    Pairs get its score as their number, and become scored pairs; triplets get the difference of the scores of both
    pairs as their margin. The candidates of lists get its raw scores, see `PairScorer`.
    """
    if task not in (SIMILARITY, PAIRS, TRIPLETS, RERANKING):
        raise ConfigError(
            expected=f"the task {SIMILARITY}, {PAIRS}, {TRIPLETS} or {RERANKING} for a teacher",
            found=task,
            fix="leave --teacher out",
        )
    embedder = _embedder_of(teacher, device)
    if embedder is not None:
        tell(f"teacher: '{teacher}' compares the vectors of {len(examples):,} examples")
        scores = cosines_of(embedder, examples)
    elif task == RERANKING:
        scores = _scores_of_lists(teacher, examples, device)
    else:
        scores = _scores_of_pairs(teacher, examples, device)
    if task == RERANKING:
        lists = [example for example in examples if isinstance(example, ListExample)]
        return task, [
            dataclasses.replace(example, scores=tuple(map(float, row)))
            for example, row in zip(lists, scores, strict=True)
        ]
    if task == TRIPLETS:
        triplets = [example for example in examples if isinstance(example, TripletExample)]
        return task, [
            dataclasses.replace(example, margin=near - far)
            for example, (near, far, *_) in zip(triplets, scores, strict=True)
        ]
    pairs = [example for example in examples if isinstance(example, TextExample)]
    return SIMILARITY, [
        dataclasses.replace(example, label=score) for example, (score, *_) in zip(pairs, scores, strict=True)
    ]


def _embedder_of(teacher: str | Path, device: str) -> Embedder | None:
    """The embedder of a sentence encoder, with its files of sentence-transformers; None for any other model."""
    folder = Path(teacher)
    if read_recipe(folder) is None:
        if is_onnx_folder(folder) or n_gram_folder(folder):
            return None
        folder = load_any(teacher).path
        if read_recipe(folder) is None:
            return None
    return load_embedder(folder, device=device)


def _scores_of_lists(teacher: str | Path, examples: Sequence[Example], device: str) -> list[tuple[float, ...]]:
    """The raw scores that a cross-encoder gives the candidates of each list."""
    scorer = PairScorer(load_predictor(teacher, device=device))
    groups = [texts_of_group(example) for example in examples]
    pairs = [pair for query, *candidates in groups for pair in pairs_of(query, candidates)]
    tell(f"teacher: '{teacher}' scores {len(pairs):,} candidates of {len(examples):,} lists")
    scores = iter(score for score, _ in scorer.scored(pairs, raw=True))
    return [tuple(next(scores) for _ in candidates) for _, *candidates in groups]


def _scores_of_pairs(teacher: str | Path, examples: Sequence[Example], device: str) -> list[tuple[float, ...]]:
    """The scores that a cross-encoder gives the first text of each example with each of the next two."""
    predictor = load_predictor(teacher, device=device)
    spec = predictor.task.spec
    if not can_score_pairs(spec):
        raise ConfigError(
            expected="a teacher that compares two texts: a sentence encoder, or a model of pairs",
            found=f"'{teacher}', a model for {spec.title}",
            fix="name another model, or fine-tune one on pairs, for example with --task sts-b",
        )
    tell(f"teacher: '{teacher}' scores {len(examples):,} examples")
    groups = [texts_of_group(example) for example in examples]
    places = range(1, max(map(len, groups), default=0))
    columns = (_scores(predictor, [(texts[0], texts[number]) for texts in groups]) for number in places if number < 3)
    return list(zip(*columns, strict=True))


def _scores(predictor: Predictor, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The teacher's score of each pair."""
    examples = [
        TextExample(id=str(number), first=first, second=second, location=f"pair {number}")
        for number, (first, second) in enumerate(pairs, start=1)
    ]
    labels = predictor.task.spec.labels
    chosen = label_together(labels) if labels else ""
    scores = []
    for prediction in predictor.predict(examples):
        if isinstance(prediction, LabelPrediction):
            scores.append(prediction.probabilities[prediction.labels.index(chosen)])
        else:
            assert isinstance(prediction, NumberPrediction), "a regression predicts numbers"
            scores.append(prediction.value)
    return scores
