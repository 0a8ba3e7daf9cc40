"""A whole run as a user starts it, from a text file to a model that other tools read; it resumes after being killed."""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoTokenizer

from bertsmith.base.core.errors import BertsmithError, ConfigError, RunError, VocabularyError
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.base.storage.locks import locked_folder
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.models.products.compiled import compile_layers
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.loop.result import TrainResult
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining import run as run_module
from bertsmith.training.pretraining.report import summary_lines
from bertsmith.training.pretraining.run import PretrainingRunSettings, pretrain, settings_of_run
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from corpus.samples import write_corpus
from written_files import file_with

WORDS = "the a man woman dog cat house store milk bread went saw bought ate sat on in to and . , ?".split()
WORDS += ["##s", "##ed", "un", "##like"]
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
SMALL = {"size": "tiny", "rows_per_step": 8, "evaluation_rows": 16, "device": "cpu", "precision": "fp32"}
STEPS = 30  # of runs in a process of their own: enough to be stopped well before the end


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pretraining")
    rng = np.random.default_rng(0)
    words = WORDS[:19]
    documents = [
        "\n".join(" ".join(rng.choice(words, rng.integers(3, 12))) + " ." for _ in range(rng.integers(2, 12)))
        for _ in range(40)
    ]
    return write_corpus(folder, documents, WordPieceTokenizer(VOCABULARY, TextRules()))


def run(corpus, out, *, resume=False, steps=6, data=None, train=None, by_processor=False, **changes):
    return pretrain(
        corpus,
        out,
        PretrainingRunSettings(**{**SMALL, **changes}),
        PretrainingDataSettings(**{"max_length": 32, **(data or {})}),
        TrainSettings(**{"steps": steps, "log_every": 1, "save_every": 2, **(train or {})}),
        resume=resume,
        by_processor=by_processor,
    )


def test_a_run_makes_a_model_that_transformers_reads_and_agrees_with(corpus, tmp_path):
    """Exported = trained, at the first step of the chain."""
    result = run(corpus, tmp_path / "run")
    assert result.steps == 6
    assert {"report.html", "settings.json", "metrics.jsonl", "model"} <= {p.name for p in (tmp_path / "run").iterdir()}
    folder = tmp_path / "run" / "model"
    peer = AutoModelForPreTraining.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "The man bought [MASK] milk ."
    assert tokenizer.tokenize("Unlike dogs, the CATS sat.") == [
        "un",
        "##like",
        "dog",
        "##s",
        ",",
        "the",
        "cat",
        "##s",
        "sat",
        ".",
    ]
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = peer(**inputs).prediction_logits[0]
    gap = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    expected = logits[gap].softmax(-1)
    predictor = load_pretraining_heads(str(folder), device="cpu")
    for guess in predictor.fill(text, top=len(VOCABULARY))[0]:
        assert guess.probability == pytest.approx(expected[VOCABULARY.index[guess.piece]].item(), abs=1e-6)
    pair = tokenizer("the man went to the store .", "a dog ate bread .", return_tensors="pt")
    with torch.no_grad():
        follows = peer(**pair).seq_relationship_logits.softmax(-1)[0, 0].item()
    answer = predictor.next_sentence("the man went to the store .", ["a dog ate bread ."])[0]
    assert answer.probability == pytest.approx(follows, abs=1e-6)


