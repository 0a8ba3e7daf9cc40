"""The ablations on their own tiny text: what differs between arms, and that a second call makes nothing again."""

import dataclasses
import importlib
import itertools
import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bertsmith.base.core.errors import RunError
from bertsmith.models.checkpoints.load import load_any
from bertsmith.text.corpus.shards import Corpus

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SHORT = "--tokens 4000 --labels 12 --dev 12 --seeds 1 --pieces 400".split()


@pytest.fixture
def ablations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("ablations")


@pytest.fixture
def material(ablations, tmp_path):
    text = tmp_path / "text.txt"
    lines = [f"number {n} of the {'red' if n % 2 else 'blue'} birds flew over hill {n % 7} ." for n in range(1500)]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = ablations.Material(folder=tmp_path / "work" / "text", data=None, dev=20, length=32)
    result.prepare([text], 300)
    return result


def test_shuffled_text_has_the_same_sentences_in_chapters_of_the_same_lengths(material):
    ordered, shuffled = (
        [part.splitlines() for part in (material.folder / f"{name}.txt").read_text().split("\n\n") if part.strip()]
        for name in ("ordered", "shuffled")
    )
    assert [len(chapter) for chapter in ordered] == [len(chapter) for chapter in shuffled]
    assert sorted(itertools.chain(*ordered)) == sorted(itertools.chain(*shuffled))
    assert ordered != shuffled
    aside = {sentence for chapter in material.sentences() for sentence in chapter}
    assert aside
    assert not aside & set(itertools.chain(*ordered))
    assert Corpus.open(material.folder / "ordered").held_out() is not None


def test_both_labels_of_word_order_have_sentences_of_the_text_with_the_same_words(material):
    _, data = material.task("word-order")
    written = {sentence for chapter in material.sentences() for sentence in chapter}
    bags = {tuple(sorted(Counter(sentence.split()).items())) for sentence in written}
    examples = [*data.train, *data.dev]
    assert {example.label for example in examples} == {"written", "changed"}
    for example in examples:
        assert tuple(sorted(Counter(example.first.split()).items())) in bags
        assert example.label == "changed" or example.first in written
    assert any(example.first not in written for example in examples)
    assert not {example.id for example in data.train} & {example.id for example in data.dev}


def test_the_second_sentence_of_a_pair_follows_exactly_if_the_label_says_so(material):
    _, data = material.task("next-sentence")
    after = {pair for chapter in material.sentences() for pair in itertools.pairwise(chapter)}
    examples = [*data.train, *data.dev]
    assert all((example.first, example.second) in after for example in examples if example.label == "follows")
    assert any((example.first, example.second) not in after for example in examples if example.label == "elsewhere")


def test_arms_of_a_question_differ_in_one_setting(ablations, material):
    options = ablations._options(["--work", str(material.folder.parent), *SHORT])
    bench = ablations.bench_of("word-order", material, options)
    recipes = {name: ablations.MODELS[name].recipe(bench) for name in ("mlm", "mlm+nsp", "left-to-right", "sinusoidal")}
    run, data, training = recipes["mlm"]
    for name in ("mlm+nsp", "left-to-right"):
        assert recipes[name] == (run, dataclasses.replace(data, objective=name), training)
    assert recipes["sinusoidal"] == (dataclasses.replace(run, positions="sinusoidal"), data, training)
    assert training.tokens == options.tokens


def test_questions_with_answers_in_a_text_are_asked_of_both_objectives(ablations, material, tmp_path):
    paragraphs = [
        {
            "context": f"number {n} of the {color} birds flew over hill {n % 7} . " * 6,
            "qas": [{"id": f"q{n}", "question": "which birds ?", "answers": [{"text": color, "answer_start": start}]}],
        }
        for n, color in enumerate(["red", "blue", "green"] * 8)
        for start in [len(f"number {n} of the ")]
    ]
    for name in ("train-v1.1-partial", "dev-v1.1"):
        path = tmp_path / "data" / "squad" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"version": "1.1", "data": [{"title": "birds", "paragraphs": paragraphs}]}))
    work = material.folder.parent
    arguments = ["--work", str(work), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "found"), *SHORT]
    assert ablations.QUESTIONS["answers"].arms[:2] == ("mlm", "left-to-right")
    report = ablations.main([*arguments, "--questions", "answers"])
    rows = report["questions"]["answers"]["rows"]
    assert [(row["task"], row["metric"], row["arm"]) for row in rows] == [
        ("squad", "f1", arm) for arm in ("mlm", "left-to-right", "untrained")
    ]
    assert all(0 <= row["lowest"] <= row["mean"] <= 100 for row in rows)  # in percent, as SQuAD reports it
    assert report["models"].keys() == {"mlm", "left-to-right"}
    spec, data = dataclasses.replace(material, data=tmp_path / "data", length=64).task("squad")
    assert (spec.kind, spec.settings.max_length, spec.settings.stride) == ("span", 96, 32)
    assert len(data.train) == 24


def test_word_vectors_from_counting_are_all_that_differs_from_random_parameters(ablations, material, tmp_path):
    questions = importlib.import_module("ablation_questions")
    options = ablations._options(["--work", str(material.folder.parent), *SHORT])
    bench = ablations.bench_of("word-order", material, options)
    counted, plain = (
        load_any(questions.ARMS[name].source.make(bench, 3, tmp_path / name).path).tensors
        for name in ("word-vectors", "untrained")
    )
    different = [name for name in plain if not torch.equal(plain[name], counted[name])]
    assert len(different) == 1
    assert "word" in different[0]


def test_left_to_right_models_are_scored_on_chapters_in_order(ablations, tmp_path):
    arguments = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "found"), *SHORT]
    report = ablations.main([*arguments, "--questions", "stretches", "--tasks", "next-sentence"])
    models = report["models"]
    assert models.keys() == {"left-to-right-books", "left-to-right-shuffled"}
    for name, model in models.items():
        assert load_any(tmp_path / "work" / "models" / name).config.is_causal
        assert 1 < model["scores"]["aside_perplexity"] < 400  # of 400 pieces
    assert len({model["scores"]["aside_perplexity"] for model in models.values()}) == 2
    rows = report["questions"]["stretches"]["rows"]
    assert [row["arm"] for row in rows] == ["left-to-right-books", "left-to-right-shuffled"]


def test_a_second_call_makes_nothing_again_and_finds_the_same(ablations, tmp_path):
    arguments = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "found"), *SHORT]
    first = ablations.main([*arguments, "--questions", "books"])
    rows = first["questions"]["books"]["rows"]
    assert [(row["task"], row["arm"]) for row in rows] == [
        (task, arm) for task in ("word-order", "next-sentence") for arm in ("mlm+nsp", "shuffled")
    ]
    assert all(0 <= row["lowest"] <= row["mean"] <= row["highest"] <= 1 for row in rows)
    cells = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert len(cells) == len(rows)
    for task in ("word-order", "next-sentence"):
        assert len({cell["train"] for cell in cells if cell["task"] == task}) == 1  # the same examples in all arms
    assert (tmp_path / "found.svg").read_text().lstrip().startswith("<?xml")
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*") if path.is_file()}
    second = ablations.main([*arguments, "--questions", "books"])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*") if path.is_file()} == made
    assert second["questions"] == first["questions"]
    assert second["models"] == first["models"]
    with pytest.raises(RunError, match="another folder"):
        ablations.main([*arguments[:4], *SHORT[2:], "--tokens", "5000", "--questions", "books"])
