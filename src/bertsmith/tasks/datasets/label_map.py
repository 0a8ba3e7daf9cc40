"""Labels renamed while a file is read, such as `1` to `Claim`: a model then has and stores the new names."""

import dataclasses
from collections.abc import Mapping, Sequence

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample, TextExample
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.metrics.entities import rename_types

LabelMap = Mapping[str, str]

_MOST_SHOWN = 10  # known labels that a message lists


def check_label_map(names: LabelMap) -> None:
    """Checks the names that a user gave."""
    require(
        isinstance(names, Mapping),
        expected="a map from labels to their new names",
        found=f"a value of type {type(names).__name__}",
        fix='give a dictionary, such as {"1": "Claim", "0": "Not Claim"}',
    )
    for label, name in names.items():
        if not all(isinstance(part, str) and part.strip() for part in (label, name)):
            raise ConfigError.must_be("map_labels", 'texts that are not empty, such as {"1": "Claim"}', {label: name})


def renamed(examples: Sequence[Example], names: LabelMap, *, types: bool, complete: bool = False) -> list[Example]:
    """The examples with renamed labels, in order; several labels may get one name.

    Args:
        types: rename the types of entity tags (PER in B-PER), not whole tags; O stays.
    """
    check_label_map(names)
    seen: set[str] = set()
    result: list[Example] = []
    for example in examples:
        assert isinstance(example, TextExample | TaggedExample), "examples with labels"
        labels = [name for label in labels_of(example) if (name := _type_of(label) if types else label) is not None]
        for label in labels:
            if label not in names:
                listed = ", ".join(map(repr, list(names)[:_MOST_SHOWN])) + (", ..." if len(names) > _MOST_SHOWN else "")
                raise InputError(
                    expected=f"a label that the map names in {example.location}, one of {listed}",
                    found=repr(label),
                    fix=f"add {label}=NAME to the map; a label that keeps its name needs an entry, too",
                )
        seen.update(labels)
        result.append(_renamed(example, names, types=types))
    absent = [label for label in names if label not in seen]
    if complete and absent:
        warn(f"labels of the map that do not occur in the training file: {', '.join(map(repr, absent))}")
    return result


def _renamed(example: TextExample | TaggedExample, names: LabelMap, *, types: bool) -> Example:
    if isinstance(example, EntityExample):
        return example.renamed(names)
    if isinstance(example, TaggedExample):
        tags = example.tags or ()
        new = rename_types(tags, names) if types else [names[tag] for tag in tags]
        return dataclasses.replace(example, tags=None if example.tags is None else tuple(new))
    if example.label is None:
        return example
    several = tuple(dict.fromkeys(names[label] for label in labels_of(example)))
    return dataclasses.replace(example, label=several if isinstance(example.label, tuple) else several[0])


def _type_of(tag: str) -> str | None:
    """The type in a tag of an entity; None for O and for entities without a type; a tag without a scheme is its own."""
    _, hyphen, kind = tag.partition("-")
    return kind if hyphen else None if len(tag) == 1 else tag
