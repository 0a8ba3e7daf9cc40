"""HTML reports of one or several runs: curves for pre-training, scores for fine-tuning."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bertsmith.errors import ConfigError
from bertsmith.finetuning.report import is_finetuning, write_finetuning_report


def write_report(
    runs: Sequence[str | Path], out: str | Path | None = None, on_line: Callable[[str], None] | None = None
) -> Path:
    """The path of the report that was written.

    Pre-training runs are compared by their curves. Fine-tuning runs must have been scored on the same dev examples;
    each pair is compared: the difference, its 95% confidence interval, and whether it exceeds noise.

    Args:
        runs: run folders, all of the same kind.
        out: the file to write; by default RUN/report.html, or ./report-RUN-RUN.html for several runs.
        on_line: receives a line for each comparison of two fine-tuning runs.

    Raises:
        ConfigError: the runs are of both kinds.
        BertsmithError: a folder contains no run, or the runs cannot be compared.
    """
    from bertsmith.pretraining.report import write_report as write_curves

    paths, place = [Path(run) for run in runs], None if out is None else Path(out)
    kinds = {is_finetuning(run): run for run in paths}
    if len(kinds) > 1:
        raise ConfigError(
            expected="runs of one kind",
            found=f"the fine-tuning '{kinds[True]}' and '{kinds[False]}', which is not",
            fix="write a report of each kind",
        )
    if True in kinds:
        return write_finetuning_report(paths, place, on_line=on_line)
    return write_curves(paths, out=place)
