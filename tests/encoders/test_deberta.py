"""DeBERTa 2 and 3 against transformers: all options, rows beyond the buckets, products, old and new folders."""

import copy
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

import bertsmith
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.checkpoints.architectures import new_encoder, read_config
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.encoders.deberta import DebertaConfig, distances_of, needs_logarithms_of_torch
from bertsmith.models.heads.decoder import Decoder
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.noise import RowNoise
from bertsmith.models.parts.part_names import with_prefix
from bertsmith.models.products.calibration import observe, observed_scales
from bertsmith.models.products.compiled import compile_layers
from bertsmith.models.products.prepared import prepare
from model.examples import random_batch, shake
from tasks.architecture_samples import change_json, config_of, peer_tokenizer, tokenizer_of, write_peer

SHAPE = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 80,
    "position_biased_input": False,
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
}
VERSION_3 = {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}
FORMS = {
    "version 3": VERSION_3,
    "xlarge of version 2": {**VERSION_3, "conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 8},
    "one layer with a convolution": {**VERSION_3, "num_hidden_layers": 1, "conv_kernel_size": 5},
    "every distance": {},
    "distances up to 9": {"max_relative_positions": 9},
    "c2p": {"pos_att_type": "c2p", "position_buckets": 6, "max_relative_positions": 20, "legacy": False},
    "p2c": {"pos_att_type": ["p2c"], "position_buckets": 7, "type_vocab_size": 2},
    "positions in the embeddings": {"position_biased_input": True, "relative_attention": False},
}
LENGTHS = [5, 33, 33, 1, 80, 2]
PUBLISHED = {  # config.json of deberta-v3-base
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}


def peer(path: Path, kind: str = "ForMaskedLM", **changes: object) -> transformers.PreTrainedModel:
    """A model of `transformers`, saved, and then in fp64."""
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(**{**SHAPE, **changes})
    model = getattr(transformers, f"DebertaV2{kind}")(config).eval()
    shake(model)
    model.save_pretrained(path)
    return model.double()


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    ids, kinds = (
        torch.nn.utils.rnn.pad_sequence(values.split(list(batch.lengths)), batch_first=True)
        for values in (batch.token_ids, batch.segment_ids)
    )
    mask = torch.arange(ids.shape[1]) < torch.tensor(batch.lengths)[:, None]
    return {"input_ids": ids, "token_type_ids": kinds, "attention_mask": mask.long()}


@pytest.mark.parametrize("form", FORMS)
def test_logits_and_all_gradients_of_packed_rows_are_those_of_padded_ones(form: str, tmp_path: Path) -> None:
    theirs = peer(tmp_path, **FORMS[form])
    folder = load_any(tmp_path)
    model = load_pretrained(folder).model.double().eval()
    batch = random_batch(LENGTHS, num_segments=folder.config.type_vocab_size)
    inputs = padded(batch)
    logits = model(batch, masked=torch.arange(batch.num_tokens)).mlm_logits
    expected = theirs(**inputs).logits[inputs["attention_mask"].bool()]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    targets = torch.arange(batch.num_tokens) % 67
    for values in (logits, expected):
        torch.nn.functional.cross_entropy(values, targets).backward()
    gradients = {name: values.grad for name, values in theirs.named_parameters() if values.grad is not None}
    stored = {ours: name for name, ours in folder.report.mapped.items()}
    for name, values in model.named_parameters():
        if values.grad is not None:
            there = gradients.pop(stored[with_prefix(name)])
            torch.testing.assert_close(values.grad, there, rtol=0, atol=1e-5, msg=name)
    assert not gradients


@pytest.mark.parametrize("form", FORMS)
def test_positions_that_are_read_have_the_values_of_all(form: str) -> None:
    encoder = new_encoder(read_config({"model_type": "deberta-v2", **SHAPE, **FORMS[form]}), seed=1).eval()
    shake(encoder)
    batch = random_batch(LENGTHS, num_segments=1)
    with torch.no_grad():
        whole = encoder(batch)
        for places in (batch.first_positions.numpy(), np.arange(0, 150, 2)):
            read = Read.at(batch, np.union1d(places, batch.first_positions.numpy()))
            torch.testing.assert_close(encoder(batch, read=read), whole[read.positions])


@pytest.mark.parametrize(
    ("buckets", "farthest"), [(256, 512), (256, 1024), (8, 17), (7, 80), (2, 9), (0, 20), (64, 33)]
)
def test_distances_have_the_rows_of_transformers(buckets: int, farthest: int) -> None:
    """Where a range begins, too: (64 / 8) ** (1 / 2) is a whole number."""
    longest = farthest if buckets == 64 else 700
    config = DebertaConfig(position_buckets=buckets, max_relative_positions=farthest, max_position_embeddings=longest)
    states = torch.zeros(longest, 1)
    theirs = build_relative_position(states, states, buckets, farthest)[0] + config.span
    theirs = theirs.clamp(0, 2 * config.span - 1).numpy()
    distances = distances_of(config, longest)
    ours = distances.first + distances.rows[np.arange(longest) - np.arange(longest)[:, None] + longest - 1]
    np.testing.assert_array_equal(ours, theirs)
    if (buckets, farthest) == (256, 512):
        assert not needs_logarithms_of_torch(dataclasses.replace(config, max_position_embeddings=512))
    assert needs_logarithms_of_torch(config) == (buckets in (2, 8))


@pytest.mark.parametrize("form", ["version 3", "xlarge of version 2", "c2p", "every distance"])
@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("int8", 0.99), ("int8 with scales", 0.99)])
def test_prepared_products_stay_close_to_fp32(form: str, precision: str, least: float) -> None:
    """Keys and queries of distances are computed before the products are replaced, once for all passes."""
    encoder = new_encoder(read_config({"model_type": "deberta-v2", **SHAPE, **FORMS[form]}), seed=1).eval()
    shake(encoder)
    batch, scales = random_batch(LENGTHS, num_segments=1), None
    with torch.no_grad():
        exact = encoder(batch)
        if precision == "int8 with scales":
            observed = copy.deepcopy(encoder)
            observe(observed)
            observed(batch)
            scales = observed_scales(observed)
        runtime = Runtime(device="cpu", precision=precision.partition(" ")[0], int8_bits=7)
        result = prepare(copy.deepcopy(encoder), runtime, scales=scales)(batch, dtype=runtime.dtype).float()
    assert float(torch.cosine_similarity(result, exact).min()) > least


