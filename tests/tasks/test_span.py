"""Span answers: windows, targets, loss and answers, compared with slow versions of the original code."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.tasks.datasets.examples import Answer, QuestionExample
from bertsmith.tasks.encoding.units import EncodedExamples, micro_batches
from bertsmith.tasks.specs.answer_search import with_whole_words
from bertsmith.tasks.specs.predictions import AnswerPrediction
from bertsmith.tasks.specs.span import SpanTask
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import small_config
from oracles import squad_oracle, wordpiece_oracle
from text.vocabularies import MIXED_VOCABULARY, odd_texts

LETTERS = Vocabulary([*SPECIAL_PIECES, *"abcdefgh189543()-'.", *(f"##{c}" for c in "abcdefgh0123456789"), "1895"])
TOKENIZER = WordPieceTokenizer(LETTERS)


def task(*, unanswerable: bool = False, threshold: float | None = None, **changes: int) -> SpanTask:
    settings = TaskSettings(
        **{"max_length": 16, "stride": 4, "max_question": 4, "max_answer": 6, "n_best": 5, **changes}
    )
    return SpanTask(TaskSpec(kind="span", name="q", unanswerable=unanswerable, threshold=threshold, settings=settings))


def question(
    context: str, *answers: str, text: str = "a b", starts: tuple[int, ...] = (), **more: object
) -> QuestionExample:
    places = starts or tuple(context.index(answer) for answer in answers)
    gold = tuple(Answer(answer, position) for answer, position in zip(answers, places, strict=True))
    return QuestionExample(id="1", question=text, context=context, answers=gold, location="q.json, question 1", **more)


def labelled(features: EncodedExamples, row: int) -> list[str]:
    """The pieces that a row's targets point at."""
    first, last = features.targets[row].tolist()
    return [LETTERS.pieces[id] for id in features.rows.row(row)[0][first : last + 1].tolist()]


def test_the_label_is_the_part_of_the_word_that_is_the_answer() -> None:
    features = task().encode([question("a (1895-1943) b", "1895")], TOKENIZER, training=True)
    assert labelled(features, 0) == ["1895"]
    assert features.extra == {}


@pytest.mark.parametrize(
    ("context", "pieces", "answer"),
    [
        ("the fireboxes burn", "the fire ##box ##es burn".split(), {"fire": "fireboxes", "##box": "fireboxes"}),
        ("in 1895-1943", "in 1895 - 1943".split(), {"1895": "1895", "1943": "1943"}),
        ("die Häuser", "die hau ##ser".split(), {"hau": "Häuser", "##ser": "Häuser"}),
        ("in 東京で", "in 東 京 で".split(), {"東": "東", "京": "京"}),
        ("ไทย", "ไทย".split(), {"ไทย": "ไทย"}),
        ("don't", "don ' t".split(), {"don": "don"}),
    ],
)
def test_answers_begin_and_end_at_word_borders(context: str, pieces: list[str], answer: dict[str, str]) -> None:
    tokenizer, qa = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "?", *dict.fromkeys(pieces)])), task()
    asked = question(context, text="?")
    features = qa.encode([asked], tokenizer)
    for piece, wanted in answer.items():
        position = 3 + pieces.index(piece)
        (prediction,) = qa.decode([asked], features, pointing(features, lambda _, at=position: (at, at)), tokenizer)
        assert prediction.text == wanted
        assert context[prediction.start : prediction.end] == wanted
        assert len({text for text, *_ in prediction.n_best}) == len(prediction.n_best)
    assert with_whole_words("한국에서", 0, 2) == (0, 2)  # a particle follows the noun


@pytest.mark.parametrize("start", [0, 2, 4])
def test_in_a_text_without_spaces_labels_and_answers_are_at_their_offset(start: int) -> None:
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"789年月日"]))
    asked = question("7年7月7日", "7", text="年", starts=(start,))
    qa = task()
    features = qa.encode([asked], tokenizer)
    assert features.targets.tolist() == [[start + 3, start + 3]]
    logits = pointing(features, lambda row: (start + 3, start + 3))
    (prediction,) = qa.decode([asked], features, logits, tokenizer)
    assert (prediction.text, prediction.start, prediction.end) == ("7", start, start + 1)


