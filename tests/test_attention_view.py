"""The attention view shows what the encoder computes."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from bertsmith import Model, load
from bertsmith.app.library.attention import MOST_TOKENS
from bertsmith.base.core.errors import InputError
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from tasks.task_samples import CONFIG, TOKENIZER, write_base_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(write_base_model(tmp_path_factory.mktemp("base") / "model"), device="cpu", products="plain")


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model with a longer limit than the attention view."""
    folder = tmp_path_factory.mktemp("long") / "model"
    config = dataclasses.replace(CONFIG, max_position_embeddings=256)
    save_pretrained(str(folder), untrained(config, 0), TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}))
    return load(folder, device="cpu")


def test_each_piece_spreads_its_attention_over_all_pieces(model):
    seen = model.attention("Anna was in Rome .", None).to_dict()
    assert seen["pieces"] == ["[CLS]", "anna", "was", "in", "rome", ".", "[SEP]"]
    assert seen["segments"] == [0] * 7
    assert (seen["layers"], seen["heads"]) == (CONFIG.num_hidden_layers, CONFIG.num_attention_heads)
    weights = np.array(seen["attention"])
    assert weights.shape == (seen["layers"], seen["heads"], 7, 7)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(-1), 1, atol=7 * 0.5e-4)


def test_it_is_the_softmax_of_queries_and_keys(model):
    """The first layer, head by head, by the formula."""
    seen = model.attention("the film", "a good plot").to_dict()
    assert seen["pieces"] == ["[CLS]", "the", "film", "[SEP]", "a", "good", "plot", "[SEP]"]
    assert seen["segments"] == [0, 0, 0, 0, 1, 1, 1, 1]
    encoder = model.encoder.model
    index = TOKENIZER.vocabulary.index
    ids = np.array([index[piece] for piece in seen["pieces"]])
    batch = Batch.from_flat(ids, np.array(seen["segments"]), [len(ids)])
    trace = Trace()
    with torch.inference_mode():
        encoder(batch, trace=trace)
        layer, hidden = encoder.layers[0], trace.hidden_states[0]
        width = CONFIG.hidden_size // CONFIG.num_attention_heads
        for head in range(CONFIG.num_attention_heads):
            part = slice(head * width, (head + 1) * width)
            scores = layer.query(hidden)[:, part] @ layer.key(hidden)[:, part].T / width**0.5
            np.testing.assert_allclose(seen["attention"][0][head], scores.softmax(-1).numpy(), atol=0.6e-4)


def test_numbers_have_four_digits_in_json_too(model):
    text = json.dumps(model.attention("anna was in rome", None).to_dict()["attention"])
    numbers = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    assert len(numbers) == 2 * 4 * 6 * 6
    assert max(map(len, numbers)) == len("0.1234")


def test_a_mask_is_a_mask_where_the_model_fills_masks(model, monkeypatch):
    assert "[MASK]" in model.attention("the [MASK] was good", None).to_dict()["pieces"]
    monkeypatch.setattr(model, "_reading", dataclasses.replace(model._reading, abilities=("classify",)))
    assert "[MASK]" not in model.attention("the [MASK] was good", None).to_dict()["pieces"]


def test_as_many_tokens_as_the_view_shows_and_no_more(long_model):
    assert len(long_model.attention("film " * (MOST_TOKENS - 2), None).to_dict()["pieces"]) == MOST_TOKENS
    assert len(long_model.attention("film " * 100, "plot " * 25).to_dict()["pieces"]) == MOST_TOKENS
    for text, pair in (("film " * (MOST_TOKENS - 1), None), ("film " * 100, "plot " * 26)):
        with pytest.raises(InputError, match=r"at most 128 tokens .* found 129; shorten"):
            long_model.attention(text, pair).to_dict()


def test_a_model_that_reads_less_refuses_earlier(model):
    limit = CONFIG.max_position_embeddings
    assert len(model.attention("film " * (limit - 2), None).to_dict()["pieces"]) == limit
    with pytest.raises(InputError, match=f"at most {limit} tokens"):
        model.attention("film " * (limit - 1), None).to_dict()


@pytest.mark.parametrize(("text", "pair"), [("", None), (" \n", None), ("film", ""), ("film", "  ")])
def test_empty_texts_are_refused(model, text, pair):
    with pytest.raises(InputError, match="an empty one"):
        model.attention(text, pair).to_dict()
