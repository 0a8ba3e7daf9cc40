"""Models from the hub, which is a server on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from bertsmith.base.core.errors import InputError
from bertsmith.models.checkpoints import published_models
from bertsmith.models.checkpoints.hub import is_hub_id, model_name, require_source, resolve
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.published_models import PUBLISHED_MODELS, local_copies
from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.row_json import TOKENIZER_FILES
from bertsmith.models.model_files.tokenizer_files import read_pipeline
from checkpoints.gliner_folders import MARKS, tokenizer_there, write_gliner
from checkpoints.gliner_folders import encoder_of as gliner_encoder
from checkpoints.hub_server import Hub, running
from tasks.architecture_samples import tokenizer_of, write_byte_level

ID = "google-bert/bert-base-uncased"


@pytest.fixture
def hub(monkeypatch, tmp_path, config, tensors, tokenizer) -> Iterator[Hub]:
    """A hub with one model."""
    hub = Hub()
    write_model_folder(tmp_path / "there", config=config, tensors=tensors, tokenizer=tokenizer)
    (tmp_path / "there" / "tf_model.h5").write_bytes(b"unwanted")
    (tmp_path / "there" / "README.md").write_text("unwanted")
    hub.models[ID] = tmp_path / "there"
    with running(hub, monkeypatch):
        yield hub


def test_ids_and_paths_are_distinguished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_id(ID)
    for text in ("model", "/model", "./a/b", "a/b/c", "../a", "a/", "a/b c", "a/b\n", "", "a/..", "C:\\a"):
        assert not is_hub_id(text), text
    (tmp_path / "runs").mkdir()
    assert not is_hub_id("runs/modle"), "a typo next to an existing folder is not a reason to contact a server"
    (tmp_path / "google-bert" / "bert-base-uncased").mkdir(parents=True)
    assert not is_hub_id(ID), "a path that exists is a path"
    assert resolve(ID) == Path(ID)


def test_a_model_is_fetched_once_and_then_read_from_the_cache(hub, tmp_path, tensors):
    cache = tmp_path / "cache"
    model = load_any(ID, cache=cache, endpoint=hub.endpoint)
    assert all(torch.equal(model.tensors[name], tensors[name]) for name in tensors)
    fetched = {path.rsplit("/", 1)[1] for path in hub.asked if "/resolve/" in path}
    assert fetched == {
        "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "bertsmith.json",
    }  # fmt: skip
    hub.asked.clear()
    again = load_any(ID, cache=cache, endpoint=hub.endpoint, offline=True)
    assert (again.path, hub.asked) == (model.path, [])
    hub.server.shutdown()
    hub.server.server_close()
    assert load_any(ID, cache=cache, endpoint=hub.endpoint).path == model.path, "no network is not a reason to fail"


def test_the_pooling_of_sentence_transformers_is_fetched_too(hub, tmp_path):
    there = hub.models[ID]
    (there / "1_Pooling").mkdir()
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "1_Pooling/extra.bin"):
        (there / name).write_text("{}")
    folder = resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert (folder / "modules.json").is_file()
    assert (folder / "sentence_bert_config.json").is_file()
    assert [file.name for file in (folder / "1_Pooling").iterdir()] == ["config.json"]


@pytest.mark.parametrize("address", ["", "0_Transformer/"])
def test_every_file_that_a_tokenizer_is_read_from_is_fetched(hub, tmp_path, address):
    there = hub.models[ID] / address
    there.mkdir(exist_ok=True)
    for name in (*TOKENIZER_FILES, "chat_template.jinja", "tokenizer.model.bak"):
        (there / name).write_text("{}")
    if address:
        for name in ("config.json", "model.safetensors"):
            (there.parent / name).rename(there / name)
        (there.parent / "2_Dense").mkdir()
        (there.parent / "2_Dense" / "pytorch_model.bin").write_bytes(b"small")
    folder = resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint) / address
    names = {file.name for file in folder.iterdir()}
    assert names >= {*TOKENIZER_FILES, "config.json", "model.safetensors"}
    assert not names & {"chat_template.jinja", "tokenizer.model.bak"}
    assert not address or (folder.parent / "2_Dense" / "pytorch_model.bin").is_file()


def test_a_model_of_gliner_is_fetched_with_the_tokenizer_and_the_shape_of_its_encoder(hub, tmp_path):
    encoder, named = tmp_path / "encoder", "owner/encoder"
    tokenizer_there("bert").save_pretrained(encoder)
    gliner_encoder("bert").config.save_pretrained(encoder)
    (encoder / "pytorch_model.bin").write_bytes(b"not read")
    unknown = {"class_token_index": -1, "vocab_size": -1, "encoder_config": None}
    there = write_gliner(tmp_path / "there", model_name=named, **unknown)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (there / name).unlink()
    hub.models |= {named: encoder, "owner/spans": there}
    folder = load_any("owner/spans", cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert folder.require_tokenizer().vocabulary.pieces[-3:] == MARKS
    assert not any(path.endswith("pytorch_model.bin") for path in hub.asked)


def test_byte_pairs_without_a_tokenizer_file_are_read_as_from_a_local_folder(hub, tmp_path):
    there = hub.models[ID]
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (there / name).unlink()
    write_byte_level(there)
    (there / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    (there / "added_tokens.json").write_text(json.dumps({"[WORLD]": len(tokenizer_of("roberta").vocabulary)}))
    local, _ = read_pipeline(there, ModelMetadata())
    fetched, _ = read_pipeline(resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint), ModelMetadata())
    assert "[WORLD]" in local.tokenize("the [WORLD] film")
    assert fetched.tokenize("the [WORLD] film") == local.tokenize("the [WORLD] film")


def test_nothing_is_sent_about_the_machine(hub, tmp_path):
    resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert constants.HF_HUB_DISABLE_TELEMETRY
    assert hub.agents
    assert not any("torch" in agent for agent in hub.agents), hub.agents


def test_a_model_with_only_bin_weights_is_fetched_too(hub, tmp_path, tensors):
    folder = hub.models[ID]
    (folder / "model.safetensors").unlink()
    torch.save({NAMES.to_huggingface(name): tensor for name, tensor in tensors.items()}, folder / "pytorch_model.bin")
    model = load_any(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert all(torch.equal(model.tensors[name], tensors[name]) for name in tensors)


def test_a_model_without_weights_says_what_is_missing(hub, tmp_path):
    (hub.models[ID] / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no model.safetensors in the repository"):
        resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)


def test_a_model_that_is_not_on_the_hub_is_one_error(hub, tmp_path):
    with pytest.raises(InputError, match="a model 'nobody/nothing' on the hub, or a folder of that name"):
        resolve("nobody/nothing", cache=tmp_path / "cache", endpoint=hub.endpoint)


def test_a_hub_that_fails_is_one_error(hub, tmp_path):
    hub.broken = True
    with pytest.raises(InputError, match=f"'{ID}'"):
        resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)


def test_without_network_and_cache_the_error_says_how_to_get_the_model(tmp_path):
    """The test suite forbids the client all requests."""
    for offline in (True, False):
        with pytest.raises(InputError, match=f"no copy in the cache.*hf download {ID}"):
            resolve(ID, cache=tmp_path, offline=offline)


def test_a_misspelled_folder_is_named_instead_of_the_hub(hub, tmp_path, monkeypatch):
    (tmp_path / "my-mail-run/model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    meant = r"did you mean 'my-mail-run/model'\?$"
    with pytest.raises(InputError, match=meant) as failure:
        resolve("my-mail-rn/model", cache=tmp_path / "cache", offline=True)
    assert "hf download" not in str(failure.value)
    with pytest.raises(InputError, match=meant):
        resolve("my-mail-rn/modle", cache=tmp_path / "cache", endpoint=hub.endpoint)
    with pytest.raises(InputError, match=meant):
        resolve("my-mail-run/modle")
    with pytest.raises(InputError, match=f"did you mean '{tmp_path}/my-mail-run'"):
        resolve(tmp_path / "my-mall-run")
    with pytest.raises(InputError, match=r"did you mean 'starter'\?$"):
        resolve("startr")
    with pytest.raises(InputError, match=f"hf download {ID}"):
        resolve(ID, cache=tmp_path / "cache", offline=True)
    with pytest.raises(InputError, match=r"check the path$"):
        resolve("your-text")


def test_a_hub_that_cannot_be_reached_is_one_error(hub, tmp_path):
    hub.server.shutdown()
    hub.server.server_close()
    with pytest.raises(InputError, match=f"hub cannot be reached.*hf download {ID}"):
        resolve(ID, cache=tmp_path, endpoint=hub.endpoint)


def test_an_incomplete_cache_says_what_is_missing(hub, tmp_path):
    path = resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)
    (path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no model.safetensors in the cache.*hf download"):
        resolve(ID, cache=tmp_path / "cache", offline=True)


def test_a_cache_that_another_tool_filled_is_enough(hub, tmp_path):
    """transformers does not fetch vocab.txt if there is a tokenizer.json."""
    path = resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)
    for name in ("vocab.txt", "bertsmith.json", "special_tokens_map.json"):
        (path / name).unlink()
    model = load_any(ID, cache=tmp_path / "cache", offline=True)
    assert (model.path, len(model.tokenizer.vocabulary)) == (path, model.config.vocab_size)


def test_the_list_of_models_has_every_published_model_with_its_size():
    names, hub_ids = ({getattr(model, field) for model in PUBLISHED_MODELS} for field in ("name", "hub_id"))
    assert len(PUBLISHED_MODELS) == len(names) == len(hub_ids) == 38
    counts = {model.hub_id.removeprefix("google-bert/bert-"): model.num_parameters for model in PUBLISHED_MODELS}
    expected = {
        "base-uncased": 109_482_240, "base-cased": 108_310_272, "large-uncased": 335_141_888,
        "large-cased": 333_579_264, "base-multilingual-cased": 177_853_440, "base-multilingual-uncased": 167_356_416,
        "base-chinese": 102_267_648,
    }  # fmt: skip
    assert {name: counts[name] for name in expected} == expected
    assert published_models.find("uncased_L-8_H-512_A-8").num_parameters == 41_373_184
    assert published_models.find("nothing") is None
    assert {model.hub_id: model.num_parameters for model in published_models.SUCCESSORS} == {
        "distilbert/distilbert-base-uncased": 66_362_880, "distilbert/distilbert-base-cased": 65_190_912,
        "distilbert/distilbert-base-multilingual-cased": 134_734_080, "distilbert/distilroberta-base": 82_118_400,
        "FacebookAI/roberta-base": 124_645_632, "FacebookAI/roberta-large": 355_359_744,
    }  # fmt: skip
    assert all(is_hub_id(model.hub_id) for model in PUBLISHED_MODELS)


def test_local_copies_are_found_in_folders_and_in_the_cache(hub, tmp_path):
    assert local_copies(tmp_path, cache=tmp_path / "cache") == {}
    path = resolve(ID, cache=tmp_path / "cache", endpoint=hub.endpoint)
    (tmp_path / "uncased_L-2_H-128_A-2").mkdir()
    (tmp_path / "uncased_L-2_H-128_A-2" / "bert_model.ckpt.index").touch()
    assert local_copies(tmp_path, cache=tmp_path / "cache") == {
        "uncased_L-12_H-768_A-12": path,
        "uncased_L-2_H-128_A-2": tmp_path / "uncased_L-2_H-128_A-2",
    }


def test_the_name_of_a_model_on_disk_has_no_path(tmp_path: Path) -> None:
    for folder in ("runs/spam/model", "plain", "models--owner--name/snapshots/86b5f2"):
        (tmp_path / folder).mkdir(parents=True)
    assert model_name(tmp_path / "runs" / "spam" / "model") == "spam"
    assert model_name(tmp_path / "plain") == "plain"
    assert model_name(tmp_path / "models--owner--name" / "snapshots" / "86b5f2") == "owner/name"
    assert model_name(resolve("starter")) == "starter"
    assert model_name("owner/absent") == "owner/absent"


def test_a_source_may_be_whatever_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "bert_model.ckpt.index").touch()
    for source in (tmp_path / "bert_model.ckpt", tmp_path, "starter", "owner/name", "s3://bucket/model"):
        require_source(source)
    with pytest.raises(InputError, match="which does not exist"):
        require_source(tmp_path / "bert_modle.ckpt")


@pytest.mark.parametrize("inside", ["", "0_StaticEmbedding"])
def test_a_table_of_static_vectors_is_fetched_without_a_configuration(hub: Hub, tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "table"
    (folder / inside).mkdir(parents=True)
    modules = [{"path": inside, "type": "sentence_transformers.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / inside / "tokenizer.json").write_text("{}")
    (folder / inside / "model.safetensors").write_bytes(b"weights")
    hub.models["owner/table"] = folder
    fetched = resolve("owner/table", cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert (fetched / inside / "model.safetensors").read_bytes() == b"weights"
