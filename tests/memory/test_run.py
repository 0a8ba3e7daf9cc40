"""Training on stories: the loss, resumed = straight, the linear start, what is learned, several starts, bad input."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.storage.files import read_json_lines
from bertsmith.models.encoders.memory_network import MemoryNetwork, MemoryNetworkConfig
from bertsmith.recipes.memory.model_folder import read_memory_model, rows_of_answers, words_of
from bertsmith.recipes.memory.request import TrainMemoryRequest
from bertsmith.recipes.memory.settings import MemorySettings
from bertsmith.recipes.memory.stories import encode_stories, read_stories
from bertsmith.recipes.memory.workload import MemoryTraining, end_of_linear_phase, story_batch
from memory.sample_stories import write_stories
from training.interruptions import assert_same_files, interrupted
from training.whole_steps import whole_step
from written_files import file_with

FEW = {"steps": 12, "width": 8, "rows_per_step": 8, "device": "cpu", "evaluate_every": 2}


def work(tmp_path: Path, **settings: object) -> MemoryTraining:
    stories = read_stories(write_stories(tmp_path / "stories.txt"))
    tokenizer = words_of(stories, 1)
    answers = sorted({story.answer or "" for story in stories})
    encoded = encode_stories(stories, tokenizer, answers, 3, "stories")
    config = MemoryNetworkConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=6, num_hidden_layers=2, max_position_embeddings=3
    )
    model = MemoryNetwork(config, rows_of_answers(answers, tokenizer)).double()
    return MemoryTraining(model, encoded, encoded, torch.device("cpu"), MemorySettings(**settings), seed=5)


def test_the_loss_of_a_step_is_the_mean_over_its_questions_one_by_one(tmp_path: Path) -> None:
    workload = work(tmp_path, rows_per_step=8, age_noise=0.0, linear_start=False, support_weight=0.5)
    order = workload._order_of_epoch(0)[:8]
    expected = 0.0
    for row in order.tolist():
        batch = story_batch(workload.stories, [row], torch.device("cpu"), hops=2)
        with torch.no_grad():
            output = workload.model(batch.stories)
        expected -= float(output.answers.log_softmax(1)[0, batch.answers[0]])
        if workload.stories.support[row]:
            for scores, fact in zip(output.hops, batch.support, strict=True):
                expected -= 0.5 * float(scores.log_softmax(1)[0, fact[0]]) / 2
    assert whole_step(workload, 0)[0] == pytest.approx(expected / 8)


def test_the_ages_of_a_step_have_gaps_that_only_the_step_decides(tmp_path: Path) -> None:
    workload = work(tmp_path, age_noise=2.0)
    (first,), (again,) = (workload.plan(3, 0, 1).micro_batches for _ in range(2))
    assert torch.equal(first.stories.ages, again.stories.ages)
    seen = set()
    for step in range(6):
        (batch,) = workload.plan(step, 0, 1).micro_batches
        for ages in batch.stories.ages.split(batch.stories.counts):
            assert ages.max() <= 2
            assert ages.diff().le(0).all(), "later facts are not older"
            seen.add(tuple(ages.tolist()))
    assert {(1, 0), (2, 0)} <= seen
    (plain,) = work(tmp_path, age_noise=0.0).plan(0, 0, 1).micro_batches
    assert all(ages[-1] == 0 and ages.diff().eq(-1).all() for ages in plain.stories.ages.split(plain.stories.counts))


def test_one_supporting_fact_is_learned_and_answered_by_the_public_functions(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories.txt", 150)
    result = bertsmith.train_memory(stories, tmp_path / "run", epochs=40, width=16, device="cpu")
    assert result.scores["held_out_accuracy"] > 0.9
    (answer,) = bertsmith.answer_from_memory(
        tmp_path / "run", stories=[{"facts": ["Ann went to the office.", "John went to the garden."], "question":
                                    "Where is Ann?"}], device="cpu",
    )  # fmt: skip
    assert answer.answer == "office"
    assert answer.probability > 0.5
    assert np.allclose(np.sum(answer.attention, axis=1), 1)
    assert len(answer.attention) == 3
    stories_asked = [{"facts": story.facts, "question": story.question} for story in read_stories(stories)[:70]]
    together = bertsmith.answer_from_memory(tmp_path / "run", stories=stories_asked, device="cpu")
    for number in (0, 33, 69):
        (alone,) = bertsmith.answer_from_memory(tmp_path / "run", stories=[stories_asked[number]], device="cpu")
        assert (alone.answer, alone.facts) == (together[number].answer, together[number].facts)
        assert alone.probability == pytest.approx(together[number].probability, rel=1e-4)
        np.testing.assert_allclose(alone.attention, together[number].attention, rtol=1e-3, atol=1e-6)
    assert "held-out questions" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")


def test_the_linear_start_ends_once_and_is_recorded(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories.txt", 40)
    bertsmith.train_memory(stories, tmp_path / "run", **FEW)
    lines = [line for line in read_json_lines(tmp_path / "run/metrics.jsonl") if line["kind"] == "evaluation"]
    linear = [line["step"] for line in lines if "held_out_linear_loss" in line]
    softmax = [line["step"] for line in lines if "held_out_linear_loss" not in line]
    switch = read_memory_model(tmp_path / "run")[2].training["softmax_from_step"]
    assert linear[-1] == switch <= 6
    assert all(step <= switch for step in linear)
    assert all(step > switch for step in softmax)
    bertsmith.train_memory(stories, tmp_path / "plain", **FEW, linear_start=False)
    assert read_memory_model(tmp_path / "plain")[2].training["softmax_from_step"] == 0


def test_the_linear_phase_ends_where_its_loss_first_does_not_fall_or_after_half_of_the_steps() -> None:
    falling = {step: {"linear_loss": 9.0 - step} for step in range(0, 10, 2)}
    assert end_of_linear_phase(falling, 100) is None
    assert end_of_linear_phase(falling, 5) == 6
    assert end_of_linear_phase({**falling, 4: {"linear_loss": 8.0}}, 100) == 4
    assert end_of_linear_phase({2: {"linear_loss": float("nan")}}, 100) == 2


@pytest.mark.parametrize("stopped", [3, 4, 7])
def test_a_resumed_run_ends_as_a_straight_one(tmp_path: Path, stopped: int) -> None:
    """Also where the checkpoint is of the step of an evaluation, which is then not computed again."""
    stories = write_stories(tmp_path / "stories.txt", 30)
    bertsmith.train_memory(stories, tmp_path / "straight", **FEW, save_every=1)
    with interrupted(MemoryTraining, "plan", lambda self, step, *_: step > stopped):
        bertsmith.train_memory(stories, tmp_path / "resumed", **FEW, save_every=1)
    bertsmith.train_memory(out=tmp_path / "resumed", resume=True)
    assert_same_files(tmp_path / "straight", tmp_path / "resumed", "model/model.safetensors", "model/bertsmith.json")


def test_of_several_starts_the_one_with_the_best_loss_is_kept(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories.txt", 30)
    dev = write_stories(tmp_path / "dev.txt", 6, seed=1)
    train = functools.partial(bertsmith.train_memory, stories, dev=dev, **FEW)
    result = train(tmp_path / "run", starts=2)
    alone = [train(tmp_path / f"alone-{seed}", seed=seed) for seed in (1, 2)]
    losses = [start.scores["held_out_loss"] for start in alone]
    assert result.scores["held_out_loss"] == min(losses)
    best = losses.index(min(losses)) + 1
    metadata = read_memory_model(tmp_path / "run")[2]
    assert metadata.training["start"] == best
    files = [tmp_path / name / "model/model.safetensors" for name in ("run", f"alone-{best}")]
    tensors = [path.read_bytes() for path in files]
    assert tensors[0] == tensors[1]
    again = bertsmith.train_memory(out=tmp_path / "run", resume=True)
    assert again.scores == result.scores


@pytest.mark.parametrize(("start", "stopped"), [(1, -1), (1, 3), (2, -1), (2, 3)])
def test_several_starts_that_are_interrupted_end_as_straight_ones(tmp_path: Path, start: int, stopped: int) -> None:
    """Within a start, and between two."""
    settings = {**FEW, "steps": 6, "starts": 2, "save_every": 1, "seed": 1}
    stories = write_stories(tmp_path / "stories.txt")
    bertsmith.train_memory(stories, tmp_path / "straight", **settings)
    with interrupted(MemoryTraining, "plan", lambda self, step, *_: self.seed == start and step > stopped):
        bertsmith.train_memory(stories, tmp_path / "resumed", **settings)
    bertsmith.train_memory(out=tmp_path / "resumed", resume=True)
    names = ("model.safetensors", "bertsmith.json", "README.md")
    assert_same_files(tmp_path / "straight" / "model", tmp_path / "resumed" / "model", *names)


def test_the_settings_of_the_model_and_of_its_stories_arrive(tmp_path: Path) -> None:
    lines = "".join(f"1 Zoë went to the café{'.' if number else ' once.'}\n2 Where?\tcafé\n" for number in range(10))
    (tmp_path / "stories.txt").write_bytes(lines.encode("cp1252"))
    settings = {"encoding": "cp1252", "minimum_count": 1, "dev_share": 0.3, "facts": 4, "width": 5, "hops": 2}
    off = {"position_weights": False, "temporal": False, "linear_start": False, "age_noise": 0.0}
    bertsmith.train_memory(tmp_path / "stories.txt", tmp_path / "run", **{**FEW, **settings, **off, "steps": 2})
    model, tokenizer, metadata = read_memory_model(tmp_path / "run")
    config = model.config
    assert (config.position_weights, config.temporal, config.max_position_embeddings) == (False, False, 4)
    assert (config.hidden_size, config.num_hidden_layers) == (5, 2)
    assert metadata.labels == ("café",)
    assert tokenizer.vocabulary.index["zoe"]
    assert "3 held-out questions" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")


def test_questions_that_teach_nothing_or_cannot_be_right_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"facts": ["Mary left."], "question": "Who left?"}
    rows = [{**record, "answer": "Mary"}, {**record, "support": [1]}]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rows[1] = {**record, "answer": "Bob"}
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    few = {**FEW, "steps": 2, "dev": tmp_path / "dev.jsonl"}
    result = bertsmith.train_memory(tmp_path / "s.jsonl", tmp_path / "run", **few)
    assert result.scores["held_out_accuracy"] == 0.5
    warnings = capsys.readouterr().err
    assert "1 question without an answer; without `support_weight` nothing is learned from them" in warnings
    assert "1 held-out question with an answer that no training story has; counted as wrong" in warnings
    bertsmith.train_memory(tmp_path / "s.jsonl", tmp_path / "both", **few, support_weight=1.0)
    assert "nothing is learned" not in capsys.readouterr().err


def test_a_folder_whose_labels_are_others_than_those_of_its_training_is_refused(tmp_path: Path) -> None:
    bertsmith.train_memory(write_stories(tmp_path / "stories.txt"), tmp_path / "run", **{**FEW, "steps": 2})
    path = tmp_path / "run/model/bertsmith.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"office"', '"Büro"'), encoding="utf-8")
    with pytest.raises(ConfigError, match="of which 0 are not a word of the vocabulary; found 1 of them"):
        read_memory_model(tmp_path / "run")


def test_stories_without_answers_teach_which_fact_to_read(tmp_path: Path) -> None:
    rows = []
    for story in read_stories(write_stories(tmp_path / "stories.txt", 60)):
        rows.append({"facts": story.facts, "question": story.question, "support": [story.support[0] + 1]})
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    few = {**FEW, "steps": 250, "evaluate_every": 10, "width": 16, "learning_rate": 0.02}
    result = bertsmith.train_memory(tmp_path / "facts.jsonl", tmp_path / "run", **few, hops=2)
    assert result.scores["held_out_support_accuracy"] > 0.8
    facts = ["Ann went to the office.", "John went to the garden."]
    (answer,) = bertsmith.answer_from_memory(
        tmp_path / "run", stories=[{"facts": facts, "question": "Where is Ann?"}], device="cpu"
    )
    assert (answer.answer, answer.probability, answer.fact) == (None, None, facts[0])


def test_what_cannot_be_trained_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    stories, out = write_stories(tmp_path / "stories.txt"), tmp_path / "run"
    other = file_with(tmp_path / "other.txt", "1 Mary left.\n2 Who left?\tnobody\n")
    with pytest.raises(ConfigError, match="dev stories with answers of the training stories"):
        bertsmith.train_memory(stories, out, dev=other, **FEW)
    (tmp_path / "text.txt").write_text("Mary left.\n", encoding="utf-8")
    with pytest.raises(InputError, match="a number and a sentence in line 1"):
        bertsmith.train_memory(tmp_path / "text.txt", out, **FEW)
    other.write_text("1 Mary left.\n2 Who?\tMary\n1 Ann left.\n2 Who?\tMary\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"supporting facts among those that are read; .*leave `support_weight` out"):
        bertsmith.train_memory(other, out, **FEW, support_weight=1.0)
    early = [{"facts": ["Mary left.", f"It rains {day}."], "question": "Who?", "support": [1]} for day in range(4)]
    (tmp_path / "early.jsonl").write_text("".join(json.dumps(row) + "\n" for row in early), encoding="utf-8")
    with pytest.raises(
        ConfigError, match="supporting facts among those that are read; found none; add them, or raise `facts`"
    ):
        bertsmith.train_memory(tmp_path / "early.jsonl", out, **FEW, facts=1)
    with pytest.raises(ConfigError, match="which selects among several starts"):
        bertsmith.train_memory(stories, out, **FEW, starts=2, keep_best=None)
    with pytest.raises(ConfigError, match="hops"):
        bertsmith.train_memory(stories, out, hops=0)
    with pytest.raises(ConfigError, match="a file of stories"):
        TrainMemoryRequest(None, out)
    with pytest.raises(ConfigError, match="--resume with --out alone"):
        TrainMemoryRequest(None, out, resume=True, steps=3)
    assert not out.exists()
    with pytest.raises(RunError):
        bertsmith.train_memory(out=out, resume=True)
