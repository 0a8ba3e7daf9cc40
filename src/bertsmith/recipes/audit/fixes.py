"""The corrections of an audit that a person has looked at: the rows that are left in its issues.csv.

A row is applied to the table that was audited; one whose text or label is no longer in its place is refused.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, quiet, warn
from bertsmith.recipes.audit.entities import CHANGE, changed_entities, marked_entities
from bertsmith.recipes.audit.results import COLUMNS
from bertsmith.recipes.audit.several import as_cell, toggled
from bertsmith.recipes.audit.tags import CORRECTED, marked_words, replaced_tags, text_of_sentence
from bertsmith.tasks.datasets.cells import show_columns
from bertsmith.tasks.datasets.examples import TaggedExample, TextExample, WordSpan
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.labels import labels_of, listed
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief, brief_apart
from bertsmith.tasks.specs.nested_entities import gold_of
from bertsmith.tasks.specs.task import TaskSpec


class Fix(NamedTuple):
    """A row of an issues.csv with a correction.

    Attributes:
        location: of the row in the file.
        row: of the table, from 0.
    """

    location: str
    row: int
    values: Mapping[str, str]

    def require_same(self, text: str, label: str) -> None:
        """Refuses a correction of a row that has another text or another label by now."""
        for column, value in (("text", text), ("label", label)):
            if self.values[column].split() != value.split():
                here, there = brief_apart(value, self.values[column])
                raise InputError.at(
                    self.location, f"the {column} of row {self.row + 1} of the table, {here}", there,
                    "the table has changed since its audit: audit it again",
                )  # fmt: skip


def read_fixes(path: Path, count: int) -> list[Fix]:
    """The rows of an issues.csv whose labels are to be corrected.

    Args:
        count: the rows of the table.
    """
    with quiet():
        rows = list(read_table(path))
    missing = [name for name in COLUMNS if name not in rows[0].values]
    if missing:
        raise InputError(
            expected=f"the columns of an issues.csv in {quoted(path)}, among them {listed(missing)}",
            found=show_columns(list(rows[0].values)),
            fix="name the issues.csv of an audit of the table",
        )
    fixes = []
    for row in rows:
        if row.values["issue"] in CORRECTED:
            number = row.values["row"]
            if not (number.isdecimal() and 1 <= int(number) <= count):
                fix = "the table has changed since its audit: audit it again"
                raise InputError.at(row.location, f"one of the {counted(count, 'row')} of the table", number, fix)
            fixes.append(Fix(row.location, int(number) - 1, row.values))
    if not fixes:
        fix = "leave the rows to correct in the file"
        raise InputError(expected=f"rows with a correction in {quoted(path)}", found="none", fix=fix)
    others = dict.fromkeys(row.values["issue"] for row in rows if row.values["issue"] not in CORRECTED)
    if others:
        ignored = counted(len(rows) - len(fixes), "row")
        warn(f"{quoted(path)}: {ignored} with {listed(map(repr, others))}: these issues correct nothing")
    return fixes


def fixed_cells(spec: TaskSpec, examples: Sequence[TextExample], fixes: Sequence[Fix]) -> dict[str, str]:
    """The corrected labels of texts by their locations, as cells."""
    cells, changes = dict[str, str](), dict[int, set[str]]()
    for fix in fixes:
        example = examples[fix.row]
        several = spec.multi_label
        label = as_cell(toggled(spec.labels, labels_of(example))) if several else str(example.label)
        fix.require_same(" | ".join(example.texts), label)
        name = fix.values["change" if several else "suggested"]
        if name not in spec.labels:
            known = listed(map(brief, spec.labels))
            raise InputError.at(fix.location, f"a label of the table, {known}", brief(name), "correct the row")
        if several:
            changes.setdefault(fix.row, set()).add(name)
        else:
            cells[example.location] = name
    for row, names in changes.items():
        cells[examples[row].location] = as_cell(toggled(spec.labels, labels_of(examples[row]), names))
    return cells


def fixed_tags(spec: TaskSpec, sentences: Sequence[TaggedExample], fixes: Sequence[Fix]) -> list[tuple[str, ...]]:
    """The tags of all sentences, with those of the corrections."""
    result = [sentence.tags or () for sentence in sentences]
    for fix in fixes:
        sentence = sentences[fix.row]
        first, *tags = fix.values["change"].split()
        start = int(first) - 1 if first.isdecimal() else -1
        end = start + len(tags)
        if not tags or not 0 <= start < end <= len(sentence.words) or not set(tags) <= set(spec.labels):
            raise InputError.at(
                fix.location, f"the first word and tags of the table, such as '3 {spec.labels[-1]}'",
                brief(fix.values["change"]), "correct the column 'change'",
            )  # fmt: skip
        fix.require_same(text_of_sentence(sentence), marked_words(sentence, spec.scheme, start, end))
        result[fix.row] = replaced_tags(result[fix.row], tags, start, spec.scheme)
    return result


def fixed_entities(
    spec: TaskSpec, sentences: Sequence[TaggedExample], fixes: Sequence[Fix]
) -> list[tuple[WordSpan, ...]]:
    """The entities of all sentences, with those of the corrections."""
    result = [gold_of(sentence) for sentence in sentences]
    for fix in fixes:
        sentence = sentences[fix.row]
        removed, added = _change_of(fix, len(sentence.words))
        unknown = [span.label for span in added if span.label not in spec.labels]
        if unknown:
            known = listed(map(brief, spec.labels))
            raise InputError.at(fix.location, f"a label of the table, {known}", brief(unknown[0]), "correct the row")
        start, end = min(span.start for span in (*removed, *added)), max(span.end for span in (*removed, *added))
        fix.require_same(text_of_sentence(sentence), marked_entities(sentence, removed, start, end))
        absent = [span for span in removed if span not in gold_of(sentence)]
        if absent:
            raise InputError.at(
                fix.location, f"entities of row {fix.row + 1} of the table", brief(list(absent[0])),
                "the table has changed since its audit: audit it again",
            )  # fmt: skip
        result[fix.row] = changed_entities(result[fix.row], removed, added)
    return result


def _change_of(fix: Fix, words: int) -> tuple[list[WordSpan], list[WordSpan]]:
    """The entities that a correction removes and adds."""
    cell = fix.values["change"]
    try:
        values = json.loads(cell)
    except ValueError:
        values = None
    parts: list[Any] = [values.get(name) for name in CHANGE] if isinstance(values, dict) else []
    if not any(parts) or len(values) != len(CHANGE) or not all(_are_spans(part, words) for part in parts):
        raise InputError.at(
            fix.location, 'entities as {"remove": [[0, 1, "PER"]], "add": []}, whose words count from 0', brief(cell),
            "correct the column 'change'",
        )  # fmt: skip
    removed, added = ([WordSpan(*span) for span in part] for part in parts)
    return removed, added


def _are_spans(values: Any, words: int) -> bool:
    return isinstance(values, list) and all(
        isinstance(span, list) and [type(part) for part in span] == [int, int, str] and 0 <= span[0] < span[1] <= words
        for span in values
    )
