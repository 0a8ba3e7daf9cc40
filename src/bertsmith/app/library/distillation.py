"""`bertsmith distill` as functions with paths and keyword settings."""

from pathlib import Path
from typing import Any

from bertsmith.base.core.settings import AUTO, require, require_counts, require_recipe, split_settings
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import in_process_group, on_first_rank, result_of_first_rank
from bertsmith.recipes.distillation.corpus_run import distill_corpus as run_on_corpus
from bertsmith.recipes.distillation.n_grams import distill_n_grams
from bertsmith.recipes.distillation.report import DistillationReport, report_of
from bertsmith.recipes.distillation.run import distill_task
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings, DistillationSettings
from bertsmith.recipes.distillation.students import N_GRAMS
from bertsmith.recipes.distillation.transfer_set import Sources
from bertsmith.recipes.finetuning.recipes import recipe_of_run
from bertsmith.recipes.finetuning.settings import OF_ONE_TRAINING, FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs.named_tasks import task_name
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.training.loop.result import TrainResult
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings


@in_process_group
def distill(
    teacher: str | Path,
    out: str | Path,
    *,
    train: str | Path | None = None,
    dev: str | Path | None = None,
    unlabelled: str | Path | None = None,
    task: str | None = None,
    seeds: int | None = None,
    limit: int | None = None,
    resume: bool = False,
    without_teacher: bool | None = None,
    logits: str | Path | None = None,
    map_labels: LabelMap | None = None,
    recipe: str | None = None,
    times: bool = True,
    **settings: Any,
) -> DistillationReport:
    """What a student of a fine-tuned model came to; OUT/model is the student, and `load(out)` loads it.

    Args:
        teacher: the model to learn from, anything that `load` accepts, fine-tuned for any kind of task.
        out: the run folder; new, unless `resume`.
        train: labelled examples, in a format of the teacher's task.
        dev: labelled examples to score on; by default a tenth of the training examples.
        unlabelled: examples whose answers the teacher gives: a file of the task, whose labels are ignored, or lines of
            text (.txt) as `predict` reads them.
        task: the name of the task whose format the files have; that of the teacher by default.
        seeds: number of trainings; by default three for fewer than 10,000 examples, else one.
        limit: learn from a random sample of that many labelled examples.
        resume: resume the run in `out`.
        without_teacher: also train the same student on labels alone, for comparison, which takes about as long again;
            by default with fewer than 10,000 labelled examples.
        logits: a folder for the teacher's logits that several runs share; OUT/teacher by default.
        map_labels: new names of the labels in the files, to those of the teacher.
        recipe: where the settings that are not given come from, as in `finetune`.
        times: measure how long answers of teacher and student take.
        settings: fields of DistillationSettings, FinetuningSettings, RecipeSettings and ColumnSettings by name, such as
            student="bilstm", temperature=3, epochs=5, text_column="body".

    Raises:
        BertsmithError: the teacher, a file, a setting or the run folder is invalid; the message says which.
    """
    require_counts(seeds=seeds, limit=limit)
    task = None if task is None else task_name(task)
    parts = split_settings(settings, [DistillationSettings, FinetuningSettings, RecipeSettings, ColumnSettings])
    chosen = DistillationSettings(**parts[DistillationSettings])
    recipe = require_recipe(recipe or (recipe_of_run(out) if resume else None) or AUTO, OF_ONE_TRAINING)
    FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
    sources = Sources(
        train=_path(train),
        dev=_path(dev),
        unlabelled=_path(unlabelled),
        task=task,
        columns=ColumnSettings(**parts[ColumnSettings]),
        map_labels=map_labels,
        limit=limit,
    )
    place, given = Path(out), {**parts[FinetuningSettings], **parts[RecipeSettings]}
    rank = Rank.from_environment()
    if chosen.student == N_GRAMS:
        require(
            rank.count == 1,
            expected="one process for a student of n-grams, which is a linear model",
            found=f"{rank.count} processes",
            fix="start it without torchrun",
        )
        return distill_n_grams(
            teacher, place, sources, chosen, given=given, resume=resume, logits=_path(logits), times=times
        )
    taught = distill_task(
        teacher,
        place,
        sources,
        chosen,
        given=given,
        seeds=seeds,
        resume=resume,
        without_teacher=without_teacher,
        logits=_path(logits),
        recipe=recipe,
    )
    on_first_rank(lambda: write_finetuning_report([place]), rank)
    report = result_of_first_rank(lambda: report_of(taught, place, times=times).to_dict(), rank)
    return DistillationReport(metric=report["metric"], rows=report["rows"], path=place)


def distill_corpus(
    teacher: str | Path, corpus: str | Path, out: str | Path, *, resume: bool = False, **settings: Any
) -> TrainResult:
    """The result of teaching a student on plain text, before any task; OUT/model is the student.

    Args:
        teacher: a pre-trained model, anything that `load` accepts.
        corpus: a folder that `build_corpus` wrote with the teacher's tokenizer (`bertsmith corpus --model DIR`); for
            method="vectors" with the student's, which is the corpus's own if the student is a new model.
        out: the run folder; new, unless `resume`.
        resume: resume the run in `out`, with the same settings.
        settings: fields of CorpusDistillationSettings, and of the settings of pre-training, by name, such as
            method="tinybert", student="4x312", steps=10_000, max_length=128.

    Raises:
        BertsmithError: the teacher, the corpus, a setting or the run folder is invalid; the message says which.
    """
    of_training = [PretrainingRunSettings, PretrainingDataSettings, TrainSettings]
    parts = split_settings(settings, [CorpusDistillationSettings, *of_training])
    given = {name: value for one in of_training for name, value in parts[one].items()}
    chosen = CorpusDistillationSettings(**parts[CorpusDistillationSettings])
    return run_on_corpus(teacher, corpus, Path(out), chosen, given=given, resume=resume)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)
