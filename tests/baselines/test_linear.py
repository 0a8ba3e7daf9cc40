"""Tests of the linear model on frozen vectors, with scikit-learn as the reference."""

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from bertsmith.tasks.baselines.linear import (
    LEAST_CHANCE,
    PENALTIES,
    PENALTIES_WITH_FAVORED,
    USUAL_PENALTY,
    fit_linear,
)


def vectors(count: int, width: int = 12, seed: int = 0) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    spread = np.random.default_rng(99).uniform(0.1, 5, width)
    return (rng.normal(size=(count, width)) * spread + 3 * spread).astype(np.float32)


def classes(inputs: npt.NDArray[np.float32], count: int, noise: float = 1.0) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(1)
    scores = (inputs / inputs.std(axis=0)) @ rng.normal(size=(inputs.shape[1], count))
    scores -= scores.mean(axis=0)
    return (scores + rng.gumbel(size=scores.shape) * noise).argmax(axis=1).astype(np.int64)


def chances(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("count", [2, 4])
def test_logistic_regression_equals_that_of_scikit_learn(count: int) -> None:
    inputs = vectors(300)
    targets = classes(inputs, count)
    result = fit_linear(inputs, targets, num_outputs=count, penalties=(10.0,))
    reference = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-8, max_iter=5000))
    reference.fit(inputs.astype(np.float64), targets)
    assert result.weight.dtype == result.bias.dtype == np.float32
    assert (result.weight.shape, result.bias.shape, result.penalty) == ((count, 12), (count,), 10.0)
    np.testing.assert_allclose(chances(result.outputs(inputs)), reference.predict_proba(inputs), atol=1e-3)


@pytest.mark.parametrize("examples", [200, 8])
def test_ridge_regression_equals_that_of_scikit_learn(examples: int) -> None:
    inputs = vectors(examples)
    targets = (inputs.sum(axis=1) + np.random.default_rng(3).normal(size=examples)).astype(np.float32)
    result = fit_linear(inputs, targets, num_outputs=1, penalties=(3.0,))
    reference = make_pipeline(StandardScaler(), Ridge(alpha=3.0)).fit(inputs.astype(np.float64), targets)
    np.testing.assert_allclose(result.outputs(inputs)[:, 0], reference.predict(inputs), rtol=1e-4, atol=1e-3)


def test_labels_of_a_multi_label_task_are_fitted_one_by_one() -> None:
    inputs = vectors(200)
    targets = np.stack([classes(inputs, 2), classes(inputs[:, ::-1], 2), np.zeros(200), np.ones(200)], axis=1)
    result = fit_linear(inputs, targets.astype(np.float32), num_outputs=4, penalties=(10.0,))
    odds = result.outputs(inputs).astype(np.float64)
    for label in (0, 1):
        reference = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-8, max_iter=5000))
        reference.fit(inputs.astype(np.float64), targets[:, label])
        np.testing.assert_allclose(1 / (1 + np.exp(-odds[:, label])), reference.predict_proba(inputs)[:, 1], atol=1e-3)
    assert (odds[:, 2] < -60).all()  # no example has it
    assert (odds[:, 3] > 60).all()  # all have it


def test_the_penalty_follows_the_data_and_nothing_else() -> None:
    inputs = vectors(400, 40)
    clear, noise = classes(inputs, 3, noise=0.01), np.random.default_rng(5).integers(3, size=400)
    loose, strict = (fit_linear(inputs, targets, num_outputs=3) for targets in (clear, noise))
    assert loose.penalty < 30 < strict.penalty
    assert {loose.penalty, strict.penalty} <= set(PENALTIES)
    again = fit_linear(inputs, clear, num_outputs=3)
    np.testing.assert_array_equal(loose.weight, again.weight)
    unseen = vectors(400, 40, seed=7)
    worse = fit_linear(inputs, clear, num_outputs=3, penalties=(PENALTIES[0],))
    right = [(model.outputs(unseen).argmax(axis=1) == classes(unseen, 3, 0.01)).mean() for model in (loose, worse)]
    assert right[0] > max(0.8, right[1])


def test_the_penalty_of_a_large_set_is_chosen_on_a_sample() -> None:
    inputs = vectors(20_000, 4)
    targets = classes(inputs, 5, noise=0.1)
    targets[:3] = 5  # rare, and not in the sample
    result = fit_linear(inputs, targets, num_outputs=6)
    assert (result.outputs(inputs).argmax(axis=1) == targets).mean() > 0.6
    assert np.isfinite(result.weight).all()


def test_labels_with_one_example_or_none_are_handled() -> None:
    inputs = vectors(20)
    targets = np.array([0] * 10 + [1] * 9 + [3])  # 2 has no example
    result = fit_linear(inputs, targets, num_outputs=4)
    probabilities = chances(result.outputs(inputs))
    assert (probabilities[:, 2] < 1e3 * LEAST_CHANCE).all()
    assert probabilities[-1].argmax() == 3 or probabilities[-1, 3] > probabilities[0, 3]


def test_one_label_is_always_predicted() -> None:
    result = fit_linear(vectors(5), np.full(5, 1), num_outputs=3)
    assert (chances(result.outputs(vectors(9, seed=2)))[:, 1] > 1 - 1e-9).all()
    assert result.penalty == USUAL_PENALTY


