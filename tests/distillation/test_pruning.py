"""The importance of heads against gates that multiply their outputs, and a model without some of them."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.spec_of_model import require_spec
from distillation.distillation_samples import write_teacher
from tasks.task_samples import examples_of

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def pruning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("pruning")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_teacher(tmp_path_factory.mktemp("teacher"), "single")


def loss_with_gate(folder: Path, layer: int, head: int, gate: float, unit: int) -> float:
    """The loss of one example when the output of a head is multiplied by a number."""
    loaded = load_any(folder)
    task = task_for(require_spec(loaded))
    model = load_for_task(loaded, task.head, keep_head=True).model.double().eval()
    weight = model.get_parameter(f"bert.layers.{layer}.attention_output.weight")
    with torch.no_grad():
        weight[:, head * 8 : (head + 1) * 8] *= gate
        features = task.encode(examples_of("single", 4), loaded.require_tokenizer(), training=True)
        (batch,) = micro_batches(features, np.array([unit]), micro_tokens=10**6, device="cpu")
        return float(task.loss(model(batch.batch, read=batch.read), batch)[0])


def test_the_importance_is_the_slope_of_a_gate(teacher: Path, pruning: ModuleType) -> None:
    result = pruning.head_importance(load_any(teacher), examples_of("single", 4))
    slopes = np.zeros((2, 4))
    for layer in range(2):
        for head in range(4):
            for unit in range(4):
                ends = [loss_with_gate(teacher, layer, head, gate, unit) for gate in (1.01, 0.99)]
                slopes[layer, head] += abs(ends[0] - ends[1]) / 0.02
    np.testing.assert_allclose(result, slopes / np.linalg.norm(slopes, axis=1, keepdims=True), rtol=0.02, atol=1e-3)


def test_removed_heads_have_no_part_and_the_others_stay(teacher: Path, pruning: ModuleType) -> None:
    folder, importance = load_any(teacher), np.array([[0.1, 0.2, 0.3, 0.9], [0.5, 0.4, 0.05, 0.6]])
    assert pruning.heads_to_remove(importance, 0.25) == [(1, 2), (0, 0)]
    smaller = pruning.without_heads(folder, importance, 0.25)
    for layer, head in ((0, 0), (1, 2)):
        name = f"bert.layers.{layer}.attention_output.weight"
        columns = slice(8 * head, 8 * head + 8)
        assert smaller.tensors[name][:, columns].abs().max() == 0
        kept = torch.ones(32, dtype=torch.bool)
        kept[columns] = False
        assert torch.equal(smaller.tensors[name][:, kept], folder.tensors[name][:, kept])
        assert folder.tensors[name][:, columns].abs().max() > 0
    assert len(pruning.heads_to_remove(importance, 0.99)) == 6  # one of each layer stays
    with pytest.raises(ConfigError, match="share of heads must be at least 0 and below 1, not"):
        pruning.without_heads(folder, importance, 1.0)
