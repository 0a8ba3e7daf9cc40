"""Commands for tasks: fine-tuning, evaluation, prediction."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli.options import (
    AlsoOption,
    DeviceOption,
    DevOption,
    EngineOption,
    FormatOption,
    HeadOption,
    JsonOption,
    MapOption,
    ModelOption,
    PrecisionOption,
    ResumeRunOption,
    SeedsOption,
    given,
    label_map,
    note,
    note_cut,
    own_head,
    print_json,
    print_table,
    say,
)
from bertsmith.cli.text import count_lines, line_blocks, stdin_bytes
from bertsmith.settings import require

if TYPE_CHECKING:
    from bertsmith.library.labelled import Evaluation, Int8Report

TaskOption = Annotated[
    str,
    typer.Option(
        "--task",
        metavar="NAME",
        help="a GLUE task (cola, sst-2, mrpc, ... wnli), snli, xnli, squad, squad2, swag, codah, choice, ner, pos, "
        "classification, multi-label, patents, regression, similarity, pairs, triplets, texts, spam, spam4, sentiment, "
        "claim, truth",
    ),
]


def finetune_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `finetune`."""
    from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
    from bertsmith.tasks.settings import ColumnSettings, TaskSettings

    return (FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings)


def finetune(
    model: ModelOption,
    task: TaskOption,
    out: Annotated[Path, typer.Option(metavar="RUN", help="the run folder; RUN/model/ will be the best model")],
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="training file; presets come with their own examples")
    ] = None,
    dev: DevOption = None,
    seeds: SeedsOption = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="first search learning rates, batch sizes and epochs (needs optuna)"),
    ] = False,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="with --search: settings to try")] = 12,
    limit: Annotated[
        int | None, typer.Option(min=1, help="use only this many training examples, the same random sample each time")
    ] = None,
    resume: ResumeRunOption = False,
    head: HeadOption = None,
    map_labels: MapOption = None,
    continue_on: Annotated[
        Path | None,
        typer.Option(
            "--continue-on",
            metavar="TEXT",
            help="first continue the pre-training on unlabelled text of the task: .txt, .jsonl, .parquet, a folder, or "
            "the training file itself",
        ),
    ] = None,
    continue_minutes: Annotated[float | None, typer.Option(help="with --continue-on: for how many minutes [2]")] = None,
    continue_steps: Annotated[int | None, typer.Option(help="with --continue-on: steps instead of minutes")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="where settings that are not given come from: auto (size of the training set, model, task), 2018 "
            "(the paper; the defaults below), ulmfit (layer by layer, for language models) or setfit (few labels: "
            "vectors trained on pairs of texts, then a linear layer) [auto; with --resume that of RUN]",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the score that selects the best model, such as macro_f1 [that of the task]"),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="similarity, pairs, triplets: a model of pairs whose scores take the place of labels"
        ),
    ] = None,
    hard_negatives: Annotated[
        int,
        typer.Option(
            min=0, max=100, help="pairs: texts to find for each pair that the base model takes for its second"
        ),
    ] = 0,
    **values: Any,
) -> None:
    """Fine-tune a model on a task, with one output layer, or your own head, on top.

    The defaults depend on the training set, see --recipe. RUN/report.json has the scores of every seed with their mean
    and spread, and RUN/report.html shows them. --map 1=Claim --map 0="Not Claim" renames the labels of the files; the
    model stores the new names. Ctrl-C writes a checkpoint and exits with code 130; --resume continues from there.
    Several processes of torchrun train whole seeds each if there are at least as many seeds as processes, and whole
    trials of --search; otherwise they share every step.
    """
    from bertsmith.finetuning.run import summary_lines
    from bertsmith.library.training import finetune as run_finetuning
    from bertsmith.results.finished_run import TABLE_FILE, table_cells
    from bertsmith.results.report import write_finetuning_report
    from bertsmith.runtime import Rank

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
        head=own_head(head),
        map_labels=label_map(map_labels),
        continue_on=continue_on,
        continue_minutes=continue_minutes,
        continue_steps=continue_steps,
        recipe=recipe,
        metric=metric,
        teacher=teacher,
        hard_negatives=hard_negatives,
        **given(values),
    )
    if Rank.from_environment().index:
        return  # process 0 prints and writes for all
    if result.trials:
        best = result.trials[0]
        say(
            f"search: learning rate {best['learning_rate']:g}, batch {best['batch_size']}, epochs {best['epochs']:g}; "
            f"all trials: {out / TABLE_FILE}"
        )
        print_table(*table_cells(result.trials))
    for line in summary_lines(result.report):
        say(line)
    say(f"model: {out / 'model'}")
    say(f"report: {write_finetuning_report([out])}")


