"""Reading and writing Google's checkpoints without TensorFlow."""

import dataclasses
import json
import shutil

import pytest
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError, VocabularyError
from bertsmith.models.checkpoints.google import (
    OptimizerState,
    _open,
    find_prefix,
    google_config,
    read_google,
    read_optimizer,
    write_google,
)
from bertsmith.models.checkpoints.huggingface import read_model_folder, write_model_folder
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.layers import sinusoidal_positions
from bertsmith.models.tensorflow_files.tensor_bundle import TensorBundle, write_bundle
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import PIECES, tiny_tensors

FILES = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")


def equal(tensors: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return set(tensors) == set(other) and all(torch.equal(tensors[name], other[name]) for name in tensors)


def moments(config: BertConfig, *parts: str) -> OptimizerState:
    return OptimizerState(
        first=tiny_tensors(config, *parts, seed=1), second=tiny_tensors(config, *parts, seed=2), step=1000
    )


@pytest.fixture
def folder(tmp_path, config, tensors, tokenizer):
    state = moments(config, "pooler", "mlm", "nsp")
    write_google(tmp_path / "google", config=config, tensors=tensors, tokenizer=tokenizer, optimizer=state)
    return tmp_path / "google"


def test_a_checkpoint_is_read_back_bit_for_bit(folder, config, tensors, tokenizer):
    model = read_google(folder)
    assert model.config == config
    assert equal(model.tensors, tensors)
    assert (model.tokenizer.vocabulary, model.tokenizer.rules) == (tokenizer.vocabulary, tokenizer.rules)
    assert model.parts == ("pooler", "mlm", "nsp")


def test_every_variable_is_accounted_for(folder, tensors):
    report = read_google(folder).report
    assert len(report.mapped) == len(tensors)
    assert sorted(set(report.skipped.values())) == ["a counter of the optimizer", "optimizer state"]
    assert len(report.skipped) == 2 * len(tensors) + 1
    assert (report.unknown, report.missing) == ((), ("classifier", "span"))
    assert f"skipped: 1 a counter of the optimizer, {2 * len(tensors)} optimizer state" in report.lines()


def test_optimizer_state_is_read_back(folder, config):
    state, expected = read_optimizer(folder), moments(config, "pooler", "mlm", "nsp")
    assert equal(state.first, expected.first)
    assert equal(state.second, expected.second)
    assert state.step == 1000


def test_a_checkpoint_without_optimizer_state_has_an_empty_one(tmp_path, config, tensors):
    write_google(tmp_path / "x", config=config, tensors=tensors, tokenizer=None)
    state = read_optimizer(tmp_path / "x")
    assert (state.first, state.second, state.step) == ({}, {}, None)
    assert read_google(tmp_path / "x").report.notes == ("no vocab.txt next to the checkpoint",)


def test_google_to_ours_to_google_gives_the_same_bytes(folder, tmp_path):
    model = read_google(folder)
    write_google(
        tmp_path / "again",
        config=model.config,
        tensors=model.tensors,
        tokenizer=model.tokenizer,
        optimizer=read_optimizer(folder),
    )
    for name in (*FILES, "bert_config.json", "vocab.txt"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_google_to_hugging_face_and_back_gives_the_same_bytes(folder, tmp_path):
    model = read_google(folder)
    shared = {"config": model.config, "tokenizer": model.tokenizer}
    write_model_folder(tmp_path / "hf", tensors=model.tensors, **shared)
    back = read_model_folder(tmp_path / "hf")
    state = read_optimizer(folder)
    write_google(
        tmp_path / "again", config=back.config, tensors=back.tensors, tokenizer=back.tokenizer, optimizer=state
    )
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept(tmp_path, config, tensors, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    write_google(tmp_path / "x", config=config, tensors=tensors, tokenizer=None)
    assert equal(read_google(tmp_path / "x").tensors, tensors)


def test_variables_are_stored_as_google_stores_them(folder, config, tensors):
    """Dense kernels as [in, out]; tables and the hand-made output matrices unchanged."""
    bundle = TensorBundle(folder / "bert_model.ckpt")
    kernel = bundle.read("bert/encoder/layer_1/intermediate/dense/kernel")
    assert torch.equal(kernel, tensors["bert.layers.1.intermediate.weight"].t())
    assert kernel.shape == (config.hidden_size, config.intermediate_size)
    assert torch.equal(bundle.read("cls/seq_relationship/output_weights"), tensors["nsp.weight"])
    assert torch.equal(bundle.read("bert/embeddings/word_embeddings"), tensors["bert.embeddings.word.weight"])
    assert bundle.read("global_step").dtype == torch.int64


@pytest.mark.parametrize(
    ("part", "variables"),
    [
        ("classifier", ("output_weights", "output_bias")),
        ("span", ("cls/squad/output_weights", "cls/squad/output_bias")),
    ],
)
def test_fine_tuned_heads_are_understood(tmp_path, config, tokenizer, part, variables):
    """The variables that run_classifier.py and run_squad.py write."""
    tensors = tiny_tensors(config, "pooler", part)
    info = {"labels": ["no", "maybe", "yes"]} if part == "classifier" else {}
    write_google(
        tmp_path / "x", config=config, tensors=tensors, tokenizer=tokenizer, metadata=ModelMetadata.from_dict(info)
    )
    assert set(variables) <= set(TensorBundle(tmp_path / "x" / "bert_model.ckpt").entries)
    model = read_google(tmp_path / "x")
    assert equal(model.tensors, tensors)
    assert model.parts == ("pooler", part)
    assert model.metadata.labels == tuple(info.get("labels", ()))


def test_unknown_variables_are_refused_unless_allowed(folder):
    bundle = TensorBundle(folder / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries}
    extra = {"my_head/kernel": torch.zeros(2, 2), "my_head/kernel/adam_m": torch.zeros(2, 2)}
    write_bundle(folder / "bert_model.ckpt", tensors | extra)
    with pytest.raises(CheckpointError, match="unknown my_head/kernel"):
        read_google(folder)
    report = read_google(folder, allow_unknown=True).report
    assert report.unknown == ("my_head/kernel",)
    assert report.skipped["my_head/kernel/adam_m"] == "optimizer state"


def test_all_faults_are_listed_at_once(folder, config):
    bundle = TensorBundle(folder / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries}
    del tensors["bert/embeddings/word_embeddings"], tensors["cls/predictions/output_bias"]
    tensors["bert/pooler/dense/kernel"] = torch.zeros(32, 31)
    write_bundle(folder / "bert_model.ckpt", tensors)
    with pytest.raises(CheckpointError) as caught:
        read_google(folder)
    for part in (
        "no bert/embeddings/word_embeddings",
        "no cls/predictions/output_bias",
        "bert/pooler/dense/kernel is [32, 31] instead of",
    ):
        assert part in str(caught.value)


def test_the_configuration_is_googles_plus_fields_that_differ_from_defaults(config):
    assert set(google_config(config)) == {
        "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range",
        "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
        "type_vocab_size", "vocab_size",
    }  # fmt: skip
    other = dataclasses.replace(config, layer_norm_eps=1e-5, hidden_act="gelu_new")
    assert BertConfig.from_dict(google_config(other)) == other


def test_computed_positions_are_written_out_as_a_table(tmp_path, config):
    """Other code only has learned positions; it gets the numbers that we compute."""
    config = dataclasses.replace(config, position_embedding_type="sinusoidal")
    tensors = tiny_tensors(config, "pooler")
    write_google(tmp_path / "x", config=config, tensors=tensors, tokenizer=None)
    table = TensorBundle(tmp_path / "x" / "bert_model.ckpt").read("bert/embeddings/position_embeddings")
    assert torch.equal(table, sinusoidal_positions(40, 32))
    model = read_google(tmp_path / "x")
    assert model.config == config
    assert equal(model.tensors, tensors)
    assert "a table that this configuration computes" in model.report.skipped.values()


def test_a_left_to_right_model_is_not_written(tmp_path, config, tensors):
    with pytest.raises(ConfigError, match="is_causal"):
        write_google(
            tmp_path / "x", config=dataclasses.replace(config, is_causal=True), tensors=tensors, tokenizer=None
        )


def test_a_checkpoint_is_found_by_folder_prefix_or_file(folder, tensors):
    prefix = folder / "bert_model.ckpt"
    for source in (folder, str(folder), prefix, *(folder / name for name in FILES), folder / "bert_model.ckpt.meta"):
        assert find_prefix(source) == prefix
        assert equal(read_google(source).tensors, tensors)


def copy_as(folder, name):
    for file in FILES:
        shutil.copy(folder / file, folder / file.replace("bert_model.ckpt", name))


def test_one_of_several_checkpoints_is_chosen_by_name_and_never_guessed(folder):
    for name in ("model.ckpt-500", "model.ckpt-1000"):
        copy_as(folder, name)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1000"\nall_model_checkpoint_paths: "x"\n')
    assert find_prefix(folder).name == "model.ckpt-1000"
    (folder / "checkpoint").write_bytes(b"\xff\xfe nonsense")
    assert find_prefix(folder).name == "bert_model.ckpt"
    assert find_prefix(folder / "model.ckpt-500").name == "model.ckpt-500"
    for file in FILES:
        (folder / file).unlink()
    with pytest.raises(InputError, match=r"found model.ckpt-1000, model.ckpt-500; choose one"):
        find_prefix(folder)
    for file in FILES:
        (folder / file.replace("bert_model.ckpt", "model.ckpt-1000")).unlink()
    assert find_prefix(folder).name == "model.ckpt-500"
    with pytest.raises(InputError, match="a checkpoint"):
        find_prefix(folder.parent)


def test_an_object_graph_of_tensorflow_2_is_recognized(tmp_path):
    """hf#8055: such names are paths of objects in the program that wrote them."""
    name = "model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    write_bundle(
        tmp_path / "ckpt-1", {name: torch.zeros(2), "save_counter/.ATTRIBUTES/VARIABLE_VALUE": torch.tensor(1)}
    )
    with pytest.raises(CheckpointError, match="object-graph checkpoint of TensorFlow 2"):
        read_google(tmp_path)


def test_the_configuration_is_passed_or_must_exist(folder, config, tensors):
    (folder / "bert_config.json").unlink()
    with pytest.raises(InputError, match=r"configuration of a Google checkpoint at .*bert_config.json"):
        read_google(folder)
    assert equal(read_google(folder, config=config).tensors, tensors)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_configuration_is_one_error(folder, content):
    (folder / "bert_config.json").write_text(content)
    with pytest.raises(InputError, match=r"bert_config.json"):
        read_google(folder)


def test_rules_come_from_the_caller_the_metadata_or_the_vocabulary(folder):
    assert read_google(folder, rules=TextRules.google()).tokenizer.rules == TextRules.google()
    (folder / "bertsmith.json").unlink()
    model = read_google(folder)
    assert not model.tokenizer.rules.lowercase
    assert "no file says how text is cleaned" in model.report.notes[0]


def test_a_checkpoint_without_metadata_is_read_by_the_rules_of_the_original_code(folder):
    (folder / "bertsmith.json").unlink()
    assert read_google(folder).tokenizer.rules == TextRules.google(lowercase=False)


def test_a_vocabulary_of_the_wrong_size_is_refused(folder, config, tensors):
    Vocabulary(PIECES[:-1]).save(folder / "vocab.txt")
    with pytest.raises(VocabularyError, match=f"expected {len(PIECES)} pieces"):
        read_google(folder)
    with pytest.raises(VocabularyError, match=f"expected {len(PIECES)} pieces"):
        write_google(
            folder.parent / "x", config=config, tensors=tensors, tokenizer=WordPieceTokenizer(Vocabulary(PIECES[:-1]))
        )


def test_damaged_values_are_refused_unless_not_verified(folder):
    path = folder / FILES[1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="do not match their checksum"):
        read_google(folder)
    assert read_google(folder, verify=False).parts == ("pooler", "mlm", "nsp")


def test_moments_of_another_shape_are_refused(folder):
    bundle = TensorBundle(folder / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries}
    write_bundle(folder / "bert_model.ckpt", tensors | {"bert/pooler/dense/bias/adam_m": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"adam_m with the shape of its parameter"):
        read_optimizer(folder)


def test_a_model_that_does_not_fit_its_configuration_is_not_written(tmp_path, config, tensors):
    with pytest.raises(CheckpointError, match=r"no mlm.bias"):
        write_google(
            tmp_path / "x",
            config=config,
            tensors={name: tensor for name, tensor in tensors.items() if name != "mlm.bias"},
            tokenizer=None,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_real_checkpoint_round_trips_byte_for_byte(real_data, tmp_path):
    """Written by TensorFlow: 2 layers, width 4, both heads, optimizer state, global step 20."""
    source = real_data / "checkpoints" / "keras-bert-test_checkpoint"
    model = read_google(source)
    assert (len(model.report.mapped), len(model.report.skipped), model.report.unknown) == (46, 93, ())
    write_model_folder(tmp_path / "hf", config=model.config, tensors=model.tensors, tokenizer=model.tokenizer)
    back = read_model_folder(tmp_path / "hf")
    write_google(
        tmp_path / "google",
        config=back.config,
        tensors=back.tensors,
        tokenizer=back.tokenizer,
        optimizer=read_optimizer(source),
    )
    for name in FILES:
        assert (tmp_path / "google" / name).read_bytes() == (source / name).read_bytes()
    assert read_optimizer(source).step == 20
    values = json.loads((source / "bert_config.json").read_text())
    assert google_config(model.config).items() <= values.items()


def test_real_checkpoints_without_data_are_accounted_for(real_data):
    for name, count in (("google-bert-medium-index-only", 142), ("google-chinese-base-index-only", 206)):
        source = real_data / "checkpoints" / name
        report = _open(source, None, False)[2].report
        assert (len(report.mapped), report.skipped, report.unknown) == (count, {}, ())
        with pytest.raises(InputError, match="found no such file"):
            read_google(source)
