"""ALBERT: one set of parameters for several layers, wherever layers are counted, cut, trained or stored."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.albert import AlbertConfig
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Read
from bertsmith.models.parts.encoder import Trace
from model.examples import VOCABULARY, random_batch, shake
from tasks.task_samples import TOKENIZER

CONFIG = AlbertConfig(
    vocab_size=len(TOKENIZER.vocabulary),
    embedding_size=8,
    hidden_size=32,
    num_hidden_layers=5,
    num_hidden_groups=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=40,
)


def test_parameters_are_stored_once_for_each_group(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", untrained(CONFIG, 0), TOKENIZER, ModelMetadata())
    stored = load_file(tmp_path / "model/model.safetensors")
    queries = [name for name in stored if name.endswith("attention.query.weight")]
    groups = "albert.encoder.albert_layer_groups"
    assert queries == [f"{groups}.{number}.albert_layers.0.attention.query.weight" for number in range(2)]
    assert sum(tensor.numel() for tensor in stored.values()) == CONFIG.num_parameters(heads=True)
    assert load_any(tmp_path / "model").config == CONFIG


def test_a_trace_has_every_layer_and_a_lower_encoder_ends_where_it_is_cut() -> None:
    encoder = new_encoder(dataclasses.replace(CONFIG, vocab_size=VOCABULARY), seed=1).eval()
    shake(encoder)
    batch, trace = random_batch([4, 9]), Trace()
    with torch.no_grad():
        last = encoder(batch, trace=trace)
        assert len(trace.hidden_states) == 6
        for depth in range(1, 6):
            assert torch.equal(encoder.lower(depth)(batch), trace.hidden_states[depth])
        torch.testing.assert_close(encoder(batch, read=Read.first(batch)), last[batch.first_positions])
    assert encoder.depth == 5


def test_shared_parameters_are_as_high_as_the_highest_layer_that_uses_them() -> None:
    encoder = new_encoder(CONFIG)
    heights = {name: encoder.height(name) for name, _ in encoder.named_parameters()}
    assert (heights["layers.0.query.weight"], heights["layers.1.query.weight"]) == (3, 5)
    assert (heights["embeddings.projection.weight"], heights["pooler.weight"]) == (0, 6)


def test_to_initialize_top_layers_again_is_refused_because_the_lower_ones_are_the_same(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", untrained(CONFIG, 0), TOKENIZER, ModelMetadata())
    head = Head(part="classifier", outputs=2, pooled=True)
    with pytest.raises(ConfigError, match="no reinit_layers for ALBERT, whose layers share their parameters"):
        load_for_task(load_any(tmp_path / "model"), head, keep_head=False, reinit_layers=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_groups": 6}, "num_hidden_groups from 1 to 5"),
        ({"inner_group_num": 2}, "inner_group_num must be 1"),
        ({"embedding_size": 0}, "embedding_size must be at least 1"),
    ],
)
def test_a_shape_that_no_albert_has_is_one_line(change: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(CONFIG, **change)
