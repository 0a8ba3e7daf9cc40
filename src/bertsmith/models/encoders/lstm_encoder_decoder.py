"""The recurrent encoder-decoder with attention: a bidirectional LSTM reads the source, an LSTM writes the target.

Letters: T target tokens, S source tokens, P tokens of the longest source text, N sequences, n those that still have a
token in a time step, D width, V vocabulary.

Each layer of the decoder starts with the last states of the same layer of the encoder, both directions side by side.
For each target token, the state of the decoder's last layer is the query, and the encoder's states are keys and values;
the attentional vector made from both scores the pieces, and is part of the decoder's input at the next token (input
feeding). So target tokens are computed one after another, in training too.

As in the Transformer here, one word table serves both sides and the output layer, and its vectors are multiplied by the
square root of the width. In the paper the encoder reads in one direction, and there are three tables.

The layout on disk is our own.

Source: Luong et al. (2015), "Effective Approaches to Attention-based Neural Machine Translation", sections 2, 3.1 and
3.3; Bahdanau et al. (2015), section 3.2, for the bidirectional encoder.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertsmith.base.core.settings import help_field
from bertsmith.models.encoders.without_attention import ConfigWithoutAttention
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.models.parts.head_inputs import require_score
from bertsmith.models.parts.layers import initialize
from bertsmith.models.parts.lstm_layer import BiLstm, LstmLayer, State, time_steps
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.scored_attention import AttentionalState, attend, new_score
from bertsmith.models.parts.source import SourceStates
from bertsmith.models.parts.transformer import Embeddings

_FED = "attentional vector"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LstmConfig(ConfigWithoutAttention):
    """The shape of a recurrent encoder-decoder; `big` has the layers and the width of the paper.

    >>> LstmConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1).num_parameters()
    440
    """

    model_type: ClassVar[str] = "lstm"
    display_name: ClassVar[str] = "LSTM with attention"
    can_pool: ClassVar[bool] = False
    norms_embeddings: ClassVar[bool] = False
    scales_embeddings: ClassVar[bool] = True
    is_recurrent: ClassVar[bool] = True
    piece_head: ClassVar[str] = "tied"
    omitted: ClassVar[frozenset[str]] = ConfigWithoutAttention.omitted | {
        "intermediate_size",
        "max_position_embeddings",
        "is_causal",
        "classifier_dropout",
    }
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        "tiny": (2, 128, 1, 128),
        "mini": (2, 256, 1, 256),
        "small": (2, 384, 1, 384),
        "base": (2, 512, 1, 512),
        "big": (4, 1000, 1, 1000),
    }

    hidden_size: int = help_field(512, "width of the word vectors and of the states, of the encoder's both directions")
    num_hidden_layers: int = help_field(2, "layers of the encoder, and of the decoder")
    hidden_dropout_prob: float = help_field(0.1, "dropout on the word vectors and on the output of every layer")
    position_embedding_type: str = help_field("none", "positions; there are none")
    score: str = help_field("general", "attention score: dot, general or concat")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_two_halves()
        require_score(self.score)

    def num_parameters(self, *, pooler: bool = False, heads: bool = False) -> int:
        """The number of parameters; the output layer is the word table."""
        width, half = self.hidden_size, self.hidden_size // 2
        encoder = 2 * 4 * half * (width + half + 2)
        decoder = 4 * width * (width + width + 2)
        feeding = 4 * width * width  # of the first layer of the decoder
        of_score = {"dot": 0, "general": width * width, "concat": 2 * width * width + width}[self.score]
        layers = self.num_hidden_layers * (encoder + decoder) + feeding
        return self.vocab_size * width + layers + of_score + 2 * width * width


class LstmEncoderDecoder(EncoderDecoder):
    """A bidirectional LSTM, an LSTM, and a score that compares the states of the two."""

    config: LstmConfig

    def __init__(self, config: LstmConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, Embeddings(config))
        width, layers = config.hidden_size, range(config.num_hidden_layers)
        self.encoder = nn.ModuleList(BiLstm(width, width // 2) for _ in layers)
        self.decoder = nn.ModuleList(LstmLayer(width if layer else 2 * width, width) for layer in layers)
        self.score = new_score(config.score, width, width)
        self.attentional = AttentionalState(width, width)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def encode(self, batch: Batch, *, noise: Noise | None = None, dtype: torch.dtype | None = None) -> SourceStates:
        """See `EncoderDecoder.encode`."""
        hidden = self.embeddings(batch, noise, dtype or self.embeddings.word.weight.dtype)
        starts: dict[str, Tensor] = {}
        for number, layer in enumerate(self.encoder):
            assert isinstance(layer, BiLstm)
            hidden, end = layer.read(hidden, batch.lengths)
            hidden = dropped(hidden, noise, self.config.hidden_dropout_prob, batch.lengths)
            starts |= _named(number, end)
        return SourceStates(hidden, batch.lengths, starts=starts)

    def decode(
        self,
        batch: Batch,
        source: SourceStates,
        *,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """See `EncoderDecoder.decode`."""
        attentional, _ = self._read(batch, source, noise, dtype, memory)
        return self.logits(attentional, attentional.dtype)

    @torch.no_grad()
    def alignments(self, source: Batch, target: Batch) -> list[Tensor]:
        """The attention weights of each pair, with a row for each target token and a column for each source token."""
        _, weights = self._read(target, self.encode(source), None, None, None)
        of_pairs = weights.split_with_sizes(target.lengths)
        return [of_pair[:, :length] for of_pair, length in zip(of_pairs, source.lengths, strict=True)]

    def _read(
        self,
        batch: Batch,
        source: SourceStates,
        noise: Noise | None,
        dtype: torch.dtype | None,
        memory: Memory | None,
    ) -> tuple[Tensor, Tensor]:
        """The attentional vectors [T, D] and the attention weights [T, P] of target tokens; see `decode`."""
        assert len(source.lengths) == batch.num_rows, "a source for each target"
        words = self.embeddings(batch, noise, dtype or self.embeddings.word.weight.dtype)
        rate, layers = self.config.hidden_dropout_prob, [cast(LstmLayer, layer) for layer in self.decoder]
        factors = [dropped(torch.ones_like(words), noise, rate, batch.lengths) for _ in layers]  # [T, D] each
        weights = [layer.weights(words.dtype) for layer in layers]
        steps = time_steps(batch.lengths)
        tokens, rows = (torch.from_numpy(index).to(words.device) for index in (steps.tokens, steps.rows))
        counts = steps.counts.tolist()

        values = _side_by_side(source.states, source.lengths)[rows]  # [N, P, D]
        keys = _side_by_side(source.projected("keys", self.score.prepare), source.lengths)[rows]
        lengths = torch.tensor(source.lengths, device=words.device)[rows]
        mask = torch.arange(values.shape[1], device=words.device) < lengths[:, None, None]  # [N, 1, P]

        # The sequences that are still read are the first ones, because the longest are in front.
        before = source.starts if memory is None or not memory.lengths else memory.tensors
        before = {name: tensor.to(words.dtype)[rows] for name, tensor in before.items()}
        fed = before.get(_FED, torch.zeros_like(values[:, 0]))
        states = [(before[f"hidden.{number}"], before[f"cells.{number}"]) for number in range(len(layers))]
        vectors, seen, ended = [], [], []
        of_steps = zip(*(flat[tokens].split_with_sizes(counts) for flat in (words, *factors)), strict=True)
        for now, *kept in of_steps:
            n = len(now)
            if n < len(fed):
                ended.append(_after([(hidden[n:], cells[n:]) for hidden, cells in states], fed[n:]))
                states, fed = [(hidden[:n], cells[:n]) for hidden, cells in states], fed[:n]
            x = torch.cat([now, fed], dim=1)  # [n, 2D]
            for number, layer in enumerate(layers):
                states[number] = layer.step(x, states[number], weights[number])
                x = states[number][0] * kept[number]
            context, looked = attend(x.unsqueeze(1), keys[:n], values[:n], self.score.compare, mask[:n])
            fed = self.attentional(context[:, 0], x)  # [n, D]
            vectors.append(fed)
            seen.append(looked[:, 0])
        ended.append(_after(states, fed))
        if memory is not None:
            back = torch.argsort(rows)
            after = {name: torch.cat([part[name] for part in reversed(ended)])[back] for name in ended[0]}
            memory.replace(after, batch.lengths)
        back = torch.argsort(tokens)
        return torch.cat(vectors)[back], torch.cat(seen)[back]


def _side_by_side(flat: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Flat vectors [S, D] as [N, P, D], with zeros behind the shorter texts."""
    return pad_sequence(list(flat.split_with_sizes(lengths)), batch_first=True)


def _named(number: int, state: State) -> dict[str, Tensor]:
    """The state of a layer, counted from 0, by the names of its parts."""
    return {f"hidden.{number}": state[0], f"cells.{number}": state[1]}


def _after(states: list[State], fed: Tensor) -> dict[str, Tensor]:
    """The memory of a decoder: the state of each layer, and the attentional vector that it is fed next."""
    named = {_FED: fed}
    for number, state in enumerate(states):
        named |= _named(number, state)
    return named
