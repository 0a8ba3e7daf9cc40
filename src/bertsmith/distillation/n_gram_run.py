"""A bag of n-grams taught by a fine-tuned model: `bertsmith distill --student n-grams` as a function.

::

    RUN/teacher/      the logits of the teacher
    RUN/n-grams.*     the student, see `n_grams`; no model folder, so it is read with `NGramStudent.read`
    RUN/distillation.json   what teacher and student cost, and what they score
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoints.load import load_any
from bertsmith.datasets.examples import Example
from bertsmith.distillation.measures import Ask, Cost, milliseconds_of, weight_bytes
from bertsmith.distillation.n_grams import TERMS_FILE, WEIGHTS_FILE, NGramStudent, taught_n_grams
from bertsmith.distillation.report import (
    RESULT_FILE,
    STUDENT,
    TEACHER,
    WITHOUT_TEACHER,
    DistillationReport,
    loader_of,
    scored,
    scores_of,
)
from bertsmith.distillation.run import Lesson, lesson_of
from bertsmith.distillation.settings import DistillationSettings
from bertsmith.distillation.task_teaching import summary_of
from bertsmith.distillation.transfer_set import Sources, read_sources
from bertsmith.errors import ConfigError
from bertsmith.files import write_json
from bertsmith.inference.loading import load_predictor
from bertsmith.locks import locked_folder, require_unused
from bertsmith.progress import quiet, tell
from bertsmith.settings import require
from bertsmith.tasks.kinds import task_for
from bertsmith.training import run_folder

ABOUT = "linear model on words and runs of letters"


def distill_n_grams(
    teacher: str | Path,
    out: Path,
    sources: Sources,
    settings: DistillationSettings,
    *,
    given: Mapping[str, Any],
    resume: bool = False,
    logits: Path | None = None,
    times: bool = True,
) -> DistillationReport:
    """Fits the student with the teacher and with labels alone, and writes it to RUN.

    It takes seconds besides the logits of the teacher, so with `resume` it is fitted again.

    Args:
        given: `seed`, `device`, `precision` and `micro_tokens`; no other setting of fine-tuning has a meaning here.
        teacher, out, sources, settings, resume, logits: see `run.distill_task`.
        times: measure how long answers take.

    Raises:
        BertsmithError: teacher, examples or settings do not fit; the message says which.
    """
    unknown = sorted(set(given) - {"seed", "device", "precision", "micro_tokens"})
    require(
        not (unknown or settings.layers or settings.has_states or settings.first_stage),
        expected="settings of a student of n-grams: temperature, weights of soft targets and labels, seed",
        found=", ".join(unknown) or "layers or losses of states",
        fix="leave them out",
    )
    if not resume:
        require_unused(out, "resume it with --resume or name another folder")
    folder = load_any(teacher)
    spec, labelled, unlabelled = read_sources(folder, sources)
    tell(f"teacher: {summary_of(folder)}; student: {ABOUT}")
    with locked_folder(out):
        lesson = lesson_of(folder, spec, labelled, unlabelled, settings, given, logits or out / run_folder.TEACHER)
        students = _fitted(lesson, settings, seed=int(given.get("seed", 1)))
        students[STUDENT].write(out)
        report = _report(lesson, students, out, times=times)
        write_json(out / RESULT_FILE, report.to_dict())
    return report


def _fitted(lesson: Lesson, settings: DistillationSettings, *, seed: int) -> dict[str, NGramStudent]:
    """The student of the teacher and, if there are labels, that of labels alone."""
    task, tokenizer = task_for(lesson.spec), lesson.folder.require_tokenizer()
    data = lesson.data
    task.check(data.train, gold=True, training=True)
    features = task.encode(data.train, tokenizer, training=True)
    found = {STUDENT: taught_n_grams(lesson, features, lesson.logits_of(features), settings, seed)}
    if lesson.labelled.train:
        alone = task.encode(lesson.labelled.train, tokenizer, training=True)
        found[WITHOUT_TEACHER] = taught_n_grams(lesson, alone, None, settings, seed)
    return found


def _report(lesson: Lesson, students: Mapping[str, NGramStudent], out: Path, *, times: bool) -> DistillationReport:
    dev, tokenizer = lesson.labelled.dev, lesson.folder.require_tokenizer()
    examples = [*dev, *lesson.data.train][:256]
    waits: Mapping[str, Any] = {}
    if times:
        asked = {TEACHER: loader_of(lesson.folder, examples), STUDENT: _loader(students[STUDENT], examples, tokenizer)}
        waits = milliseconds_of(asked, len(examples))
    empty = {"score": None, "low": None, "high": None, "deviation": None, "seeds": 1}
    with quiet():
        of_teacher = scored(load_predictor(lesson.folder, device="cpu"), lesson.spec, dev) if dev else empty
    cost = Cost(
        parameters=sum(tensor.numel() for tensor in lesson.folder.tensors.values()),
        bytes=weight_bytes(lesson.folder.path),
        milliseconds=waits.get(TEACHER, {}),
    )
    rows: list[dict[str, Any]] = [{"name": TEACHER, "about": "", **of_teacher, "cost": cost.to_dict()}]
    size = sum((out / name).stat().st_size for name in (WEIGHTS_FILE, TERMS_FILE))
    for name, student in students.items():
        found = scores_of(student.predict(dev, tokenizer), student.spec, dev) if dev else empty
        cost = Cost(parameters=student.parameters, bytes=size, milliseconds=waits.get(STUDENT, {}))
        rows.append({"name": name, "about": ABOUT, **found, "cost": cost.to_dict()})
    return DistillationReport(metric=lesson.spec.metric, rows=rows, path=out)


def _loader(student: NGramStudent, examples: list[Example], tokenizer: Any) -> Callable[[str], Ask]:
    def load(precision: str) -> Ask:
        if precision != "fp32":
            raise ConfigError(expected="fp32 for n-grams", found=precision, fix="use fp32")
        return lambda count: student.predict(examples[:count], tokenizer)

    return load