def test_a_model_goes_to_googles_format_and_back_without_a_changed_bit(corpus, tmp_path):
    """Convert --to google and back."""
    run(corpus, tmp_path / "run", steps=2)
    convert(tmp_path / "run" / "model", tmp_path / "google", to="google")
    convert(tmp_path / "google", tmp_path / "back", to="huggingface")
    before = load_file(tmp_path / "run" / "model" / "model.safetensors")
    after = load_file(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler of torch imports deprecated parts of torch
def test_a_compiled_run_has_the_curve_of_another_and_resumes_to_its_own_bytes(corpus, tmp_path, monkeypatch):
    straight, resumed, plain = (tmp_path / name for name in ("straight", "resumed", "plain"))
    run(corpus, plain, steps=4)
    compiled = functools.partial(compile_layers, backend="aot_eager")
    monkeypatch.setattr("bertsmith.training.pretraining.run.compile_layers", compiled)
    run(corpus, straight, steps=4, compile=True)
    shutil.copytree(straight, resumed)
    shutil.rmtree(resumed / "checkpoints" / "step-00000004")
    shutil.rmtree(resumed / "model")
    run(corpus, resumed, steps=4, compile=True, resume=True)
    for name in ("model/model.safetensors", "checkpoints/step-00000004/optimizer.safetensors"):
        assert (resumed / name).read_bytes() == (straight / name).read_bytes()
    losses = [
        [line["loss"] for line in read_json_lines(out / "metrics.jsonl") if line["kind"] == "train"]
        for out in (straight, plain)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_resumed_run_keeps_counting_processor_time(corpus, tmp_path, monkeypatch):
    clocks, whole = [], run_module.train

    def seen(*arguments, clock, **more):
        clocks.append(clock.by_processor)
        return whole(*arguments, clock=clock, **more)

    monkeypatch.setattr(run_module, "train", seen)
    run_folder, options = tmp_path / "run", {"steps": 2, "data": {}, "train": {"save_every": 1}}
    run(corpus, run_folder, by_processor=True, **options)
    run(corpus, run_folder, resume=True, **options)
    assert clocks == [True, True]
    assert read_json(run_folder / "settings.json")["settings"]["clock"] == {"by_processor": True}


def command(corpus: Path, out: Path, *more: str) -> list[str]:
    options = ["--steps", str(STEPS), "--save-every", "3", "--log-every", "1", "--rows-per-step", "8"]
    options += ["--max-length", "32", "--evaluation-rows", "8", "--device", "cpu", "--size", "tiny"]
    return [sys.executable, "-m", "bertsmith", "pretrain", str(corpus), "--out", str(out), *(more or options)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def checkpoints(out: Path) -> list[str]:
    folder = out / "checkpoints"
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("step-")) if folder.exists() else []


def started(corpus: Path, out: Path, *, until: int) -> subprocess.Popen[str]:
    """A run that is still going in another process and has written its first checkpoints."""
    victim = subprocess.Popen(
        command(corpus, out), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 120
    while len(checkpoints(out)) < until and time.monotonic() < deadline and victim.poll() is None:
        time.sleep(0.01)
    if len(checkpoints(out)) < until or victim.poll() is not None:
        victim.kill()
        pytest.fail(f"{len(checkpoints(out))} checkpoints, exit code {victim.poll()}: {victim.communicate()[1]}")
    return victim


def assert_resumes_to(straight: Path, corpus: Path, broken: Path) -> None:
    """Resumes a run that was stopped before its end, and compares the bytes that both runs wrote."""
    last = f"step-{STEPS:08d}"
    assert checkpoints(broken)[-1] < last
    assert not (broken / "model").exists(), "it was stopped before its end"
    subprocess.run(command(corpus, broken, "--resume"), check=True, env=environment(), capture_output=True)
    for name in ("model/model.safetensors", f"checkpoints/{last}/optimizer.safetensors"):
        assert (straight / name).read_bytes() == (broken / name).read_bytes(), name


@pytest.fixture(scope="module")
def straight(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("straight") / "run"
    subprocess.run(command(corpus, out), check=True, env=environment(), capture_output=True)
    return out


def test_a_run_killed_in_the_middle_ends_with_the_same_bytes(corpus, straight, tmp_path):
    """The second equality, on the whole command: kill -9 in the middle of an epoch, then --resume."""
    victim = started(corpus, tmp_path / "run", until=2)
    victim.kill()
    victim.communicate(timeout=120)
    assert victim.returncode == -signal.SIGKILL, "it was alive when it was killed"
    assert_resumes_to(straight, corpus, tmp_path / "run")


@pytest.mark.parametrize("objective", ["mlm", "mlm+sop", "nsp", "left-to-right"])
def test_every_objective_runs_and_writes_the_parts_it_trained(corpus, tmp_path, objective):
    """One switch; a head that was not trained is not in the folder."""
    run(corpus, tmp_path / "run", steps=2, data={"objective": objective})
    names = load_file(tmp_path / "run" / "model" / "model.safetensors").keys()
    assert any("predictions" in name for name in names) == (objective != "nsp")
    assert any("seq_relationship" in name for name in names) == (objective in ("mlm+sop", "nsp"))
    wanted = "nsp" if objective in ("mlm", "left-to-right") else "mlm"
    if objective != "mlm+sop":
        with pytest.raises(BertsmithError, match=f"trained {wanted} head"):
            load_pretraining_heads(str(tmp_path / "run" / "model"), needs=[wanted])


def test_training_continues_from_a_model(corpus, tmp_path):
    """--init loads all parameters."""
    run(corpus, tmp_path / "first", steps=2)
    result = run(
        corpus,
        tmp_path / "second",
        steps=2,
        size=None,
        init=str(tmp_path / "first" / "model"),
        train={"learning_rate": 1e-9},
    )
    first = load_file(tmp_path / "first" / "model" / "model.safetensors")
    second = load_file(tmp_path / "second" / "model" / "model.safetensors")
    assert result.steps == 2
    before, after = (read_metadata(tmp_path / name / "model") for name in ("first", "second"))
    assert before.continued_from is None
    assert after.continued_from == {"task": "pretraining", "tokens": before.tokens}
    assert after.tokens == result.tokens, "those of the run itself"
    assert after.all_tokens == before.tokens + after.tokens
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)


def test_inputs_that_do_not_fit_are_refused_in_one_line(corpus, tmp_path):
    run(corpus, tmp_path / "run", steps=2)
    cases = [
        (RunError, "--resume", lambda: run(corpus, tmp_path / "run")),
        (
            RunError,
            "learning_rate",
            lambda: run(corpus, tmp_path / "run", steps=2, resume=True, train={"learning_rate": 0.5}),
        ),
        (RunError, "no settings.json", lambda: run(corpus, tmp_path / "nowhere", resume=True)),
        (ConfigError, "max_length of at most 512", lambda: run(corpus, tmp_path / "x", data={"max_length": 600})),
        (ConfigError, "did you mean 'tiny'", lambda: run(corpus, tmp_path / "x", size="tny")),
        (ConfigError, "model size", lambda: run(corpus, tmp_path / "x", size=None)),
        (ConfigError, "rows_per_step", lambda: run(corpus, tmp_path / "x", rows_per_step=0)),
    ]
    for kind, words, action in cases:
        with pytest.raises(kind, match=words):
            action()
    assert not (tmp_path / "x").exists()


def test_a_model_with_another_vocabulary_is_refused(corpus, tmp_path):
    run(corpus, tmp_path / "run", steps=1)
    other = WordPieceTokenizer(Vocabulary([*VOCABULARY.pieces[:-1], "##likes"]), TextRules())
    text = file_with(tmp_path / "text.txt", "the man went .\na dog sat .\n\nthe cat .\nmilk and bread .\n")
    build_corpus([text], other, tmp_path / "other", workers=1)
    with pytest.raises(VocabularyError, match="build the corpus again"):
        run(tmp_path / "other", tmp_path / "x", steps=1, size=None, init=str(tmp_path / "run" / "model"))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            TextRules(lowercase=False),
            "lowercase True, strips_accents True; found lowercase False, strips_accents False",
        ),
        (TextRules(strip_accents=False), "strips_accents True; found strips_accents False"),
        (TextRules(split_cjk=False), "split_cjk True; found split_cjk False"),
    ],
)
def test_a_corpus_whose_text_was_cleaned_otherwise_than_the_model_reads_it_is_refused(corpus, tmp_path, rules, words):
    run(corpus, tmp_path / "run", steps=1)
    text = file_with(tmp_path / "text.txt", "the man went .\na dog sat .\n\nthe cat .\nmilk and bread .\n")
    build_corpus([text], WordPieceTokenizer(VOCABULARY, rules), tmp_path / "other", workers=1)
    with pytest.raises(ConfigError, match=f"{words}; build the corpus again with --model"):
        run(tmp_path / "other", tmp_path / "x", steps=1, size=None, init=str(tmp_path / "run" / "model"))
    assert not (tmp_path / "x").exists()


