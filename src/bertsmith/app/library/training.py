"""The commands `pretrain` and `report` as functions."""

import dataclasses
from pathlib import Path

from bertsmith.app.library.request import ReportRequest
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.requests import parts_of, path_or_none, takes
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.pages.html import page_place
from bertsmith.base.processes.distributed import in_process_group, started_before
from bertsmith.base.storage.outputs import PAGE, require_output
from bertsmith.base.storage.remote import require_host
from bertsmith.recipes.results.report import is_finetuning, write_finetuning_report
from bertsmith.training.loop.loop import TrainResult
from bertsmith.training.loop.run_folder import SETTINGS_FILE
from bertsmith.training.loop.settings import BUDGETS
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.report import write_report as write_curves
from bertsmith.training.pretraining.request import PretrainRequest
from bertsmith.training.pretraining.run import pretrain as run_pretraining
from bertsmith.training.pretraining.run import settings_of_run
from bertsmith.training.pretraining.settings import AUTO_SIZE


@takes(PretrainRequest)
@in_process_group
def pretrain(request: PretrainRequest) -> TrainResult:
    """The result of pre-training a model on a corpus folder; OUT/model is the model, and `load(out)` loads it.

    A resumed run keeps its recipe, and its values of what is not given. What is given must be the same, but a run that
    was stopped while steps were timed for its minutes may get another budget.

    Raises:
        BertsmithError: the corpus, a setting or the run folder is invalid; the message says which.
    """
    require_host(request.corpus)
    rank, out = Rank.from_environment(), Path(request.out)
    of_run, of_training, of_data = (request.values(part) for part in parts_of(PretrainRequest))
    if not started_before(request.resume, rank, out / SETTINGS_FILE):
        chosen = settings_from_recipe({**of_run, **of_data, **of_training})
        return run_pretraining(request.corpus, out, *chosen, request=request)
    if of_run.get("size") == AUTO_SIZE:
        del of_run["size"]  # the run has the size that was chosen when it started
    _, run, data, train = settings_of_run(out)
    budget = dict.fromkeys(BUDGETS) if of_training.keys() & set(BUDGETS) else {}
    return run_pretraining(
        request.corpus,
        out,
        dataclasses.replace(run, **of_run),
        dataclasses.replace(data, **of_data),
        dataclasses.replace(train, **{**budget, **of_training}),
        resume=True,
    )


@takes(ReportRequest)
def write_report(request: ReportRequest) -> Path:
    """The path of the report that was written: by default RUN/report.html, or ./report-RUN-RUN.html for several runs.

    Pre-training runs are compared by their curves. Fine-tuning runs must have been scored on the same dev examples;
    each pair is compared: the difference, its 95% confidence interval, and whether it exceeds noise.

    Raises:
        ConfigError: the runs are of both kinds.
        InputError: `out` does not end in .html, is not a page, or exists and `replace` is False.
        BertsmithError: a folder contains no run, or the runs cannot be compared.
    """
    paths, out = [Path(run) for run in request.runs], path_or_none(request.out)
    require(bool(paths), expected="run folders", found="none", fix="name at least one")
    usual = page_place(paths)
    may_exist = out is None or out.resolve() == usual.resolve()
    require_output(out or usual, PAGE, replace=request.replace, may_exist=may_exist)
    kinds = {is_finetuning(run): run for run in paths}
    if len(kinds) > 1:
        raise ConfigError(
            expected="runs of one kind",
            found=f"the fine-tuning '{kinds[True]}' and '{kinds[False]}', which is not",
            fix="write a report of each kind",
        )
    if True in kinds:
        return write_finetuning_report(paths, out, on_line=request.on_line)
    return write_curves(paths, out=out)
