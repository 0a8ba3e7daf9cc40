"""The encoded examples of several training files of vectors, with the loss and the share of each."""

import dataclasses
from collections.abc import Sequence

from bertsmith.base.core.settings import require
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.head_spec import WITH_LAYER
from bertsmith.recipes.finetuning.base_model import spec_of_job
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.tasks.encoding.units import EncodedExamples
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import Task, TaskSpec
from bertsmith.tasks.task_data.split import Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSource:
    """Encoded examples, and how they are trained.

    Attributes:
        name: in the log.
        spec: with the loss that they are trained with.
        share: of the steps, in proportion to that of the others.
    """

    name: str
    features: EncodedExamples
    spec: TaskSpec
    share: float


def sources_of(
    folder: ModelFolder, task: Task, train: EncodedExamples, sources: Sequence[Source], settings: FinetuningSettings
) -> list[TrainingSource]:
    """The examples of the first file and of the others, all with vectors of the same form.

    Without any share, each file has steps in proportion to its examples.

    Args:
        task: of the first file, as the settings ask for it.
        train: its encoded examples.
        settings: those of the vectors; its loss is that of the first file.

    Raises:
        BertsmithError: a file does not have what its loss compares, or the loss has a layer of its own.
    """
    tokenizer = folder.require_tokenizer()
    result = [TrainingSource(name="train", features=train, spec=task.spec, share=1.0)]
    for source in sources:
        chosen = dataclasses.replace(settings, vector_loss=source.loss)
        other = task_for(spec_of_job(dataclasses.replace(source.spec, settings=task.spec.settings), folder, chosen))
        require(
            not {other.spec.objective, task.spec.objective} & {*WITH_LAYER},
            expected="losses without a layer of their own, for several training files",
            found=other.spec.objective if other.spec.objective in WITH_LAYER else task.spec.objective,
            fix="use ranking",
        )
        other.check(source.examples, gold=True, training=True)
        features = other.encode(source.examples, tokenizer, training=True)
        share = 1.0 if source.share is None else source.share
        result.append(TrainingSource(name=source.name, features=features, spec=other.spec, share=share))
    if all(source.share is None for source in sources):
        return [dataclasses.replace(source, share=float(len(source.features))) for source in result]
    return result
