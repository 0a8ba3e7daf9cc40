"""A micro-batch of pre-training: the rows as the model reads them, with what is predicted in them.

Letters: N rows of a micro-batch, M predicted positions.
"""

import dataclasses

from torch import Tensor

from bertsmith.models.parts.batch import Batch, Read


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingBatch:
    """A micro-batch with its targets.

    Attributes:
        predicted: int64 [M], indices into the last hidden states for the masked-LM head; None without predictions.
        targets: int64 [M], the gold pieces at those positions.
        first: int64 [N], indices of [CLS] in the last hidden states; None if no label is predicted.
        backward: int64 [M'], indices into the last hidden states whose backward half predicts the previous piece; None
            unless the objective has two directions.
        step_predictions: predictions in the whole step, of one direction.
    """

    batch: Batch
    read: Read
    predicted: Tensor | None
    targets: Tensor | None
    first: Tensor | None
    labels: Tensor | None
    step: int
    step_predictions: int
    step_rows: int
    backward: Tensor | None = None
    backward_targets: Tensor | None = None

    @property
    def predicted_positions(self) -> Tensor:
        """The flat positions of the predictions in the batch, int64 [M]."""
        assert self.predicted is not None, "an objective that predicts pieces"
        return self.read.positions[self.predicted]
