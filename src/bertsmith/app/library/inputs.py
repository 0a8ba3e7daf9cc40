"""Validation of model inputs: lists of texts, of pairs, of words. A wrong type gives a one-line error."""

import contextlib
import dataclasses
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

from bertsmith.base.core.errors import CutWarning, InputError
from bertsmith.base.core.progress import counted, quiet
from bertsmith.base.core.requests import as_list
from bertsmith.base.core.tables import has_rows
from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    DocumentExample,
    MentionExample,
    QuestionExample,
    SequenceExample,
    TaggedExample,
    TextExample,
    document_of,
    pairs_of,
)
from bertsmith.tasks.datasets.marked_texts import words_of
from bertsmith.tasks.datasets.mentions import mention_of, require_mentions

Text = str | tuple[str, str]

# Modules that may be on the stack between user code and `warn_cut`; scikit-learn's pipelines call through joblib.
_BETWEEN = (f"{__package__}.", "bertsmith.base.core.requests", "contextlib", "sklearn.", "joblib.")


def checked_texts(texts: Sequence[str], items: str = "text") -> list[str]:
    """The texts, if all of them are; errors count from 1."""
    return [checked_text(text, f"{items} {number}") for number, text in enumerate(listed(texts, "texts"), start=1)]


def checked_text(text: object, location: str) -> str:
    """The text, if it is one, without lone surrogates."""
    if not isinstance(text, str):
        raise wrong("a text", text, location)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                expected=f"valid Unicode in {location}",
                found=f"a lone surrogate at character {error.start}",
                fix="decode the text as UTF-8 with errors='replace'",
            ) from None
    return text


def checked_pairs(pairs: Sequence[tuple[str, str]], expected: str, items: str = "pair") -> list[tuple[str, str]]:
    """The pairs of texts.

    Args:
        expected: what a pair is.
        items: the name of an item in messages.
    """
    result = []
    for number, pair in enumerate(listed(pairs, f"{items}s"), start=1):
        first, second = two(pair, f"{items} {number}", expected)
        result.append((checked_text(first, f"{items} {number}"), checked_text(second, f"{items} {number}")))
    return result


def text_examples(texts: Sequence[Text]) -> list[TextExample]:
    """The texts and pairs as examples, with their numbers from 0 as ids."""
    examples = []
    for number, text in enumerate(listed(texts, "texts, or pairs of texts")):
        location = f"text {number + 1}"
        parts = (text,) if isinstance(text, str) else two(text, location, "a text or a pair of texts")
        first, second = (*(checked_text(part, location) for part in parts), None)[:2]
        examples.append(TextExample(id=str(number), first=first, second=second, location=location))  # type: ignore[arg-type]
    return examples


def pair_examples(pairs: Sequence[tuple[str, str]]) -> list[TextExample]:
    """The pairs of texts as examples."""
    numbered = enumerate(checked_pairs(pairs, "two texts"), start=1)
    return [TextExample(id=str(n), first=first, second=second, location=f"pair {n}") for n, (first, second) in numbered]


def passage_examples(pairs: Sequence[tuple[str, str]]) -> list[TextExample]:
    """The pairs of the same query and each passage, as examples."""
    query = checked_text(pairs[0][0], "the query")
    return pairs_of(query, checked_texts([passage for _, passage in pairs], "passage"))


