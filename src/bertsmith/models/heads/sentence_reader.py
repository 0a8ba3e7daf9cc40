"""A BiLSTM over hidden states: the sentence encoders of the GLUE baselines, and the one below a tagger.

Letters: S sequences, N rows, T tokens of all sequences, n hidden states of a token, D width of the encoder, C cells of
one direction.

A reader replaces what a head reads. Two layers of BiLSTM read a learned mix of the encoder's hidden states (all or some
of them) or the concatenation of some. For tags and answers they read all tokens of a row, and their states are the
result. For whole texts, the maximum over the tokens is the vector of a text. Of two texts, which the encoder reads one
by one, it takes [u, v, |u - v|, u * v]. With attention, every token of one text first looks at the tokens of the other;
a third layer of BiLSTM reads each state together with what it found there, in place of the maximum over the second. One
tanh layer of 512 units follows.

The published models are trained on a frozen encoder.

Source: Wang et al. (2018), "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding",
section 4.1, and the released code (nyu-mll/GLUE-baselines); Conneau et al. (2017), "Supervised Learning of Universal
Sentence Representations from Natural Language Inference Data" (InferSent), for the form without attention; Devlin et
al. (2019), section 5.3, for tags.
"""

from typing import cast

import torch
from torch import Tensor, nn

from bertsmith.models.heads.row_vectors import compared
from bertsmith.models.parts.head_inputs import READER_UNITS
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.models.parts.layer_mix import joined_states
from bertsmith.models.parts.layers import ScaledLinear, linear
from bertsmith.models.parts.lstm_layer import BiLstm
from bertsmith.models.parts.noise import Noise, dropped

DROPOUT = 0.2
Lengths = tuple[int, ...]


class TokenReader(nn.Module):
    """The states of two layers of BiLSTM over the hidden states of each token, [T, 2C].

    Args:
        normalized: each of them is first brought to mean 0 and variance 1.
    """

    def __init__(self, choice: LayerChoice, width: int, cells: int, *, normalized: bool = False) -> None:
        super().__init__()
        self.mix = joined_states(choice, normalized=normalized)
        self.first, self.second = BiLstm(choice.width(width), cells), BiLstm(2 * cells, cells)

    def forward(self, picked: Tensor, lengths: Lengths, noise: Noise | None) -> Tensor:
        """The states [T, 2C] of the tokens of rows with these lengths, from hidden states [T, n, D]."""
        states = self.first(dropped(self.mix(picked), noise, DROPOUT, lengths), lengths)
        states = self.second(dropped(states, noise, DROPOUT, lengths), lengths)
        return dropped(states, noise, DROPOUT, lengths)


class SentenceReader(nn.Module):
    """From the hidden states of one or two texts of each row to a vector of the row, [N, 512].

    Args:
        is_pair: whether a row has two texts.
        attends: whether the tokens of both texts attend to each other.
    """

    def __init__(
        self,
        choice: LayerChoice,
        width: int,
        cells: int,
        *,
        is_pair: bool,
        attends: bool,
        normalized: bool = False,
    ) -> None:
        super().__init__()
        assert is_pair or not attends, "attention needs two texts"
        self.is_pair, self.attends = is_pair, attends
        self.mix = joined_states(choice, normalized=normalized)
        self.first, self.second = BiLstm(choice.width(width), cells), BiLstm(2 * cells, cells)
        if attends:
            self.third = BiLstm(4 * cells, cells)
        self.hidden = ScaledLinear((8 if is_pair else 2) * cells, READER_UNITS)

    def forward(
        self, picked: Tensor, lengths: Lengths, places: tuple[int, ...], noise: Noise | None, of_rows: Noise | None
    ) -> Tensor:
        """The vectors [N, 512] of the rows.

        Args:
            picked: hidden states [T, n, D] of the texts.
            places: for each row, the place of its text among the sequences; of two texts, of the first and the second.
        """
        states = self.first(dropped(self.mix(picked), noise, DROPOUT, lengths), lengths)
        states = self.second(states, lengths)  # [T, 2C]
        if self.attends:
            states = torch.cat([states, attended(states, lengths, places)], dim=1)  # [T, 4C]
            states = self.third(dropped(states, noise, DROPOUT, lengths), lengths)
        texts = torch.segment_reduce(states, "max", lengths=torch.tensor(lengths, device=states.device))
        texts = texts[list(places)]
        if self.is_pair:
            texts = compared(texts.view(-1, 2, texts.shape[1]))  # [N, 8C]
        ones = (1,) * len(texts)
        vectors = linear(dropped(texts, of_rows, DROPOUT, ones), self.hidden).tanh()
        return dropped(vectors, of_rows, DROPOUT, ones)


def attended(states: Tensor, lengths: Lengths, places: tuple[int, ...]) -> Tensor:
    """For each token the mean of the states of the other text of its row, weighted by a softmax of products, [T, 2C].

    >>> first, second = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 4.0]])
    >>> attended(torch.cat([first, second]), (1, 2), (0, 1))
    tensor([[0., 3.],
            [1., 0.],
            [1., 0.]])
    """
    parts = torch.split(states, list(lengths))
    means: list[Tensor | None] = [None] * len(parts)
    for first, second in zip(places[::2], places[1::2], strict=True):
        products = parts[first] @ parts[second].T  # [tokens of one, tokens of the other]
        means[first] = products.softmax(dim=1) @ parts[second]
        means[second] = products.T.softmax(dim=1) @ parts[first]
    return torch.cat(cast("list[Tensor]", means))
