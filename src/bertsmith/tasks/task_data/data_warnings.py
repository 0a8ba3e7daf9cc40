"""Suspicious examples of a task: dev examples that are learned, equal texts with different labels."""

from collections.abc import Hashable, Sequence

from bertsmith.base.core.progress import counted
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from bertsmith.tasks.datasets.values import brief


def data_warnings(train: Sequence[Example], dev: Sequence[Example]) -> tuple[str, ...]:
    """Warnings about the examples of a task, one sentence each, with counts and a case of each kind.

    >>> first, second = TextExample(id="0", first="a", label="x"), TextExample(id="1", first="a", label="y")
    >>> data_warnings([first, second], [])
    ("1 text of the training examples has different labels: 'x' in  and 'y' in  for 'a'",)
    """
    result = []
    seen = {_inputs(example): example for example in reversed(train)}
    shared = [example for example in dev if _inputs(example) in seen]
    if shared:
        first = shared[0]
        result.append(
            f"{len(shared):,} of {counted(len(dev), 'dev example')} {'is' if len(shared) == 1 else 'are'} also among "
            f"the training examples, the first in {first.location} (as in {seen[_inputs(first)].location}): scores on "
            "what was learned say little about other texts"
        )
    for examples, part in ((train, "training"), (dev, "dev")):
        golds: dict[Hashable, Example] = {}
        differing: dict[Hashable, tuple[Example, Example]] = {}
        for example in examples:
            if _gold(example) is None:
                continue
            other = golds.setdefault(_inputs(example), example)
            if _gold(other) != _gold(example):
                differing.setdefault(_inputs(example), (other, example))
        if differing:
            other, example = next(iter(differing.values()))
            result.append(
                f"{counted(len(differing), 'text')} of the {part} examples {'has' if len(differing) == 1 else 'have'} "
                f"different labels: {brief(_gold(other))} in {other.location} and {brief(_gold(example))} in "
                f"{example.location} for {brief(_inputs(example))}"
            )
    return tuple(result)


def _inputs(example: Example) -> Hashable:
    """The texts that a model reads of an example, without white space at their ends."""
    if isinstance(example, TaggedExample):
        return example.words
    if isinstance(example, QuestionExample):
        return example.question.strip(), example.context
    if isinstance(example, ChoiceExample):
        return example.context.strip(), example.endings
    if isinstance(example, TextExample):
        first = example.first.strip()
        return first if example.second is None else (first, example.second.strip())
    return example.texts


def _gold(example: Example) -> Hashable:
    """The label of an example; None if it has none, or more than one is right."""
    if isinstance(example, TaggedExample):
        return example.tags
    if isinstance(example, TextExample):
        return tuple(sorted(example.label)) if isinstance(example.label, tuple) else example.label
    return example.label if isinstance(example, ChoiceExample) else None
