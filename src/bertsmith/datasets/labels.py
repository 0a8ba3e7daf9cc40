"""The labels of a task by their names: those of the training examples, what cannot be learned, what is not known."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bertsmith.datasets.examples import Example, TaggedExample, TextExample
from bertsmith.datasets.file_text import warn_of_places
from bertsmith.errors import InputError, nearest
from bertsmith.metrics.entities import entity_spans, scheme_errors, scheme_of
from bertsmith.progress import counted, warn

MOST_LABELS = 1000
_MOST_NAMED = 10  # labels that a message names one by one


def class_labels(examples: Sequence[TextExample]) -> tuple[str, ...]:
    """The labels of the training examples, in the order of their names (numbers by value).

    Raises:
        InputError: there is a single label, or so many that they are no classes.
    """
    names: set[str] = set()
    for example in examples:
        if example.label is not None:
            names |= set(labels_of(example))
    if not 2 <= len(names) <= MOST_LABELS:
        raise InputError(
            expected=f"two labels at least, and {MOST_LABELS} at most, in the training file",
            found=f"{len(names)}: {', '.join(map(repr, sorted(names)[:3]))}",
            fix="check the label column (--label-column)",
        )
    _warn_of_case(names)
    return tuple(sorted(names, key=int)) if all(name.isdecimal() for name in names) else tuple(sorted(names))


def tag_labels(sentences: Sequence[TaggedExample]) -> tuple[str, ...]:
    """The tags of the training sentences: O first, then by name, the order that a reader expects.

    Raises:
        InputError: there are none.
    """
    tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    if not tags:
        raise InputError(expected="tags in the training file", found="none", fix="name the column with --tag-column")
    _warn_of_case(tags)
    return tuple(sorted(tags, key=lambda tag: (tag != "O", tag)))


def scheme_of_names(sentences: Sequence[TaggedExample]) -> str:
    """The scheme of the tags of a file of names.

    Raises:
        InputError: a tag is of no scheme.
    """
    scheme = scheme_of([sentence.tags or () for sentence in sentences])
    if scheme:
        return scheme
    place, tag = next((one.place, tag) for one in sentences for tag in one.tags or () if not scheme_of([[tag]]))
    raise InputError(
        expected=f"a tag such as O, B-PER or I-PER in the sentence at {place}",
        found=repr(tag),
        fix="correct the tag, or use --task pos for tags that stand alone",
    )


def labels_of(example: Example) -> tuple[str, ...]:
    """The gold labels of a text or the tags of a sentence; none where there is no gold."""
    if isinstance(example, TaggedExample):
        return example.tags or ()
    assert isinstance(example, TextExample), "labels of texts and of sentences"
    if example.label is None:
        return ()
    return example.label if isinstance(example.label, tuple) else (str(example.label),)


def warn_of_unlearned(labels: Sequence[str], examples: Sequence[Example], dev: Sequence[Example]) -> None:
    """Says which labels never occur in training, so cannot be learned, and where a dev example has one."""
    seen = {label for example in examples for label in labels_of(example)}
    absent = [label for label in labels if label not in seen]
    if not absent:
        return
    asked = ((example.place, label) for example in dev for label in labels_of(example) if label in absent)
    first = next((f"; the first in the dev examples is {label!r} in {place}" for place, label in asked), "")
    warn(f"never in the training examples, so never learned: {', '.join(absent)}{first}")


def check_known(examples: Sequence[Example], labels: Sequence[str], *, training: bool, what: str = "label") -> None:
    """Returns if all gold labels can be learned or scored; where they are scored alone, an unknown one is a miss.

    Args:
        labels: those that are known.
        training: the examples are to be learned from.
        what: a label is called, for messages.

    Raises:
        InputError: a training example has an unknown label, or no example has a known one.
    """
    known = set(labels)
    times, places, total = Counter[str](), dict[str, str](), 0
    for example in examples:
        for name in labels_of(example):
            total += 1
            if name not in known:
                times[name] += 1
                places.setdefault(name, example.place)
    if not times:
        return
    first = next(iter(times))
    if training or times.total() == total:
        raise InputError(
            expected=f"a known {what} in {places[first]}",
            found=repr(first) if times.total() == 1 else _listed(f"{name!r} {_often(n)}" for name, n in times.items()),
            fix=nearest(first, labels) + f"; {what}s come from the training file",
        )
    named = _listed(
        f"{name!r} ({_often(count)}, {'in' if count == 1 else 'first in'} {places[name]})"
        for name, count in times.most_common()
    )
    are = "is" if times.total() == 1 else "are"
    warn(f"{times.total():,} of {counted(total, f'gold {what}')} {are} unknown to the model, scored as a miss: {named}")


def check_scheme(sentences: Sequence[TaggedExample], scheme: str) -> None:
    """Returns if gold tags can be scored; sentences that break the scheme are warned about.

    Raises:
        InputError: a tag is none of the scheme, so that nothing can be scored.
    """
    places = {tag: sentence.place for sentence in reversed(sentences) for tag in labels_of(sentence)}
    for tag, place in places.items():
        try:
            entity_spans((tag,), scheme)
        except InputError:
            raise InputError(
                expected=f"a tag of {scheme} in {place}", found=repr(tag), fix="write the tags in the model's scheme"
            ) from None
    broken = []
    for sentence in sentences:
        for word, reason in scheme_errors(labels_of(sentence), scheme)[:1]:
            broken.append((f"{sentence.place}, word {word + 1}", reason))
    title = f"{len(broken)} of {counted(len(sentences), 'sentence')} with tags that break {scheme}"
    warn_of_places(f"{title}; they are scored as conlleval reads them", broken)


def _listed(named: Iterable[str]) -> str:
    """Some names for a message, not all of them where there are many."""
    every = list(named)
    rest = f" and {len(every) - _MOST_NAMED:,} more" if len(every) > _MOST_NAMED else ""
    return ", ".join(every[:_MOST_NAMED]) + rest


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _warn_of_case(names: Iterable[str]) -> None:
    """Says which labels differ in nothing but small and capital letters, and so are classes of their own."""
    alike: dict[str, list[str]] = {}
    for name in sorted(names):
        alike.setdefault(name.casefold(), []).append(name)
    for group in alike.values():
        if len(group) > 1:
            warn(f"{' and '.join(map(repr, group))} differ in case alone, and are different labels")
