"""The demo on a small text produces everything it promises."""

import dataclasses
import re
import shlex
import time
from pathlib import Path

import numpy as np
import pytest

from bertsmith.app.demo import run as demo
from bertsmith.app.demo.labelled import TRAIN_FILE
from bertsmith.app.library.loading import load_models
from bertsmith.base.core import progress
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.storage.files import read_json
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.readers import Document
from reports.page import Page
from training.toy import Clock

pytestmark = pytest.mark.usefixtures("drawn_charts")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Documents of simple sentences, one sentence a line."""
    return write_text(tmp_path / "text.txt", ["the man", "a woman", "my dog"])


def write_text(path: Path, who: list[str]) -> Path:
    rng = np.random.default_rng(0)
    did, objects = ["saw", "bought", "found"], ["the milk", "a house", "some bread"]
    documents = [
        "\n".join(
            f"on day {number} {rng.choice(who)} {rng.choice(did)} {rng.choice(objects)} and went home ."
            for number in range(rng.integers(3, 9))
        )
        for _ in range(80)
    ]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of a few small steps, however slow the machine is."""

    def pretrain(corpus, out, run, data, training, **more):
        few = dataclasses.replace(training, minutes=None, steps=12)
        return whole(corpus, out, dataclasses.replace(run, rows_per_step=8), data, few, **more)

    whole = demo.pretrain
    monkeypatch.setattr(demo, "pretrain", pretrain)
    monkeypatch.setattr(demo, "SHORTEST_MINUTES", 0.0)
    monkeypatch.setattr(demo, "VOCABULARY_SIZE", 100)


def test_text_in_another_encoding_is_the_text_of_the_demo(text, tmp_path):
    coded = tmp_path / "coded.txt"
    coded.write_bytes(text.read_text(encoding="utf-8").replace("house", "h\xf4use").encode("cp1252"))
    (tmp_path / "demo").mkdir()
    prepared = demo._prepare(tmp_path / "demo", [coded], EncodingSettings(encoding="cp1252"), 1.0, 0.0, 1)
    assert prepared.rows
    assert "house" in Corpus.open(tmp_path / "demo" / "corpus").vocabulary.index, "\xf4 without its mark"
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="not UTF-8"):
        demo._prepare(tmp_path / "other", [coded], EncodingSettings(), 1.0, 0.0, 1)


def test_the_demo_goes_from_several_texts_to_a_report_and_a_classifier(text, tmp_path, hurried, monkeypatch, capsys):
    """The whole pipeline in one call."""
    monkeypatch.setattr(progress, "_silent", 0)
    other = write_text(tmp_path / "royal tales.txt", ["the king", "a queen", "her prince"])
    out = tmp_path / "my demo"
    result = demo.run_demo(out, minutes=0.1, texts=[text, other])
    assert {path.name for path in out.iterdir()} == {
        "vocab.txt",
        "corpus",
        "run",
        "labelled",
        "classifier",
        "report.html",
    }
    said = capsys.readouterr().err
    assert re.search(
        r"^  step       0 \|  ?\d\.\d\d nats \| [#|-]{40} \| frequencies alone \d\.\d\d$", said, re.MULTILINE
    )
    page = Page(result.report.read_text(encoding="utf-8"))
    assert "refresh" not in {value for _, value in page.attributes}, "the page is complete"
    for shown in (
        "Held-out sentences with one word masked",
        f"{result.num_masked:,} masked pieces of held-out text",
        "bigram model of neighboring pieces",
        f"{result.bigram_top_five:.1%}",
        "Which of royal tales, text a sentence is from",
        "most frequent label",
    ):
        assert shown in page.text
    assert "Does B follow A?" not in page.text
    assert len(result.gaps) > 0
    for gap in result.gaps:
        assert gap.text.count("[MASK]") == 1
        assert len(gap.guesses) == 5
    assert 0 < result.bigram_loss < result.unigram_entropy < np.log(100)
    assert 0 <= result.unigram_top_five < result.bigram_top_five <= 1
    assert 0 <= result.top_five <= 1
    assert result.classifier.labels == ("royal tales", "text")
    assert 0.3 < result.classifier.most_frequent < 0.7
    lines = result.lines()
    assert lines[-2] == f"report: {out / 'report.html'}"
    served = shlex.split(lines[-1].split(": ", 1)[1])
    assert served == ["bertsmith", "serve", "--model", str(result.model), "--model", str(result.classifier.model)]
    models = load_models(served[3::2], device="cpu")
    assert len(models) == 2, "the command can load both, under different names"
    assert {label for model in models.values() if model.labels for label in model.labels} == {"royal tales", "text"}
    resolved = read_json(out / "run" / "settings.json")["resolved"]
    assert resolved["steps"] >= 1, "the resolved number of steps must be recorded"


