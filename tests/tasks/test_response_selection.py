"""Response selection from the file to the answer: both scorers, a list of replies, the library and the command."""

import dataclasses
import json
import subprocess
import sys
import unittest.mock
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.predictors import reply_ranker
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.reply_ranker import ReplyRanker
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.results.comparison import paired
from bertsmith.recipes.results.scores import details
from bertsmith.recipes.sentence_encoders.hard_negatives import with_hard_negatives
from bertsmith.tasks.datasets.drawn_replies import same
from bertsmith.tasks.datasets.examples import ChoiceExample
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.tasks.task_data.typed_examples import example_of_line
from tasks.task_samples import BAD, GOOD, PEOPLE, PLACES, PLAIN, SPECS, TOKENIZER, write_base_model
from written_files import file_of_records, file_with

RANKS = ("recall@1", "recall@2", "recall@5", "mrr")
KINDS = {"vectors": "selection", "cross-encoder": "choice"}


def dialogues(count: int, seed: int) -> list[dict[str, Any]]:
    """Conversations whose replies name a person and a place of the last turn."""
    draw, rows = generator(seed, "dialogues"), []
    for _ in range(count):
        person, town, mood = (str(draw.choice(words)) for words in (PEOPLE, PLACES, [*GOOD, *BAD]))
        turns = [" ".join(draw.choice(PLAIN, 2)), f"{person} was in {town} {mood}"]
        rows.append({"context": turns, "response": f"{town} {mood} {person} {draw.choice(PLAIN)}"})
    return rows


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each scorer, by the name of the scorer; "dev" is their dev file."""
    folder = tmp_path_factory.mktemp("selection")
    base = write_base_model(folder / "base")
    train, dev = (
        file_of_records(folder / "train.jsonl", dialogues(240, 1)),
        file_of_records(folder / "dev.jsonl", dialogues(60, 2)),
    )
    result = {"dev": dev}
    for scorer, settings in (("vectors", {"epochs": 12, "learning_rate": 3e-3}), ("cross-encoder", {"epochs": 1})):
        options: dict[str, Any] = {"batch_size": 16, "device": "cpu", "precision": "fp32", **settings}
        result[scorer] = folder / scorer
        bertsmith.finetune(
            base, "response-selection", folder / scorer, train=train, dev=dev, scorer=scorer, seeds=1,
            candidates=6, recipe="2018", **options,
        )  # fmt: skip
    return result


def test_vectors_learn_which_reply_belongs_to_a_context(runs: dict[str, Path]) -> None:
    report = json.loads((runs["vectors"] / "report.json").read_text())
    assert report["scores"]["recall@1"]["mean"] > 0.6
    names = [baseline["name"] for baseline in report["baselines"]]
    assert names == ["cosine of TF-IDF vectors of words", "cosine of frozen vectors, before training"]
    assert set(RANKS) <= set(report["intervals"]) | {"recall@5"}  # which may be 1 in every draw


def test_both_scorers_have_the_same_baselines(runs: dict[str, Path]) -> None:
    first, second = (json.loads((runs[name] / "report.json").read_text())["baselines"] for name in KINDS)
    for baseline, other in zip(first, second, strict=True):
        assert baseline["name"] == other["name"]
        assert baseline["scores"] == pytest.approx(other["scores"])


@pytest.mark.parametrize("scorer", KINDS)
def test_evaluation_gives_the_scores_of_the_training(runs: dict[str, Path], scorer: str) -> None:
    report = json.loads((runs[scorer] / "report.json").read_text())
    evaluation = bertsmith.evaluate(runs[scorer] / "model", runs["dev"], candidates=6, device="cpu")
    assert list(evaluation.scores) == list(RANKS)
    assert evaluation.scores == pytest.approx({name: report["scores"][name]["mean"] for name in RANKS}, abs=0.02)


@pytest.mark.parametrize("scorer", KINDS)
def test_an_answer_alone_is_that_in_a_batch(runs: dict[str, Path], scorer: str) -> None:
    model = bertsmith.load(runs[scorer] / "model", device="cpu")
    assert model.task == KINDS[scorer]
    questions = [("\n".join(row["context"]), ["the film", row["response"], "oslo"]) for row in dialogues(9, 3)]
    together = model.choose(questions)
    for question, answer in zip(questions, together, strict=True):
        (alone,) = model.choose([question])
        assert [number for number, _, _ in alone.ranking] == [number for number, _, _ in answer.ranking]
        np.testing.assert_allclose(alone.probabilities, answer.probabilities, rtol=1e-4, atol=1e-6)
        assert answer.ranking[0][:2] == (answer.index, answer.text)
        assert [chance for _, _, chance in answer.ranking] == sorted(answer.probabilities, reverse=True)


@pytest.mark.parametrize("scorer", KINDS)
def test_a_list_of_replies_is_ranked_as_candidates_of_the_row(runs: dict[str, Path], scorer: str) -> None:
    predictor = load_predictor(runs[scorer] / "model", device="cpu")
    replies = tuple(dict.fromkeys(row["response"] for row in dialogues(30, 4)))
    contexts = [
        ChoiceExample(id=str(n), context="\n".join(row["context"]), endings=(), location=f"row {n}")
        for n, row in enumerate(dialogues(5, 5))
    ]
    whole = [dataclasses.replace(example, endings=replies) for example in contexts]
    ranker = ReplyRanker(predictor, replies, 3)
    for short, full in zip(ranker.predict(contexts), predictor.predict(whole), strict=True):
        assert [text for _, text, _ in short.ranking] == [text for _, text, _ in full.ranking[:3]]
        np.testing.assert_allclose(
            [chance for *_, chance in short.ranking], [chance for *_, chance in full.ranking[:3]], rtol=1e-4, atol=1e-6
        )


def test_contexts_that_are_read_with_each_reply_come_in_blocks_of_few(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_ranker, "_PAIRS_AT_ONCE", 7)
    contexts = [ChoiceExample(id=str(n), context=f"film {n}", endings=(), location=f"row {n}") for n in range(5)]
    for scorer, most in (("cross-encoder", 2), ("vectors", 5)):
        ranker = ReplyRanker(load_predictor(runs[scorer] / "model", device="cpu"), ["a", "b", "c"], 1)
        with unittest.mock.patch.object(ranker, "predict", wraps=ranker.predict) as predict:
            assert [example for example, _ in ranker.stream(contexts)] == contexts
        assert max(len(call.args[0]) for call in predict.call_args_list) == most


def test_a_test_of_ranks_names_the_score() -> None:
    lines = [
        [{"score": rank, "gold": 0, "prediction": {"probabilities": [0.4, 0.6]}} for rank in ranks]
        for ranks in ([1.0, 0.5], [0.5, 0.5])
    ]
    assert paired("selection", "mrr", "", lines[:1], lines[1:])[0] == "mrr"


def test_hard_negatives_equal_no_reply_to_an_equal_context(runs: dict[str, Path]) -> None:
    rows = [("anna was", "Rome."), ("Anna  was", "oslo"), ("carl was", "rome. "), ("carl was", "lima fine")]
    rows += [(f"bert was {n}", text) for n, text in enumerate(("Oslo ", "good film", "bad film"))]
    examples = [ChoiceExample(id="", context=context, endings=(reply,), label=0) for context, reply in rows]
    embedder = load_embedder(str(runs["vectors"] / "model"))
    mined = with_hard_negatives(examples, embedder, 5)
    replies = [{same(text) for text in example.endings[1:]} for example in mined]
    assert any(replies)
    assert not {"rome.", "oslo"} & (replies[0] | replies[1])
    assert not {"rome.", "lima fine"} & (replies[2] | replies[3])


def test_options_of_another_scorer_or_task_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--negatives needs --task response-selection --scorer cross-encoder"):
        FinetuneRequest("starter", "response-selection", tmp_path, negatives=4)
    with pytest.raises(ConfigError, match='`negatives` needs `task="response-selection"` `scorer="cross-encoder"`'):
        bertsmith.finetune("starter", "spam", tmp_path / "run", negatives=4)
    with pytest.raises(ConfigError, match='`candidates` needs `task="response-selection"`'):
        bertsmith.finetune("starter", "spam", tmp_path / "run", candidates=4)
    with pytest.raises(ConfigError, match="--candidates needs --task response-selection"):
        read_task("pairs", file_of_records(tmp_path / "a.jsonl", []), None, columns=ColumnSettings(candidates=4))


def test_the_command_ranks_a_list_of_replies(runs: dict[str, Path], tmp_path: Path) -> None:
    replies = file_with(tmp_path / "replies.txt", "rome good anna\noslo bad carl\nlima fine bert\n")
    command = [sys.executable, "-m", "bertsmith", "predict", "--model", str(runs["vectors"] / "model")]
    lines = 'anna was in rome good\n{"context": ["a film", "carl was in oslo bad"]}\n'
    done = subprocess.run(
        [*command, "--replies", str(replies), "--top", "2", "--json", "--device", "cpu"],
        input=lines, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == ["rome good anna", "oslo bad carl"]
    assert [len(answer["ranking"]) for answer in answers] == [2, 2]
    failed = subprocess.run(
        [*command, "--device", "cpu"], input="a film\tone\n", capture_output=True, text=True, check=False
    )
    assert failed.returncode != 0
    assert "line 1 of stdin" in failed.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"context": "x", "candidates": ["one"]}', "a list of at least two texts as 'candidates' in line 7"),
        ('{"context": ["x", 3], "candidates": ["a", "b"]}', "a text as 'context' in line 7"),
        ('{"candidates": ["a", "b"]}', "a text as 'context' in line 7 of stdin; found no such key, only 'candidates'"),
        ('{"context": [], "candidates": ["a", "b"]}', r"a text as 'context' in line 7 of stdin; found \[\]"),
        ("a context", "a context and at least two replies, with tabs between them, in line 7.*--replies"),
    ],
)
def test_a_typed_line_that_lacks_something_is_refused_with_its_place(line: str, message: str) -> None:
    spec = SPECS["replies by vectors"]
    with pytest.raises(InputError, match=message):
        example_of_line(spec, line, 7)
    for alone in ('{"context": 3}', "{}"):
        with pytest.raises(InputError, match="a context, as a line or as 'context' in JSON, in line 7"):
            example_of_line(spec, alone, 7, alone=True)
    read = example_of_line(spec, '{"context": ["a", "b"], "candidates": ["c", "d"]}', 7)
    assert (read.context, read.endings) == ("a\nb", ("c", "d"))


def test_another_model_has_no_use_for_replies(tmp_path: Path, runs: dict[str, Path]) -> None:
    predictor = load_predictor(runs["vectors"] / "model", device="cpu")
    predictor.task = task_for(TaskSpec(kind="choice", name="choice"))
    with pytest.raises(BertsmithError, match="a model of response-selection, for --replies"):
        ReplyRanker(predictor, ["a", "b"], 1)


@pytest.mark.parametrize("kind", KINDS.values())
def test_scores_are_those_of_the_ranks(kind: str) -> None:
    task = task_for(TaskSpec(kind=kind, name="response-selection", metric="recall@1", metrics=RANKS, reads="mean"))
    examples = [ChoiceExample(id=str(n), context="a", endings=("a", "film", "it"), label=n) for n in range(3)]
    predictions = [ChoicePrediction(index=0, probabilities=(0.5, 0.3, 0.2), text="a")] * 3  # ranks 1, 2, 3
    expected = {"recall@1": 1 / 3, "recall@2": 2 / 3, "recall@5": 1.0, "mrr": (1 + 1 / 2 + 1 / 3) / 3}
    assert task.score(examples, predictions) == pytest.approx(expected)
    assert task.example_scores(examples, predictions).tolist() == [1, 0, 0]


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_long_context_keeps_its_last_turns_and_says_so(kind: str) -> None:
    settings = TaskSettings(max_length=8, long_text="tail")
    task = task_for(
        TaskSpec(kind=kind, name="response-selection", metric="mrr", metrics=RANKS, reads="mean", settings=settings)
    )
    context = "anna bert carl rome oslo lima the a film was"
    example = ChoiceExample(id="0", context=context, endings=("it", "and"), label=0)
    rows = task.encode([example], TOKENIZER).rows
    pieces = [TOKENIZER.vocabulary.pieces[number] for number in rows.row(0)[0]]
    assert "was" in pieces
    assert "anna" not in pieces
    assert rows.cut_tokens > 0


def test_exported_vectors_are_those_of_the_model(runs: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    bertsmith.convert(runs["vectors"] / "model", tmp_path / "onnx", to="onnx")
    ours, exported = (bertsmith.load(path, device="cpu") for path in (runs["vectors"] / "model", tmp_path / "onnx"))
    texts = [row["response"] for row in dialogues(5, 6)]
    np.testing.assert_allclose(ours.embed(texts), exported.embed(texts), rtol=1e-3, atol=1e-4)
    asked = [(" ".join(row["context"]), texts) for row in dialogues(3, 7)]
    for answer, other in zip(ours.choose(asked), exported.choose(asked), strict=True):
        np.testing.assert_allclose(answer.probabilities, other.probabilities, atol=1e-4)


@pytest.mark.parametrize("scorer", KINDS)
def test_the_report_counts_the_ranks(runs: dict[str, Path], scorer: str) -> None:
    spec = json.loads((runs[scorer] / "settings.json").read_text())["settings"]["spec"]
    lines = [json.loads(line) for line in (runs[scorer] / "predictions.jsonl").read_text().splitlines()]
    page = details(spec["kind"], spec, lines)
    assert "rank of the right candidate" in page
    assert "Confusion matrix" not in page
