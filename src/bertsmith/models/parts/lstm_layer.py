"""One layer of LSTM over a flat batch, from left to right or from right to left.

Letters: T tokens in the flat batch, N sequences, K inputs, C cells, O outputs: C, or the width of the projection.

Sequences of any length and order are read together without padding: the layer sorts them by length, and each time
step computes only the sequences that are long enough for it. Names and layout of the parameters are as in torch's
`nn.LSTM` with one layer; the four gates are in its order: input, forget, cell, output.

Source: Hochreiter and Schmidhuber (1997); Sak et al. (2014), "Long Short-Term Memory Based Recurrent Neural Network
Architectures for Large Scale Acoustic Modeling", for the projection; `LSTMCell` of TensorFlow for the clips.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = tuple[Tensor, Tensor]


class TimeSteps(NamedTuple):
    """The tokens of a flat batch in the order in which an LSTM reads them: by time step, longer sequences first.

    Attributes:
        tokens: int64 [T], the flat position of each token in reading order.
        rows: int64 [N], the sequences, from the longest to the shortest.
        counts: int64 [longest length], the number of sequences that each time step reads.
    """

    tokens: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def time_steps(lengths: tuple[int, ...], *, backward: bool = False) -> TimeSteps:
    """The time steps of sequences with these lengths; backward, each is read from its last token to its first.

    >>> time_steps((1, 3)).tokens.tolist(), time_steps((1, 3), backward=True).tokens.tolist()
    ([1, 0, 2, 3], [3, 0, 2, 1])
    """
    of_row = np.asarray(lengths, dtype=np.int64)
    rows = np.argsort(-of_row, kind="stable")
    counts = len(of_row) - np.searchsorted(of_row[rows][::-1], np.arange(of_row.max()), side="right")
    time = np.repeat(np.arange(len(counts)), counts)
    row = rows[np.arange(len(time)) - np.repeat(np.cumsum(counts) - counts, counts)]
    starts = np.cumsum(of_row) - of_row
    tokens = starts[row] + (of_row[row] - 1 - time if backward else time)
    return TimeSteps(tokens, rows, counts.astype(np.int64))


class LstmLayer(nn.Module):
    """A layer of LSTM, with a projection of its output and optional clipping.

    Args:
        projection: O, if the output is projected.

    Attributes:
        initial_deviations: standard deviations of the initial matrices. That of the inputs keeps their scale, which a
            stack of layers would lose otherwise; those between hidden states are torch's.
    """

    def __init__(
        self,
        inputs: int,
        cells: int,
        *,
        projection: int | None = None,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.cells, self.projection = inputs, cells, projection
        self.cell_clip, self.projection_clip = cell_clip, projection_clip
        between = 1 / math.sqrt(3 * cells)
        self.initial_deviations = {
            "weight_ih_l0": 1 / math.sqrt(inputs),
            "weight_hh_l0": between,
            "weight_hr_l0": between,
        }
        self.weight_ih_l0 = nn.Parameter(torch.zeros(4 * cells, inputs))
        self.weight_hh_l0 = nn.Parameter(torch.zeros(4 * cells, self.outputs))
        self.bias_ih_l0 = nn.Parameter(torch.zeros(4 * cells))
        self.bias_hh_l0 = nn.Parameter(torch.zeros(4 * cells))
        if projection is not None:
            self.weight_hr_l0 = nn.Parameter(torch.zeros(projection, cells))

    @property
    def outputs(self) -> int:
        """O, the width of the hidden states."""
        return self.projection or self.cells

    def forward(
        self,
        x: Tensor,
        lengths: tuple[int, ...],
        state: State | None = None,
        *,
        backward: bool = False,
        hidden_weight: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """The hidden states [T, O], and the state after the last token that was read of each sequence.

        A state is the hidden state [N, O] and the cells [N, C]. All have the dtype of `x`.

        Args:
            x: the inputs [T, K].
            lengths: tokens of each sequence, at least one; they add up to T.
            state: the state before the first token that is read; zeros if not given.
            hidden_weight: used in place of the matrix between hidden states, [4C, O].
        """
        steps = time_steps(lengths, backward=backward)
        tokens, rows = (torch.from_numpy(index).to(x.device) for index in (steps.tokens, steps.rows))
        if state is None:
            state = x.new_zeros(len(lengths), self.outputs), x.new_zeros(len(lengths), self.cells)
        hidden, cells = (part.to(x.dtype)[rows] for part in state)
        weights = self.weights(x.dtype, hidden_weight)
        if self.cell_clip is None and self.projection_clip is None:
            read, hidden, cells = _by_torch(x[tokens], steps.counts, hidden, cells, weights)
        else:
            read, hidden, cells = self._by_steps(x[tokens], steps.counts, hidden, cells, weights)
        back, rows_back = torch.empty_like(tokens), torch.empty_like(rows)
        back[tokens] = torch.arange(len(tokens), device=x.device)
        rows_back[rows] = torch.arange(len(rows), device=x.device)
        return read[back], (hidden[rows_back], cells[rows_back])

    def weights(self, dtype: torch.dtype, hidden_weight: Tensor | None = None) -> list[Tensor]:
        """The parameters in this dtype, as `torch.lstm` lists them."""
        recurrent = self.weight_hh_l0 if hidden_weight is None else hidden_weight
        weights = [self.weight_ih_l0, recurrent, self.bias_ih_l0, self.bias_hh_l0]
        if self.projection is not None:
            weights.append(self.weight_hr_l0)
        return [weight.to(dtype) for weight in weights]

    def step(self, x: Tensor, state: State, weights: list[Tensor]) -> State:
        """The state after one further token of each sequence, whose input [N, K] may depend on the state before."""
        from_input, recurrent, input_bias, recurrent_bias, *projection = weights
        return self._next(F.linear(x, from_input, input_bias + recurrent_bias), state, recurrent, projection)

    def _next(self, from_input: Tensor, state: State, recurrent: Tensor, projection: list[Tensor]) -> State:
        """The state after one token, from what its input gives to the gates, [N, 4C], and the state before."""
        entry, forget, candidate, output = F.linear(state[0], recurrent).add(from_input).chunk(4, dim=1)
        cells = forget.sigmoid() * state[1] + entry.sigmoid() * candidate.tanh()
        if self.cell_clip is not None:
            cells = cells.clamp(-self.cell_clip, self.cell_clip)
        hidden = output.sigmoid() * cells.tanh()
        if projection:
            hidden = F.linear(hidden, projection[0])
            if self.projection_clip is not None:
                hidden = hidden.clamp(-self.projection_clip, self.projection_clip)
        return hidden, cells

    def _by_steps(
        self, x: Tensor, counts: npt.NDArray[np.int64], hidden: Tensor, cells: Tensor, weights: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `_by_torch`, one time step after another, with the clips."""
        from_input, recurrent, input_bias, recurrent_bias, *projection = weights
        of_inputs = F.linear(x, from_input, input_bias + recurrent_bias)  # [T, 4C]
        outputs, ended = [], []
        for now in torch.split(of_inputs, counts.tolist()):
            if len(now) < len(hidden):
                ended.append((hidden[len(now) :], cells[len(now) :]))
                hidden, cells = hidden[: len(now)], cells[: len(now)]
            hidden, cells = self._next(now, (hidden, cells), recurrent, projection)
            outputs.append(hidden)
        ended.append((hidden, cells))
        last_hidden, last_cells = zip(*reversed(ended), strict=True)
        return torch.cat(outputs), torch.cat(last_hidden), torch.cat(last_cells)


