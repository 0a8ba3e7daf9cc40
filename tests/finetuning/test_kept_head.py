"""Fine-tuning that starts from the head of a model: of every kind of task with a layer, and what is refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.opening import opening_lines
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec, with_loss
from bertsmith.tasks.task_data.split import TaskData
from checkpoints.gliner_folders import write_gliner
from tasks.architecture_samples import encoder_of
from tasks.task_samples import SPECS, TOKENIZER, examples_of

# All kinds whose models have a head, and heads with layers of their own.
KINDS = sorted(
    {spec.kind: name for name, spec in reversed(SPECS.items()) if not task_for(spec).head.is_vector}.values()
)
FORMS = ("several labels", "hierarchical", "on three vectors")


def write_model(path: Path, spec: TaskSpec) -> Path:
    """A model of a task whose weights were drawn."""
    head = task_for(spec).head
    model = EncoderForTask(encoder_of("bert"), head, seed=3)
    metadata = ModelMetadata(task=spec.kind, labels=spec.labels, spec=spec.to_dict())
    save_pretrained(path, model, TOKENIZER, metadata, trained=("pooler", head.part))
    return path


def kept(folder: Path, kind: str, spec: TaskSpec | None = None, **options: object) -> FinetuningJob:
    settings = FinetuningSettings(start="kept", device="cpu", **options)  # type: ignore[arg-type]
    data = TaskData(train=examples_of(kind, 4), dev=examples_of(kind, 2, seed=1))
    return FinetuningJob.prepare(str(folder), spec or SPECS[kind], data, settings, RecipeSettings())


@pytest.mark.parametrize("kind", [*KINDS, *FORMS])
def test_a_training_starts_with_the_head_of_the_model(kind: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", SPECS[kind])
    job = kept(folder, kind, reads="probe" if SPECS[kind].kind == "classification" else None)
    state, stored = job.started_model(seed=7).state_dict(), load_any(folder).tensors
    assert stored.keys() <= state.keys()
    assert state.keys() - stored.keys() <= {"bert.pooler.weight", "bert.pooler.bias"}
    for name, tensor in stored.items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)
    assert "the model's own head of" in opening_lines(job)[0]


def test_the_labels_of_the_model_stay_in_their_order(tmp_path: Path) -> None:
    spec = dataclasses.replace(SPECS["single"], labels=("unsure", "positive", "negative"))
    job = kept(write_model(tmp_path / "model", spec), "single", dataclasses.replace(SPECS["single"], reads="mean"))
    assert job.task.spec.labels == spec.labels
    assert job.task.spec.reads == "pooler", "as in the model"
    assert job.train.targets is not None
    assert set(job.train.targets.tolist()) == {1, 2}


@pytest.mark.parametrize(
    ("kind", "stored", "message"),
    [
        (
            "tags",
            SPECS["single"],
            r"a model with a head for ner \(tagging\), for --start kept; found one for sentiment",
        ),
        ("single", dataclasses.replace(SPECS["single"], labels=("good", "positive")), "labels that the model has"),
        ("hierarchical", dataclasses.replace(SPECS["single"], reads="mean"), "the settings of the head"),
    ],
)
def test_another_head_is_refused(kind: str, stored: TaskSpec, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        kept(write_model(tmp_path / "model", stored), kind)


@pytest.mark.parametrize("mode", ["markerV0", "token_level"])
def test_a_model_of_gliner_is_trained_further(mode: str, tmp_path: Path) -> None:
    folder = write_gliner(tmp_path / "model", mode=mode)
    job = kept(folder, "by name")
    assert job.task.spec.gliner is not None
    state, stored = job.started_model(seed=7).state_dict(), load_any(folder).tensors
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
    model, task = job.started_model(seed=7), with_loss(job.task)
    (batch,) = micro_batches(job.train, np.arange(len(job.train)), micro_tokens=10_000, device="cpu")
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=3e-3), []
    for _ in range(30):
        loss, _ = task.loss(model(batch.batch, read=batch.read), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if "reader." in name)