def test_of_several_matches_in_an_english_word_the_first_is_the_label_as_in_the_original_code() -> None:
    features = task().encode([question("a (18-18) b", "18", starts=(6,))], TOKENIZER)
    assert features.targets[0].tolist() == task().encode([question("a (18-18) b", "18")], TOKENIZER).targets[0].tolist()


def test_a_gold_answer_that_is_not_in_the_context_counts_in_scoring() -> None:
    asked = [question("a b c", absent_answers=("d",)), question("a b c", "b", absent_answers=("d",))]
    qa = task()
    qa.check(asked, gold=True)
    assert qa.encode(asked, TOKENIZER).targets is None
    assert qa.score(asked, [answered("d"), answered("d")])["exact"] == 100
    assert qa.score(asked, [answered("b"), answered("b")])["exact"] == 50
    assert qa.golds(asked)[1] == [{"text": "b", "start": 2}, {"text": "d", "start": None}]
    with pytest.raises(InputError, match="use --task squad2"):
        qa.check([question("a b c", is_impossible=True)], gold=True)


def test_an_answer_inside_a_word_without_a_piece_boundary_is_the_whole_word() -> None:
    features = task().encode([question("a bcd e", "c")], TOKENIZER)
    assert labelled(features, 0) == ["b", "##c", "##d"]


def test_a_window_without_the_whole_answer_points_at_cls() -> None:
    features = task(max_length=9, stride=3).encode([question("a b c d e f g h", "d e")], TOKENIZER)
    pieces = [features.rows.row(row)[0].tolist()[4:-1] for row in range(len(features))]
    assert [[LETTERS.pieces[id] for id in row] for row in pieces] == [[*"abcd"], [*"defg"], [*"gh"]]
    assert [labelled(features, row) for row in range(3)] == [["[CLS]"], ["d", "e"], ["[CLS]"]]
    assert features.rows_per_unit.tolist() == [1, 1, 1]
    assert features.example_of_row.tolist() == [0, 0, 0]


def test_questions_about_one_context_share_its_encoding() -> None:
    first, second = question("a b c", "b"), question("a b c", "c", text="c")
    features = task().encode([first, second], TOKENIZER)
    contexts = features.extra["contexts"]
    assert contexts[0] is contexts[1]
    assert [labelled(features, row) for row in range(2)] == [["b"], ["c"]]


def test_only_the_first_answer_is_a_target() -> None:
    features = task().encode([question("a b c", "c", "a")], TOKENIZER)
    assert labelled(features, 0) == ["c"]


def test_without_gold_there_are_no_targets_and_an_impossible_question_points_at_cls() -> None:
    with_gold, without = question("a b", "b"), question("a b")
    impossible = question("a b", is_impossible=True)
    qa = task(unanswerable=True)
    assert qa.encode([with_gold, without], TOKENIZER).targets is None
    targets = qa.encode([with_gold, impossible], TOKENIZER).targets
    assert targets.dtype == np.int64
    assert targets.tolist() == [[5, 5], [0, 0]]
    assert qa.encode([], TOKENIZER).targets is None


def test_a_long_question_is_cut_and_counted() -> None:
    features = task(max_question=2).encode([question("c", text="a b c d")], TOKENIZER)
    assert features.rows.cut_by_row.tolist() == [2]
    assert features.rows.lengths.tolist() == [6]


