"""Models applied to a stream of lines: results are yielded in order, as soon as they are ready.

An invalid line raises an error after the results of all lines before it.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.base.core.settings import require
from bertsmith.base.processes.engines import LOCAL, is_cluster
from bertsmith.base.storage.outputs import ANSWERS, require_output
from bertsmith.inference.predictors.ensemble import load_ensemble
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads, said_weak
from bertsmith.inference.predictors.predictor import BLOCK, Predictor
from bertsmith.inference.predictors.pretraining_heads import Continuation, FilledText
from bertsmith.inference.predictors.resumable_predictions import kept_predictions
from bertsmith.models.model_files.metadata import digests_of_model
from bertsmith.tasks.datasets.blocks import blocks_left, characters_of, sized_blocks, text_blocks
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.specs.task import Prediction
from bertsmith.tasks.task_data import glue_tests
from bertsmith.tasks.task_data.typed_examples import example_of_line

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead

LINES = 1024  # filled together


def fill_lines(
    model: str | Path,
    blocks: Iterable[Sequence[str]],
    top: int = 5,
    *,
    place: str = "text {:,}",
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> Iterator[FilledText]:
    """Each line with the `top` most probable pieces for each [MASK] in it.

    Args:
        model: anything that `load` accepts, with a masked-LM head.
        blocks: lists of lines; the lines of one list may be computed together.
        place: a format string that names a line by its number in errors.
        device, precision, products: as in `load`.
    """
    predictor = load_pretraining_heads(model, device=device, precision=precision, products=products, needs=["mlm"])
    number = 0
    for arrived in blocks:
        for lines in text_blocks(arrived, LINES):
            places = [place.format(number + 1 + index) for index in range(len(lines))]
            yield from predictor.fill_each(lines, places, top)
            number += len(lines)


def judge_continuations(
    model: str | Path,
    first: str,
    seconds: Sequence[str],
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> list[Continuation]:
    """The probability that each of `seconds` follows `first`, in order.

    Args:
        model: anything that `load` accepts, with a next-sentence head.
    """
    predictor = load_pretraining_heads(model, device=device, precision=precision, products=products, needs=["nsp"])
    return predictor.next_sentence(first, seconds)


def predict_lines(
    model: str | Path,
    lines: Iterable[str],
    *,
    total: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
    also: Sequence[str | Path] = (),
    engine: str = LOCAL,
    out: Path | None = None,
    resume: bool = False,
    replace: bool = False,
    uploaded: bool = False,
) -> Iterator[tuple[Example, Prediction]]:
    """Each line as an example of the model's task, with its prediction.

    Args:
        model: anything that `load` accepts, fine-tuned.
        lines: texts, tab-separated parts, or JSON objects; see `example_of_line`.
        total: number of lines, to estimate the time left.
        device, precision, products, head: as in `load`.
        also: further models of the same classification or regression; their probabilities or numbers are averaged.
        engine: "local", or "ray" or "ray://ADDRESS" for the workers of a cluster, which read the models at the same
            paths; some megabytes of `lines` are then read at a time, and the predictions are the same.
        out: a .jsonl file that the predictions are also written to; unfinished, it is kept as OUT.partial.
        resume: continue an unfinished file, from the same lines; its predictions are not yielded again.
        replace: the file may exist, or an unfinished one.
        uploaded: the caller uploads and deletes the file; if that fails, `resume` finds it complete.
    """
    models = [model, *also]

    on_cluster = is_cluster(engine)

    def predict(lines: Iterable[str], done: int) -> Iterator[tuple[Example, Prediction]]:
        loading = {"device": device, "precision": precision, "products": products}
        if not on_cluster:
            yield from _predicted_from(load_ensemble(models, head=head, **loading), lines, done, total)
            return
        from bertsmith.inference.cluster.predictions import predict_on

        yield from predict_on(engine, models, lines, total=total, done=done, resumes=out is not None, **loading)

    require(
        head is None or not on_cluster,
        expected="a head of this package, for a cluster",
        found="--head",
        fix="leave --engine out",
    )
    if out is None:
        yield from predict(lines, 0)
        return
    made_of = {
        "models": [digests_of_model(source) or str(source) for source in models],
        "precision": precision,
        "head": None if head is None else head.__name__,
        **({} if products == "auto" else {"products": products}),
    }
    yield from kept_predictions(out, lines, predict, made_of, resume=resume, replace=replace, uploaded=uploaded)


def _predicted_from(
    predictor: Predictor, lines: Iterable[str], done: int, total: int | None
) -> Iterator[tuple[Example, Prediction]]:
    """The predictions for lines, without those for the first `done` lines."""
    spec = predictor.task.spec
    examples = (example_of_line(spec, line, number) for number, line in enumerate(lines, start=1))
    if not done:
        yield from predictor.stream(examples, total=total)
        return
    # The blocks are those of an undisturbed run, so the numbers are too.
    left = blocks_left(sized_blocks(examples, characters_of, BLOCK), done)
    first, block = next(left, (1, []))
    rest = itertools.chain(block, (example for _, later in left for example in later))
    yield from itertools.islice(predictor.stream(rest, total=total), max(0, done + 1 - first), None)


def predict_test(
    model: str | Path,
    test: Path,
    *,
    task: str | None = None,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
) -> Iterator[tuple[Example, Prediction]]:
    """Each example of a GLUE test file with its prediction.

    Args:
        model: anything that `load` accepts, fine-tuned on a GLUE task.
        test: a file without labels.
        task: "mnli-mm" or "ax" for an MNLI model; by default the model's task.
        device, precision, products, head: as in `load`.
    """
    _, predictor, examples = _glue_test(model, test, task, device, precision, products, head)
    yield from predictor.stream(iter(examples), total=len(examples))


def write_submission(
    model: str | Path,
    test: Path,
    folder: Path,
    *,
    task: str | None = None,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
    replace: bool = False,
) -> Path:
    """The path of the submission file for the GLUE server, written to a folder; see `predict_test`."""
    name, predictor, examples = _glue_test(model, test, task, device, precision, products, head)
    require_output(glue_tests.submission_place(name, folder), ANSWERS, inputs=[test], replace=replace)
    return glue_tests.submit(name, predictor.stream(iter(examples), total=len(examples)), folder)


def _glue_test(
    model: str | Path,
    test: Path,
    task: str | None,
    device: str,
    precision: str,
    products: str,
    head: "type[OwnHead] | None",
) -> tuple[str, Predictor, Sequence[Example]]:
    predictor = load_predictor(model, device=device, precision=precision, products=products, head=head)
    name = glue_tests.glue_test(predictor.task.spec, task)
    return name, said_weak(predictor, model), glue_tests.read_test(name, test)
