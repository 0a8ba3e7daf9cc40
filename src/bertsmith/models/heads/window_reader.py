"""Long texts read as a whole: a small Transformer or a BiLSTM over the vectors of their windows, or of their sentences.

The encoder reads each window of a text by itself and gives one vector of it. A layer over the windows of the text, in
their order, then lets them see each other. The mean of its states (of a BiLSTM the maximum) is the vector of the text;
of two texts, whose windows one Transformer reads together, [u, v, |u - v|, u * v]. One tanh layer of 512 units follows.
Everything is trained together, encoder included.

Letters: N rows (windows), R sentences, U units (a text or a pair each), D width of the encoder.

Source: Pappagari et al. (2019), "Hierarchical Transformers for Long Document Classification", section 3 (RoBERT and
ToBERT, there on frozen vectors of windows); Adhikari et al. (2019), "DocBERT", for the task.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.models.heads.row_vectors import compared
from bertsmith.models.parts.batch import Batch, WindowsOfTexts, rows_index
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.head_inputs import READER_UNITS
from bertsmith.models.parts.layers import ScaledLinear, linear, sinusoidal_positions
from bertsmith.models.parts.lstm_layer import BiLstm
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.transformer import Layer, Pass

TRANSFORMER, BILSTM = WINDOW_READERS = ("transformer", "bilstm")
_WIDTH_OF_HEAD = 64


class WindowReader(nn.Module):
    """From the vectors of windows to vectors of the texts or pairs that they belong to, [U, 512]."""

    def __init__(self, kind: str, width: int, dropout: float, *, is_pair: bool) -> None:
        super().__init__()
        self.is_pair = is_pair
        config = layer_config(width, dropout)
        self.width = width
        self.layer = Layer(config) if kind == TRANSFORMER else BiLstm(width, -(-width // 2))
        states = width if kind == TRANSFORMER else 2 * -(-width // 2)
        if is_pair:
            self.text = nn.Parameter(torch.empty(2, width))  # added to the windows of the first and the second text
        self.hidden = ScaledLinear((4 if is_pair else 1) * states, READER_UNITS)

    def forward(self, vectors: Tensor, windows: WindowsOfTexts, noise: Noise | None) -> Tensor:
        """The vectors [U, 512] of the units."""
        of_unit = vectors[list(windows.order)]
        lengths = windows.counts
        if self.is_pair:
            of_unit = of_unit + self.text[list(windows.texts)].to(of_unit.dtype)
        if isinstance(self.layer, Layer):
            # Positions restart with the second text.
            table = sinusoidal_positions(max(windows.places) + 1, self.width).to(of_unit)
            batch = _sequences(lengths, vectors.device)
            of_units = None if noise is None else _NoiseOfUnits(noise, windows)
            shared = Pass(batch=batch, noise=of_units, trace=None, dtype=of_unit.dtype)
            states = self.layer(of_unit + table[list(windows.places)], shared, None, "0")
        else:
            assert isinstance(self.layer, BiLstm)
            states = self.layer(of_unit, lengths)
        how = "mean" if isinstance(self.layer, Layer) else "max"
        parts = windows.counts_of_texts if self.is_pair else lengths
        texts = torch.segment_reduce(states, how, lengths=torch.tensor(parts, device=states.device))
        if self.is_pair:
            texts = compared(texts.view(len(lengths), 2, -1))
        return linear(texts, self.hidden).tanh()


class SentenceLayers(nn.Module):
    """From the vectors of sentences to vectors that depend on all sentences of their text, [R, D].

    A text may have its sentences in several windows. Sinusoidal positions say where in the text a sentence is.

    Source: Liu and Lapata (2019), "Text Summarization with Pretrained Encoders", section 3.2.
    """

    def __init__(self, layers: int, width: int, dropout: float) -> None:
        super().__init__()
        config = layer_config(width, dropout)
        self.width = width
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))

    def forward(self, vectors: Tensor, windows: WindowsOfTexts, counts: Sequence[int], noise: Noise | None) -> Tensor:
        """The vectors [R, D] of the sentences, in the order of the rows.

        Args:
            vectors: [R, D], row by row.
            counts: the sentences of each row, [N].
        """
        sizes = np.asarray(counts)
        rows = np.asarray(windows.order)
        order = rows_index(sizes, rows)  # [R], text by text
        of_texts = np.split(sizes[rows], np.cumsum(windows.counts)[:-1])
        lengths = tuple(int(part.sum()) for part in of_texts)
        places = np.concatenate([np.arange(length) for length in lengths])
        table = sinusoidal_positions(max(lengths), self.width).to(vectors)
        states = vectors[order.tolist()] + table[places.tolist()]
        of_units = None if noise is None else _NoiseOfUnits(noise, windows)
        shared = Pass(batch=_sequences(lengths, vectors.device), noise=of_units, trace=None, dtype=states.dtype)
        for number, layer in enumerate(self.layers):
            states = layer(states, shared, None, str(number))
        return states[np.argsort(order).tolist()]


def layer_config(width: int, dropout: float = 0.0) -> BertConfig:
    """The shape of a layer over vectors of this width."""
    heads = width // _WIDTH_OF_HEAD
    return BertConfig(
        vocab_size=1,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=heads if heads and width % heads == 0 else 1,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


class _NoiseOfUnits:
    """The noise of rows, for sequences of windows: a unit has the noise of its first window."""

    def __init__(self, noise: Noise, windows: WindowsOfTexts) -> None:
        self._noise, self._rows, self._firsts = noise, len(windows.order), windows.firsts

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Noise.keep`; the elements of a unit depend on that unit alone."""
        of_rows = [0] * self._rows
        for row, size in zip(self._firsts, sizes, strict=True):
            of_rows[row] = size
        parts = self._noise.keep(probability, of_rows, dtype).split_with_sizes(of_rows)
        return torch.cat([parts[row] for row in self._firsts])

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """See `Noise.keep_in_step`."""
        return self._noise.keep_in_step(probability, name, size, dtype)


def _sequences(lengths: tuple[int, ...], device: torch.device) -> Batch:
    """A batch of sequences of these lengths; only their lengths matter to a layer."""
    blank = torch.zeros(sum(lengths), dtype=torch.int64, device=device)
    return Batch(
        token_ids=blank, segment_ids=blank, positions=blank, lengths=lengths, row_ids=tuple(range(len(lengths)))
    )
