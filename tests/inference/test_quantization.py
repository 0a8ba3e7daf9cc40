"""The cost of int8, measured and recorded in the model."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertsmith import load
from bertsmith.app.library.labelled import quantize as measure
from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.base.storage.files import digest_file
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.quantization import LADDER, calibrate, note_kept_layers, quantize
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.checkpoints.int8_scales import SCALES
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata, require_metadata
from bertsmith.tasks.specs.kinds import task_for
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
    monkeypatch.setattr("bertsmith.inference.predictors.quantization._score", lambda predictor, examples: next(scores))
    exact, trials = quantize(load_any(folder), [], limit=0.004)
    assert exact == 0.9
    assert [trial.kept for trial in trials] == list(LADDER[:3])
    note_kept_layers(folder, "accuracy", exact, trials)
    model = load_predictor(folder, precision="int8").model
    kinds = [type(model.encoder.layers[0].get_submodule(name)).__name__ for name in ("output", "intermediate")]
    assert kinds[0] in ("CastLinear", "PackedLinear")
    assert kinds[1] == "Int8Linear"


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
    monkeypatch.setattr("bertsmith.inference.predictors.quantization._score", lambda predictor, examples: next(scores))
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
    exact, result = (load_predictor(folder, precision=precision).predict(examples) for precision in ("fp32", "int8"))
    assert [type(prediction) for prediction in result] == [type(prediction) for prediction in exact]
    assert len(result) == len(examples)


def fixed(folder: Path) -> Path:
    """The folder, quantized with fixed scales."""
    examples = examples_of("single", 40)
    calibration = calibrate(load_any(folder), examples)
    exact, trials = quantize(load_any(folder), examples, limit=1.0, calibration=calibration)
    assert [(trial.kept, trial.fixed) for trial in trials] == [((), True)]
    note_kept_layers(folder, "accuracy", exact, trials, calibration)
    return folder


def kinds_of(folder: Path, precision: str = "int8") -> set[str]:
    encoder = load_predictor(folder, precision=precision).model.encoder
    return {type(layer).__name__ for layer in encoder.layers.modules() if type(layer).__name__.endswith("Linear")}


def test_fixed_scales_are_recorded_and_used_from_then_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fixed(saved(tmp_path / "model"))
    assert kinds_of(folder) == {"FixedInt8Linear"}
    assert "FixedInt8Linear" not in kinds_of(folder, "fp32")
    assert "scales" not in capsys.readouterr().err
    note = json.loads((folder / "bertsmith.json").read_text())["int8"]
    assert (note["scales"]["rows"], note["trials"][-1]["fixed"]) == (40, True)
    predictor, examples = load_predictor(folder, precision="int8"), examples_of("single", 12)
    alone = [predictor.predict([example])[0] for example in examples]
    for ours, theirs in zip(predictor.predict(examples), alone, strict=True):
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, atol=0.02)
    assert load_embedder(folder, precision="int8").settings["int8"][1:] == [note["scales"]["digest"]]


def test_scales_are_tried_before_layers_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "model")
    calibration = calibrate(load_any(folder), examples_of("single", 32))
    scores = iter([0.9, 0.5, 0.6, 0.899])
    monkeypatch.setattr("bertsmith.inference.predictors.quantization._score", lambda predictor, examples: next(scores))
    exact, trials = quantize(load_any(folder), [], calibration=calibration)
    assert [(trial.kept, trial.fixed) for trial in trials] == [(LADDER[0], True), (LADDER[1], True), (LADDER[0], False)]
    note_kept_layers(folder, "accuracy", exact, trials, calibration)
    assert kinds_of(folder) == {"Int8Linear"}
    assert not (folder / SCALES).exists()


def test_too_few_examples_fix_no_scales(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    with pytest.raises(InputError, match="at least 32 examples to fix the scales of int8; found 31"):
        calibrate(load_any(folder), examples_of("single", 31))


def _change(folder: Path, **changes: object) -> None:
    path = folder / "bertsmith.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps(info | {"int8": info["int8"] | {"scales": info["int8"]["scales"] | changes}}))


def _rewrite(folder: Path, text: str) -> None:
    (folder / SCALES).write_text(text)
    _change(folder, digest=digest_file(folder / SCALES))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: _change(folder, vocabulary="sha256:0"), "calibrated for another vocabulary"),
        (lambda folder: _change(folder, weights="sha256:0"), "calibrated for other weights"),
        (lambda folder: (folder / SCALES).unlink(), "missing or were changed"),
        (lambda folder: (folder / SCALES).write_text("{}"), "missing or were changed"),
        (lambda folder: _rewrite(folder, "{}"), "do not fit the model"),
        (lambda folder: _rewrite(folder, "[1"), "do not fit the model"),
        (
            lambda folder: _rewrite(folder, '{"scales": {"0.query": {"low": NaN, "high": 1, "balance": []}}}'),
            "do not fit the model",
        ),
    ],
)
def test_scales_that_do_not_belong_to_the_model_are_not_used(
    damage: Callable[[Path], None], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fixed(saved(tmp_path / "model"))
    damage(folder)
    capsys.readouterr()
    assert kinds_of(folder) == {"Int8Linear"}
    warnings = [line for line in capsys.readouterr().err.splitlines() if "scales" in line]
    assert len(warnings) == 1
    assert told in warnings[0]
    assert "run `bertsmith quantize` again" in warnings[0]


def test_the_command_falls_back_to_one_scale_per_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = saved(tmp_path / "model"), tmp_path / "few.jsonl"
    labels = SPECS["single"].labels
    for count, is_fixed in ((8, False), (40, True)):
        lines = [{"text": f"the gate {number}", "label": labels[number % len(labels)]} for number in range(count)]
        data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        report = measure(folder, data, limit=1.0)
        assert report.to_dict()["fixed"] == is_fixed
        assert ("each token has its own scale" in capsys.readouterr().err) != is_fixed
        assert (folder / SCALES).exists() == is_fixed
    assert "accuracy in int8 with fixed scales" in report.lines()[1]
    assert report.lines()[-1] == f"recorded in {folder / 'bertsmith.json'}; use it with --precision int8"
