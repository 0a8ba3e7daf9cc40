"""Scores from per-example rows equal the scores of the task, and their intervals contain them."""

import dataclasses
import json

import numpy as np
import pytest

from bertsmith.base.core.randomness import generator
from bertsmith.recipes.results.comparison import paired
from bertsmith.recipes.results.resampling import example_lines, intervals, score_rows
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.metrics.labels import CLASS_METRICS
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from model.examples import shake
from tasks.task_samples import SPECS, TOKENIZER, examples_of, write_base_model

# The rank of a partner depends on all other examples, so it has no score of its own.
RESAMPLED = [name for name in SPECS if name != "vectors of partners"]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """The lines and the task's scores for each kind of task, from a guessing model."""
    from bertsmith.base.machine.runtime import choose
    from bertsmith.models.checkpoints.assembly import load_for_task
    from bertsmith.models.checkpoints.load import load_any

    base = load_any(write_base_model(tmp_path_factory.mktemp("resampling") / "base"))
    result = {}
    for kind, spec in SPECS.items():
        if spec.kind == "entities-by-name":
            spec = dataclasses.replace(spec, threshold=0.01)  # a guess is an answer
        task, examples = task_for(spec), examples_of(kind, 40, seed=3)
        model = load_for_task(load_any(base), task.head, keep_head=False, seed=1).model.eval()
        shake(model)
        features = task.encode(examples, TOKENIZER)
        logits = task_logits(model, features, choose("cpu", "fp32"), 512)
        logits = logits + generator(1, "noise").normal(size=logits.shape)  # so that no model gives one answer to all
        predictions = task.decode(examples, features, logits, TOKENIZER)
        lines = [json.loads(json.dumps(line)) for line in example_lines(task, examples, predictions)]
        result[kind] = lines, task.score(examples, predictions)
    return result


PATENT_LABELS = ("H", "H04", "H04L", "H04M", "G", "G06")
PATENTS = dataclasses.replace(
    SPECS["several labels"],
    name="patents",
    labels=PATENT_LABELS,
    parents=("", "H", "H04", "H04", "", "G"),
    metrics=("micro_f1", "macro_f1", "subset_accuracy", "precision@1"),
)
MANY = dataclasses.replace(
    SPECS["single"], labels=tuple("abcdefghijklmnop"), metric="macro_f1", metrics=tuple(CLASS_METRICS)
)


def guesses(spec: TaskSpec, count: int, seed: int, skill: float) -> tuple[list[TextExample], list]:
    """Texts with labels of a spec, and predictions that are right by chance or by skill."""
    draw, task = np.random.default_rng(seed), task_for(spec)
    wanted = draw.integers(len(spec.labels), size=count)
    several = draw.random((count, len(spec.labels))) < 0.2
    several[np.arange(count), wanted] = True
    names = [
        tuple(np.array(spec.labels)[row]) if spec.multi_label else spec.labels[number]
        for row, number in zip(several, wanted, strict=True)
    ]
    if spec.multi_label and seed % 2:
        names = [labels[0] for labels in names]  # a single label may be a string
    examples = [TextExample(id=str(n), first="the film", label=label) for n, label in enumerate(names)]
    gold = several if spec.multi_label else np.eye(len(spec.labels))[wanted]
    logits = (skill * (2 * gold - 1) + draw.normal(size=gold.shape)).astype(np.float32)
    return examples, task.decode(examples, task.encode(examples, TOKENIZER), logits, TOKENIZER)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spec", [PATENTS, SPECS["several labels"], MANY], ids=lambda spec: spec.name)
def test_score_and_interval_agree_for_a_hierarchy_and_for_rare_labels(spec: TaskSpec, seed: int) -> None:
    task = task_for(spec)
    for count, skill in ((3, 0.5), (20, 3.0), (60, 1.0)):
        examples, predictions = guesses(spec, count, seed, skill)
        scores = task.score(examples, predictions)
        lines = [json.loads(json.dumps(line)) for line in example_lines(task, examples, predictions)]
        for name in scores:
            if (made_of := score_rows(spec.kind, name, lines, spec.scheme)) is not None:
                score = np.mean if made_of.statistic is None else made_of.statistic
                assert made_of.unit * float(score(made_of.rows)) == pytest.approx(scores[name], abs=1e-9), name
        for name, (low, high) in intervals(spec.kind, scores, lines, spec.scheme).items():
            assert low - 1e-9 <= scores[name] <= high + 1e-9, (name, count)


def test_the_gold_of_a_hierarchy_is_written_with_its_parents() -> None:
    example = TextExample(id="1", first="the film", label=("H04L",))
    assert task_for(PATENTS).golds([example]) == [["H04L", "H", "H04"]]
    assert task_for(SPECS["single"]).golds([TextExample(id="1", first="the film", label="negative")]) == ["negative"]


