"""Nomic BERT and GTE as they were published, before `transformers` had them: names, configurations, positions."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.architectures import read_config
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.layers import turn_of
from tasks.architecture_samples import config_of, write_peer

NOMIC = {
    "model_type": "nomic_bert", "activation_function": "swiglu", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 64,
    "n_positions": 8192, "max_trained_positions": 2048, "vocab_size": 67, "type_vocab_size": 2, "attn_pdrop": 0.0,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "layer_norm_epsilon": 1e-12, "qkv_proj_bias": False, "mlp_fc1_bias": False,
    "mlp_fc2_bias": False, "prenorm": False, "causal": False, "parallel_block": False, "use_rms_norm": False,
    "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_scaling_factor": None,
}  # fmt: skip
GTE = {
    "model_type": "new", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 67, "type_vocab_size": 0, "pad_token_id": 0, "max_position_embeddings": 8192, "rope_theta": 500000,
    "rope_scaling": {"type": "ntk", "factor": 2.0}, "position_embedding_type": "rope", "pack_qkv": True,
    "layer_norm_type": "layer_norm", "logn_attention_scale": False, "logn_attention_clip1": False,
    "use_memory_efficient_attention": True, "unpad_inputs": True,
}  # fmt: skip


def test_a_published_nomic_bert_is_the_same_model(tmp_path: Path) -> None:
    write_peer(tmp_path, "nomic_bert", "ForMaskedLM")
    plain = load_any(tmp_path)
    pieces = config_of("nomic_bert").vocab_size
    (tmp_path / "config.json").write_text(json.dumps(NOMIC | {"vocab_size": pieces}))
    weights = load_file(tmp_path / "model.safetensors")
    older = {name.replace("nomic_bert.", "bert.", 1): tensor for name, tensor in weights.items()}
    assert older.keys() != weights.keys()
    save_file(older, tmp_path / "model.safetensors", metadata={"format": "pt"})
    folder = load_any(tmp_path)
    assert folder.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(tensor, plain.tensors[name]) for name, tensor in folder.tensors.items())
    shape = folder.config
    assert (shape.hidden_act, shape.rotary_base_of(0), shape.max_tokens) == ("silu", 1000, 8192)


@pytest.mark.parametrize("longest", [8192, None])
def test_scaled_positions_of_nomic_bert_limit_rows_to_those_of_the_training(longest: int | None) -> None:
    assert read_config(NOMIC | {"rotary_scaling_factor": 2, "n_positions": longest}).max_tokens == 2048


def test_a_published_gte_is_the_same_model(tmp_path: Path) -> None:
    write_peer(tmp_path, "gte", "ForSequenceClassification", type_vocab_size=0)
    plain = load_any(tmp_path)
    pieces = config_of("gte").vocab_size
    (tmp_path / "config.json").write_text(json.dumps(GTE | {"vocab_size": pieces}))
    weights = load_file(tmp_path / "model.safetensors")
    older = {name.replace("gte.", "new.", 1): tensor for name, tensor in weights.items()}
    assert older.keys() != weights.keys()
    save_file(older, tmp_path / "model.safetensors", metadata={"format": "pt"})
    folder = load_any(tmp_path)
    assert folder.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(tensor, plain.tensors[name]) for name, tensor in folder.tensors.items())


def test_the_scaled_positions_of_gte_have_the_angles_of_its_code() -> None:
    config, width, factor = read_config(GTE), 8, 2.0
    rates = 1 / (500000 * factor) ** (torch.arange(0, width, 2) / width) / factor ** (2 / width)
    angles = torch.arange(8192)[:, None] * rates
    for shape in (config, read_config({"model_type": "gte", **config.to_dict()})):  # also as it is written
        turn = turn_of(torch.arange(8192), shape.rotary_base_of(0), width, shape.rotary_factor)
        torch.testing.assert_close(turn.cosines, angles.cos(), rtol=0, atol=1e-3)
        torch.testing.assert_close(turn.sines, angles.sin(), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        (NOMIC, {"prenorm": True}),
        (NOMIC, {"causal": True}),
        (NOMIC, {"num_experts": 8}),
        (NOMIC, {"qkv_proj_bias": True}),
        (NOMIC, {"rotary_emb_fraction": 0.5}),
        (NOMIC, {"rotary_emb_interleaved": True}),
        (NOMIC, {"activation_function": "glu"}),
        (NOMIC, {"activation_function": ["swiglu"]}),
        (NOMIC, {"n_positions": "long", "rotary_scaling_factor": 2}),
        (NOMIC, {"max_trained_positions": "long", "rotary_scaling_factor": 2}),
        (GTE, {"pack_qkv": False}),
        (GTE, {"layer_norm_type": "rms_norm"}),
        (GTE, {"position_embedding_type": "absolute"}),
        (GTE, {"logn_attention_scale": True}),
        (GTE, {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}),
        (GTE, {"rope_scaling": {"type": "ntk"}}),
        (GTE, {"rope_scaling": "ntk"}),
    ],
)
def test_what_changes_the_answers_and_is_not_followed_is_refused(
    values: dict[str, Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(BertsmithError) as caught:
        read_config(values | changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["jina_embeddings_v3", "xlm-roberta"])
def test_an_embedding_model_of_jina_is_refused(kind: str) -> None:
    values = {**GTE, "model_type": kind, "position_embedding_type": "rotary", "type_vocab_size": 1}
    with pytest.raises(BertsmithError, match=r"found 'jina_embeddings_v3'|position_embedding_type 'rotary'"):
        read_config(values)
