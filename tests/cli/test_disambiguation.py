"""The commands disambiguate and gloss-pairs."""

import json
from pathlib import Path

import pytest

import bertsmith
from search.test_disambiguation import GLOSSES, model
from written_files import file_of_records

__all__ = ["model"]  # a fixture


def test_pairs_are_made_and_a_model_that_was_trained_on_them_chooses(run, model: Path, tmp_path: Path) -> None:
    senses = {"oslo-1": "anna who ?", "oslo-2": "where lima ."}
    rows = [
        {"lemma": "oslo", "pos": "n", "sense": sense, "text": f"{text} [[oslo]] {end}"}
        for end in ("", ".", "?", "rome")
        for sense, text in senses.items()
    ]
    words = file_of_records(tmp_path / "words.jsonl", [*rows, {"lemma": "oslo", "sense": "oslo-9", "text": "oslo"}])
    glosses = file_of_records(tmp_path / "glosses.jsonl", GLOSSES)
    pairs = tmp_path / "pairs.csv"
    made = run("gloss-pairs", words, "--glosses", glosses, "--out", pairs)
    assert made.out == f"{pairs}: 16 pairs, 8 of them yes\n"
    assert "1 example of 9 left out: their sense has no gloss" in made.err
    trained = run(
        "finetune", "--model", model, "--task", "classification", "--train", pairs, "--dev", pairs, "--epochs", 1,
        "--seeds", 1, "--no-baselines", "--out", tmp_path / "run", "--device", "cpu", "--max-length", 32,
    )  # fmt: skip
    assert trained.code == 0, trained.err
    file_of_records(words, rows)
    answered = run(
        "disambiguate", words, "--glosses", glosses, "--pair-model", tmp_path / "run", "--evaluate", "--device", "cpu",
        "--out", tmp_path / "answers.jsonl",
    )  # fmt: skip
    assert answered.out.startswith("F1 "), answered.err
    assert "without a model (most frequent or first sense): 0.5000" in answered.out
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["by"] for line in lines] == ["pairs"] * 8
    chance = bertsmith.load(tmp_path / "run", device="cpu").classify([('anna who ? "oslo" ', "oslo: anna who ?")])[0]
    expected = chance.probabilities[chance.labels.index("yes")]
    assert lines[0]["scores"]["oslo-1"] == pytest.approx(expected, abs=1e-5)
    shown = run("disambiguate", words, "--glosses", glosses, "--model", model, "--device", "cpu")
    assert shown.out.count("\n") == 8
    assert shown.out.split("\t")[0::4][0] == "1"
