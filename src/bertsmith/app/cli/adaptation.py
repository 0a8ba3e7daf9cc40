"""The command that adapts a model to the text of a domain."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import JsonOption, ResumeRunOption, given, print_json, print_table, say
from bertsmith.base.core.requests import COPIED
from bertsmith.base.core.settings import require


def adapt_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `adapt`."""
    from bertsmith.recipes.adaptation.settings import AdaptationSettings
    from bertsmith.tasks.specs.settings import ColumnSettings
    from bertsmith.text.documents.readers import ReadingSettings

    return (AdaptationSettings, ReadingSettings, ColumnSettings)


def adapt(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="an encoder: folder, checkpoint, hub id or starter"),
    ],
    texts: Annotated[
        list[Path],
        typer.Argument(metavar="TEXT...", help="domain text: .txt, .jsonl or .parquet (also .gz, .zst), or folders"),
        COPIED,
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="the run folder; RUN/model/ will be the adapted model")
    ] = None,
    general: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="TEXT",
            help="other text, on which forgetting is measured; repeatable [the documentation on this machine]",
        ),
        COPIED,
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="a task of the domain, as in `finetune`; scored before and after"),
    ] = None,
    train: Annotated[Path | None, typer.Option(metavar="FILE", help="with --task: the training file"), COPIED] = None,
    dev: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="with --task: the dev file [a tenth of the training examples]"),
        COPIED,
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="with --task: fine-tunings of each model [as in `finetune`]")
    ] = None,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="with --task: as a third arm, a new model of the same shape with a vocabulary of the domain, trained "
            "for as long",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="only say whether the text is enough and how long it takes")
    ] = False,
    resume: ResumeRunOption = False,
    json: JsonOption = False,
    **values: Any,
) -> None:
    """Adapt a model to the text of a domain: continue its pre-training, with its vocabulary, a grafted or a new one.

    First it reports whether the text is long enough, whether the vocabulary fits it, how long a pass takes, and which
    way it takes if --vocabulary does not say: a model that has read little is replaced by a new one. The final report
    compares the pieces per word, the masked-LM loss on held-out domain text and on general text, and with --task the
    score, before and after. Losses are per word, so they can be compared between vocabularies. Ctrl-C writes a
    checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.base.core.errors import ConfigError
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.recipes.adaptation.run import adapt as run_adaptation
    from bertsmith.recipes.adaptation.run import forecast_adaptation

    if check:
        others = {
            "--out": out, "--general": general, "--task": task, "--train": train, "--dev": dev, "--seeds": seeds,
            "--resume": resume or None,
        }  # fmt: skip
        idle = [name for name, value in others.items() if value is not None]
        require(
            not idle,
            expected="--check without options of a run",
            found=", ".join(idle),
            fix="leave them out; nothing is written or trained",
        )
        forecast = forecast_adaptation(model, texts, from_scratch=from_scratch, **given(values))
        if json:
            print_json(forecast.to_dict())
        else:
            for line in forecast.lines():
                say(line)
        return
    if out is None:
        raise ConfigError(expected="--out RUN, or --check", found="neither", fix="name a folder for the run")
    result = run_adaptation(
        model,
        texts,
        out,
        general=general or (),
        task=task,
        train=train,
        dev=dev,
        seeds=seeds,
        from_scratch=from_scratch,
        resume=resume,
        **given(values),
    )
    if Rank.from_environment().index:
        return  # process 0 prints for all
    if json:
        print_json(result.report)
        return
    print_table(*result.table())
    for line in result.lines():
        say(line)
    say(f"model: {result.model}")
    say(f"report: {result.page}")
