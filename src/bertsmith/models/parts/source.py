"""The input of a decoder's attention: states of the source texts, and their keys and values in each layer.

Letters: N sequences, S tokens of all source texts, D width.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from bertsmith.models.parts.batch import rows_index


@dataclasses.dataclass(frozen=True)
class SourceStates:
    """The encoded source texts of N sequences.

    Attributes:
        states: [S, D], flat.
        lengths: tokens of each text.
        kept: keys and values [S, D] by name, of the layers that have read them. Without gradients they are computed
            once, when the first token of a translation is.
        starts: by name, the state [N, D] with which a recurrent decoder starts.
        pieces: the ids of the tokens, int64 [S], for a decoder that copies them.
    """

    states: Tensor
    lengths: tuple[int, ...]
    kept: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    starts: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    pieces: Tensor | None = None

    def projected(self, name: str, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """The keys or values [S, D] of this name, computed from the states unless they are kept."""
        if torch.is_grad_enabled():
            return compute(self.states)
        if name not in self.kept:
            self.kept[name] = compute(self.states)
        return self.kept[name]

    def of_rows(self, rows: Sequence[int]) -> "SourceStates":
        """The texts of some of the sequences, in this order; a text may be taken several times."""
        lengths = np.asarray(self.lengths, dtype=np.int64)
        index = torch.from_numpy(rows_index(lengths, np.asarray(rows, dtype=np.int64))).to(self.states.device)
        kept = {name: tensor[index] for name, tensor in self.kept.items()}
        chosen = torch.tensor(list(rows), device=self.states.device)
        starts = {name: tensor[chosen] for name, tensor in self.starts.items()}
        pieces = None if self.pieces is None else self.pieces[index]
        return SourceStates(self.states[index], tuple(lengths[list(rows)].tolist()), kept, starts, pieces)
