"""The examples of a task: those to learn from, those to choose by, and the share that is set aside for the latter."""

import dataclasses
from collections.abc import Mapping, Sequence

from bertsmith.datasets.examples import Example, QuestionExample
from bertsmith.errors import ConfigError
from bertsmith.randomness import generator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task, read and checked.

    Attributes:
        train: labelled examples to learn from.
        dev: labelled examples to choose by; empty for none.
        digests: of the files, by name.
        held_out: whether `dev` was taken out of the training file.
    """

    train: Sequence[Example]
    dev: Sequence[Example]
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    held_out: bool = False


def split_dev(examples: Sequence[Example], seed: int, share: float = 0.1) -> tuple[list[Example], list[Example]]:
    """Training and dev examples: a share, at least one, drawn by the seed, is set aside.

    Raises:
        ConfigError: there are too few examples for both.
    """
    if len(examples) < 2:
        raise ConfigError(expected="at least two training examples", found=str(len(examples)), fix="give --dev a file")
    # Questions about one context stay together, or the dev examples would have been read in training.
    by_context: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        together = example.context if isinstance(example, QuestionExample) else str(number)
        by_context.setdefault(together, []).append(number)
    groups = list(by_context.values())
    aside: set[int] = set()
    for group in generator(seed, "dev split").permutation(len(groups)).tolist():
        if len(aside) >= max(1, round(share * len(examples))):
            break
        aside |= set(groups[group])
    kept = [example for number, example in enumerate(examples) if number not in aside]
    if not kept:
        raise ConfigError(expected="questions about several contexts", found="one context", fix="give --dev a file")
    return kept, [examples[number] for number in sorted(aside)]
