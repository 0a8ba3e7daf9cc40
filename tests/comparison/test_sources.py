"""What is made from the text: the epochs of word vectors; what was stopped is finished as if it had not been."""

import dataclasses
import time
from pathlib import Path

import pytest

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import read_json
from bertsmith.inference.word_vectors.glove import GloVe
from bertsmith.inference.word_vectors.word2vec import Word2Vec
from bertsmith.recipes.adaptation import further_pretraining
from bertsmith.recipes.comparison import networks, word_vector_training
from bertsmith.recipes.comparison.bench import Bench, Budget
from bertsmith.recipes.comparison.corpus_text import CorpusText
from bertsmith.recipes.comparison.networks import ContinuedOnTask, Pretraining
from bertsmith.recipes.comparison.word_vector_training import WordVectorTraining
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.trainer import Trainer
from comparison.ladder_samples import TOKENS, write_text
from tasks.task_samples import SPECS, examples_of
from training.toy import Clock

WORD2VEC = WordVectorTraining(name="word2vec", method="skip-gram")
GLOVE = WordVectorTraining(name="glove", method="glove")
PPMI = WordVectorTraining(name="ppmi", method="ppmi")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt")


def bench_of(text: Path, models: Path, **budget: float) -> Bench:
    data = TaskData(train=examples_of("single", 8), dev=examples_of("single", 4, seed=1))
    return Bench(
        spec=SPECS["single"],
        data=data,
        text=CorpusText([text], models / "text"),
        budget=Budget.of(budget.get("minutes"), budget.get("tokens"), "tiny"),
        models=models,
        device="cpu",
    )


def test_word_vectors_get_the_epochs_that_fit_into_the_time_or_the_tokens(text, tmp_path):
    made = WORD2VEC.make(bench_of(text, tmp_path / "a", minutes=60.0), 1, tmp_path)
    assert made.costs["epochs"] == 20  # the most
    words = sum(len(line.split()) for line in text.read_text().splitlines())
    assert made.costs["tokens"] == 20 * words


