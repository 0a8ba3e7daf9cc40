"""GPT against transformers: logits, gradients and files; and reading on from keys and values."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.huggingface import read_model_folder, write_model_folder
from bertsmith.models.encoders.gpt import GptConfig
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.memory import Memory
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.task_data.spec_of_model import spec_of
from model.examples import random_batch, shake, small_config
from tasks.task_samples import TOKENIZER

LENGTHS = [5, 7, 7, 1, 12]
PUBLISHED = {  # config.json of openai-gpt, without what describes its text generation
    "afn": "gelu",
    "architectures": ["OpenAIGPTLMHeadModel"],
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "openai-gpt",
    "n_ctx": 512,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 512,
    "n_special": 0,
    "predict_special_tokens": True,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "vocab_size": 40478,
}


def peer(**changes: object) -> transformers.OpenAIGPTLMHeadModel:
    """A tiny model of `transformers` whose parameters, biases and norms too, are all at random."""
    values = {"vocab_size": 67, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
    torch.manual_seed(0)
    model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**{**values, **changes})).eval()
    shake(model)
    return model


def test_the_published_configuration_is_read_and_written() -> None:
    config = GptConfig.from_dict(PUBLISHED)
    assert config == GptConfig()
    written = config.to_dict()
    assert {name: PUBLISHED[name] for name in written} == written
    changed = dataclasses.replace(GptConfig.from_dict({**PUBLISHED, "embd_pdrop": 0.2}), hidden_dropout_prob=0.3)
    assert (changed.embedding_dropout, changed.to_dict()["embd_pdrop"]) == (0.2, 0.2)
    assert changed.to_dict()["summary_first_dropout"] == 0.3, "it was that of the layers, and follows it"
    assert GptConfig.from_dict({**PUBLISHED, "resid_pdrop": 0.0}).embedding_dropout == 0.1
    with pytest.raises(ConfigError, match="four times n_embd"):
        GptConfig.from_dict({**PUBLISHED, "n_inner": 100})
    assert GptConfig.from_dict({**PUBLISHED, "afn": "swish"}).hidden_act == "silu"
    with pytest.raises(ConfigError, match="hidden_act gelu_new, relu or silu for a GPT"):
        GptConfig.from_dict({**PUBLISHED, "afn": "quick_gelu"})
    with pytest.raises(ConfigError, match="tanh form"):
        GptConfig(hidden_act="gelu")


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_logits_and_gradients_equal_those_of_transformers(tmp_path: Path, activation: str) -> None:
    theirs = peer(afn=activation).double()
    theirs.save_pretrained(tmp_path)
    model = load_pretrained(read_model_folder(tmp_path)).model.eval()
    batch = random_batch(LENGTHS)
    with torch.no_grad():
        logits = model(batch, masked=torch.arange(batch.num_tokens)).mlm_logits
        wanted = [theirs.float()(ids[None]).logits[0] for ids in batch.token_ids.split(LENGTHS)]
    torch.testing.assert_close(logits, torch.cat(wanted), rtol=0, atol=1e-5)
    model, theirs = model.double(), theirs.double()
    targets = torch.arange(batch.num_tokens) % 67
    torch.nn.functional.cross_entropy(
        model(batch, masked=torch.arange(batch.num_tokens)).mlm_logits, targets
    ).backward()
    result = torch.cat([theirs(ids[None]).logits[0] for ids in batch.token_ids.split(LENGTHS)])
    torch.nn.functional.cross_entropy(result, targets).backward()
    layers = [layer.attn.c_attn.weight.grad for layer in theirs.transformer.h]
    for ours, fused in zip(model.encoder.layers, layers, strict=True):
        joined = torch.cat([layer.weight.grad.T for layer in (ours.query, ours.key, ours.value)], dim=1)
        torch.testing.assert_close(joined, fused)
    torch.testing.assert_close(model.encoder.word_table.grad, theirs.lm_head.weight.grad)


def test_a_folder_of_transformers_is_written_again_as_it_was(tmp_path: Path) -> None:
    theirs = peer()
    theirs.save_pretrained(tmp_path / "theirs")
    read = read_model_folder(tmp_path / "theirs")
    assert (read.parts, read.report.unknown) == (("mlm",), ())
    write_model_folder(tmp_path / "ours", config=read.config, tensors=read.tensors, tokenizer=None)
    first, other = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert first.keys() == other.keys()
    assert all(torch.equal(first[name], other[name]) for name in first)
    assert json.loads((tmp_path / "ours/config.json").read_text())["architectures"] == ["OpenAIGPTLMHeadModel"]
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    ids = torch.arange(9)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, theirs(ids).logits)
    card = (tmp_path / "ours/README.md").read_text()
    assert "# GPT, pre-trained" in card
    assert "each token sees only itself" in card
    assert "bertsmith complete --model ." in card


def test_a_bare_encoder_with_buffers_as_the_published_one_is_read(tmp_path: Path) -> None:
    theirs = peer()
    theirs.save_pretrained(tmp_path)
    stored = {
        name.removeprefix("transformer."): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    stored |= {f"h.{number}.attn.bias": torch.ones(1, 1, 40, 40) for number in range(2)}
    save_file(stored, tmp_path / "model.safetensors")
    read = read_model_folder(tmp_path)
    assert sorted(read.report.skipped) == ["h.0.attn.bias", "h.1.attn.bias"]
    assert torch.equal(read.tensors["bert.layers.1.value.bias"], theirs.transformer.h[1].attn.c_attn.bias[64:])
    save_file({**stored, "h.0.attn.c_attn.weight": torch.ones(32, 95)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"unknown h\.0\.attn\.c_attn\.weight"):
        read_model_folder(tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "openai-gpt"])
def test_reading_in_parts_with_a_memory_gives_what_reading_at_once_gives(architecture: str) -> None:
    values = {"is_causal": True, "position_embedding_type": "absolute"}
    config = small_config(**values)
    if architecture == "openai-gpt":
        config = GptConfig(vocab_size=67, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                           intermediate_size=128, max_position_embeddings=40)  # fmt: skip
    encoder = new_encoder(config, seed=2).eval()
    shake(encoder)
    lengths, cuts = [7, 12, 5], [(0, 3, 4, 7), (0, 1, 8, 12), (0, 2, 3, 5)]
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 67, length) for length in lengths]

    with torch.no_grad():
        whole = encoder(Batch.from_rows(rows)).split(lengths)
        memory, result = Memory(), [[], [], []]
        for part in range(3):
            batch = Batch.from_rows([row[cut[part] : cut[part + 1]] for row, cut in zip(rows, cuts, strict=True)])
            copied = Memory(dict(memory.tensors), memory.lengths)
            last = encoder(batch, memory=copied, read=Read.last(batch))
            hidden = encoder(batch, memory=memory)
            torch.testing.assert_close(hidden[batch.last_positions], last)
            for of_row, states in zip(result, hidden.split(list(batch.lengths)), strict=True):
                of_row.append(states)
        assert memory.lengths == tuple(lengths)
        for states, parts in zip(whole, result, strict=True):
            torch.testing.assert_close(torch.cat(parts), states)
        # Some of the sequences go on, in another order and without the longest.
        more = Batch.from_rows([np.array([3]), np.array([4, 5])])
        went_on = encoder(more, memory=memory.of_rows([2, 0])).split([1, 2])
        for row, tokens, states in ((2, [3], went_on[0]), (0, [4, 5], went_on[1])):
            long = Batch.from_rows([np.append(rows[row], tokens)])
            torch.testing.assert_close(states, encoder(long)[-len(tokens) :])


def test_a_classifier_of_transformers_reads_the_last_token_and_has_no_bias(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": len(TOKENIZER.vocabulary), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
    config = transformers.OpenAIGPTConfig(**shape, num_labels=3, pad_token_id=0)
    theirs = transformers.OpenAIGPTForSequenceClassification(config).eval()
    shake(theirs)
    theirs.save_pretrained(tmp_path)
    TOKENIZER.vocabulary.save(tmp_path / "vocab.txt")
    folder = read_model_folder(tmp_path)
    assert spec_of(folder).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    predictor = load_predictor(tmp_path)
    texts = ["the good film", "it was a bad film ."]
    result = predictor.predict([TextExample(id=str(row), first=text) for row, text in enumerate(texts)])
    for text, prediction in zip(texts, result, strict=True):
        ids = torch.tensor([[TOKENIZER.vocabulary.cls_id, *TOKENIZER.encode(text), TOKENIZER.vocabulary.sep_id]])
        with torch.no_grad():
            expected = theirs(ids).logits[0].softmax(-1)
        assert list(prediction.probabilities) == pytest.approx(expected.tolist(), abs=1e-5)


def test_it_has_no_pooler_no_segments_and_no_norm_of_the_embeddings() -> None:
    encoder = new_encoder(GptConfig.named("tiny", vocab_size=50))
    names = {name.split(".")[0] for name, _ in encoder.named_parameters()}
    assert names == {"embeddings", "layers"}
    assert {name for name, _ in encoder.embeddings.named_parameters()} == {"word.weight", "position.weight"}
    count = sum(parameter.numel() for parameter in encoder.parameters())
    assert encoder.config.num_parameters() == encoder.config.num_parameters(heads=True) == count
    states = torch.ones(2, 128)
    assert encoder.pool(states) is states
