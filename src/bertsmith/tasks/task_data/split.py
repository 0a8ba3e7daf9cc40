"""The training and dev examples of a task, and how a training file is split: a dev set off it, or all of it in folds.

Source: Sechidis, Tsoumakas and Vlahavas (2011), "On the Stratification of Multi-Label Data", section 3.2, for folds.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    Example,
    ListExample,
    MentionExample,
    QuestionExample,
    SequenceExample,
    TaggedExample,
    TextExample,
)
from bertsmith.tasks.datasets.labels import labels_of, listed
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.specs.task import TaskSpec

_OF_CONTEXT = (QuestionExample, ListExample)  # examples of which several may have the same context


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fold:
    """One of several parts of the training examples, of which each is predicted by a model trained on the others."""

    number: int  # from 1
    count: int
    rows: Sequence[int]  # its examples among all, from 0, ascending

    def __str__(self) -> str:
        return f"fold {self.number} of {self.count}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The examples of a further training file of vectors, see `sources.py`.

    Attributes:
        name: as it was named, such as "pairs.tsv:cosent:2".
        spec: of its form.
        loss: one of `OBJECTIVES`; None for that of its form.
        share: of the steps, in proportion to those of the other files, of which the first has 1; None if it was left
            out.
        digest: of the file.
    """

    name: str
    spec: TaskSpec
    examples: Sequence[Example]
    loss: str | None
    share: float | None
    digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task, read and checked."""

    train: Sequence[Example]
    dev: Sequence[Example]  # labelled examples for model selection; empty if there are none
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    held_out: bool = False  # whether `dev` was split off the training file
    in_groups: bool = False  # whether whole groups of its examples were
    by_label: bool = False  # whether a share of the examples of each label was
    fold: Fold | None = None  # the fold that `dev` is
    sources: Sequence[Source] = ()  # further training files of vectors, whose losses may be others
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
        by_label: hold out that fraction of the examples of each label, at least one where there are two; of examples
            with several labels, about that fraction.
        groups: the group of each example. Whole groups are held out, of at most that fraction together; if all are
            larger, one of the smallest.
    """
    if len(examples) < 2:
        raise ConfigError(expected="at least two training examples", found=str(len(examples)), fix="give --dev a file")
    # Questions about the same context stay together, and lists of the same query; otherwise dev contexts would be seen
    # in training.
    together = [
        example.context if isinstance(example, _OF_CONTEXT) else str(number) for number, example in enumerate(examples)
    ]
    parts = _parts(together if groups is None else groups)
    labels, aside = _labels(examples), set[int]()
    if by_label and any(labels):
        labels = [part or ("",) for part in labels]  # examples without a label are held out like those of a label
    counts = Counter(itertools.chain.from_iterable(labels))
    left, stays = counts.copy(), dict.fromkeys(counts, 1)
    wanted = max(1, round(share * len(examples)))
    if by_label and counts:
        stays = {label: max(1, count - max(1, round(share * count))) for label, count in counts.items()}
        wanted = sum(counts[label] - count for label, count in stays.items())
    order = generator(seed, "dev split").permutation(len(parts)).tolist()
    if by_label and any(len(part) > 1 for part in labels):
        # Examples with a rare label come first: later, their other labels may have none to give.
        rarest = [min((counts[label] for n in part for label in labels[n]), default=0) for part in parts]
        order.sort(key=lambda part: rarest[part])
    most = len(examples) if groups is None else max(wanted, min(map(len, parts)))
    for part in order:
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
        alone = labels_in_one(examples, groups)
        raise ConfigError(
            expected="groups of examples of which one can be held out, each label being left in another",
            found=counted(len(parts), "group")
            + (f"; labels in one group alone: {listed(map(brief, alone))}" if alone else ""),
            fix="give --dev a file",
        )
    if not kept:
        raise ConfigError(expected="questions about several contexts", found="one context", fix="give --dev a file")
    return kept, [examples[number] for number in sorted(aside)]