def test_dropout_does_not_depend_on_the_rows_around() -> None:
    encoder = new_encoder(read_config({"model_type": "deberta-v2", **SHAPE, **VERSION_3}), seed=1).train()
    first, second = (random_batch([length], seed, num_segments=1) for seed, length in enumerate((9, 30)))
    ids = torch.cat([first.token_ids, second.token_ids]).numpy()
    both = Batch.from_flat(ids, np.zeros_like(ids), (9, 30))
    together = encoder(both, noise=RowNoise(3, 5, [0, 1]))
    alone = [encoder(batch, noise=RowNoise(3, 5, [row])) for row, batch in enumerate((first, second))]
    torch.testing.assert_close(together, torch.cat(alone))
    assert not torch.equal(together, encoder(both))


def test_the_published_configurations_are_read() -> None:
    base = read_config(PUBLISHED)
    assert base == DebertaConfig.named("base")
    wide = {"hidden_size": 1536, "num_attention_heads": 24, "num_hidden_layers": 24, "intermediate_size": 6144}
    convolution = {"conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 64}
    large = read_config({**PUBLISHED, **wide, **convolution})
    theirs = transformers.AutoConfig.for_model(**{**PUBLISHED, **wide, **convolution})
    with torch.device("meta"):
        expected = sum(values.numel() for values in transformers.DebertaV2Model(theirs).parameters())
    assert large.num_parameters(pooler=False) == expected
    assert "relative positions, a convolution" in large.shape_in_words
    assert DebertaConfig.from_dict(large.to_dict()) == large


REFUSED = {
    "embedding_size": (16, "expected embedding_size 32"),
    "attention_head_size": (16, "expected attention_head_size 8"),
    "conv_kernel_size": (4, "expected an odd conv_kernel_size, or 0; found 4"),
    "conv_groups": (2, "expected conv_groups 1"),
    "pos_att_type": ("c2p|p2p", "unknown pos_att_type 'p2p'"),
    "norm_rel_ebd": ("batch_norm", "unknown norm_rel_ebd 'batch_norm'"),
    "position_buckets": (1, "expected position_buckets from 2 on"),
    "max_relative_positions": (5, "with a max_relative_positions above half of them; found 8 and 5"),
    "pooler_hidden_act": ("mish", "unknown pooler_hidden_act 'mish'"),
    "type_vocab_size": (-1, "type_vocab_size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_not_followed_are_one_line(name: str) -> None:
    value, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        read_config({"model_type": "deberta-v2", **SHAPE, **VERSION_3, name: value})


@pytest.mark.usefixtures("quiet_transformers")
def test_the_masked_lm_head_is_read_under_both_names_and_written_under_the_new_ones(tmp_path: Path) -> None:
    theirs = write_peer(tmp_path / "old", "deberta-v2", "ForMaskedLM", legacy=True).double()
    stored = load_file(tmp_path / "old/model.safetensors")
    assert "cls.predictions.bias" in stored
    convert(tmp_path / "old", tmp_path / "new", to="huggingface")
    assert json.loads((tmp_path / "new/config.json").read_text())["legacy"] is False
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "new").double().eval()
    inputs = peer_tokenizer("deberta-v2")("the film was [MASK]", return_tensors="pt")
    torch.testing.assert_close(again(**inputs).logits, theirs(**inputs).logits, rtol=0, atol=1e-5)
    # A folder of version 3 says nothing of its head, and has another one, and sometimes a table that is not used.
    tensors = load_file(tmp_path / "new/model.safetensors")
    tensors["mask_predictions.dense.weight"] = torch.zeros(32, 32)
    tensors["mask_predictions.classifier.bias"] = torch.zeros(1)
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(64, 32)
    save_file(tensors, tmp_path / "new/model.safetensors", {"format": "pt"})
    change_json(tmp_path / "new/config.json", legacy=None, architectures=None)
    folder = load_any(tmp_path / "new")
    assert folder.parts == ("mlm",)
    assert sorted(folder.report.skipped.values()) == [
        "a table that this configuration computes",
        *["the head that detects replaced tokens"] * 2,
    ]


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.parametrize("labels", [1, 3])
def test_a_reranker_or_an_entailment_model_gives_the_scores_of_transformers(labels: int, tmp_path: Path) -> None:
    changes = {"id2label": dict(enumerate(("contradiction", "entailment", "neutral")))} if labels == 3 else {}
    theirs = write_peer(tmp_path, "deberta-v2", "ForSequenceClassification", num_labels=labels, **changes)
    pairs = [("the film was great .", "it was good"), ("anna", "the man was in rome ?")]
    inputs = peer_tokenizer("deberta-v2")(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    inputs.pop("token_type_ids")
    with torch.no_grad():
        logits = theirs(**inputs).logits
    model = bertsmith.load(tmp_path, device="cpu", precision="fp32")
    if labels == 1:
        scores = [prediction.value for prediction in model.score(pairs)]
        np.testing.assert_allclose(scores, logits.sigmoid()[:, 0].numpy(), rtol=0, atol=1e-5)
        assert sorted(model.rerank(pairs[0][0], [second for _, second in pairs])) != []
        return
    predictions = model.classify(pairs)
    assert {prediction.label for prediction in predictions} <= {"contradiction", "entailment", "neutral"}
    np.testing.assert_allclose(
        [prediction.probabilities for prediction in predictions], logits.softmax(-1).numpy(), rtol=0, atol=1e-5
    )


def test_the_pooler_has_its_own_activation_and_dropout(tmp_path: Path) -> None:
    peer_tokenizer("deberta-v2").save_pretrained(tmp_path)
    pieces = len(tokenizer_of("deberta-v2").vocabulary)
    theirs = peer(
        tmp_path,
        "ForSequenceClassification",
        pooler_hidden_act="tanh",
        pooler_dropout=0.5,
        num_labels=3,
        vocab_size=pieces,
    )
    head = Head(part="classifier", outputs=3, pooled=True)
    model = load_for_task(load_any(tmp_path), head, keep_head=True).model.double().eval()
    batch = random_batch([5, 9], num_segments=1)
    torch.testing.assert_close(model(batch), theirs(**padded(batch)).logits, rtol=0, atol=1e-5)
    no_other_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "cls_dropout": 0.0}
    change_json(tmp_path / "config.json", **no_other_dropout)
    model = load_for_task(load_any(tmp_path), head, keep_head=True).model
    assert not torch.equal(model(batch, noise=RowNoise(0, 0, [0, 1])), model(batch))
    change_json(tmp_path / "config.json", pooler_dropout=0.0)
    model = load_for_task(load_any(tmp_path), head, keep_head=True).model
    assert torch.equal(model(batch, noise=RowNoise(0, 0, [0, 1])), model(batch))


def test_a_decoder_is_refused_on_a_convolution_and_compilation_on_any() -> None:
    encoder = new_encoder(read_config({"model_type": "deberta-v2", **SHAPE, "conv_kernel_size": 3}))
    with pytest.raises(
        ConfigError, match="an encoder without a convolution, to add a decoder; found conv_kernel_size 3"
    ):
        Decoder(encoder, 0, torch.nn.Identity())
    with pytest.raises(ConfigError, match="the layers of BERT, to compile them; found DeBERTa"):
        compile_layers(new_encoder(config_of("deberta-v2")), "cpu")


def test_the_samples_have_rows_beyond_their_buckets() -> None:
    config = config_of("deberta-v2")
    assert config.farthest < config.max_tokens
    assert tokenizer_of("deberta-v2").template.second_segment == 1
