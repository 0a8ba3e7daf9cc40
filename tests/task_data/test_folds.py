"""Folds: parts of the training examples with equal shares of every label, whole groups and equal texts together."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError
from bertsmith.tasks.datasets.examples import QuestionExample, TextExample
from bertsmith.tasks.task_data.split import fold_numbers


def texts_with(labels: list[str | tuple[str, ...] | float]) -> list[TextExample]:
    return [TextExample(id=str(n), first=f"text {n}", label=label) for n, label in enumerate(labels)]


@given(
    labels=st.lists(st.sampled_from("aabc"), min_size=5, max_size=60), count=st.integers(2, 5), seed=st.integers(0, 3)
)
def test_every_fold_has_an_equal_share_of_each_label(labels: list[str], count: int, seed: int) -> None:
    folds = fold_numbers(texts_with([*labels]), count, seed)
    assert set(folds) == set(range(1, count + 1))
    for label in set(labels):
        shares = Counter(fold for fold, other in zip(folds, labels, strict=True) if other == label)
        assert max(shares.values()) - min(shares[fold] for fold in range(1, count + 1)) <= 1
    assert folds == fold_numbers(texts_with([*labels]), count, seed)


def test_of_several_labels_too_each_fold_has_about_its_share() -> None:
    draw = np.random.default_rng(0)
    labels = [
        tuple(label for label, chance in zip("abc", (0.5, 0.3, 0.05), strict=True) if draw.random() < chance)
        for _ in range(300)
    ]
    folds = fold_numbers(texts_with([*labels]), 5, seed=0)
    for label in "abc":
        shares = Counter(fold for fold, several in zip(folds, labels, strict=True) if label in several)
        assert len(shares) == 5
        assert max(shares.values()) - min(shares.values()) <= 3
    sizes = Counter(folds).values()
    assert max(sizes) - min(sizes) <= 5


@given(groups=st.lists(st.integers(0, 9), min_size=10, max_size=60), count=st.integers(2, 4))
def test_no_group_is_in_two_folds(groups: list[int], count: int) -> None:
    texts = texts_with(["xy"[number % 2] for number in range(len(groups))])
    names = list(map(str, groups))
    if len(set(groups)) < count:
        with pytest.raises(ConfigError, match="groups for --folds"):
            fold_numbers(texts, count, seed=0, groups=names)
        return
    folds = fold_numbers(texts, count, seed=0, groups=names)
    assert set(folds) == set(range(1, count + 1))
    assert len({*zip(folds, groups, strict=True)}) == len(set(groups))


def test_equal_texts_and_questions_about_one_context_are_in_one_fold() -> None:
    texts = [TextExample(id=str(n), first=f"text {n % 4} ", label="xy"[n % 2]) for n in range(12)]
    folds = fold_numbers(texts, 4, seed=0)
    assert len({(text.first, fold) for text, fold in zip(texts, folds, strict=True)}) == 4
    questions = [QuestionExample(id=str(n), question=f"q {n}", context=f"context {n % 3}") for n in range(9)]
    folds = fold_numbers(questions, 3, seed=0)
    assert Counter(folds) == {1: 3, 2: 3, 3: 3}
    with pytest.raises(
        ConfigError, match="expected at least 4 different examples for --folds 4; found 3; use --folds 3"
    ):
        fold_numbers(questions, 4, seed=0)


def test_numbers_are_no_labels() -> None:
    assert Counter(fold_numbers(texts_with([number / 7 for number in range(10)]), 5, seed=0)) == dict.fromkeys(
        range(1, 6), 2
    )
