"""Commands on a run: the demo, measuring what a run will be fed, pre-training, its curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.cli.options import given, settings_from
from bertsmith.progress import counted

CorpusArgument = Annotated[Path, typer.Argument(metavar="CORPUS", help="a folder that `bertsmith corpus` wrote")]


def demo(
    minutes: Annotated[float, typer.Option(help="how long it may take")] = 5.0,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            "--text", metavar="PATH", help="files or folders to use instead of the machine's own documentation"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="a new folder for all that is made")] = Path("demo"),
) -> None:
    """Show the whole chain: vocabulary, corpus, pre-training, gaps filled, report.html.

    Without --text it reads the documentation that is on this machine, the docstrings of Python and of the installed
    packages; nothing is downloaded and nothing of them is run.
    """
    from bertsmith.demo import run_demo

    for line in run_demo(out, minutes=minutes, texts=texts or ()).lines():
        typer.echo(line)


def rates_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `rates`."""
    from bertsmith.pretraining.settings import PretrainingDataSettings

    return (PretrainingDataSettings,)


def rates(
    corpus: CorpusArgument,
    rows: Annotated[int, typer.Option(min=1, help="rows to measure")] = 10_000,
    **values: Any,
) -> None:
    """Print the rates that pre-training rows really have: masks and their three ways, random next, lengths."""
    from bertsmith.corpus.shards import Corpus
    from bertsmith.pretraining.rates import measure_rates
    from bertsmith.pretraining.settings import PretrainingDataSettings
    from bertsmith.pretraining.stream import PretrainingStream

    source = Corpus.open(corpus)
    settings = settings_from(PretrainingDataSettings, values)
    report = measure_rates(PretrainingStream(source, settings, source.tokenizer.vocabulary), rows)
    for line in report.lines():
        typer.echo(line)


def pretrain_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `pretrain`."""
    from bertsmith.pretraining.run import PretrainingRunSettings
    from bertsmith.pretraining.settings import PretrainingDataSettings
    from bertsmith.training.settings import TrainSettings

    return (PretrainingRunSettings, TrainSettings, PretrainingDataSettings)


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option(metavar="RUN", help="the run folder; RUN/model/ will be the model")],
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with RUN; options that are not given are those it was started with")
    ] = False,
    **values: Any,
) -> None:
    """Pre-train a BERT on a corpus, or go on from a model with --init; give one of --steps, --tokens and --minutes.

    Ctrl-C finishes the step, writes a checkpoint and exits with code 130; --resume goes on from there.
    """
    from bertsmith.library.training import pretrain as run_pretraining
    from bertsmith.runtime import Rank

    result = run_pretraining(corpus, out, resume=resume, **given(values))
    if Rank.from_environment().index == 0:
        seconds = counted(round(result.seconds), "second")
        typer.echo(f"{counted(result.steps, 'step')}, {counted(result.tokens, 'token')}, {seconds}")
        for name, value in result.metrics.items():
            typer.echo(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value:.4g}")
        if result.skipped:
            typer.echo(f"bertsmith: steps skipped because their gradient was not finite: {result.skipped}", err=True)
        typer.echo(f"model: {out / 'model'}")
        typer.echo(f"report: {out / 'report.html'}")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="run folders; several are compared")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the page [RUN/report.html; of several runs ./report-RUN-RUN.html]"),
    ] = None,
) -> None:
    """Write report.html: curves, settings, machine, digests.

    Pre-training runs show the loss against the unigram line. Fine-tuning runs show scores, confusions, calibration and
    the worst mistakes; several must have been scored on the same dev examples, and each pair is compared, also on
    stdout: the difference, its 95% interval, and whether it is more than noise. The page of several runs goes into the
    current folder, so that each run keeps its own. The last line is the place of the page.
    """
    from bertsmith.library.report import write_report

    page = write_report(runs, out, on_line=typer.echo)
    # Of a name that the program chose, the user is told where it is.
    typer.echo(str(page if out or len(runs) == 1 else page.resolve()))
