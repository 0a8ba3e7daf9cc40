"""The head of GLiNER: it scores spans of words for labels that are in the row, too.

Letters: R positions that are read, W words and K labels of all rows, D width of the encoder, E width of the head, H
units of a word.

A BiLSTM reads the words of each row. Of a word, the layers give H units as the first word of a span, and H as the last
one; of a label, weights of the H units and a bias. The score of a span for a label is the product of its weights with
the rectified sum of the units of the first and the last word, plus its bias, so that no layer has to be computed for
each span. GLiNER's matrices are brought into this form in `checkpoints/gliner.py`.

Source: Zaratiana et al. (2024), "GLiNER: Generalist Model for Named Entity Recognition using Bidirectional
Transformer", section 2; `SpanMarkerV0`, `LstmSeq2SeqEncoder` and `create_projection_layer` of the package `gliner`.
"""

import torch
from torch import Tensor, nn

from bertsmith.models.heads.head_spec import SpanShape
from bertsmith.models.parts.layers import linear
from bertsmith.models.parts.lstm_layer import BiLstm


class TwoLayers(nn.Module):
    """A hidden layer and an output layer, with a rectifier between them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """The result of both layers, in the shape of `x`."""
        return linear(linear(x, self.hidden).relu(), self.output)


class SpanLayers(nn.Module):
    """From the hidden states of labels and words to what their spans are scored from, [R, 2H].

    Args:
        hidden_size: D.
    """

    def __init__(self, hidden_size: int, shape: SpanShape) -> None:
        super().__init__()
        width, self.units, self.label_id = shape.width, shape.units, shape.label_id
        if hidden_size != width:
            self.projection = nn.Linear(hidden_size, width)
        self.lstm = nn.ModuleList(BiLstm(width, width // 2) for _ in range(shape.lstm_layers))
        self.first, self.last = TwoLayers(width, shape.units), TwoLayers(width, shape.units)
        self.of_first = nn.Linear(width, shape.units, bias=False)
        self.of_last = nn.Linear(width, shape.units)
        self.label = TwoLayers(width, 4 * width)
        self.weights = nn.Linear(width, shape.units + 1, bias=False)

    def forward(self, hidden: Tensor, pieces: Tensor, counts: tuple[int, ...]) -> Tensor:
        """Of a word, its units as the first and as the last word; of a label, its weights, its bias, and zeros.

        Args:
            hidden: [R, D], of each row those of its labels and then those of its words, at least one.
            pieces: int64 [R], at these positions.
            counts: positions of each row.
        """
        x = hidden.to(self.of_last.weight.dtype)
        x = linear(x, self.projection) if hasattr(self, "projection") else x
        is_label = pieces == self.label_id
        words, labels = x[~is_label], x[is_label]  # [W, E], [K, E]
        lengths = tuple(int((~part).sum()) for part in torch.split(is_label.cpu(), list(counts)))
        for layer in self.lstm:
            words = layer(words, lengths)
        result = x.new_zeros(len(x), 2 * self.units)
        first, last = self.first(words).relu(), self.last(words).relu()
        result[~is_label] = torch.cat([linear(first, self.of_first), linear(last, self.of_last)], dim=1)
        result[is_label, : self.units + 1] = linear(self.label(labels), self.weights)
        return result
