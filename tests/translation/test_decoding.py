"""The search: greedy against a loop, a wide beam against all translations, scores against one pass, any batch."""

import itertools

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import InputError
from bertsmith.models.checkpoints.architectures import new_encoder_decoder
from bertsmith.models.encoders.lstm_encoder_decoder import LstmConfig
from bertsmith.models.encoders.transformer_encoder_decoder import Transformer, TransformerConfig
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.models.parts.head_inputs import SCORES
from bertsmith.recipes.translation.decoding import search, translate, writing_of
from bertsmith.recipes.translation.pairs import rows_of
from bertsmith.recipes.translation.settings import SearchSettings
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "a", "b", "c"]))
CLS, SEP = TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id
TEXTS = ("a b", "c", "b b a", "a c b a")


SHAPE = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 2}
KINDS = ("transformer", "dot", "general", "concat")


def model(seed: int = 0, *, ends: float = 0.0, kind: str = "transformer") -> EncoderDecoder:
    """A model with random weights.

    Args:
        ends: how much more likely a Transformer ends.
        kind: "transformer", or the score of an LSTM.
    """
    config: EncoderConfig = (
        LstmConfig(**SHAPE, score=kind)
        if kind in SCORES
        else TransformerConfig(**SHAPE, num_attention_heads=2, intermediate_size=16, max_position_embeddings=16)
    )
    built = new_encoder_decoder(config).double()
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn) * 0.5)
        if isinstance(built, Transformer):
            built.embeddings.word.weight[SEP] += ends * built.decoder[-1].output_norm.bias
    return built.eval()


@torch.no_grad()
def shares(network: EncoderDecoder, row: np.ndarray, written: list[int]) -> torch.Tensor:
    """The log probabilities [pieces + 1, V] after [CLS] and each piece, in one pass."""
    source, target = (Batch.from_flat(np.array(ids), np.zeros(len(ids), int), [len(ids)]) for ids in (row, written))
    return network(source, target).log_softmax(1)


def logprob(network: EncoderDecoder, row: np.ndarray, ids: tuple[int, ...], *, ends: bool) -> float:
    result = shares(network, row, [CLS, *ids])
    gold = [*ids, SEP] if ends else list(ids)
    return float(sum(result[position, id] for position, id in enumerate(gold)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_one_is_greedy(seed, kind):
    network, settings = model(seed, kind=kind), SearchSettings(beam=1, longer=5)
    for row, result in zip(
        rows_of(TEXTS, TOKENIZER), search(network, TOKENIZER, rows_of(TEXTS, TOKENIZER), settings), strict=True
    ):
        ids: list[int] = []
        limit = min(len(row) + 5, 15)
        while len(ids) < limit:
            best = max((SEP, 5, 6, 7), key=lambda id: float(shares(network, row, [CLS, *ids])[-1, id]))
            if best == SEP:
                break
            ids.append(best)
        assert result.ids == tuple(ids)
        assert result.has_ended == (len(ids) < limit)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seed", "alpha"), [(0, 0.6), (1, 0.0), (2, 1.0), (3, 0.6)])
def test_a_wide_beam_finds_the_best_of_all_translations(seed, alpha, kind):
    network, settings = model(seed, ends=1.0, kind=kind), SearchSettings(beam=200, longer=1, length_penalty=alpha)
    for row in rows_of(TEXTS[:2], TOKENIZER):
        limit = len(row) + 1
        every = [ids for length in range(limit) for ids in itertools.product((5, 6, 7), repeat=length)]
        scored = {
            ids: logprob(network, row, ids, ends=True) / writing_of(TOKENIZER, settings).penalty(len(ids) + 1)
            for ids in every
        }
        best = max(scored, key=scored.__getitem__)
        (result,) = search(network, TOKENIZER, [row], settings)
        assert result.has_ended
        assert result.ids == best
        assert result.score == pytest.approx(scored[best], rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_log_probabilities_of_one_pass(kind):
    network, settings = model(2, kind=kind), SearchSettings(beam=3, longer=4)
    rows = rows_of(TEXTS, TOKENIZER)
    for row, result in zip(rows, search(network, TOKENIZER, rows, settings), strict=True):
        length = len(result.ids) + result.has_ended
        expected = logprob(network, row, result.ids, ends=result.has_ended) / writing_of(TOKENIZER, settings).penalty(
            length
        )
        assert result.score == pytest.approx(expected, rel=1e-12)
        assert not set(result.ids) & TOKENIZER.vocabulary.special_ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_translation_does_not_depend_on_the_other_texts(kind):
    network, settings = model(1, ends=0.5, kind=kind), SearchSettings(beam=3, longer=6)
    together = translate(network, TOKENIZER, ["", *TEXTS], settings)
    assert together[0].text == ""
    for text, translation in zip(TEXTS, together[1:], strict=True):
        (alone,) = translate(network, TOKENIZER, [text], settings)
        assert (alone.text, alone.has_ended) == (translation.text, translation.has_ended)
        assert alone.score == pytest.approx(translation.score, rel=1e-12)
    assert translate(network, TOKENIZER, [], settings) == []


def test_a_translation_that_does_not_end_is_as_long_as_allowed_and_says_so():
    network = model(0, ends=-50.0)
    (result,) = search(network, TOKENIZER, rows_of(["a b"], TOKENIZER), SearchSettings(beam=2, longer=2))
    assert (len(result.ids), result.has_ended) == (6, False)


def test_a_text_that_is_too_long_is_refused_by_its_place():
    with pytest.raises(InputError, match="at most 16 tokens in line 2; found 17"):
        translate(model(), TOKENIZER, ["a", "a " * 15], SearchSettings(), names=["line 1", "line 2"])
