"""A model for the tests of vectors."""

from pathlib import Path

import pytest

from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from model.examples import shake
from tasks.task_samples import CONFIG, TOKENIZER


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model with random biases and norms."""
    path = tmp_path_factory.mktemp("vectors") / "model"
    model = untrained(CONFIG, seed=3)
    shake(model)
    save_pretrained(path, model, TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}))
    return path
