"""The cached state of an encoder that reads in one direction, from which it continues.

A recurrent encoder remembers its state, a Transformer decoder the keys and values of all earlier tokens. Reading a
sequence in parts with a memory gives the hidden states of reading it at once. Training on long texts carries the memory
from step to step, without gradients (truncated backpropagation through time); completing a text reads one new token at
a time. An encoder of two directions has a memory for each, and reads on in one direction at a time.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


@dataclasses.dataclass
class Memory:
    """The memory of N sequences, which a forward pass reads and replaces; an empty one has no tokens.

    Attributes:
        tensors: by name, each with the sequences along axis 0; what they hold is the encoder's own business.
        lengths: the number of tokens that were read of each sequence; empty before the first.
        backward: of an encoder of two directions, whether it is the backward half that reads on.
    """

    tensors: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    backward: bool = False

    def replace(self, tensors: Mapping[str, Tensor], read: Sequence[int]) -> None:
        """Takes the new memory of all sequences, of each of which `read` further tokens were read.

        The tensors keep no gradients.
        """
        self.tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        before = self.lengths or (0,) * len(read)
        self.lengths = tuple(old + new for old, new in zip(before, read, strict=True))

    def of_rows(self, rows: Sequence[int]) -> "Memory":
        """The memory of some of the sequences, in this order; a sequence may be taken several times."""
        if not self.lengths:
            return Memory(backward=self.backward)
        index = torch.tensor(list(rows))
        tensors = {name: tensor[index.to(tensor.device)] for name, tensor in self.tensors.items()}
        return Memory(tensors, tuple(self.lengths[row] for row in rows), self.backward)
