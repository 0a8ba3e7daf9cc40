"""Every encoder-decoder: what each position sees, and dropout that is a function of the pair."""

from typing import Any

import pytest
import torch

from bertsmith.models.encoders.lstm_encoder_decoder import LstmConfig, LstmEncoderDecoder
from bertsmith.models.encoders.transformer_encoder_decoder import Transformer, TransformerConfig
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.models.parts.noise import RowNoise

SOURCES = ([2, 5, 6, 7, 3], [2, 8, 3], [2, 9, 10, 11, 3])
TARGETS = ([2, 12, 13], [2, 14, 15, 16, 17, 18], [2])


def lstm(**changes: object) -> LstmEncoderDecoder:
    shape = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2}
    return moved(LstmEncoderDecoder(LstmConfig(**{**shape, **changes})), 0.3)


def transformer(**changes: object) -> Transformer:
    shape = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    return moved(Transformer(TransformerConfig(**{**shape, "intermediate_size": 32, **changes})), 0.2)


def moved(model: EncoderDecoder, deviation: float) -> Any:
    """A model in fp64 whose parameters are not those of its initialization."""
    model, drawn = model.double().eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn) * deviation)
    return model


def batch(*rows: list[int]) -> Batch:
    return Batch.from_rows(rows)


@pytest.mark.parametrize("model", [lstm, transformer])
def test_a_target_token_changes_no_earlier_output_and_a_source_token_changes_all(model):
    network = model()
    with torch.no_grad():
        before = network(batch([2, 5, 6, 3]), batch([2, 12, 13, 14]))
        later = network(batch([2, 5, 6, 3]), batch([2, 12, 15, 14]))
        other = network(batch([2, 5, 7, 3]), batch([2, 12, 13, 14]))
    assert ((before - later).abs() > 1e-9).any(1).tolist() == [False, False, True, True]
    assert ((before - other).abs() > 1e-9).any(1).all()


@pytest.mark.parametrize(
    ("model", "rates"),
    [
        (lstm, {"hidden_dropout_prob": 0.3}),
        (transformer, {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}),
    ],
)
def test_dropout_is_a_function_of_the_pair(model, rates):
    network = model(**rates)
    with torch.no_grad():
        together = network(batch(*SOURCES), batch(*TARGETS), noise=RowNoise(1, 2, [0, 1, 2]))
        parts = together.split([len(row) for row in TARGETS])
        for number, part in enumerate(parts):
            alone = network(batch(SOURCES[number]), batch(TARGETS[number]), noise=RowNoise(1, 2, [number]))
            torch.testing.assert_close(alone, part)
        assert (together - network(batch(*SOURCES), batch(*TARGETS))).abs().max() > 1e-3
