"""Several fine-tuned models as one: the mean of their class probabilities.

A language model reads in one direction. A forward and a backward model, fine-tuned on the same task, are combined by
averaging what they say; any models with the same labels can be.

Source: Howard and Ruder (2018), "Universal Language Model Fine-tuning for Text Classification", section 3.3.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bertsmith.datasets.examples import Example
from bertsmith.errors import ConfigError
from bertsmith.inference.loading import load_predictor
from bertsmith.inference.predictor import Predictor
from bertsmith.tasks.classification import ClassificationTask
from bertsmith.tasks.label_prediction import LabelPrediction
from bertsmith.tasks.task import Prediction

if TYPE_CHECKING:
    from bertsmith.checkpoints.model_folder import ModelFolder
    from bertsmith.heads.own_head import OwnHead


class Ensemble(Predictor):
    """A predictor that averages the class probabilities of several models; the first one decides how they are read.

    Args:
        members: models of classification with the same labels, each with its own tokenizer.

    Raises:
        ConfigError: a model is not one of classification, or has other labels.
    """

    def __init__(self, members: Sequence[Predictor]) -> None:
        first = members[0]
        self.task, self.runtime, self.members = first.task, first.runtime, tuple(members)
        wanted = first.task.spec
        for member in members:
            spec = member.task.spec
            if spec.kind != "classification" or (spec.labels, spec.pair, spec.multi_label) != (
                wanted.labels,
                wanted.pair,
                wanted.multi_label,
            ):
                raise ConfigError(
                    expected=f"models of classification with the same labels ({', '.join(wanted.labels)})",
                    found=f"a model of {spec.kind} with {', '.join(spec.labels) or 'no labels'}",
                    fix="combine models that were fine-tuned on the same task",
                )

    def predict(self, examples: Sequence[Example], advance: Callable[[float], None] | None = None) -> list[Prediction]:
        """One prediction per example, in order; see `Predictor.predict`.

        Args:
            advance: as in `Engine.logits`; each member advances by its part.
        """
        share = None if advance is None else _part_of(advance, len(self.members))
        found = [member.predict(examples, share) for member in self.members]
        assert isinstance(self.task, ClassificationTask)
        return list(self.task.averaged([cast("list[LabelPrediction]", one) for one in found]))


def load_ensemble(
    sources: Sequence["str | Path | ModelFolder"],
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    head: "type[OwnHead] | None" = None,
) -> Predictor:
    """The predictor of one model, or of several that are averaged; see `load_predictor` and `Ensemble`."""
    members = [
        load_predictor(source, device=device, precision=precision, products=products, head=head) for source in sources
    ]
    return members[0] if len(members) == 1 else Ensemble(members)


def _part_of(advance: Callable[[float], None], count: int) -> Callable[[float], None]:
    return lambda share: advance(share / count)
