"""Commands on tasks: fine-tuning, evaluation, prediction."""

import functools
import itertools
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli.options import (
    DeviceOption,
    HeadOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    own_head,
    print_json,
    print_table,
    settings_from,
)
from bertsmith.cli.text import count_lines, line_blocks
from bertsmith.errors import RunError
from bertsmith.progress import counted
from bertsmith.settings import require

if TYPE_CHECKING:
    from bertsmith.datasets.examples import Example
    from bertsmith.tasks.task import Prediction, TaskSpec

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
    head: HeadOption = None,
    **values: Any,
) -> None:
    """Fine-tune a model on a task: all its parameters learn, with one layer, or your own head, on top.

    The paper's recipe is the default. RUN/report.json has the scores of every seed, their mean and spread, and
    RUN/report.html shows them. Ctrl-C writes a checkpoint and exits with code 130; --resume goes on from there.
    """
    from bertsmith.finetuning.report import write_finetuning_report
    from bertsmith.finetuning.run import finetune as run_finetuning
    from bertsmith.finetuning.run import summary_lines
    from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
    from bertsmith.tasks import named_tasks
    from bertsmith.tasks.task import TaskSettings

    name = named_tasks.task_name(task)
    own = own_head(head)
    settings = settings_from(FinetuningSettings, values)
    recipe = settings_from(RecipeSettings, values)
    spec, data = named_tasks.read_task(
        name,
        train,
        dev,
        columns=settings_from(named_tasks.ColumnSettings, values),
        settings=settings_from(TaskSettings, values, named_tasks.default_settings(name)),
        limit=limit,
    )
    table = None
    if search:
        from bertsmith.files import read_json, write_json
        from bertsmith.finetuning.tuning import TABLE_FILE, search_settings, table_cells

        beside = out.resolve().with_name(f"{out.resolve().name}-search")
        if not resume and out.exists() and any(out.iterdir()):
            raise RunError(expected=f"a new folder '{out}'", found="one that is not empty", fix="name another folder")
        settings, recipe = search_settings(
            model, spec, data, beside, settings, recipe, trials=trials, resume=resume, head=own
        )
        typer.echo(
            f"search: rate {recipe.learning_rate:g}, batch {settings.batch_size}, epochs {settings.epochs:g}; "
            f"all trials: {beside / TABLE_FILE}"
        )
        table = read_json(beside / TABLE_FILE)
        print_table(*table_cells(table))
    # A search that was stopped has no run yet; without a search there must be one to go on with.
    goes_on = resume and (not search or (out / "settings.json").exists())
    result = run_finetuning(model, spec, data, out, settings, recipe, seeds=seeds, resume=goes_on, head=own)
    if table is not None:
        write_json(out / TABLE_FILE, table)
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
    head: HeadOption = None,
    **values: Any,
) -> None:
    """Print the official scores of a fine-tuned model on a labelled file.

    The interval of a score says how far it moves when the examples are drawn again with replacement (2,000 draws).
    A model of another tool does not say what it was trained on: name its task with --task for the official scores.
    """
    from bertsmith.checkpoints.load import load_any
    from bertsmith.finetuning.predictions import example_lines
    from bertsmith.finetuning.resampling import intervals
    from bertsmith.finetuning.run import is_count
    from bertsmith.inference.predictor import Predictor
    from bertsmith.tasks.kinds import task_for
    from bertsmith.tasks.named_tasks import ColumnSettings
    from bertsmith.tasks.spec_of_model import read_labelled

    folder = load_any(model)
    predictor = Predictor.load(folder, device=device, precision=precision, head=own_head(head))
    name, spec, examples = read_labelled(folder, data, task, settings_from(ColumnSettings, values))
    predictor.task = task_for(spec)
    scores, predictions = predictor.evaluate(examples)
    cut = Counter[str]()
    for prediction in predictions:
        _count_cut(cut, prediction)
    _tell_cut(cut)
    shown = [metric for metric in scores if not is_count(metric)]
    ends = intervals(spec.kind, shown, list(example_lines(predictor.task, examples, predictions)), spec.scheme)
    precision = predictor.runtime.precision
    if json:
        found = {"task": name, "examples": len(examples), "precision": precision, "scores": scores, "intervals": ends}
        print_json(found)
        return
    typer.echo(f"{name}: {counted(len(examples), 'example')}, {precision}")
    for metric in shown:
        low, high = ends.get(metric, (None, None))
        between = "" if low is None else f" (95% interval {low:.4f} to {high:.4f})"
        typer.echo(f"{metric}: {scores[metric]:.4f}{between}")


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
    head: HeadOption = None,
    **values: Any,
) -> None:
    """Measure what int8 costs a fine-tuned model, and note in it which layers must stay higher.

    The weights stay as they are; `--precision int8` of the other commands then keeps to the note.
    """
    from bertsmith.checkpoints.load import load_any
    from bertsmith.inference.quantization import note_kept_layers, require_metadata
    from bertsmith.inference.quantization import quantize as measure
    from bertsmith.tasks.kinds import task_for
    from bertsmith.tasks.named_tasks import ColumnSettings
    from bertsmith.tasks.spec_of_model import read_labelled

    folder = load_any(model)
    require_metadata(folder.path)
    _, spec, examples = read_labelled(folder, data, task, settings_from(ColumnSettings, values))
    exact, trials = measure(folder, examples, limit, own_head(head))
    metric = task_for(spec).selection_metric
    note_kept_layers(folder.path, metric, exact, trials)
    if json:
        print_json({"metric": metric, "fp32": exact, "int8": trials[-1].score, "kept": list(trials[-1].kept)})
        return
    typer.echo(f"{metric} in fp32: {exact:.4f}")
    for trial in trials:
        kept = f", {' and '.join(trial.kept)} kept higher" if trial.kept else ""
        typer.echo(f"{metric} in int8{kept}: {trial.score:.4f}")
    typer.echo(f"noted in {folder.path / 'bertsmith.json'}")


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
    head: HeadOption = None,
) -> None:
    """Read lines from stdin and print what the model says of each, with probabilities.

    A line is a text; texts with a tab between them (a pair; question and context; context and endings); or a JSON
    object: {"text": ...}, {"text": ..., "pair": ...}, {"words": [...]}, {"question": ..., "context": ...},
    {"context": ..., "endings": [...]}. Answer i is that of line i; an empty line is an empty text, or a sentence
    without words to tag. A pair, a question or a choice needs all its parts.
    """
    from bertsmith.datasets.examples import is_blank
    from bertsmith.inference.predictor import Predictor
    from bertsmith.tasks import named_tasks

    predictor = Predictor.load(model, device=device, precision=precision, head=own_head(head))
    if test is None:
        for option, value in (("--submission", submission), ("--task", task)):
            require(value is None, expected=f"--test with {option}", found="none", fix="name the test file")
        total = count_lines(sys.stdin.buffer)
        examples = _examples(predictor.task.spec)
    else:
        name = named_tasks.glue_test(predictor.task.spec, task)
        read = named_tasks.read_test(name, test)
        total, examples = len(read), iter(read)
        if submission is not None:
            typer.echo(str(named_tasks.submit(name, predictor.stream(examples, total=total), submission)))
            return
    told = Counter[str]()
    for example, prediction in _answered(functools.partial(predictor.stream, total=total), examples):
        _count_cut(told, prediction)
        told["empty"] += is_blank(example)
        if json:
            print_json({"id": example.id, **prediction.to_dict()})
        else:
            typer.echo(prediction.line())
    _tell_cut(told)
    if told["empty"]:
        typer.echo(f"bertsmith: empty texts, whose prediction is that of [CLS] [SEP]: {told['empty']:,}", err=True)


