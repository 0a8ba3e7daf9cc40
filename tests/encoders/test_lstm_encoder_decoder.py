"""The recurrent encoder-decoder: against torch's LSTM and a loop, what each position sees, reading on with a memory."""

import pytest
import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import ENCODER_DECODERS, new_encoder_decoder
from bertsmith.models.checkpoints.own_folder import own_config
from bertsmith.models.encoders.lstm_encoder_decoder import LstmConfig, LstmEncoderDecoder
from bertsmith.models.parts.head_inputs import SCORES
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.scored_attention import ConcatScore, GeneralScore
from encoders.test_encoder_decoders import SOURCES, TARGETS, batch, lstm


def score_of(network: LstmEncoderDecoder, h: Tensor, s: Tensor) -> Tensor:
    score = network.score
    if isinstance(score, GeneralScore):
        return h @ score.weight @ s
    if isinstance(score, ConcatScore):
        return score.weight @ torch.tanh(score.query_weight @ h + score.key_weight @ s)
    return h @ s


@torch.no_grad()
def by_hand(network: LstmEncoderDecoder, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    """The logits and the attention weights of one pair, by torch's LSTM and its cell, one target token at a time."""
    width, table = network.config.hidden_size, network.embeddings.word.weight
    hidden, states = table[source] * width**0.5, []
    for layer in network.encoder:
        theirs = nn.LSTM(width, width // 2, bidirectional=True, dtype=torch.float64)
        named = dict(layer.right.state_dict()) | {f"{k}_reverse": v for k, v in layer.left.state_dict().items()}
        theirs.load_state_dict(named)
        hidden, (last, cells) = theirs(hidden)
        states.append((last.flatten(), cells.flatten()))
    cells_of_layers = []
    for layer in network.decoder:
        cell = nn.LSTMCell(layer.inputs, width, dtype=torch.float64)
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
        cells_of_layers.append(cell)
    fed, logits, weights = torch.zeros(width).double(), [], []
    for id in target:
        x = torch.cat([table[id] * width**0.5, fed])
        for number, cell in enumerate(cells_of_layers):
            states[number] = cell(x, states[number])
            x = states[number][0]
        shares = torch.stack([score_of(network, x, s) for s in hidden]).softmax(0)
        context = sum(share * s for share, s in zip(shares, hidden, strict=True))
        fed = torch.tanh(network.attentional.weight @ torch.cat([context, x]))
        logits.append(table @ fed)
        weights.append(shares)
    return torch.stack(logits), torch.stack(weights)


@pytest.mark.parametrize("score", SCORES)
def test_logits_and_weights_equal_those_of_a_loop_pair_by_pair(score):
    network = lstm(score=score)
    with torch.no_grad():
        result = network(batch(*SOURCES), batch(*TARGETS)).split([len(row) for row in TARGETS])
    alignments = network.alignments(batch(*SOURCES), batch(*TARGETS))
    for logits, weights, source, target in zip(result, alignments, SOURCES, TARGETS, strict=True):
        expected, shares = by_hand(network, source, target)
        torch.testing.assert_close(logits, expected, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(weights, shares, atol=1e-10, rtol=1e-10)


def test_the_attentional_vector_reaches_the_next_token():
    """Without it in the input, the columns for it would not matter after the first token."""
    network = lstm()
    with torch.no_grad():
        before = network(batch([2, 5, 3]), batch([2, 12, 13]))
        network.decoder[0].weight_ih_l0[:, network.config.hidden_size :] = 0
        without = network(batch([2, 5, 3]), batch([2, 12, 13]))
    assert ((before - without).abs() > 1e-6).any(1).tolist() == [False, True, True]


@pytest.mark.parametrize("score", SCORES)
def test_every_parameter_receives_a_gradient(score):
    network = lstm(score=score)
    network(batch(*SOURCES), batch(*TARGETS)).square().sum().backward()
    assert [name for name, parameter in network.named_parameters() if not parameter.grad.abs().sum() > 0] == []


def test_targets_read_in_parts_with_a_memory_have_the_logits_of_one_pass():
    network, memory = lstm(), Memory()
    targets = ([2, 12, 13, 14, 15], [2, 15, 16, 17], [2, 18, 19])
    with torch.no_grad():
        whole = network(batch(*SOURCES), batch(*targets)).split([5, 4, 3])
        source = network.encode(batch(*SOURCES))
        read = [0, 0, 0]
        for lengths in ((1, 1, 1), (1, 2, 1), (3, 1, 1)):  # in other orders by length
            ends = [start + length for start, length in zip(read, lengths, strict=True)]
            parts = [row[start:end] for row, start, end in zip(targets, read, ends, strict=True)]
            now = network.decode(batch(*parts), source, memory=memory).split(lengths)
            for logits, expected, start, end in zip(now, whole, read, ends, strict=True):
                torch.testing.assert_close(logits, expected[start:end])
            read = ends
    assert memory.lengths == (5, 4, 3)
    assert set(source.kept) == {"keys"}


def test_texts_taken_from_the_source_continue_with_their_own_states():
    network, memory = lstm(), Memory()
    with torch.no_grad():
        source = network.encode(batch(*SOURCES[:2]))
        first = network.decode(batch([2], [2]), source, memory=memory)
        swapped, taken = source.of_rows([1, 0, 1]), memory.of_rows([1, 0, 1])
        again = network.decode(batch([12], [13], [14]), swapped, memory=taken)
        start = network.decode(batch([2], [2], [2]), swapped, memory=Memory())
        alone = network(batch(SOURCES[1]), batch([2, 14]))
    assert swapped.lengths == (3, 5, 3)
    torch.testing.assert_close(start, first[[1, 0, 1]])
    torch.testing.assert_close(again[2], alone[1])


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("layers", [1, 3])
def test_parameters_are_counted_as_they_are_built(score, layers):
    network = lstm(score=score, num_hidden_layers=layers)
    assert sum(parameter.numel() for parameter in network.parameters()) == network.config.num_parameters()


def test_a_configuration_is_read_as_written_and_wrong_ones_are_refused():
    config = LstmConfig.named("mini", vocab_size=30, score="concat", hidden_dropout_prob=0.2)
    values = {"model_type": config.model_type, **config.to_dict()}
    of_model = "folder", "a translation model", ENCODER_DECODERS, "train-translation"
    again = own_config(values, *of_model)
    assert isinstance(again, LstmConfig)
    assert again.to_dict() == config.to_dict()
    assert (again.score, again.hidden_size, again.num_parameters()) == ("concat", 256, config.num_parameters())
    assert isinstance(new_encoder_decoder(config), LstmEncoderDecoder)
    with pytest.raises(ConfigError, match="unknown score"):
        own_config({**values, "score": "cosine"}, *of_model)
    with pytest.raises(ConfigError, match="an even hidden_size"):
        LstmConfig(hidden_size=7)
    with pytest.raises(ConfigError, match=r"a translation model in 'folder'; found model_type 'bert'"):
        own_config({"model_type": "bert"}, *of_model)
