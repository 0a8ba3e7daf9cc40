"""A bag of n-grams that learns from a teacher: a linear model on words and character n-grams.

::

    RUN/teacher/              the logits of the teacher
    RUN/n-grams.safetensors   weight [K, D] and bias [K]
    RUN/n-grams.json          the terms, the labels, the settings
    RUN/distillation.json     what teacher and student cost, and what they score

RUN is not a model folder, since the student has neither an encoder nor a tokenizer, but `predict`, `evaluate` and
`rank` take it as a model, and `NGramModel.read` reads it.

Its targets are the softened answers of the teacher, mixed with the labels where there are any: for classes a
distribution, for several labels a probability each, for numbers the teacher's number. The columns are those of
`baselines.bag_of_words`, which also decides when letters are left out.

Source: Hinton, Vinyals and Dean (2015), "Distilling the Knowledge in a Neural Network", section 2; Ba and Caruana
(2014), "Do Deep Nets Really Need to be Deep?", for shallow students.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import quiet, tell
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import write_json
from bertsmith.base.storage.locks import locked_folder, require_new_run
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import NGRAM_TERMS, NGRAM_WEIGHTS
from bertsmith.recipes.distillation.logits import removed_if_refused
from bertsmith.recipes.distillation.report import (
    NO_SCORE,
    RESULT_FILE,
    STUDENT,
    TEACHER,
    WITHOUT_TEACHER,
    Ask,
    DistillationReport,
    cost_of,
    loader_of,
    milliseconds_of,
    scores_of,
    scores_of_teacher,
)
from bertsmith.recipes.distillation.settings import DistillationSettings
from bertsmith.recipes.distillation.task_teaching import summary_of
from bertsmith.recipes.distillation.transfer_set import Lesson, Sources, lesson_of, read_sources
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.units import EncodedExamples, Logits
from bertsmith.tasks.metrics.calibration import softmax
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import OF_BAG, TaskSpec
from bertsmith.tasks.specs.whole_texts import pooled_logits
from bertsmith.training.loop import run_folder

ABOUT = "linear model on words and runs of letters"


def taught_n_grams(
    lesson: Lesson, features: EncodedExamples, logits: Logits | None, settings: DistillationSettings, seed: int
) -> NGramModel:
    """The student of a teacher, or with labels alone where there are no logits."""
    spec = lesson.spec
    if spec.kind not in OF_BAG:
        needed = f"a task on texts or pairs of texts, not {spec.title}"
        raise ConfigError.needs("a student of n-grams", needed, "use --student layers or bilstm")
    data = lesson.data if logits is not None else lesson.labelled
    examples = cast("Sequence[TextExample]", data.train)
    targets, exclusive = features.targets, False
    assert targets is not None, "examples have labels or the answers of the teacher"
    if logits is not None:
        pooled = pooled_logits(logits, features, spec.settings.pooling)
        targets, exclusive = _mixed(pooled, targets, spec, settings)
    return NGramModel.fitted(spec, examples, targets, seed=seed, exclusive=exclusive, score=None)


def _mixed(
    logits: Logits, targets: npt.NDArray[np.generic], spec: TaskSpec, settings: DistillationSettings
) -> tuple[npt.NDArray[np.generic], bool]:
    """What the student is fitted to, and whether it is a distribution over labels of which one is right."""
    total = settings.soft_weight + settings.label_weight
    soft, hard = settings.soft_weight / total, settings.label_weight / total
    if spec.kind == "regression":
        return (soft * logits[:, 0] + hard * np.asarray(targets, dtype=np.float64)).astype(np.float32), False
    scaled = logits.astype(np.float64) / settings.temperature
    if spec.multi_label:
        mixed = soft / (1 + np.exp(-scaled)) + hard * np.asarray(targets, dtype=np.float64)
        return mixed.astype(np.float32), False
    right = np.eye(logits.shape[1])[np.asarray(targets, dtype=np.int64)]
    return (soft * softmax(scaled) + hard * right).astype(np.float32), True


def distill_n_grams(
    teacher: str | Path,
    out: Path,
    sources: Sources,
    settings: DistillationSettings,
    *,
    options: Mapping[str, Any],
    resume: bool = False,
    logits: Path | None = None,
    times: bool = True,
) -> DistillationReport:
    """Fits the student with the teacher and with labels alone, and writes it to RUN.

    It takes seconds besides the logits of the teacher, so with `resume` it is fitted again.

    Args:
        options: `seed`, `device`, `precision` and `micro_tokens`; no other setting of fine-tuning has a meaning here.
        teacher, out, sources, settings, resume, logits: see `run.distill_task`.
    """
    unknown = sorted(set(options) - {"seed", "device", "precision", "micro_tokens"})
    require(
        not (unknown or settings.layers or settings.has_states or settings.first_stage),
        expected="settings of a student of n-grams: temperature, weights of soft targets and labels, seed",
        found=", ".join(unknown) or "layers or losses of states",
        fix="leave them out",
    )
    if not resume:
        require_new_run(out)
    folder = load_any(teacher)
    spec, labelled, unlabelled = read_sources(folder, sources)
    tell(f"teacher: {summary_of(folder)}; student: {ABOUT}")
    with locked_folder(out), removed_if_refused(out / run_folder.TEACHER):
        lesson = lesson_of(folder, spec, labelled, unlabelled, settings, options, logits or out / run_folder.TEACHER)
        students = _fitted(lesson, settings, seed=int(options.get("seed", 1)))
        students[STUDENT].write(out)
        report = _report(lesson, students, out, times=times)
        write_json(out / RESULT_FILE, report.to_dict())
    return report


def _fitted(lesson: Lesson, settings: DistillationSettings, *, seed: int) -> dict[str, NGramModel]:
    """The student of the teacher and, if there are labels, that of labels alone."""
    task, tokenizer = task_for(lesson.spec), lesson.folder.require_tokenizer()
    data = lesson.data
    task.check(data.train, gold=True, training=True)
    features = task.encode(data.train, tokenizer, training=True)
    result = {STUDENT: taught_n_grams(lesson, features, lesson.logits_of(features), settings, seed)}
    if lesson.labelled.train:
        alone = task.encode(lesson.labelled.train, tokenizer, training=True)
        result[WITHOUT_TEACHER] = taught_n_grams(lesson, alone, None, settings, seed)
    return result


def _report(lesson: Lesson, students: Mapping[str, NGramModel], out: Path, *, times: bool) -> DistillationReport:
    dev = lesson.labelled.dev
    examples = [*dev, *lesson.data.train][:256]
    waits: Mapping[str, Any] = {}
    if times:
        loaders = {TEACHER: loader_of(lesson.folder, examples), STUDENT: _loader(students[STUDENT], examples)}
        waits = milliseconds_of(loaders, len(examples))
    with quiet():
        of_teacher = scores_of_teacher(lesson.folder, lesson.spec, dev)
    cost = cost_of(lesson.folder, waits.get(TEACHER, {}))
    rows: list[dict[str, Any]] = [{"name": TEACHER, "about": "", **of_teacher, "cost": cost}]
    size = sum((out / name).stat().st_size for name in (NGRAM_WEIGHTS, NGRAM_TERMS))
    for name, student in students.items():
        scores = scores_of(student.predict(dev), student.spec, dev) if dev else NO_SCORE
        cost = {"parameters": student.parameters, "bytes": size, "milliseconds": waits.get(STUDENT, {})}
        rows.append({"name": name, "about": ABOUT, **scores, "cost": cost})
    return DistillationReport(metric=lesson.spec.metric, rows=rows, path=out)


def _loader(student: NGramModel, examples: list[Example]) -> Callable[[str], Ask]:
    def load(precision: str) -> Ask:
        if precision != "fp32":
            raise ConfigError(expected="fp32 for n-grams", found=precision, fix="use fp32")
        return lambda count: student.predict(examples[:count])

    return load
