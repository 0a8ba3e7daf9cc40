"""The bag of n-grams as a student: soft targets, files, what it refuses."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith.app.library.distillation import distill
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.baselines.linear import fit_linear
from bertsmith.tasks.baselines.n_grams import NGramModel
from distillation.distillation_samples import write_examples, write_teacher
from tasks.task_samples import examples_of


def test_a_linear_model_fits_distributions() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((400, 4)).astype(np.float32)
    for outputs in (2, 3):
        logits = vectors @ draw.standard_normal((4, outputs))
        wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        model = fit_linear(vectors, wanted, num_outputs=outputs, penalties=(1e-3,), exclusive=True)
        result = model.outputs(vectors)
        chances = np.exp(result) / np.exp(result).sum(axis=1, keepdims=True)
        assert np.abs(chances - wanted).max() < 0.02


@pytest.mark.parametrize("kind", ["single", "pair", "several labels", "number"])
def test_n_grams_learn_every_task_on_texts(kind: str, tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path, kind, epochs=4)
    train, dev = (write_examples(tmp_path / str(seed), kind, 24, seed) for seed in (3, 4))
    report = distill(teacher, tmp_path / "run", train=train, dev=dev, student="n-grams", precision="fp32")
    rows = {row["name"]: row for row in report.rows}
    assert list(rows) == ["teacher", "student", "student without teacher"]
    assert rows["student"]["cost"]["milliseconds"]["int8"] is None
    assert rows["student"]["cost"]["milliseconds"]["fp32"]["one"] > 0
    student = NGramModel.read(tmp_path / "run")
    with pytest.raises(InputError, match="use it with predict, evaluate, serve, ask or rank"):
        load_any(tmp_path / "run")
    examples = examples_of(kind, 24, 4)
    assert student.predict(examples) == NGramModel.read(tmp_path / "run").predict(examples)
    assert load_predictor(tmp_path / "run").predict(examples) == student.predict(examples)
    assert len(report.table()[1]) == 3


def test_what_a_bag_cannot_be_is_refused(tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path, "tags")
    train = write_examples(tmp_path / "train", "tags", 8, 3)
    with pytest.raises(ConfigError, match="a student of n-grams needs"):
        distill(teacher, tmp_path / "run", train=train, student="n-grams")
    with pytest.raises(ConfigError, match="found epochs"):
        distill(teacher, tmp_path / "other", train=train, student="n-grams", epochs=2)
    with pytest.raises(InputError):
        NGramModel.read(tmp_path)
