"""Natural language inference, SNLI and XNLI: official files, and the copies on the hub, as pairs with a label.

Columns are found by their names, in any order. Official files are TSV without quotes (`.txt` in SNLI) or JSON lines
with `gold_label`, `sentence1` and `sentence2`; a gold label `-` means that the annotators did not agree. XNLI adds a
column `language`, and translations of a pair may share its `pairID`; translated training sets have `premise`, `hypo`
and `label`, with `contradictory` for `contradiction`. Copies on the hub have `premise`, `hypothesis` and a number as
`label`, -1 for no gold label.

Source: Bowman et al. (2015), section 2.3; Conneau et al. (2018), section 3.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import Row, show_columns
from bertsmith.tasks.datasets.examples import ExampleFile, TextExample
from bertsmith.tasks.datasets.file_text import quoted, suffix_of
from bertsmith.tasks.datasets.glue import NLI_LABELS, NLI_TITLES
from bertsmith.tasks.datasets.label_cells import NO_GOLD
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief, looks_like_json
from bertsmith.text.documents.encodings import UTF_8

LANGUAGE = "language"

_COLUMNS = (
    ("sentence1", "sentence2", "gold_label"),
    ("sentence1", "sentence2", "label"),
    ("premise", "hypothesis", "label"),
    ("premise", "hypothesis", "gold_label"),
    ("premise", "hypo", "label"),
)
_NUMBERS = {"0": "entailment", "1": "neutral", "2": "contradiction"}  # as the copies on the hub number them
_NAMES = {**{label: label for label in NLI_LABELS}, "contradictory": "contradiction"}
_WITHOUT = {NO_GOLD: "on which the annotators did not agree", "-1": "which means none"}
_IDS = ("pairID", "id", "idx")


def read_nli(task: str, path: Path, *, language: str | None = None, encoding: str = UTF_8) -> ExampleFile:
    """The pairs of a file, in file order; pairs without a gold label are skipped and listed."""
    rows = list(read_table(path, ".tsv" if suffix_of(path) == ".txt" else "", encoding=encoding))
    names = list(rows[0].values) if rows else []
    columns = next((group for group in _COLUMNS if set(group) <= set(names)), None)
    if columns is None:
        raise InputError(
            expected=f"the columns {', '.join(_COLUMNS[0])} of {NLI_TITLES[task]} in {quoted(path)}",
            found=show_columns(names) if names else "no rows",
            fix="name a file of this task, or use --task classification, which reads any columns",
        )
    if looks_like_json(rows[0].values[columns[0]]):
        raise InputError(
            expected=f"one language per row in {rows[0].location}",
            found=brief(rows[0].values[columns[0]]),
            fix="use the files of single languages",
        )
    rows = _of_language(path, rows, language)
    several = len({row.values.get(LANGUAGE, "").strip() for row in rows}) > 1
    examples, skipped = [], []
    numbered = 0
    for number, row in enumerate(rows):
        if row.is_empty:
            skipped.append((row.location, "no text in any column"))
            continue
        first, second, label = (row.cell(name, "complete this record").strip() for name in columns)
        if label in _WITHOUT:
            skipped.append((row.location, f"the label {label!r}, {_WITHOUT[label]}"))
            continue
        gold = _NAMES.get(label) or _NUMBERS.get(label)
        if gold is None:
            raise InputError(
                expected=f"a label of {NLI_TITLES[task]} in {row.location}, one of {', '.join(NLI_LABELS)}",
                found=brief(label),
                fix="restore the file, or use --task classification",
            )
        numbered += label in _NUMBERS
        if not (first and second):
            skipped.append((row.location, "empty text"))
            continue
        id = next((row.values[name] for name in _IDS if row.values.get(name)), str(number))
        if several:  # translations share the id of their pair
            id = f"{row.values.get(LANGUAGE, '').strip()}-{id}"
        examples.append(TextExample(id=id, first=first, second=second, label=gold, location=row.location))
    file = ExampleFile.of(
        examples,
        skipped,
        expected=f"pairs with a gold label in {quoted(path)}",
        found=f"{counted(len(skipped), 'row')} without",
        fix="name another file; the labels of official test sets may be withheld",
    )
    if numbered:
        tell(f"{quoted(path)}: labels 0, 1, 2 are read as {', '.join(_NUMBERS.values())}")
    return file


def _of_language(path: Path, rows: Sequence[Row], language: str | None) -> list[Row]:
    """The rows of a language; all of them if none is named."""
    counts = Counter(row.values.get(LANGUAGE, "").strip() for row in rows)
    if language is None:
        if len(counts) > 1:
            listed = ", ".join(f"{name or 'none'} {count:,}" for name, count in counts.items())
            tell(f"{quoted(path)}: rows of all languages are read ({listed}); --language keeps one")
        return list(rows)
    kept = [row for row in rows if row.values.get(LANGUAGE, "").strip() == language]
    if not kept:
        has_column = any(LANGUAGE in row.values for row in rows)
        raise InputError(
            expected=f"rows of the language {language!r} in {quoted(path)}",
            found=f"the languages {', '.join(sorted(counts))}" if has_column else f"no column {LANGUAGE!r}",
            fix=nearest(language, counts) if has_column else "omit --language, or name the file of all languages",
        )
    tell(f"{quoted(path)}: {len(kept):,} of {counted(len(rows), 'row')} are of the language {language!r}")
    return kept
