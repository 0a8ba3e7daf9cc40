"""State dicts of training wrappers, adapters, quantized weights."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from bertsmith.base.core.errors import CheckpointError
from bertsmith.models.checkpoints.huggingface import read_model_folder, write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from checkpoints.tiny import tiny_tensors
from tasks.architecture_samples import change_json, config_of, tokenizer_of

PREFIXES = ("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "model.", "encoder.", "model.module.")


def written(path: Path, architecture: str, *parts: str) -> Path:
    """A model folder."""
    tensors = tiny_tensors(config_of(architecture), *parts)
    write_model_folder(
        path,
        config=config_of(architecture),
        tensors=tensors,
        tokenizer=tokenizer_of(architecture),
        metadata=ModelMetadata(labels=("a", "b", "c") if "classifier" in parts else ()),
    )
    (path / "bertsmith.json").unlink()
    return path


def renamed(path: Path, change: object) -> None:
    """Saves the tensors of a folder under other names."""
    file = path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    safetensors.torch.save_file({change(name): tensor.clone() for name, tensor in tensors.items()}, file)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("architecture", "parts"),
    [("bert", ("pooler", "classifier")), ("bert", ("pooler", "mlm", "nsp")), ("roberta", ("mlm",)), ("modernbert", ())],
)
def test_the_prefixes_of_training_wrappers_are_removed_with_a_note(tmp_path, prefix, architecture, parts):
    folder = written(tmp_path / "model", architecture, *parts)
    plain = read_model_folder(folder)
    renamed(folder, lambda name: prefix + name)
    wrapped = read_model_folder(folder)
    assert wrapped.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(wrapped.tensors[name], plain.tensors[name]) for name in plain.tensors)
    is_its_own = (architecture, prefix) == ("modernbert", "model.")
    assert any("training wrapper" in note for note in wrapped.report.notes) != is_its_own
    assert not any("training wrapper" in note for note in plain.report.notes)


def test_wrappers_inside_a_model_are_removed(tmp_path):
    folder = written(tmp_path / "model", "bert", "pooler")
    plain = read_model_folder(folder)
    renamed(folder, lambda name: "module.bert._orig_mod." + name)
    assert read_model_folder(folder).tensors.keys() == plain.tensors.keys()


def test_names_that_would_become_the_same_are_refused_briefly(tmp_path):
    folder = written(tmp_path / "model", "bert", "pooler")
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    both = tensors | {f"module.{name}": tensor.clone() for name, tensor in tensors.items()}
    safetensors.torch.save_file(both, file)
    with pytest.raises(CheckpointError, match=r"and \d+ more") as caught:
        read_model_folder(folder)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", None])
def test_a_quantization_of_another_tool_is_refused_by_name(tmp_path, method):
    folder = written(tmp_path / "model", "bert", "pooler")
    change_json(folder / "config.json", quantization_config={"bits": 4, "quant_method": method})
    with pytest.raises(CheckpointError, match=method or "another tool"):
        read_model_folder(folder)


@pytest.mark.parametrize("is_beside", [True, False])
def test_an_adapter_is_refused(tmp_path, is_beside):
    folder = written(tmp_path / "model", "bert", "pooler")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    if not is_beside:
        (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="an adapter"):
        load_any(folder)


def test_tensors_in_half_precision_and_old_names_of_norms_are_read(tmp_path):
    folder = written(tmp_path / "model", "bert", "pooler", "mlm")
    plain = read_model_folder(folder)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    file = folder / "model.safetensors"
    tensors = {}
    for name, tensor in safetensors.torch.load_file(file).items():
        for new, before in old.items():
            name = name.replace(new, before)
        tensors[name] = tensor.to(torch.bfloat16)
    safetensors.torch.save_file(tensors, file)
    folder_in_half = read_model_folder(folder)
    assert all(torch.equal(folder_in_half.tensors[name], plain.tensors[name].bfloat16()) for name in plain.tensors)
