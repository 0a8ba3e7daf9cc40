"""The tasks of words of the ablations, what is scored without training, and the test over seeds and rows."""

import importlib
import itertools
import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.perplexity import perplexities
from bertsmith.recipes.results.resampling import ScoreRows
from bertsmith.tasks.datasets.examples import ChoiceExample, named_texts

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
COLORS = ("red", "blue", "green", "old", "amber", "orange")
SHORT = "--tokens 3000 --labels 6 --dev 6 --pieces 400".split()


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("ablation_words")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    lines = []
    for number in range(1800):
        color = COLORS[number % len(COLORS)]
        article = "an" if color[0] in "ao" else "a"
        verb, noun = ("was", "bird") if number % 2 else ("were", "birds")
        lines.append(f"number {number % 9} is that there {verb} {article} {color} {noun} on hill {number % 7} .")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files of the tasks of words in their formats, with few rows."""
    folder = tmp_path / "data"
    sentences = [
        {
            "doc": f"wsj_{document:04d}",
            "sent": number,
            "tokens": ["There", verb, "a", color, noun],
            "pos": ["EX", "VBD", "DT", "JJ", "NN" if verb == "was" else "NNS"],
            "spans": [[0, 5, "S"], [0, 1, "NP-SBJ"], [1, 5, "VP"], [2, 5, "NP-PRD"]],
        }
        for document in (1, 160, 161, 199)
        for number, (verb, noun, color) in enumerate(
            [("was", "bird", "red"), ("were", "birds", "blue"), ("was", "hill", "green")] * 3
        )
    ]
    senses = [
        {"word": "bank", "index": 2, "sense_name": sense, "text": f"by the bank of {other} there was a red hill"}
        for sense, other in (("river", "birds"), ("money", "number"))
        for _ in range(6)
    ]
    pairs = [
        {
            "sentence_good": f"there was {good} bird",
            "sentence_bad": f"there were {good} bird",
            "linguistics_term": "agreement",
            "UID": "there",
            "pairID": str(number),
        }
        for number, good in enumerate(COLORS * 3)
    ]
    files = {
        "nltk/treebank": sentences,
        "wsd/coarsewsd20_train": senses,
        "wsd/coarsewsd20_test": senses,
        "blimp/there": pairs,
    }
    for name, rows in files.items():
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_both_candidates_of_a_gap_are_right_equally_often_and_one_was_written(words):
    sentences = [
        f"we saw that there {verb} {article} {noun} on hill {number}"
        for number in range(5)
        for verb, article, noun in (("was", "a", "bird"), ("was", "an", "owl"), ("were", "many", "birds"))
    ]
    few, every = words.gaps(sentences, 7)
    kinds = Counter((example.id.split("/")[0], example.label) for example in every)
    assert kinds == {("article", 0): 5, ("article", 1): 5, ("there was", 0): 5, ("there was", 1): 5}
    for example in every:
        assert f"{example.context} {example.endings[example.label]}" in sentences
        others = {ending.split(" ", 1)[1] for ending in example.endings}
        assert len(others) == 1  # what is on the right is the same
    assert set(few) <= set(every)
    assert words.gaps(sentences, 7) == (few, every)


def test_tags_and_senses_are_read_with_their_split_and_their_word(words, data):
    train, scored = words.tagged(data / "nltk" / "treebank.jsonl", "chunks")
    assert {example.id.split(":")[0] for example in train} == {"wsj_0001", "wsj_0160"}
    assert {example.id.split(":")[0] for example in scored} == {"wsj_0161", "wsj_0199"}
    assert train[0].tags == ("B-NP", "O", "B-NP", "I-NP", "I-NP")
    for example in words.senses(data / "wsd" / "coarsewsd20_train.jsonl"):
        assert example.first[example.start : example.end] == "bank"
    _, pairs = words.minimal_pairs(data / "blimp")
    assert {example.label for example in pairs} == {0, 1}
    assert all("was" in example.endings[example.label] for example in pairs)


def test_all_arms_of_directions_are_scored_with_a_model_for_each_seed(words, text, data, tmp_path):
    ablations = importlib.import_module("ablations")
    work, out = tmp_path / "work", tmp_path / "found"
    arguments = ["--work", str(work), "--text", str(text), "--data", str(data), "--out", str(out), "--seeds", "2"]
    tasks = ["gaps", "senses", "pos", "blimp"]
    arguments += [*SHORT, "--questions", "directions", "--tasks", ",".join(tasks)]
    first = ablations.main(arguments)
    assert first["models"].keys() == {"mlm", "mlm-seed-2", "left-to-right", "left-to-right-seed-2"}
    assert len({model["scores"]["held_out_loss"] for model in first["models"].values()}) == 4
    rows = first["questions"]["directions"]["rows"]
    usual = ["mlm", "left-to-right"]
    others = {
        "gaps": ["left-to-right left-only", "mlm whole-sentence"],
        "senses": ["untrained", "most-frequent"],
        "pos": ["untrained"],
    }
    assert [(row["task"], row["arm"]) for row in rows] == [
        (task, arm) for task in tasks for arm in [*usual, *others.get(task, [])]
    ]
    assert [row["values"] for row in rows if row["arm"] == "most-frequent"] == [[0.5, 0.5]]
    for row in rows:
        assert len(row["values"]) == 2
        if "against" in row:
            assert row["arm"] != "mlm"
            low, high = row["interval"]
            assert low <= row["difference"] <= high
            assert ("one_piece" in row) == (row["task"] == "pos")
    assert {row["task"]: set(row["groups"]) for row in rows if "groups" in row} == {
        "gaps": {"article", "there was"},
        "blimp": {"agreement"},
    }
    verdicts = first["questions"]["directions"]["verdict"]
    assert sorted(itertools.chain.from_iterable(verdicts["left-to-right"].values())) == sorted(tasks)
    made = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    assert ablations.main(arguments)["questions"] == first["questions"]
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()} == made

    probes = importlib.import_module("ablation_probes")
    _masked_scores_are_sums_of_single_masks(probes, work / "models" / "mlm")
    _left_to_right_scores_are_likelihoods(probes, work / "models" / "left-to-right")


def _masked_scores_are_sums_of_single_masks(probes: ModuleType, model: Path) -> None:
    heads = load_pretraining_heads(model, device="cpu")
    tokenizer, text = heads.tokenizer, "there was a red bird"
    pieces = tokenizer.tokenize(text)
    assert len(pieces) == len(text.split())  # each word is a piece, so that a mask hides nothing else
    expected = []
    for number, piece in enumerate(pieces):
        masked = " ".join([*pieces[:number], "[MASK]", *pieces[number + 1 :]])
        fillings = {
            candidate.piece: candidate.probability for candidate in heads.fill(masked, len(tokenizer.vocabulary))[0]
        }
        expected.append(np.log(fillings[piece]))
    scores = probes.masked_scores(heads.engine, tokenizer, [("", text), ("there was", "a red bird")])
    assert scores == pytest.approx([sum(expected), expected[2]], rel=1e-3)
    example = ChoiceExample(id="1", context="there was", endings=("a red bird", "red a bird"), label=0)
    endings = [f"{example.context} {ending}" for ending in example.endings]
    for whole, texts in (
        (True, [("", text) for text in endings]),
        (False, [("there was", e) for e in example.endings]),
    ):
        (answer,) = probes.Likeliest(about="", whole=whole)._answers(heads.engine, tokenizer, [example])
        likely = probes.masked_scores(heads.engine, tokenizer, texts)
        assert np.log(answer.probabilities[0] / answer.probabilities[1]) == pytest.approx(
            likely[0] - likely[1], abs=1e-6
        )


def _left_to_right_scores_are_likelihoods(probes: ModuleType, model: Path) -> None:
    heads = load_pretraining_heads(model, device="cpu")
    example = ChoiceExample(id="1", context="there", endings=("was a bird", "were a bird"), label=0)
    texts = {False: ["there was a bird", "there were a bird"], True: ["there was", "there were"]}
    for left_only, whole in texts.items():
        system = probes.Likeliest(about="", left_only=left_only)
        (answer,) = system._answers(heads.engine, heads.tokenizer, [example])
        losses = [each.nll for each in perplexities(heads.engine, heads.tokenizer, named_texts(whole))]
        assert answer.index == int(np.argmin(losses))
        ratio = np.log(answer.probabilities[0] / answer.probabilities[1])
        assert ratio == pytest.approx(losses[1] - losses[0], abs=1e-6)


def test_the_interval_over_seeds_and_rows_is_wider_than_that_over_rows(words):
    differences = importlib.import_module("ablation_differences")
    draw = np.random.default_rng(1)
    theirs = draw.random(200) < 0.5
    ours = [theirs + shift for shift in (0.0, 0.2, 0.4)]
    pairs = [[ScoreRows(rows=row.astype(float)), ScoreRows(rows=theirs.astype(float))] for row in ours]
    difference, low, high = differences.over_seeds_and_rows(pairs)
    assert difference == pytest.approx(0.2)
    assert low < 0.1  # one seed alone has no difference
    assert high > 0.3
    alone = differences.over_seeds_and_rows(pairs[1:2])
    assert alone == pytest.approx((0.2, 0.2, 0.2))
