"""The dropout of an AWD-LSTM in one forward pass: masks that are sampled once and apply to any part of the rows.

Letters: T tokens, N sequences, D width of the word vectors.

Source: Merity, Keskar and Socher (2018), "Regularizing and Optimizing LSTM Language Models", section 4.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bertsmith.model.batch import Batch
from bertsmith.model.noise import Noise

if TYPE_CHECKING:
    from bertsmith.encoders.awd_lstm import AwdLstmConfig


class LstmDropout:
    """The five masks of one forward pass.

    Args:
        noise: without it nothing is dropped.
        dtype: of the activations.
    """

    def __init__(self, config: "AwdLstmConfig", batch: Batch, noise: Noise | None, dtype: torch.dtype) -> None:
        self._noise, self._dtype, self._rate = noise, dtype, config.weight_dropout_prob
        self._weights: dict[int, Tensor] = {}
        rows, inner = batch.num_rows, range(1, config.num_hidden_layers)
        self._types = self._mask(config.embedding_dropout_prob, rows, config.vocab_size)
        self._features = [self._mask(config.input_dropout_prob, rows, config.hidden_size)]
        self._features += [self._mask(config.hidden_dropout_prob, rows, config.intermediate_size) for _ in inner]
        self._output = self._mask(config.output_dropout_prob, rows, config.hidden_size)

    def _mask(self, rate: float, rows: int, width: int) -> Tensor | None:
        """0 where an element is dropped, and what makes up for it elsewhere: [rows, width]."""
        if self._noise is None or not rate:
            return None
        return self._noise.keep(rate, [width] * rows, self._dtype).view(rows, width) / (1 - rate)

    def words(self, x: Tensor, batch: Batch) -> Tensor:
        """Word vectors [T, D] without those of dropped types."""
        if self._types is None:
            return x
        return x * self._types[_rows_of(batch.lengths, range(batch.num_rows), x), batch.token_ids].unsqueeze(1)

    def features(self, layer: int, x: Tensor, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
        """The input of a layer, for sequences with these numbers in the batch."""
        return _dropped(x, self._features[layer], lengths, rows)

    def output(self, x: Tensor, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
        """The output of the last layer."""
        return _dropped(x, self._output, lengths, rows)

    def weight(self, layer: int, weight: Tensor) -> Tensor | None:
        """The matrix between hidden states of a layer, with the mask of the step; None without dropout."""
        if self._noise is None or not self._rate:
            return None
        if layer not in self._weights:
            kept = self._noise.keep_in_step(self._rate, f"weights of layer {layer}", weight.numel(), weight.dtype)
            self._weights[layer] = kept.view_as(weight) / (1 - self._rate)
        return weight * self._weights[layer]


def _dropped(x: Tensor, mask: Tensor | None, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
    return x if mask is None else x * mask[_rows_of(lengths, rows, x)]


def _rows_of(lengths: Sequence[int], rows: Sequence[int], x: Tensor) -> Tensor:
    """The number of the sequence of each token, int64 [T]."""
    return torch.from_numpy(np.repeat(np.asarray(rows), lengths)).to(x.device)
