"""Scores of answers to questions as in the official scorers of SQuAD 1.1 and 2.0, in percent.

Answers are compared after `normalize_answer`; of several gold answers the best match counts.

Source: Rajpurkar et al. (2016), section 6.1, and (2018), section 5; the official evaluate-v1.1.py and evaluate-v2.0.py.
`ranked_answer_scores` are BioASQ's.
"""

import collections
import math
import re
import string
from collections.abc import Collection, Mapping, Sequence

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.settings import require_known

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

_RANKED = 5  # candidates of a question
Golds = Mapping[str, Sequence[str]]


def normalize_answer(text: str) -> str:
    """The text in lower case, without ASCII punctuation, without the words a, an and the, with single spaces.

    >>> normalize_answer("The  U.S. Army's  band")
    'us armys band'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Sequence[str]) -> int:
    """1 if the normalized prediction equals a normalized gold answer, else 0.

    Args:
        golds: gold answers; if there are none, only an empty prediction is correct.
    """
    answer = normalize_answer(prediction)
    return int(any(answer == normalize_answer(gold) for gold in golds or ("",)))


def answer_f1(prediction: str, golds: Sequence[str]) -> float:
    """The best F1 over the gold answers, computed on bags of normalized words; 1 if both sides are empty.

    >>> round(answer_f1("in the city of Paris", ["Paris", "city Paris"]), 3)
    0.667
    """
    words = normalize_answer(prediction).split()
    return max(_bag_f1(words, normalize_answer(gold).split()) for gold in golds or ("",))


def squad_scores(golds: Golds, predictions: Mapping[str, str]) -> dict[str, float]:
    """The scores of SQuAD 1.1: `exact` and `f1` in percent, `total` questions, `missing` predictions.

    A question without a prediction scores 0. Predictions for other questions are ignored.
    """
    _require_questions(golds)
    exact = f1 = 0.0
    for question, answers in golds.items():
        if not answers:
            raise InputError(
                expected="a gold answer for every question",
                found=f"none for question {question!r}",
                fix="score data with unanswerable questions as SQuAD 2.0",
            )
        if question in predictions:
            exact += exact_match(predictions[question], answers)
            # Version 1.1 counts shared words, and two empty texts share none; version 2.0 treats them as equal.
            if normalize_answer(predictions[question]):
                f1 += answer_f1(predictions[question], answers)
    missing = sum(question not in predictions for question in golds)
    return {"exact": 100 * exact / len(golds), "f1": 100 * f1 / len(golds), "total": len(golds), "missing": missing}


def ranked_answer_scores(golds: Golds, candidates: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Of the questions that have an answer, how early it is among the candidates of the model, in percent.

    `exact_at_5` is the share with an exact match among the first five, the lenient accuracy of BioASQ (whose strict
    accuracy is `exact`), and `mrr` the mean reciprocal rank of the first exact match among them, 0 if there is none.
    Candidates that are equal after `normalize_answer` count once. Empty if no question has an answer.

    >>> ranked_answer_scores({"a": ["Paris"], "b": ["1895"], "c": []}, {"a": ["Lyon", "paris"], "b": ["x"], "c": []})
    {'exact_at_5': 50.0, 'mrr': 25.0}

    Source: Tsatsaronis et al. (2015), "An overview of the BIOASQ large-scale biomedical semantic indexing and question
    answering competition", section on factoid questions.
    """
    ranks = []
    for question, answers in golds.items():
        wanted = {normalize_answer(answer) for answer in answers} - {""}
        if wanted:
            listed = list(dict.fromkeys(map(normalize_answer, candidates[question])))[:_RANKED]
            ranks.append(next((rank for rank, text in enumerate(listed, start=1) if text in wanted), math.inf))
    if not ranks:
        return {}
    ranked = sum(rank < math.inf for rank in ranks)
    reciprocal = sum(1 / rank for rank in ranks)
    return {f"exact_at_{_RANKED}": 100 * ranked / len(ranks), "mrr": 100 * reciprocal / len(ranks)}


