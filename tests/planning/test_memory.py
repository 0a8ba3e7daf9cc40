"""The counted memory of a training is what is really allocated."""

import numpy as np
import pytest
import torch

from allocations import peak_of_allocations
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.architectures import new_encoder, require_architecture
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig, EncoderConfig
from bertsmith.models.parts.noise import noise_for
from bertsmith.training.loop.trainer import OPTIMIZERS
from bertsmith.training.planning.memory import bare_model, memory_of
from bertsmith.training.pretraining.losses import freeze_unused, negative_log_likelihood
from bertsmith.training.pretraining.objectives import OBJECTIVES

MOST_OFF = 0.05  # of the activations; operations allocate a little inside
MLM = OBJECTIVES["mlm"]
CPU = torch.device("cpu")


def shape(architecture: str = "bert", dropout: float = 0.0, **changes) -> EncoderConfig:
    config = require_architecture(architecture).config
    return config.named("tiny", vocab_size=500, **config.dropout_changes(dropout), **changes)


def profiled_peak(
    config: EncoderConfig, dtype: torch.dtype, rows: int, length: int, predictions: int, *, recomputes: bool = False
) -> int:
    """The bytes that PyTorch allocates for the second micro-batch of a step, at the peak, as its profiler reports."""
    model = EncoderForPreTraining(new_encoder(config))
    freeze_unused(model, MLM)
    if recomputes:
        model.encoder.recompute_layers()
    tokens = np.zeros(rows * length, dtype=np.int64)
    places = (np.arange(rows)[:, None] * length + np.arange(1, predictions + 1)).ravel()

    def micro_batch() -> None:
        batch = Batch.from_flat(tokens, tokens, np.full(rows, length))
        noise = noise_for(1, 0, range(rows), CPU)
        masked = torch.arange(len(places))
        logits = model(batch, read=Read.at(batch, places), masked=masked, noise=noise, dtype=dtype).mlm_logits
        negative_log_likelihood(logits, torch.zeros_like(masked), "mlm", {}).backward()

    return peak_of_allocations(micro_batch)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (shape(), torch.float32),
        (shape(dropout=0.1), torch.float32),
        (shape(), torch.bfloat16),
        (shape("distilbert"), torch.bfloat16),
        (shape("albert"), torch.float32),
    ],
    ids=["fp32", "dropout", "bf16", "distilbert", "albert"],
)
def test_the_counted_activations_are_those_that_are_allocated(config, dtype):
    rows, length, predictions = 6, 64, 9
    counted = memory_of(config, MLM, "adam", dtype=dtype, rows=rows, length=length, predictions=predictions)
    real = profiled_peak(config, dtype, rows, length, predictions)
    emulated = dtype == torch.bfloat16 and choose("cpu", "auto").precision != "bf16"  # then products need more room
    most = 2 * MOST_OFF if emulated else MOST_OFF
    assert abs(counted.activations / real - 1) < most, (counted.activations, real)


def test_layers_that_are_computed_again_are_counted_as_they_are_allocated():
    config, rows, length, predictions = shape(num_hidden_layers=6), 6, 64, 9
    settings = {"dtype": torch.float32, "rows": rows, "length": length, "predictions": predictions}
    kept, again = (memory_of(config, MLM, "adam", recomputes=recomputes, **settings) for recomputes in (False, True))
    real = profiled_peak(config, torch.float32, rows, length, predictions, recomputes=True)
    assert abs(again.activations / real - 1) < MOST_OFF, (again.activations, real)
    assert again.activations < 0.5 * kept.activations


@pytest.mark.parametrize("optimizer", ["adam", "lamb", "muon"])
def test_parameters_gradients_and_moments_are_counted_exactly(optimizer):
    model = EncoderForPreTraining(new_encoder(shape()))
    freeze_unused(model, MLM)
    real = OPTIMIZERS[optimizer](model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    counted = memory_of(shape(), MLM, optimizer, dtype=torch.float32, rows=1, length=8, predictions=1)
    assert counted.parameters == sum(parameter.nbytes for parameter in model.parameters())
    assert counted.gradients == sum(gradient.nbytes for gradient in real.gradients()) < counted.parameters
    assert counted.moments == sum(tensor.nbytes for tensor in real.state_tensors().values())
    assert counted.checkpoint == counted.parameters + counted.moments
    assert counted.total == counted.parameters + counted.gradients + counted.moments + counted.activations


def test_lanes_hold_activations_and_gradients_of_their_own():
    settings = {"dtype": torch.float32, "rows": 2, "length": 16, "predictions": 2}
    single, two = (memory_of(shape(), MLM, "adam", lanes=lanes, **settings) for lanes in (1, 2))
    assert two.activations == 2 * single.activations > 0
    assert two.gradients == 3 * single.gradients
    assert (two.parameters, two.moments) == (single.parameters, single.moments)


def test_a_model_that_fits_nowhere_is_counted_without_allocating_it():
    config = BertConfig(
        vocab_size=30522, hidden_size=16384, num_hidden_layers=200, num_attention_heads=128, intermediate_size=65536
    )
    model = bare_model(config)
    assert sum(parameter.nbytes for parameter in model.parameters()) > 2e12
    assert all(parameter.is_meta for parameter in model.parameters())


def test_what_is_not_counted_is_zero():
    config = require_architecture("awd-lstm").config(vocab_size=500)
    language_model = OBJECTIVES["language-model"]
    memory = memory_of(config, language_model, "adam", dtype=torch.float32, rows=1, length=8, predictions=1)
    assert (memory.activations, memory.parameters > 0) == (0, True)
