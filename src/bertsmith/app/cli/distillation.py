"""The commands that make smaller models from larger ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    AddressedCorpus,
    DevOption,
    JsonOption,
    MapOption,
    ResumeRunOption,
    SeedsOption,
    given,
    label_map,
    print_json,
    print_table,
    say,
)

TeacherOption = Annotated[
    str, typer.Option("--teacher", metavar="DIR", help="the model to learn from: folder, checkpoint or hub id")
]
OutOption = Annotated[Path, typer.Option(metavar="RUN", help="the run folder; RUN/model/ will be the student")]


def distill_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `distill`."""
    from bertsmith.recipes.distillation.settings import DistillationSettings
    from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
    from bertsmith.tasks.specs.settings import ColumnSettings

    return (DistillationSettings, FinetuningSettings, RecipeSettings, ColumnSettings)


def distill(
    teacher: TeacherOption,
    out: OutOption,
    train: Annotated[Path | None, typer.Option(metavar="FILE", help="labelled examples of the teacher's task")] = None,
    dev: DevOption = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="examples that the teacher answers: a file of the task, whose labels are ignored, or .txt with lines "
            "as `predict` reads them",
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="format of the files [that of the teacher's task]")
    ] = None,
    seeds: SeedsOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="use only this many labelled examples, the same random sample each time")
    ] = None,
    resume: ResumeRunOption = False,
    without_teacher: Annotated[
        bool | None,
        typer.Option(
            "--without-teacher/--no-without-teacher",
            help="also train the same student on labels alone, which doubles the time [yes below 10,000 labels]",
        ),
    ] = None,
    logits: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="keep the teacher's logits there, for several runs [RUN/teacher]"),
    ] = None,
    map_labels: MapOption = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="as in `finetune`: auto, 2018 or ulmfit [auto; with --resume that of RUN]"),
    ] = None,
    json: JsonOption = False,
    **values: Any,
) -> None:
    """Train a smaller model that learns from a fine-tuned one, and show what both cost and score.

    The student is fine-tuned, with the teacher's logits as soft targets next to the labels. They are computed once and
    kept in RUN/teacher. Texts without labels help: the teacher answers them. The table has parameters, bytes, processor
    milliseconds in fp32 and int8, and scores; RUN/distillation.json has the same. Ctrl-C writes a checkpoint and exits
    with code 130; --resume continues from there.
    """
    from bertsmith.app.library.distillation import distill as run_distillation
    from bertsmith.base.machine.runtime import Rank

    report = run_distillation(
        teacher,
        out,
        train=train,
        dev=dev,
        unlabelled=unlabelled,
        task=task,
        seeds=seeds,
        limit=limit,
        resume=resume,
        without_teacher=without_teacher,
        logits=logits,
        map_labels=label_map(map_labels),
        recipe=recipe,
        **given(values),
    )
    if Rank.from_environment().index:
        return  # process 0 prints for all
    if json:
        print_json(report.to_dict())
        return
    print_table(*report.table())
    for line in report.lines():
        say(line)
    if (out / "model").is_dir():  # a bag of n-grams is no model folder
        say(f"model: {out / 'model'}")
        say(f"report: {out / 'report.html'}")


def corpus_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `distill corpus`."""
    from bertsmith.recipes.distillation.settings import CorpusDistillationSettings
    from bertsmith.training.loop.settings import TrainSettings
    from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings

    return (CorpusDistillationSettings, TrainSettings, PretrainingDataSettings, PretrainingRunSettings)


def distill_corpus(
    corpus: AddressedCorpus,
    teacher: TeacherOption,
    out: OutOption,
    resume: ResumeRunOption = False,
    **values: Any,
) -> None:
    """Teach a student on plain text, as DistilBERT and TinyBERT do; give one of --steps, --tokens and --minutes.

    The student of --method distilbert has half of the teacher's layers and is written as a DistilBERT. That of --method
    vectors learns to give the vectors of any encoder, whatever its vocabulary: --student mini makes a new model, and a
    folder continues one. Fine-tune the student, or name it as --student of `bertsmith distill`. Ctrl-C writes a
    checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.app.library.distillation import distill_corpus as run_on_corpus
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.training.pretraining.summary import summary_lines

    result = run_on_corpus(teacher, corpus, out, resume=resume, **given(values))
    if Rank.from_environment().index:
        return
    for line in summary_lines(result):
        say(line)
    say(f"model: {out / 'model'}")
    say(f"report: {out / 'report.html'}")
