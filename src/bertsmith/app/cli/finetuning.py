"""The command that fine-tunes a model on a task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    COPIED,
    DevOption,
    HeadOption,
    MapOption,
    ModelOption,
    ResumeRunOption,
    SeedsOption,
    given,
    label_map,
    own_head,
    print_table,
    require_inputs,
    say,
)

TaskOption = Annotated[
    str,
    typer.Option(
        "--task",
        metavar="NAME",
        help="a GLUE task (cola, sst-2, mrpc, ... wnli), snli, xnli, squad, squad2, swag, codah, choice, ner, pos, "
        "classification, multi-label, patents, relations, regression, similarity, pairs, triplets, texts, spam, "
        "spam4, sentiment, claim, truth",
    ),
]


def finetune_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `finetune`."""
    from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
    from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings

    return (FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings)


def finetune(
    model: ModelOption,
    task: TaskOption,
    out: Annotated[Path, typer.Option(metavar="RUN", help="the run folder; RUN/model/ will be the model that is kept")],
    train: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="labelled examples, such as a table (.csv, .tsv, .jsonl, .parquet, .xlsx) with columns text and "
            "label; presets come with their own",
        ),
        COPIED,
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
        COPIED,
    ] = None,
    continue_minutes: Annotated[float | None, typer.Option(help="with --continue-on: for how many minutes [2]")] = None,
    continue_steps: Annotated[int | None, typer.Option(help="with --continue-on: steps instead of minutes")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="where settings that are not given come from: auto (size of the training set, model, task), 2018 "
            "(the paper; the defaults below), ulmfit (layer by layer, for language models) or setfit (few labels: "
            "vectors trained on pairs of texts, then a linear layer) [auto; up to 100 labels for a sentence encoder: "
            "setfit; with --resume that of RUN]",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the score that selects the best model, such as macro_f1 [that of the task]"),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="similarity, pairs, triplets: a sentence encoder or a model of pairs, whose scores take the place "
            "of labels",
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
    from bertsmith.tasks.specs.named_tasks import task_name

    task = task_name(task)
    require_inputs((model, teacher), (train, dev, continue_on))

    from bertsmith.app.library.training import finetune as run_finetuning
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.recipes.finetuning.run import summary_lines
    from bertsmith.recipes.results.finished_run import TABLE_FILE, table_cells
    from bertsmith.recipes.results.report import write_finetuning_report

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
    for line in summary_lines(result.report, str(out)):
        say(line)
    say(f"model: {out / 'model'}")
    say(f"report: {write_finetuning_report([out])}")