def _answered(
    stream: "Callable[[Iterable[Example]], Iterator[tuple[Example, Prediction]]]", examples: "Iterable[Example]"
) -> "Iterator[tuple[Example, Prediction]]":
    """Each example with its answer, in order; a sentence without words has an empty one, which no model is asked for.

    Raises:
        BertsmithError: what `stream` raises, after all examples before the one that cannot be read were answered.
    """
    from bertsmith.datasets.examples import TaggedExample
    from bertsmith.errors import BertsmithError
    from bertsmith.tasks.tagging import TagsPrediction

    read: deque[Example] = deque()  # and not answered yet

    def with_words() -> "Iterator[Example]":
        for example in examples:
            read.append(example)
            if not is_wordless(example):
                yield example

    def is_wordless(example: "Example") -> bool:
        return isinstance(example, TaggedExample) and not example.words

    def without_words() -> "Iterator[tuple[Example, Prediction]]":
        while read and is_wordless(read[0]):
            yield read.popleft(), TagsPrediction(words=(), tags=(), probabilities=())

    try:
        for example, prediction in stream(with_words()):
            yield from without_words()
            read.popleft()
            yield example, prediction
    except BertsmithError:
        yield from without_words()
        raise
    yield from without_words()


def _count_cut(cut: Counter[str], prediction: Any) -> None:
    tokens = getattr(prediction, "cut_tokens", 0)
    cut["texts"] += tokens > 0
    cut["tokens"] += tokens


def _tell_cut(cut: Counter[str]) -> None:
    """Says on stderr how many texts were too long for the model."""
    if cut["texts"]:
        was = "was" if cut["texts"] == 1 else "were"
        texts, tokens = counted(cut["texts"], "text"), counted(cut["tokens"], "token")
        typer.echo(f"bertsmith: {texts} {was} cut, {tokens} in all", err=True)


def _examples(spec: "TaskSpec") -> "Iterator[Example]":
    """The examples on stdin, one a line."""
    from bertsmith.tasks.typed_examples import example_of_line

    lines = itertools.chain.from_iterable(line_blocks(sys.stdin.buffer))
    for number, line in enumerate(lines, start=1):
        yield example_of_line(spec, line, number)


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
