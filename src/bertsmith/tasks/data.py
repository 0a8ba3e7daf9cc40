"""The training and dev examples of a task, and how a dev set is split off the training file."""

import dataclasses
from collections.abc import Mapping, Sequence

from bertsmith.datasets.examples import Example, QuestionExample
from bertsmith.errors import ConfigError
from bertsmith.randomness import generator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task, read and checked.

    Attributes:
        train: labelled examples to train on.
        dev: labelled examples for model selection; empty if there are none.
        digests: file digests by name.
        held_out: whether `dev` was split off the training file.
    """

    train: Sequence[Example]
    dev: Sequence[Example]
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    held_out: bool = False


def split_dev(examples: Sequence[Example], seed: int, share: float = 0.1) -> tuple[list[Example], list[Example]]:
    """Training and dev examples: a random fraction, at least one example, is held out as the dev set.

    Raises:
        ConfigError: there are too few examples for a split.
    """
    if len(examples) < 2:
        raise ConfigError(expected="at least two training examples", found=str(len(examples)), fix="give --dev a file")
    # Questions about the same context stay together; otherwise dev contexts would be seen in training.
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
