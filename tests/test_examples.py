"""The examples at small settings: each runs without a network, and shows what it says it shows."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.py"))


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with the name that the test gives, imported as it imports what it shares with the others."""
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location(f"example_{request.param}", EXAMPLES / f"{request.param}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["01_text_to_model"], indirect=True)
def test_from_a_text_to_a_model_that_fills_a_gap(example, tmp_path, capsys):
    """S38, S43."""
    scores, best, chances = example.main(tmp_path, steps=60, documents=300)
    assert scores["held_out_mlm_loss"] < scores["held_out_unigram_entropy"]
    assert len(best) == len(example.GAPS)
    assert all(0 < chance < 1 for chance in chances)
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert example.GAPS[0] in capsys.readouterr().out


@pytest.mark.parametrize("example", ["02_why_masks"], indirect=True)
def test_without_masks_both_sides_make_the_loss_vanish_and_teach_nothing(example):
    """S44, S55."""
    found = example.main(steps=100, sentences=2000)
    leak, twin, masked = found["both sides, no masks"], found["left-to-right"], found["masked"]
    assert leak[0] < 0.3 < min(twin[0], masked[0])
    assert leak[1] > max(twin[1], masked[1]) + 0.3


@pytest.mark.parametrize("example", ["03_positions"], indirect=True)
def test_positions_matter_where_order_does(example):
    """S18, S19, S21."""
    found = example.main(seeds=1, kinds=("absolute", "none"))
    assert found["animals", "absolute"][0, 1] > found["animals", "none"][0, 1] + 0.2
    assert found["shopping", "absolute"][0, 1] == pytest.approx(found["shopping", "none"][0, 1], abs=0.05)


@pytest.mark.parametrize("example", ["03_positions"], indirect=True)
def test_only_a_model_without_positions_takes_words_for_a_bag(example):
    """S21."""
    differences = {kind: example.bag_difference(kind) for kind in example.KINDS}
    assert differences["none"] < 1e-5 < 1e-2 < min(differences["absolute"], differences["sinusoidal"])


@pytest.mark.parametrize("example", ["04_attention"], indirect=True)
def test_the_weights_that_are_shown_make_a_weighted_sum(example, capsys):
    """S07, S15, S22, S23."""
    attentions = example.main(steps=20, documents=100)
    assert [rows[0].shape for rows in attentions] == [(2, 15, 15)] * 2
    for rows in attentions:
        torch.testing.assert_close(rows[0].sum(-1), torch.ones(2, 15))
    printed = capsys.readouterr().out.splitlines()
    by_name = {line[:10].strip(): line[10:].split() for line in printed[:4]}
    assert by_name["token"][0] == "[CLS]"
    assert by_name["segment id"] == ["0"] * 8 + ["1"] * 7
    assert by_name["position"] == [str(place) for place in range(15)]
    assert len(printed[-15:]) == 15
    assert all("%" in line for line in printed[-15:])


def test_a_village_has_verbs_that_agree(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    toy = importlib.import_module("toy")
    for sentences in toy.village(50, np.random.default_rng(1)):
        several = " they " in sentences[1]
        assert all(sentence.split()[2].endswith("s") != several for sentence in sentences)


def test_every_example_is_documented():
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    assert SCRIPTS
    assert all(f"examples/{script.name}" in page for script in SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs_as_a_program(script):
    command = [sys.executable, "-W", "error", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout
