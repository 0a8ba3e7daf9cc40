"""The benchmark of `make gpu` runs on the CPU with a small model, and both sides compute the same loss."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BACKEND = ["--backend", "aot_eager"]  # torch.compile, but without code for this machine, which takes minutes


@pytest.fixture
def benchmark_of_gpus(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("gpu_speed")
    torch._dynamo.reset()  # what was compiled is kept for all models of a process


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_every_line_runs_with_a_small_model(benchmark_of_gpus, monkeypatch):
    monkeypatch.setattr(benchmark_of_gpus, "WARM_UP", 0)
    monkeypatch.setattr(benchmark_of_gpus, "write_result", lambda *_: pytest.fail("a result of a CPU was written"))
    result = benchmark_of_gpus.main("--device cpu --precision fp32 --size tiny --rows 4 --rounds 1".split() + BACKEND)
    assert list(result) == ["base", "large", "embed"]
    losses = result["base"]["losses_without_dropout"]
    assert losses["ours"] == pytest.approx(losses["transformers"], abs=1e-3)
    assert result["base"]["tokens_per_second"].keys() == {"ours", "ours compiled", "transformers compiled"}
    assert result["large"]["tokens_per_second"].keys() == {"ours", "ours compiled"}
    assert (result["base"]["real_tokens"], result["base"]["tflop_per_step"] > 0) == (4 * 128, True)
    assert result["base"]["utilization"] == dict.fromkeys(result["base"]["seconds"])
    assert result["embed"]["real_tokens"] == benchmark_of_gpus.natural_lengths(4 * 64).sum()


def test_the_lengths_of_a_large_model_are_those_of_the_packed_corpus(benchmark_of_gpus):
    lengths = benchmark_of_gpus.packed_lengths(4000)
    assert lengths.mean() == pytest.approx(254, rel=0.02)
    assert np.mean(lengths == 512) == pytest.approx(0.235, abs=0.001)
    assert lengths.min() >= 5