def test_a_paired_test_over_a_hierarchy_compares_the_scores_of_the_report() -> None:
    task = task_for(PATENTS)
    examples, better = guesses(PATENTS, 40, 2, 2.0)
    worse = guesses(PATENTS, 40, 2, 0.5)[1]
    lines = [list(example_lines(task, examples, part)) for part in (better, worse)]
    compared, test = paired("classification", "micro_f1", "", lines[:1], lines[1:])
    scores = [task.score(examples, part)[compared] for part in (better, worse)]
    assert test.difference == pytest.approx(scores[0] - scores[1], abs=1e-9)


@pytest.mark.parametrize("kind", RESAMPLED)
def test_rows_of_all_examples_give_the_score_of_the_task(answered, kind):
    (lines, scores), spec = answered[kind], SPECS[kind]
    told = {name: score_rows(spec.kind, name, lines, spec.scheme) for name in scores}
    assert told[spec.metric] is not None
    for name, made_of in told.items():
        if made_of is not None:
            score = np.mean if made_of.statistic is None else made_of.statistic
            assert made_of.unit * float(score(made_of.rows)) == pytest.approx(scores[name], abs=1e-9), name


@pytest.mark.parametrize("kind", RESAMPLED)
def test_the_interval_contains_the_score_and_is_reproducible(answered, kind):
    (lines, scores), spec = answered[kind], SPECS[kind]
    ends = intervals(spec.kind, scores, lines, spec.scheme)
    assert spec.metric in ends
    assert ends == intervals(spec.kind, scores, lines, spec.scheme)
    for name, (low, high) in ends.items():
        assert low <= scores[name] <= high
    for few in (1, 2, 3, 7):  # where the draws are few and far apart
        for name, (low, high) in intervals(spec.kind, scores, lines[:few], spec.scheme).items():
            made_of = score_rows(spec.kind, name, lines[:few], spec.scheme)
            score = np.mean if made_of.statistic is None else made_of.statistic
            assert low - 1e-9 <= made_of.unit * float(score(made_of.rows)) <= high + 1e-9, name


def test_more_examples_make_the_interval_narrower(answered):
    lines, scores = answered["single"]
    assert 0 < scores["accuracy"] < 1
    few, many = (intervals("classification", {"accuracy": 0}, lines * times)["accuracy"] for times in (1, 16))
    assert many[1] - many[0] == pytest.approx((few[1] - few[0]) / 4, rel=0.3)


def test_eight_of_eight_right_is_not_certain():
    chances = {"a": 0.75, "b": 0.25}
    lines = [
        {"gold": label, "score": 1.0, "prediction": {"label": label, "probabilities": chances}} for label in "abababab"
    ]
    result = intervals("classification", ("accuracy", "f1", "matthews"), lines)
    assert list(result) == ["accuracy"]  # all draws of the others are 1.0
    assert result["accuracy"] == pytest.approx([0.6306, 1.0], abs=1e-4)
    answered = [{"gold": [{"text": "x"}], "score": 0.0, "prediction": {"text": "y"}}] * 8
    assert intervals("span", ("exact", "f1"), answered) == {"exact": pytest.approx([0.0, 36.94], abs=0.01)}


def test_scores_that_are_not_per_example_have_no_interval(answered):
    lines, _ = answered["several labels"]
    assert score_rows("classification", "macro_f1", lines) is None
    lines, _ = answered["answer or none"]
    assert score_rows("span", "best_f1_thresh", lines) is None


def test_every_classification_metric_follows_from_per_example_rows(answered):
    lines, _ = answered["pair"]
    spec = dataclasses.replace(SPECS["pair"], metrics=tuple(CLASS_METRICS))
    assert set(intervals(spec.kind, dict.fromkeys(CLASS_METRICS, 0.0), lines)) == set(CLASS_METRICS)


@pytest.mark.parametrize("metric", ["spearman", "average_precision"])
def test_cosines_of_different_ranges_are_compared_by_their_ranks(metric):
    draws = np.random.default_rng(1)
    gold = draws.permutation(60) / 60
    names = [str(int(value > 0.5)) for value in gold] if metric == "average_precision" else gold.tolist()
    noise = draws.normal(size=60)

    def lines(values):
        return [
            {"gold": name, "score": 0.0, "prediction": {"value": value}}
            for name, value in zip(names, values, strict=True)
        ]

    crowded, wide = lines(0.99 + (gold + noise) / 1000), lines(gold + noise)
    compared, test = paired("similarity", metric, "", [wide], [crowded])
    assert compared == metric
    assert (test.difference, test.p_value) == (0, 1)
    _, test = paired("similarity", metric, "", [lines(gold)], [crowded])
    assert test.difference > 0.2
    assert test.p_value < 0.05
