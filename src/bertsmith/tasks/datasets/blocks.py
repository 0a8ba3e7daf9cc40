"""Blocks of texts or examples, limited in count and characters, to process streams of any length."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    Example,
    MentionExample,
    QuestionExample,
    SequenceExample,
    TextExample,
    TripletExample,
)

BLOCK_TEXTS = 4096
BLOCK_CHARACTERS = 2**24
Item = TypeVar("Item")


def text_blocks(
    texts: Iterable[str], most_texts: int = BLOCK_TEXTS, most_characters: int = BLOCK_CHARACTERS
) -> Iterator[list[str]]:
    """Lists of texts in input order, within both limits; a text over the character limit gets a list of its own."""
    return sized_blocks(texts, len, most_texts, most_characters)


def named_blocks(blocks: Iterable[Iterable[str]], most_texts: int, name: str) -> Iterator[tuple[list[str], list[str]]]:
    """Lists of texts that are computed together, with the names of the texts in errors.

    Args:
        blocks: lists of texts; no result has texts of two of them.
        name: a format string for the number of a text.
    """
    first = 1
    for block in blocks:
        for texts in text_blocks(block, most_texts):
            yield texts, [name.format(number) for number in range(first, first + len(texts))]
            first += len(texts)


def sized_blocks(
    items: Iterable[Item], size_of: Callable[[Item], int], most_items: int, most_characters: int = BLOCK_CHARACTERS
) -> Iterator[list[Item]]:
    """Same as `text_blocks`, for any items; `size_of` returns the size of an item in characters."""
    block: list[Item] = []
    size = 0
    for item in items:
        more = size_of(item)
        if block and (len(block) == most_items or size + more > most_characters):
            yield block
            block, size = [], 0
        block.append(item)
        size += more
    if block:
        yield block


def blocks_left(blocks: Iterable[list[Item]], done: int) -> Iterator[tuple[int, list[Item]]]:
    """(The number of its first item, counted from 1, and the block) of the blocks that are not among the first items.

    >>> list(blocks_left([["a", "b"], ["c", "d"], ["e"]], 3))
    [(3, ['c', 'd']), (5, ['e'])]
    """
    first = 1
    for block in blocks:
        if first + len(block) - 1 > done:
            yield first, block
        first += len(block)


def characters_of(example: Example) -> int:
    """The total number of characters in all texts of an example."""
    if isinstance(example, TextExample):
        return len(example.first) + len(example.second or "")
    if isinstance(example, TripletExample | MentionExample):
        return sum(map(len, example.texts))
    if isinstance(example, ChoiceExample):
        return len(example.context) + sum(len(ending) for ending in example.endings)
    if isinstance(example, QuestionExample):
        return len(example.question) + len(example.context)
    if isinstance(example, SequenceExample):
        return len(example.source)
    return sum(len(word) for word in example.words)