@pytest.mark.parametrize("context", ["", " \t ", "\u00ad"])
def test_a_context_without_pieces_has_one_window_and_no_answer(context: str) -> None:
    asked, both = [question(context)], question(context, *([context] if context.strip() else []))
    for unanswerable in (False, True):
        some = task(unanswerable=unanswerable)
        features = some.encode(asked, TOKENIZER)
        assert features.lengths.tolist() == [5]
        (result,) = some.decode(asked, features, np.zeros((5, 2), np.float32), TOKENIZER)
        assert (result.text, result.start, result.end, result.has_answer) == ("", 0, 0, False)
        assert result.n_best == (("", 0, 0, 1.0),)
        assert result.null_score_diff == (0.0 if unanswerable else None)
    targets = task().encode([both], TOKENIZER).targets
    assert targets is None or targets.tolist() == [[0, 0]]


cut_by_oracle: dict[bool, tuple[Callable[[str], list[str]], Callable[[str], list[str]]]] = {
    lowercase: (
        lambda text, lowercase=lowercase: wordpiece_oracle.tokenize(
            text, MIXED_VOCABULARY.index.keys(), lowercase=lowercase
        ),
        lambda text, lowercase=lowercase: wordpiece_oracle.basic_tokens(text, lowercase=lowercase),
    )
    for lowercase in (True, False)
}


@st.composite
def questions_with_answers(draw: st.DrawFn) -> QuestionExample:
    context = " ".join(draw(st.lists(odd_texts, min_size=1, max_size=3)))
    first = draw(st.integers(0, max(0, len(context) - 1)))
    last = draw(st.integers(first, min(len(context), first + 12)))
    text = context[first : last + 1]
    answers = (Answer(text, first),) if text else ()
    return QuestionExample(
        id="1", question=draw(odd_texts), context=context, answers=answers, is_impossible=not answers, location="1"
    )


@given(
    st.lists(questions_with_answers(), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 3]),
    st.sampled_from([(12, 2, 3, 4), (16, 5, 4, 8), (30, 8, 4, 3)]),
    st.integers(0, 2**32 - 1),
)
def test_labels_and_answers_equal_the_slow_version(
    questions: list[QuestionExample],
    lowercase: bool,
    unanswerable: bool,
    grid: int | None,
    sizes: tuple[int, int, int, int],
    seed: int,
) -> None:
    """Logits from a coarse grid are often equal, so the order of ties matters."""
    max_length, stride, max_question, max_answer = sizes
    qa = task(
        unanswerable=unanswerable,
        max_length=max_length,
        stride=stride,
        max_question=max_question,
        max_answer=max_answer,
    )
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY, TextRules(lowercase=lowercase))
    features = qa.encode(questions, tokenizer)
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(features.num_read, 2)).astype(np.float32)
    if grid is not None:
        logits = np.round(logits * grid) / np.float32(grid)
    predictions = qa.decode(questions, features, logits, tokenizer)
    tokenize, basic = cut_by_oracle[lowercase]
    row = 0
    for asked, prediction in zip(questions, predictions, strict=True):
        answer = (asked.answers[0].text, asked.answers[0].start) if asked.answers else None
        expected = squad_oracle.windows_of(
            asked.question,
            asked.context,
            answer,
            tokenize,
            max_length=max_length,
            stride=stride,
            max_question=max_question,
        )
        rows = range(row, row + len(expected))
        row += len(expected)
        pieces = [[MIXED_VOCABULARY.pieces[id] for id in features.rows.row(number)[0].tolist()] for number in rows]
        assert pieces == [window.tokens for window in expected]
        assert [tuple(features.targets[number].tolist()) for number in rows] == [window.label for window in expected]
        begins = features.rows.offsets
        answers, difference = squad_oracle.answers_of(
            asked.context,
            expected,
            [logits[begins[number] : begins[number + 1]].astype(np.float64).tolist() for number in rows],
            tokenize,
            basic,
            n_best=5,
            max_answer=max_answer,
            unanswerable=unanswerable,
        )
        check_prediction(prediction, asked.context, answers, difference)
    assert row == len(features)