def test_a_corpus_for_a_google_checkpoint_may_have_the_rules_of_hugging_face_and_this_is_said(corpus, tmp_path, capsys):
    run(corpus, tmp_path / "run", steps=1)
    convert(tmp_path / "run" / "model", tmp_path / "google", to="google")
    (tmp_path / "google" / "bertsmith.json").unlink()
    capsys.readouterr()
    run(corpus, tmp_path / "second", steps=1, size=None, init=str(tmp_path / "google"))
    assert "has the text rules google" in capsys.readouterr().err


def test_the_settings_of_a_run_can_be_read_back(corpus, tmp_path):
    run(corpus, tmp_path / "run", steps=1)
    folder, settings, data, training = settings_of_run(tmp_path / "run")
    assert Path(folder) == corpus
    assert (settings.size, data.max_length, training.steps) == ("tiny", 32, 1)


def test_the_unigram_line_is_the_entropy_of_the_tokens(corpus, tmp_path):
    result = run(corpus, tmp_path / "run", steps=1)
    opened = Corpus.open(corpus)
    tokens = np.concatenate([opened.document_tokens(i) for i in range(opened.num_documents)])
    _, counts = np.unique(tokens, return_counts=True)
    expected = -sum(c / len(tokens) * np.log(c / len(tokens)) for c in counts)
    assert result.metrics["unigram_entropy"] == pytest.approx(expected)


