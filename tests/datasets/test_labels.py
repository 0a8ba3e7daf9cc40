"""Gold labels unknown to the model: each counts as a miss, in the scores, their intervals and on the page."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.recipes.results.resampling import example_lines, score_rows
from bertsmith.recipes.results.scores import details
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.datasets.labels import check_known, class_labels
from bertsmith.tasks.metrics.labels import macro_f1
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.task import TaskSpec

METRICS = ("accuracy", "f1", "macro_f1", "matthews")
SPEC = TaskSpec(kind="classification", name="classification", labels=("ham", "spam"), metrics=METRICS)
SEVERAL = dataclasses.replace(
    SPEC, multi_label=True, metric="micro_f1", metrics=("micro_f1", "macro_f1", "subset_accuracy")
)


def text(label: str | tuple[str, ...], number: int = 0) -> TextExample:
    return TextExample(id=str(number), first="a", label=label, location=f"line {number + 2} of 'dev.csv'")


def answer(*chosen: str) -> LabelPrediction:
    label = chosen[0] if chosen else "ham"
    chances = (0.75, 0.25) if label == "ham" else (0.25, 0.75)
    return LabelPrediction(label=label, probability=0.75, probabilities=chances, labels=SPEC.labels, chosen=chosen)


def test_an_unknown_label_is_a_class_of_its_own_that_is_never_given() -> None:
    task = ClassificationTask(SPEC)
    golds, answers = ["spam", "ham", "eggs", "toast", "ham"], ["spam", "ham", "spam", "ham", "ham"]
    examples = [text(label, number) for number, label in enumerate(golds)]
    predictions = [answer(label) for label in answers]
    scores = task.score(examples, predictions)
    assert scores["accuracy"] == 0.6
    assert scores["f1"] == pytest.approx(2 / 3)
    assert scores["macro_f1"] == macro_f1([1, 0, 2, 3, 0], [1, 0, 1, 0, 0])
    assert 0 < scores["matthews"] < 1
    lines = list(example_lines(task, examples, predictions))
    assert [line["score"] for line in lines] == [1, 1, 0, 0, 1]
    for metric in METRICS:
        made_of = score_rows("classification", metric, lines)
        again = made_of.rows.mean() if made_of.statistic is None else made_of.statistic(made_of.rows)
        assert again == pytest.approx(scores[metric])
    page = details("classification", SPEC.to_dict(), lines)
    assert "eggs" in page
    assert "toast" in page


def test_labels_are_in_the_order_of_their_values_then_of_their_names() -> None:
    names = ["010", "001", "10", "1", "01", "2", "\u0661"]
    for order in (names, names[::-1], sorted(names)):
        assert class_labels([text(name) for name in order]) == ("001", "01", "1", "\u0661", "2", "010", "10")
    mixed = class_labels([text(name) for name in ("b", "10", "2")])
    assert mixed == ("10", "2", "b")
    assert class_labels([text("1" * 5000), text("2")]) == ("1" * 5000, "2")


def test_the_order_of_labels_is_the_same_in_every_process() -> None:
    program = (
        "from bertsmith.tasks.datasets.examples import TextExample as T;"
        "from bertsmith.tasks.datasets.labels import class_labels;"
        "print(class_labels([T(id='', first='', label='0' * n + '1') for n in range(20)]))"
    )
    seeds = ("0", "1", "2", "3")
    result = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in seeds
    }
    assert len(result) == 1


def test_a_dash_among_the_labels_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    class_labels([text("+"), text("-")])
    assert capsys.readouterr().err == ""
    class_labels([text("a"), text("b"), text("-")])
    said = capsys.readouterr().err
    assert "'-' is learned as a class" in said
    assert "(rows with '-' in a column named gold_label are skipped)" in said


def test_the_temperature_is_fitted_without_labels_that_have_no_probability() -> None:
    spec = dataclasses.replace(SPEC, settings=dataclasses.replace(SPEC.settings, calibrate=True))
    task = ClassificationTask(spec)
    examples = [text(label) for label in ("spam", "ham", "ham", "spam")]
    predictions = [answer(label) for label in ("spam", "ham", "ham", "ham")]
    alone = task.tuned(examples, predictions)
    assert alone.temperature != 1.0
    assert task.tuned([*examples, text("eggs")], [*predictions, answer("ham")]) == alone


def test_an_unknown_one_of_several_labels_is_a_miss() -> None:
    task = ClassificationTask(SEVERAL)
    examples = [text(("spam", "eggs")), text(("ham",)), text(("eggs",)), text(())]
    predictions = [answer("spam"), answer("ham"), answer(), answer()]
    assert task.score(examples, predictions) == {
        "micro_f1": pytest.approx(2 / 3),  # two of four gold labels, and no wrong one
        "macro_f1": pytest.approx(2 / 3),
        "subset_accuracy": 0.5,
    }
    lines = list(example_lines(task, examples, predictions))
    made_of = score_rows("classification", "micro_f1", lines)
    assert made_of.statistic(made_of.rows) == pytest.approx(2 / 3)
    assert "eggs" in details("classification", SEVERAL.to_dict(), lines)


def test_unknown_labels_are_counted_and_named_and_only_some_of_many(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["ham", "spam", "Ham", *(f"label {number}" for number in range(12)), "label 3"]
    examples = [text(name, number) for number, name in enumerate(names)]
    check_known(examples, SPEC.labels, training=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "warning: 14 of 16 gold labels are unknown to the model, scored as a miss: "
        "'label 3' (2 times, first in line 8 of 'dev.csv'), 'Ham' (once, in line 4 of 'dev.csv'), 'label 0' (once,"
    )
    assert line.endswith(" and 3 more; correct them, or train with examples of them")
    check_known(examples[:2], SPEC.labels, training=False)
    check_known([text(())], SPEC.labels, training=False)
    assert capsys.readouterr().err == ""


def test_one_unknown_label_of_a_training_example_is_named_with_its_row() -> None:
    with pytest.raises(InputError) as error:
        check_known([text("ham"), text("spma", 5)], SPEC.labels, training=True)
    assert str(error.value) == (
        "expected a known label in line 7 of 'dev.csv'; found 'spma'; did you mean 'spam'? "
        "Labels come from the training file"
    )


def test_examples_of_which_no_label_is_known_are_of_another_task() -> None:
    with pytest.raises(InputError, match="found 'eggs' 2 times; use one of 'ham', 'spam'"):
        check_known([text("eggs"), text("eggs", 1)], SPEC.labels, training=False)


def test_numbers_of_unknown_labels_stand_behind_the_others() -> None:
    gold, predicted = ClassificationTask(SPEC).numbers([text("toast"), text("ham"), text("eggs")], [answer("ham")] * 3)
    assert np.array_equal(gold, [3, 0, 2])
    assert np.array_equal(predicted, [0, 0, 0])