def squad2_scores(
    golds: Golds,
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """The scores of SQuAD 2.0, in percent, under the names of the official scorer in lower case.

    `exact`, `f1` and `total`; the same with `has_ans_` and `no_ans_` for questions with and without an answer, if
    there are any; and, if `no_answer` is given, `best_exact`, `best_exact_thresh`, `best_f1` and `best_f1_thresh`, see
    `best_threshold`. A gold answer that normalizes to the empty text, such as ".", is dropped as in the official
    scorer. Two questions of the SQuAD 2.0 dev set have one, so scores that include them differ in the last digits.

    Args:
        no_answer: the evidence for no answer, a probability or a difference of scores.
        threshold: a question whose `no_answer` is above it is scored as an empty prediction.
    """
    exact, f1 = _scores_by_question(golds, predictions)
    if no_answer is None:
        shown = {"exact": exact, "f1": f1}
    else:
        _require_all(golds, no_answer, "no-answer score")
        shown = {
            name: {
                question: float(not golds[question]) if no_answer[question] > threshold else score
                for question, score in scores.items()
            }
            for name, scores in (("exact", exact), ("f1", f1))
        }
    parts = {
        "": list(golds),
        "has_ans_": [question for question, answers in golds.items() if answers],
        "no_ans_": [question for question, answers in golds.items() if not answers],
    }
    result: dict[str, float] = {}
    for prefix, questions in parts.items():
        if questions:
            for name, scores in shown.items():
                result[prefix + name] = 100 * sum(scores[question] for question in questions) / len(questions)
            result[prefix + "total"] = len(questions)
    if no_answer is not None:
        for name, scores in (("exact", exact), ("f1", f1)):
            best = _best_threshold(scores, golds, predictions, no_answer)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best
    return result


def best_threshold(
    golds: Golds, predictions: Mapping[str, str], no_answer: Mapping[str, float], score: str = "f1"
) -> tuple[float, float]:
    """The best score in percent that a threshold on `no_answer` can reach, and that threshold.

    Questions are sorted by `no_answer` in ascending order; a prefix of them keeps its predictions, and those of the
    others become empty. The prefix may end among questions of equal value, as in the official scorer, so the score may
    be slightly better than the threshold can achieve.

    Args:
        no_answer: the evidence for no answer; predictions with a value above the threshold become empty.
    """
    names = ("exact", "f1")
    require_known("score", score, names)
    scores = dict(zip(names, _scores_by_question(golds, predictions), strict=True))
    _require_all(golds, no_answer, "no-answer score")
    return _best_threshold(scores[score], golds, predictions, no_answer)


def _best_threshold(
    scores: Mapping[str, float], golds: Golds, predictions: Mapping[str, str], no_answer: Mapping[str, float]
) -> tuple[float, float]:
    best = current = float(sum(not answers for answers in golds.values()))
    # The official scorer starts at 0, which means "all empty" for probabilities; scores may be negative.
    lowest = min(no_answer[question] for question in golds)
    threshold = 0.0 if lowest >= 0 else math.nextafter(lowest, -math.inf)
    for question in sorted((question for question in no_answer if question in golds), key=no_answer.__getitem__):
        if golds[question]:
            current += scores[question]
        elif predictions[question]:
            current -= 1
        if current > best:
            best, threshold = current, no_answer[question]
    return 100 * best / len(golds), threshold


def _scores_by_question(golds: Golds, predictions: Mapping[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    _require_questions(golds)
    _require_all(golds, predictions, "prediction")
    # A gold answer that normalizes to the empty text is indistinguishable from no answer.
    kept = {question: [answer for answer in answers if normalize_answer(answer)] for question, answers in golds.items()}
    exact = {question: float(exact_match(predictions[question], answers)) for question, answers in kept.items()}
    f1 = {question: answer_f1(predictions[question], answers) for question, answers in kept.items()}
    return exact, f1


def _bag_f1(words: Sequence[str], gold: Sequence[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    shared = (collections.Counter(words) & collections.Counter(gold)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(words), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def _require_questions(golds: Golds) -> None:
    if not golds:
        raise InputError(
            expected="at least one question with gold answers", found="none", fix="use a file with answers"
        )


def _require_all(golds: Golds, predicted: Collection[str], name: str) -> None:
    missing = [question for question in golds if question not in predicted]
    if missing:
        raise InputError(
            expected=f"a {name} for every question",
            found=f"none for {len(missing)} of {len(golds)}, the first {missing[0]!r}",
            fix="predict the same file that is scored",
        )