class BiLstm(nn.Module):
    """A layer of LSTM in each direction, with concatenated outputs."""

    def __init__(self, inputs: int, cells: int) -> None:
        super().__init__()
        self.right, self.left = LstmLayer(inputs, cells), LstmLayer(inputs, cells)

    def forward(self, x: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """The hidden states [T, 2C] of `x` [T, K]."""
        return self.read(x, lengths)[0]

    def read(self, x: Tensor, lengths: tuple[int, ...]) -> tuple[Tensor, State]:
        """The hidden states [T, 2C], and the states [N, 2C] after each direction has read the whole sequence."""
        right, right_end = self.right(x, lengths)
        left, left_end = self.left(x, lengths, backward=True)
        hidden, cells = (torch.cat(both, dim=1) for both in zip(right_end, left_end, strict=True))
        return torch.cat([right, left], dim=1), (hidden, cells)


def _by_torch(
    x: Tensor, counts: npt.NDArray[np.int64], hidden: Tensor, cells: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The hidden states [T, O] in reading order, and the last states, longest sequence first, by the LSTM of torch."""
    read, last_hidden, last_cells = torch.lstm(
        x,
        torch.from_numpy(counts),
        (hidden.unsqueeze(0), cells.unsqueeze(0)),
        weights,
        True,  # with biases
        1,
        0.0,
        torch.is_grad_enabled(),
        False,
    )
    return read, last_hidden[0], last_cells[0]
