"""Examples with the pieces of their texts: a text is tokenized once, and all that reads it afterwards takes its pieces.

What counts tokens before the model reads them (limits, the usage of a request), or has the model read a text several
times (a query with each of many passages), tokenizes the examples and hands them on.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
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
Tokenizable = TextExample | ChoiceExample | SequenceExample | TaggedExample | QuestionExample
NO_PROMPTS = ("", "")  # in front of the first text of an example, and of each other one


def pieces_of(examples: Sequence[Tokenizable], encode: Callable[[], Encoded]) -> Encoded:
    """The pieces of all texts of some examples, one after another: those that all of them carry, or else made now."""
    pieces = [example.pieces for example in examples if example.pieces is not None]
    return Encoded.joined(pieces) if pieces and len(pieces) == len(examples) else encode()


def encoded_texts(
    examples: Sequence[TextExample] | Sequence[ChoiceExample] | Sequence[SequenceExample],
    tokenizer: "Tokenizer",
    prompts: tuple[str, str] = NO_PROMPTS,
    special_tokens: "SpecialTokens" = False,
) -> Encoded:
    """The pieces of all texts of the examples, before truncation; see `pieces_of`."""
    texts = (prompts[number > 0] + text for example in examples for number, text in enumerate(example.texts))
    return pieces_of(examples, lambda: tokenizer.encode_batch(list(texts), special_tokens=special_tokens))


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


def tokens_of_rows(example: Tokenizable, template: "Template") -> list[int]:
    """The tokens of each row that a tokenized example would fill without a limit, special ones included."""
    assert example.pieces is not None, "a tokenized example"
    if isinstance(example, ChoiceExample):
        context, *endings = example.pieces.lengths.tolist()
        return [context + ending + template.num_special(2) for ending in endings]
    is_pair = isinstance(example, QuestionExample) or (isinstance(example, TextExample) and example.second is not None)
    return [len(example.pieces.ids) + template.num_special(2 if is_pair else 1)]
