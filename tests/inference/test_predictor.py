"""Prediction on a stream: what is in memory at once, and what happens to predictions before an error."""

import dataclasses
from collections.abc import Iterator

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE, choose
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.tasks.datasets import blocks
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSettings
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of


def predictor_of(kind: str, **settings: str) -> Predictor:
    spec = dataclasses.replace(SPECS[kind], settings=TaskSettings(max_length=16, stride=4, **settings))
    task = task_for(spec)
    return Predictor(EncoderForTask(new_encoder(CONFIG), task.head, seed=3), task, TOKENIZER, choose("cpu", "fp32"))


def text(number: int, words: str) -> TextExample:
    return TextExample(id=str(number), first=words, location=f"line {number}")


def answered(predictor: Predictor, examples: Iterator[Example], block: int = 4) -> tuple[list[str], str]:
    """The ids of the examples predicted before the error, and the error."""
    result = []

    def read() -> None:
        for example, prediction in predictor.stream(examples, block):
            assert prediction.to_dict()["label"] == predictor.predict([example])[0].to_dict()["label"]
            result.append(example.id)

    with pytest.raises(InputError) as caught:
        read()
    return result, str(caught.value)


@pytest.mark.parametrize("bad", range(7))
def test_examples_read_before_an_error_of_the_source_are_predicted(bad: int) -> None:
    def lines() -> Iterator[Example]:
        yield from (text(number, "a good film " * (number + 1)) for number in range(bad))
        raise InputError(expected=f"a text in line {bad}", found="an empty line", fix="remove the line")

    ids, error = answered(predictor_of("single"), lines())
    assert ids == [str(number) for number in range(bad)]
    assert f"line {bad}" in error


@pytest.mark.parametrize("bad", range(7))
def test_examples_before_an_invalid_text_are_predicted(bad: int) -> None:
    words = ["a good film"] * 7
    words[bad] = "a good film " * 9
    examples = (text(number, word) for number, word in enumerate(words))
    ids, error = answered(predictor_of("single", long_text="error"), examples)
    assert ids == [str(number) for number in range(bad)]
    assert "found 29" in error


@pytest.mark.parametrize(
    "example",
    [
        TextExample(id="1", first="good film"),
        TextExample(id="1", first="good", second=" film"),
        ChoiceExample(id="1", context="go", endings=("od ", "film")),
        QuestionExample(id="1", question="good ", context="film"),
        TaggedExample(id="1", words=("good", " ", "film")),
    ],
)
def test_a_block_is_also_bounded_by_its_characters(monkeypatch: pytest.MonkeyPatch, example: Example) -> None:
    sizes: list[int] = []

    def predict(self: Predictor, examples: list[Example], advance: object) -> list[None]:
        sizes.append(len(examples))
        return [None] * len(examples)

    monkeypatch.setattr(Predictor, "predict", predict)
    monkeypatch.setattr(blocks.sized_blocks, "__defaults__", (27,))
    assert len(list(predictor_of("single").stream([example] * 8))) == 8
    assert sizes == [3, 3, 2], "three of nine characters each"


def test_a_stream_gets_the_same_predictions_as_a_list() -> None:
    predictor, examples = predictor_of("single"), examples_of("single", 9, seed=2)
    result = list(predictor.stream(iter(examples), block=4))
    assert [example for example, _ in result] == list(examples)
    for (_, prediction), other in zip(result, predictor.predict(examples), strict=True):
        assert prediction.label == other.label
        assert prediction.probabilities == pytest.approx(other.probabilities, abs=BATCH_TOLERANCE)