def check_prediction(
    prediction: AnswerPrediction, context: str, answers: list[tuple[str, float]], difference: float | None
) -> None:
    assert prediction.null_score_diff == difference
    assert [text for text, _, _, _ in prediction.n_best] == ([text for text, _ in answers] or [""])
    shares = np.exp([score for _, score in answers or [("", 0.0)]])
    assert [share for *_, share in prediction.n_best] == pytest.approx((shares / shares.sum()).tolist())
    for text, start, end, _ in prediction.n_best:
        assert " ".join(word for _, word in squad_oracle.words_of(context[start:end])) == text
    texts = [text for text, _ in answers if text]
    expected = "" if not texts or (difference is not None and difference > 0) else texts[0]
    assert (prediction.text, prediction.has_answer) == (expected, bool(expected))
    stated = (prediction.text, prediction.start, prediction.end, prediction.probability)
    assert stated in prediction.n_best


def pointing(features: EncodedExamples, span_of: Callable[[int], tuple[int, int]]) -> np.ndarray:
    """Logits that are high at the start and the end of each row."""
    logits = np.zeros((features.num_read, 2), np.float32)
    for row, begin in enumerate(features.rows.offsets[:-1].tolist()):
        for column, position in enumerate(span_of(row)):
            logits[begin + position, column] = 10
    return logits


def test_the_answer_has_the_words_and_the_character_span_of_the_context() -> None:
    qa, asked = task(), [question("A  (1895-1943)\t B\u202fC d", "1895")]
    features = qa.encode(asked, TOKENIZER)
    (result,) = qa.decode(asked, features, pointing(features, lambda _: (6, 6)), TOKENIZER)
    assert (result.text, result.start, result.end) == ("1895", 4, 8)
    context = "b  A\t B\u202fC d"
    asked = [question(context, "A")]
    features = qa.encode(asked, TOKENIZER)
    (result,) = qa.decode(asked, features, pointing(features, lambda _: (5, 7)), TOKENIZER)
    assert (result.text, context[result.start : result.end]) == ("A B C", "A\t B\u202fC")


def test_no_answer_is_predicted_only_above_the_threshold() -> None:
    asked = [question("a b c", "b"), question("a b c", is_impossible=True)]
    qa = task(unanswerable=True)
    features = qa.encode(asked, TOKENIZER)
    logits = pointing(features, lambda row: tuple(features.targets[row].tolist()))
    assert [prediction.text for prediction in qa.decode(asked, features, logits, TOKENIZER)] == ["b", ""]
    (kept, none) = qa.decode(asked, features, logits, TOKENIZER)
    assert (kept.null_score_diff, none.null_score_diff) == (-20, 20)
    assert (kept.has_answer, none.has_answer, none.best_answer) == (True, False, "a")
    for threshold, texts in ((20.0, ["b", "a"]), (-21.0, ["", ""])):
        other = task(unanswerable=True, threshold=threshold)
        assert [prediction.text for prediction in other.decode(asked, features, logits, TOKENIZER)] == texts


def test_a_long_question_does_not_crowd_its_context_out() -> None:
    asked = [question("c d e", text="a b a b a b a b")]
    qa = task(max_question=8, n_best=2)
    features = qa.encode(asked, TOKENIZER)
    logits = np.zeros((features.num_read, 2), np.float32)
    logits[:9] = 5  # [CLS] and the question
    logits[11, 0], logits[12, 1] = 1, 1
    (result,) = qa.decode(asked, features, logits, TOKENIZER)
    assert (result.text, result.has_answer) == ("d e", True)
    some = task(max_question=8, n_best=2, unanswerable=True)
    (result,) = some.decode(asked, features, logits, TOKENIZER)
    assert (result.text, result.best_answer, result.null_score_diff) == ("", "d e", 8.0)


