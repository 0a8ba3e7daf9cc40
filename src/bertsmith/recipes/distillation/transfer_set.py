"""The teacher, and the examples for its student: labelled ones, and others with the teacher's predictions.

An example without a label gets the answer of the teacher. So every kind of task can use unlabelled texts, the loss of
labels and that of soft targets apply to all examples alike, and the loop needs to know nothing about it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.settings import require, require_other, split_settings
from bertsmith.base.machine.runtime import Runtime, choose
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import SIMILARITY
from bertsmith.recipes.distillation.augmentation import Augmenter
from bertsmith.recipes.distillation.logits import digest_of_rows, rows_of, stored_logits
from bertsmith.recipes.distillation.settings import DistillationSettings
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import (
    Answer,
    ChoiceExample,
    EntityExample,
    Example,
    QuestionExample,
    TaggedExample,
    TextExample,
    is_blank,
)
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.encoding.units import EncodedExamples, Logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import form_of, official_spec, require_kind, task_name
from bertsmith.tasks.specs.predictions import EntitiesPrediction
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import GENERATION, Prediction, TaskSpec
from bertsmith.tasks.task_data.row_columns import groups_of
from bertsmith.tasks.task_data.spec_of_model import require_spec, spec_of
from bertsmith.tasks.task_data.split import TaskData, split_dev
from bertsmith.tasks.task_data.task_files import columns_for, drawn, named_columns, read_examples
from bertsmith.tasks.task_data.unlabelled import read_unlabelled


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """The files of a distillation."""

    train: Path | None = None  # labelled examples; None for unlabelled ones alone
    dev: Path | None = None  # labelled examples to score on; by default a tenth of the labelled training examples
    unlabelled: Path | None = None  # examples without labels, or whose labels are ignored
    task: str | None = None  # the name of the task whose format the files have; that of the teacher by default
    columns: ColumnSettings = dataclasses.field(default_factory=ColumnSettings)
    map_labels: LabelMap | None = None
    limit: int | None = None
    group_column: str | None = None  # of which whole groups are held out


def read_sources(teacher: ModelFolder, sources: Sources) -> tuple[TaskSpec, TaskData, list[Example]]:
    """The task of the teacher, the labelled examples, and those without labels.

    The spec has neither the thresholds nor the temperature of the teacher, which are fitted to its answers.
    """
    stored = spec_of(teacher)
    is_encoder = read_recipe(teacher.path) is not None if stored is None else stored.kind == SIMILARITY
    require(
        not is_encoder,
        expected="a teacher that labels, scores, tags or answers",
        found=f"the sentence encoder '{teacher.name}'",
        fix="train a smaller one on pairs of texts, whose scores are its cosines: `bertsmith finetune --model STUDENT "
        "--task pairs --train PAIRS --teacher DIR`",
    )
    spec = require_spec(teacher)
    require(
        spec.kind != GENERATION,
        expected="a teacher that labels, scores, tags or answers",
        found=f"'{teacher.name}', which writes texts",
        fix="train a smaller one on its texts: `bertsmith predict`, then `bertsmith finetune`",
    )
    name = task_name(sources.task or form_of(spec))
    require_kind(name, spec)
    if teacher.metadata.spec is None:
        spec = official_spec(name, spec)
    require(
        sources.train is not None or sources.unlabelled is not None,
        expected="examples to learn from",
        found="none",
        fix="name labelled ones with --train, or others with --unlabelled",
    )
    require_other(sources.group_column is None or sources.train is not None, "--group-column", "--train")
    digests = {
        role: digest_file(path)
        for role, path in (("train", sources.train), ("dev", sources.dev), ("unlabelled", sources.unlabelled))
        if path is not None and path.is_file()
    }

    def read(path: Path, *, training: bool) -> list[Example]:
        columns = columns_for(spec.columns, path, sources.columns)
        file = read_examples(name, path, columns, training=training, scheme=spec.scheme, map_labels=sources.map_labels)
        return list(file.examples)

    train: Sequence[Example] = ()
    groups: Sequence[str] | None = None
    if sources.train is not None:
        train = read(sources.train, training=True)
        groups = groups_of(train, sources.train, sources.group_column, sources.dev, encoding=sources.columns.encoding)
        train, groups = drawn(train, sources.limit), groups and drawn(groups, sources.limit)
    unlabelled = [] if sources.unlabelled is None else read_unlabelled(sources.unlabelled, name, spec, sources.columns)
    dev, held_out = [] if sources.dev is None else read(sources.dev, training=False), False
    if sources.dev is None and train:
        train, dev = split_dev(train, seed=0, groups=groups)
        held_out = True
    if spec.pair is None and isinstance(example := next(iter([*train, *unlabelled])), TextExample):
        spec = dataclasses.replace(spec, pair=example.second is not None)
    spec = dataclasses.replace(spec, threshold=None, thresholds=(), temperature=1.0)
    spec = dataclasses.replace(spec, columns=named_columns(sources.columns) or spec.columns)
    in_groups = held_out and groups is not None
    return spec, TaskData(train=train, dev=dev, digests=digests, held_out=held_out, in_groups=in_groups), unlabelled


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lesson:
    """All that a distillation needs besides the student's settings: teacher, examples, and where its logits are."""

    folder: ModelFolder
    model: EncoderForTask  # it, with the head of its task, on the device
    digest: str  # of its parameters
    spec: TaskSpec
    labelled: TaskData
    unlabelled: list[Example]  # the examples with its answers
    logits_folder: Path  # of its logits
    runtime: Runtime
    micro_tokens: int
    answered_rows: EncodedExamples | None = None  # their rows; None if there are none

    @property
    def data(self) -> TaskData:
        """All examples that the student learns from, the labelled ones first."""
        return dataclasses.replace(self.labelled, train=[*self.labelled.train, *self.unlabelled])

    def logits(self, features: EncodedExamples, name: str) -> Logits:
        """The teacher's logits on rows, from a folder or computed."""
        folder = self.logits_folder / name
        return stored_logits(folder, self.model, self.digest, features, self.runtime, self.micro_tokens)

    def logits_of(self, features: EncodedExamples) -> Logits:
        """The teacher's logits on the rows of all examples, of which the last ones may have been computed before."""
        rows, before = len(features.rows), self.answered_rows
        if before is None:
            return self.logits(features, "labelled")
        border = rows - len(before.rows)
        others = rows_of(features, border, rows) if border >= 0 else None
        if others is None or digest_of_rows(others) != digest_of_rows(before):  # neighboring sentences as context
            return self.logits(features, "all")
        labelled = [self.logits(rows_of(features, 0, border), "labelled")] if border else []
        return np.concatenate([*labelled, self.logits(others, "unlabelled")])


