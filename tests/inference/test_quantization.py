"""The cost of int8, measured and recorded in the model."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import load
from bertsmith.checkpoints.architectures import new_encoder
from bertsmith.checkpoints.assembly import save_pretrained
from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.metadata import ModelMetadata
from bertsmith.errors import CheckpointError
from bertsmith.inference.loading import load_predictor
from bertsmith.inference.quantization import LADDER, note_kept_layers, quantize, require_metadata
from bertsmith.model.heads import EncoderForTask
from bertsmith.runtime import choose_inference
from bertsmith.tasks.kinds import task_for
from bertsmith.vectors.loading import load_embedder
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of

pytestmark = pytest.mark.skipif(
    choose_inference("cpu", "int8").precision != "int8", reason="this processor does not multiply int8"
)


def saved(path: Path, kind: str = "single") -> Path:
    spec = SPECS[kind]
    task = task_for(spec)
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=5)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    parts = (task.head.part, *(["pooler"] if task.head.pooled else []))
    save_pretrained(path, model, TOKENIZER, ModelMetadata.from_dict(info), trained=parts)
    return path


def test_int8_uses_the_recorded_layers_from_then_on(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    examples = examples_of("single", 30)
    exact, trials = quantize(load_any(folder), examples, limit=1.0)
    assert [trial.kept for trial in trials] == [LADDER[0]]
    assert exact == load_predictor(folder).evaluate(examples)[0]["accuracy"]
    note_kept_layers(folder, "accuracy", exact, trials)
    assert json.loads((folder / "bertsmith.json").read_text())["int8"]["kept"] == []
    assert len(load_predictor(folder, precision="int8").predict(examples)) == 30


def test_layers_are_kept_until_the_score_is_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "model")
    scores = iter([0.9, 0.5, 0.89, 0.899])
    monkeypatch.setattr("bertsmith.inference.quantization._score", lambda predictor, examples: next(scores))
    exact, trials = quantize(load_any(folder), [], limit=0.004)
    assert exact == 0.9
    assert [trial.kept for trial in trials] == list(LADDER[:3])
    note_kept_layers(folder, "accuracy", exact, trials)
    model = load_predictor(folder, precision="int8").model
    kinds = [type(model.encoder.layers[0].get_submodule(name)).__name__ for name in ("output", "intermediate")]
    assert kinds == ["CastLinear", "Int8Linear"]


def test_vectors_use_the_recorded_layers_too(tmp_path: Path) -> None:
    folder, texts = saved(tmp_path / "model"), ["the gate", "a map of the old house"]
    path = folder / "bertsmith.json"
    plain = load_embedder(folder, precision="int8").embed(texts)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"int8": {"kept": ["output", "intermediate"]}}))
    noted = load_embedder(folder, precision="int8")
    assert noted.settings["int8"] == [choose_inference("cpu", "int8").int8_bits, "output", "intermediate"]
    assert not np.array_equal(noted.embed(texts), plain)
    model = load(folder, precision="int8")
    np.testing.assert_allclose(noted.embed(texts), model.embed(texts), atol=1e-6)


def test_a_folder_without_metadata_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no bertsmith\.json"):
        require_metadata(tmp_path)


def test_it_is_an_error_if_no_trial_is_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.9, *([0.5] * len(LADDER))])
    monkeypatch.setattr("bertsmith.inference.quantization._score", lambda predictor, examples: next(scores))
    with pytest.raises(CheckpointError, match=r"0\.5000"):
        quantize(load_any(saved(tmp_path / "model")), [])


@pytest.mark.parametrize("note", ["all", {"kept": "output"}, {"kept": [3]}, {"kept": ["outpt"]}])
def test_an_invalid_record_is_refused(note: object, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    path = folder / "bertsmith.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"int8": note}))
    with pytest.raises(CheckpointError, match="linear layers"):
        load_predictor(folder, precision="int8")


@pytest.mark.parametrize(
    "kind", ["pair", "number", "choice", "on the mean", "on the pair", "on texts apart", "tags", "answer"]
)
def test_every_kind_of_task_predicts_nearly_the_same_in_int8_as_in_fp32(kind: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", kind)
    examples = examples_of(kind, 8)
    exact, found = (load_predictor(folder, precision=precision).predict(examples) for precision in ("fp32", "int8"))
    assert [type(prediction) for prediction in found] == [type(prediction) for prediction in exact]
    assert len(found) == len(examples)
