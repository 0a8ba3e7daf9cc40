"""The cost of int8 for models of vectors, measured on texts and on scored pairs, and recorded in their folder."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import load, quantize
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.base.storage.files import digest_file
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.int8_scales import SCALES
from bertsmith.models.model_files.metadata import METADATA
from bertsmith.models.products.int8_linear import FixedInt8Linear, Int8Linear
from bertsmith.tasks.metrics.vectors import cosines
from tasks.task_samples import write_base_model
from written_files import file_with

pytestmark = pytest.mark.skipif(
    choose_inference("cpu", "int8").precision != "int8", reason="this processor does not multiply int8"
)
WORDS = ("gate", "map", "old", "house", "river", "stone")
TEXTS = [f"the {first} of the {second} {number}" for number, first in enumerate(WORDS) for second in WORDS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sentence-transformers folder of another tool: it has no metadata of ours."""
    folder = tmp_path / "encoder"
    write_base_model(folder)
    (folder / METADATA).unlink()
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    modules.append({"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return file_with(tmp_path / "texts.txt", "\n".join(TEXTS) + "\n")


def write_pairs(path: Path, count: int = len(TEXTS)) -> Path:
    pairs = zip(TEXTS[:count], [*TEXTS[1:count], TEXTS[0]], strict=True)
    rows = [{"text1": pair, "text2": other, "score": number % 5} for number, (pair, other) in enumerate(pairs)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_texts_without_labels_fix_the_scales_of_a_sentence_encoder(folder: Path, texts: Path) -> None:
    exact = load_embedder(folder).embed(TEXTS)
    report = quantize(folder, texts, limit=1.0)
    values = report.to_dict()
    assert (values["metric"], values["fp32"], values["fixed"], values["kept"]) == ("cosine", 1.0, True, [])
    int8 = load_embedder(folder, precision="int8")
    assert isinstance(int8.encoder.model.layers[0].output, FixedInt8Linear)
    cosine = float(np.mean(cosines(int8.embed(TEXTS), exact)))
    assert 0.98 < cosine < 1
    assert values["int8"] == values["cosine"] == pytest.approx(cosine, abs=1e-4)
    note = json.loads((folder / METADATA).read_text())["int8"]
    assert note["scales"]["rows"] == len(TEXTS)
    assert int8.settings["int8"] == [note["weight_bits"], digest_file(folder / SCALES)]


def test_scored_pairs_measure_the_correlation_as_well(folder: Path, tmp_path: Path) -> None:
    report = quantize(folder, write_pairs(tmp_path / "pairs.jsonl"), limit=1.0)
    values = report.to_dict()
    assert values["metric"] == "spearman"
    assert -1 <= values["int8"] <= 1
    assert 0.98 < values["cosine"] < 1
    assert f"(mean cosine of the vectors to fp32: {values['cosine']:.4f})" in report.lines()[1]


def test_layers_are_kept_until_the_cosine_is_within_the_limit(folder: Path, texts: Path) -> None:
    worst = 1 - quantize(folder, texts, limit=1.0).trials[0].score
    trials = quantize(folder, texts, limit=worst / 2).trials
    assert len(trials) > 1
    assert trials[-1].kept
    assert trials[-1].score >= 1 - worst / 2 > trials[0].score


def test_few_texts_give_one_scale_per_token(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    path = file_with(tmp_path / "few.txt", "\n".join(TEXTS[:8]))
    assert not quantize(folder, path, limit=1.0).to_dict()["fixed"]
    told = capsys.readouterr().err
    assert "at least 32 examples to fix the scales of int8; found 8" in told
    assert "plain" not in told
    assert isinstance(load_embedder(folder, precision="int8").encoder.model.layers[0].output, Int8Linear)
    assert not (folder / SCALES).exists()


def test_scales_of_a_folder_without_digests_belong_to_its_weights(
    folder: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantize(folder, texts, limit=1.0)
    write_base_model(tmp_path / "other", seed=1)
    (folder / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    capsys.readouterr()
    assert isinstance(load_embedder(folder, precision="int8").encoder.model.layers[0].output, Int8Linear)
    assert "were calibrated for other weights" in capsys.readouterr().err


def test_plain_products_have_no_fixed_scales(folder: Path, texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quantize(folder, texts, limit=1.0)
    capsys.readouterr()
    plain = load_embedder(folder, precision="int8", products="plain")
    assert isinstance(plain.encoder.model.layers[0].output, Int8Linear)
    assert "scales" not in capsys.readouterr().err


def test_the_run_of_a_model_with_pretraining_heads_gives_vectors_too(texts: Path, tmp_path: Path) -> None:
    model = tmp_path / "run" / "model"
    write_base_model(model)
    before = json.loads((model / METADATA).read_text())
    assert quantize(tmp_path / "run", texts, limit=1.0).metric == "cosine"
    after = json.loads((model / METADATA).read_text())
    assert {name: value for name, value in after.items() if name != "int8"} == before
    loaded, embedder = load(model, precision="int8"), load_embedder(model, precision="int8")
    np.testing.assert_allclose(loaded.embed(TEXTS), embedder.embed(TEXTS), atol=1e-6)
    assert isinstance(embedder.encoder.model.layers[0].output, FixedInt8Linear)


def test_what_cannot_be_measured_is_refused_in_one_line(folder: Path, texts: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.json"
    answer = {"text": "gate", "answer_start": 4}
    asked = {"id": "1", "question": "What?", "answers": [answer]}
    questions.write_text(json.dumps({"data": [{"paragraphs": [{"context": "the gate", "qas": [asked]}]}]}))
    refused: list[tuple[type[BertsmithError], str, dict[str, object]]] = [
        (InputError, "texts, pairs or triplets", {"data": questions, "task": "squad"}),
        (ConfigError, "no head, for vectors", {"data": texts, "head": object}),
        (InputError, "the folder of a model", {"data": texts, "model": "starter"}),
    ]
    for kind, told, options in refused:
        with pytest.raises(kind, match=told):
            quantize(**{"model": folder, "limit": 1.0, **options})