def test_best_ends_before_the_best_starts_leave_the_best_of_all_other_spans() -> None:
    asked = [question("a b c d e f")]
    qa = task(n_best=2)
    features = qa.encode(asked, TOKENIZER)
    logits = np.zeros((features.num_read, 2), np.float32)
    logits[[8, 9], 0], logits[[4, 5], 1] = [3, 4], [2, 1]  # the context starts at 4
    (result,) = qa.decode(asked, features, logits, TOKENIZER)
    assert [text for text, *_ in result.n_best] == ["f", "e"]
    assert (result.text, result.has_answer) == ("f", True)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5]))
def test_a_question_of_a_model_without_no_answer_is_always_answered(seed: int, n_best: int) -> None:
    asked = [question("a b c d e f g h", text="a b c d"), question("b", text="a b c d")]
    qa = task(n_best=n_best, max_answer=2)
    features = qa.encode(asked, TOKENIZER)
    logits = np.random.default_rng(seed).normal(size=(features.num_read, 2)).astype(np.float32)
    assert all(
        prediction.has_answer and prediction.text for prediction in qa.decode(asked, features, logits, TOKENIZER)
    )


def test_at_equal_scores_an_answer_comes_before_no_answer() -> None:
    qa, asked = task(unanswerable=True, n_best=20), [question("a b")]
    features = qa.encode(asked, TOKENIZER)
    (result,) = qa.decode(asked, features, np.zeros((features.num_read, 2), np.float32), TOKENIZER)
    assert [text for text, _, _, _ in result.n_best] == ["a", "a b", "b", ""]
    assert result.text == "a"


def test_the_temperature_softens_the_probabilities() -> None:
    asked, plain = [question("a b")], task(n_best=20)
    soft = SpanTask(dataclasses.replace(plain.spec, temperature=2.0))
    features = plain.encode(asked, TOKENIZER)
    logits = np.zeros((features.num_read, 2), np.float32)
    logits[5, 0] = 2
    shares = [qa.decode(asked, features, logits, TOKENIZER)[0].probability for qa in (plain, soft)]
    assert shares == pytest.approx([np.exp(2) / (np.exp(2) + 2), np.exp(1) / (np.exp(1) + 2)])


def test_loss_and_correct_count_equal_those_of_each_row_alone() -> None:
    qa = task()
    asked = [question("a b c d e f g h" * count, "b c", text="a" * asked) for count, asked in ((1, 1), (3, 2), (1, 1))]
    features = qa.encode(asked, TOKENIZER)
    (batch,) = micro_batches(features, np.arange(len(features)), micro_tokens=10_000, device="cpu")
    logits = torch.randn(batch.batch.num_tokens, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
    expected, correct, begin = torch.zeros(()), 0, 0
    for (first, last), length in zip(batch.targets.tolist(), batch.batch.lengths, strict=True):
        row = logits[begin : begin + length]
        begin += length
        expected = expected - (row.log_softmax(0)[first, 0] + row.log_softmax(0)[last, 1]) / 2
        correct += row.argmax(0).tolist() == [first, last]
    loss, sums = qa.loss(logits, batch)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0])
    assert {name: float(value) for name, value in sums.items()} == {
        "nll": loss.item(),
        "correct": correct,
        "count": len(features),
    }
    sure = torch.from_numpy(pointing(features, lambda row: tuple(features.targets[row].tolist())))[batch.chosen]
    assert float(qa.loss(sure, batch)[1]["correct"]) == len(features)
    half, _ = qa.loss(logits.to(torch.bfloat16), batch)
    assert half.dtype == torch.float32


def test_a_correct_span_needs_both_ends() -> None:
    qa, asked = task(), [question("a b c d", "b c")]
    features = qa.encode(asked, TOKENIZER)
    (batch,) = micro_batches(features, np.arange(1), micro_tokens=100, device="cpu")
    first, last = features.targets[0].tolist()
    hits = [
        qa.loss(torch.from_numpy(pointing(features, lambda _, ends=ends: ends)), batch)[1]["correct"].item()
        for ends in ((first, last), (first, last + 1), (first + 1, last))
    ]
    assert hits == [1, 0, 0]


