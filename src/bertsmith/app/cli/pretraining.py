"""Commands for pre-training: the demo, statistics of the rows, pre-training itself, plans and reports."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.app.cli.options import (
    CorpusArgument,
    ReplaceOutOption,
    given,
    note,
    print_json,
    say,
    settings_from,
)
from bertsmith.base.core.requests import COPIED

if TYPE_CHECKING:
    from bertsmith.training.planning.settings import PlanRequest
    from bertsmith.training.pretraining.settings import PretrainRequest


def demo(
    minutes: Annotated[float, typer.Option(help="time limit in minutes")] = 5.0,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            "--text", metavar="PATH", help="files or folders to use instead of the documentation on this machine"
        ),
        COPIED,
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="a new folder for all outputs")] = Path("demo"),
    **values: Any,
) -> None:
    """Run the whole pipeline: vocabulary, corpus, pre-training, filled masks, a classifier on top, report.html.

    Without --text it reads the documentation on this machine: the docstrings of Python and of installed packages.
    Nothing is downloaded, and none of their code is run.
    """
    from bertsmith.app.demo.run import run_demo

    for line in run_demo(out, minutes=minutes, texts=texts or (), **given(values)).lines():
        say(line)


def rates_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `rates`."""
    from bertsmith.training.pretraining.settings import PretrainingDataSettings

    return (PretrainingDataSettings,)


def rates(
    corpus: CorpusArgument,
    rows: Annotated[int, typer.Option(min=1, max=10**8, help="rows to measure")] = 10_000,
    **values: Any,
) -> None:
    """Measure pre-training rows: masked positions and their three treatments, random next sentences, lengths."""
    from bertsmith.text.corpus.shards import Corpus
    from bertsmith.training.pretraining.rates import measure_rates
    from bertsmith.training.pretraining.settings import PretrainingDataSettings
    from bertsmith.training.pretraining.stream import PretrainingStream

    source = Corpus.open(corpus, verify=True)
    settings = settings_from(PretrainingDataSettings, values)
    report = measure_rates(PretrainingStream(source, settings, source.tokenizer.vocabulary), rows)
    for line in report.lines():
        say(line)


def pretrain(request: "PretrainRequest") -> None:
    """Pre-train a model on a corpus, or continue from one with --init; give one of --steps, --tokens and --minutes.

    Ctrl-C finishes the step, writes a checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.app.library.training import pretrain as run_pretraining
    from bertsmith.base.core.requests import call
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.training.pretraining.report import summary_lines

    result, out = call(run_pretraining, request), Path(request.out)
    if Rank.from_environment().index == 0:
        for line in summary_lines(result):
            say(line)
        if result.skipped:
            note(f"steps skipped because the gradient was not finite: {result.skipped}")
        say(f"model: {out / 'model'}")
        say(f"report: {out / 'report.html'}")


def plan(
    request: "PlanRequest",
    json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text; --rates reads it")] = False,
) -> None:
    """Say what a pre-training will take: memory, steps, hours, price, and what drives them.

    Nothing is written but the index of a corpus at an address, which the run needs too.

    It takes the options of `pretrain`; without a budget, the plan is for --passes over the corpus. The rates are those
    of a few real steps on this machine. For a GPU that is not here, --device names it (a10, a100, a100-40, h100,
    h100-pcie, h200, l4, l40s, t4 or v100) and the rate is an estimate from its published peak, or --rates names a plan
    that was written there with --json.
    """
    from bertsmith.base.core.requests import call
    from bertsmith.training.planning.run import plan_pretraining

    forecast = call(plan_pretraining, request)
    for line in forecast.notes:
        note(line)
    if json:
        print_json(forecast.to_dict())
        return
    for line in forecast.lines():
        say(line)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders; several are compared")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="output file [RUN/report.html; for several runs ./report-RUN-RUN.html]"),
    ] = None,
    replace: ReplaceOutOption = False,
) -> None:
    """Write report.html: curves, settings, machine, digests.

    For pre-training runs it shows the loss against the unigram entropy. For fine-tuning runs it shows scores,
    confusions, calibration and the worst errors; several runs must have been scored on the same dev examples, and each
    pair is compared, also on stdout: the difference, its 95% confidence interval, and whether it exceeds noise. The
    report of several runs goes into the current folder, so that each run keeps its own. The last line printed is the
    path of the report.
    """
    from bertsmith.app.library.training import write_report

    page = write_report(runs, out, replace=replace, on_line=say)
    # If the program chose the name, print the full path.
    say(str(page if out or len(runs) == 1 else page.resolve()))
