"""The benchmark of text of a domain on made-up texts: cells once, gains by the paired test, the sentence for people."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from adaptation.domain_samples import DOMAIN, words, write_base
from bertsmith.training.planning import gains
from bertsmith.training.planning.gains import Gain, expected_gain
from tasks.task_samples import PLAIN
from written_files import file_with

ROOT = Path(__file__).parent.parent


def made_up(_: Path) -> tuple[list[str], list[tuple[str, str]], list[tuple[str, str]]]:
    """Documents, and rows to train on and to score, of a domain."""
    known = [*PLAIN, *DOMAIN]
    documents = ["\n".join(f"{words(10, 100 * n + k, known)} ." for k in range(4)) for n in range(80)]
    rows = [(f"{words(6, n, known)} {'good' if n % 2 else 'bad'}", "yes" if n % 2 else "no") for n in range(40)]
    return documents, rows[:24], rows[24:]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    result = importlib.import_module("own_text")
    monkeypatch.setattr(importlib.import_module("harness"), "RESULTS", tmp_path)
    monkeypatch.setattr(result, "RESULTS", tmp_path)
    monkeypatch.setattr(result, "DOMAINS", {"toys": made_up})
    monkeypatch.setattr(result, "FILE", tmp_path / "gains.tsv")
    return result


def test_cells_are_measured_once_and_the_table_is_made_of_them(script, tmp_path, monkeypatch):
    base = write_base(tmp_path / "base")
    command = ["--data", str(tmp_path), "--work", str(tmp_path / "work"), "--starter", str(base), "--out", "r"]
    command += ["--megabytes", "0.01", "--labels", "8", "--seeds", "1", "--domains", "toys", "--most-steps", "2"]
    arms = ["starter", "bag of words", "adapted starter"]
    cells = script.main([*command, "--arms", *arms])["cells"]
    assert [cell["arm"] for cell in cells.values()] == arms
    adapted = cells["toys, 0.01 MB x 1, adapted starter, 8 labels, seed 1"]
    assert adapted["rows"] == 16
    assert adapted["trained"].startswith("pre-training continued for 1 step")
    assert adapted["losses"]["after"]["per_word"] > 0
    for cell in cells.values():
        assert sum(script._right(cell)) / 16 == pytest.approx(cell["accuracy"], abs=1e-4)

    monkeypatch.setattr(script.bertsmith, "adapt", lambda *_, **__: pytest.fail("adapted twice"))
    del cells["toys, 0.01 MB x 1, adapted starter, 8 labels, seed 1"]
    (tmp_path / "r.json").write_text(json.dumps({"cells": cells}))
    again = script.main([*command, "--arms", *arms])["cells"]
    assert again["toys, 0.01 MB x 1, adapted starter, 8 labels, seed 1"]["right"] == adapted["right"]

    (tmp_path / "r.json").rename(tmp_path / "own_text_r.json")
    monkeypatch.setattr(script, "PAGE", page := file_with(tmp_path / "page.md", f"a\n{script.MARK}\n{script.END}\nz\n"))
    script.main(["--table"])
    first, _, _, header, _, row, _, _, last = page.read_text().splitlines()
    assert (first, header[:24], last) == ("a", "| pre-training on text o", "z")
    assert row.startswith("| adapted starter | 0.01 MB")
    (gain,) = gains.read_gains(tmp_path / "gains.tsv")
    assert (gain.arm, gain.labels, gain.domains, gain.seeds, gain.rows) == ("starter", 8, 1, 1, 16)
    assert gain.difference == pytest.approx(adapted["accuracy"] - cells["toys, starter, 8 labels, seed 1"]["accuracy"])
    assert gain.low <= gain.difference <= gain.high
    assert gain.words == adapted["words"]


def test_a_text_that_is_too_short_for_an_amount_is_left_out(script, tmp_path, capsys):
    command = ["--data", str(tmp_path), "--work", str(tmp_path / "work"), "--megabytes", "5", "--domains", "toys"]
    assert script.main([*command, "--arms", "new model", "--out", "r"])["cells"] == {}
    assert "toys-5: only 0.0 MB of text" in capsys.readouterr().out


def test_the_tables_of_the_package_and_of_the_page_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("own_text")
    measured = script.gains_of(script.all_cells().values())
    assert gains.FILE.read_text(encoding="utf-8") == gains.table_text(measured), "run own_text.py --table"
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.with_table(page, measured) == page, "run own_text.py --table"


def gain_with(words: int, labels: int, *interval: float, arm: str = "starter", passes: float = 1.0) -> Gain:
    low, difference, high = interval
    return Gain(
        arm=arm, megabytes=words / 200_000, words=words, passes=passes, labels=labels, domains=4, seeds=3, rows=2000,
        before=0.7, bag=0.6, difference=difference, low=low, high=high,
    )  # fmt: skip


def test_the_sentence_advises_by_the_interval_and_never_invents_a_number():
    measured = [gain_with(200_000, 100, -0.01, 0.004, 0.02), gain_with(200_000, 1000, 0.001, 0.012, 0.02)]
    assert expected_gain("starter", 250_000, measured) == (
        "with 100 labels, fine-tune the starter as it is (expected gain of adapting it: +0.4 (-1.0 to +2.0); 4 "
        "domains); with 1,000 labels, adapt it first (expected gain of adapting it: +1.2 (+0.1 to +2.0); 4 domains). "
        "Points of accuracy with 95% intervals, measured with 1 MB of text"
    )
    assert "1,000" not in expected_gain("starter", 250_000, measured[:1])
    assert expected_gain("starter", 4_000_000, measured) is None
    assert expected_gain("minilm", 250_000, measured) is None
    assert expected_gain("starter", 250_000, [gain_with(200_000, 10, 0.1, 0.2, 0.3)]) is None
    nearer = gain_with(400_000, 100, 0.01, 0.03, 0.05)
    assert "2 MB of text" in expected_gain("starter", 390_000, [*measured, nearer])
    assert "pre-train a new model" in expected_gain(
        gains.NEW_MODEL, 200_000, [gain_with(200_000, 100, 0.1, 0.2, 0.3, arm=gains.NEW_MODEL)]
    )