def lesson_of(
    folder: ModelFolder,
    spec: TaskSpec,
    labelled: TaskData,
    unlabelled: list[Example],
    settings: DistillationSettings,
    options: Mapping[str, Any],
    logits_folder: Path,
) -> Lesson:
    """The teacher on its device, and the answers that it gives to unlabelled and changed texts."""
    chosen = FinetuningSettings(**split_settings(options, [FinetuningSettings, RecipeSettings])[FinetuningSettings])
    runtime = choose(chosen.device, "fp32" if chosen.precision == "auto" else chosen.precision)
    task = task_for(spec)
    # Whatever is wrong with the labelled examples is found before the teacher reads the others.
    if labelled.train:
        task.check(labelled.train, gold=True, training=True)
    loaded = load_for_task(folder, task.head, keep_head=True)
    lesson = Lesson(
        folder=folder,
        model=loaded.model.to(runtime.torch_device).eval(),
        digest=digest_of_tensors(folder.tensors),
        spec=spec,
        labelled=labelled,
        unlabelled=[],
        logits_folder=logits_folder,
        runtime=runtime,
        micro_tokens=chosen.micro_tokens,
    )
    others = [example for example in unlabelled if not is_blank(example)]
    if settings.augment:
        texts = [*labelled.train, *others]
        copies = Augmenter(folder, settings, runtime).copies(texts, spec, seed=int(options.get("seed", 1)))
        tell(f"augmentation: {counted(len(copies), 'changed copy', 'changed copies')} of {counted(len(texts), 'text')}")
        others += copies
    if not others:
        return lesson
    task.check(others, gold=False)
    features = task.encode(others, loaded.tokenizer)
    rows = rows_of(features, 0, len(features.rows))
    predictions = task.decode(others, features, lesson.logits(rows, "unlabelled"), loaded.tokenizer)
    return dataclasses.replace(lesson, unlabelled=answered(others, predictions, spec), answered_rows=rows)


def answered(examples: Sequence[Example], predictions: Sequence[Any], spec: TaskSpec) -> list[Example]:
    """Examples with the answers of a teacher as their labels; questions without any answer are left out."""
    labelled = [_answered(example, prediction, spec) for example, prediction in zip(examples, predictions, strict=True)]
    kept = [example for example in labelled if example is not None]
    if len(kept) < len(labelled):
        warn(f"{counted(len(labelled) - len(kept), 'question')} left out: the teacher found no answer")
    return kept


def _answered(example: Example, prediction: Any, spec: TaskSpec) -> Example | None:
    assert isinstance(prediction, Prediction)
    if isinstance(prediction, EntitiesPrediction):
        assert isinstance(example, TaggedExample), "a sentence of words"
        return EntityExample.of(example, ((span.start, span.end, span.type) for span in prediction.entities))
    if isinstance(example, TaggedExample):
        return dataclasses.replace(example, tags=prediction.tags)  # type: ignore[attr-defined]
    if isinstance(example, ChoiceExample):
        return dataclasses.replace(example, label=prediction.index)  # type: ignore[attr-defined]
    if isinstance(example, QuestionExample):
        begin, end = prediction.start, prediction.end  # type: ignore[attr-defined]
        if begin < end:
            answers = (Answer(example.context[begin:end], begin),)
            return dataclasses.replace(example, answers=answers, absent_answers=(), is_impossible=False)
        if not spec.unanswerable:
            return None
        return dataclasses.replace(example, answers=(), absent_answers=(), is_impossible=True)
    assert isinstance(example, TextExample), "a task of labels or numbers"
    if spec.kind == "regression":
        return dataclasses.replace(example, label=float(prediction.value))  # type: ignore[attr-defined]
    label = prediction.chosen if spec.multi_label else prediction.label  # type: ignore[attr-defined]
    return dataclasses.replace(example, label=label)
