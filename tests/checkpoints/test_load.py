"""Loading and converting models from any source."""

import filecmp

import pytest
import torch

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.checkpoints.google import OptimizerState, read_optimizer, write_google
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import kind_of, load_any
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.text.tokenizers.normalize import TextRules
from checkpoints.tiny import tiny_tensors


@pytest.fixture
def folders(tmp_path, config, tensors, tokenizer):
    """The same model in both formats."""
    model = {"config": config, "tensors": tensors, "tokenizer": tokenizer}
    write_model_folder(tmp_path / "hf", **model, metadata=ModelMetadata.from_dict({"task": "mlm", "score": 0.5}))
    state = OptimizerState(first=tensors, second=tiny_tensors(config, "pooler", "mlm", "nsp", seed=1), step=7)
    write_google(
        tmp_path / "google", **model, metadata=ModelMetadata.from_dict({"task": "mlm", "score": 0.5}), optimizer=state
    )
    return tmp_path


def test_every_kind_of_source_is_recognized(folders, tensors):
    (folders / "run" / "checkpoints").mkdir(parents=True)
    (folders / "hf").rename(folders / "run" / "model")
    for source in ("run/model", "run", "google", "google/bert_model.ckpt", "google/bert_model.ckpt.index"):
        model = load_any(folders / source)
        assert all(torch.equal(model.tensors[name], tensors[name]) for name in tensors)
        assert model.metadata.other["score"] == 0.5
    assert kind_of(folders / "run") is None
    assert load_any(folders / "google", rules=TextRules.google()).tokenizer.rules == TextRules.google()
    assert load_any(folders / "run", rules=TextRules.google()).tokenizer.rules == TextRules.google()


def test_a_conversion_there_and_back_gives_the_same_files(folders):
    assert convert(folders / "google", folders / "a", to="huggingface").report.unknown == ()
    convert(folders / "hf", folders / "b", to="google")
    convert(folders / "b", folders / "c", to="huggingface")
    for name in ("model.safetensors", "config.json", "vocab.txt", "tokenizer.json", "bertsmith.json"):
        assert filecmp.cmp(folders / "hf" / name, folders / "a" / name, shallow=False), name
        assert filecmp.cmp(folders / "hf" / name, folders / "c" / name, shallow=False), name


def test_optimizer_state_is_copied_from_google_to_google(folders):
    convert(folders / "google", folders / "again", to="google")
    assert read_optimizer(folders / "again").step == 7
    data = "bert_model.ckpt.data-00000-of-00001"
    assert filecmp.cmp(folders / "google" / data, folders / "again" / data, shallow=False)


def test_a_conversion_to_an_unknown_format_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'huggingface'"):
        convert(tmp_path / "absent", tmp_path / "x", to="hugginface")


def test_a_conversion_overwrites_only_on_request(folders):
    with pytest.raises(InputError, match="one that exists"):
        convert(folders / "google", folders / "hf", to="huggingface")
    convert(folders / "google", folders / "hf", to="huggingface", replace=True)


def test_an_unreadable_source_is_one_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.csv").touch()
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "model.onnx").touch()
    (tmp_path / "exported" / "config.json").touch()
    for source, message in (
        ("notes.txt", "found a file"),
        ("empty", "found an empty folder"),
        ("exported", "found an ONNX export; use the model it was exported from, or run it with onnxruntime"),
        ("exported/model.onnx", "found an ONNX export"),
        ("other", r"found other files \(a.csv\)"),
        ("absent", "found 'absent', which does not exist"),
        ("empty/absent", "which does not exist"),
        (tmp_path / "absent" / "model", "which does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            load_any(source)
