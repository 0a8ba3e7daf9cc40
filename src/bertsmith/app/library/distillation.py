"""`bertsmith distill` as functions."""

from pathlib import Path

from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import AUTO, require_recipe
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import in_process_group, on_first_rank, result_of_first_rank
from bertsmith.recipes.distillation.corpus_run import distill_corpus as run_on_corpus
from bertsmith.recipes.distillation.n_grams import distill_n_grams
from bertsmith.recipes.distillation.report import DistillationReport, report_of
from bertsmith.recipes.distillation.request import DistillCorpusRequest, DistillRequest
from bertsmith.recipes.distillation.run import distill_task
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings, DistillationSettings
from bertsmith.recipes.distillation.students import N_GRAMS
from bertsmith.recipes.distillation.transfer_set import Sources
from bertsmith.recipes.finetuning.recipes import recipe_of_run
from bertsmith.recipes.finetuning.settings import OF_ONE_TRAINING, FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.training.loop.result import TrainResult


@takes(DistillRequest)
@in_process_group
def distill(request: DistillRequest) -> DistillationReport:
    """The scores and costs of a student of a fine-tuned model; OUT/model is the student, and `load(out)` loads it.

    Raises:
        BertsmithError: the teacher, a file, a setting or the run folder is invalid; the message says which.
    """
    out, rank = Path(request.out), Rank.from_environment()
    settings = request.part(DistillationSettings)
    sources = Sources(
        train=path_or_none(request.train),
        dev=path_or_none(request.dev),
        unlabelled=path_or_none(request.unlabelled),
        task=request.task,
        columns=request.part(ColumnSettings),
        map_labels=request.map_labels,
        limit=request.limit,
        group_column=request.group_column,
    )
    named = {**request.values(FinetuningSettings), **request.values(RecipeSettings)}
    logits = path_or_none(request.logits)
    if settings.student == N_GRAMS:
        rank.require_alone("a student of n-grams, which is a linear model")
        return distill_n_grams(
            request.teacher,
            out,
            sources,
            settings,
            options=named,
            resume=request.resume,
            logits=logits,
            times=request.times,
        )
    recipe = request.recipe or (recipe_of_run(out) if request.resume else None) or AUTO
    taught = distill_task(
        request.teacher,
        out,
        sources,
        settings,
        options=named,
        seeds=request.seeds,
        resume=request.resume,
        without_teacher=request.without_teacher,
        logits=logits,
        recipe=require_recipe(recipe, OF_ONE_TRAINING),
        request=request,
    )
    on_first_rank(lambda: write_finetuning_report([out]), rank)
    report = result_of_first_rank(lambda: report_of(taught, out, times=request.times).to_dict(), rank)
    return DistillationReport(metric=report["metric"], rows=report["rows"], path=out)


@takes(DistillCorpusRequest)
def distill_corpus(request: DistillCorpusRequest) -> TrainResult:
    """The result of teaching a student on plain text, before any task; OUT/model is the student.

    Raises:
        BertsmithError: the teacher, the corpus, a setting or the run folder is invalid; the message says which.
    """
    named = {name: value for part in request.completed for name, value in request.values(part).items()}
    settings = request.part(CorpusDistillationSettings)
    return run_on_corpus(
        request.teacher,
        request.corpus,
        Path(request.out),
        settings,
        options=named,
        resume=request.resume,
        request=request,
    )
