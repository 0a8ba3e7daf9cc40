"""Several fine-tuned models as one: the mean of their class probabilities, or of the numbers that they predict.

A language model reads in one direction. A forward and a backward model, fine-tuned on the same task, are combined by
averaging what they say; any models of the same task can be.

Source: Howard and Ruder (2018), "Universal Language Model Fine-tuning for Text Classification", section 3.3.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.requests import path_or_none
from bertsmith.inference.predictors.loading import load_predictor, said_weak
from bertsmith.inference.predictors.named_labels import asking, entity_labels
from bertsmith.inference.predictors.predictor import Predictor, answering
from bertsmith.inference.predictors.reply_ranker import with_replies
from bertsmith.inference.predictors.request import PredictRequest, SelectionSettings
from bertsmith.inference.predictors.selective import selective
from bertsmith.models.model_files.metadata import folder_of_model, read_metadata
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.specs.kinds import KINDS
from bertsmith.tasks.specs.settings import AnswerSettings, ColumnSettings
from bertsmith.tasks.specs.task import Prediction, Task, TaskSpec
from bertsmith.tasks.task_data.labelled_examples import warn_of_training_file

if TYPE_CHECKING:
    from bertsmith.models.checkpoints.model_folder import ModelFolder
    from bertsmith.models.heads.own_head import OwnHead


class Ensemble(Predictor):
    """A predictor that averages the answers of several models; the first one decides how the mean is read.

    Args:
        members: models of classification with the same labels, or of regression, each with its own tokenizer.
    """

    def __init__(self, members: Sequence[Predictor]) -> None:
        first = members[0]
        self.task, self.runtime, self.members = first.task, first.runtime, tuple(members)
        wanted = first.task.spec
        for member in members:
            spec = member.task.spec
            if not _has_mean(spec.kind) or _answers_of(spec) != _answers_of(wanted):
                raise ConfigError(
                    expected=f"models of {_named(wanted)}, as the first one is"
                    if _has_mean(wanted.kind)
                    else f"models of {' or '.join(filter(_has_mean, KINDS))}, which have a mean",
                    found=f"one of {_named(spec)}",
                    fix="combine models that were fine-tuned on the same task",
                )

    def predict(self, examples: Sequence[Example], advance: Callable[[float], None] | None = None) -> list[Prediction]:
        """One prediction per example, in order; see `Predictor.predict`.

        Args:
            advance: as in `Engine.logits`; each member advances by its part.
        """
        share = None if advance is None else _part_of(advance, len(self.members))
        averaged = self.task.averaged([member.predict(examples, share) for member in self.members])
        assert averaged is not None, "a kind of task whose predictions have a mean"
        return list(averaged)

    def _require_readable(self, examples: Sequence[Example]) -> None:
        for member in self.members:
            member._require_readable(examples)


def load_ensemble(
    sources: Sequence["str | Path | ModelFolder"],
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
    early: bool = False,
) -> Predictor:
    """The predictor of one model, or of several that are averaged; see `load_predictor`, `said_weak` and `Ensemble`."""
    options: dict[str, Any] = {"device": device, "precision": precision, "products": products, "head": head}
    members = [load_predictor(source, **options, early=early and len(sources) == 1) for source in sources]
    return said_weak(members[0], sources[0]) if len(members) == 1 else Ensemble(members)


def requested_predictor(request: PredictRequest) -> Predictor:
    """The predictor of the models of a request.

    Predictions for a file are made by torch from the first one on, so that those of a resumed run are the same.
    """
    early = request.out is None
    predictor = load_ensemble([request.model, *request.also], **request.arguments(load_ensemble), early=early)
    predictor = with_replies(answering(predictor, **request.values(AnswerSettings)), request.replies, request.top)
    labels = None if request.labels is None else entity_labels(request.labels, request.encoding)
    predictor = asking(predictor, labels, request.threshold, request.overlap)
    if (path := path_or_none(request.calibrate)) is not None:
        for model in (request.model, *request.also):
            warn_of_training_file(read_metadata(folder_of_model(model)), path)
    return selective(predictor, request.part(SelectionSettings), request.part(ColumnSettings))


def _has_mean(kind: str) -> bool:
    """Whether the predictions of a kind of task have a mean."""
    return KINDS[kind].averaged is not Task.averaged


def _answers_of(spec: TaskSpec) -> tuple[object, ...]:
    return spec.kind, spec.labels, spec.pair, spec.multi_label


def _named(spec: TaskSpec) -> str:
    texts = {True: "pairs", False: "single texts", None: "texts"}[spec.pair]
    several = "several of " if spec.multi_label else ""
    return f"{spec.kind} of {texts}" + (f" with the labels {several}{', '.join(spec.labels)}" if spec.labels else "")


def _part_of(advance: Callable[[float], None], count: int) -> Callable[[float], None]:
    return lambda share: advance(share / count)