def evaluate_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `evaluate`."""
    from bertsmith.tasks.settings import ColumnSettings

    return (ColumnSettings,)


def evaluate(
    model: ModelOption,
    data: Annotated[Path, typer.Option(metavar="FILE", help="labelled examples, in a format of the model's task")],
    task: FormatOption = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    head: HeadOption = None,
    map_labels: MapOption = None,
    also: AlsoOption = None,
    **values: Any,
) -> None:
    """Print the official scores of a fine-tuned model on a labelled file.

    The 95% confidence interval of a proportion, such as accuracy, is exact (Clopper-Pearson). Those of other scores
    come from resampling the examples with replacement (2,000 draws), and are left out if all draws give the same score.
    A model from another tool does not record what it was trained on: name its task with --task to get the official
    scores.
    """
    from bertsmith.library.labelled import evaluate as evaluate_on

    found = evaluate_on(
        model,
        data,
        task=task,
        map_labels=label_map(map_labels),
        device=device,
        precision=precision,
        head=own_head(head),
        also=also or (),
        **given(values),
    )
    note_cut(found.cut_texts, found.cut_tokens)
    _print(found, json)


def quantize_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `quantize`."""
    return evaluate_settings()


def quantize(
    model: ModelOption,
    data: Annotated[Path, typer.Option(metavar="FILE", help="labelled examples that the model was not trained on")],
    task: FormatOption = None,
    limit: Annotated[float, typer.Option(min=0, max=1, help="fraction of the fp32 score that int8 may lose")] = 0.004,
    json: JsonOption = False,
    head: HeadOption = None,
    map_labels: MapOption = None,
    **values: Any,
) -> None:
    """Measure what int8 costs a fine-tuned model, and record which layers to keep in higher precision.

    The weights do not change; the record is in the model's metadata, and other commands follow it with
    `--precision int8`.
    """
    from bertsmith.library.labelled import quantize as measure

    names = label_map(map_labels)
    _print(measure(model, data, task=task, map_labels=names, limit=limit, head=own_head(head), **given(values)), json)


