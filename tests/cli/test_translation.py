"""The commands train-translation and translate."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith.recipes.translation.decoding import translate
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.settings import SearchSettings


def test_a_model_is_trained_on_pairs_and_translates_lines(run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [" ".join(rng.choice(list("abcdef"), 3)) for _ in range(40)]
    for name, part in (("pairs", rows[:30]), ("dev", rows[30:])):
        (tmp_path / f"{name}.tsv").write_text(
            "".join(f"{letters}\t{letters[::-1]}\n" for letters in part), encoding="utf-8"
        )
    out = tmp_path / "run"
    options = ("--dev", tmp_path / "dev.tsv", "--pieces", 11, "--steps", 4, "--rows-per-step", 8, "--device", "cpu")
    trained = run("train-translation", tmp_path / "pairs.tsv", "--out", out, *options, "--precision", "fp32").succeeds()
    assert "held_out_bleu" in trained.out
    assert trained.out.endswith(f"model: {out / 'model'}\n")

    result = run("translate", "--model", out, "--longer", 3, "--device", "cpu", stdin=b"a b c\n\nd e\n").succeeds()
    model, tokenizer = read_translation_model(out)
    expected = translate(model, tokenizer, ["a b c", "", "d e"], SearchSettings(longer=3))
    assert result.out.splitlines() == [translation.text for translation in expected]
    lines = run("translate", "--model", out, "--json", "--beam", 1, "--device", "cpu", stdin=b"a b c\n")
    (translation,) = translate(model, tokenizer, ["a b c"], SearchSettings(beam=1))
    assert json.loads(lines.out) == {
        "text": translation.text,
        "score": translation.score,
        "has_ended": translation.has_ended,
    }
    unended = sum(not translation.has_ended for translation in expected)
    assert ("not ended by the model" in result.err) == (unended > 0)
    assert ("with text got an empty translation" in result.err) == any(not expected[index].text for index in (0, 2))

    again = run("train-translation", "--out", out, "--resume", "--steps", 9)
    assert (again.code, "--resume with --out alone" in again.err) == (1, True)
    run("train-translation", "--out", out, "--resume").succeeds()


def test_an_lstm_is_trained_resumed_and_translates_by_the_same_commands(run, tmp_path: Path) -> None:
    rows = ["a b c\tc b a", "a b\tb a", "b c\tc b", "c a b\tb a c"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    out, options = tmp_path / "run", ("--pieces", 8, "--device", "cpu", "--precision", "fp32")
    chosen = ("--architecture", "lstm", "--score", "concat", "--steps", 3, "--rows-per-step", 4)
    run("train-translation", tmp_path / "pairs.tsv", "--out", out, *options, *chosen).succeeds()
    config = json.loads((out / "model/config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["score"]) == ("lstm", "concat")
    result = run("translate", "--model", out, "--longer", 2, "--device", "cpu", stdin=b"a b c\n\n").succeeds()
    model, tokenizer = read_translation_model(out)
    expected = translate(model, tokenizer, ["a b c", ""], SearchSettings(longer=2))
    assert result.out.splitlines() == [translation.text for translation in expected]
    run("train-translation", "--out", out, "--resume").succeeds()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--score", "dot"), "no score for the architecture 'transformer'"),
        (("--architecture", "lstm", "--positions", "none"), "no positions for the architecture 'lstm'"),
        (("--architecture", "lstm", "--score", "cosine"), "unknown score"),
        (("--architecture", "gru"), "unknown architecture 'gru'; use one of 'lstm', 'transformer'"),
    ],
)
def test_options_of_the_other_architecture_and_unknown_ones_are_refused_in_one_line(run, tmp_path, options, message):
    (tmp_path / "pairs.tsv").write_text("a\tb\n", encoding="utf-8")
    run("train-translation", tmp_path / "pairs.tsv", "--out", tmp_path / "run", "--steps", 1, *options).refuses(message)
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_said_in_one_line(run, tmp_path: Path) -> None:
    run("train-translation", "--out", tmp_path / "run", "--steps", 1).refuses("a file of pairs")
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\n", encoding="utf-8")
    broken = run("train-translation", tmp_path / "pairs.tsv", "--out", tmp_path / "run", "--steps", 1)
    assert "line 2 of" in broken.err
    assert not (tmp_path / "run").exists()
    absent = run("translate", "--model", tmp_path / "nothing", stdin=b"a\n")
    assert (absent.code, "the configuration of a translation model" in absent.err) == (1, True)
