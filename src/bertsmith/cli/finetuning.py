"""Commands on tasks: fine-tuning, evaluation, prediction."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli.options import (
    DeviceOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    given,
    print_json,
    print_table,
)
from bertsmith.cli.text import count_lines, line_blocks
from bertsmith.progress import counted
from bertsmith.settings import require

if TYPE_CHECKING:
    from bertsmith.library.labelled import Evaluation, Int8Report

TaskOption = Annotated[
    str,
    typer.Option(
        "--task",
        metavar="NAME",
        help="cola ... wnli, squad, squad2, swag, codah, ner, pos, classification, multi-label, regression, "
        "spam, spam4, sentiment, claim, truth",
    ),
]


def finetune_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `finetune`."""
    from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
    from bertsmith.tasks.named_tasks import ColumnSettings
    from bertsmith.tasks.task import TaskSettings

    return (FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings)


def finetune(
    model: ModelOption,
    task: TaskOption,
    out: Annotated[Path, typer.Option(metavar="RUN", help="the run folder; RUN/model/ will be the best model")],
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="training file; presets have examples of their own")
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file to choose by [a tenth of the training examples]")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="trainings with different seeds [3 below 10,000 examples, else 1]")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="first search the grid of rates, batches and epochs (needs optuna)")
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="with --search: settings to try")] = 12,
    limit: Annotated[
        int | None, typer.Option(min=1, help="learn from so many training examples only, drawn alike each time")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with RUN; give the same options again")] = False,
    **values: Any,
) -> None:
    """Fine-tune a model on a task: all its parameters learn, with one layer on top.

    The paper's recipe is the default. RUN/report.json has the scores of every seed, their mean and spread, and
    RUN/report.html shows them. Ctrl-C writes a checkpoint and exits with code 130; --resume goes on from there.
    """
    from bertsmith.finetuning.finished_run import TABLE_FILE, table_cells
    from bertsmith.finetuning.report import write_finetuning_report
    from bertsmith.finetuning.run import summary_lines
    from bertsmith.library.training import finetune as run_finetuning

    result = run_finetuning(
        model,
        task,
        out,
        train=train,
        dev=dev,
        seeds=seeds,
        limit=limit,
        search=search,
        trials=trials,
        resume=resume,
        **given(values),
    )
    if result.trials:
        best = result.trials[0]
        typer.echo(
            f"search: rate {best['learning_rate']:g}, batch {best['batch_size']}, epochs {best['epochs']:g}; "
            f"all trials: {out / TABLE_FILE}"
        )
        print_table(*table_cells(result.trials))
    for line in summary_lines(result.report):
        typer.echo(line)
    typer.echo(f"model: {out / 'model'}")
    typer.echo(f"report: {write_finetuning_report([out])}")


def evaluate_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `evaluate`."""
    from bertsmith.tasks.named_tasks import ColumnSettings

    return (ColumnSettings,)


def evaluate(
    model: ModelOption,
    data: Annotated[Path, typer.Option(metavar="FILE", help="labelled examples, in a form of the model's task")],
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="the form of the file [that of the model's task]")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    **values: Any,
) -> None:
    """Print the official scores of a fine-tuned model on a labelled file.

    The interval of a score says how far it moves when the examples are drawn again with replacement (2,000 draws).
    A model of another tool does not say what it was trained on: name its task with --task for the official scores.
    """
    from bertsmith.library.labelled import evaluate as evaluate_on

    found = evaluate_on(model, data, task=task, device=device, precision=precision, **given(values))
    _tell_cut(found.cut_texts, found.cut_tokens)
    _print(found, json)


def quantize_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `quantize`."""
    return evaluate_settings()


def quantize(
    model: ModelOption,
    data: Annotated[Path, typer.Option(metavar="FILE", help="labelled examples that the model was not trained on")],
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="the form of the file [that of the model's task]")
    ] = None,
    limit: Annotated[float, typer.Option(min=0, max=1, help="share of the fp32 score that int8 may cost")] = 0.004,
    json: JsonOption = False,
    **values: Any,
) -> None:
    """Measure what int8 costs a fine-tuned model, and note in it which layers must stay higher.

    The weights stay as they are; `--precision int8` of the other commands then keeps to the note.
    """
    from bertsmith.library.labelled import quantize as measure

    _print(measure(model, data, task=task, limit=limit, **given(values)), json)


def predict(
    model: ModelOption,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="instead of stdin: a test file of GLUE, without labels")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="with --test: mnli-mm or ax for a model of mnli")
    ] = None,
    submission: Annotated[
        Path | None, typer.Option(metavar="DIR", help="with --test: write the file for GLUE's evaluation server there")
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Read lines from stdin and print what the model says of each, with probabilities.

    A line is a text; texts with a tab between them (a pair; question and context; context and endings); or a JSON
    object: {"text": ...}, {"text": ..., "pair": ...}, {"words": [...]}, {"question": ..., "context": ...},
    {"context": ..., "endings": [...]}. Answer i is that of line i; an empty line is an empty text, or a sentence
    without words to tag. A pair, a question or a choice needs all its parts.
    """
    from bertsmith.datasets.examples import is_blank
    from bertsmith.library import lines

    if test is None:
        for option, value in (("--submission", submission), ("--task", task)):
            require(value is None, expected=f"--test with {option}", found="none", fix="name the test file")
        total, typed = count_lines(sys.stdin.buffer), itertools.chain.from_iterable(line_blocks(sys.stdin.buffer))
        answered = lines.predict_lines(model, typed, total=total, device=device, precision=precision)
    elif submission is not None:
        place = lines.write_submission(model, test, submission, task=task, device=device, precision=precision)
        typer.echo(str(place))
        return
    else:
        answered = lines.predict_test(model, test, task=task, device=device, precision=precision)
    cut_texts = cut_tokens = empty = 0
    for example, prediction in answered:
        cut_texts += prediction.cut_tokens > 0
        cut_tokens += prediction.cut_tokens
        empty += is_blank(example)
        if json:
            print_json({"id": example.id, **prediction.to_dict()})
        else:
            typer.echo(prediction.line())
    _tell_cut(cut_texts, cut_tokens)
    if empty:
        typer.echo(f"bertsmith: empty texts, whose prediction is that of [CLS] [SEP]: {empty:,}", err=True)


def _tell_cut(texts: int, tokens: int) -> None:
    """Says on stderr how many texts were too long for the model."""
    if texts:
        was = "was" if texts == 1 else "were"
        typer.echo(f"bertsmith: {counted(texts, 'text')} {was} cut, {counted(tokens, 'token')} in all", err=True)


def _print(found: "Evaluation | Int8Report", json: bool) -> None:
    """Writes it to stdout as one line of JSON, or as lines for people."""
    if json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        typer.echo(line)


def glue(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="fine-tuning runs of GLUE tasks, or files that `evaluate --json` printed"),
    ],
) -> None:
    """Print the scores of GLUE runs beside the published ones, and their average with and without WNLI."""
    from bertsmith.finetuning.glue_table import glue_lines, read_scores

    for line in glue_lines(read_scores(runs)):
        typer.echo(line)
