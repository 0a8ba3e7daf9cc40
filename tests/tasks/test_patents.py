"""Several labels of a hierarchy for a text: targets, consistent answers, scores of the most probable, thresholds."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import evaluate, finetune, load
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.calibration import best_label_threshold, best_thresholds_of_labels
from bertsmith.tasks.metrics.labels import AT_METRICS, multi_label_scores, scores_at
from bertsmith.tasks.specs.classification import ClassificationTask, label_matrix, with_parents
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.task_files import read_task
from tasks.task_samples import PEOPLE, PLACES, PLAIN, TOKENIZER, write_base_model
from written_files import file_with

LABELS, PARENTS = ("H04L", "H04M", "G06F", "H04", "H", "G06", "G"), ("H04", "H04", "G06", "H", "", "G", "")
SPEC = TaskSpec(
    kind="classification",
    name="patents",
    labels=LABELS,
    parents=PARENTS,
    multi_label=True,
    metric="micro_f1",
    metrics=("micro_f1", "macro_f1", "subset_accuracy", *AT_METRICS),
    settings=TaskSettings(max_length=16),
)


def example(number: int, *labels: str) -> TextExample:
    return TextExample(id=str(number), first="the film", label=labels, location=f"line {number}")


def write_patents(path: Path, count: int, seed: int = 0) -> Path:
    draw, lines = generator(seed, "patents"), []
    for number in range(count):
        phone, boat = bool(number & 1), bool(number & 2)
        words = [
            *draw.choice(PLAIN, 3),
            *(draw.choice(PEOPLE, 1) if phone else ()),
            *(draw.choice(PLACES, 1) if boat else ()),
        ]
        codes = ["H04L"] * phone + ["B63H 9/06"] * boat + ["G06F"] * (not phone and not boat)
        lines.append({"claims": f"1. {' '.join(words)}. 2. The one of claim 1.", "cpc_ids": codes})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_targets_have_the_parents_of_their_labels() -> None:
    task = ClassificationTask(SPEC)
    features = task.encode([example(1, "H04L"), example(2, "G06F", "H04M"), example(3, "H")], TOKENIZER)
    names = [{LABELS[index] for index in np.flatnonzero(row)} for row in features.targets]
    assert names == [{"H04L", "H04", "H"}, {"G06F", "G06", "G", "H04M", "H04", "H"}, {"H"}]


def test_a_label_is_predicted_only_with_its_parents() -> None:
    task = ClassificationTask(dataclasses.replace(SPEC, threshold=0.3))
    logits = generator(0, "logits").normal(size=(200, len(LABELS))).astype(np.float32)
    number = {label: position for position, label in enumerate(LABELS)}
    chances = task.probabilities(logits)
    plain = ClassificationTask(dataclasses.replace(SPEC, parents=())).probabilities(logits)
    for label, parent in zip(LABELS, PARENTS, strict=True):
        if parent:
            assert (chances[:, number[parent]] >= chances[:, number[label]]).all()
    assert (chances >= plain).all()
    leaves = [number[label] for label in LABELS[:3]]
    assert (chances[:, leaves] == plain[:, leaves]).all()
    examples = [example(n, "H04L") for n in range(200)]
    for prediction in task.decode(examples, task.encode(examples, TOKENIZER), logits, TOKENIZER):
        chosen = set(prediction.chosen)
        assert all(PARENTS[number[label]] in chosen | {""} for label in chosen)


def test_scores_of_the_most_probable_labels_are_those_of_a_slow_version() -> None:
    draw = generator(1, "scores")
    gold, chances = draw.random((60, 8)) < 0.3, draw.random((60, 8))
    result = scores_at(gold, chances)
    for k in (1, 5):
        hits = sum(bool(row[index]) for row, some in zip(gold, chances, strict=True) for index in np.argsort(-some)[:k])
        precision, recall = hits / (60 * k), hits / gold.sum()
        assert result[f"precision@{k}"] == pytest.approx(precision)
        assert result[f"recall@{k}"] == pytest.approx(recall)
        assert result[f"f1@{k}"] == pytest.approx(2 * precision * recall / (precision + recall))
    few = scores_at(gold[:, :3], chances[:, :3])
    assert few["precision@5"] == pytest.approx(gold[:, :3].mean())
    assert few["recall@5"] == 1.0


def test_hundreds_of_labels_are_scored_like_a_few() -> None:
    labels = [f"L{n}" for n in range(700)]
    names = [tuple(generator(n, "labels").choice(labels, 3, replace=False)) for n in range(50)]
    matrix = label_matrix(names, labels)
    assert matrix.sum() == 150
    assert all(matrix[row, labels.index(name)] for row, some in enumerate(names) for name in some)
    assert not label_matrix([], labels).size
    assert with_parents(matrix, labels, ()) is matrix


def test_the_threshold_is_fitted_to_the_dev_examples() -> None:
    draw = generator(2, "threshold")
    gold = draw.random((300, 7)) < 0.2
    chances = np.clip(np.where(gold, 0.35, 0.15) + draw.normal(0, 0.05, gold.shape), 0, 1)
    fitted = best_label_threshold(gold, chances, lambda *both: multi_label_scores(*both)["micro_f1"])
    assert 0.2 < fitted < 0.3
    spec = dataclasses.replace(SPEC, parents=(), settings=TaskSettings(tune_threshold=True))
    task = ClassificationTask(spec)
    assert task.ignored_settings() == []
    examples = [example(n, *np.array(LABELS)[row].tolist()) for n, row in enumerate(gold)]
    predictions = task.decided(chances, [0] * len(chances))
    tuned = task.tuned(examples, predictions)
    assert tuned.threshold == pytest.approx(fitted)
    again = ClassificationTask(tuned).decided(chances, [0] * len(chances))
    fair = task.cross_fitted(examples, predictions)
    scores = [task.score(examples, some)["micro_f1"] for some in (predictions, fair, again)]
    assert scores[0] < scores[1] <= scores[2] + 0.01


def test_thresholds_of_each_label_are_fitted_and_keep_the_hierarchy(capsys: pytest.CaptureFixture[str]) -> None:
    draw = generator(3, "thresholds")
    task = ClassificationTask(
        dataclasses.replace(SPEC, metric="macro_f1", settings=TaskSettings(label_thresholds=True))
    )
    gold = with_parents(draw.random((300, 7)) < [0.3, 0.2, 0.3, 0, 0, 0, 0], LABELS, PARENTS)
    centers = np.array([0.2, 0.7, 0.45, 0.7, 0.75, 0.45, 0.45])
    chances = np.clip(centers + np.where(gold, 0.1, -0.1) + draw.normal(0, 0.03, gold.shape), 0, 1)
    examples = [example(n, *np.array(LABELS)[:3][row[:3]].tolist()) for n, row in enumerate(gold)]
    predictions = task.decided(chances, [0] * len(chances))
    tuned = task.tuned(examples, predictions)
    assert not capsys.readouterr().err
    task.tuned(examples[:9], predictions[:9])
    assert "of 7 labels have fewer than 5 dev examples and share one threshold" in capsys.readouterr().err
    assert tuned.thresholds[:3] == pytest.approx(centers[:3], abs=0.05)
    assert TaskSpec.from_dict(json.loads(json.dumps(tuned.to_dict())), "here") == tuned
    again = ClassificationTask(tuned).decided(chances, [0] * len(chances))
    fair = task.cross_fitted(examples, predictions)
    scores = [task.score(examples, some)["macro_f1"] for some in (predictions, fair, again)]
    assert scores[0] + 0.1 < scores[1] <= scores[2] + 0.01
    number = {label: index for index, label in enumerate(LABELS)}
    unusual = ClassificationTask(dataclasses.replace(tuned, thresholds=(0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9)))
    for prediction in unusual.decided(chances, [0] * len(chances)):
        assert all(PARENTS[number[label]] in {*prediction.chosen, ""} for label in prediction.chosen)


@pytest.mark.parametrize(("wrong", "kept"), [(25, False), (10, True)])
def test_thresholds_of_labels_are_kept_only_if_they_are_better_together_with_the_parents(
    wrong: int, kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    # From 0.4, H04L is right in 20 texts and wrong in the others, and H04, which it adds, is wrong in the same ones.
    settings = TaskSettings(label_thresholds=True)
    spec = dataclasses.replace(SPEC, labels=("H04L", "H04", "G"), parents=("H04", "", ""), settings=settings)
    task = ClassificationTask(spec)
    chances = np.array([[0.4, 0.9, 0.8]] * 20 + [[0.4, 0.5, 0.6]] * wrong)
    examples = [example(n, *(["H04L", "G"] if n < 20 else [])) for n in range(len(chances))]
    gold = task._gold_matrix(examples, spec.labels)

    def micro_f1(threshold: float | None, thresholds: tuple[float, ...]) -> float:
        fitted = ClassificationTask(dataclasses.replace(spec, threshold=threshold, thresholds=thresholds))
        return task.score(examples, fitted.decided(chances, [0] * len(chances)))["micro_f1"]

    tuned = task.tuned(examples, task.decided(chances, [0] * len(chances)))
    alone = best_thresholds_of_labels(gold, chances, tuned.threshold, macro=False)
    common, of_labels = micro_f1(tuned.threshold, ()), micro_f1(None, alone)
    assert multi_label_scores(gold, chances >= alone)["micro_f1"] > common  # as if there were no parents
    assert (of_labels > common) == kept
    assert micro_f1(tuned.threshold, tuned.thresholds) == max(of_labels, common)
    assert tuned.thresholds == (alone if kept else ())
    assert ("label_thresholds has no effect" in capsys.readouterr().err) == (not kept)


def test_thresholds_of_other_labels_and_of_single_labels_are_refused_or_ignored() -> None:
    with pytest.raises(ConfigError, match="one threshold for each of the 7 labels; found 2"):
        dataclasses.replace(SPEC, thresholds=(0.2, 0.4))
    assert "thresholds" not in SPEC.to_dict()
    assert "label_thresholds" not in SPEC.to_dict()["settings"]
    single = dataclasses.replace(
        SPEC, multi_label=False, settings=TaskSettings(label_thresholds=True), metric="accuracy"
    )
    task = ClassificationTask(single)
    assert task.ignored_settings() == ["label_thresholds"]
    assert task.why_ignored("label_thresholds") == "it needs texts with several labels each, and here a text has one"


def test_patents_are_fine_tuned_evaluated_and_answered_with_their_parents(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    train, dev = write_patents(tmp_path / "train.jsonl", 48), write_patents(tmp_path / "dev.jsonl", 20, seed=1)
    settings: dict[str, Any] = {
        "epochs": 20, "batch_size": 8, "max_length": 16, "seeds": 1, "learning_rate": 3e-3, "recipe": "2018",
        "bias_correction": True, "tune_threshold": True, "baselines": False, "precision": "fp32", "dropout": 0.0,
    }  # fmt: skip
    result = finetune(
        base, "patents", tmp_path / "run", train=train, dev=dev, hierarchy="cpc", metric="f1@1", **settings
    )
    assert result.spec.labels == ("B63H", "G06F", "H04L", "B63", "G06", "H04", "B", "G", "H")
    assert result.spec.parents[:3] == ("B63", "G06", "H04")
    assert result.report["scores"]["micro_f1"]["mean"] > 0.8
    assert result.report["scores"]["precision@1"]["mean"] > 0.8
    assert result.spec.threshold is not None
    assert load_any(tmp_path / "run").metadata.spec["parents"] == list(result.spec.parents)
    (answer,) = load(tmp_path / "run", device="cpu").classify(["the film anna"])
    if "H04L" in answer.chosen:
        assert {"H04", "H"} <= set(answer.chosen)
    again = evaluate(tmp_path / "run", dev, task="patents")
    each = finetune(
        base, "patents", tmp_path / "each", train=train, dev=dev, hierarchy="cpc", label_thresholds=True,
        **{**settings, "tune_threshold": False},
    )  # fmt: skip
    assert list(each.report["thresholds"]) == list(each.spec.labels)
    assert load_any(tmp_path / "each").metadata.spec["thresholds"] == list(each.spec.thresholds)
    (answer,) = load(tmp_path / "each", device="cpu").classify(["the film anna"])
    limits = dict(zip(each.spec.labels, each.spec.thresholds, strict=True))
    above = {
        label for label, chance in zip(answer.labels, answer.probabilities, strict=True) if chance >= limits[label]
    }
    assert above <= set(answer.chosen)
    assert again.scores["micro_f1"] == pytest.approx(result.report["scores"]["micro_f1"]["mean"], abs=0.05)


def test_a_cycle_and_a_task_without_several_labels_are_refused(tmp_path: Path) -> None:
    train = write_patents(tmp_path / "train.jsonl", 8)
    cycle = file_with(tmp_path / "cycle.tsv", "H04L\tH04\nH04\tH\nH\tH04L\n")
    with pytest.raises(InputError, match="a hierarchy without a cycle"):
        read_task("patents", train, None, columns=ColumnSettings(hierarchy=str(cycle)))
    with pytest.raises(ConfigError, match="--hierarchy needs a task of several labels"):
        read_task("classification", train, None, columns=ColumnSettings(hierarchy="cpc"))
