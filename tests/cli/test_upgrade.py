"""What changes with a new model: answers of every kind of task, scores, search results, and the gate of the server."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.app.library.upgrade import Upgrade, upgrade
from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.metrics.uncertainty import proportion_interval
from bertsmith.tasks.specs.kinds import task_for
from cli.test_predicting import write_model
from tasks.task_samples import SPECS, WORDS, write_base_model

TEXTS = [f"{first} film {second}" for first in WORDS[:7] for second in WORDS[:7]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upgrade")


@pytest.fixture(scope="module")
def old(folder: Path) -> Path:
    return write_model(folder / "old", "single")


@pytest.fixture(scope="module")
def new(folder: Path, old: Path) -> Path:
    """The old model with a bias that changes some of its answers."""
    answers = bertsmith.load(old, device="cpu").classify(TEXTS)
    logits = np.log([answer.probabilities for answer in answers])
    bias = float(np.median(logits[:, 0] - logits[:, 1]))
    return write_model(folder / "new", "single", (0.0, bias))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def test_changed_answers_are_counted_and_listed_the_most_confident_first(old: Path, new: Path, texts: Path) -> None:
    result = bertsmith.upgrade(old, new, texts, device="cpu")
    before, after = (bertsmith.load(model, device="cpu").classify(TEXTS) for model in (old, new))
    differs = [a.label != b.label for a, b in zip(before, after, strict=True)]
    assert 0 < sum(differs) < len(TEXTS)
    answers = result.report["answers"]
    assert (answers["changed"], answers["examples"]) == (sum(differs), len(TEXTS))
    assert answers["interval"] == list(proportion_interval(sum(differs), len(TEXTS)))
    assert [change["changed"] for change in result.changes] == sorted(differs, reverse=True)
    moved = [change["moved"] for change in result.changes if change["changed"]]
    assert moved == sorted(moved, reverse=True)
    first = TEXTS.index(result.changes[0]["text"])
    assert (result.changes[0]["old"], result.changes[0]["new"]) == (before[first].label, after[first].label)
    assert result.report["labels"] == {"missing": [], "added": []}
    assert "'" in result.report["without_scores"]
    assert result.report["cost"]["old"]["bytes"] == (old / "model.safetensors").stat().st_size


def test_a_model_against_itself_changes_nothing(run, old: Path, texts: Path) -> None:
    shown = run("upgrade", old, old, "--on", texts, "--most", "0", "--json").succeeds()
    report = json.loads(shown.out)
    assert (report["answers"]["changed"], report["answers"]["share"]) == (0, 0.0)
    assert {change["moved"] for change in report["changes"]} == {0.0}


def test_labels_give_scores_and_a_paired_test(run, old: Path, new: Path, tmp_path: Path) -> None:
    table = tmp_path / "labelled.csv"
    labels = [answer.label for answer in bertsmith.load(old, device="cpu").classify(TEXTS)]
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, labels, strict=True)])
    shown = run("upgrade", old, new, "--on", table, "--most", "0.01", "--out", tmp_path / "out")
    assert shown.code == 1
    assert "more than 1.0% of the answers change" in shown.out
    scores = json.loads((tmp_path / "out" / "upgrade.json").read_text())["scores"]
    assert (scores["old"], scores["compared"]) == (1.0, "right answers")
    assert scores["difference"] == pytest.approx(scores["new"] - 1)
    assert scores["p_value"] < 0.05
    with open(tmp_path / "out" / "changes.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(TEXTS)
    assert "Upgrade of a model" in (tmp_path / "out" / "report.html").read_text()
    again = run("upgrade", old, new, "--on", table, "--out", tmp_path / "out")
    assert "one that is not empty" in again.err


LINES = {
    "several labels": "the film",
    "number": "the film",
    "choice": "the film\ta\tgood day",
    "tags": "anna in rome",
    "answer or none": "who was\tthe film was in rome",
    "text to write": "the film",
    "sentences of a text": "The film was. A plot was. Anna.",
    "pronoun": '{"text": "anna was good , who", "pronoun": [16, 19], "candidates": [[0, 4]]}',
}


@pytest.mark.parametrize("kind", LINES)
def test_every_kind_of_task_is_compared(kind: str, tmp_path: Path) -> None:
    models = [write_model(tmp_path / name, kind) for name in ("old", "new")]
    texts = tmp_path / ("texts.jsonl" if LINES[kind].startswith("{") else "texts.txt")
    texts.write_text(f"{LINES[kind]}\n" * 2)
    result = upgrade(*models, on=texts, device="cpu")
    assert (result.report["answers"]["examples"], result.share) == (2, 0.0)


def test_numbers_change_by_more_than_a_tenth_of_their_deviation(tmp_path: Path, texts: Path) -> None:
    model = write_model(tmp_path / "old", "number")
    deviation = float(np.std([answer.value for answer in bertsmith.load(model, device="cpu").score(TEXTS)]))
    for name, share, expected in (("near", 0.05, 0.0), ("far", 0.2, 1.0)):
        other = write_model(tmp_path / name, "number", (share * deviation,))
        assert upgrade(model, other, on=texts, device="cpu").share == expected


def test_search_results_of_encoders_are_compared(tmp_path: Path, texts: Path, run) -> None:
    first = write_base_model(tmp_path / "first")
    encoder = load_for_task(load_any(first), task_for(SPECS["single"]).head, keep_head=False, seed=3).model
    with np.errstate(all="ignore"):
        for parameter in encoder.encoder.parameters():
            parameter.data += 0.3 * parameter.data.abs().mean() * (parameter.data > 0)
    folder = load_any(first)
    save_pretrained(tmp_path / "second", encoder, folder.tokenizer, folder.metadata, trained=())
    index = tmp_path / "index.safetensors"
    run("search", texts, "--model", first, "--query", "film", "--index", index).succeeds()
    same = upgrade(first, first, on=texts, index=index, device="cpu")
    assert (same.report["searches"]["overlap"], same.share, same.report["index"]) == (1.0, 0.0, [])
    other = upgrade(first, tmp_path / "second", on=texts, index=index, device="cpu")
    assert other.report["searches"]["queries"] == len(TEXTS)
    assert other.report["searches"]["overlap"] < 1
    assert other.report["index"] == ["model"]
    assert "the index has to be rebuilt: another model" in other.lines()
    run("index", texts, "--model", first, "--out", tmp_path / "index").succeeds()
    assert upgrade(first, first, on=texts, index=tmp_path / "index", device="cpu").report["index"] == []
    other = upgrade(first, tmp_path / "second", on=texts, index=tmp_path / "index", device="cpu")
    assert other.report["index"] == ["model"]
    run("index", texts, "--model", first, "--pooling", "cls", "--out", tmp_path / "of cls").succeeds()
    assert upgrade(first, first, on=texts, index=tmp_path / "of cls", device="cpu").report["index"] == []
    np.save(tmp_path / "vectors.npy", np.eye(3))
    run("index", tmp_path / "vectors.npy", "--out", tmp_path / "of vectors").succeeds()
    with pytest.raises(BertsmithError, match="an index that records its model"):
        upgrade(first, first, on=texts, index=tmp_path / "of vectors", device="cpu")


def test_models_of_different_tasks_are_refused(old: Path, texts: Path, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", "number")
    with pytest.raises(BertsmithError, match=r"a model for classification in .*; found one for regression"):
        upgrade(old, other, on=texts, device="cpu")


def test_a_model_is_served_in_place_of_another_only_if_few_answers_change(
    run, old: Path, new: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra serve")
    served: list[Any] = []
    monkeypatch.setattr("bertsmith.app.server.process._Server.run", lambda self, sockets: served.append(sockets))
    # It closes the handlers of all loggers, and absl's closes the stream that pytest captures.
    monkeypatch.setattr("uvicorn.Config.configure_logging", lambda self: None)
    asked = ("serve", "--port", "0", "--device", "cpu", "--on", texts)
    refused = run(*asked, "--model", f"reviews={new}", "--replace", old)
    assert (refused.code, served) == (1, [])
    assert "expected at most 10.0% of the answers" in refused.err
    allowed = run(*asked, "--model", f"reviews={new}", "--model", old, "--replace", f"reviews={old}", "--most", "1")
    assert (allowed.code, len(served)) == (0, 1), allowed.err
    alone = run(*asked, "--model", new)  # for reloads
    assert (alone.code, len(served)) == (0, 2), alone.err
    assert "`most` needs" in run(*asked[:-2], "--model", new, "--most", "1").err.replace("--most", "`most`")
    assert "expected one --model NAME=DIR" in run(*asked, "--model", new, "--model", old, "--replace", old).err


def test_what_is_printed_is_in_the_report() -> None:
    report = {"most": None, "searches": {"share": 0.5, "interval": [0.1, 0.9], "overlap": 0.5, "top": 1, "queries": 2}}
    cost = {"one": 1.0, "batch": 0.5, "bytes": None}
    result = Upgrade(report={**report, "index": [], "cost": {"old": cost, "new": cost}}, changes=[])
    assert "the index can stay" in result.lines()
    assert result.passes
