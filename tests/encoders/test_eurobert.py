"""EuroBERT: what a classifier reads, configurations that are refused, shared key heads, and its tokenizer."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.architectures import new_encoder, read_config
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.transformer import for_all_heads
from bertsmith.text.tokenizers.template import Template
from tasks.architecture_samples import change_json, config_of, llama_tokenizer, tokenizer_of, write_peer

TOKENIZER = tokenizer_of("eurobert")
PEER = tokenizers.Tokenizer.from_str(llama_tokenizer().backend_tokenizer.to_str())
PUBLISHED = {  # the keys that change the model
    "model_type": "eurobert",
    "vocab_size": 128256,
    "hidden_size": 1152,
    "num_hidden_layers": 26,
    "num_attention_heads": 18,
    "num_key_value_heads": 6,
    "intermediate_size": 4096,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "mlp_bias": False,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 250000,
    "tie_word_embeddings": False,
    "pad_token_id": 128001,
}


@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_a_classifier_reads_the_first_token_or_a_mean_before_or_after_the_pooler(pooling: str, tmp_path: Path) -> None:
    theirs = write_peer(tmp_path, "eurobert", "ForSequenceClassification", classifier_pooling=pooling, num_labels=3)
    model = load_for_task(load_any(tmp_path), Head(part="classifier", outputs=3, pooled=True), keep_head=True).model
    lengths = (5, 19, 1)
    rows = [np.random.default_rng(length).integers(5, 99, length) for length in lengths]
    ids = torch.zeros(3, max(lengths), dtype=torch.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.from_numpy(row)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    batch = Batch.from_rows(rows)
    with torch.no_grad():
        logits = model.eval()(batch)
        torch.testing.assert_close(logits, theirs(input_ids=ids, attention_mask=mask).logits, rtol=0, atol=1e-5)
    embedder = load_embedder(tmp_path, pooling="pooler", device="cpu", normalize=False)
    texts = ["the film", "it was ."]
    vectors = torch.from_numpy(embedder.embed(texts))
    around = TOKENIZER.template
    batch = Batch.from_rows([np.array([*around.start, *TOKENIZER.encode(text), *around.end]) for text in texts])
    with torch.no_grad():
        logits = vectors @ model.output_layer.weight.T + model.output_layer.bias
        torch.testing.assert_close(logits, model(batch), rtol=0, atol=1e-5)


def test_the_published_configuration_is_read_and_written() -> None:
    config = read_config(PUBLISHED)
    assert (config.key_width, config.head_size, config.rope_theta) == (384, 64, 250000)
    assert config.classifier_pooling == "late"
    assert read_config({"model_type": "eurobert", **config.to_dict()}) == config
    assert read_config({name: value for name, value in PUBLISHED.items() if name != "rope_theta"}).rope_theta == 10000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings False"),
        ({"attention_bias": True}, "attention_bias False"),
        ({"mlp_bias": True}, "mlp_bias False"),
        ({"num_key_value_heads": 4}, "num_key_value_heads that divides the 18 attention heads; found 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads that divides the 18 attention heads; found 0"),
        ({"head_dim": 32}, "head_dim 64"),
        ({"classifier_pooling": "cls"}, "classifier_pooling"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rotary positions of a EuroBERT"),
    ],
    ids=str,
)
def test_another_form_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(PUBLISHED | change)


def test_heads_in_a_row_share_keys() -> None:
    keys = torch.arange(12.0).view(2, 6)
    assert for_all_heads(keys, 3, 12).tolist()[0] == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]
    layer = new_encoder(config_of("eurobert")).layers[0]
    assert [len(part.weight) for part in (layer.query, layer.key, layer.value)] == [32, 16, 16]


@given(st.text(st.sampled_from("the film was it's 1234 né中😀 \t\r\n.#") | st.characters(codec="utf-8"), max_size=40))
def test_ids_are_those_of_the_package_and_decode_to_the_text(text: str) -> None:
    ids = TOKENIZER.encode(text).tolist()
    if "<|" not in text:
        assert ids == PEER.encode(text, add_special_tokens=False).ids
    assert TOKENIZER.decode(ids) == text


@pytest.mark.parametrize("ends", [True, False], ids=["with an end", "without an end"])
def test_the_rows_are_those_of_the_template_and_segments_do_not_count(ends: bool, tmp_path: Path) -> None:
    write_peer(tmp_path, "eurobert", "ForMaskedLM")
    start, end, _ = ids = [TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id, TOKENIZER.vocabulary.mask_id]
    assert ids == [0, 1, 2]
    if not ends:  # as in Llama 3
        template = tokenizers.processors.TemplateProcessing(
            single="<|begin_of_text|> $A",
            pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", start)],
        )
        other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        other.post_processor = template
        change_json(tmp_path / "tokenizer.json", post_processor=json.loads(other.to_str())["post_processor"])
    template = load_any(tmp_path).require_tokenizer().template
    closing = (end,) if ends else ()
    assert template == Template(start=(start,), between=(*closing, start), end=closing, second_segment=0)


def test_every_word_has_pieces_and_the_mask_stands_for_the_unknown_one_that_is_not_there() -> None:
    vocabulary = TOKENIZER.vocabulary
    _, without = TOKENIZER.encode_repeated_words(["film", ""])
    assert without.tolist() == TOKENIZER.encode(" ").tolist()
    assert vocabulary.unk_id == vocabulary.mask_id
