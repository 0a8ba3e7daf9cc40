"""Labels that are known by their names, perhaps with a description and a few examples, for texts without labels.

::

    name,description,examples
    billing,"invoices, payments and refunds",I was charged twice|Where is my invoice?
    hardware,broken or missing devices,
"""

import copy
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.requests import as_list
from bertsmith.base.core.settings import require, require_known, require_number, require_type
from bertsmith.base.core.tables import Table, as_file, has_rows
from bertsmith.tasks.datasets.cells import first_known, missing_column, plain_name
from bertsmith.tasks.datasets.file_text import file_text, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.label_cells import gold_of_cell
from bertsmith.tasks.datasets.label_spelling import in_words
from bertsmith.tasks.datasets.tables import SUFFIXES, read_table
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import OVERLAPS
from bertsmith.tasks.specs.task import BY_NAME, SPANS
from bertsmith.text.documents.encodings import UTF_8

if TYPE_CHECKING:
    from bertsmith.inference.predictors.predictor import Predictor

Asked = TypeVar("Asked", bound="Predictor")
TEXT = ".txt"
NONE = "none of these"  # the answer for a text whose best label is below the threshold

_NAMES, _DESCRIPTIONS, _EXAMPLES = ("name", "label", "class"), ("description",), ("examples",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedLabel:
    """A label, what it means, and texts that have it."""

    name: str
    description: str = ""
    examples: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """The name as a text."""
        return in_words(self.name)


def named_labels(
    labels: str | Path | Sequence[str] | Mapping[str, str] | Table, *, multi_label: bool, encoding: str = UTF_8
) -> tuple[NamedLabel, ...]:
    """The labels with these names, or those of a table.

    Args:
        labels: names, in a list or separated by commas; descriptions by name; a table, of which a path ends as a table
            does; or a text file (.txt) with a name in each line.

    Raises:
        InputError: the table has other columns, or a row without a name.
        ConfigError: there are no labels, one is blank or there twice, or there is nothing to choose from.
    """
    if isinstance(labels, Mapping):
        return labels_of_pairs(pairs_of_labels(labels), multi_label=multi_label)
    table = as_file(labels, "labels") if has_rows(labels) else None
    if isinstance(labels, list | tuple) and len(labels) == 1 and _is_file(str(labels[0])):
        labels = str(labels[0])  # the command line has a list of one path
    path = table.path if table is not None else Path(labels) if isinstance(labels, str | Path) else None
    if path is not None and "," not in str(path) and _is_file(path):
        source, several = f" in {quoted(path)}", _read_labels(path, encoding)
    else:
        names = labels.split(",") if isinstance(labels, str) else as_list(labels)
        source = ""
        require_type("labels", names, Sequence[str])
        several = [NamedLabel(name=name.strip()) for name in names]
        file = next((name for name in names if _is_file(name.strip())), None)
        require(
            file is None,
            expected="names of labels, or a file of them alone",
            found=repr(file),
            fix="put all labels into the file, or none",
        )
    return checked_labels(several, source, multi_label=multi_label)


def pairs_of_labels(labels: Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The name and the description of each of some names, or of some descriptions by name."""
    names = labels if isinstance(labels, Mapping) else as_list(labels)
    require_type("labels", names, Sequence[str] | Mapping[str, str])
    pairs = names.items() if isinstance(names, Mapping) else ((name, "") for name in names)
    return tuple((name.strip(), description.strip()) for name, description in pairs)


def labels_of_pairs(pairs: Sequence[tuple[str, str]], *, multi_label: bool) -> tuple[NamedLabel, ...]:
    """The labels with these names and descriptions; raises ConfigError as `named_labels`."""
    return checked_labels([NamedLabel(name=name, description=text) for name, text in pairs], multi_label=multi_label)


def entity_labels(
    labels: str | Path | Sequence[str] | Mapping[str, str] | Table, encoding: str = UTF_8
) -> tuple[tuple[str, str], ...]:
    """The name and the description of each label of entities; see `named_labels`, which also says what is raised."""
    several = named_labels(labels, multi_label=True, encoding=encoding)
    with_examples = next((label.name for label in several if label.examples), None)
    require(
        with_examples is None,
        expected="labels without examples, which say nothing about entities",
        found=f"some of {with_examples!r}",
        fix="leave them out",
    )
    return tuple((label.name, label.description) for label in several)


def asking(
    predictor: Asked,
    labels: Sequence[tuple[str, str]] | None = None,
    threshold: float | None = None,
    overlap: str | None = None,
) -> Asked:
    """A predictor of entities with other labels, threshold or overlap; None keeps what is stored with the model.

    Args:
        labels: names with descriptions, "" for none.
        threshold: the probability from which a span is an entity.
        overlap: which entities may share words, as in `TaskSettings`.

    Raises:
        ConfigError: the model has no such setting, or a value is out of range.
    """
    if labels is None and threshold is None and overlap is None:
        return predictor
    spec = predictor.task.spec
    require(
        spec.kind == BY_NAME or (labels is None and spec.kind in SPANS),
        expected=f"a model for {BY_NAME}, which takes labels" if labels is not None else "a model for spans of words",
        found=f"one for {spec.title}",
        fix=f"fine-tune one with --task {BY_NAME}, or leave the option out",
    )
    if labels is not None:
        checked = labels_of_pairs(labels, multi_label=True)
        names, descriptions = zip(*((label.name, label.description) for label in checked), strict=True)
        spec = dataclasses.replace(spec, labels=names, descriptions=descriptions if any(descriptions) else ())
    if threshold is not None:
        require_number("threshold", threshold, least=0, most=1)
        spec = dataclasses.replace(spec, threshold=threshold)
    if overlap is not None:
        require_known("overlap", overlap, OVERLAPS[:-1])
        spec = dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, overlap=overlap))
    result = copy.copy(predictor)
    result.task = task_for(spec)
    return result


def checked_labels(several: Sequence[NamedLabel], source: str = "", *, multi_label: bool) -> tuple[NamedLabel, ...]:
    """The labels, if there are enough of them, with different names.

    Args:
        source: where they are, for messages.
    """
    least = 1 if multi_label else 2
    fix = "name all that a text may have, such as billing,hardware, or a table of them"
    require(len(several) > 0, expected=f"names of labels{source}", found="none", fix=fix)
    require(
        all(label.name.strip() for label in several), expected=f"names of labels{source}", found="a blank one", fix=fix
    )
    name, count = Counter(label.name for label in several).most_common(1)[0]
    require(count == 1, expected=f"different labels{source}", found=f"{name!r} twice", fix="leave one out")
    require(
        len(several) >= least,
        expected=f"two or more labels{source} to choose from",
        found=f"{name!r} alone",
        fix="name another, or add --multi-label, with which a text may have none",
    )
    if any(label.name == NONE for label in several):
        raise ConfigError(
            expected=f"names of labels{source}",
            found=f"{NONE!r}, the answer below the threshold",
            fix="leave it out, and give --threshold",
        )
    return tuple(several)


def _is_file(name: str | Path) -> bool:
    return suffix_of(Path(name)) in (*SUFFIXES, TEXT)


def _read_labels(path: Path, encoding: str) -> list[NamedLabel]:
    """The labels of a table with a row for each, or of a text file with a line for each."""
    if suffix_of(path) == TEXT:
        text = file_text(path, kind="names of labels", encoding=encoding)
        return [NamedLabel(name=line.strip()) for line in lines_of(text) if line.strip()]
    rows = [row for row in read_table(path, encoding=encoding) if not row.is_empty]
    columns = {plain_name(name): name for row in rows for name in row.values}
    known = (*_NAMES, *_DESCRIPTIONS, *_EXAMPLES)
    unknown = [name for plain, name in columns.items() if plain not in known]
    if unknown:
        raise InputError(
            expected=f"the columns name, description and examples in {quoted(path)}",
            found=repr(unknown[0]),
            fix="rename it or leave it out; texts to classify come before the labels, labelled ones go to --calibrate",
        )
    name, description, examples = (first_known(columns, names) for names in (_NAMES, _DESCRIPTIONS, _EXAMPLES))
    if rows and name is None:
        raise missing_column("name", quoted(path), columns.values(), is_fixed=True)
    labels = []
    for row in rows:
        cells = [row.values.get(column or "", "").strip() for column in (name, description, examples)]
        if not cells[0]:
            raise InputError.at(row.location, "the name of a label", "an empty cell", "fill it in")
        listed = gold_of_cell(cells[2], row.location, "labels") if cells[2] else ()
        texts = tuple(text.strip() for text in listed) if isinstance(listed, tuple) else ()
        labels.append(NamedLabel(name=cells[0], description=cells[1], examples=tuple(filter(None, texts))))
    return labels