def fold_numbers(
    examples: Sequence[Example], count: int, seed: int, *, groups: Sequence[str] | None = None
) -> list[int]:
    """The fold of each example, from 1 to `count`; the folds have about equal shares of the examples of each label.

    A text may have several labels. The rarest label is dealt out first, each part of examples to the fold that has too
    few of that label, and among equal ones too few examples.

    Args:
        groups: the group of each example, which is in one fold as a whole. By default, examples with the same texts are
            together, and questions about the same context.

    Raises:
        ConfigError: there are fewer groups, or different texts, than folds.
    """
    together = [example.context if isinstance(example, _OF_CONTEXT) else inputs_of(example) for example in examples]
    parts = _parts(together if groups is None else groups)
    require(
        len(parts) >= count,
        expected=f"at least {count} {'different examples' if groups is None else 'groups'} for --folds {count}",
        found=str(len(parts)),
        fix=f"use --folds {len(parts)}" if len(parts) > 1 else "name a file with more of them",
    )
    order = sorted(generator(seed, "folds").permutation(len(parts)).tolist(), key=lambda part: -len(parts[part]))
    labels = _labels(examples)
    held = [Counter(label for number in part for label in labels[number]) for part in parts]
    left = Counter(label for taken in held for label in taken.elements())
    lacks = {label: [total] * count for label, total in left.items()}  # as `count` times what a fold lacks
    room, fold_of, waiting = [len(examples)] * count, [0] * len(examples), dict.fromkeys(order)
    while waiting:
        rarest = min((label for label in left if left[label]), key=lambda label: (left[label], label), default=None)
        for part in [part for part in waiting if rarest is None or rarest in held[part]]:
            wanted = room if rarest is None else lacks[rarest]
            fold = max(range(count), key=lambda fold: (wanted[fold], room[fold], -fold))
            for label, taken in held[part].items():
                lacks[label][fold] -= count * taken
            room[fold] -= count * len(parts[part])
            left.subtract(held[part])
            del waiting[part]
            for number in parts[part]:
                fold_of[number] = fold + 1
    return fold_of


def labels_in_one(examples: Sequence[Example], parts: Sequence[Hashable]) -> list[str]:
    """The labels of texts whose examples are all in one part, such as a group or a fold, sorted.

    Args:
        parts: the part of each example.
    """
    parts_of: dict[str, set[Hashable]] = {}
    for labels, part in zip(_labels(examples), parts, strict=True):
        for label in labels:
            parts_of.setdefault(label, set()).add(part)
    return sorted(label for label, of_label in parts_of.items() if len(of_label) == 1)


def check_folds(examples: Sequence[Example], count: int, groups: Sequence[str] | None) -> None:
    """Warns of labels that one fold alone has: the model that predicts their examples has never seen them.

    Raises:
        ConfigError: every label is one of them.
    """
    alone = labels_in_one(examples, fold_numbers(examples, count, seed=0, groups=groups))
    if not alone:
        return
    times = Counter(itertools.chain.from_iterable(_labels(examples)))
    fix = "add other examples with them" if groups is None else "put examples with them in several groups"
    require(
        len(alone) < len(times),
        expected=f"a label with examples in several folds, for --folds {count}",
        found=f"labels in one fold alone: {listed(map(brief, alone))}",
        fix=fix if groups is None else f"{fix}, or name another --group-column",
    )
    if several := [label for label in alone if times[label] > 1]:  # others are named by `warn_of_single`
        warn(
            f"labels in one fold alone, whose examples are predicted by a model that never saw them: "
            f"{listed(map(brief, several))}; {fix}"
        )


def _parts(together: Iterable[Hashable]) -> list[list[int]]:
    """The numbers of the examples that stay together, by what they have in common."""
    by_group: dict[Hashable, list[int]] = {}
    for number, common in enumerate(together):
        by_group.setdefault(common, []).append(number)
    return list(by_group.values())


def _labels(examples: Sequence[Example]) -> Sequence[Sequence[str]]:
    texts = [
        example for example in examples if isinstance(example, TextExample) and isinstance(example.label, str | tuple)
    ]
    return [labels_of(example) for example in texts] if len(texts) == len(examples) else [()] * len(examples)


def inputs_of(example: Example) -> Hashable:
    """The texts that a model reads of an example, without white space at their ends."""
    if isinstance(example, TaggedExample):
        return example.words
    if isinstance(example, QuestionExample):
        return example.question.strip(), example.context
    if isinstance(example, ChoiceExample):
        return example.context.strip(), example.endings
    if isinstance(example, SequenceExample):
        return example.source.strip()
    if isinstance(example, MentionExample):
        return example.text, example.mentions
    if isinstance(example, TextExample):
        first = example.first.strip()
        return first if example.second is None else (first, example.second.strip())
    return example.texts
