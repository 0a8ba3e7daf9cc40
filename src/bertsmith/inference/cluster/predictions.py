"""Predictions for lines, made block by block by the workers of a cluster.

One process would predict the same blocks together, so the numbers are the same.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import Progress
from bertsmith.inference.cluster.engine import (
    Stage,
    another_model,
    held,
    num_gpus,
    raise_any,
    record_of,
    stream,
    use_threads,
)
from bertsmith.inference.predictors.ensemble import load_ensemble
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.predictor import BLOCK, Predictor, answering
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.models.model_files.metadata import digests_of_model, read_metadata
from bertsmith.tasks.datasets.blocks import blocks_left, characters_of, sized_blocks
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.onnx_session import num_threads
from bertsmith.tasks.specs.settings import AnswerSettings
from bertsmith.tasks.specs.task import Prediction, TaskSpec
from bertsmith.tasks.task_data.typed_examples import example_of_line

_READ_CHARACTERS, _MOST_BLOCKS = 2**26, 2**16  # that are read and predicted at a time


def predict_on(
    request: PredictRequest, lines: Iterable[str], *, total: int | None, done: int
) -> Iterator[tuple[Example, Prediction]]:
    """Each line as an example of the model's task, with its prediction, in order; see `predict_lines`.

    Args:
        done: first lines whose predictions are left out.
    """
    models = [request.model, *request.also]
    spec, digests = _spec_of(models[0]), [digests_of_model(model) for model in models]
    errors: list[BertsmithError] = []

    def numbered() -> Iterator[tuple[Example, str]]:
        try:
            for number, line in enumerate(lines, start=1):
                yield example_of_line(spec, line, number), line
        except BertsmithError as error:
            errors.append(error)

    stage = Stage(
        worker=_Worker,
        arguments=(
            list(map(str, models)),
            digests,
            request.device,
            request.precision,
            request.products,
            num_threads(),
            request.values(AnswerSettings),
        ),
        threads=num_threads(),
        gpus=num_gpus(request.device),
        resumes=request.out is not None,
    )
    blocks = blocks_left(sized_blocks(numbered(), lambda pair: characters_of(pair[0]), BLOCK), done)
    with Progress("predicting", total, unit="texts", done=done) as progress, held(request.engine):
        for window in sized_blocks(blocks, _characters, _MOST_BLOCKS, _READ_CHARACTERS):
            parts = [{"first": first, "lines": json.dumps([line for _, line in block])} for first, block in window]
            with contextlib.closing(stream(request.engine, parts, stage)) as results:
                rows = (row for table in results for row in _rows(table))
                for (first, block), (predictions, failure) in zip(window, rows, strict=True):
                    have = max(0, done + 1 - first)
                    answers = zip((example for example, _ in block), predictions, strict=False)
                    yield from itertools.islice(answers, have, None)
                    progress.advance(len(block) - have)
                    raise_any(failure)
    if errors:
        raise errors[0]


def _characters(numbered: tuple[int, list[tuple[Example, str]]]) -> int:
    return sum(characters_of(example) for example, _ in numbered[1])


def _spec_of(model: str | Path) -> TaskSpec:
    """The task of a model; the weights are read only if its folder does not have it."""
    folder = Path(model)
    recorded = read_metadata(folder).spec if folder.is_dir() else None
    if recorded is None:
        return load_predictor(model, device="cpu").task.spec
    return TaskSpec.from_dict(recorded, f"{folder}/bertsmith.json")


def _rows(table: Any) -> Iterator[tuple[list[Prediction], dict[str, Any] | None]]:
    for row in table.to_pylist():
        yield list(row["predictions"]), json.loads(row["failure"])


class _Worker:
    """Predicts blocks of lines."""

    def __init__(
        self,
        models: Sequence[str],
        digests: Sequence[dict[str, str]],
        device: str,
        precision: str,
        products: str,
        threads: int,
        answers: dict[str, Any],
    ) -> None:
        use_threads(threads)

        def load() -> Predictor:
            for model, expected in zip(models, digests, strict=True):
                if digests_of_model(model) != expected:
                    raise another_model([model])
            predictor = load_ensemble(models, device=device, precision=precision, products=products)
            return answering(predictor, **answers)

        self.load = functools.cache(load)

    def __call__(self, table: pa.Table) -> Iterator[dict[str, Any]]:
        for row in table.to_pylist():
            predictions: list[Prediction] = []
            failure = None
            try:
                predictor: Predictor = self.load()
                spec = predictor.task.spec
                examples = (
                    example_of_line(spec, line, number)
                    for number, line in enumerate(json.loads(row["lines"]), row["first"])
                )
                predictions += [prediction for _, prediction in predictor.stream(examples)]
            except BertsmithError as error:
                failure = record_of(error)
            held = np.empty(1, dtype=object)
            held[0] = predictions
            yield {"first": np.array([row["first"]]), "predictions": held, "failure": np.array([json.dumps(failure)])}
