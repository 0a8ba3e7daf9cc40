"""The command that compares systems on one task, from counting words to BERT."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import DeviceOption, MapOption, given, label_map, print_table, say
from bertsmith.base.core.requests import COPIED
from bertsmith.base.core.settings import require


def compare_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `compare`."""
    from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings

    return (TaskSettings, ColumnSettings)


def compare(
    task: Annotated[
        str,
        typer.Option(
            "--task",
            metavar="FILE",
            help="labelled examples, or a task with its own examples, such as spam; with --train the task, as in "
            "`finetune`",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="REPORT", help="the folder of the report")],
    kind: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="the format of FILE: a task as in `finetune --task` [classification]"),
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="labelled examples of --task NAME, instead of --task FILE --kind NAME"),
        COPIED,
    ] = None,
    dev: Annotated[Path | None, typer.Option(metavar="FILE", help="dev file [a tenth of the examples]"), COPIED] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(metavar="TEXT", help="text that systems read: files, folders, or one corpus folder; repeatable"),
        COPIED,
    ] = None,
    systems: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="one-hot, tf-idf, word2vec, glove, ppmi, autoencoder-frozen, autoencoder, awd-lstm-random, "
            "awd-lstm-frozen, awd-lstm, ulmfit, ulmfit-target, elmo-frozen, elmo-bilstm, elmo-bilstm-attention, elmo, "
            "gpt-frozen, gpt, gpt-2018, random, bert-frozen, bert, starter; model folders and hub ids, which are "
            "fine-tuned; MODEL:frozen, a linear model on its vectors; folders and files of word vectors "
            "[all but starter; without --corpus one-hot, tf-idf, starter]",
        ),
    ] = "",
    minutes: Annotated[
        float | None, typer.Option(help="minutes of this machine for each system that reads the text [5]")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="tokens for each such system, instead of minutes")] = None,
    size: Annotated[
        str | None,
        typer.Option(help="size of the networks, as in `pretrain` [auto: by the minutes; with --tokens tiny]"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="fits of each system with each number of labels [3]")
    ] = None,
    labels: Annotated[
        str, typer.Option(metavar="N,N,...", help="numbers of training examples, such as 100,1000,all [all]")
    ] = "",
    models: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="where vectors and pre-trained networks are kept [REPORT/models]"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="do what REPORT has left to do; systems, labels and seeds may be added, others stay"
        ),
    ] = False,
    map_labels: MapOption = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="the score that counts, such as macro_f1 [that of the task]")
    ] = None,
    device: DeviceOption = "auto",
    **values: Any,
) -> None:
    """Train every system from counting words to BERT on one task, and say which step was worth it.

    Systems that read text get the same text and the same time; what they learn from it is kept in REPORT/models. Every
    system then gets the same labels and is scored on the same dev examples. A system that fails is listed with its
    reason. --resume continues a comparison that was stopped.
    """
    from bertsmith.recipes.comparison.run import compare_systems

    require(
        train is None or kind is None,
        expected="--task NAME with --train FILE",
        found=f"--kind {kind} as well",
        fix="leave --kind out",
    )
    result = compare_systems(
        task if train is None else train,
        out,
        kind=kind if train is None else task,
        dev=dev,
        corpus=corpus or (),
        systems=_names(systems),
        minutes=minutes,
        tokens=tokens,
        size=size,
        seeds=seeds,
        labels=_names(labels),
        models=models,
        resume=resume,
        map_labels=label_map(map_labels),
        metric=metric,
        device=device,
        **given(values),
    )
    first, *others = result.lines()
    say(first)
    print_table(*result.table())
    for line in others:
        say(line)
    say(f"report: {result.page}")


def _names(listed: str) -> list[str]:
    """The parts of a list with commas.

    >>> _names("tf-idf, bert"), _names("")
    (['tf-idf', 'bert'], [])
    """
    return [part.strip() for part in listed.split(",") if part.strip()]
