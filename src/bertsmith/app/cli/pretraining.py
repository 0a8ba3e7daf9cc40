"""Commands for pre-training: the demo, statistics of the rows, pre-training itself, plans and reports."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import note, say, show

if TYPE_CHECKING:
    from bertsmith.app.library.request import DemoRequest, ReportRequest
    from bertsmith.training.planning.settings import PlanRequest
    from bertsmith.training.pretraining.request import PretrainRequest, RatesRequest


def demo(request: "DemoRequest") -> None:
    """Run the whole pipeline: vocabulary, corpus, pre-training, filled masks, a classifier on top, report.html.

    Without --text it reads the documentation on this machine: the docstrings of Python and of installed packages.
    Nothing is downloaded, and none of their code is run.
    """
    from bertsmith.app.demo.run import run_demo
    from bertsmith.base.core.requests import call

    say(*call(run_demo, request).lines())


def rates(request: "RatesRequest") -> None:
    """Measure pre-training rows: masked positions and their three treatments, random next sentences, lengths."""
    from bertsmith.text.corpus.shards import Corpus
    from bertsmith.training.pretraining.rates import measure_rates
    from bertsmith.training.pretraining.settings import PretrainingDataSettings
    from bertsmith.training.pretraining.stream import PretrainingStream

    source = Corpus.open(request.corpus, verify=True)
    stream = PretrainingStream(source, request.part(PretrainingDataSettings), source.tokenizer.vocabulary)
    report = measure_rates(stream, request.rows)
    say(*report.lines())


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
        say(*summary_lines(result))
        if result.skipped:
            note(f"steps skipped because the gradient was not finite: {result.skipped}")
        say(f"model: {out / 'model'}")
        say(f"report: {out / 'report.html'}")


def plan(
    request: "PlanRequest",
    json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text; --rates reads it")] = False,
) -> None:
    """Estimate what a pre-training run will take: memory, steps, hours and price, and what drives them.

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
    show(forecast, json)


def report(request: "ReportRequest") -> None:
    """Write report.html: curves, settings, machine, digests.

    For pre-training runs it shows the loss against the unigram entropy. For fine-tuning runs it shows scores,
    confusions, calibration and the worst errors; several runs must have been scored on the same dev examples, and each
    pair is compared, also on stdout: the difference, its 95% confidence interval, and whether it exceeds noise. The
    report of several runs goes into the current folder, so that each run keeps its own. The last line printed is the
    path of the report.
    """
    from bertsmith.app.library.training import write_report
    from bertsmith.base.core.requests import call

    page = call(write_report, request.replaced(on_line=say))
    # If the program chose the name, print the full path.
    say(str(page if request.out or len(request.runs) == 1 else page.resolve()))
