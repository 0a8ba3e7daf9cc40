"""The replies that are drawn as candidates next to the right one.

Replies that differ in white space or capital letters alone are equal: one that equals the right reply is never a wrong
one, and neither is a reply to an equal context. The seed of the draws is fixed, and that of a run has no part in them:
a rank depends on the candidates, so all seeds of a run, other models, and `evaluate` later on rank the same ones.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.datasets.examples import ChoiceExample, Example

FEWEST = 2  # candidates of a row


def same(text: str) -> str:
    """What equal replies have in common.

    >>> same("Thank  you.") == same("thank you. ")
    True
    """
    return " ".join(text.split()).casefold()


def different(texts: Iterable[str]) -> list[str]:
    """The texts without those that equal an earlier one.

    >>> different(["Yes.", "No.", "yes. "])
    ['Yes.', 'No.']
    """
    result: dict[str, str] = {}
    for text in texts:
        result.setdefault(same(text), text)
    return list(result.values())


def with_drawn(examples: Sequence[ChoiceExample], others: int, purpose: str = "candidates") -> list[ChoiceExample]:
    """The examples with further candidates each, drawn from the right replies of all; the right one at a drawn place.

    Fewer are added where the examples do not have as many.

    Args:
        others: the number of candidates that are added.
        purpose: of the draw.
    """
    right = [_right(example) for example in examples]
    replies = different(right)
    number_of = {same(text): number for number, text in enumerate(replies)}
    of_context: dict[str, set[int]] = {}
    for example, text in zip(examples, right, strict=True):
        of_context.setdefault(same(example.context), set()).add(number_of[same(text)])
    result = []
    for row, example in enumerate(examples):
        left_out = of_context[same(example.context)] | {number_of.get(same(text), -1) for text in example.endings}
        draw = draw_of(purpose, row)
        drawn = draw.choice(len(replies), min(len(replies), others + len(left_out)), replace=False).tolist()
        added = [replies[number] for number in drawn if number not in left_out][:others]
        endings = (*example.endings, *added)
        if len(endings) < FEWEST:
            raise InputError(
                expected=f"a reply that differs from that of {example.location}, as a wrong one",
                found="none",
                fix="add rows with other replies, or a column candidates",
            )
        result.append(with_right_at(dataclasses.replace(example, endings=endings), draw.integers(len(endings))))
    return result


def with_negatives(examples: Sequence[Example], negatives: int, mined: int) -> list[Example]:
    """Training examples for a model that reads context and reply together; those with candidates of their own as is.

    Args:
        negatives: wrong replies to draw for each example.
        mined: the most wrong replies that an example without candidates of its own may have.
    """
    choices = [example for example in examples if isinstance(example, ChoiceExample)]
    assert len(choices) == len(examples), "conversations"
    if max(len(example.endings) for example in choices) > 1 + mined:
        return list(choices)
    return list(with_drawn(choices, negatives, "negatives"))


def draw_of(purpose: str, row: int) -> np.random.Generator:
    """The generator of a row."""
    return generator(0, purpose, row)


def _right(example: ChoiceExample) -> str:
    assert example.label is not None, "labelled examples"
    return example.endings[example.label]


def with_right_at(example: ChoiceExample, position: "int | np.integer") -> ChoiceExample:
    """The example with its right candidate at a position, and the others in their order."""
    others = [text for number, text in enumerate(example.endings) if number != example.label]
    endings = (*others[:position], _right(example), *others[position:])
    return dataclasses.replace(example, endings=endings, label=int(position))
