"""Models applied to a stream of lines: results are yielded in order, as soon as they are ready.

An invalid line raises an error after the results of all lines before it.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bertsmith.base.core.requests import path_or_none
from bertsmith.base.core.settings import require
from bertsmith.base.processes.engines import is_cluster
from bertsmith.base.storage.files import digest_file
from bertsmith.base.storage.outputs import ANSWERS, require_output
from bertsmith.inference.predictors.ensemble import requested_predictor
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads, said_weak
from bertsmith.inference.predictors.named_labels import entity_labels
from bertsmith.inference.predictors.predictor import BLOCK, Predictor
from bertsmith.inference.predictors.pretraining_heads import Continuation, FilledText
from bertsmith.inference.predictors.request import EntitySettings, FillRequest, NextRequest, PredictRequest
from bertsmith.inference.predictors.resumable_predictions import kept_predictions
from bertsmith.models.model_files.metadata import digests_of_model
from bertsmith.tasks.datasets.blocks import blocks_left, characters_of, named_blocks, sized_blocks
from bertsmith.tasks.datasets.examples import Example, named_texts
from bertsmith.tasks.specs.settings import AnswerSettings
from bertsmith.tasks.specs.task import Prediction
from bertsmith.tasks.task_data import glue_tests
from bertsmith.tasks.task_data.typed_examples import example_of_line

LINES = 1024  # filled together


def fill_lines(request: FillRequest, blocks: Iterable[Sequence[str]], name: str = "text {:,}") -> Iterator[FilledText]:
    """Each line with the most probable pieces for each [MASK] in it.

    Args:
        blocks, name: see `named_blocks`.
    """
    predictor = load_pretraining_heads(
        request.model, needs=["mlm"], early=True, **request.arguments(load_pretraining_heads)
    )
    for lines, names in named_blocks(blocks, LINES, name):
        yield from predictor.fill_each(named_texts(lines, names), request.top)


def judge_continuations(request: NextRequest) -> list[Continuation]:
    """The probability that each second sentence follows the first, in order."""
    predictor = load_pretraining_heads(
        request.model, needs=["nsp"], early=True, **request.arguments(load_pretraining_heads)
    )
    return predictor.next_sentence(request.first, request.seconds)


def predict_lines(
    request: PredictRequest,
    lines: Iterable[str],
    *,
    total: int | None = None,
    uploaded: bool = False,
) -> Iterator[tuple[Example, Prediction]]:
    """Each line as an example of the model's task, with its prediction.

    They are also written to the file `out` of the request, if it has one; unfinished, it is kept as OUT.partial. With
    `resume`, the predictions of an unfinished file are not yielded again.

    The workers of a cluster read the models at the same paths; some megabytes of lines are then read at a time, and the
    predictions are the same.

    Args:
        lines: texts, tab-separated parts, or JSON objects; see `example_of_line`.
        total: number of lines, to estimate the time left.
        uploaded: the caller uploads and deletes the file; if that fails, `resume` finds it complete.
    """
    models, head = [request.model, *request.also], request.head
    on_cluster = is_cluster(request.engine)

    def predict(lines: Iterable[str], done: int) -> Iterator[tuple[Example, Prediction]]:
        if not on_cluster:
            alone = request.replies is not None
            yield from _predicted_from(requested_predictor(request), lines, done, total, alone=alone)
            return
        from bertsmith.inference.cluster.predictions import predict_on

        yield from predict_on(request, lines, total=total, done=done)

    require(
        head is None or not on_cluster,
        expected="a head of this package, for a cluster",
        found="--head",
        fix="leave --engine out",
    )
    if request.out is None:
        yield from predict(lines, 0)
        return
    search, path = request.values(AnswerSettings), path_or_none(request.calibrate)
    entities = request.values(EntitySettings)
    if request.labels is not None:
        entities["labels"] = entity_labels(request.labels, request.encoding)
    made_of = {
        "models": [digests_of_model(source) or str(source) for source in models],
        "precision": request.precision,
        "head": None if head is None else head.__name__,
        **({} if request.replies is None else {"replies": digest_file(Path(request.replies)), "top": request.top}),
        **({"answers": search} if search else {}),
        **({} if path is None else {"calibrate": digest_file(path)}),
        **({"threshold": [request.accuracy, request.coverage]} if request.accuracy or request.coverage else {}),
        **({"entities": entities} if entities else {}),
        **({} if request.products == "auto" else {"products": request.products}),
    }
    yield from kept_predictions(
        Path(request.out), lines, predict, made_of, resume=request.resume, replace=request.replace, uploaded=uploaded
    )


def _predicted_from(
    predictor: Predictor, lines: Iterable[str], done: int, total: int | None, *, alone: bool
) -> Iterator[tuple[Example, Prediction]]:
    """The predictions for lines, without those for the first `done` lines."""
    spec = predictor.task.spec
    examples = (example_of_line(spec, line, number, alone=alone) for number, line in enumerate(lines, start=1))
    if not done:
        yield from predictor.stream(examples, total=total)
        return
    # The blocks are those of an undisturbed run, so the numbers are too.
    left = blocks_left(sized_blocks(examples, characters_of, BLOCK), done)
    first, block = next(left, (1, []))
    rest = itertools.chain(block, (example for _, later in left for example in later))
    yield from itertools.islice(predictor.stream(rest, total=total), max(0, done + 1 - first), None)


def predict_test(request: PredictRequest) -> Iterator[tuple[Example, Prediction]]:
    """Each example of a GLUE test file with its prediction."""
    _, predictor, examples = _glue_test(request)
    yield from predictor.stream(iter(examples), total=len(examples))


def write_submission(request: PredictRequest) -> Path:
    """The path of the submission file for the GLUE server, written to a folder."""
    name, predictor, examples = _glue_test(request)
    folder = Path(request.submission or "")
    require_output(
        glue_tests.submission_place(name, folder), ANSWERS, inputs=[Path(request.test or "")], replace=request.replace
    )
    return glue_tests.submit(name, predictor.stream(iter(examples), total=len(examples)), folder)


def _glue_test(request: PredictRequest) -> tuple[str, Predictor, Sequence[Example]]:
    """The GLUE task of a model, its predictor, and the examples of the test file."""
    predictor = load_predictor(request.model, **request.arguments(load_predictor))
    name = glue_tests.glue_test(predictor.task.spec, request.task)
    return name, said_weak(predictor, request.model), glue_tests.read_test(name, Path(request.test or ""))
