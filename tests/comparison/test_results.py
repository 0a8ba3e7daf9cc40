"""Which step was worth it: means, spreads, and the cheapest system that is level with the best."""

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from bertsmith.recipes.comparison.fitting import Cell, CellKey, file_name
from bertsmith.recipes.comparison.results import is_level, rows_of, verdicts
from bertsmith.recipes.results.comparison import paired
from bertsmith.tasks.specs.task import TaskSpec

SPEC = TaskSpec(kind="classification", name="sentiment", labels=("no", "yes"))
DEV = 200


def cell(system: str, seed: int, right: int, seconds: float, making: float = 0.0, labels: int = 50) -> Cell:
    return Cell(
        key=CellKey(system=system, labels=labels, seed=seed),
        scores={"accuracy": right / DEV},
        intervals={"accuracy": [0.1, 0.9]},
        costs={"fit_processor_seconds": seconds, "fit_seconds": seconds, "parameters": 7, "milliseconds": 1.0},
        making={"processor_seconds": making, "seconds": making} if making else {},
    )


def rows(*cells: Cell):
    right = {cell.key: round(cell.scores["accuracy"] * DEV) for cell in cells}

    def lines(key: CellKey):
        names = ["no", "yes"]
        answers = ["yes" if number < right[key] else "no" for number in range(DEV)]
        return [
            {"gold": "yes", "score": float(answer == "yes"),
             "prediction": {"label": answer, "probabilities": dict.fromkeys(names, 0.5)}}
            for answer in answers
        ]  # fmt: skip

    return rows_of(cells, SPEC, list(dict.fromkeys(cell.key.system for cell in cells)), lines)


def test_a_row_has_mean_spread_and_the_test_against_the_best():
    result = rows(cell("a", 1, 100, 1), cell("a", 2, 120, 3), cell("b", 1, 180, 5, making=60), cell("b", 2, 180, 5))
    first, second = result
    assert (first.mean, first.values, first.seeds) == (pytest.approx(0.55), (0.5, 0.6), [1, 2])
    assert first.deviation == pytest.approx(0.0707, abs=1e-4)
    assert (first.fitting, first.making, first.processor_seconds) == (2.0, None, 2.0)
    assert (second.is_best, second.processor_seconds, second.p_value) == (True, 65.0, None)
    assert first.difference == pytest.approx(-0.35)
    assert first.p_value < 0.01
    assert not is_level(first, second)


def test_the_best_is_worth_it_if_no_cheaper_one_is_level():
    (said,) = verdicts(rows(cell("a", 1, 100, 1), cell("b", 1, 110, 2), cell("c", 1, 180, 9)), "accuracy")
    assert said == (
        "With 50 labels, c was worth it (accuracy 0.9000, 9.0 s of processor time): it is better than every cheaper "
        "system by more than chance would explain, the best of which is b (0.5500, 2.0 s)."
    )


def test_a_cheaper_system_is_worth_it_if_the_examples_cannot_separate_it_from_the_best():
    (said,) = verdicts(rows(cell("a", 1, 178, 1), cell("b", 1, 110, 0.5), cell("c", 1, 180, 99)), "accuracy")
    assert said == (
        "With 50 labels, a was worth it (accuracy 0.8900, 1.0 s of processor time): the best, c (0.9000, 1 min 39 s), "
        "is not better by more than chance would explain."
    )


def test_a_difference_within_the_spread_over_seeds_is_none():
    wide = [cell("c", 1, 199, 99), cell("c", 2, 120, 99)]
    (said,) = verdicts(rows(cell("a", 1, 140, 1), cell("a", 2, 140, 1), *wide), "accuracy")
    assert said.startswith("With 50 labels, a was worth it")


def test_the_cheapest_and_best_and_the_only_one_are_said_to_be_that():
    (said,) = verdicts(rows(cell("a", 1, 180, 1), cell("b", 1, 100, 2)), "accuracy")
    assert said.endswith("it is both the best and the cheapest.")
    (said,) = verdicts(rows(cell("a", 1, 180, 1)), "accuracy")
    assert said.endswith("it is the only system with a score.")


def test_there_is_a_sentence_for_each_number_of_labels_most_first():
    result = rows(cell("a", 1, 100, 1), cell("a", 1, 120, 1, labels=1000), cell("b", 1, 150, 4, labels=1000))
    said = verdicts(result, "accuracy")
    assert [sentence.split(",")[0] for sentence in said] == ["With 1", "With 50 labels"]
    assert "With 1,000 labels, b was worth it" in said[0]


def test_cells_that_failed_and_systems_without_cells_have_no_row():
    failed = Cell(key=CellKey(system="b", labels=50, seed=1), error="expected x; found y; do z")
    result = rows_of([cell("a", 1, 100, 1), failed], SPEC, ["a", "b", "c"], lambda key: [])
    assert [row.system for row in result] == ["a"]


def test_names_that_differ_have_folders_that_differ():
    names = ["bert", "runs/a", "runs-a", "runs/a/", "../x", "..", "a b"]
    folders = [file_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all("/" not in name and name.strip(".") for name in folders)


def test_the_test_is_over_all_seeds_not_the_first():
    level_at_first = [cell("a", 1, 180, 1), cell("a", 2, 100, 1), cell("b", 1, 180, 2), cell("b", 2, 190, 2)]
    first, _ = rows(*level_at_first)
    assert first.difference == pytest.approx(-0.225)
    assert first.p_value < 0.01
    only_shared = rows(cell("a", 1, 100, 1), cell("b", 1, 120, 2), cell("b", 2, 190, 2))
    assert only_shared[0].difference == pytest.approx(-0.1), "seed 2 has no fit of a"
    alone, _ = rows(cell("a", 1, 100, 1), cell("b", 2, 190, 2))
    assert alone.p_value is None


def test_a_score_that_is_no_mean_over_examples_is_recomputed_for_each_seed():
    rng = np.random.default_rng(0)
    golds = rng.integers(2, size=60)
    answers = {(name, seed): np.where(rng.random(60) < share, golds, 1 - golds)
               for name, share in (("a", 0.6), ("b", 0.9)) for seed in (1, 2)}  # fmt: skip

    def lines(name: str, seed: int):
        chances = {"0": 0.5, "1": 0.5}
        return [
            {
                "gold": str(gold),
                "score": float(gold == answer),
                "prediction": {"label": str(answer), "probabilities": chances},
            }
            for gold, answer in zip(golds, answers[name, seed], strict=True)
        ]

    ours, theirs = ([lines(name, seed) for seed in (1, 2)] for name in "ab")
    name, test = paired("classification", "matthews", "", ours, theirs)
    wanted = [np.mean([matthews_corrcoef(golds, answers[name, seed]) for seed in (1, 2)]) for name in "ab"]
    assert (name, test.difference) == ("matthews", pytest.approx(wanted[0] - wanted[1]))
    assert test.p_value < 0.05
