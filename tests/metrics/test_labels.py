"""Scores of classes, against scikit-learn."""

import numpy as np
import pytest
import sklearn.metrics as reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.metrics.labels import CLASS_METRICS, accuracy, confusion, micro_f1, multi_label_scores

Ints = np.ndarray
REFERENCE = {
    "accuracy": reference.accuracy_score,
    "f1": lambda gold, predicted: reference.f1_score(gold == 1, predicted == 1, zero_division=0),
    "macro_f1": lambda gold, predicted: reference.f1_score(gold, predicted, average="macro", zero_division=0),
    "matthews": reference.matthews_corrcoef,
}


@st.composite
def class_pairs(draw: st.DrawFn) -> tuple[Ints, Ints]:
    examples, classes = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    row = arrays.arrays(np.int64, examples, elements=st.integers(0, classes - 1))
    return draw(row), draw(row)


def test_every_score_has_a_reference() -> None:
    assert set(CLASS_METRICS) == set(REFERENCE)


@pytest.mark.filterwarnings("ignore:A single label was found:UserWarning")  # the reference's, not ours
@pytest.mark.parametrize("name", list(REFERENCE))
@given(pair=class_pairs())
def test_scores_equal_the_reference(name: str, pair: tuple[Ints, Ints]) -> None:
    assert CLASS_METRICS[name](*pair) == pytest.approx(REFERENCE[name](*pair), abs=1e-12)


@given(class_pairs())
def test_micro_f1_and_confusion_equal_the_reference(pair: tuple[Ints, Ints]) -> None:
    assert micro_f1(*pair) == pytest.approx(reference.f1_score(*pair, average="micro"), abs=1e-12)
    result = confusion(*pair, 5)
    assert result.dtype == np.int64
    assert result.tolist() == reference.confusion_matrix(*pair, labels=range(5)).tolist()


def test_scores_of_a_binary_task_computed_by_hand() -> None:
    gold, predicted = np.array([1, 1, 1, 0, 0, 0, 0, 0]), np.array([1, 1, 0, 1, 0, 0, 0, 0])
    result = {name: score(gold, predicted) for name, score in CLASS_METRICS.items()}
    # 2 true positives, 1 false positive, 1 false negative, 4 true negatives.
    wanted = {"accuracy": 6 / 8, "f1": 2 / 3, "macro_f1": (2 / 3 + 4 / 5) / 2, "matthews": (2 * 4 - 1) / 15}
    assert result == pytest.approx(wanted)


def test_a_single_class_gives_finite_scores() -> None:
    ones, zeros = np.ones(4, np.int64), np.zeros(4, np.int64)
    assert [score(ones, ones) for score in CLASS_METRICS.values()] == [1.0, 1.0, 1.0, 0.0]
    assert [score(zeros, zeros) for score in CLASS_METRICS.values()] == [1.0, 0.0, 1.0, 0.0]
    assert [score(ones, zeros) for score in CLASS_METRICS.values()] == [0.0, 0.0, 0.0, 0.0]


def test_matthews_of_a_constant_prediction_is_zero() -> None:
    assert CLASS_METRICS["matthews"](np.array([0, 1, 2, 1]), np.array([1, 1, 1, 1])) == 0.0


@given(arrays.arrays(np.bool_, st.tuples(st.just(2), st.integers(1, 20), st.integers(2, 5))))
def test_multi_label_scores_equal_the_reference(pair: Ints) -> None:
    gold, predicted = pair
    assert multi_label_scores(gold, predicted) == pytest.approx(
        {
            "micro_f1": reference.f1_score(gold, predicted, average="micro", zero_division=0),
            "macro_f1": reference.f1_score(gold, predicted, average="macro", zero_division=0),
            "subset_accuracy": reference.accuracy_score(gold, predicted),
        },
        abs=1e-12,
    )


def test_examples_without_labels_count_as_correct_sets() -> None:
    nothing = np.zeros((3, 2), np.bool_)
    assert multi_label_scores(nothing, nothing) == {"micro_f1": 0.0, "macro_f1": 0.0, "subset_accuracy": 1.0}


@pytest.mark.parametrize(("gold", "predicted"), [([], []), ([1], [1, 0]), ([[1]], [[1]])])
def test_mismatched_input_is_refused(gold: list[int], predicted: list[int]) -> None:
    with pytest.raises(InputError, match="as many predictions as gold labels, at least one"):
        accuracy(gold, predicted)


@pytest.mark.parametrize("classes", [[0, 2], [-1, 0]])
def test_a_class_out_of_range_is_refused(classes: list[int]) -> None:
    with pytest.raises(InputError, match="classes from 0 to 1; found"):
        confusion([0, 1], classes, 2)
