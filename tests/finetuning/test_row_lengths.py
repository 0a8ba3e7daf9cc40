"""Rows with more tokens than the model has positions are refused by each command that takes their length."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import bertsmith
from bertsmith.app.library.estimators import BertsmithClassifier
from bertsmith.app.library.finetuning import finetune
from bertsmith.app.library.training import pretrain
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.vectors.loading import load_embedder, load_token_features
from bertsmith.recipes.adaptation.run import adapt, forecast_adaptation
from bertsmith.recipes.comparison.run import compare_systems
from bertsmith.text.corpus.build import build_corpus
from bertsmith.training.planning.run import plan_pretraining
from tasks.task_samples import CONFIG, TOKENIZER, examples_of, write_base_model

LIMIT = CONFIG.max_position_embeddings
TOO_LONG = LIMIT + 1


class Files(NamedTuple):
    model: Path
    text: Path
    corpus: Path
    table: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("files")
    write_base_model(folder / "model", 3)
    texts = [example.first for example in examples_of("single", 40, seed=2)]
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    build_corpus([folder / "text.txt"], TOKENIZER, folder / "corpus", held_out=0.05)
    rows = [f"{text},{'good' if number % 2 else 'bad'}" for number, text in enumerate(texts)]
    (folder / "table.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return Files(folder / "model", folder / "text.txt", folder / "corpus", folder / "table.csv")


def tuned(files: Files, out: Path, length: int) -> None:
    finetune(files.model, "classification", out, train=files.table, max_length=length, epochs=1)


def pretrained(files: Files, out: Path, length: int) -> None:
    pretrain(files.corpus, out, init=str(files.model), steps=1, max_length=length)


def planned(files: Files, out: Path, length: int) -> None:
    plan_pretraining(files.corpus, init=str(files.model), steps=1, max_length=length, device="h100")


def adapted(files: Files, out: Path, length: int) -> None:
    adapt(files.model, [files.text], out, steps=1, max_length=length)


def forecast(files: Files, out: Path, length: int) -> None:
    forecast_adaptation(files.model, [files.text], max_length=length)


def compared(files: Files, out: Path, length: int) -> None:
    compare_systems(files.table, out, systems=["tf-idf", str(files.model)], max_length=length)


def embedded(files: Files, out: Path, length: int) -> None:
    load_embedder(files.model, max_length=length)


def of_tokens(files: Files, out: Path, length: int) -> None:
    load_token_features(files.model, max_length=length)


def classified(files: Files, out: Path, length: int) -> None:
    BertsmithClassifier(files.model, out=out, max_length=length).fit(["a b", "b c"] * 4, ["yes", "no"] * 4)


@pytest.mark.parametrize(
    "command", [tuned, classified, pretrained, planned, adapted, forecast, compared, embedded, of_tokens]
)
def test_a_length_above_the_positions_is_refused(
    command: Callable[[Files, Path, int], Any], files: Files, tmp_path: Path
) -> None:
    said = rf"max_length of at most {LIMIT}, the positions of the model; found {TOO_LONG}; lower it; .*\w"
    with pytest.raises(ConfigError, match=said):
        command(files, tmp_path / "run", TOO_LONG)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("task", "fix"),
    [
        ("classification", 'use `long_text="windows"` or hierarchical for longer texts'),
        ("regression", 'use `long_text="windows"` for longer texts'),
        ("similarity", "longer texts are cut"),
    ],
)
def test_the_message_says_what_a_task_can_do_with_longer_texts(
    task: str, fix: str, files: Files, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    row = "a b,a c,{}" if task == "similarity" else "a b,{}"
    header = "sentence1,sentence2,score" if task == "similarity" else "text,label"
    table.write_text("\n".join([header, *(row.format(number % 2) for number in range(40))]), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"; lower it; {fix}"):
        finetune(files.model, task, tmp_path / "run", train=table, max_length=TOO_LONG)


def test_a_length_that_was_not_given_is_reduced_with_a_warning(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert LIMIT < 128
    finetune(files.model, "classification", tmp_path / "run", train=files.table, epochs=1, seeds=1, baselines=False)
    assert f"max_length reduced from 128 to {LIMIT}" in capsys.readouterr().err
    kept = read_json(tmp_path / "run" / "model" / "bertsmith.json")
    assert kept["spec"]["settings"]["max_length"] == LIMIT

    # A folder whose length was raised by hand is refused by everything that predicts with it.
    kept["spec"]["settings"]["max_length"] = TOO_LONG
    write_json(tmp_path / "run" / "model" / "bertsmith.json", kept)
    with pytest.raises(
        ConfigError, match=f"max_length of at most {LIMIT}, the positions of the model; found {TOO_LONG}"
    ):
        bertsmith.load(tmp_path / "run" / "model").predict(["a b"])
