"""Vectors of pieces from their characters, against an oracle with a loop for everything."""

import numpy as np
import pytest
import torch

from bertsmith.models.encoders.character_cnn import MOST_CHARACTERS, CharacterCnn, characters_of
from bertsmith.models.parts.layers import initialize
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from oracles.elmo_oracle import piece_vector, spelled

WORDS = ["a", "ing", "##ing", "hang", "naïve", "##日本", "x" * 60, "##" + "y" * 60, "z" * 43]
VOCABULARY = Vocabulary([*SPECIAL_PIECES, *WORDS])


def encoder(filters: int = 64, seed: int = 0) -> CharacterCnn:
    cnn = CharacterCnn(filters, 6)
    initialize(cnn, 0.1, seed)
    with torch.no_grad():  # biases too
        for parameter in cnn.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    cnn.read_vocabulary(VOCABULARY)
    return cnn.double()


def count_encoded(cnn: CharacterCnn) -> list[int]:
    """Fills up with the number of pieces of each call of the convolutions."""
    counts: list[int] = []
    cnn.get_submodule("convolution1").register_forward_hook(lambda _, inputs, __: counts.append(len(inputs[0])))
    return counts


def test_every_piece_is_spelled_as_the_released_code_spells_words():
    assert characters_of(VOCABULARY).tolist() == [spelled(piece) for piece in VOCABULARY.pieces]


@pytest.mark.parametrize("together", [True, False])
def test_vectors_equal_those_of_the_oracle(together):
    """Alone, a short piece is computed on fewer places than next to a long one."""
    cnn = encoder()
    weights = {name: parameter.detach().numpy() for name, parameter in cnn.named_parameters()}
    expected = np.stack([piece_vector(piece, weights) for piece in VOCABULARY.pieces])
    ids = torch.arange(len(VOCABULARY))
    result = cnn(ids, torch.float64) if together else torch.cat([cnn(row[None], torch.float64) for row in ids])
    np.testing.assert_allclose(result.detach().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(cnn.table().numpy(), expected, atol=1e-12)


def test_a_piece_that_begins_a_word_differs_from_one_that_continues_it():
    table = encoder().table()
    first, other = (VOCABULARY.index[piece] for piece in ("ing", "##ing"))
    assert (table[first] - table[other]).abs().max() > 1e-3


def test_a_batch_computes_each_distinct_piece_once():
    cnn = encoder()
    counts = count_encoded(cnn)
    ids = torch.tensor([7, 5, 7, 7, 6, 5])
    result = cnn(ids, torch.float64)
    assert counts == [3]
    torch.testing.assert_close(result[0], result[3])


def test_repeated_pieces_receive_the_sum_of_their_gradients():
    first, other = encoder(), encoder()
    ids = torch.tensor([7, 5, 7, 7])
    scale = torch.randn(4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (first(ids, torch.float64) * scale).sum().backward()
    sum(
        (other(ids[position : position + 1], torch.float64) * scale[position]).sum() for position in range(4)
    ).backward()
    for (name, parameter), twin in zip(first.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, twin.grad, msg=name)


def test_inference_computes_a_piece_once_until_a_parameter_changes():
    cnn = encoder().eval()
    counts = count_encoded(cnn)
    with torch.inference_mode():
        before = cnn(torch.tensor([5, 6, 5]), torch.float64)
        assert torch.equal(cnn(torch.tensor([6, 5]), torch.float64), before[[1, 0]])
        cnn(torch.tensor([5, 9]), torch.float64)
    assert counts == [2, 1]
    cnn.table()
    assert counts == [2, 1, len(VOCABULARY) - 3]
    with torch.no_grad():
        cnn.projection.bias.add_(1.0)
        torch.testing.assert_close(cnn(torch.tensor([5, 6, 5]), torch.float64), before + 1)
    assert counts[3:] == [2]


def test_vectors_kept_in_inference_may_be_read_by_a_layer_that_learns():
    cnn = encoder().eval().requires_grad_(False)
    layer = torch.nn.Linear(6, 2).double()
    with torch.inference_mode():
        cnn(torch.tensor([5, 6]), torch.float64)
    layer(cnn(torch.tensor([5, 6]), torch.float64)).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_a_new_highway_carries_most_of_its_input():
    cnn = CharacterCnn(64, 6)
    initialize(cnn, 0.1, 0)
    assert cnn.get_parameter("highway1.gate.bias").unique().tolist() == [-2.0]
    assert cnn.get_parameter("highway1.transform.bias").unique().tolist() == [0.0]


def test_no_piece_has_more_than_fifty_characters():
    table = characters_of(VOCABULARY)
    assert table.shape == (len(VOCABULARY), MOST_CHARACTERS)
    assert (table[VOCABULARY.index["x" * 60]] != 260).all()
