"""Tests of tags, endings and answers from counts of words."""

from bertsmith.tasks.baselines.word_model import (
    answers,
    choice_logits,
    counted_answers,
    counted_contexts,
    counted_tags,
    tag_logits,
)
from bertsmith.tasks.datasets.examples import Answer, ChoiceExample, QuestionExample, TaggedExample


def test_unknown_words_get_the_tags_of_words_that_look_alike() -> None:
    labels = ("O", "B-PER", "B-NUM")
    train = [
        TaggedExample(id="0", words=("Anna", "runs", "1895", "in"), tags=("B-PER", "O", "B-NUM", "O")),
        TaggedExample(id="1", words=("Anna", "sits"), tags=("O", "O")),
        TaggedExample(id="2", words=("Anna", "sits"), tags=("B-PER", "O")),
    ]
    asked = [TaggedExample(id="3", words=("Anna", "Otto", "1900", "unheard", "?", "anna"))]
    result = tag_logits(counted_tags(train), asked, labels).argmax(axis=1)
    assert [labels[number] for number in result.tolist()] == ["B-PER", "B-PER", "B-NUM", "O", "O", "B-PER"]


def test_the_ending_with_more_rare_words_of_the_context_wins() -> None:
    train = [ChoiceExample(id=str(n), context="the man", endings=("the end", "the dog"), label=0) for n in range(5)]
    asked = ChoiceExample(
        id="9", context="the violin was out of tune", endings=("the the end", "violin music"), label=1
    )
    scores = choice_logits(counted_contexts(train), [asked])[:, 0]
    assert scores[1] > scores[0]


def test_answers_come_from_the_sentence_and_have_the_kind_that_the_question_asks_for() -> None:
    context = "Rain fell in May. The old mill was built in 1895 by Jane Carter near the river. Cats sleep."

    def question(text: str, answer: str = "", number: int = 0) -> QuestionExample:
        answers = (Answer(answer, context.index(answer)),) if answer else ()
        return QuestionExample(
            id=str(number), question=text, context=context, answers=answers, is_impossible=not answer
        )

    train = [
        question("When did rain fall?", "1895"),
        question("Who built the mill?", "Jane Carter"),
        question("Who sang at the opera with elephants?"),
    ]
    asked = [question("When was the old mill built?"), question("Who built the old mill?")]
    result = answers(counted_answers(train, unanswerable=False), asked)
    assert [prediction.text for prediction in result] == ["1895", "Jane Carter"]
    for prediction in result:
        assert context[prediction.start : prediction.end] == prediction.text
    assert all(prediction.null_score_diff is None for prediction in result)
    either = answers(counted_answers(train, unanswerable=True), [asked[0], question("What do penguins eat?")])
    assert [prediction.has_answer for prediction in either] == [True, False]
    assert either[1].text == ""
    assert either[1].null_score_diff > 0
