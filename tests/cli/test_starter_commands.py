"""The model in the package answers in the commands that take a model, without a network."""

import socket
from pathlib import Path

import numpy as np
import pytest

import bertsmith

TEXTS = "The old judge painted the map.\nA sailor forgot her lamp.\nThe rain fell on the harbour.\n"
TRAINING = ["--epochs", 1, "--seeds", 1, "--out", "out"]
ROWS = "text,label\n" + "".join(f"{TEXTS.splitlines()[n % 3]} {n},{'ab'[n % 2]}\n" for n in range(24))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("expected no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "texts.txt").write_text(TEXTS, encoding="utf-8")
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["fill", "--model", "starter", "the [MASK] of england ."], "0."),
        (["inputs", "--model", "starter", "The map ."], "map"),
        (["search", "texts.txt", "--model", "starter", "--query", "weather at sea", "--top", 1], "harbour"),
        (["contexts", "--model", "starter", "map", "The old map.", "He painted the map."], "0."),
        (["inspect", "starter"], "parameters"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_that_print(run, folder: Path, command: list[object], printed: str) -> None:
    run(*command).succeeds(printed)


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["embed", "texts.txt", "--model", "starter", "--out", "out.npy"], "out.npy"),
        (["features", "texts.txt", "--model", "starter", "--out", "out.jsonl"], "out.jsonl"),
        (["vectors", "static", "--model", "starter", "--out", "out"], "out"),
        (["convert", "starter", "out"], "out"),
        (["finetune", "--model", "starter", "--task", "classification", "--train", "rows.csv", *TRAINING], "out/model"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_that_write(run, folder: Path, command: list[object], written: str) -> None:
    run(*command).succeeds()
    file = folder / written
    assert (file / "model.safetensors" if file.is_dir() else file).stat().st_size > 0


def test_a_corpus_and_more_pre_training(run, folder: Path) -> None:
    run("corpus", "texts.txt", "--model", "starter", "--out", "corpus").succeeds()
    run("pretrain", "corpus", "--init", "starter", "--steps", 1, "--out", "out").succeeds()


def test_vectors_are_those_of_the_library(run, folder: Path) -> None:
    run("embed", "texts.txt", "--model", "starter", "--out", "out.npy").succeeds()
    vectors = bertsmith.load("starter", device="cpu").embed(TEXTS.splitlines())
    np.testing.assert_allclose(np.load(folder / "out.npy"), vectors, rtol=0, atol=1e-5)


def test_next_says_that_it_was_not_trained_for_it(run, folder: Path) -> None:
    run("next", "--model", "starter", "He sat down .", "Then he ate .").refuses("nsp head")
