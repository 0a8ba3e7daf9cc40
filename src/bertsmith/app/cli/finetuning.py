"""The command that fine-tunes a model on a task."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.app.cli.options import print_table, require_inputs, say

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.request import FinetuneRequest


def finetune(request: "FinetuneRequest") -> None:
    """Fine-tune a model on a task, with one output layer, or your own head, on top.

    The defaults depend on the training set, see --recipe. RUN/report.json has the scores of every seed with their mean
    and spread, and RUN/report.html shows them. --map 1=Claim --map 0="Not Claim" renames the labels of the files; the
    model stores the new names. Ctrl-C writes a checkpoint and exits with code 130; --resume continues from there.
    Several processes of torchrun train whole seeds each if there are at least as many seeds as processes, and whole
    trials of --search; otherwise they share every step.
    """
    require_inputs((request.source, request.teacher), (request.train, request.dev, request.continue_on))

    from bertsmith.app.library.finetuning import finetune as run_finetuning
    from bertsmith.base.core.requests import run
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.recipes.finetuning.run import summary_lines
    from bertsmith.recipes.results.finished_run import TABLE_FILE, table_cells
    from bertsmith.recipes.results.report import write_finetuning_report

    result, out = run(run_finetuning, request), Path(request.out)
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
