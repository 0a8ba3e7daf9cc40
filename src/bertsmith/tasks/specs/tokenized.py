"""Examples with the pieces of their texts: a text is tokenized once, and all that reads it afterwards takes its pieces.

What counts tokens before the model reads them (limits, the usage of a request), or has the model read a text several
times (a query with each of many passages), tokenizes the examples and hands them on.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    DocumentExample,
    QuestionExample,
    SequenceExample,
    TaggedExample,
    TextExample,
)
from bertsmith.text.tokenizers.encoded import Encoded

if TYPE_CHECKING:
    from bertsmith.text.tokenizers.template import Template
    from bertsmith.text.tokenizers.tokenizer import SpecialTokens, Tokenizer

Whole = TypeVar("Whole", TextExample, ChoiceExample, SequenceExample)
Tokenizable = TextExample | ChoiceExample | SequenceExample | TaggedExample
NO_PROMPTS = ("", "")  # in front of the first text of an example, and of each other one


def encoded_texts(
    examples: Sequence[Tokenizable],
    tokenizer: "Tokenizer",
    prompts: tuple[str, str] = NO_PROMPTS,
    special_tokens: "SpecialTokens" = False,
) -> Encoded:
    """The pieces of all texts or words of the examples, one after another, before truncation.

    They are those that all of the examples carry, or else made now. A word without pieces has [UNK].
    """
    pieces = [example.pieces for example in examples if example.pieces is not None]
    if pieces and len(pieces) == len(examples):
        return Encoded.joined(pieces)
    texts = [prompts[number > 0] + text for example in examples for number, text in enumerate(example.texts)]
    if examples and isinstance(examples[0], TaggedExample):
        return tokenizer.encode_repeated_words(texts)
    return tokenizer.encode_batch(texts, special_tokens=special_tokens)


def tokenized(
    examples: Sequence[Whole],
    tokenizer: "Tokenizer",
    prompts: tuple[str, str] = NO_PROMPTS,
    special_tokens: "SpecialTokens" = False,
    known: dict[str, Encoded] | None = None,
) -> list[Whole]:
    """The examples with the pieces of their texts, each of which is tokenized once.

    Args:
        known: pieces by text, from earlier calls with the same tokenizer and options; those of new texts are added.
    """
    known = {} if known is None else known
    texts = [[prompts[number > 0] + text for number, text in enumerate(example.texts)] for example in examples]
    new = [text for text in dict.fromkeys(itertools.chain.from_iterable(texts)) if text not in known]
    known.update(
        zip(new, tokenizer.encode_batch(new, special_tokens=special_tokens).split([1] * len(new)), strict=True)
    )
    pieces = (Encoded.joined([known[text] for text in of_example]) for of_example in texts)
    return [dataclasses.replace(example, pieces=part) for example, part in zip(examples, pieces, strict=True)]


def tokens_of_rows(example: Tokenizable | QuestionExample, template: "Template") -> list[int]:
    """The tokens of each row that a tokenized example would fill without a limit, special ones included."""
    assert example.pieces is not None, "a tokenized example"
    if isinstance(example, ChoiceExample):
        context, *endings = example.pieces.lengths.tolist()
        return [context + ending + template.num_special(2) for ending in endings]
    if isinstance(example, DocumentExample):  # each sentence has its own
        return [len(example.pieces.ids) + max(1, len(example.sentences)) * template.num_special(1)]
    is_pair = isinstance(example, QuestionExample) or (isinstance(example, TextExample) and example.second is not None)
    return [len(example.pieces.ids) + template.num_special(2 if is_pair else 1)]
