"""The cached keys and values of the tokens that a left-to-right Transformer has read before a batch.

Letters: N sequences, T tokens of the batch, R queries, S tokens of all sequences with the earlier ones, P tokens of the
longest of them, D width.

In a `Memory`, the keys and values of each layer are [N, P, D]; shorter sequences are filled up at their ends, where
nothing is ever read.
"""

import numpy as np
import torch
from torch import Tensor

from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.runs import Runs, runs_of


class Earlier:
    """The past of sequences that attention continues: their earlier keys and values, and where the new tokens are.

    Attributes:
        positions: int64 [T], the position of each token of the batch in its sequence.
        longest: P, the tokens of the longest sequence, the earlier ones included.
    """

    def __init__(self, memory: Memory, batch: Batch) -> None:
        self.memory, self._batch = memory, batch
        new, device = np.asarray(batch.lengths), batch.token_ids.device
        before = np.asarray(memory.lengths or (0,) * len(new))
        assert len(before) == len(new), "the memory of these sequences"
        self._lengths, self.longest = tuple((before + new).tolist()), int((before + new).max())
        self.positions = batch.positions + torch.from_numpy(np.repeat(before, new)).to(device)
        rows = torch.from_numpy(np.repeat(np.arange(len(new)), new)).to(device)
        self._places = rows * self.longest + self.positions  # [T], in [N * P]
        lengths = torch.tensor(self._lengths, device=device)
        is_token = torch.arange(self.longest, device=device) < lengths[:, None]
        self._seen = None if bool(is_token.all()) else is_token.flatten().nonzero()[:, 0]  # [S]
        self._tensors: dict[str, Tensor] = {}

    def runs(self, read: Read | None) -> Runs:
        """The runs of attention: all tokens are keys, the new ones, or the positions that are read, are queries."""
        return runs_of(self._lengths, self._batch.lengths if read is None else read.counts)

    def continued(self, name: str, new: Tensor) -> Tensor:
        """The keys or values [S, D] of all tokens, from those [T, D] of the new ones; remembers them for `save`."""
        old = self.memory.tensors.get(name)
        rows, width = len(self._lengths), new.shape[1]
        known = new.new_zeros(rows, self.longest, width)
        if old is not None:
            kept = min(old.shape[1], self.longest)  # the longest sequence of the memory may have been left out
            known[:, :kept] = old[:, :kept]
        flat = known.view(-1, width).index_copy(0, self._places, new)
        self._tensors[name] = flat.view(rows, self.longest, width)
        return flat if self._seen is None else flat[self._seen]

    def save(self) -> None:
        """Replaces the memory by one that includes the batch."""
        self.memory.replace(self._tensors, self._batch.lengths)
