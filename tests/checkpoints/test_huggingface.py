"""Reading and writing Hugging Face folders; transformers agrees with our files, number by number."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError, VocabularyError
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.huggingface import read_model_folder, write_model_folder
from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, EncoderForTask
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.part_names import plain
from bertsmith.tasks.datasets.examples import named_texts
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import PIECES, tiny_tensors

PRETRAINING = ("pooler", "mlm", "nsp")
ARCHITECTURES = [
    ("BertModel", ("pooler",), None),
    ("BertForPreTraining", PRETRAINING, None),
    ("BertForMaskedLM", ("mlm",), None),
    ("BertForNextSentencePrediction", ("pooler", "nsp"), None),
    ("BertForSequenceClassification", ("pooler", "classifier"), None),
    ("BertForTokenClassification", ("classifier",), None),
    ("BertForTokenClassification", ("pooler", "classifier"), "tagging"),
    ("BertForMultipleChoice", ("pooler", "classifier"), "choice"),
    ("BertForQuestionAnswering", ("span",), None),
]


def equal(ours: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return set(ours) == set(other) and all(torch.equal(ours[name], other[name]) for name in ours)


@pytest.fixture
def folder(tmp_path, config, tensors, tokenizer):
    write_model_folder(
        tmp_path / "model",
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        metadata=ModelMetadata.from_dict({"task": "mlm"}),
    )
    return tmp_path / "model"


def test_a_folder_is_read_back_bit_for_bit(folder, config, tensors, tokenizer):
    model = read_model_folder(folder, verify=True)
    assert model.config == config
    assert equal(model.tensors, tensors)
    assert (model.tokenizer.vocabulary, model.tokenizer.rules) == (tokenizer.vocabulary, tokenizer.rules)
    assert model.metadata.task == "mlm"
    assert model.parts == PRETRAINING
    assert (model.report.unknown, model.report.missing) == ((), ("classifier", "span"))
    assert model.report.lines()[-1] == "parts that this model does not have: classifier, span"
    assert len(model.report.mapped) == len(tensors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_is_kept_and_recorded(tmp_path, config, tensors, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    write_model_folder(tmp_path / "x", config=config, tensors=tensors, tokenizer=None)
    model = read_model_folder(tmp_path / "x")
    assert equal(model.tensors, tensors)
    assert "no vocabulary in the folder" in model.report.notes
    assert json.loads((tmp_path / "x" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize(("architecture", "parts", "task"), ARCHITECTURES)
def test_transformers_loads_every_kind_of_model_completely(
    tmp_path, config, tokenizer, quiet_transformers, architecture, parts, task
):
    """Nothing missing, nothing unexpected; and what it saves again is read here bit for bit."""
    import transformers

    labels = 1 if task == "choice" else 3
    info = {"task": task} if task else {}
    if "classifier" in parts and task != "choice":
        info["labels"] = ["red", "green", "blue"]
    tensors = tiny_tensors(config, *parts, labels=labels)
    write_model_folder(
        tmp_path / "ours", config=config, tensors=tensors, tokenizer=tokenizer, metadata=ModelMetadata.from_dict(info)
    )
    kind = getattr(transformers, architecture)
    # The class has a pooler only if its head needs one.
    model, loading = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    unused = {NAMES.to_huggingface(name) for name in tensors if "pooler" in name} if task == "tagging" else set()
    assert loading["missing_keys"] == loading["mismatched_keys"] == set()
    assert loading["unexpected_keys"] == unused
    assert model.config.architectures == [architecture]
    if "labels" in info:
        assert model.config.id2label == {0: "red", 1: "green", 2: "blue"}
    model.save_pretrained(tmp_path / "theirs")
    expected = {name: tensor for name, tensor in tensors.items() if NAMES.to_huggingface(name) not in unused}
    again = read_model_folder(tmp_path / "theirs")
    assert equal(again.tensors, expected)
    assert again.metadata.labels == tuple(info.get("labels", ()))
    ours, theirs = (set(load_file(tmp_path / name / "model.safetensors")) for name in ("ours", "theirs"))
    assert ours - unused == theirs


def test_auto_classes_find_the_model(folder, quiet_transformers):
    import transformers

    for auto, kind in (
        (transformers.AutoModel, transformers.BertModel),
        (transformers.AutoModelForMaskedLM, transformers.BertForMaskedLM),
        (transformers.AutoModelForPreTraining, transformers.BertForPreTraining),
    ):
        assert type(auto.from_pretrained(folder)) is kind
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("the Store, café") == ["the", "Store", ",", "café"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu_new"},
        {"hidden_act": "relu", "layer_norm_eps": 1e-5},
        {"position_embedding_type": "sinusoidal"},
        {"position_embedding_type": "none"},
        {"is_causal": True},
    ],
    ids=str,
)
def test_transformers_computes_the_same_numbers(tmp_path, config, quiet_transformers, changes):
    """exported = trained, for every option of the configuration."""
    import transformers

    config = dataclasses.replace(config, **changes)
    model = EncoderForPreTraining(new_encoder(config), seed=3).double()
    write_model_folder(tmp_path / "x", config=config, tensors=model.state_dict(), tokenizer=None)
    theirs = transformers.BertForPreTraining.from_pretrained(
        tmp_path / "x", dtype=torch.float64, attn_implementation="eager"
    ).eval()
    ids = np.random.default_rng(0).integers(5, config.vocab_size, 9)
    segments = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    batch = Batch.from_flat(ids, segments, [9])
    with torch.no_grad():
        ours = model(batch, masked=torch.arange(9), first=torch.tensor([0]))
        output = theirs(torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(segments)[None])
    torch.testing.assert_close(ours.mlm_logits, output.prediction_logits[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.nsp_logits, output.seq_relationship_logits, rtol=1e-10, atol=1e-10)
    back = read_model_folder(tmp_path / "x")
    assert back.config == config
    assert equal(back.tensors, model.state_dict())


def test_a_bare_encoder_is_written_without_the_prefix_and_read_with_it(tmp_path, config):
    tensors = tiny_tensors(config, "pooler")
    bare = {plain(name): tensor for name, tensor in tensors.items()}
    write_model_folder(tmp_path / "x", config=config, tensors=bare, tokenizer=None)
    assert not any(name.startswith("bert.") for name in load_file(tmp_path / "x" / "model.safetensors"))
    assert equal(read_model_folder(tmp_path / "x").tensors, tensors)


def rewrite(folder, change):
    stored = load_file(folder / "model.safetensors")
    change(stored)
    save_file(stored, folder / "model.safetensors")


def test_old_names_buffers_and_copies_are_understood(folder, tensors):
    def age(stored):
        for name in list(stored):
            if "LayerNorm" in name:
                stored[name.replace("weight", "gamma").replace("bias", "beta")] = stored.pop(name)
        stored["bert.embeddings.position_ids"] = torch.arange(40)[None]
        stored["cls.predictions.decoder.weight"] = stored["bert.embeddings.word_embeddings.weight"].clone()
        stored["cls.predictions.decoder.bias"] = stored["cls.predictions.bias"].clone()

    rewrite(folder, age)
    model = read_model_folder(folder)
    assert equal(model.tensors, tensors)
    assert set(model.report.skipped.values()) == {"a buffer, not a parameter", "a copy of a parameter"}


def test_an_untied_decoder_is_refused(folder):
    rewrite(folder, lambda stored: stored.update({"cls.predictions.decoder.weight": torch.zeros(len(PIECES), 32)}))
    with pytest.raises(CheckpointError, match=r"different values in cls.predictions.decoder.weight"):
        read_model_folder(folder)


def test_unknown_tensors_are_refused_unless_allowed(folder):
    rewrite(folder, lambda stored: stored.update({"adapter.weight": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match=r"unknown adapter.weight"):
        read_model_folder(folder)
    assert read_model_folder(folder, allow_unknown=True).report.unknown == ("adapter.weight",)


def test_quantized_weights_are_refused(folder):
    name = "bert.pooler.dense.weight"
    rewrite(folder, lambda stored: stored.update({name: stored[name].to(torch.int8)}))
    with pytest.raises(CheckpointError, match=r"bert.pooler.weight as int8"):
        read_model_folder(folder)


def test_a_model_that_does_not_fit_its_configuration_is_not_written(tmp_path, config, tensors, tokenizer):
    broken = {**tensors, "bert.pooler.bias": torch.zeros(3), "stranger": torch.zeros(2)}
    del broken["mlm.bias"]
    with pytest.raises(CheckpointError) as caught:
        write_model_folder(tmp_path / "x", config=config, tensors=broken, tokenizer=tokenizer)
    for part in ("no mlm.bias", "bert.pooler.bias is [3] instead of [32]", "stranger does not belong to any part"):
        assert part in str(caught.value)
    with pytest.raises(CheckpointError, match="3 labels, one for each row"):
        write_model_folder(
            tmp_path / "x",
            config=config,
            tensors=tiny_tensors(config, "pooler", "classifier"),
            tokenizer=tokenizer,
            metadata=ModelMetadata.from_dict({"labels": ["yes", "no"]}),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_kept_unless_replaced(folder, config, tensors, tokenizer):
    write = {"config": config, "tensors": tensors, "tokenizer": tokenizer}
    with pytest.raises(InputError, match="one that exists"):
        write_model_folder(folder, **write)
    write_model_folder(folder, **write, metadata=ModelMetadata.from_dict({"task": "new"}), replace=True)
    assert read_model_folder(folder).metadata.task == "new"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_write_that_fails_leaves_the_old_folder(folder, config, tensors, tokenizer, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bertsmith.models.checkpoints.huggingface.write_safetensors", full)
    with pytest.raises(OSError, match="No space left"):
        write_model_folder(folder, config=config, tensors=tensors, tokenizer=tokenizer, replace=True)
    assert equal(read_model_folder(folder, verify=True).tensors, tensors)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_vocabulary_of_the_wrong_size_is_refused(folder, config, tensors):
    """Section "bad input": loading it would give every word the vector of another."""
    short = WordPieceTokenizer(Vocabulary(PIECES[:-1]), TextRules())
    with pytest.raises(VocabularyError, match=f"expected {len(PIECES)} pieces"):
        write_model_folder(folder.parent / "x", config=config, tensors=tensors, tokenizer=short)
    short.vocabulary.save(folder / "vocab.txt")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(VocabularyError, match=f"found {len(PIECES) - 1}"):
        read_model_folder(folder)
    Vocabulary([*PIECES, "more"]).save(folder / "vocab.txt")
    with pytest.raises(VocabularyError, match=f"found {len(PIECES) + 1}"):
        read_model_folder(folder)


def test_a_word_table_may_have_more_rows_than_pieces_if_their_number_is_round(tmp_path, config, tokenizer):
    config = dataclasses.replace(config, vocab_size=-(-len(PIECES) // 64) * 64)
    assert config.vocab_size > len(PIECES)
    write_model_folder(tmp_path / "x", config=config, tensors=tiny_tensors(config), tokenizer=tokenizer)
    assert "never used" in read_model_folder(tmp_path / "x").report.notes[0]


def test_rows_beyond_the_pieces_are_read_and_never_predicted(tmp_path, config, tokenizer):
    """As after `resize_token_embeddings`; whatever the rows hold."""
    config = dataclasses.replace(config, vocab_size=len(PIECES) + 35)
    tensors = tiny_tensors(config, "mlm")
    tensors["mlm.bias"][len(PIECES) :] = 1000.0
    spare = WordPieceTokenizer(Vocabulary(PIECES, has_ids=True), tokenizer.rules)
    write_model_folder(tmp_path / "x", config=config, tensors=tensors, tokenizer=spare)
    notes = read_model_folder(tmp_path / "x").report.notes
    assert (
        notes[0] == f"the word table has {len(PIECES) + 35} rows for {len(PIECES)} pieces; the last 35 are never used"
    )
    ((filled,),) = load_pretraining_heads(tmp_path / "x").fill_texts(named_texts(["the [MASK]"]), top=len(PIECES))
    assert sorted(filling.piece for filling in filled) == sorted(PIECES)


def test_altered_files_are_noticed_when_verified(folder):
    rewrite(folder, lambda stored: stored.update({"cls.predictions.bias": torch.zeros(len(PIECES))}))
    assert read_model_folder(folder).tensors["mlm.bias"].sum() == 0
    with pytest.raises(CheckpointError, match=r"different or missing ones: model.safetensors"):
        read_model_folder(folder, verify=True)
    (folder / "bertsmith.json").unlink()
    with pytest.raises(CheckpointError, match="expected digests"):
        read_model_folder(folder, verify=True)


def test_weights_that_no_digest_covers_are_noticed_when_verified(folder):
    metadata = json.loads((folder / "bertsmith.json").read_text())
    del metadata["digests"]["model.safetensors"]
    (folder / "bertsmith.json").write_text(json.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"different or missing ones: model.safetensors"):
        read_model_folder(folder, verify=True)


@pytest.mark.parametrize("content", ['{"labels": 3}', '{"labels": [3]}', '{"task": ["x"]}', "[]", "{", "\x00"])
def test_damaged_metadata_is_one_error(folder, content):
    (folder / "bertsmith.json").write_text(content)
    with pytest.raises(InputError, match=r"bertsmith.json"):
        read_model_folder(folder)


def test_a_configuration_of_a_billion_layers_costs_nothing(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 10**9}))
    with pytest.raises(CheckpointError, match="tensors of 1000000000 layers"):
        read_model_folder(folder)


def test_metadata_of_a_later_format_is_refused(folder):
    metadata = json.loads((folder / "bertsmith.json").read_text())
    (folder / "bertsmith.json").write_text(json.dumps(metadata | {"format": 2}))
    with pytest.raises(InputError, match="format version 1"):
        read_model_folder(folder)


def test_labels_must_name_every_row_of_a_foreign_classifier(tmp_path, config):
    tensors = tiny_tensors(config, "pooler", "classifier")
    info = {"labels": ["a", "b", "c"]}
    write_model_folder(
        tmp_path / "x", config=config, tensors=tensors, tokenizer=None, metadata=ModelMetadata.from_dict(info)
    )
    (tmp_path / "x" / "bertsmith.json").unlink()
    assert read_model_folder(tmp_path / "x").metadata.labels == tuple(info["labels"])
    values = json.loads((tmp_path / "x" / "config.json").read_text())
    del values["id2label"]["1"]
    (tmp_path / "x" / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"labels 0 to 2 as id2label .*; found 0, 2;"):
        read_model_folder(tmp_path / "x")


@pytest.mark.parametrize(
    ("content", "error", "expected"),
    [
        (None, InputError, "the configuration of a model"),
        ("", InputError, "the configuration of a model"),
        ("{", InputError, "JSON in"),
        ("[]", InputError, "a JSON object in"),
        ("\x00\xff", InputError, "JSON in"),
        ("{}", ConfigError, "vocab_size in the configuration"),
        ('{"model_type": ["bert"]}', ConfigError, "a model_type among bert, distilbert, openai-gpt, roberta"),
        ('{"model_type": "gpt2"}', ConfigError, "a model_type among bert, distilbert, openai-gpt, roberta"),
    ],
)
def test_a_damaged_configuration_is_one_error(folder, content, error, expected):
    path = folder / "config.json"
    path.unlink() if content is None else path.write_text(content, encoding="latin-1")
    with pytest.raises(error, match=f"^expected {expected}"):
        read_model_folder(folder)


@pytest.mark.parametrize(
    "change", [{"hidden_size": 33}, {"num_hidden_layers": 0}, {"vocab_size": "many"}, {"hidden_act": []}]
)
def test_an_invalid_configuration_is_one_error(folder, change):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError):
        read_model_folder(folder)


def test_a_configuration_of_another_size_names_some_tensors_and_counts_the_others(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 64, "num_hidden_layers": 3}))
    with pytest.raises(CheckpointError) as caught:
        read_model_folder(folder)
    assert str(caught.value).count(" instead of [") == 3
    assert str(caught.value).count("no bert.encoder.layer.2.") == 3
    assert [f"and {rest} more" in str(caught.value) for rest in (13, 3)] == [True, True]
    assert len(str(caught.value)) < 1000


def test_a_real_bin_of_another_tool_is_read(real_data, quiet_transformers):
    import transformers

    source = real_data / "checkpoints" / "caikit-tiny-BertForSequenceClassification"
    model = read_model_folder(source)
    assert (len(model.tensors), len(model.report.skipped)) == (89, 1)
    assert model.config == dataclasses.replace(
        BertConfig(), vocab_size=1124, hidden_size=32, num_hidden_layers=5, num_attention_heads=4,
        intermediate_size=37, type_vocab_size=16,
    )  # fmt: skip
    theirs = transformers.AutoTokenizer.from_pretrained(source)
    text = "Hello, Wörld! unaffordable 中文"
    assert theirs(text, add_special_tokens=False)["input_ids"] == model.tokenizer.encode(text).tolist()


def test_other_files_in_a_folder_do_not_matter(folder):
    (folder / "README.md").write_text("A model.")
    shutil.copy(folder / "config.json", folder / "old_config.json")
    assert read_model_folder(folder, verify=True).parts == PRETRAINING


def test_non_finite_weights_are_listed_before_the_model_is_used(tmp_path, config, tensors, tokenizer):
    large = dict(tensors)
    large["mlm.norm.bias"] = torch.full_like(tensors["mlm.norm.bias"], 3e38)
    write_model_folder(tmp_path / "large", config=config, tensors=large, tokenizer=tokenizer)
    read_model_folder(tmp_path / "large")
    for value in (float("nan"), float("inf")):
        broken = {name: tensor.clone() for name, tensor in tensors.items()}
        for name in ("bert.layers.0.query.weight", "nsp.bias"):
            broken[name].view(-1)[0] = value
        folder = tmp_path / str(value)
        write_model_folder(folder, config=config, tensors=broken, tokenizer=tokenizer)
        with pytest.raises(CheckpointError, match=r"infinite or NaN values in .*query\.weight, nsp\.bias"):
            read_model_folder(folder)


@pytest.mark.parametrize("dropout", [None, 0.0, 0.3])
def test_the_dropout_of_a_classifier_is_that_of_config_json(tmp_path, config, quiet_transformers, dropout):
    import transformers

    config = dataclasses.replace(config, classifier_dropout=dropout)
    for head, architecture in (
        (Head(part="classifier", outputs=2, pooled=True), transformers.BertForSequenceClassification),
        (Head(part="classifier", outputs=2, pooled=False), transformers.BertForTokenClassification),
    ):
        folder = tmp_path / architecture.__name__
        model = EncoderForTask(new_encoder(config), head, seed=3)
        tensors = {name: value for name, value in model.state_dict().items() if head.pooled or "pooler" not in name}
        write_model_folder(folder, config=config, tensors=tensors, tokenizer=None)
        read = read_model_folder(folder).config
        assert read.classifier_dropout == dropout
        theirs = architecture.from_pretrained(folder)
        assert theirs.dropout.p == read.head_dropout("classifier", pooled=head.pooled)
        assert read.head_dropout("classifier", pooled=head.pooled) == (0.1 if dropout is None else dropout)
        assert read.head_dropout("span", pooled=False) == 0.0


@pytest.mark.parametrize("dropout", [-0.1, 1.0, "0.1"])
def test_a_dropout_of_a_classifier_that_is_no_fraction_is_refused(config, dropout):
    with pytest.raises(ConfigError, match=r"classifier_dropout (must|to) be "):
        dataclasses.replace(config, classifier_dropout=dropout)
