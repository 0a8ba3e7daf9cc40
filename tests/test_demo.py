"""The demo on a small text produces everything it promises."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from bertsmith import demo
from bertsmith.corpus.readers import Document
from bertsmith.errors import ConfigError, InputError, RunError
from bertsmith.files import read_json
from training.toy import Clock


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Documents of simple sentences, one sentence a line."""
    rng = np.random.default_rng(0)
    who, did, what = ["the man", "a woman", "my dog"], ["saw", "bought", "found"], ["the milk", "a house", "some bread"]
    documents = [
        "\n".join(
            f"on day {number} {rng.choice(who)} {rng.choice(did)} {rng.choice(what)} and went home ."
            for number in range(rng.integers(3, 9))
        )
        for _ in range(80)
    ]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def test_the_demo_goes_from_text_to_a_report(text, tmp_path, monkeypatch):
    """The whole pipeline in one call."""
    monkeypatch.setattr(demo, "SHORTEST_MINUTES", 0.0)
    monkeypatch.setattr(demo, "LEAST_TRAINING_SHARE", 1.0)  # also on a machine that is slow
    monkeypatch.setattr(demo, "VOCABULARY_SIZE", 100)
    out = tmp_path / "demo"
    result = demo.run_demo(out, minutes=0.2, texts=[text])
    assert {"vocab.txt", "corpus", "run", "report.html"} == {path.name for path in out.iterdir()}
    page = result.report.read_text(encoding="utf-8")
    assert "Held-out sentences with one word masked" in page
    assert "Does B follow A?" in page
    assert len(result.gaps) > 0
    for gap in result.gaps:
        assert gap.text.count("[MASK]") == 1
        assert len(gap.guesses) == 5
    assert 0 < result.unigram_entropy < np.log(100)
    assert result.lines()[-1] == f"report: {out / 'report.html'}"
    resolved = read_json(out / "run" / "settings.json")["resolved"]
    assert resolved["steps"] >= 1, "the resolved number of steps must be recorded"


def test_the_demo_refuses_invalid_arguments(text, tmp_path):
    for minutes in (0.01, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=f"expected a finite number of minutes, at least 0.5; found {minutes:g};"):
            demo.run_demo(tmp_path / "demo", minutes=minutes, texts=[text])
    with pytest.raises(RunError, match="not empty"):
        demo.run_demo(tmp_path, texts=[text])
    with pytest.raises(InputError, match="nowhere"):
        demo.run_demo(tmp_path / "demo", texts=[tmp_path / "nowhere.txt"])


@pytest.mark.parametrize("share", [0.1, 0.45, 0.7, 0.8])
def test_training_gets_the_minutes_that_the_steps_before_it_left(text, tmp_path, monkeypatch, share):
    """With the tenth that training may exceed its minutes by, and the closing, the demo ends within 1.25 times."""
    clock, given = Clock(), []
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(demo, "VOCABULARY_SIZE", 100)
    build = demo.build_corpus

    def slow_build(*arguments, **more):
        clock.now += share * 300
        return build(*arguments, **more)

    def train(out, minutes, seed):
        given.append(minutes * 60)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "build_corpus", slow_build)
    monkeypatch.setattr(demo, "_train", train)
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo(tmp_path / "demo", minutes=5, texts=[text])
    assert given[0] >= 0.19 * 300
    assert share * 300 + 1.1 * given[0] + demo.CLOSING_SECONDS <= 1.25 * 300


def test_the_demo_stops_reading_documentation_after_a_part_of_its_minutes(tmp_path, monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)

    def endless():
        while True:
            clock.now += 10.0
            yield Document("module", ["one sentence"])

    monkeypatch.setattr(demo, "docstring_documents", endless)
    path = demo._write_docstrings(tmp_path / "docstrings.txt", until=75.0)
    assert path.read_text(encoding="utf-8").count("one sentence") == 8
    assert "the part of the documentation read so far" in capsys.readouterr().err


def test_a_text_of_one_sentence_is_refused_before_training_and_leaves_nothing(tmp_path):
    (tmp_path / "one.txt").write_text("one line only.\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"texts with several sentences.*; found a single sentence; give more text"):
        demo.run_demo(tmp_path / "demo", minutes=0.5, texts=[tmp_path / "one.txt"])
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_a_demo_too_short_for_a_step_says_so_and_leaves_nothing(text, tmp_path, monkeypatch, exists):
    monkeypatch.setattr(demo, "SHORTEST_MINUTES", 0.0)
    monkeypatch.setattr(demo, "VOCABULARY_SIZE", 100)
    out = tmp_path / "demo"
    if exists:
        out.mkdir()
    with pytest.raises(ConfigError, match=r"a demo of 0\.0001 minutes.*a step takes") as found:
        demo.run_demo(out, minutes=0.0001, texts=[text])
    # The advice is based on the measured time, not on the requested one.
    assert float(re.fullmatch(r"set --minutes to more than ([0-9.]+)", found.value.fix)[1]) >= 0.1
    assert not out.exists() if not exists else list(out.iterdir()) == []