def test_a_small_model_learns_where_the_answer_is() -> None:
    qa = task(max_length=24)
    asked = [question(f"{'abcd'[n % 4]} e {'abcd'[n // 4 % 4]} 1895 f", "1895", text="c") for n in range(16)]
    features = qa.encode(asked, TOKENIZER, training=True)
    config = small_config(vocab_size=len(LETTERS))
    model = EncoderForTask(new_encoder(config), qa.head, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    (batch,) = micro_batches(features, np.arange(len(features)), micro_tokens=10_000, device="cpu")
    losses = []
    for _ in range(20):
        loss, sums = qa.loss(model(batch.batch), batch)
        (gradients,) = [torch.autograd.grad(loss / batch.step_targets, list(model.parameters()), allow_unused=True)]
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert qa.log_sums({name: float(value) for name, value in sums.items()}) == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("example", "gold", "message"),
    [
        (question("a b", text=" "), False, "expected a question in q.json, question 1; found an empty one"),
        (question("\t"), False, "expected a context in q.json, question 1; found an empty one"),
        (question("a b", "b", starts=(0,)), False, "answer 'b' at character 0 .* in q.json, question 1; found 'a'"),
        (question("a b", "b", starts=(-1,)), True, "answer 'b' at character -1"),
        (question("a b", "b", starts=(9,)), True, "answer 'b' at character 9 .*; found ''"),
        (question("a b", "a", " ", starts=(0, 1)), True, "answer ' ' at character 1"),
        (question("a b", "b", is_impossible=True), True, "no answers to the impossible question in q.json"),
        (question("a b"), True, "expected answers in q.json, question 1; found none"),
        (question("a b", is_impossible=True), True, "a question with an answer in q.json, question 1"),
    ],
)
def test_invalid_questions_are_refused_by_name(example: QuestionExample, gold: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        task().check([question("a", "a"), example], gold=gold)


def test_valid_questions_pass_the_check() -> None:
    task().check([question("a b", "b", "a"), question("é b", "é")], gold=True)
    task().check([question("a b")], gold=False)
    task(unanswerable=True).check([question("a b", is_impossible=True)], gold=True)


def answered(text: str, difference: float | None = None, best: str | None = None) -> AnswerPrediction:
    candidates = tuple(
        (answer, 0, len(answer), 0.5) for answer in dict.fromkeys((text, text if best is None else best))
    )
    return AnswerPrediction(
        text=text,
        start=0,
        end=len(text),
        probability=0.5,
        n_best=candidates,
        null_score_diff=difference,
        has_answer=bool(text),
    )


def test_scores_are_those_of_the_official_scorers() -> None:
    asked = [question("a b c", "b c"), question("a b c", "c", "b")]
    result = [answered("b"), answered("the B.")]
    assert task().score(asked, result) == pytest.approx(
        {"exact": 50, "f1": 100 * (2 / 3 + 1) / 2, "total": 2, "missing": 0, "exact_at_5": 50, "mrr": 50}
    )
    assert task().example_scores(asked, result).tolist() == pytest.approx([2 / 3, 1])
    mixed = [asked[0], question("a b c", is_impossible=True)]
    qa = task(unanswerable=True)
    scores = qa.score(mixed, [answered("b c", -1.0), answered("", 1.0, "b")])
    assert (scores["exact"], scores["f1"]) == (100, 100)
    scores = qa.score(mixed, [answered("b c", -1.0), answered("b", -1.0)])
    assert (scores["exact"], scores["f1"]) == (50, 50)
    assert (scores["has_ans_f1"], scores["no_ans_f1"]) == (100, 0)
    withheld = qa.score(mixed, [answered("", 3.0, "b c"), answered("", 4.0, "b")])
    assert (withheld["f1"], withheld["best_f1"], withheld["best_f1_thresh"]) == (50, 100, 3)
    assert qa.example_scores(mixed, [answered("", 1.0, "b"), answered("", 1.0, "b")]).tolist() == [0, 1]


def test_the_threshold_is_the_one_with_the_best_f1() -> None:
    asked = [question("a b c", "b"), question("a b c", is_impossible=True), question("a b c", "c")]
    result = [answered("b", -5.0), answered("a", -2.0), answered("c", -3.0)]
    qa = task(unanswerable=True)
    spec = qa.tuned(asked, result)
    assert -3 <= spec.threshold < -2
    assert dataclasses.replace(spec, threshold=None) == qa.spec
    # Withheld answers count as well as those given.
    withheld = [answered("", 5.0, "b"), answered("", 8.0, "a"), answered("", 6.0, "c")]
    assert 6 <= qa.tuned(asked, withheld).threshold < 8
    # If no question has an answer, none is given.
    impossible = [question("a b c", is_impossible=True)] * 2
    assert qa.tuned(impossible, result[:2]).threshold < -5
    assert task().tuned(asked[:1], [answered("b")]) == task().spec


def test_a_model_that_always_gives_the_same_answer_has_collapsed() -> None:
    asked = [question("a b c", "b"), question("a b c", "c")]
    alike = [question("a b c", "b"), question("a b c", "c", "b")]
    same, different = [answered("b"), answered("b")], [answered("b"), answered("c")]
    assert task().is_collapsed(same, asked)
    assert not task().is_collapsed(different, asked)
    assert not task().is_collapsed(same, alike)
    mixed = [question("a b c", "b"), question("a b c", is_impossible=True)]
    assert task(unanswerable=True).is_collapsed([answered("", 1.0), answered("", 2.0)], mixed)


def test_a_prediction_converts_to_plain_values_and_one_line() -> None:
    result = answered("b\u2028c", -1.5)
    assert json.loads(json.dumps(result.to_dict())) == {
        "text": "b\u2028c",
        "start": 0,
        "end": 3,
        "probability": 0.5,
        "n_best": [{"text": "b\u2028c", "start": 0, "end": 3, "probability": 0.5}],
        "null_score_diff": -1.5,
        "has_answer": True,
        "answers": [{"text": "b\u2028c", "begin": 0, "end": 3, "probability": 0.5}],
        "cut_tokens": 0,
    }
    assert result.line() == "b c\t50%"
    assert answered("", 1.0).line() == "(no answer)\t50%"


def squad(path: Path) -> list[QuestionExample]:
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [
        QuestionExample(
            id=asked["id"],
            question=asked["question"],
            context=paragraph["context"],
            answers=tuple(Answer(answer["text"], answer["answer_start"]) for answer in asked["answers"]),
            is_impossible=asked.get("is_impossible", False),
            location=f"{path.name}, {asked['id']}",
        )
        for article in articles
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]


@pytest.mark.parametrize(("name", "unanswerable"), [("dev-v1.1.json", False), ("dev-v2.0.json", True)])
def test_perfect_logits_of_real_questions_give_the_gold_answers(real_data: Path, name: str, unanswerable: bool) -> None:
    asked = squad(real_data / "squad" / name)
    qa = task(unanswerable=unanswerable, max_length=384, stride=128, max_question=64, max_answer=30, n_best=20)
    tokenizer = WordPieceTokenizer(Vocabulary.load(real_data / "vocab" / "bert-base-uncased-vocab.txt"))
    qa.check(asked, gold=True)
    features = qa.encode(asked, tokenizer)
    logits = pointing(features, lambda row: tuple(features.targets[row].tolist()))
    result = qa.decode(asked, features, logits, tokenizer)
    scores = qa.score(asked, result)
    assert scores["exact"] >= 99
    assert scores["f1"] >= 99.4
    spaced = [" ".join(e.context[p.start : p.end].split()) for e, p in zip(asked, result, strict=True)]
    assert spaced == [" ".join(prediction.text.split()) for prediction in result]
