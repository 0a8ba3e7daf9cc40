"""The rows of a step or of an evaluation with what is predicted in them, and the micro-batches that they are cut into.

Letters: N rows of a micro-batch, M predicted positions.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted
from bertsmith.models.parts.batch import cut_by_tokens, gather_rows, rows_index
from bertsmith.models.parts.runs import copied
from bertsmith.training.loop.lanes import lanes_for
from bertsmith.training.pretraining.batch import PretrainingBatch
from bertsmith.training.pretraining.stream import Rows
from bertsmith.training.pretraining.targets import NOTHING, FindTargets, Ints


class RowsWithTargets:
    """Rows of a step with their targets, sorted by length; `pairs` says whether a label of each row is predicted."""

    def __init__(self, rows: Rows, find_targets: FindTargets, *, pairs: bool, step: int) -> None:
        self.rows, self.pairs, self.step = rows, pairs, step
        self.targets = find_targets(rows.token_ids, rows.lengths, rows.keys)
        self.num_predicted = len(self.targets.positions)
        starts = np.cumsum(rows.lengths) - rows.lengths
        read = np.concatenate([self.targets.positions, starts if pairs else starts[:0]])
        rising = np.argsort(read)
        self.read, self.is_predicted = read[rising], rising < self.num_predicted
        self.read_counts = self.targets.per_row + pairs
        order = np.lexsort((self.read_counts, rows.lengths))
        # With whole words a row may have no prediction; without a pair loss it then contributes nothing.
        self.order = order[self.read_counts[order] > 0]

    def cut(
        self, most_tokens: int, *, rank: int = 0, world: int = 1, lanes: int = 1, least_parts: int = 1
    ) -> list[Ints]:
        """The indices of the rows of each part: every `world`-th row, starting at `rank`, split by tokens."""
        order, lengths = self.order[rank::world], self.rows.lengths
        if not len(order):
            raise ConfigError(
                expected=f"rows with something to predict for each of {world} processes in every step",
                found=f"{counted(len(lengths), 'row')} in step {self.step}",
                fix="use larger steps, fewer processes or a larger masked share",
            )
        return cut_by_tokens(order, lengths, most_tokens, max(least_parts, lanes_for(int(lengths[order].sum()), lanes)))

    def batches(self, parts: Sequence[Ints], device: str) -> list[PretrainingBatch]:
        """The micro-batches of these parts, on a device."""
        return [self._batch(part, device) for part in parts]

    def _batch(self, part: Ints, device: str) -> PretrainingBatch:
        rows, targets, num_predicted = self.rows, self.targets, self.num_predicted
        gathered = gather_rows(
            part,
            token_ids=targets.token_ids,
            segment_ids=rows.segment_ids,
            lengths=rows.lengths,
            wanted=self.read,
            wanted_per_row=self.read_counts,
            row_ids=part,
            device=device,
        )
        assert gathered.read is not None

        def tensor(values: npt.NDArray[np.integer]) -> Tensor:
            return copied(values.astype(np.int64, copy=False), device)

        is_predicted = self.is_predicted[gathered.chosen]
        predicted = np.flatnonzero(is_predicted)
        chosen = rows_index(targets.per_row, part)
        target_ids = targets.target_ids[chosen]
        has_next = target_ids != NOTHING
        backward = backward_targets = None
        if targets.previous_ids is not None:
            previous_ids = targets.previous_ids[chosen]
            has_previous = previous_ids != NOTHING
            backward = tensor(predicted[has_previous])
            backward_targets = tensor(previous_ids[has_previous])
        return PretrainingBatch(
            batch=gathered.batch,
            read=gathered.read,
            predicted=tensor(predicted[has_next]) if num_predicted else None,
            targets=tensor(target_ids[has_next]) if num_predicted else None,
            first=tensor(np.flatnonzero(~is_predicted)) if self.pairs else None,
            labels=tensor(rows.labels[part]) if self.pairs else None,
            step=self.step,
            step_predictions=int((targets.target_ids != NOTHING).sum()),
            step_rows=len(rows.lengths),
            backward=backward,
            backward_targets=backward_targets,
        )
