"""Nomic BERT and GTE in the forms in which they were published, before `transformers` had them; Jina's is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import read_config
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.layers import turn_of
from tasks.architecture_samples import write_peer

NOMIC = {
    "model_type": "nomic_bert", "activation_function": "swiglu", "attn_pdrop": 0.0, "causal": False, "embd_pdrop": 0.0,
    "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "n_embd": 32, "n_head": 4, "n_inner": 64, "n_layer": 2, "n_positions": 8192, "parallel_block": False,
    "prenorm": False, "qkv_proj_bias": False, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "type_vocab_size": 2, "use_rms_norm": False,
}  # fmt: skip
GTE = {
    "model_type": "new", "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 32, "intermediate_size": 64, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False, "logn_attention_scale": False, "max_position_embeddings": 8192,
    "num_attention_heads": 4, "num_hidden_layers": 2, "pack_qkv": True, "pad_token_id": 1,
    "position_embedding_type": "rope", "rope_scaling": {"factor": 8.0, "type": "ntk"}, "rope_theta": 20000,
    "type_vocab_size": 1, "unpad_inputs": False,
}  # fmt: skip


def hidden(folder: Path) -> torch.Tensor:
    rows = [np.arange(5, 5 + length) for length in (9, 3)]
    with torch.no_grad():
        result: torch.Tensor = load_pretrained(load_any(folder)).model.encoder(Batch.from_rows(rows))
    return result


def publish(folder: Path, values: dict[str, Any]) -> None:
    """Gives a folder the configuration of a published model, for its own vocabulary."""
    pieces = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**values, "vocab_size": pieces}), encoding="utf-8")


def test_a_folder_with_the_names_of_gpt_is_the_same_nomic_bert(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 1000.0}
    write_peer(tmp_path, "nomic_bert", "ForMaskedLM", rope_parameters=rope)
    expected = hidden(tmp_path)
    publish(tmp_path, NOMIC)
    assert torch.equal(hidden(tmp_path), expected)
    assert load_any(tmp_path).config.max_tokens == 8192


def test_positions_beyond_the_training_are_scaled_and_therefore_not_read() -> None:
    assert read_config({**NOMIC, "vocab_size": 99, "rotary_scaling_factor": 2.0}).max_tokens == 2048


@pytest.mark.parametrize("factor", [8.0, 2.0])
def test_the_scaled_angles_of_a_published_gte_are_read_written_and_change_the_model(
    factor: float, tmp_path: Path
) -> None:
    write_peer(tmp_path, "gte", "ForMaskedLM")
    publish(tmp_path, {**GTE, "rope_scaling": None})
    before = hidden(tmp_path)
    publish(tmp_path, {**GTE, "rope_scaling": {"factor": factor, "type": "ntk"}})
    config = load_any(tmp_path).config
    size, positions = config.head_size, np.arange(0, 8192, 131)
    rates = (20000 * factor) ** (-np.arange(0, size, 2) / size) / factor ** (2 / size)
    turn = turn_of(torch.from_numpy(positions), config.rotary_base_of(0), size, config.rotary_factor)
    np.testing.assert_allclose(turn[0].numpy(), np.cos(positions[:, None] * rates), atol=2e-3)
    assert not torch.allclose(hidden(tmp_path), before, atol=1e-4)
    assert read_config({"model_type": "gte", **config.to_dict()}) == config


@pytest.mark.parametrize("kind", ["jina_embeddings_v3", "xlm-roberta"])
def test_an_embedding_model_of_jina_is_refused_in_one_line(kind: str) -> None:
    values = {**GTE, "model_type": kind, "vocab_size": 99, "position_embedding_type": "rotary"}
    with pytest.raises(ConfigError, match=r"found 'jina_embeddings_v3'|position_embedding_type 'rotary'") as caught:
        read_config(values)
    assert "\n" not in str(caught.value)
