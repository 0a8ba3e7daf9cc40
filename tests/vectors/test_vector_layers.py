"""Layers after the pooling of a sentence-transformers folder give the vectors of that library."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bertsmith import convert, load, make_static_vectors
from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.checkpoints.vector_layers import read_layers
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.encoding import row_encoder
from tasks.task_samples import CONFIG, TOKENIZER

TEXTS = ["anna was in rome", "a great film", "", "the plot was awful and good"]
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "Sigmoid")
WIDTH = CONFIG.hidden_size


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "base"
    save_pretrained(path, untrained(CONFIG, seed=4), TOKENIZER, ModelMetadata.from_dict({}))
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
def test_random_modules_give_the_vectors_of_that_library(base: Path, tmp_path: Path, seed: int) -> None:
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    draw = generator(seed, "modules")
    torch.manual_seed(seed)
    parts: list[Any] = [
        modules.Transformer(str(base)), modules.Pooling(WIDTH, str(draw.choice(["mean", "cls", "max"])))
    ]  # fmt: skip
    width = WIDTH
    for kind in draw.choice(["Dense", "LayerNorm", "Dropout"], int(draw.integers(1, 4))):
        if kind == "Dense":
            outputs = int(draw.choice([width, 7, 40]))
            activation = getattr(torch.nn, str(draw.choice(ACTIVATIONS)))()
            bias, residual = (bool(draw.integers(2)) for _ in range(2))
            parts.append(
                modules.Dense(width, outputs, bias=bias, activation_function=activation, use_residual=residual)
            )
            width = outputs
        elif kind == "LayerNorm":
            parts.append(modules.LayerNorm(width))
            torch.nn.init.normal_(parts[-1].norm.weight)
            torch.nn.init.normal_(parts[-1].norm.bias)
        else:
            parts.append(modules.Dropout(0.5))
    parts += [modules.Normalize()] if draw.integers(2) else []
    truncate = int(draw.integers(2, width)) if draw.integers(2) else None
    oracle = sentence_transformers.SentenceTransformer(modules=parts, device="cpu", truncate_dim=truncate)
    oracle.save(str(tmp_path / "sentences"))
    expected = sentence_transformers.SentenceTransformer(str(tmp_path / "sentences"), device="cpu").encode(TEXTS)
    model = load(tmp_path / "sentences", device="cpu")
    assert model.width == expected.shape[1]
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(
        load_embedder(tmp_path / "sentences", device="cpu", characters=9).embed(TEXTS), expected, atol=1e-5
    )


def write_modules(base: Path, folder: Path, *, activation: str = "torch.nn.modules.activation.Tanh") -> Path:
    """A folder with a dense layer after its pooling, without that library."""
    model = untrained(CONFIG, seed=4)
    save_pretrained(folder, model, TOKENIZER, ModelMetadata.from_dict({}))
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name in ("1_Pooling", "2_Dense"):
        (folder / name).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True})
    )
    said = {"in_features": WIDTH, "out_features": 5, "bias": True, "activation_function": activation}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(said))
    draw = generator(3, "dense")
    weights = {"linear.weight": draw.normal(size=(5, WIDTH)), "linear.bias": draw.normal(size=5)}
    save_file(
        {name: weight.astype(np.float32) for name, weight in weights.items()}, folder / "2_Dense/model.safetensors"
    )
    return folder


def test_a_dense_layer_is_applied_to_the_pooled_vectors(base: Path, tmp_path: Path) -> None:
    folder = write_modules(base, tmp_path / "dense")
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    pooled = load_embedder(base, device="cpu").embed(TEXTS)
    expected = np.tanh(pooled @ weights["linear.weight"].T + weights["linear.bias"])
    np.testing.assert_allclose(load_embedder(folder, device="cpu").embed(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize("modes", ["lasttoken", ["cls", "weightedmean"], ["max", "mean_sqrt_len_tokens"]])
def test_a_pooling_without_the_prompt_is_the_same_in_every_engine(
    tmp_path: Path, modes: str | list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In torch, by a graph that is built for a few texts, by an exported one, and whatever is pooled together."""
    pytest.importorskip("onnxruntime")
    folder, texts = tmp_path / "sentences", [*TEXTS, "anna " * 50]
    save_pretrained(folder, untrained(CONFIG, seed=4), TOKENIZER, ModelMetadata.from_dict({}))
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": modes, "include_prompt": False}))
    prompts = {"prompts": {"p": "the film was "}, "default_prompt_name": "p"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    convert(folder, tmp_path / "onnx", to="onnx")
    whole = load_embedder(folder, device="cpu").embed(texts)
    monkeypatch.setattr(row_encoder, "_POOLED_AT_ONCE", WIDTH)
    ways = [load_embedder(folder, device="cpu"), load_embedder(folder, device="cpu", characters=9, early=True)]
    for embedder in (*ways, load_embedder(tmp_path / "onnx")):
        np.testing.assert_allclose(embedder.embed(texts), whole, atol=1e-5)
    assert np.abs(whole - ways[0].varied(prompt="none").embed(texts)).max() > 1e-2
    assert make_static_vectors(folder, tmp_path / "static").width == ways[0].width
    with pytest.raises(ConfigError, match=r"a prompt of less than 4 tokens, .*; found 4; raise"):
        load_embedder(folder, device="cpu", max_length=4)


def test_layers_that_cannot_be_followed_are_refused_by_name(base: Path, tmp_path: Path) -> None:
    gelu = write_modules(base, tmp_path / "gelu", activation="torch.nn.modules.activation.GELU")
    with pytest.raises(CheckpointError, match=r"expected an activation among Tanh, .*found torch.nn.*GELU"):
        load_embedder(gelu, device="cpu")
    folder = write_modules(base, tmp_path / "dense")
    with pytest.raises(CheckpointError, match="found a module Dense, which is not supported"):
        read_recipe(folder)
    with pytest.raises(ConfigError, match="expected a model whose vectors are those of its pooling; found 1 layers"):
        make_static_vectors(folder, tmp_path / "static")
    with pytest.raises(ConfigError, match="found 64"):
        load_embedder(folder, device="cpu", layers="1,2")
    with pytest.raises(CheckpointError, match=f"expected a layer of 5 inputs .*found {WIDTH}"):
        read_layers([("Dense", folder / "2_Dense")] * 2)
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"found only pytorch_model.bin; save the model again with sentence"):
        load_embedder(folder, device="cpu")
    (folder / "2_Dense" / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"expected weights in model.safetensors .*found none; download"):
        load_embedder(folder, device="cpu")
