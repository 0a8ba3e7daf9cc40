"""ModernBERT against transformers where windows end inside a row; its configuration in old and new folders."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith.base.core.errors import ConfigError
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.architectures import new_encoder, read_config
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.modernbert import ModernBertConfig
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.encoder import Trace
from model.examples import random_batch, shake
from tasks.architecture_samples import write_peer

SHAPE = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "local_attention": 6,
}
PUBLISHED = {  # config.json of ModernBERT-base, as it was published for transformers 4
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "sep_token_id": 50282,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "vocab_size": 50368,
}


def peer(kind: str = "ForMaskedLM", **changes: object) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(**{**SHAPE, **changes})
    model = getattr(transformers, f"ModernBert{kind}")._from_config(config, attn_implementation="sdpa").eval()
    shake(model)
    return model


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    rows = batch.token_ids.split(list(batch.lengths))
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(ids.shape[1]) < torch.tensor(batch.lengths)[:, None]
    return {"input_ids": ids, "attention_mask": mask.long()}


def test_logits_and_gradients_of_rows_longer_than_the_window_are_theirs(tmp_path: Path) -> None:
    theirs = peer()
    theirs.save_pretrained(tmp_path)
    model = load_pretrained(load_any(tmp_path)).model.eval()
    batch = random_batch([5, 90, 90, 1, 200])
    inputs = padded(batch)
    real = inputs["attention_mask"].bool()
    logits = model(batch, masked=torch.arange(batch.num_tokens)).mlm_logits
    expected = theirs(**inputs).logits[real]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    targets = torch.arange(batch.num_tokens) % 67
    losses = [torch.nn.functional.cross_entropy(values, targets) for values in (logits, expected)]
    torch.testing.assert_close(*losses, rtol=0, atol=1e-5)
    for loss in losses:
        loss.backward()
    for ours, layer in zip(model.encoder.layers, theirs.model.layers, strict=True):
        joined = torch.cat([layer.weight.grad for layer in (ours.query, ours.key, ours.value)])
        torch.testing.assert_close(joined, layer.attn.Wqkv.weight.grad, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.intermediate.weight.grad, layer.mlp.Wi.weight.grad, rtol=0, atol=1e-5)
    table = theirs.model.embeddings.tok_embeddings.weight.grad
    torch.testing.assert_close(model.encoder.word_table.grad, table, rtol=0, atol=1e-5)


def test_the_hidden_states_of_every_layer_are_theirs(tmp_path: Path) -> None:
    theirs = peer("Model")
    theirs.save_pretrained(tmp_path)
    encoder = load_pretrained(load_any(tmp_path)).model.encoder.eval()
    batch, trace = random_batch([80]), Trace()
    with torch.no_grad():
        encoder(batch, trace=trace)
        expected = theirs(**padded(batch), output_hidden_states=True).hidden_states
        for state, wanted in zip(trace.hidden_states, expected, strict=True):
            torch.testing.assert_close(state, wanted[0], rtol=0, atol=1e-5)
        lower = Trace()
        assert torch.equal(encoder.lower(2)(batch, trace=lower), trace.hidden_states[2])


@pytest.mark.parametrize("layers", [3, 4])
def test_positions_that_are_read_have_the_values_of_all(layers: int) -> None:
    """The last of four layers sees all tokens, that of three a window."""
    encoder = new_encoder(ModernBertConfig(**{**SHAPE, "num_hidden_layers": layers}), seed=1).eval()
    shake(encoder)
    batch = random_batch([5, 90, 33])
    with torch.no_grad():
        whole = encoder(batch)
        for places in (batch.first_positions.numpy(), np.arange(0, 128, 2), np.array([3, 7, 94, 95, 127])):
            read = Read.at(batch, np.union1d(places, batch.first_positions.numpy()))
            torch.testing.assert_close(encoder(batch, read=read), whole[read.positions])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_classifier_reads_the_first_token_or_the_mean(pooling: str, tmp_path: Path) -> None:
    theirs = write_peer(tmp_path, "modernbert", "ForSequenceClassification", classifier_pooling=pooling, num_labels=3)
    model = load_for_task(load_any(tmp_path), Head(part="classifier", outputs=3, pooled=True), keep_head=True).model
    batch = random_batch([5, 60, 33])
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(batch), theirs(**padded(batch)).logits, rtol=0, atol=1e-5)


def test_a_new_head_starts_with_the_layer_of_the_masked_language_model_as_in_transformers(tmp_path: Path) -> None:
    write_peer(tmp_path, "modernbert", "ForMaskedLM")
    theirs = transformers.ModernBertForTokenClassification.from_pretrained(tmp_path)
    loaded = load_for_task(load_any(tmp_path), Head(part="classifier", outputs=3, pooled=False), keep_head=False)
    assert loaded.new_parts == ("classifier",)
    assert torch.equal(loaded.model.encoder.pooler.weight, theirs.head.dense.weight)
    assert torch.equal(loaded.model.encoder.pooler.norm.weight, theirs.head.norm.weight)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_vector_of_the_pooler_is_what_the_classifier_reads(pooling: str, tmp_path: Path) -> None:
    write_peer(tmp_path, "modernbert", "ForSequenceClassification", classifier_pooling=pooling)
    folder = load_any(tmp_path)
    result = load_embedder(tmp_path, pooling="pooler", device="cpu", normalize=False).embed(["the film", "it was"])
    model = load_for_task(folder, Head(part="classifier", outputs=2, pooled=True), keep_head=True).model.eval()
    tokenizer = folder.require_tokenizer()
    around = tokenizer.template
    rows = [[*around.start, *tokenizer.encode(text), *around.end] for text in ("the film", "it was")]
    batch = Batch.from_flat(np.concatenate(rows), np.zeros(sum(map(len, rows)), np.int64), [len(row) for row in rows])
    with torch.no_grad():
        logits = torch.from_numpy(result) @ model.output_layer.weight.T + model.output_layer.bias
        torch.testing.assert_close(logits, model(batch), rtol=0, atol=1e-5)


def test_the_published_configuration_is_read_and_written() -> None:
    config = read_config(PUBLISHED)
    assert isinstance(config, ModernBertConfig)
    assert config.num_parameters(pooler=False, heads=True) == 149_655_232
    assert (config.max_tokens, config.pools_mean, config.local_attention) == (8192, True, 128)
    assert [config.is_local(layer) for layer in range(5)] == [False, True, True, False, True]
    written = config.to_dict()
    assert {name: PUBLISHED[name] for name in written} == written


def test_the_fields_of_transformers_5_are_read(tmp_path: Path) -> None:
    config = transformers.ModernBertConfig(**SHAPE, global_attn_every_n_layers=2)
    config.rope_parameters["full_attention"]["rope_theta"] = 5e5
    config.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert "layer_types" in values
    result = read_config(values)
    assert (result.global_attn_every_n_layers, result.global_rope_theta, result.local_rope_theta) == (2, 5e5, 1e4)
    again = transformers.ModernBertConfig.from_dict(result.to_dict())
    assert again.layer_types == config.layer_types
    assert again.rope_parameters == config.rope_parameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_bias": True}, "norm_bias False in the configuration of a ModernBERT; found True"),
        ({"decoder_bias": False}, "decoder_bias True in the configuration of a ModernBERT; found False"),
        ({"layer_types": ["sliding_attention"] * 4}, "found global ones at none of 4"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_type default; found {'rope_type': 'yarn'}",
        ),
        ({"classifier_pooling": "max"}, "unknown classifier_pooling 'max'"),
        ({"local_attention": 0}, "local_attention must be above 0, not 0"),
        ({"num_attention_heads": 32}, "heads of an even width, for rotary positions; found 1"),
    ],
)
def test_a_model_unlike_the_published_ones_is_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config({"model_type": "modernbert", **SHAPE, **change})