def test_ctrl_c_writes_a_checkpoint_exits_with_130_and_resumes_to_the_same_bytes(corpus, straight, tmp_path):
    out = tmp_path / "run"
    victim = started(corpus, out, until=1)
    victim.send_signal(signal.SIGINT)
    _, said = victim.communicate(timeout=120)
    assert victim.returncode == 130, said
    assert "Traceback" not in said
    trained = [line["step"] for line in read_json_lines(out / "metrics.jsonl") if line["kind"] == "train"]
    assert int(checkpoints(out)[-1].removeprefix("step-")) == trained[-1] > 0
    assert settings_of_run(out)[3].steps == STEPS
    assert_resumes_to(straight, corpus, out)


def test_a_corpus_at_an_address_gives_the_run_of_the_one_on_a_disk(corpus, tmp_path):
    run(corpus, tmp_path / "local", steps=3)
    run(f"file://{corpus}", tmp_path / "streamed", steps=3, corpus_cache=str(tmp_path / "cache"))
    local, other = (tmp_path / name / "model" / "model.safetensors" for name in ("local", "streamed"))
    assert local.read_bytes() == other.read_bytes()


def test_compiled_layers_are_not_divided_among_processes(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="expected --shard or --compile; found both"):
        run(corpus, tmp_path / "run", compile=True, train={"shard": True})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "albert"])
