"""Label names of a task: the labels of the training examples, and checks for unseen and unknown labels."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.examples import EntityExample, Example, SequenceExample, TaggedExample, TextExample
from bertsmith.tasks.datasets.file_text import warn_of_places
from bertsmith.tasks.datasets.label_cells import LONGEST_LABEL
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.metrics.brackets import read_tree_of
from bertsmith.tasks.metrics.entities import entity_spans, scheme_errors, scheme_of

MOST_LABELS = 1000
_FEWEST_ROWS, _MOST_LABELS = 10, 0.9  # rows, and labels for each, from which labels are hardly shared
_MOST_NAMED = 10  # labels that a message lists individually


def class_labels(examples: Sequence[TextExample]) -> tuple[str, ...]:
    """The labels of the training examples, sorted by name (numbers by value, then by name)."""
    names: set[str] = set()
    for example in examples:
        if example.label is not None:
            names |= set(labels_of(example))
    if not 2 <= len(names) <= MOST_LABELS:
        raise InputError(
            expected=f"2 to {MOST_LABELS} labels in the training file",
            found=f"{len(names)}: {', '.join(map(brief, sorted(names)[:3]))}",
            fix="check the label column (--label-column)",
        )
    _warn_of_case(names)
    if "-" in names and "+" not in names:
        warn(
            "'-' is learned as a class; if it marks rows without a label, remove them (rows with '-' in a column named "
            "gold_label are skipped)"
        )
    # `1` and `01` have one value but are two labels: the text breaks the tie, so the order depends on the names alone.
    by_value = all(name.isdecimal() and len(name) <= LONGEST_LABEL for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if by_value else 0, name)))


def tag_labels(sentences: Sequence[TaggedExample]) -> tuple[str, ...]:
    """The tags of the training sentences: O first, then sorted by name, as a reader expects."""
    tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    if not tags:
        raise InputError(expected="tags in the training file", found="none", fix="name the column with --tag-column")
    _warn_of_case(tags)
    return tuple(sorted(tags, key=lambda tag: (tag != "O", tag)))


def constituent_labels(examples: Sequence[SequenceExample]) -> tuple[str, ...]:
    """The labels of the constituents of all targets, which are trees over the words of their sources, sorted."""
    trees = (
        read_tree_of(example.source, target, example.location) for example in examples for target in example.targets
    )
    return tuple(sorted(frozenset().union(*(tree.labels for tree in trees))))


def scheme_of_names(sentences: Sequence[TaggedExample]) -> str:
    """The tagging scheme of named-entity sentences."""
    scheme = scheme_of([sentence.tags or () for sentence in sentences])
    if scheme:
        return scheme
    location, tag = next(
        (example.location, tag) for example in sentences for tag in example.tags or () if not scheme_of([[tag]])
    )
    raise InputError(
        expected=f"a tag such as O, B-PER or I-PER in the sentence at {location}",
        found=repr(tag),
        fix="correct the tag, or use --task pos for plain tags without a scheme",
    )


def labels_of(example: Example) -> tuple[str, ...]:
    """The gold labels of a text, of the entities or of the words of a sentence; empty if there is no gold."""
    if isinstance(example, EntityExample):
        return tuple(span.label for span in example.entities)
    if isinstance(example, TaggedExample):
        return example.tags or ()
    assert isinstance(example, TextExample), "labels of texts and of sentences"
    if example.label is None:
        return ()
    return example.label if isinstance(example.label, tuple) else (str(example.label),)


def warn_of_unlearned(labels: Sequence[str], examples: Sequence[Example], dev: Sequence[Example]) -> None:
    """Warns of labels that never occur in training, so cannot be learned, and names the first dev example with one."""
    seen = {label for example in examples for label in labels_of(example)}
    absent = [label for label in labels if label not in seen]
    if not absent:
        return
    unknown = ((example.location, label) for example in dev for label in labels_of(example) if label in absent)
    first = next((f"; the first in the dev examples is {label!r} in {location}" for location, label in unknown), "")
    warn(f"labels missing from the training examples, so never learned: {', '.join(absent)}{first}")


def warn_of_single(examples: Sequence[TextExample], *, held_out: bool, can_map: bool) -> None:
    """Warns of labels that a single training example has."""
    examples_of: dict[str, list[TextExample]] = {}
    for example in examples:
        for label in labels_of(example):
            examples_of.setdefault(label, []).append(example)
    single = {label: of_label[0] for label, of_label in examples_of.items() if len(of_label) == 1}
    if not single:
        return
    if are_hardly_shared(len(single), len(examples)):
        warn(f"{len(single):,} labels have only one of {len(examples):,} training examples each; check --label-column")
        return
    named = listed(f"{brief(label)} ({example.location})" for label, example in single.items())
    effect = "is kept for training, so no score covers them" if held_out else "can hardly be learned from"
    those, it, other = ("that label", "it", "another label") if len(single) == 1 else ("them", "them", "other labels")
    merge = f", or merge {it} into {other} with --map" if can_map else ""
    warn(f"labels with a single training example, which {effect}: {named}; add examples of {those}{merge}")


def are_hardly_shared(labels: int, rows: int) -> bool:
    """Whether nearly every one of many rows has a label of its own, as if the column of labels were one of texts."""
    return rows >= _FEWEST_ROWS and labels >= _MOST_LABELS * rows


def warn_of_held_out(train: Sequence[TextExample], dev: Sequence[TextExample]) -> None:
    """Warns if held-out examples all have one label, or none has a label that several training examples have."""
    times, held = Counter(label for example in train for label in labels_of(example)), len(dev)
    covered = {labels_of(example) for example in dev}
    absent = times.keys() - {label for labels in covered for label in labels}
    missing = [label for label in sorted(absent) if times[label] > 1]  # others are named by `warn_of_single`
    if not held or not absent:
        return
    if len(covered) == 1 and (labels := covered.pop()):
        have = "the only held-out example has" if held == 1 else f"all {held:,} held-out examples have"
        warn(f"{have} the label {' and '.join(labels)}; give --dev or more examples")
    elif missing:
        noun = "label" if len(missing) == 1 else "labels"
        warn(f"no held-out example, of {held:,}, has the {noun} {listed(missing)}; give --dev or more examples")


def check_known(
    examples: Sequence[Example], labels: Sequence[str], *, training: bool, noun: str = "label", fixed: str = ""
) -> None:
    """Checks that all gold labels can be learned or scored; in scoring alone, unknown labels count as misses.

    Args:
        fixed: the name of the task if its labels are fixed; otherwise they come from a training file.
    """
    known = set(labels)
    times, places, total = Counter[str](), dict[str, str](), 0
    for example in examples:
        for name in labels_of(example):
            total += 1
            if name not in known:
                times[name] += 1
                places.setdefault(name, example.location)
    if not times:
        return
    first = next(iter(times))
    if training or times.total() == total:
        suggestion, source = nearest(first, labels), f"{noun}s come from the training file"
        if fixed:
            source = f"the {noun}s of {fixed} are fixed: for others, use --task classification"
        raise InputError(
            expected=f"a known {noun} in {places[first]}",
            found=repr(first) if times.total() == 1 else listed(f"{name!r} {_often(n)}" for name, n in times.items()),
            fix=f"{suggestion} {source[0].upper()}{source[1:]}"
            if suggestion.endswith("?")
            else f"{suggestion}; {source}",
        )
    named = listed(
        f"{name!r} ({_often(count)}, {'in' if count == 1 else 'first in'} {places[name]})"
        for name, count in times.most_common()
    )
    are = "is" if times.total() == 1 else "are"
    warn(
        f"{times.total():,} of {counted(total, f'gold {noun}')} {are} unknown to the model, scored as a miss: {named}; "
        "correct them, or train with examples of them"
    )


def check_scheme(sentences: Sequence[TaggedExample], scheme: str) -> None:
    """Checks that gold tags can be scored; warns of sentences that violate the scheme."""
    places = {tag: sentence.location for sentence in reversed(sentences) for tag in labels_of(sentence)}
    for tag, location in places.items():
        try:
            entity_spans((tag,), scheme)
        except InputError:
            raise InputError(
                expected=f"a tag of {scheme} in {location}", found=repr(tag), fix="write the tags in the model's scheme"
            ) from None
    broken = []
    for sentence in sentences:
        for word, reason in scheme_errors(labels_of(sentence), scheme)[:1]:
            broken.append((f"{sentence.location}, word {word + 1}", reason))
    title = f"{len(broken)} of {counted(len(sentences), 'sentence')} with tags that violate {scheme}"
    warn_of_places(f"{title}; scored as conlleval reads them", broken)


def listed(named: Iterable[str]) -> str:
    """Names for a message, shortened if there are many."""
    names = list(named)
    rest = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + rest


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _warn_of_case(names: Iterable[str]) -> None:
    alike: dict[str, list[str]] = {}
    for name in sorted(names):
        alike.setdefault(name.casefold(), []).append(name)
    for group in alike.values():
        if len(group) > 1:
            warn(f"{' and '.join(map(repr, group))} differ only in case, and are different labels")
