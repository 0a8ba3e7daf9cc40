"""Models of a running server that are loaded again: no request is lost, and none is answered by two of them."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.library.record_models import RecordModel
from bertsmith.app.server.process import _compared, _reloaded
from bertsmith.app.server.settings import ServeRequest
from bertsmith.base.core.errors import ConfigError, InputError
from server.asgi import Client, serve, until
from server.models import FakeModel, write_task_model
from server.test_process import Server, started
from tasks.task_samples import SPECS
from written_files import file_with

KEY = "0123456789abcdef"
BEARER = {"authorization": f"Bearer {KEY}"}


class NewModel(FakeModel):
    """A model whose vectors are the lengths of the texts, times ten."""

    def compute(self, ability: str, texts: Any) -> Any:
        return 10 * super().compute(ability, texts)


async def embedded(client: Client, *texts: str) -> list[float]:
    reply = await client.post("/v1/embeddings", {"input": list(texts)}, BEARER)
    assert reply.status == 200, reply
    return [item["embedding"][0] for item in reply.json["data"]]


def test_a_request_that_has_begun_is_finished_by_the_old_model_and_the_next_one_begins_with_the_new() -> None:
    old, new = FakeModel(), NewModel()
    loaded: list[Mapping[str, Any]] = []

    def load(served: Mapping[str, Any]) -> Mapping[str, Any]:
        loaded.append(served)
        return {"fake": new}

    async def script(client: Client) -> None:
        assert (await client.get("/health")).json == {"status": "ok"}
        old.let.clear()
        begun = asyncio.ensure_future(embedded(client, *["aaaa"] * 5))  # more than one batch
        waits = asyncio.ensure_future(embedded(client, "bb"))
        await until(lambda: old.began.acquire(blocking=False))
        reply = await client.post("/reload", {}, BEARER)
        assert (reply.status, reply.json["reload"]["state"]) == (200, "done")
        assert await embedded(client, "ccc") == [30]
        assert not begun.done()
        old.let.set()
        assert await begun == [4] * 5
        assert await waits == [2]
        assert (await client.get("/health")).json["reload"]["state"] == "done"
        queue = client.app.service.hosts.all[0].work
        assert queue.models == {"fake": new}

    serve({"fake": old}, script, KEY, None, None, load, batch_tokens=8)
    assert loaded == [{"fake": old}]
    assert new.calls == [["ccc"]]


def test_the_old_model_stays_if_loading_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def load(served: Mapping[str, Any]) -> Mapping[str, Any]:
        raise InputError(expected="a model", found="none", fix="train one")

    async def script(client: Client) -> None:
        reply = await client.post("/reload", {}, BEARER)
        assert reply.status == 422
        assert reply.error == "the old models stay: expected a model; found none; train one"
        assert (await client.get("/health")).json["reload"]["state"] == "failed"
        assert await embedded(client, "ccc") == [3]

    serve({"fake": FakeModel()}, script, KEY, None, None, load)
    assert "reload failed, the old models stay: expected a model" in capsys.readouterr().err


def test_a_mistake_of_ours_while_loading_is_logged_and_the_old_model_stays(caplog: pytest.LogCaptureFixture) -> None:
    def load(served: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ZeroDivisionError

    async def script(client: Client) -> None:
        with pytest.raises(ZeroDivisionError):
            await client.post("/reload", {}, BEARER)
        caplog.clear()
        await asyncio.wait([client.app.reload.begin()])  # as after SIGHUP
        assert "reload failed, the old models stay" in caplog.text
        assert "ZeroDivisionError" in caplog.text
        assert (await client.get("/health")).json["reload"]["state"] == "failed"
        assert await embedded(client, "ccc") == [3]

    serve({"fake": FakeModel()}, script, KEY, None, None, load)


def test_models_are_loaded_once_at_a_time_and_only_with_the_key() -> None:
    async def script(client: Client) -> None:
        begun = client.app.reload.begin()
        assert (await client.post("/reload", {}, BEARER)).status == 409
        await begun
        assert (await client.post("/reload", {})).status == 401

    serve({"fake": FakeModel()}, script, KEY, None, None, lambda served: served)

    async def without(client: Client) -> None:
        reply = await client.post("/reload", {})
        assert reply.status == 403
        assert "SIGHUP" in reply.error

    serve({"fake": FakeModel()}, without, None, None, None, lambda served: served)


def replaced(folder: Path, other: Path) -> None:
    """Puts another folder in place of one, at once."""
    folder.rename(folder.with_name("old"))
    shutil.copytree(other, folder.with_name("copy"))
    folder.with_name("copy").rename(folder)
    shutil.rmtree(folder.with_name("old"))


def test_a_model_that_answers_too_differently_is_refused_against_the_one_that_is_served(tmp_path: Path) -> None:
    model, other = (write_task_model(tmp_path / name, SPECS["single"]) for name in ("model", "other"))
    texts = file_with(tmp_path / "texts.txt", "the film\na plot\nthe man\n")
    request = ServeRequest(model=[f"m={model}"], on=texts, most=0.0, device="cpu")
    served = _reloaded(ServeRequest(model=[f"m={model}"], device="cpu"), {})
    assert _reloaded(request, served).keys() == {"m"}
    tensors = (other / "model.safetensors").read_bytes()
    (other / "model.safetensors").write_bytes(_turned(tensors))
    replaced(model, other)
    with pytest.raises(ConfigError, match=r"at most 0\.0% of the answers of the served model to change.*100\.0%"):
        _reloaded(request, served)
    with pytest.raises(ConfigError, match="one --model"):
        _reloaded(ServeRequest(model=[f"m={model}", f"n={model}"], on=texts, device="cpu"), {**served, "n": None})


def test_a_model_of_records_cannot_be_compared_on_texts() -> None:
    request = ServeRequest(model=["m=model"], on="texts.txt")
    records = RecordModel(name="m", task="codes", table={}, hooked=(), device="cpu")
    with pytest.raises(ConfigError, match="a model of texts, to be compared on --on; found 'm'"):
        _compared(request, {"m": records})


def _turned(data: bytes) -> bytes:
    """The weights of a classifier of two labels whose answers are the other ones."""
    from safetensors.torch import load, save

    tensors = load(data)
    return save({name: -part if name.startswith("classifier") else part for name, part in tensors.items()})


def test_a_folder_that_is_replaced_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bertsmith.app.server import process

    model, other = (write_task_model(tmp_path / name, SPECS["single"]) for name in ("model", "other"))
    load = process.load_models

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        replaced(model, other)
        return load(*arguments, **options)

    monkeypatch.setattr(process, "load_models", meanwhile)
    with pytest.raises(ConfigError, match="stays as it is while it is read"):
        _reloaded(ServeRequest(model=[str(model)], device="cpu"), {})


def said(server: Server, words: bytes) -> bytes:
    """The first line on stderr with these words."""
    assert server.process.stderr is not None
    return next(line for line in server.process.stderr if words in line)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_process_reloads_on_sighup(tmp_path: Path) -> None:
    model, other = (write_task_model(tmp_path / name, SPECS["single"]) for name in ("model", "other"))
    (other / "model.safetensors").write_bytes(_turned((other / "model.safetensors").read_bytes()))
    key = file_with(tmp_path / "key", f"{KEY}\n")
    with started("--model", f"m={model}", "--device", "cpu", "--api-key-file", key) as server:
        body = {"texts": ["the film"]}
        _, before = server.ask("POST", "/predict", body, **BEARER)
        replaced(model, other)
        server.process.send_signal(signal.SIGHUP)
        assert b"reloaded m" in said(server, b"reload")
        _, after = server.ask("POST", "/predict", body, **BEARER)
        assert after["predictions"][0]["label"] != before["predictions"][0]["label"]
        (model / "config.json").write_text("{", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        assert b"the old models stay" in said(server, b"reload")
        assert server.ask("POST", "/predict", body, **BEARER) == (200, after)
        assert server.ask("POST", "/reload", {}, **BEARER)[0] == 422
        status, health = server.ask("GET", "/health")
        assert (status, health["reload"]["state"]) == (200, "failed")
        assert server.end()[0] == 0