def test_activation_checkpointing_changes_no_bit_with_dropout(corpus, tmp_path, architecture):
    models = []
    for again in (False, True):
        out, train = tmp_path / str(again), {"activation_checkpointing": again}
        run(corpus, out, steps=2, architecture=architecture, dropout=0.2, data={"objective": "mlm"}, train=train)
        models.append((out / "model" / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_two_processes_give_the_losses_of_one(corpus, tmp_path):
    """Torchrun on gloo; rows, masks and dropout do not depend on the ranks."""
    options = ["--steps", "4", "--log-every", "1", "--rows-per-step", "16", "--max-length", "32", "--size", "tiny"]
    options += ["--evaluation-rows", "8", "--device", "cpu", "--precision", "fp32", "--learning-rate", "1e-3"]
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "bertsmith",
    ]
    single, two = command(corpus, tmp_path / "one", *options), command(corpus, tmp_path / "two", *options)
    divided = command(
        corpus, tmp_path / "divided", *options, "--shard", "--activation-checkpointing", "--dropout", "0.1"
    )
    subprocess.run([*single, "--dropout", "0.1"], check=True, env=environment(), capture_output=True)
    for program in ([*two[3:], "--dropout", "0.1"], divided[3:]):
        subprocess.run([*launcher, *program], check=True, env=environment(), capture_output=True, timeout=240)
    lines = [
        [line for line in read_json_lines(tmp_path / name / "metrics.jsonl") if line["kind"] == "train"]
        for name in ("one", "two", "divided")
    ]
    assert [len(some) for some in lines] == [4, 4, 4]
    pairs = [*zip(lines[0], lines[1], strict=True), *zip(lines[0], lines[2], strict=True)]
    for alone, together in pairs:
        for name in ("loss", "mlm_loss", "mlm_accuracy", "tokens"):
            assert together[name] == pytest.approx(alone[name], rel=2e-4), name
        # Muon rounds the sums of both ranks, which differ in their last digits, to bf16.
        assert together["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=1e-3)


@pytest.mark.skipif(os.name != "posix", reason="flock of POSIX")
@pytest.mark.parametrize("reason", ["locked", "not empty"])
def test_if_the_first_of_two_processes_is_refused_both_end_with_one_line(corpus, tmp_path, reason):
    """Without torchrun, which would end the second when the first has failed."""
    out, said = tmp_path / "run", []
    out.mkdir()
    if reason == "not empty":
        (out / "mine.txt").touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    with locked_folder(out) if reason == "locked" else contextlib.nullcontext():
        ranks = [
            subprocess.Popen(
                command(corpus, out, "--steps", "2", "--size", "tiny", "--device", "cpu", "--precision", "fp32"),
                env={**environment(), **group, "RANK": str(index), "LOCAL_RANK": str(index)},
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(2)
        ]
        try:
            for process in ranks:
                said.append(process.communicate(timeout=120)[1])
        finally:
            for process in ranks:
                process.kill()
    assert [process.returncode for process in ranks] == [1, 1], said
    errors = [[line for line in text.splitlines() if line.startswith("bertsmith: expected ")] for text in said]
    assert [len(lines) for lines in errors] == [1, 1], said
    assert (f"found process {os.getpid()};" if reason == "locked" else "a folder that is not empty") in errors[0][0]
    assert "process 1 stops too" in errors[1][0]
    assert "Traceback" not in "".join(said)


def test_card_and_metadata_name_the_step_that_was_kept_with_its_scores(corpus, tmp_path):
    train = {"learning_rate": 0.5, "warmup_share": 0.0, "keep_best": "loss", "evaluate_every": 2}
    result = run(corpus, tmp_path / "run", steps=6, train=train)
    lines = [line for line in read_json_lines(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "evaluation"]
    best = min((line for line in lines if line["step"]), key=lambda line: line["held_out_loss"])
    assert best["step"] < 6, "a rate this high makes the loss rise"
    assert (result.best_step, result.kept_step, result.steps) == (best["step"], best["step"], 6)
    written = read_json(tmp_path / "run" / "model" / "bertsmith.json")
    assert (written["steps"], written["tokens"]) == (best["step"], best["tokens"])
    assert written["scores"] == {name: value for name, value in best.items() if name.startswith("held_out_")}
    assert written["training"] == {"kept_best": "loss", "best_step": best["step"], "steps_of_run": 6}
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| held_out_loss | {best['held_out_loss']:.4f} |" in card
    assert f"- steps: {best['step']:,}" in card


def test_a_held_out_value_that_the_objective_does_not_have_is_refused_before_training(corpus, tmp_path):
    with pytest.raises(ConfigError, match="found 'mlm_los'; did you mean 'mlm_loss'"):
        run(corpus, tmp_path / "run", train={"keep_best": "mlm_los"})
    assert not (tmp_path / "run").exists()


def test_the_summary_says_each_thing_once() -> None:
    log = {"tokens": 900, "loss": 5.5, "mlm_loss": 5.5, "unigram_entropy": 5.75, "learning_rate": 0.1, "seconds": 61.0}
    held_out = {"loss": 5.0, "mlm_loss": 4.5, "nsp_loss": 0.5, "unigram_entropy": 5.25}
    scores = {f"held_out_{name}": value for name, value in held_out.items()}
    metrics = {**log, "tokens_per_second": 1234.5, **scores}
    work = {"steps": 1200, "tokens": 900, "sequences": 9, "seconds": 61.0, "skipped": 0, "spikes": 0}
    work["processor_seconds"] = 60.5
    result = TrainResult(**work, metrics=metrics, kept_step=600, best_step=600, kept_tokens=450, scores=scores)
    assert summary_lines(result) == [
        "1,200 steps, 900 tokens in 1 min 01 s, 1,234 tokens/s at the end",
        "last training steps: mlm_loss 5.5, loss of token frequencies alone 5.75",
        "held out, after step 600, the best: loss 5, mlm_loss 4.5, nsp_loss 0.5, loss of token frequencies alone 5.25",
    ]
    empty = TrainResult(**work, metrics={}, kept_step=1200, kept_tokens=900, scores={})
    assert summary_lines(empty) == ["1,200 steps, 900 tokens in 1 min 01 s"]
