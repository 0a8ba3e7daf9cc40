"""The training and dev examples of a task, and how a dev set is split off the training file."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.datasets.examples import Example, QuestionExample, TextExample
from bertsmith.tasks.datasets.labels import labels_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task, read and checked."""

    train: Sequence[Example]
    dev: Sequence[Example]  # labelled examples for model selection; empty if there are none
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    held_out: bool = False  # whether `dev` was split off the training file
    in_groups: bool = False  # whether whole groups of its examples were
    by_label: bool = False  # whether a share of the examples of each label was
    warnings: tuple[str, ...] = ()  # about the examples, one sentence each, which were also written to stderr


def split_dev(
    examples: Sequence[Example],
    seed: int,
    share: float = 0.1,
    *,
    by_label: bool = False,
    groups: Sequence[str] | None = None,
) -> tuple[list[Example], list[Example]]:
    """Training and dev examples: a random fraction, at least one example, is held out as the dev set.

    Each label of a classification keeps a training example; if every example is the only one of a label, the dev set is
    empty.

    Args:
        by_label: hold out that fraction of the examples of each label, at least one where there are two.
        groups: the group of each example. Whole groups are held out, of at most that fraction together; if all are
            larger, one of the smallest.
    """
    if len(examples) < 2:
        raise ConfigError(expected="at least two training examples", found=str(len(examples)), fix="give --dev a file")
    # Questions about the same context stay together; otherwise dev contexts would be seen in training.
    by_group: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        together = example.context if isinstance(example, QuestionExample) else str(number)
        by_group.setdefault(together if groups is None else groups[number], []).append(number)
    parts = list(by_group.values())
    labels, aside = _labels(examples), set[int]()
    counts = Counter(itertools.chain.from_iterable(labels))
    left, stays = counts.copy(), dict.fromkeys(counts, 1)
    wanted = max(1, round(share * len(examples)))
    if by_label and counts:
        stays = {label: max(1, count - max(1, round(share * count))) for label, count in counts.items()}
        wanted = sum(counts[label] - count for label, count in stays.items())
    most = len(examples) if groups is None else max(wanted, min(map(len, parts)))
    for part in generator(seed, "dev split").permutation(len(parts)).tolist():
        if len(aside) >= wanted:
            break
        taken = Counter(label for number in parts[part] for label in labels[number])
        if len(aside) + len(parts[part]) <= most and all(
            left[label] - count >= stays[label] for label, count in taken.items()
        ):
            left.subtract(taken)
            aside |= set(parts[part])
    kept = [example for number, example in enumerate(examples) if number not in aside]
    if groups is not None and not (kept and aside):
        raise ConfigError(
            expected="groups of examples of which one can be held out, each label being left in another",
            found=counted(len(parts), "group"),
            fix="give --dev a file",
        )
    if not kept:
        raise ConfigError(expected="questions about several contexts", found="one context", fix="give --dev a file")
    return kept, [examples[number] for number in sorted(aside)]


def _labels(examples: Sequence[Example]) -> Sequence[Sequence[str]]:
    texts = [
        example for example in examples if isinstance(example, TextExample) and isinstance(example.label, str | tuple)
    ]
    return [labels_of(example) for example in texts] if len(texts) == len(examples) else [()] * len(examples)
