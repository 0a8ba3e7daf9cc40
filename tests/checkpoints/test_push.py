"""Models that are uploaded to the hub, which is a server on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

import bertsmith
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError
from bertsmith.base.core.progress import recorded_warnings
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from checkpoints.hub_server import Hub, running

NAME = "someone/my-model"
TOKEN = "hf_secret"
ENDPOINT = constants.ENDPOINT


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    """A hub without models, and a user who is logged in there."""
    hub = Hub()
    hub.received = tmp_path / "received"
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running(hub, monkeypatch):
        yield hub


@pytest.fixture
def folder(tmp_path, config, tensors, tokenizer) -> Path:
    write_model_folder(tmp_path / "run" / "model", config=config, tensors=tensors, tokenizer=tokenizer)
    return tmp_path / "run" / "model"


def content(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def test_a_folder_arrives_whole_in_a_private_repository_and_loads_from_there(hub, folder, tmp_path, monkeypatch):
    (folder / ".hidden").touch()
    (folder / "onnx").mkdir()
    (folder / "onnx" / "notes.txt").write_text("read me")
    assert bertsmith.push_to_hub(folder.parent, NAME) == f"{hub.endpoint}/{NAME}"
    sent = content(folder)
    del sent[".hidden"]
    assert content(hub.models[NAME]) == {**sent, ".gitattributes": b""}
    assert hub.visibility == {NAME: "private"}
    assert hub.tokens - {""} == {f"Bearer {TOKEN}"}
    monkeypatch.setattr(constants, "ENDPOINT", ENDPOINT)  # of which the addresses of downloads are made
    loaded = load_any(NAME, cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert loaded.tensors.keys() == load_any(folder).tensors.keys()


def test_a_public_repository_is_asked_for(hub, folder):
    bertsmith.push_to_hub(folder, NAME, public=True)
    assert hub.visibility == {NAME: "public"}


def test_a_repository_with_a_model_is_overwritten_only_on_request_and_loses_nothing(hub, folder):
    bertsmith.push_to_hub(folder, NAME)
    (hub.models[NAME] / "of_others.txt").touch()
    (folder / "README.md").write_text("---\nlicense: mit\n---\nNew.", encoding="utf-8")
    card = (hub.models[NAME] / "README.md").read_bytes()
    with pytest.raises(ConfigError, match=r"a new or empty repository 'someone/my-model'.*`replace=True`"):
        bertsmith.push_to_hub(folder, NAME)
    assert (hub.models[NAME] / "README.md").read_bytes() == card
    with recorded_warnings() as warnings:
        bertsmith.push_to_hub(folder, NAME, replace=True, public=True)
    assert warnings == ["'someone/my-model' exists, so it stays as visible as it is; its page has a setting for that"]
    assert content(hub.models[NAME]) == {**content(folder), ".gitattributes": b"", "of_others.txt": b""}


def test_an_upload_that_failed_is_taken_up_and_large_files_are_not_sent_again(hub, folder):
    hub.refusal = ("/commit/main", 500, "out of order")
    with pytest.raises(InputError, match=r"status 500.*try again later"):
        bertsmith.push_to_hub(folder, NAME)
    assert list(content(hub.models[NAME])) == [".gitattributes"]
    hub.refusal = None
    hub.asked.clear()
    bertsmith.push_to_hub(folder, NAME)
    assert not any(path.startswith("/large/") for path in hub.asked)
    assert content(hub.models[NAME]) == {**content(folder), ".gitattributes": b""}


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (("/create", 401, "Invalid username or password."), "status 401: .*log in again with `hf auth login`"),
        (("/create", 403, "You don't have the rights"), "status 403: .*a token that may write to 'someone/my-model'"),
        (("/validate-yaml", 400, "license must be one of"), "license must be one of.*correct the card"),
    ],
)
def test_what_the_hub_refuses_is_one_line_without_the_token(hub, folder, refusal, message):
    hub.refusal = refusal
    with pytest.raises(InputError, match=message) as caught:
        bertsmith.push_to_hub(folder, NAME)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert not any(file != ".gitattributes" for path in hub.models.values() for file in content(path))


def test_a_remark_of_the_hub_about_the_card_is_a_warning(hub, folder):
    hub.remark = "empty or missing yaml metadata in repo card"
    with recorded_warnings() as warnings:
        bertsmith.push_to_hub(folder, NAME)
    assert [hub.remark in line for line in warnings] == [True]


@pytest.mark.parametrize(
    "name", ["model", "someone/", "a/b/c", "someone/a model", "someone/my--model", "someone/m.git"]
)
def test_a_name_that_no_repository_can_have_is_refused_before_anything_is_asked(hub, folder, name):
    with pytest.raises(ConfigError, match="expected OWNER/NAME as the repository"):
        bertsmith.push_to_hub(folder, name)
    assert hub.asked == []


def test_a_folder_that_should_not_be_shared_is_refused_before_anything_is_asked(hub, folder, tmp_path):
    def refused(error: type[BertsmithError], message: str, path: Path = folder) -> None:
        with pytest.raises(error, match=message):
            bertsmith.push_to_hub(path, NAME)

    card = (folder / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: [\n---\n", encoding="utf-8")
    refused(InputError, "README.md' is not a model card: .*correct the lines between ---")
    (folder / "README.md").unlink()
    refused(InputError, "there is no model card '.*README.md'; write one")
    (folder / "README.md").write_text(card, encoding="utf-8")
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")
    refused(CheckpointError, "different or missing ones: model.safetensors")
    refused(InputError, "is not a model folder: it has no config.json", tmp_path)
    assert hub.asked == []


def test_without_a_token_or_a_network_nothing_is_sent(hub, folder, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "no-tokens"))
    with pytest.raises(ConfigError, match="a token of the hub; found none; log in with `hf auth login`"):
        bertsmith.push_to_hub(folder, NAME)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="OfflineModeIsEnabled"):
        bertsmith.push_to_hub(folder, NAME)
    assert hub.asked == []
