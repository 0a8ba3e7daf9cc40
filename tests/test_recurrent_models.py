"""A recurrent model behind the library: vectors, features, answers, and what it cannot do in one line."""

from pathlib import Path

import numpy as np
import pytest

import bertsmith
from bertsmith.errors import CheckpointError, ConfigError
from bertsmith.export.conversion import export
from tasks.architecture_samples import write_base_model

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
