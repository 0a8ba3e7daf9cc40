"""Scores of answers: worked by hand, against a search over all thresholds, and on published prediction files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.metrics.answers import (
    answer_f1,
    best_threshold,
    exact_match,
    normalize_answer,
    squad2_scores,
    squad_scores,
)

GOLDS = {"who": ["the Normans", "Normans"], "when": ["10th century"], "never": []}
PREDICTIONS = {"who": "Normans!", "when": "in the 10th century", "never": ""}


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Broncos", "broncos"),
        ("an  A-team,\tthe end.", "ateam end"),
        ("theatre", "theatre"),
        ("«The» 2½", "« » 2½"),  # only ASCII punctuation is removed
        ("A.", ""),
        ("", ""),
    ],
)
def test_answers_are_normalized_for_comparison(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_the_best_gold_answer_counts() -> None:
    assert exact_match("normans", GOLDS["who"]) == 1
    assert exact_match("norman", GOLDS["who"]) == 0
    assert answer_f1("Paris Paris Lyon", ["Lyon Rome", "Paris Lyon Paris Nice"]) == pytest.approx(6 / 7)


def test_without_gold_answers_only_the_empty_prediction_is_correct() -> None:
    assert (exact_match("", []), answer_f1("", [])) == (1, 1.0)
    assert (exact_match("x", []), answer_f1("x", [])) == (0, 0.0)


def test_a_missing_prediction_scores_zero_and_is_counted() -> None:
    golds = {"who": GOLDS["who"], "when": GOLDS["when"]}
    result = squad_scores(golds, {"who": "Normans", "other": "x"})
    assert result == {"exact": 50.0, "f1": 50.0, "total": 2, "missing": 1}


def test_two_empty_texts_share_no_word_in_version_1_and_are_equal_in_version_2() -> None:
    golds = {"letter": ["A"]}
    assert squad_scores(golds, {"letter": "the"})["f1"] == 0.0
    assert squad2_scores(golds, {"letter": "the"})["f1"] == 100.0


def test_version_2_drops_gold_answers_that_normalize_to_nothing() -> None:
    golds = {"letter": ["A", "A major"]}
    assert squad_scores(golds, {"letter": "the"})["exact"] == 100.0
    assert squad2_scores(golds, {"letter": "the"})["exact"] == 0.0


def test_version_2_shows_both_kinds_of_questions() -> None:
    result = squad2_scores(GOLDS, PREDICTIONS)
    assert result == pytest.approx(
        {
            "exact": 200 / 3,
            "f1": 100 * (1 + 0.8 + 1) / 3,
            "total": 3,
            "has_ans_exact": 50.0,
            "has_ans_f1": 90.0,
            "has_ans_total": 2,
            "no_ans_exact": 100.0,
            "no_ans_f1": 100.0,
            "no_ans_total": 1,
        }
    )


def test_a_kind_without_questions_is_left_out() -> None:
    assert not any(name.startswith("has_ans") for name in squad2_scores({"never": []}, {"never": "x"}))


def test_a_question_above_the_threshold_counts_as_empty() -> None:
    predictions = PREDICTIONS | {"never": "something"}
    doubts = {"who": 0.1, "when": 0.6, "never": 0.9}
    assert squad2_scores(GOLDS, predictions, doubts)["exact"] == pytest.approx(100 / 3)
    result = squad2_scores(GOLDS, predictions, doubts, threshold=0.5)
    assert (result["exact"], result["f1"]) == pytest.approx((200 / 3, 200 / 3))
    assert (result["best_exact"], result["best_exact_thresh"]) == (pytest.approx(200 / 3), 0.1)
    assert (result["best_f1"], result["best_f1_thresh"]) == (pytest.approx(100 * 2.8 / 3), 0.6)
    assert best_threshold(GOLDS, predictions, doubts, "exact") == (result["best_exact"], 0.1)


def test_if_all_empty_is_best_the_threshold_says_so() -> None:
    golds, predictions = {"a": [], "b": []}, {"a": "x", "b": "y"}
    assert best_threshold(golds, predictions, {"a": 0.3, "b": 0.2}) == (100.0, 0.0)
    best, threshold = best_threshold(golds, predictions, {"a": -5.0, "b": -7.0})
    assert best == 100.0
    assert squad2_scores(golds, predictions, {"a": -5.0, "b": -7.0}, threshold)["f1"] == 100.0


@given(
    st.lists(st.sampled_from([(), ("one",), ("one two",), ("three", "two")]), min_size=1, max_size=7),
    st.lists(st.sampled_from(["", "one", "two", "one two three"]), min_size=7, max_size=7),
    st.permutations([-6.5, -3.0, -0.5, 0.25, 1.0, 2.0, 9.0]),
    st.sampled_from(["exact", "f1"]),
)
def test_the_best_threshold_is_the_best_of_all(
    answers: list[tuple[str, ...]], texts: list[str], doubts: list[float], score: str
) -> None:
    golds = {str(number): gold for number, gold in enumerate(answers)}
    predictions = dict(zip(golds, texts, strict=False))
    no_answer = dict(zip(golds, doubts, strict=False))
    tried = [
        squad2_scores(golds, predictions, no_answer, threshold)[score] for threshold in [-99.0, *no_answer.values()]
    ]
    best, threshold = best_threshold(golds, predictions, no_answer, score)
    assert best == pytest.approx(max(tried))
    assert squad2_scores(golds, predictions, no_answer, threshold)[score] == pytest.approx(best)


def test_input_that_cannot_be_scored_is_refused() -> None:
    with pytest.raises(InputError, match="at least one question"):
        squad_scores({}, {})
    with pytest.raises(InputError, match="found none for question 'never'; score data with unanswerable"):
        squad_scores(GOLDS, PREDICTIONS)
    with pytest.raises(InputError, match="a prediction for every question; found none for 2 of 3, the first 'who'"):
        squad2_scores(GOLDS, {"never": ""})
    with pytest.raises(InputError, match="a no-answer score for every question; found none for 3 of 3"):
        best_threshold(GOLDS, PREDICTIONS, {})
    with pytest.raises(ConfigError, match="unknown score 'em'; use one of"):
        best_threshold(GOLDS, PREDICTIONS, dict.fromkeys(GOLDS, 0.0), "em")


def gold_answers(file: Path) -> dict[str, list[str]]:
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    return {
        question["id"]: [answer["text"] for answer in question["answers"]]
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }


@pytest.mark.parametrize(
    ("file", "exact", "f1", "missing"),
    [("v1.1-BERT-ensemble-GoogleAI", 86.2062, 92.1956, 0), ("v1.1-LogisticRegression-Stanford", 40.1419, 50.9815, 13)],
)
def test_the_published_scores_of_version_1_are_reproduced(
    real_data: Path, file: str, exact: float, f1: float, missing: int
) -> None:
    golds = gold_answers(real_data / "squad" / "dev-v1.1.json")
    predictions = json.loads((real_data / "squad" / "dev_predictions" / f"{file}.json").read_text(encoding="utf-8"))
    result = squad_scores(golds, predictions)
    assert (round(result["exact"], 4), round(result["f1"], 4)) == (exact, f1)
    assert (result["total"], result["missing"]) == (10_570, missing)


def test_the_scores_of_version_2_are_those_of_the_official_script(real_data: Path) -> None:
    golds = gold_answers(real_data / "squad" / "dev-v2.0.json")
    file = real_data / "squad" / "dev_predictions" / "v2.0-BERT-single-GoogleAI.json"
    predictions = json.loads(file.read_text(encoding="utf-8"))
    result = squad2_scores(golds, predictions)
    assert (round(result["exact"], 4), round(result["f1"], 4)) == (78.7417, 81.7753)
    assert (result["total"], result["no_ans_total"]) == (11_873, 5_945)
    # Two answerable questions have a gold answer "." and an empty prediction. The script drops such gold answers;
    # if they are kept, the file has the other scores that are published for it.
    kept = [(predictions[question], answers) for question, answers in golds.items()]
    exact = 100 * sum(exact_match(*pair) for pair in kept) / len(kept)
    f1 = 100 * sum(answer_f1(*pair) for pair in kept) / len(kept)
    assert (round(exact, 4), round(f1, 4)) == (78.7585, 81.7921)
