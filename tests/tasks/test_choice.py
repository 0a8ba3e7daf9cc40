"""Choosing among endings: one row per ending, whatever their number, and the loss of a plain loop."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.tasks.datasets.examples import ChoiceExample
from bertsmith.tasks.encoding.units import TaskBatch, micro_batches
from bertsmith.tasks.specs.choice import ChoiceTask
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import small_config

TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"abcdefghij"]))
CLS, SEP = TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id


def task(**settings: object) -> ChoiceTask:
    return ChoiceTask(TaskSpec(kind="choice", name="endings", settings=TaskSettings(**settings)))


def example(context: str, *endings: str, label: int | None = 0, location: str = "endings.tsv, row 3") -> ChoiceExample:
    return ChoiceExample(id="3", context=context, endings=endings, label=label, location=location)


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text).tolist()


def model() -> EncoderForTask:
    config = small_config(vocab_size=len(TOKENIZER.vocabulary), max_position_embeddings=64)
    return EncoderForTask(new_encoder(config), task().head, seed=1).double()


texts = st.lists(st.sampled_from("abcdefghij"), max_size=6).map(" ".join)
endings = st.lists(texts, min_size=2, max_size=5)
examples = st.lists(
    st.builds(lambda context, many, label: example(context, *many, label=label % len(many)), texts, endings,
              st.integers(0, 100)),
    min_size=1,
    max_size=6,
)  # fmt: skip


@given(examples)
def test_every_ending_is_a_row_after_its_context(many: list[ChoiceExample]) -> None:
    features = task().encode(many, TOKENIZER)
    expected = []
    for example in many:
        for ending in example.endings:
            context = [*ids(example.context), SEP] if example.context else []
            tokens = [CLS, *context, *ids(ending), SEP]
            behind = len(ids(ending)) + 1 if example.context else 0
            expected.append((tokens, [0] * (len(tokens) - behind) + [1] * behind))
    rows = [tuple(part.tolist() for part in features.rows.row(row)) for row in range(len(features.rows))]
    assert rows == expected
    assert features.rows_per_unit.tolist() == [len(example.endings) for example in many]
    assert features.example_of_row.tolist() == [number for number, example in enumerate(many) for _ in example.endings]
    assert features.rows.token_ids[features.read].tolist() == [CLS] * len(expected)
    assert features.targets.tolist() == [example.label for example in many]
    assert features.targets.dtype == np.int64


def looped_loss(scores: np.ndarray, many: list[ChoiceExample]) -> tuple[float, int]:
    """Cross-entropy and correct choices, from scores in the order of the endings, one example after another."""
    loss, hits, row = 0.0, 0, 0
    for example in many:
        mine = scores[row : row + len(example.endings)].tolist()
        loss -= mine[example.label] - math.log(sum(math.exp(score) for score in mine))
        hits += mine.index(max(mine)) == example.label
        row += len(mine)
    return loss, hits


def batches(many: list[ChoiceExample], micro_tokens: int) -> list[TaskBatch]:
    features = task().encode(many, TOKENIZER)
    return list(micro_batches(features, np.arange(len(many)), micro_tokens=micro_tokens, device="cpu"))


@given(examples, st.sampled_from([1, 30, 10_000]), st.integers(0, 99))
def test_the_loss_is_that_of_a_plain_loop_however_the_step_is_cut(
    many: list[ChoiceExample], micro_tokens: int, seed: int
) -> None:
    scores = np.random.default_rng(seed).normal(scale=3, size=sum(len(example.endings) for example in many))
    loss, hits, count = 0.0, 0, 0
    for batch in batches(many, micro_tokens):
        value, sums = task().loss(torch.from_numpy(scores[batch.chosen])[:, None], batch)
        assert float(sums["nll"]) == float(value)
        loss, hits, count = loss + float(value), hits + int(sums["correct"]), count + int(sums["count"])
    expected, expected_hits = looped_loss(scores, many)
    assert loss == pytest.approx(expected, rel=1e-12)
    assert (hits, count) == (expected_hits, len(many))


def test_a_unit_with_fewer_endings_gets_the_gradient_of_its_own_endings_alone() -> None:
    many = [example("a", "b", "c", label=1), example("a", "d", "e", "f", "g", label=2)]
    (batch,) = batches(many, 10_000)
    scores = torch.zeros(6, 1, dtype=torch.float64, requires_grad=True)
    task().loss(scores, batch)[0].backward()
    by_row = np.empty(6)
    by_row[batch.chosen] = scores.grad[:, 0].numpy()
    np.testing.assert_allclose(by_row, [0.5, -0.5, 0.25, 0.25, -0.75, 0.25], rtol=1e-12)


def test_low_precision_scores_have_a_loss_in_single_precision() -> None:
    (batch,) = batches([example("a", "b", "c")], 10_000)
    assert task().loss(torch.zeros(2, 1, dtype=torch.bfloat16), batch)[0].dtype == torch.float32


def test_decoding_turns_the_scores_of_a_model_into_probabilities_of_each_example() -> None:
    many = [example("a b", "c", "d e"), example("", "f", "g h", "i", label=2)]
    features, net = task().encode(many, TOKENIZER), model()
    scores = np.empty((5, 1), np.float32)
    with torch.inference_mode():
        for batch in micro_batches(features, np.arange(2), micro_tokens=8, device="cpu"):
            scores[batch.chosen] = net(batch.batch, read=batch.read)
    predictions = task().decode(many, features, scores, TOKENIZER)
    for choice, prediction, mine in zip(many, predictions, (scores[:2, 0], scores[2:, 0]), strict=True):
        shares = np.exp(mine) / np.exp(mine).sum()
        assert prediction.probabilities == pytest.approx(shares.tolist(), rel=1e-5)
        assert prediction.index == int(mine.argmax())
        assert prediction.text == choice.endings[prediction.index]


def test_the_temperature_softens_probabilities_but_keeps_the_choice() -> None:
    many = [example("a", "b", "c")]
    warm = ChoiceTask(dataclasses.replace(task().spec, temperature=2.0))
    logits = np.array([[0.0], [2.0]], dtype=np.float32)
    (prediction,) = warm.decode(many, warm.encode(many, TOKENIZER), logits, TOKENIZER)
    assert prediction.index == 1
    assert prediction.probabilities[1] == pytest.approx(1 / (1 + math.exp(-1)))


def test_long_texts_are_cut_as_pairs_or_as_single_texts_and_counted() -> None:
    many = [example("a b c d e", "f g h i", "j"), example("", "a b c d e f g h", "b")]
    features = task(max_length=9).encode(many, TOKENIZER)
    assert features.rows.row(0)[0].tolist() == [CLS, *ids("a b c"), SEP, *ids("f g h"), SEP]
    assert features.rows.row(2)[0].tolist() == [CLS, *ids("a b c d e f g"), SEP]
    assert features.rows.cut_by_row.tolist() == [3, 0, 1, 0]
    predictions = task().decode(many, features, np.zeros((4, 1), np.float32), TOKENIZER)
    assert [prediction.cut_tokens for prediction in predictions] == [3, 1]
    assert task(max_length=9, long_text="tail").encode(many, TOKENIZER).rows.row(2)[0].tolist()[1] == ids("b")[0]


def test_a_row_of_exactly_max_length_is_kept_and_one_more_token_is_an_error() -> None:
    strict = task(max_length=8, long_text="error")
    assert strict.encode([example("a b", "c d e", "c")], TOKENIZER).rows.lengths.max() == 8
    assert strict.encode([example("", "c d e f g h", "c")], TOKENIZER).rows.lengths.max() == 8
    message = "max_length 8 in endings.tsv, row 3; found 3 tokens of context and 3 of an ending"
    with pytest.raises(InputError, match=message):
        strict.encode([example("a b c", "d", "c d e")], TOKENIZER)
    with pytest.raises(InputError, match="found 0 tokens of context and 7 of an ending"):
        strict.encode([example("", "c d e f g h i", "d")], TOKENIZER)


def test_windows_are_refused() -> None:
    windowed = task(long_text="windows")
    with pytest.raises(ConfigError, match=r"each ending in one row: .*, not 'windows'"):
        windowed.check([], gold=False)
    with pytest.raises(ConfigError, match=r"each ending in one row: .*, not 'windows'"):
        windowed.encode([example("a", "b", "c")], TOKENIZER)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (example("a", "b"), "at least two endings in endings.tsv, row 3; found 1"),
        (example("a", "b", "c", label=2), "a label from 0 to 1 in endings.tsv, row 3; found 2"),
        (example("a", "b", "c", label=-1), "a label from 0 to 1 in endings.tsv, row 3; found -1"),
        (example("a", "b", "c", label=None), "a label from 0 to 1 in endings.tsv, row 3; found none"),
    ],
)
def test_examples_unfit_for_training_are_named(wrong: ChoiceExample, message: str) -> None:
    with pytest.raises(InputError, match=message):
        task().check([example("a", "b", "c"), wrong], gold=True)


def test_examples_without_labels_are_predicted_and_have_no_targets() -> None:
    many = [example("a", "b", "c"), example("a", "b", "c", label=None)]
    task().check(many, gold=False)
    assert task().encode(many, TOKENIZER).targets is None


def test_without_examples_there_are_no_units() -> None:
    features = task().encode([], TOKENIZER)
    assert (len(features), features.num_read) == (0, 0)
    assert task().decode([], features, np.zeros((0, 1), np.float32), TOKENIZER) == []


def said(*indices: int) -> list[ChoicePrediction]:
    return [ChoicePrediction(index=index, probabilities=(0.5, 0.5), text="b") for index in indices]


def test_scores_count_correct_endings_and_a_constant_answer_is_a_collapse() -> None:
    many = [example("a", "b", "c", label=label) for label in (0, 1, 1, 0)]
    assert task().score(many, said(0, 1, 0, 0)) == {"accuracy": 0.75}
    assert task().example_scores(many, said(0, 1, 0, 0)).tolist() == [1, 1, 0, 1]
    assert not task().is_collapsed(said(0, 1, 0, 0), many)
    assert task().is_collapsed(said(1, 1, 1, 1), many)
    assert not task().is_collapsed(said(1, 1), many[1:3])


def test_a_prediction_converts_to_plain_values_and_one_line() -> None:
    prediction = ChoicePrediction(index=0, probabilities=(0.9, 0.1), text="runs\tfar\naway")
    assert prediction.to_dict() == {
        "index": 0, "text": "runs\tfar\naway", "probabilities": [0.9, 0.1], "cut_tokens": 0,
    }  # fmt: skip
    assert prediction.line() == "0\t90%\truns far away"


def test_the_questions_of_codah_become_four_rows_each(real_data: Path) -> None:
    lines = (real_data / "multiple_choice/codah/full_data.tsv").read_text(encoding="utf-8").splitlines()
    columns = [line.split("\t") for line in lines]
    many = [example(row[1], *row[2:6], label=int(row[6])) for row in columns]
    tokenizer = WordPieceTokenizer(Vocabulary.load(real_data / "vocab/bert-base-uncased-vocab.txt"))
    task().check(many, gold=True)
    features = task(max_length=128).encode(many, tokenizer)
    assert (len(features), len(features.rows), features.rows.truncated) == (2776, 4 * 2776, 0)
    for row in (0, 4443, 11_103):
        context, ending = columns[row // 4][1], columns[row // 4][2 + row % 4]
        first, second = (tokenizer.encode(text).tolist() for text in (context, ending))
        cls, sep = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
        assert features.rows.row(row)[0].tolist() == [cls, *first, sep, *second, sep]