def checked_sentences(sentences: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The words of each sentence."""
    numbered = enumerate(listed(sentences, "sentences, each a list of words"), start=1)
    return [checked_words(words, f"sentence {number}") for number, words in numbered]


def tagged_sentences(texts: Sequence[str | Sequence[str]]) -> list[TaggedExample]:
    """Plain texts split into words, and lists of words unchanged."""
    sentences = []
    for number, text in enumerate(listed(texts, "texts, or lists of words")):
        location = f"text {number + 1}"
        if isinstance(text, str):
            sentence = words_of(checked_text(text, location), id=location, location=location)
        else:
            sentence = TaggedExample(id=location, words=checked_words(text, location), location=location)
        # Each text is a document of its own, whatever its neighbors are.
        sentences.append(dataclasses.replace(sentence, document=number))
    return sentences


def choice_examples(questions: Sequence[tuple[str, Sequence[str]]]) -> list[ChoiceExample]:
    """Each context with its endings as an example."""
    examples = []
    for number, question in enumerate(listed(questions, "contexts with endings"), start=1):
        location = f"question {number}"
        context, endings = two(question, location, "a context and its endings")
        if not isinstance(endings, list | tuple):
            raise wrong("a context and a list of endings", question, location)
        context, *endings = (checked_text(text, location) for text in (context, *endings))
        examples.append(ChoiceExample(id=location, context=context, endings=tuple(endings), location=location))
    return examples


def question_examples(questions: Sequence[tuple[str, str]]) -> list[QuestionExample]:
    """Each question with its context as an example."""
    numbered = enumerate(checked_pairs(questions, "a question and its context", "question"), start=1)
    return [
        QuestionExample(id=str(number), question=question, context=context, location=f"question {number}")
        for number, (question, context) in numbered
    ]


def source_examples(texts: Sequence[str]) -> list[SequenceExample]:
    """The source texts as examples."""
    numbered = enumerate(checked_texts(texts), start=1)
    return [SequenceExample(id=str(n), source=text, location=f"text {n}") for n, text in numbered]


def source_documents(texts: Sequence[str | Sequence[str]]) -> list[DocumentExample]:
    """Texts, and lists of the sentences of texts, as examples."""
    documents = []
    for number, text in enumerate(listed(texts, "texts, or lists of sentences"), start=1):
        location = f"text {number}"
        source = checked_text(text, location) if isinstance(text, str) else _checked_list(text, "sentence", location)
        documents.append(document_of(source, id=str(number), location=location))
    return documents


def pronoun_examples(pronouns: Sequence[Mapping[str, Any]]) -> list[MentionExample]:
    """Each text with a pronoun and candidates as an example; the spans are checked."""
    examples = []
    for number, pronoun in enumerate(listed(pronouns, "records of a text, a pronoun and candidates"), start=1):
        location = f"pronoun {number}"
        example = mention_of(pronoun, location, id=str(number))
        require_mentions(example)
        examples.append(example)
    return examples


def examples_of(ability: str, items: Sequence[Any]) -> Sequence[Any]:
    """The items of a method of `Model` as examples; they are checked."""
    return _EXAMPLES.get(ability, text_examples)(items)


def located(items: Sequence[Any]) -> list[Any]:
    """The examples of several requests, numbered together, as errors count them."""
    examples = []
    for number, item in enumerate(items, start=1):
        document = {"document": number} if isinstance(item, TaggedExample) else {}
        location = f"{item.location.rpartition(' ')[0]} {number}"
        examples.append(dataclasses.replace(item, location=location, **document))
    return examples


def checked_words(words: object, location: str) -> tuple[str, ...]:
    """The words of a sentence, if it is a list of texts."""
    return _checked_list(words, "word", location)


def _checked_list(values: object, item: str, location: str) -> tuple[str, ...]:
    """The texts of a list."""
    if not isinstance(values, list | tuple):
        raise wrong(f"a list of {item}s", values, location)
    return tuple(checked_text(text, f"{item} {number} of {location}") for number, text in enumerate(values, start=1))


def two(pair: object, location: str, expected: str) -> tuple[Any, Any]:
    """The two parts of a pair, if there are two."""
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise wrong(expected, pair, location)
    return pair[0], pair[1]


def listed(values: object, items: str) -> Sequence[Any]:
    """The values of a list, an array or a column as a sequence."""
    if isinstance(values, str):
        raise InputError(expected=f"a list of {items}", found="one text", fix="put it into a list")
    if not isinstance(values, list | tuple) and has_rows(values):
        raise InputError(
            expected=f"a list of {items}",
            found=f"a whole table of type {type(values).__name__}",
            fix="give one column, such as frame['text'], or call predict(frame) of a model with a task head",
        )
    plain = as_list(values)
    if not isinstance(plain, list | tuple):
        raise InputError(
            expected=f"a list of {items}",
            found=f"a value of type {type(values).__name__}",
            fix="convert it to a list, for example with list(...)",
        )
    return plain


def require_count(count: object, name: str) -> None:
    """Returns if it is a whole number of at least 1."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(
            expected=f"{name} as a whole number of at least 1", found=reprlib.repr(count), fix="correct it"
        )


def require_ids(rows: Sequence[Sequence[int]], size: int, most: int, prompt: str) -> None:
    """Returns if a model can read these rows of token ids.

    Args:
        size: of its vocabulary.
        most: the ids that it reads of a text.
        prompt: what would have to precede them, which is text; "" for nothing.
    """
    for number, row in enumerate(listed(rows, "rows of token ids"), start=1):
        wrong_id = next((id for id in row if not 0 <= id < size), None)
        if wrong_id is not None:
            raise InputError(
                expected=f"token ids up to {size - 1:,}",
                found=f"{wrong_id:,} in text {number}",
                fix="send texts instead",
            )
        if len(row) > most:
            raise InputError(
                expected=f"at most {most:,} token ids in text {number}, as the model reads",
                found=f"{len(row):,}",
                fix="send fewer, or the text",
            )
    if prompt:
        raise InputError(
            expected=f"texts for a model with the prompt {prompt!r}",
            found="token ids",
            fix="send texts, or name the prompt none",
        )


def wrong(expected: str, value: object, location: str) -> InputError:
    """The error for a value of the wrong type."""
    return InputError(expected=f"{expected} as {location}", found=reprlib.repr(value)[:60], fix="correct it")


def warn_cut(cut: Iterable[int]) -> tuple[int, int]:
    """The number of truncated texts and their truncated tokens in total; warns callers outside the package of them.

    The warning points to the caller's line, even through scikit-learn. Inside the package each room reports its counts.

    Args:
        cut: the truncated tokens of each text.
    """
    texts = [tokens for tokens in cut if tokens]
    counts = len(texts), sum(texts)
    if not texts:
        return counts
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _module_of(frame).startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    if _module_of(frame).startswith(f"{__package__.partition('.')[0]}."):
        return counts
    message = f"texts truncated to the length the model reads: {counts[0]:,}, {counted(counts[1], 'token')} in all"
    warnings.warn(message, CutWarning, stacklevel=level)
    return counts


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def silently(wanted: bool = True) -> contextlib.AbstractContextManager[None]:
    """A context that silences progress output, safe to use from several threads; does nothing unless `wanted`."""
    return quiet() if wanted else contextlib.nullcontext()


_EXAMPLES: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "choose": choice_examples,
    "tag": tagged_sentences,
    "answer": question_examples,
    "generate": source_examples,
    "extract": source_documents,
    "resolve": pronoun_examples,
    "rerank": passage_examples,
}
