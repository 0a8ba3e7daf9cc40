"""rates, pretrain, report as a user types them: one small run, stopped and resumed."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.usefixtures("drawn_charts")

WORDS = "the man went to store he bought".split()
SMALL = ("--size", "tiny", "--rows-per-step", 4, "--max-length", 16, "--device", "cpu", "--precision", "fp32")


@pytest.fixture
def corpus(run, tmp_path: Path, vocabulary: Path) -> Path:
    """A corpus of a few documents."""
    documents = []
    for number in range(12):
        lines = [WORDS[number % 3 : 4 + (number + line) % 4] for line in range(6)]
        documents.append("\n".join(f"{' '.join(words)} ." for words in lines))
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    folder = tmp_path / "corpus"
    run("corpus", tmp_path / "text.txt", "--vocab", vocabulary, "--out", folder, "--workers", 1).succeeds()
    return folder


def test_the_rates_of_a_corpus_are_measured(run, corpus: Path) -> None:
    run("rates", corpus, "--rows", 300, "--max-length", 16).succeeds("replaced by [MASK]", "random next")
    alone = run("rates", corpus, "--rows", 300, "--max-length", 16, "--objective", "mlm")
    assert "random next" not in alone.out


def test_a_resumed_run_needs_no_options_and_equals_an_uninterrupted_one(
    run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = run("pretrain", corpus, "--out", tmp_path / "straight", "--steps", 4, "--learning-rate", 1e-3, *SMALL)
    assert straight.code == 0, straight.err
    assert "4 steps" in straight.out
    run("pretrain", corpus, "--out", tmp_path / "straight", "--resume").succeeds()
    run("pretrain", corpus, "--out", tmp_path / "straight", "--resume", "--size", "auto").succeeds()
    settings = json.loads((tmp_path / "straight" / "settings.json").read_text(encoding="utf-8"))["settings"]
    assert settings["train"]["learning_rate"] == 1e-3
    assert settings["data"]["max_length"] == 16
    run("pretrain", corpus, "--out", tmp_path / "other", "--steps", 4, "--learning-rate", 1e-3, *SMALL).succeeds()
    models = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("straight", "other")]
    assert models[0].keys() == models[1].keys()
    assert all(bool((tensor == models[1][name]).all()) for name, tensor in models[0].items())
    page = tmp_path / "page.html"
    assert run("report", tmp_path / "straight", tmp_path / "other", "--out", page) == (0, f"{page}\n", "")
    monkeypatch.chdir(tmp_path / "corpus")
    pages = [(tmp_path / name / "report.html").read_bytes() for name in ("straight", "other")]
    compared = tmp_path / "corpus" / "report-straight-other.html"
    assert run("report", tmp_path / "straight", tmp_path / "other") == (0, f"{compared}\n", "")
    assert compared.read_bytes() == page.read_bytes()
    assert pages == [(tmp_path / name / "report.html").read_bytes() for name in ("straight", "other")]
    filled = run("fill", "--model", tmp_path / "straight" / "model", "the [MASK] went")
    assert len(filled.out.splitlines()) == 5


def test_training_continues_from_a_model(run, corpus: Path, model: Path, tmp_path: Path) -> None:
    options = ("--steps", 1, "--rows-per-step", 4, "--max-length", 16, "--device", "cpu", "--precision", "fp32")
    run("pretrain", corpus, "--init", model, "--out", tmp_path / "run", "--learning-rate", 1e-9, *options).succeeds()
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "run" / "model"))
    kept = {name for name in before if "seq_relationship" not in name}  # the recipe has no objective of pairs
    assert kept == after.keys()
    assert all(bool((before[name] - after[name]).abs().max() < 1e-6) for name in kept)
    run("pretrain", corpus, "--init", tmp_path / "absent", "--out", tmp_path / "other", *options).refuses("absent")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard", "ignore::DeprecationWarning:google")
def test_tensorboard_files_are_written_on_request(run, corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run("pretrain", corpus, "--out", tmp_path / "run", "--steps", 1, "--tensorboard", *SMALL).succeeds()
    assert len(list((tmp_path / "run" / "tensorboard").glob("events.*"))) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--size", "tiny", "--steps", 2, "--minutes", 1], "expected one budget"),
        (["--size", "tiny"], "expected one budget"),
        (["--steps", 2], "give one of --size, --config and --init"),
        (["--steps", 2, "--size", "bas"], "did you mean 'base'?"),
        (["--steps", 2, "--size", "tiny", "--max-length", 600], "512"),
        (["--size", "tiny", "--steps", 2, "--objective", "mlm+npq"], "objective"),
        (["--size", "tiny", "--steps", 2, "--device", "tpu"], "expected a device"),
    ],
)
def test_an_impossible_setting_is_one_line_and_leaves_nothing(run, corpus, tmp_path, options, words) -> None:
    run("pretrain", corpus, "--out", tmp_path / "run", *options).refuses(words)
    assert not (tmp_path / "run").exists()


def test_too_few_minutes_are_one_line_and_leave_nothing(run, corpus, tmp_path) -> None:
    result = run("pretrain", corpus, "--out", tmp_path / "run", "--minutes", 0.0001, *SMALL)
    result.refuses("expected a budget long enough for one step; found 0.0001 minutes; a step takes")
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_step_is_kept_and_can_be_resumed_with_another_budget(run, corpus, tmp_path) -> None:
    """As after a kill in the trial steps: what the message of too few minutes says can be done."""
    broken, straight = tmp_path / "run", tmp_path / "straight"
    for out in (broken, straight):
        run("pretrain", corpus, "--out", out, "--steps", 4, *SMALL).succeeds()
    record = json.loads((broken / "settings.json").read_text(encoding="utf-8"))
    del record["resolved"]
    record["settings"]["train"] |= {"steps": None, "minutes": 0.0001}
    for left in ("checkpoints", "model"):
        shutil.rmtree(broken / left)
    (broken / "metrics.jsonl").unlink()
    (broken / "settings.json").write_text(json.dumps(record), encoding="utf-8")
    for _ in range(2):
        refused = run("pretrain", corpus, "--out", broken, "--resume")
        refused.refuses("--minutes, or give --steps or --tokens instead; --resume takes them")
    other = run("pretrain", corpus, "--out", broken, "--resume", "--steps", 4, "--learning-rate", 0.5)
    assert "learning_rate = 0.5" in other.err
    run("pretrain", corpus, "--out", broken, "--resume", "--steps", 4).succeeds()
    models = [(out / "model" / "model.safetensors").read_bytes() for out in (broken, straight)]
    assert models[0] == models[1]
    more = run("pretrain", corpus, "--out", broken, "--resume", "--minutes", 1)
    assert "train.minutes = 1.0 (was None); train.steps = None (was 4)" in more.err


def test_a_run_folder_that_exists_is_refused_without_resume_and_needed_with_it(run, corpus, tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep", encoding="utf-8")
    refused = run("pretrain", corpus, "--out", tmp_path / "full", "--steps", 2, *SMALL)
    absent = run("pretrain", corpus, "--out", tmp_path / "absent", "--resume")
    for result in (refused, absent):
        assert (result.code, result.err.count("\n")) == (1, 1)
    assert (tmp_path / "full" / "mine.txt").read_text(encoding="utf-8") == "keep"


def test_rates_are_not_measured_on_a_damaged_corpus(run, corpus: Path) -> None:
    shard = next(corpus.glob("*.arrow"))
    data = bytearray(shard.read_bytes())
    position = data.index(bytes(4), len(data) // 3)
    data[position] ^= 1
    shard.write_bytes(bytes(data))
    run("rates", corpus, "--rows", 30, "--max-length", 16).refuses(shard.name)
