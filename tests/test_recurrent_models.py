"""A recurrent model behind the library: vectors, features, answers, and what it cannot do in one line."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.inference.export.conversion import export
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from tasks.architecture_samples import config_of, write_base_model
from tasks.task_samples import TOKENIZER

TEXTS = ["the film was great", "a day", "was it a good film ?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_base_model(tmp_path_factory.mktemp("recurrent") / "model", "awd-lstm"))


def test_vectors_of_texts_do_not_depend_on_the_texts_next_to_them(folder: Path) -> None:
    model = bertsmith.load(folder)
    together = model.embed(TEXTS)
    assert together.shape == (3, 32)
    np.testing.assert_allclose(together, np.concatenate([model.embed([text]) for text in TEXTS]), atol=1e-6)


def test_layers_of_another_width_than_the_last_are_refused_by_their_numbers(folder: Path) -> None:
    model = bertsmith.load(folder)
    assert model.encoder.choice("0,2").layers == (0, 2)
    with pytest.raises(ConfigError, match="layers of width 32: 0, 2; found sum-all, with widths 48, 32"):
        model.encoder.choice("sum-all")


def test_what_a_recurrent_model_cannot_do_is_one_line(folder: Path, tmp_path: Path) -> None:
    model = bertsmith.load(folder)
    assert not model.shows_attention
    with pytest.raises(CheckpointError, match="a model with attention"):
        model.attention("a film")
    for form, message in (("onnx", "Transformer encoder"), ("google", "model_type"), ("huggingface", "`transformers`")):
        with pytest.raises(ConfigError, match=message):
            export(folder, tmp_path / form, to=form)
        assert not (tmp_path / form).exists()
    with pytest.raises(ConfigError, match="a Transformer encoder for int8"):
        bertsmith.load(folder, precision="int8")


def test_int8_of_a_fine_tuned_recurrent_model_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    rows = [f"a day number {number},{number % 2}" for number in range(40)]
    (tmp_path / "days.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    options = {"task": "classification", "train": tmp_path / "days.csv", "out": tmp_path / "run"}
    bertsmith.finetune(folder, **options, seeds=1, epochs=0.1, baselines=False, reads="mean", start="random")
    with pytest.raises(ConfigError, match="a Transformer encoder for int8"):
        bertsmith.quantize(tmp_path / "run" / "model", tmp_path / "days.csv")


def test_the_card_of_a_model_that_reads_backward_does_not_recommend_to_complete_texts(tmp_path: Path) -> None:
    for direction, command in (("forward", "bertsmith complete"), ("backward", "bertsmith embed")):
        model = untrained(dataclasses.replace(config_of("awd-lstm"), direction=direction), 1)
        save_pretrained(tmp_path / direction, model, TOKENIZER, ModelMetadata(), trained=("mlm",))
        assert command in (tmp_path / direction / "README.md").read_text(encoding="utf-8")
    assert "right-to-left AWD-LSTM" in bertsmith.inspect_model(tmp_path / "backward").what
