"""The heads of GLiNER: they score spans of words, or single words, for labels that are in the row, too.

Letters: R positions that are read, W words and K labels of all rows, D width of the encoder, E width of the head, H
units of a word, M most labels of a row.

A BiLSTM reads the words of each row. In `SpanLayers`, the layers of a word give H units as the first word of a span,
and H as the last one; those of a label, weights of the H units and a bias. The score of a span for a label is the
product of its weights with the rectified sum of the units of the first and the last word, plus its bias, so that no
layer has to be computed for each span. `WordLayers` score each word. GLiNER's matrices are brought into these forms in
`checkpoints/gliner.py`.

Source: Zaratiana et al. (2024), "GLiNER: Generalist Model for Named Entity Recognition using Bidirectional
Transformer", section 2; `SpanMarkerV0`, `Scorer`, `LstmSeq2SeqEncoder` and `create_projection_layer` of the package
`gliner`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.heads.head_spec import SpanShape
from bertsmith.models.parts.layers import linear
from bertsmith.models.parts.lstm_layer import BiLstm

_PAIRS = 8192  # of words and labels that are scored at a time


class TwoLayers(nn.Module):
    """A hidden layer and an output layer, with a rectifier between them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """The result of both layers, in the shape of `x`."""
        return linear(linear(x, self.hidden).relu(), self.output)


class LabelledWords(nn.Module):
    """From the hidden states of labels and words to their vectors, of which a BiLSTM reads those of words.

    Args:
        hidden_size: D.
    """

    def __init__(self, hidden_size: int, shape: SpanShape) -> None:
        super().__init__()
        width, self.outputs, self.label_id = shape.width, shape.outputs, shape.label_id
        if hidden_size != width:
            self.projection = nn.Linear(hidden_size, width)
        self.lstm = nn.ModuleList(BiLstm(width, width // 2) for _ in range(shape.lstm_layers))

    def read(self, hidden: Tensor, pieces: Tensor, counts: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Which positions are of labels, bool [R], the vectors of words [W, E], and those of labels [K, E].

        Args:
            hidden: [R, D], of each row those of its labels and then those of its words, at least one.
            pieces: int64 [R], at these positions.
            counts: positions of each row.
        """
        x = hidden.to(next(self.parameters()).dtype)
        x = linear(x, self.projection) if hasattr(self, "projection") else x
        is_label = pieces == self.label_id
        words = x[~is_label]
        lengths = tuple(int((~part).sum()) for part in torch.split(is_label.cpu(), list(counts)))
        for layer in self.lstm:
            words = layer(words, lengths)
        return is_label, words, x[is_label]


class SpanLayers(LabelledWords):
    """From the hidden states of labels and words to what their spans are scored from, [R, 2H]."""

    def __init__(self, hidden_size: int, shape: SpanShape) -> None:
        super().__init__(hidden_size, shape)
        width, self.units = shape.width, shape.units
        self.first, self.last = TwoLayers(width, shape.units), TwoLayers(width, shape.units)
        self.of_first = nn.Linear(width, shape.units, bias=False)
        self.of_last = nn.Linear(width, shape.units)
        self.label = TwoLayers(width, 4 * width)
        self.weights = nn.Linear(width, shape.units + 1, bias=False)

    def forward(self, hidden: Tensor, pieces: Tensor, counts: tuple[int, ...]) -> Tensor:
        """Of a word, its units as the first and as the last word; of a label, its weights, its bias, and zeros.

        Args:
            hidden, pieces, counts: see `LabelledWords.read`.
        """
        is_label, words, labels = self.read(hidden, pieces, counts)
        result = words.new_zeros(len(hidden), self.outputs)
        first, last = self.first(words).relu(), self.last(words).relu()
        result[~is_label] = torch.cat([linear(first, self.of_first), linear(last, self.of_last)], dim=1)
        result[is_label, : self.units + 1] = linear(self.label(labels), self.weights)
        return result


class WordLayers(LabelledWords):
    """From the hidden states of labels and words to three scores of each word for each label of its row, [R, 3M].

    The scores say whether the word is the first, the last and any word of an entity. They are two layers on numbers of
    the word, numbers of the label, and the products of others of both; the first of the layers is divided into these
    three parts, and those of word and label alone are computed once for each of them.
    """

    def __init__(self, hidden_size: int, shape: SpanShape) -> None:
        super().__init__(hidden_size, shape)
        width, self.units = shape.width, shape.units
        self.of_word = nn.Linear(width, self.units + width)
        self.of_label = nn.Linear(width, self.units + width)
        self.of_both = nn.Linear(width, self.units, bias=False)
        self.scores = nn.Linear(self.units, 3)

    def forward(self, hidden: Tensor, pieces: Tensor, counts: tuple[int, ...]) -> Tensor:
        """Of a word the scores for the first label of its row, then those for the second one; of a label zeros.

        Args:
            hidden, pieces, counts: see `LabelledWords.read`.
        """
        is_label, words, labels = self.read(hidden, pieces, counts)
        words, labels = linear(words, self.of_word), linear(labels, self.of_label)
        result = words.new_zeros(len(hidden), self.outputs)
        in_rows = [
            (count, int(part.sum())) for count, part in zip(counts, torch.split(is_label, list(counts)), strict=True)
        ]
        of_words = torch.split(words, [count - num_labels for count, num_labels in in_rows])
        of_labels = torch.split(labels, [num_labels for _, num_labels in in_rows])
        scores = []
        for row_words, row_labels in zip(of_words, of_labels, strict=True):
            for part in torch.split(row_words, max(1, _PAIRS // len(row_labels))):
                both = part[:, None, self.units :] * row_labels[:, self.units :]  # [w, k, E]
                inner = part[:, None, : self.units] + row_labels[:, : self.units] + linear(both, self.of_both)
                flat = linear(inner.relu(), self.scores).flatten(1)  # [w, 3k]
                scores.append(F.pad(flat, (0, self.outputs - flat.shape[1])))
        result[~is_label] = torch.cat(scores)
        return result


def span_layers(hidden_size: int, shape: SpanShape) -> LabelledWords:
    """The layers of that shape."""
    return (WordLayers if shape.labels else SpanLayers)(hidden_size, shape)
