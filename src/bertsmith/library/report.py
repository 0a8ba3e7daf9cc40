"""The page of a run, or of several that are compared: curves of pre-training, scores of fine-tuning."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bertsmith.errors import ConfigError
from bertsmith.finetuning.report import is_finetuning, write_finetuning_report


def write_report(
    runs: Sequence[str | Path], out: str | Path | None = None, on_line: Callable[[str], None] | None = None
) -> Path:
    """The report.html that was written.

    Pre-training runs are compared by their curves. Fine-tuning runs must have been scored on the same dev examples;
    each pair is compared: the difference, its 95% confidence interval, and whether it is more than noise.

    Args:
        runs: run folders, all of one kind.
        out: the page; RUN/report.html, or of several runs ./report-RUN-RUN.html.
        on_line: receives what the comparison of each pair of fine-tuning runs says.

    Raises:
        ConfigError: runs of both kinds are given.
        BertsmithError: a folder holds no run, or the runs cannot be compared.
    """
    from bertsmith.pretraining.report import write_report as write_curves

    paths, place = [Path(run) for run in runs], None if out is None else Path(out)
    kinds = {is_finetuning(run): run for run in paths}
    if len(kinds) > 1:
        raise ConfigError(
            expected="runs of one kind",
            found=f"the fine-tuning '{kinds[True]}' and '{kinds[False]}', which is none",
            fix="write a report of each kind",
        )
    if True in kinds:
        return write_finetuning_report(paths, place, on_line=on_line)
    return write_curves(paths, out=place)
