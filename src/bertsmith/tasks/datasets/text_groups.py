"""Files of texts that belong together or not: scored pairs, pairs, triplets, and plain texts.

=====================  =========================================================================================
form                   columns
=====================  =========================================================================================
similarity             two texts and a number
pairs                  two texts that belong together; or two texts and a label that says whether they do
triplets               a text, one that belongs to it (`positive`), one or more that do not (`negative`, `negative_2`)
texts                  one text; also a .txt file with one text per line
=====================  =========================================================================================

Source of the column names: the data sets of sentence-transformers (`anchor`, `positive`, `negative`).
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.cells import (
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    Row,
    first_known,
    nearest_column,
    plain_name,
    show_columns,
)
from bertsmith.tasks.datasets.examples import (
    PAIRS,
    SIMILARITY,
    TEXTS,
    TRIPLETS,
    ExampleFile,
    TextExample,
    TripletExample,
    texts_of_group,
)
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.tables import columns_of, is_fasttext, read_table, read_texts
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.sources import shown

ANCHORS = ("anchor", "query", "question", "text", "sentence", "sentence1", "sentence_a", "premise")
_POSITIVES = ("positive", "pos", "document", "passage", "answer", "entailment")
NEGATIVES = ("negative", "neg", "contradiction")
_SAME = "the same text twice"


def form_of_file(path: Path, *, encoding: str = UTF_8) -> str:
    """The form of a file, by its columns: `texts` for a .txt file."""
    if suffix_of(path) == ".txt":
        return TEXTS
    names = list(map(plain_name, columns_of(path, encoding=encoding)))
    if any(name.startswith(NEGATIVES) for name in names):
        return TRIPLETS
    # A number that everyone calls a score; a `label` may be a class.
    if any(name in NUMBER_COLUMNS and name not in LABEL_COLUMNS for name in names):
        return SIMILARITY
    return PAIRS


def read_groups(
    form: str,
    path: Path,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    gold: bool = True,
    encoding: str = UTF_8,
) -> ExampleFile:
    """The examples of a file in one of the forms.

    Pairs and triplets in which a text occurs twice are skipped and listed: there is nothing to learn from them.
    """
    if form == TRIPLETS:
        return _without_repeats(_read_triplets(path, encoding))
    if form == TEXTS:
        return (
            _read_lines(path, encoding)
            if suffix_of(path) == ".txt" and not is_fasttext(path, encoding=encoding)
            else read_texts(path, text_column=text_column, target=None, encoding=encoding)
        )
    if form == SIMILARITY:
        result = read_texts(
            path,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            target="number" if gold else None,
            encoding=encoding,
        )
        return _require_pairs(path, result)
    columns = columns_of(path, encoding=encoding)
    if text_column is None and pair_column is None:
        text_column, pair_column = _anchor_and_positive(columns)
    has_label = label_column is not None or any(plain_name(name) in LABEL_COLUMNS for name in columns)
    result = read_texts(
        path,
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
        target="label" if has_label and gold else None,
        encoding=encoding,
    )
    return _without_repeats(_require_pairs(path, result))


def _anchor_and_positive(columns: Sequence[str]) -> tuple[str | None, str | None]:
    """The columns of a pair that are called as in triplets; None for those with other names."""
    named = {plain_name(name): name for name in columns}
    return (named["anchor"], named["positive"]) if {"anchor", "positive"} <= named.keys() else (None, None)


def _require_pairs(path: Path, file: ExampleFile) -> ExampleFile:
    first = file.examples[0]
    assert isinstance(first, TextExample)
    if first.second is None:
        raise InputError.at(
            quoted(path), "two columns of texts", "one", "name both with --text-column and --pair-column"
        )
    return file


def _read_triplets(path: Path, encoding: str) -> ExampleFile:
    rows = read_table(path, encoding=encoding)
    first = next(rows, None)
    if first is None:
        raise InputError(expected=f"rows in {quoted(path)}", found="none", fix="name a file that holds examples")
    columns = _triplet_columns(path, list(first.values))
    examples: list[TripletExample] = []
    skipped: list[tuple[str, str]] = []
    for number, row in enumerate(itertools.chain([first], rows)):
        texts = tuple(_text(row, name, columns) for name in columns)
        # A row may have fewer negatives than others.
        texts = (*texts[:3], *(text for text in texts[3:] if text.strip()))
        if not all(text.strip() for text in texts):
            skipped.append((row.location, "an empty text"))
            continue
        examples.append(TripletExample(id=str(number), texts=texts, location=row.location))
    return ExampleFile.of(examples, skipped, expected=f"rows with three texts in {quoted(path)}")


def _text(row: Row, name: str, columns: Sequence[str]) -> str:
    if name not in row.values:
        raise InputError.at(
            row.location, f"the columns {', '.join(columns)}", show_columns(row.values), "add what is missing"
        )
    return row.values[name]


def _triplet_columns(path: Path, columns: Sequence[str]) -> list[str]:
    named = {plain_name(name): name for name in columns}
    matches = [first_known(named, names) or "" for names in (ANCHORS, _POSITIVES)]
    negatives = [name for name in columns if plain_name(name).startswith(NEGATIVES)]
    for name, wanted in zip([*matches, *(negatives[:1] or [""])], ("anchor", "positive", "negative"), strict=True):
        if not name:
            raise InputError(
                expected=f"the column {wanted!r} in {quoted(path)}, next to the others of a triplet",
                found=show_columns(columns),
                fix=nearest_column(wanted, columns),
            )
    return [*matches, *negatives]


def _read_lines(path: Path, encoding: str) -> ExampleFile:
    lines = enumerate(lines_of(file_text(path, kind="texts, one per line", encoding=encoding)), start=1)
    name = shown(str(path))
    examples = tuple(
        TextExample(id=str(number), first=line.strip(), location=line_of(path, number))
        for number, line in lines
        if line.strip()
    )
    return ExampleFile.of(examples, expected=f"texts in '{name}'")


def _without_repeats(file: ExampleFile) -> ExampleFile:
    """The file without pairs and triplets in which a text occurs twice, which are listed."""
    kept, skipped = [], list(file.skipped)
    for example in file.examples:
        texts = texts_of_group(example)
        if len({text.strip() for text in texts}) == len(texts):
            kept.append(example)
        else:
            skipped.append((example.location, _SAME))
    if not kept:
        raise InputError(
            expected="examples of different texts", found=f"{_SAME} in each row", fix="name the columns of the texts"
        )
    return ExampleFile(examples=tuple(kept), skipped=tuple(skipped))
