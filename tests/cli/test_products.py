"""--products as a user types it: named on stderr, recorded where numbers are kept, the same answers in fp32."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith.base.machine.runtime import BATCH_TOLERANCE, can_pack, choose_inference
from cli.test_predicting import write_model

DEFAULT = "packed" if can_pack("cpu", "fp32") else "plain"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A text, a table of labelled texts and a classifier."""
    text, table = tmp_path / "texts.txt", tmp_path / "texts.csv"
    text.write_text("the film was good .\nanna , in rome\n", encoding="utf-8")
    table.write_text("text,label\nthe film was good,positive\nthe plot was bad,negative\n", encoding="utf-8")
    return {"text": text, "table": table, "classifier": write_model(tmp_path / "classifier", "single")}


def numbers(value: object) -> list[float]:
    """All numbers in parsed JSON, in order."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize("name", ["predict", "fill", "next", "search", "ask", "rank"])
def test_plain_products_give_the_same_answers_and_are_named(
    name: str, run, model: Path, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    commands: dict[str, list[object]] = {
        "predict": ["predict", "--model", files["classifier"]],
        "fill": ["fill", "--model", model, "the man went to the [MASK] ."],
        "next": ["next", "--model", model, "the man", "he bought"],
        "search": ["search", files["text"], "--model", model, "--query", "film"],
        "ask": ["ask", tmp_path / "reader", files["text"], "who ?"],
        "rank": ["rank", files["classifier"], files["text"], "--label", "positive"],
    }
    command = commands[name]
    if name == "ask":
        write_model(tmp_path / "reader", "answer")
    stdin = b"the film was good\n" if name == "predict" else b""
    answers = {}
    for products in ("auto", "plain"):
        result = run(*command, "--json", "--products", products, stdin=stdin).succeeds()
        assert ("products: plain" in result.err) == (products == "plain")
        answers[products] = numbers([json.loads(line) for line in result.out.splitlines()])
    assert answers["plain"]
    np.testing.assert_allclose(answers["plain"], answers["auto"], rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)


def test_evaluate_says_how_linear_layers_were_computed(run, files: dict[str, Path]) -> None:
    for products, used in (("auto", DEFAULT), ("plain", "plain")):
        command = ["evaluate", "--model", files["classifier"], "--data", files["table"], "--products", products]
        assert run(*command).out.splitlines()[0].endswith(f": 2 examples, fp32 ({used} products)")
        assert json.loads(run(*command, "--json").out)["products"] == used


@pytest.mark.parametrize("command", ["embed", "features"])
def test_requested_products_are_recorded_with_vectors(
    command: str, run, model: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    """A record without them is one of an automatic choice."""
    made, vectors = {}, {}
    for products in ("auto", "plain"):
        out = tmp_path / f"{products}.npy"
        run(command, files["text"], "--model", model, "--out", out, "--products", products).succeeds()
        made[products] = json.loads(out.with_name(f"{out.name}.json").read_text())["made_of"]
        vectors[products] = np.load(out)
    assert "products" not in made["auto"]
    assert made["plain"] == {**made["auto"], "products": "plain"}
    np.testing.assert_allclose(vectors["plain"], vectors["auto"], rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    other = run(command, files["text"], "--model", model, "--out", tmp_path / "plain.npy", "--resume")
    assert other.code == 1


def test_unfinished_predictions_are_resumed_with_the_same_products_only(
    run, files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "answers.jsonl"
    command = ["predict", "--model", files["classifier"], "--out", out, "--products", "plain"]
    failed = run(*command, stdin=b"the film was good\n{\n")
    assert failed.code == 1
    state = json.loads((tmp_path / "answers.jsonl.partial.json").read_text())
    assert state["made_of"]["products"] == "plain"
    lines = b"the film was good\nanna\n"
    refused = run(*command[:-2], "--resume", stdin=lines)
    assert (refused.code, "the models and options" in refused.err) == (1, True)
    run(*command, "--resume", stdin=lines).succeeds()
    assert len(out.read_text().splitlines()) == 2


@pytest.mark.skipif(choose_inference("cpu", "int8").precision != "int8", reason="this processor has no int8")
def test_int8_with_plain_products_has_one_scale_per_token(run, model: Path, tmp_path: Path) -> None:
    texts, out = tmp_path / "many.txt", tmp_path / "x.npy"
    texts.write_text("".join(f"the man went to {number}\n" for number in range(40)), encoding="utf-8")
    run("quantize", "--model", model, "--data", texts, "--limit", 1).succeeds()
    made = {}
    for products in ("auto", "plain"):
        command = ["embed", texts, "--model", model, "--out", out, "--precision", "int8", "--replace"]
        run(*command, "--products", products).succeeds()
        made[products] = json.loads(out.with_name("x.npy.json").read_text())["made_of"]["int8"]
    assert made["plain"] == made["auto"][:1]
    assert made["auto"][1].startswith("sha256:")


def test_an_unknown_choice_is_refused(run, model: Path) -> None:
    refused = run("fill", "--model", model, "the [MASK]", "--products", "fast")
    assert (refused.code, "auto, packed or plain" in refused.err) == (1, True)