def predict_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `predict`."""
    return evaluate_settings()


def predict(
    model: ModelOption,
    engine: EngineOption = "local",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="instead of stdin: a table (.csv, .tsv, .jsonl, .parquet), or another file of the model's task; "
            "labels are not needed",
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="instead of stdin: a GLUE test file, without labels")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="with --test: mnli-mm or ax for an MNLI model")
    ] = None,
    submission: Annotated[
        Path | None, typer.Option(metavar="DIR", help="with --test: write the file for GLUE's evaluation server there")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="print nothing, and write to this file: the objects of --json (.jsonl), or with --data the table with "
            "columns prediction and probability (.csv)",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="with a .jsonl file: resume an unfinished one; give the same lines again")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="overwrite the file of --out or --submission")] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    head: HeadOption = None,
    also: AlsoOption = None,
    **values: Any,
) -> None:
    """Print the model's prediction, with probabilities, for each line of stdin, or each row of a table.

    A line is a text; tab-separated texts (a pair; question and context; context and endings); or a JSON object:
    {"text": ...}, {"text": ..., "pair": ...}, {"words": [...]}, {"question": ..., "context": ...},
    {"context": ..., "endings": [...]}. Every line gets one prediction, in order; an empty line is an empty text, or a
    sentence without words to tag. A pair, a question or a choice needs all its parts. With --out, the
    predictions for lines are kept in FILE.partial: --resume continues after Ctrl-C, a crash or a full disk.
    """
    from bertsmith.cluster.predictions import digests_of_model
    from bertsmith.datasets.examples import is_blank
    from bertsmith.library import answered_files, lines
    from bertsmith.library.prediction_files import kept_predictions

    own = own_head(head)
    for name in given(values):
        option = f"--{name.replace('_', '-')}"
        require(data is not None, expected=f"--data with {option}", found="none", fix="give the file")
    require(
        data is None or (test is None and engine == "local"),
        expected="a single source of texts with --data",
        found="--test" if test is not None else "--engine",
        fix="leave one of the two out",
    )
    require(
        test is None or not also,
        expected="texts on stdin for several models",
        found="--also with --test",
        fix="leave one of the two out",
    )
    require(
        test is None or engine == "local",
        expected="texts on stdin for a cluster",
        found="--engine with --test",
        fix="leave one of the two out",
    )
    require(
        out is None or test is None, expected="texts on stdin for --out", found="--test", fix="leave one of the two out"
    )
    require(
        not resume or (out is not None and data is None),
        expected="--out with --resume, and texts on stdin",
        found="no --out" if out is None else "--data",
        fix="name the .jsonl file",
    )
    if test is None:
        for option, value in (("--submission", submission), ("--task", task)):
            require(value is None, expected=f"--test with {option}", found="none", fix="give the test file")
    if data is not None:
        options = {"device": device, "precision": precision, "head": own, "also": also or (), **given(values)}
        if out is None:
            answered = answered_files.predict_file(model, data, **options)
        else:
            answered = answered_files.write_predictions(model, data, out, replace=replace, **options)
    elif test is None:
        stdin = stdin_bytes()
        total, typed = count_lines(stdin), itertools.chain.from_iterable(line_blocks(stdin))
        predict_typed = functools.partial(
            lines.predict_lines,
            model,
            total=total,
            device=device,
            precision=precision,
            head=own,
            also=also or (),
            engine=engine,
        )
        if out is None:
            answered = predict_typed(typed)
        else:
            models = [digests_of_model(one) or str(one) for one in (model, *(also or ()))]
            made_of = {"models": models, "precision": precision, "head": None if own is None else own.__name__}
            answered = kept_predictions(
                out,
                typed,
                lambda texts, done: predict_typed(texts, done=done),
                made_of,
                resume=resume,
                replace=replace,
            )
    elif submission is not None:
        place = lines.write_submission(
            model, test, submission, task=task, device=device, precision=precision, head=own, replace=replace
        )
        say(str(place))
        return
    else:
        answered = lines.predict_test(model, test, task=task, device=device, precision=precision, head=own)
    cut_texts = cut_tokens = empty = 0
    for example, prediction in answered:
        cut_texts += prediction.cut_tokens > 0
        cut_tokens += prediction.cut_tokens
        empty += is_blank(example)
        if out is not None:
            continue
        if json:
            print_json({"id": example.id, **prediction.to_dict()})
        else:
            say(prediction.line())
    note_cut(cut_texts, cut_tokens)
    if out is not None:
        say(str(out))
    if empty:
        note(f"empty texts, predicted from [CLS] [SEP] alone: {empty:,}")


def _print(found: "Evaluation | Int8Report", json: bool) -> None:
    """Writes a result to stdout, as one line of JSON or as text."""
    if json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        say(line)


def glue(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="fine-tuning runs on GLUE tasks, or outputs of `evaluate --json`"),
    ],
) -> None:
    """Print the scores of GLUE runs next to the published ones, with averages including and excluding WNLI."""
    from bertsmith.results.glue_table import glue_lines, read_scores

    for line in glue_lines(read_scores(runs)):
        say(line)
