"""Models asked with lines that arrive one after another: answers come in their order, as soon as they are there.

A line that cannot be read is an error after all answers before it.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bertsmith.datasets.blocks import text_blocks
from bertsmith.datasets.examples import Example
from bertsmith.inference.loading import load_predictor, load_pretraining_heads
from bertsmith.inference.predictor import Predictor
from bertsmith.inference.pretraining_heads import Continuation, FilledText
from bertsmith.tasks import named_tasks
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.typed_examples import example_of_line

LINES = 1024  # that are filled together


def fill_lines(
    model: str | Path,
    blocks: Iterable[Sequence[str]],
    top: int = 5,
    *,
    place: str = "text {:,}",
    device: str = "auto",
    precision: str = "fp32",
) -> Iterator[FilledText]:
    """Each line with the `top` likeliest pieces for each [MASK] in it.

    Args:
        model: anything that `load` takes, with the masked-LM head.
        blocks: lists of lines; what is in one list may be computed together.
        place: what a line is called in an error, with its number.
        device, precision: as of `load`.

    Raises:
        CheckpointError: the model cannot fill masks.
        InputError: a line has no [MASK], or is longer than the model reads.
    """
    predictor = load_pretraining_heads(model, device=device, precision=precision, needs=["mlm"])
    number = 0
    for arrived in blocks:
        for lines in text_blocks(arrived, LINES):
            places = [place.format(number + 1 + index) for index in range(len(lines))]
            yield from predictor.fill_each(lines, places, top)
            number += len(lines)


def judge_continuations(
    model: str | Path, first: str, seconds: Sequence[str], *, device: str = "auto", precision: str = "fp32"
) -> list[Continuation]:
    """How likely each of `seconds` follows `first`, in their order.

    Args:
        model: anything that `load` takes, with the next-sentence head.

    Raises:
        CheckpointError: the model cannot judge this.
        InputError: a text is empty.
    """
    predictor = load_pretraining_heads(model, device=device, precision=precision, needs=["nsp"])
    return predictor.next_sentence(first, seconds)


def predict_lines(
    model: str | Path,
    lines: Iterable[str],
    *,
    total: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
) -> Iterator[tuple[Example, Prediction]]:
    """Each line as an example of the model's task, with its prediction.

    Args:
        model: anything that `load` takes, fine-tuned.
        lines: texts, parts with tabs between them, or JSON objects; see `example_of_line`.
        total: how many there are, for the time left.

    Raises:
        BertsmithError: the model has no head of a task, or a line cannot be read.
    """
    predictor = load_predictor(model, device=device, precision=precision)
    spec = predictor.task.spec
    examples = (example_of_line(spec, line, number) for number, line in enumerate(lines, start=1))
    yield from predictor.stream(examples, total=total)


def predict_test(
    model: str | Path, test: Path, *, task: str | None = None, device: str = "auto", precision: str = "fp32"
) -> Iterator[tuple[Example, Prediction]]:
    """Each example of a test file of GLUE with its prediction.

    Args:
        model: anything that `load` takes, fine-tuned on a task of GLUE.
        test: without labels.
        task: "mnli-mm" or "ax" for a model of mnli; the model's task if not given.

    Raises:
        BertsmithError: the model is for no task of GLUE, or the file does not fit.
    """
    _, predictor, examples = _glue_test(model, test, task, device, precision)
    yield from predictor.stream(iter(examples), total=len(examples))


def write_submission(
    model: str | Path,
    test: Path,
    folder: Path,
    *,
    task: str | None = None,
    device: str = "auto",
    precision: str = "fp32",
) -> Path:
    """The file for GLUE's evaluation server, written into a folder; see `predict_test`."""
    name, predictor, examples = _glue_test(model, test, task, device, precision)
    return named_tasks.submit(name, predictor.stream(iter(examples), total=len(examples)), folder)


def _glue_test(
    model: str | Path, test: Path, task: str | None, device: str, precision: str
) -> tuple[str, Predictor, Sequence[Example]]:
    predictor = load_predictor(model, device=device, precision=precision)
    name = named_tasks.glue_test(predictor.task.spec, task)
    return name, predictor, named_tasks.read_test(name, test)
