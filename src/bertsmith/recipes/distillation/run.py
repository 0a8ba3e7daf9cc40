"""`bertsmith distill` as a function: a student of a fine-tuned model, from files to a model folder and a table.

::

    RUN/                    the fine-tuning run of the student: settings, seeds, report.json, model/
    RUN/teacher/            the logits of the teacher, see `logits`
    RUN/first-stage/        on request, the run in which states and attention alone were learned
    RUN/without-teacher/    on request, the run of the same student on labels alone
    RUN/distillation.json   what teacher and students cost, and what they score

Nothing is trained in a loop of its own: the student is fine-tuned, and a `TaskTeaching` adds the loss.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import said_once, tell
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import AUTO, require_other
from bertsmith.base.storage.files import digest_bytes
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.parts.head_inputs import OF_TWO_TEXTS
from bertsmith.recipes.distillation.logits import removed_if_refused
from bertsmith.recipes.distillation.settings import WITHOUT, DistillationSettings
from bertsmith.recipes.distillation.students import Student, student_of
from bertsmith.recipes.distillation.task_teaching import TaskTeaching, comparable, state_pairs, summary_of
from bertsmith.recipes.distillation.transfer_set import Lesson, Sources, lesson_of, read_sources
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.recipes import reads_of_run, resolved, settings_from, situation_of
from bertsmith.recipes.finetuning.run import FinetuningResult, finetune
from bertsmith.recipes.finetuning.settings import PROBE
from bertsmith.recipes.results.finished_run import MODEL_FOLDER
from bertsmith.tasks.encoding.units import Logits
from bertsmith.tasks.specs.settings import HIERARCHICAL
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import FIRST_STAGE, SETTINGS_FILE, TEACHER

SMALL_SET = 10_000  # labelled examples below which the student is also trained without the teacher


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taught:
    """A student that was trained."""

    teacher: ModelFolder
    spec: TaskSpec
    data: TaskData  # its examples; the training examples include those with answers of the teacher
    student: Student
    result: FinetuningResult
    without: FinetuningResult | None  # that of the same student without the teacher, if requested


def distill_task(
    teacher: str | Path,
    out: Path,
    sources: Sources,
    settings: DistillationSettings,
    *,
    options: Mapping[str, Any],
    seeds: int | None = None,
    resume: bool = False,
    without_teacher: bool | None = None,
    logits: Path | None = None,
    recipe: str = AUTO,
    request: Request | None = None,
) -> Taught:
    """Trains a student of a fine-tuned model and writes RUN/model and RUN/report.json.

    Args:
        options: fields of `FinetuningSettings` and `RecipeSettings` that differ from the recipe.
        without_teacher: also train the same student on labels alone; by default with fewer than 10,000 of them.
        logits: the folder of the teacher's logits, which several runs may share [RUN/teacher].
    """
    with Run.open(out, resume=resume, device=str(options.get("device", "auto")), parts=("",)) as run:
        # The teacher, the examples and the student.
        folder = load_any(teacher)
        spec, labelled, unlabelled = read_sources(folder, sources)
        require_other(
            bool(labelled.train) or not without_teacher, "--without-teacher", "labelled examples, with --train"
        )
        of_states = settings.of_first_stage() if settings.first_stage else settings
        student = student_of(
            folder,
            settings.student,
            settings.layers,
            seed=int(options.get("seed", 1)),
            same_heads=of_states.attention_weight > 0,
        )
        tell(f"teacher: {summary_of(folder)}; student: {student.about}")
        if of_states.has_states:
            comparable(student.folder.config, folder.config, attention=of_states.attention_weight > 0)

        # The logits of the teacher.
        with run.locked(), removed_if_refused(out / TEACHER):
            lesson = run.in_turn(
                lambda: lesson_of(folder, spec, labelled, unlabelled, settings, options, logits or out / TEACHER)
            )
            job, names = _job(lesson, student, lesson.data, out, settings, options, recipe, resume=run.is_resumed)
            if of_states.has_states:
                state_pairs(job, lesson.model.encoder, of_states)
            taught = run.in_turn(lambda: lesson.logits_of(job.train))

        # The student: its states first on request, then its answers; and the same one on labels alone.
        if settings.first_stage:
            job = _first_stage(job, lesson, student, taught, settings, run, names)
        teaching = _teaching(job, lesson, student, taught, settings)
        result = _trained(job.taught_by(teaching), out, seeds, run, names, request)
        without = None
        if without_teacher or (without_teacher is None and 0 < len(labelled.train) < SMALL_SET):
            same = {**options, **_as_many_steps(job, labelled)}
            without = _without(lesson, student, run, settings, same, recipe, seeds)
        return Taught(teacher=folder, spec=spec, data=lesson.data, student=student, result=result, without=without)


def _job(
    lesson: Lesson,
    student: Student,
    data: TaskData,
    out: Path,
    settings: DistillationSettings,
    options: Mapping[str, Any],
    recipe: str,
    *,
    resume: bool,
) -> tuple[FinetuningJob, dict[str, str]]:
    """The fine-tuning of a student, with settings of the recipe for it, and what `finetune` records of both."""
    spec = lesson.spec
    situation = situation_of(spec.name, spec.kind, len(data.train), student.folder, settings=spec.settings)
    values = resolved(recipe, situation, {"baselines": False, **_of_student(student, spec), **options})
    chosen, rates = settings_from(values)
    if chosen.reads == PROBE:
        reads = reads_of_run(out) if resume else None
        if settings.has_states or settings.first_stage:  # the rows of student and teacher are then compared
            has_no_pooler = spec.reads == "pooler" and "pooler" not in student.folder.parts
            reads = reads or ("mean" if has_no_pooler or spec.reads in OF_TWO_TEXTS else spec.reads)
        chosen = dataclasses.replace(chosen, reads=reads or PROBE)
    job = FinetuningJob.prepare(student.folder, spec, data, chosen, rates)
    return job, {"recipe_name": recipe, "source_name": student.about}


def _of_student(student: Student, spec: TaskSpec) -> dict[str, Any]:
    """Settings in place of those of the recipe for a student that is not a pre-trained Transformer."""
    if student.folder.config.has_attention or not student.is_new:
        return {}
    pooled = spec.kind in ("classification", "regression", "choice")
    whole = "mean" if spec.settings.long_text in HIERARCHICAL else "concat"  # a reader of windows has one vector each
    reads = {"reads": "pair" if spec.has_two_texts and whole == "concat" else whole} if pooled else {}
    return {**reads, "start": "random", "freeze": "nothing", "learning_rate": 2e-3, "epochs": 20.0}


def _teaching(
    job: FinetuningJob, lesson: Lesson, student: Student, taught: Logits, settings: DistillationSettings
) -> TaskTeaching:
    origin = {"teacher": summary_of(lesson.folder), **student.record()}
    digests = {"teacher": lesson.digest, "teacher_logits": digest_bytes(taught.tobytes())}
    return TaskTeaching(job, taught, settings, digests, origin, lesson.model.encoder)


def _first_stage(
    job: FinetuningJob,
    lesson: Lesson,
    student: Student,
    taught: Logits,
    settings: DistillationSettings,
    run: Run,
    names: Mapping[str, str],
) -> FinetuningJob:
    """The job on the student after a stage in which it learned states and attention alone."""
    out = run.path / FIRST_STAGE
    epochs = dataclasses.replace(job.settings, epochs=settings.first_stage, start="random", freeze="nothing")
    rates = dataclasses.replace(job.recipe, keep="last", evaluate_every=10**9, patience=None)
    first = job.with_settings(epochs, rates)
    first = first.taught_by(_teaching(first, lesson, student, taught, settings.of_first_stage()))
    tell(f"first stage: states and attention, {settings.first_stage:g} epochs")
    with said_once():
        _trained(first, out, 1, run, names)
    # What the second stage starts from is not a model of a task.
    started = dataclasses.replace(load_any(out / MODEL_FOLDER), metadata=student.folder.metadata)
    return job.on_base(started, job.settings, job.recipe)


def _without(
    lesson: Lesson,
    student: Student,
    run: Run,
    settings: DistillationSettings,
    options: Mapping[str, Any],
    recipe: str,
    seeds: int | None,
) -> FinetuningResult:
    """The run of the same student from the same start on the labelled examples alone."""
    tell("the same student without the teacher, for comparison; --no-without-teacher leaves it out")
    plain = dataclasses.replace(settings, state_weight=0.0, attention_weight=0.0, first_stage=0.0)
    out = run.path / WITHOUT
    job, names = _job(lesson, student, lesson.labelled, out, plain, options, recipe, resume=run.is_resumed)
    return _trained(job, out, seeds, run, names)


def _as_many_steps(job: FinetuningJob, labelled: TaskData) -> dict[str, Any]:
    """The settings with which labelled examples alone take as many steps as all examples do in a job."""
    reads: dict[str, Any] = {"reads": job.settings.reads} if job.head.pooled else {}
    share = len(job.data.train) / len(labelled.train)
    epochs = {"epochs": round(job.settings.epochs * share, 4), "batch_size": job.settings.batch_size}
    return {**reads, **epochs, "learning_rate": job.recipe.learning_rate}


def _trained(
    job: FinetuningJob,
    out: Path,
    seeds: int | None,
    run: Run,
    names: Mapping[str, str],
    request: Request | None = None,
) -> FinetuningResult:
    return finetune(
        job,
        job.task.spec,
        job.data,
        out,
        job.settings,
        job.recipe,
        seeds=seeds,
        resume=run.is_resumed and run.has(out / SETTINGS_FILE),
        recipe_name=names["recipe_name"],
        source_name=names["source_name"],
        request=request,
    )