def test_a_classifier_without_time_gets_fewer_sentences_and_a_late_demo_says_so(
    text, tmp_path, hurried, monkeypatch, capsys
):
    """Its planned time is short from the speed of the pre-training; nothing here depends on that of the machine."""
    monkeypatch.setattr(progress, "_silent", 0)
    train = demo.train_classifier
    planned = {}

    def slow(base, labelled, out, *, seconds, tokens_per_second, seed):
        planned["seconds"] = seconds
        return train(base, labelled, out, seconds=1.0, tokens_per_second=1.0, seed=seed)

    monkeypatch.setattr(demo, "train_classifier", slow)
    monkeypatch.setattr(demo, "LATE_SHARE", 0.0)
    other = write_text(tmp_path / "tales.txt", ["the king", "a queen", "her prince"])
    result = demo.run_demo(tmp_path / "demo", minutes=0.1, texts=[text, other])
    said = capsys.readouterr().err
    assert planned["seconds"] <= demo.CLASSIFIER_SHARE * 6
    assert "training a classifier of 2 labels, planned for 1 s" in said
    assert re.search(r"the time left is too short for \d+ labelled sentences, so 48 are used", said)
    assert "baselines: 2 systems in" in said
    assert "training: 1 step in" in said
    assert re.search(r"warning: the demo took .* because this machine is slow or busy", said)
    assert result.classifier.num_dev == 48
    assert len((tmp_path / "demo" / "labelled" / TRAIN_FILE).read_text(encoding="utf-8").splitlines()) == 1 + 48


def test_a_single_file_gets_no_classifier_and_one_line_says_why(text, tmp_path, hurried, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_silent", 0)
    seen = {}

    class TrainedError(Exception):
        pass

    def train(out, minutes, seed):
        seen["folder"] = {path.name for path in out.iterdir()}
        raise TrainedError

    monkeypatch.setattr(demo, "_train", train)
    with pytest.raises(TrainedError):
        demo.run_demo(tmp_path / "demo", minutes=0.1, texts=[text])
    assert "labelled" not in seen["folder"]
    assert capsys.readouterr().err.count("no classifier: there is a single source of text") == 1


def test_the_demo_refuses_invalid_arguments(text, tmp_path):
    limits = {0.01: "at least 0.5 and at most 10,000,000", -1.0: "at least 0.5 and at most 10,000,000"}
    for minutes in (*limits, float("nan"), float("inf")):
        expected = limits.get(minutes, "a finite number")
        with pytest.raises(ConfigError, match=f"minutes must be {expected}, not {minutes}"):
            demo.run_demo(tmp_path / "demo", minutes=minutes, texts=[text])
    with pytest.raises(RunError, match="not empty"):
        demo.run_demo(tmp_path, texts=[text])
    with pytest.raises(InputError, match="nowhere"):
        demo.run_demo(tmp_path / "demo", texts=[tmp_path / "nowhere.txt"])


@pytest.mark.parametrize("share", [0.1, 0.45, 0.7, 0.8])
def test_training_gets_the_minutes_that_the_steps_before_it_left(text, tmp_path, monkeypatch, share):
    """With the tenth that training may exceed its minutes by, and the closing, the demo ends within 1.25 times."""
    clock, minutes_in_seconds = Clock(), []
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(demo, "VOCABULARY_SIZE", 100)
    build = demo.build_corpus

    def slow_build(*arguments, **more):
        clock.now += share * 300
        return build(*arguments, **more)

    def train(out, minutes, seed):
        minutes_in_seconds.append(minutes * 60)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "build_corpus", slow_build)
    monkeypatch.setattr(demo, "_train", train)
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo(tmp_path / "demo", minutes=5, texts=[text])
    assert minutes_in_seconds[0] >= 0.19 * 300
    assert share * 300 + 1.1 * minutes_in_seconds[0] + demo.CLOSING_SECONDS <= 1.25 * 300


@pytest.mark.parametrize(("enough", "read"), [(50, 8), (10**6, 20)])
def test_the_demo_stops_reading_documentation_after_a_part_of_its_minutes(tmp_path, monkeypatch, capsys, enough, read):
    """After the first time if enough was read, and after the second in any case."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(demo, "ENOUGH_CHARACTERS", enough)

    def endless():
        while True:
            clock.now += 10.0
            yield Document("package.module", ["one sentence"])

    monkeypatch.setattr(demo, "docstring_documents", endless)
    path = tmp_path / "docstrings.txt"
    by_package = demo._write_docstrings(path, until=75.0, latest=200.0)
    assert path.read_text(encoding="utf-8").count("one sentence") == read
    assert by_package == {"package": [["one sentence"]] * read}
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
    with pytest.raises(ConfigError, match=r"a demo of 0\.0001 minutes.*a step takes") as caught:
        demo.run_demo(out, minutes=0.0001, texts=[text])
    # The advice is based on the measured time, not on the requested one.
    assert float(re.fullmatch(r"set `minutes` to more than ([0-9.]+)", caught.value.fix)[1]) >= 0.1
    assert not out.exists() if not exists else list(out.iterdir()) == []
