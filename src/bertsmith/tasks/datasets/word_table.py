"""Reader for tables with a word in each row, and a column that says which sentence it is in.

::

    Sentence #,Word,POS,Tag
    Sentence: 1,Ann,NNP,B-PER
    ,sings,VBZ,O

The sentence may be named in each of its rows, or only in the first one, as in the corpus of Kaggle.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import Row
from bertsmith.tasks.datasets.column_names import first_known, plain_name, show_columns
from bertsmith.tasks.datasets.examples import ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import quoted

SENTENCE_COLUMNS = ("sentence_#", "sentence_id", "sentence_idx", "sentence", "sent_id", "sent", "sentence_no", "sid")
WORD_COLUMNS = ("word", "token", "words", "tokens", "form")
TAG_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ner": ("tag", "ner_tag", "ner", "tags", "ner_tags", "label", "labels", "entity", "iob", "bio"),
    "pos": ("pos", "upos", "pos_tag", "tag", "tags", "label", "labels"),
}


def is_word_table(columns: Sequence[str]) -> bool:
    """Whether the columns hold words and their sentences."""
    named = {plain_name(name) for name in columns}
    return not named.isdisjoint(SENTENCE_COLUMNS) and not named.isdisjoint(WORD_COLUMNS)


def read_word_table(
    path: Path, rows: Iterable[Row], task: str, *, label_column: str | None = None, gold: bool = True
) -> ExampleFile:
    """The sentences of a table; a row without any text is skipped and listed."""
    rows = list(rows)
    named = {plain_name(name): name for name in rows[0].values} if rows else {}
    sentence_at = _column(path, named, SENTENCE_COLUMNS, "the sentences")
    word_at = _column(path, named, WORD_COLUMNS, "the words")
    tag_at = ""
    if gold:
        known = TAG_COLUMNS[task] if label_column is None else (plain_name(label_column),)
        tag_at = _column(path, named, known, "the tags")
    examples: list[TaggedExample] = []
    skipped: list[tuple[str, str]] = []
    words: list[str] = []
    tags: list[str] = []
    first = current = ""

    def finish() -> None:
        if words:
            examples.append(
                TaggedExample(
                    id=str(len(examples)),
                    words=tuple(words),
                    tags=tuple(tags) if gold else None,
                    document=len(examples),
                    location=first,
                )
            )
            words.clear()
            tags.clear()

    for row in rows:
        if row.is_empty:
            skipped.append((row.location, "no text in any column"))
            continue
        name = row.values[sentence_at].strip()
        if name and name != current:
            finish()
            current = name
        first = first if words else row.location
        words.append(_cell(row, word_at, "a word"))
        if gold:
            tags.append(_cell(row, tag_at, "a tag without spaces"))
    finish()
    file = ExampleFile.of(examples, skipped, expected=f"words in {quoted(path)}")
    tell(
        f"{quoted(path)}: read as a table of words: {counted(len(examples), 'sentence')} by {sentence_at!r}, "
        f"words from {word_at!r}" + (f", tags from {tag_at!r}" if gold else "")
    )
    return file


def _column(path: Path, named: Mapping[str, str], known: Sequence[str], of_what: str) -> str:
    name = first_known(named, known)
    if name is None:
        raise InputError(
            expected=f"a column of {of_what} in {quoted(path)}: {', '.join(known[:4])}",
            found=show_columns(named.values()),
            fix="name it with --label-column" if of_what == "the tags" else "rename the column",
        )
    return name


def _cell(row: Row, column: str, expected: str) -> str:
    cell = row.values.get(column, "").strip()
    if not cell or ("tag" in expected and len(cell.split()) > 1):
        raise InputError(
            expected=f"{expected} in column {column!r} in {row.location}",
            found=repr(cell) if cell else "an empty cell",
            fix="fill it in, or remove the row",
        )
    return cell
