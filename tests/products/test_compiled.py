"""Compiled layers compute what the others do, with a few graphs for all lengths."""

import shutil

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import new_encoder, require_architecture
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.noise import RowNoise
from bertsmith.models.products import compiled
from bertsmith.models.products.compiled import compile_layers

SHAPES = ([8, 8, 9], [5, 6, 30], [20, 20, 20], [7, 7], [31, 2, 2, 2], [64], [3, 3, 3, 3, 3, 3])
# The compiler of torch imports deprecated parts of torch, and looks at gradients that are not there.
pytestmark = pytest.mark.filterwarnings("ignore")
MOST_GRAPHS = 6  # three regions, for a last layer that computes all positions or only some


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model_of(layers: int = 5) -> EncoderForPreTraining:
    config = require_architecture("bert").config
    shape = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 64}
    return EncoderForPreTraining(new_encoder(config(vocab_size=90, **shape)))


def results(model: EncoderForPreTraining, lengths: list[int], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The logits of a batch with dropout and the gradients of all parameters."""
    ids = np.arange(sum(lengths)) % 80 + 5
    batch = Batch.from_flat(ids, 0 * ids, lengths)
    ends = np.cumsum(lengths) - 1
    read = Read.at(batch, np.sort(np.concatenate([ends, ends - 1])))
    noise = RowNoise(1, 2, range(len(lengths)))
    logits = model(batch, read=read, masked=torch.arange(len(read.positions)), noise=noise, dtype=dtype).mlm_logits
    model.zero_grad(set_to_none=True)
    logits.float().square().mean().backward()
    gradients = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return {"logits": logits.detach(), **gradients}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batches_of_all_lengths_share_a_few_graphs_and_change_no_number(dtype):
    model = model_of()
    expected = [results(model, lengths, dtype) for lengths in SHAPES]
    counter = CompileCounterWithBackend("aot_eager")
    compile_layers(model.encoder, "cpu", backend=counter)
    first = results(model, SHAPES[0], dtype)
    graphs = counter.frame_count
    assert 0 < graphs <= MOST_GRAPHS
    for lengths, exact in zip(SHAPES, expected, strict=True):
        actual = results(model, lengths, dtype)
        assert actual.keys() == exact.keys() == first.keys()
        for name, tensor in actual.items():
            torch.testing.assert_close(tensor, exact[name], atol=1e-6, rtol=1e-5)
    assert counter.frame_count == graphs, "another batch needed another graph"


def test_compiled_layers_keep_the_names_of_their_parameters():
    model = model_of(2)
    names = list(model.state_dict())
    compile_layers(model.encoder, "cpu", backend="aot_eager")
    assert list(model.state_dict()) == names


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
def test_generated_code_computes_the_same_within_rounding():
    model = model_of(2)
    expected = [results(model, lengths, torch.float32) for lengths in SHAPES]
    compile_layers(model.encoder, "cpu")
    for lengths, exact in zip(SHAPES, expected, strict=True):
        for name, tensor in results(model, lengths, torch.float32).items():
            torch.testing.assert_close(tensor, exact[name], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("architecture", ["modernbert", "awd-lstm"])
def test_other_layers_are_refused(architecture):
    encoder = new_encoder(require_architecture(architecture).config(vocab_size=90, hidden_size=24, num_hidden_layers=1))
    with pytest.raises(ConfigError, match="expected an encoder with the layers of BERT"):
        compile_layers(encoder, "cpu", backend="aot_eager")


def test_a_missing_compiler_is_one_line(monkeypatch):
    encoder = model_of(1).encoder
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"expected a C\+\+ compiler, to compile for the CPU; found none"):
        compile_layers(encoder, "cpu")
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="expected the package triton"):
        compile_layers(encoder, "cuda:0")