@pytest.mark.parametrize(("share", "epochs"), [(0.4, 1), (1.05, 1), (1.5, 2), (3.0, 3)])
def test_word_vectors_read_the_tokens_of_the_budget_whatever_the_length_of_the_text(text, tmp_path, share, epochs):
    words = sum(len(line.split()) for line in text.read_text().splitlines())
    budget = int(share * words)
    for source in (WORD2VEC, GLOVE, PPMI):
        made = source.make(bench_of(text, tmp_path / "models", tokens=budget), 1, tmp_path)
        about = read_json(Path(made.path) / "bertsmith.json")
        if source is WORD2VEC:
            assert made.costs["epochs"] == about["settings"]["epochs"] == epochs
            assert made.costs["tokens"] == pytest.approx(budget, abs=max(8 * epochs, 0.06 * budget))
            assert made.costs["tokens"] == epochs * about["text_words"]
        else:
            assert made.costs["tokens"] == about["text_words"] == pytest.approx(min(budget, words), abs=8)
        assert not list((tmp_path / "models").glob("*.txt"))


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize(("source", "model"), [(WORD2VEC, Word2Vec), (GLOVE, GloVe)], ids=["word2vec", "glove"])
def test_word_vectors_that_were_stopped_are_finished_as_if_they_had_not_been(
    text, tmp_path, monkeypatch, source, model, stop
):
    source.make(bench_of(text, tmp_path / "straight", tokens=TOKENS), 1, tmp_path)
    whole, calls = model.train_epoch, 0

    def killed(self, *arguments):
        nonlocal calls
        calls += 1
        if calls == stop:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(model, "train_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        source.make(bench_of(text, tmp_path / "models", tokens=TOKENS), 1, tmp_path)
    source.make(bench_of(text, tmp_path / "models", tokens=TOKENS), 1, tmp_path)
    both = [tmp_path / name / source.name / "vectors.safetensors" for name in ("straight", "models")]
    assert both[0].read_bytes() == both[1].read_bytes()
    assert [path.name for path in (tmp_path / "models").iterdir()] == [source.name]


def test_a_pretraining_that_was_stopped_at_its_end_is_not_repeated(text, tmp_path, monkeypatch):
    whole, resumed = networks.pretrain, []

    def killed(*arguments, resume, **more):
        result = whole(*arguments, resume=resume, **more)
        resumed.append(resume)
        if not resume:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(networks, "pretrain", killed)
    bert = Pretraining(name="bert")
    with pytest.raises(KeyboardInterrupt):
        bert.make(bench_of(text, tmp_path / "models", tokens=TOKENS), 1, tmp_path)
    weights = tmp_path / "models" / "bert" / "model" / "model.safetensors"
    before = weights.read_bytes()
    made = bert.make(bench_of(text, tmp_path / "models", tokens=TOKENS), 1, tmp_path)
    assert resumed == [False, True]
    assert weights.read_bytes() == before
    assert made.costs["tokens"] >= TOKENS / 2


def test_a_second_pretraining_on_the_task_is_resumed_and_says_if_the_texts_are_too_short(tmp_path, monkeypatch):
    text = write_text(tmp_path / "longer.txt", 400)  # an AWD-LSTM reads it in 32 tracks
    target = ContinuedOnTask(name="target", base=Pretraining(name="awd-lstm", architecture="awd-lstm"))
    bench = bench_of(text, tmp_path / "models", tokens=TOKENS)
    few = dataclasses.replace(bench, data=TaskData(train=examples_of("single", 2), dev=bench.data.dev))
    with pytest.raises(ConfigError, match=r"time enough for target, which gets 10% of the budget; found \d+ tokens"):
        target.make(few, 1, tmp_path)
    assert sorted(path.name for path in bench.models.iterdir()) == ["awd-lstm", "text"]
    bench = dataclasses.replace(bench, data=TaskData(train=examples_of("single", 40), dev=bench.data.dev))
    whole, resumed, results = further_pretraining.pretrain, [], []

    def killed(*arguments, resume, **more):
        result = whole(*arguments, resume=resume, **more)
        resumed.append(resume)
        results.append(result)
        if not resume:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(further_pretraining, "pretrain", killed)
    with pytest.raises(KeyboardInterrupt):
        target.make(bench, 1, tmp_path)
    (folder,) = bench.models.glob("target-*")
    before = (folder / "continued" / "run" / "model" / "model.safetensors").read_bytes()
    made = target.make(bench, 1, tmp_path)
    # Its costs had not been noted, so the finished run is opened again; no step is repeated.
    assert resumed == [False, True]
    assert (Path(made.path) / "model" / "model.safetensors").read_bytes() == before
    costs = target.base.make(bench, 1, tmp_path).costs
    assert results[1].tokens == results[0].tokens > 0
    assert made.costs["tokens"] == costs["tokens"] + results[0].tokens
    for name in ("processor_seconds", "seconds"):
        assert made.costs[name] == pytest.approx(costs[name] + getattr(results[1], name), abs=0.002)
    (folder / "made.json").unlink()
    assert target.make(bench, 1, tmp_path).costs == made.costs
    assert len(resumed) == 2


def test_an_objective_of_its_own_makes_another_network(text, tmp_path):
    bench = bench_of(text, tmp_path / "models", tokens=TOKENS)
    made = Pretraining(name="gpt", objective="left-to-right").make(bench, 1, tmp_path)
    assert (Path(made.path) / "model" / "bertsmith.json").read_text().count('"left-to-right"') == 1


def test_much_text_in_little_time_is_refused_before_all_of_it_is_read(text, tmp_path, monkeypatch):
    monkeypatch.setattr(word_vector_training, "_SAMPLE", 60)
    read = []
    whole = word_vector_training.train_word_vectors

    def counted(texts, out, **more):
        read.extend(path.stat().st_size for path in texts)
        return whole(texts, out, minimum_count=1, **more)

    monkeypatch.setattr(word_vector_training, "train_word_vectors", counted)
    bench = bench_of(text, tmp_path / "models", minutes=1e-5)
    with pytest.raises(ConfigError, match=r"a time long enough for word2vec.*allow more than .* minutes"):
        WORD2VEC.make(bench, 1, tmp_path)
    assert len(read) == 1
    assert 0 < read[0] < text.stat().st_size / 10
    assert list((tmp_path / "models").iterdir()) == []


def test_a_pretraining_uses_its_processor_time(text, tmp_path, monkeypatch):
    """A step counts as a second; the clock of the wall runs ten times as fast, as on a busy machine."""
    processor, apply = Clock(), Trainer.apply

    def counted(self, *arguments):
        processor.now += 1.0
        return apply(self, *arguments)

    monkeypatch.setattr(Trainer, "apply", counted)
    monkeypatch.setattr(time, "process_time", processor)
    monkeypatch.setattr(time, "monotonic", lambda: 10 * processor.now)
    made = Pretraining(name="bert").make(bench_of(text, tmp_path / "models", minutes=1.0), 1, tmp_path)
    resolved = read_json(Path(made.path) / "settings.json")["resolved"]
    assert resolved["seconds_per_step"] == 1.0
    assert made.costs["processor_seconds"] == pytest.approx(60, abs=1.5)
    assert made.costs["seconds"] == 10 * made.costs["processor_seconds"]