@pytest.mark.parametrize("targets", [np.array([1]), np.array([2.5], dtype=np.float32), np.array([[0.0, 1.0]])])
def test_one_example_is_enough(targets: npt.NDArray[np.generic]) -> None:
    outputs = 1 if targets.dtype == np.float32 else 2
    result = fit_linear(vectors(1), targets, num_outputs=outputs)
    answer = result.outputs(vectors(3, seed=1))
    if outputs == 1:
        np.testing.assert_allclose(answer, 2.5)
    else:
        assert (answer.argmax(axis=1) == 1).all()


def test_a_column_that_never_changes_has_no_weight() -> None:
    inputs = vectors(60)
    inputs[:, 4] = 7.25
    result = fit_linear(inputs, classes(vectors(60), 3), num_outputs=3)
    assert np.abs(result.weight[:, 4]).max() < 1e-6


def test_the_penalty_can_be_chosen_by_a_score_that_the_loss_neglects() -> None:
    inputs = vectors(300, 60)
    noise = np.random.default_rng(2).normal(size=300) * 4
    targets = ((inputs / inputs.std(axis=0))[:, :4].sum(axis=1) + noise > 17).astype(np.int64)  # a rare label

    def accuracy(outputs: npt.NDArray[np.float32], numbers: npt.NDArray[np.int64]) -> float:
        hits = (outputs.argmax(axis=1) == 1) & (targets[numbers] == 1)
        return float(hits.sum())  # recall

    by_loss = fit_linear(inputs, targets, num_outputs=2)
    by_score = fit_linear(inputs, targets, num_outputs=2, score=accuracy)
    assert by_score.penalty < by_loss.penalty


def test_a_least_spread_bounds_the_weights_of_columns_that_are_nearly_constant_and_changes_no_others() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    ordinary = (rng.normal(size=(80, 6)) + labels[:, None]).astype(np.float32)
    plain = fit_linear(ordinary, labels, num_outputs=2, penalties=(1.0,))
    bounded = fit_linear(ordinary, labels, num_outputs=2, penalties=(1.0,), least_spread=0.1)
    np.testing.assert_array_equal(plain.weight, bounded.weight)
    nearly = (1 + 1e-4 * ordinary).astype(np.float32)
    free = fit_linear(nearly, labels, num_outputs=2, penalties=(1.0,))
    bounded = fit_linear(nearly, labels, num_outputs=2, penalties=(1.0,), least_spread=0.1)
    assert np.abs(free.weight).max() > 1000
    assert np.abs(bounded.weight).max() < 10


@pytest.mark.parametrize("kind", ["numbers", "two labels", "three labels"])
def test_the_weights_of_favored_directions_are_penalized_less(kind: str) -> None:
    """A penalty on weights that move along a direction, as columns of their own that are ten thousand times larger."""
    inputs, directions = vectors(150), np.random.default_rng(5).normal(size=(2, 12)).astype(np.float32)
    along = (inputs - inputs.mean(axis=0)).astype(np.float64) @ directions.T
    columns = np.concatenate([StandardScaler().fit_transform(inputs), 100 * along / along.std(axis=0)], axis=1)
    outputs = {"numbers": 1, "two labels": 2, "three labels": 3}[kind]
    targets = classes(inputs, outputs) if outputs > 1 else inputs.sum(axis=1)
    fitted = fit_linear(inputs, targets, num_outputs=outputs, penalties=(1e5,), favored=directions)
    assert fitted.weight.shape == (outputs, 12)
    if outputs == 1:
        expected = Ridge(alpha=1e5).fit(columns, targets).predict(columns)
        np.testing.assert_allclose(fitted.outputs(inputs)[:, 0], expected, rtol=1e-4, atol=1e-3)
    else:
        reference = LogisticRegression(C=1e-5, tol=1e-8, max_iter=20_000).fit(columns, targets)
        np.testing.assert_allclose(chances(fitted.outputs(inputs)), reference.predict_proba(columns), atol=2e-3)
    without = fit_linear(inputs, targets, num_outputs=outputs, penalties=(1e5,))
    moved, little = (model.outputs(inputs).std(axis=0).max() for model in (fitted, without))
    assert moved > 10 * little
    chosen = fit_linear(inputs, targets, num_outputs=outputs, penalties=PENALTIES_WITH_FAVORED, favored=directions)
    assert chosen.penalty in PENALTIES_WITH_FAVORED


def test_favored_directions_that_all_examples_agree_on_change_nothing() -> None:
    inputs = vectors(60)
    targets = classes(inputs, 3)
    inputs[:, 3] = 2.0
    direction = np.eye(12, dtype=np.float32)[3:4]
    plain, favoring = (
        fit_linear(inputs, targets, num_outputs=3, penalties=(10.0,), favored=favored) for favored in (None, direction)
    )
    np.testing.assert_allclose(favoring.outputs(inputs), plain.outputs(inputs), atol=1e-3)
    same = fit_linear(inputs, np.zeros(60, dtype=np.int64), num_outputs=3, favored=direction)
    assert same.outputs(inputs).argmax(axis=1).tolist() == [0] * 60


def test_linear_models_are_fitted_in_one_thread_of_the_linear_algebra() -> None:
    """Whose threads wait for each other on a busy machine; afterwards there are as many as before."""
    draw, threads = np.random.default_rng(0), set()
    vectors, targets = draw.normal(size=(60, 8)).astype(np.float32), draw.integers(3, size=60)

    def blas() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    def score(outputs: np.ndarray, numbers: np.ndarray) -> float:
        threads.update(blas())
        return 0.0

    with threadpool_limits(2, user_api="blas"):
        fit_linear(vectors, targets, num_outputs=3, score=score)
        assert blas() == {2}
    assert threads == {1}
