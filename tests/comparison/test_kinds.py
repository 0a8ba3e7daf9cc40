"""Every system on every kind of task that it can do; a reason for the others."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from bertsmith.inference.word_vectors.training import train_word_vectors
from bertsmith.recipes.comparison.bench import Bench, Budget
from bertsmith.recipes.comparison.fitting import all_cells, fit_all, lines_of
from bertsmith.recipes.comparison.linear import WordCounts
from bertsmith.recipes.comparison.networks import Given
from bertsmith.recipes.comparison.results import rows_of
from bertsmith.recipes.comparison.systems import SYSTEMS, FineTuned, FrozenMean, MeanOfWords
from bertsmith.recipes.comparison.word_vector_training import GivenWordVectors
from bertsmith.tasks.metrics.vectors import cosines
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.task_data.split import TaskData
from comparison.ladder_samples import shorten, write_text
from tasks.task_samples import SPECS, examples_of, write_base_model


def ladder(tmp_path: Path) -> dict:
    base = Given(model=write_base_model(tmp_path / "base"))
    text = write_text(tmp_path / "text.txt")
    train_word_vectors([text], tmp_path / "words", method="ppmi", width=8, minimum_count=1)
    return {
        "one-hot": SYSTEMS["one-hot"],
        "tf-idf": SYSTEMS["tf-idf"],
        "words": MeanOfWords(about="words", source=GivenWordVectors(path=str(tmp_path / "words"))),
        "frozen": FrozenMean(about="frozen", source=base),
        "fine-tuned": FineTuned(about="fine-tuned", source=base),
    }


def bench_of(kind: str, tmp_path: Path) -> Bench:
    data = TaskData(train=examples_of(kind, 40), dev=examples_of(kind, 24, seed=1))
    return Bench(
        spec=SPECS[kind], data=data, text=None, budget=Budget(minutes=1.0), models=tmp_path / "models", device="cpu"
    )


@pytest.mark.parametrize(
    "kind",
    [
        "single",
        "pair",
        "several labels",
        "number",
        "windows",
        "tags",
        "choice",
        "answer",
        "scored vectors",
        "vectors of triplets",
    ],
)
def test_a_kind_of_task_is_done_by_those_that_can(kind, tmp_path, monkeypatch):
    shorten(monkeypatch, epochs=1.0)
    bench, systems = bench_of(kind, tmp_path), ladder(tmp_path)
    fit_all(bench, tmp_path / "out", systems, [40], 1)
    cells = list(all_cells(tmp_path / "out"))
    able = [name for name, system in systems.items() if not system.why_not(bench.spec)]
    assert able == (["fine-tuned"] if kind in ("tags", "choice", "answer") else list(systems))
    assert {cell.key.system: cell.error for cell in cells} == dict.fromkeys(able, "")
    rows = rows_of(cells, bench.spec, able, lambda key: lines_of(tmp_path / "out", key))
    assert sorted(row.system for row in rows) == sorted(able)
    for row in rows:
        assert math.isfinite(row.mean)
        assert row.is_best or row.p_value is not None
    scores = {row.system: row.mean for row in rows}
    if kind in ("single", "several labels", "number"):
        assert min(scores["one-hot"], scores["tf-idf"]) > 0.8


def test_what_cannot_do_a_task_says_why():
    for name in ("one-hot", "tf-idf", "ppmi", "bert-frozen"):
        assert "cannot do tagging" in SYSTEMS[name].why_not(SPECS["tags"])
    assert SYSTEMS["bert"].why_not(SPECS["tags"]) == ""
    assert "without prompts" in SYSTEMS["bert-frozen"].why_not(SPECS["vectors of partners"])
    assert SYSTEMS["tf-idf"].why_not(SPECS["vectors of partners"]) == ""


def test_the_cosine_of_counted_words_is_that_of_their_weights():
    texts = ["the cat sat", "the cat sat down", "a dog", "the the cat"]
    one_hot = WordCounts(texts, TaskSettings(), one_hot=True)(texts)
    shared = cosines(np.repeat(one_hot[:1], 3, axis=0), one_hot[1:])
    assert shared == pytest.approx([3 / math.sqrt(3 * 4), 0, 2 / math.sqrt(3 * 2)])
    weighted = WordCounts(texts, TaskSettings(), one_hot=False)(texts)
    expected = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", sublinear_tf=True).fit_transform(texts).toarray()
    assert weighted @ weighted.T == pytest.approx(expected @ expected.T, abs=1e-6)


def test_a_bilstm_with_attention_is_compared_on_tasks_of_two_texts_only(tmp_path):
    kinds = ("single", "pair", "choice", "tags", "answer")
    for name, able in (("elmo-bilstm", kinds), ("elmo-bilstm-attention", ("pair", "choice"))):
        assert [kind for kind in kinds if not SYSTEMS[name].why_not(SPECS[kind])] == list(able)
    assert "needs examples of two" in SYSTEMS["elmo-bilstm-attention"].why_not(SPECS["single"])


def test_the_glue_baseline_with_attention_learns_pairs_on_a_frozen_encoder(tmp_path, monkeypatch):
    shorten(monkeypatch, epochs=18.0)
    data = TaskData(train=examples_of("pair", 64), dev=examples_of("pair", 24, seed=1))
    bench = dataclasses.replace(bench_of("pair", tmp_path), data=data)
    base = Given(model=write_base_model(tmp_path / "base"))
    attends = dataclasses.replace(SYSTEMS["elmo-bilstm-attention"], source=base)
    more = {"learning_rate": 1e-2, "dropout": 0.0, "batch_size": 16}
    systems = {"attends": dataclasses.replace(attends, settings={**attends.settings, **more})}
    fit_all(bench, tmp_path / "out", systems, [64], 1)
    (cell,) = all_cells(tmp_path / "out")
    assert cell.error == ""
    settings = cell.provenance["settings"]
    assert (settings["reads"], settings["freeze"], settings["bilstm_cells"]) == ("bilstm-attention", "body", 128)
    assert cell.scores["accuracy"] > 0.8


def test_a_fine_tuned_system_may_differ_from_the_recipe(tmp_path):
    bench = bench_of("single", tmp_path)
    base = Given(model=write_base_model(tmp_path / "base"))
    settings = {"epochs": 1.0, "reads": "bilstm", "bilstm_cells": 4, "freeze": "nothing"}
    systems = {
        "as the recipe says": FineTuned(about="plain", source=base, settings={"epochs": 1.0}),
        "with a BiLSTM": FineTuned(about="BiLSTM", source=base, settings=settings),
    }
    fit_all(bench, tmp_path / "out", systems, [40], 1)
    cells = {cell.key.system: cell for cell in all_cells(tmp_path / "out")}
    result = {name: cell.provenance["settings"] for name, cell in cells.items()}
    assert {name: result["with a BiLSTM"][name] for name in settings} == settings
    assert result["as the recipe says"]["epochs"] == 1.0
    assert result["as the recipe says"]["reads"] != "bilstm"
    assert cells["with a BiLSTM"].costs["parameters"] > cells["as the recipe says"].costs["parameters"]
