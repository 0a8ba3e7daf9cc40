"""Readers for sentences with a tag for each word: records of words, and tables with a word in each row.

Records, in JSON and Parquet, have the form of the data sets of Hugging Face: `{"tokens": ["Ann", "sings"], "ner_tags":
["B-PER", "O"]}`. Tags that are numbers need names, which the Parquet files of `datasets` have; other formats do not.

In a table, a column says which sentence a word is in. The sentence may be named in each of its rows, or only in the
first one, as in the corpus of Kaggle::

    Sentence #,Word,POS,Tag
    Sentence: 1,Ann,NNP,B-PER
    ,sings,VBZ,O
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import WORD_KEYS, Row, first_known, plain_name, show_columns
from bertsmith.tasks.datasets.examples import EntityExample, ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.parquet_records import class_names, name_of_class
from bertsmith.tasks.datasets.values import brief, clean

SENTENCE_COLUMNS = ("sentence_#", "sentence_id", "sentence_idx", "sentence", "sent_id", "sent", "sentence_no", "sid")
WORD_COLUMNS = ("word", "token", "words", "tokens", "form")
TAG_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ner": ("tag", "ner_tag", "ner", "tags", "ner_tags", "label", "labels", "entity", "iob", "bio"),
    "pos": ("pos", "upos", "pos_tag", "tag", "tags", "label", "labels"),
}
# Of the words of a sentence: the keys of its entities.
ENTITY_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(WORD_KEYS[:2], ("entities", "spans")),
    WORD_KEYS[2]: ("ner",),
}
TAG_KEYS: Mapping[str, tuple[str, ...]] = {
    "ner": ("ner_tags", "ner", "tags", "labels", "entities", "bio_tags", "iob_tags"),
    "pos": ("pos_tags", "upos", "pos", "tags", "labels"),
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
        tag_at = tag_column_of(path, named, task, label_column)
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


def tag_column_of(path: Path, named: Mapping[str, str], task: str, label_column: str | None) -> str:
    """The name of the column of tags in a table of words.

    Args:
        named: the names of the columns by their plain names.
    """
    known = TAG_COLUMNS[task] if label_column is None else (plain_name(label_column),)
    return _column(path, named, known, "the tags")


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


def has_words(record: Any) -> bool:
    """Whether a record has its words under a known key.

    Prodigy's tokens, which are objects, only repeat its text; so do words next to a text with `spans` and no tags.
    """
    values = [record.get(key) for key in WORD_KEYS] if isinstance(record, Mapping) and not _marks(record) else []
    return any(isinstance(words, list) and not any(isinstance(word, dict) for word in words) for words in values)


def _marks(record: Mapping[str, Any]) -> bool:
    """Whether a record marks spans of its text, and has no tags of words."""
    keys = {key for keys in TAG_KEYS.values() for key in keys}
    return (
        isinstance(record.get("text"), str)
        and isinstance(record.get("spans"), list)
        and not any(isinstance(record.get(key), list) for key in keys)
    )


def read_token_records(
    path: Path, records: Iterable[tuple[str, Any]], task: str, *, label_column: str | None = None, gold: bool = True
) -> ExampleFile:
    """The sentences of a file."""
    names = class_names(path)
    examples: list[TaggedExample] = []
    skipped: list[tuple[str, str]] = []
    key = ""
    for location, record in records:
        if not has_words(record):
            raise InputError.at(
                location, f"words under {' or '.join(map(repr, WORD_KEYS))}", brief(record), "correct the record"
            )
        words = _texts(next(record[key] for key in WORD_KEYS if isinstance(record.get(key), list)), location)
        if not words:
            skipped.append((location, "no words"))
            continue
        key = key or (tag_key_of(record, task, label_column, location) if gold else "")
        tags = _tags(record, key, names.get(key, ()), location) if gold else None
        if tags is not None and len(tags) != len(words):
            raise InputError(
                expected=f"a tag for each of {counted(len(words), 'word')} in {location}",
                found=counted(len(tags), "tag"),
                fix="correct the record",
            )
        examples.append(
            TaggedExample(id=str(len(examples)), words=words, tags=tags, document=len(examples), location=location)
        )
    file = ExampleFile.of(examples, skipped, expected=f"sentences in {quoted(path)}")
    source = f", tags from {key!r}" + (" with the names of its features" if names.get(key) else "") if gold else ""
    tell(f"{quoted(path)}: read as records of words: {counted(len(examples), 'sentence')}{source}")
    return file


def has_entities(record: Any) -> bool:
    """Whether a record has its words, and entities as spans of them."""
    keys = [key for keys in ENTITY_KEYS.values() for key in keys]
    return has_words(record) and any(_are_spans(record.get(key)) for key in keys)


def read_token_entities(path: Path, records: Iterable[tuple[str, Any]]) -> ExampleFile:
    """The sentences of a file whose entities are spans of words, such as those of SpERT and GLiNER.

    Ends are exclusive, except those of GLiNER's `ner`, which are the last words.
    """
    examples: list[TaggedExample] = []
    skipped: list[tuple[str, str]] = []
    labels = Counter[str]()
    for location, record in records:
        if not has_words(record):
            names = " or ".join(repr(name) for name in ENTITY_KEYS)
            raise InputError.at(location, f"words under {names}", brief(record), "correct the record")
        words_key = next(key for key in ENTITY_KEYS if isinstance(record.get(key), list))
        words = _texts(record[words_key], location)
        if not words:
            skipped.append((location, "no words"))
            continue
        if not any(isinstance(record.get(key), list) for key in ENTITY_KEYS[words_key]):
            skipped.append((location, "no entities"))
            continue
        _, entities = entities_of_record(record, words, location)
        labels.update(label for _, _, label in entities)
        name, document = str(len(examples)), len(examples)
        sentence = TaggedExample(id=name, words=words, document=document, location=location)
        examples.append(EntityExample.of(sentence, entities))
    file = ExampleFile.of(examples, skipped, expected=f"sentences in {quoted(path)}")
    tell(
        f"{quoted(path)}: read as records of words: {counted(len(examples), 'sentence')}, "
        f"{counted(labels.total(), 'entity', 'entities')} of {counted(len(labels), 'type')}"
    )
    return file


def entities_of_record(
    record: Mapping[str, Any], words: Sequence[str], location: str
) -> tuple[str, list[tuple[int, int, str]]]:
    """The key of the entities of a record, and their words, the end exclusive, with their labels."""
    known = ENTITY_KEYS[next(key for key in ENTITY_KEYS if isinstance(record.get(key), list))]
    key = next(key for key in known if isinstance(record.get(key), list))
    return key, [_entity(item, words, key == "ner", location) for item in record[key]]


def _are_spans(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, list | dict) for value in values)


def _entity(item: Any, words: Sequence[str], is_last: bool, location: str) -> tuple[int, int, str]:
    """The words of an entity, the end exclusive, and its label.

    Args:
        is_last: the end in the file is the last word, not one past it.
    """
    if isinstance(item, dict):
        item = [item.get("start"), item.get("end"), item.get("label", item.get("type"))]
    is_known = isinstance(item, list) and len(item) == 3 and type(item[0]) is type(item[1]) is int
    if not is_known or not isinstance(item[2], str) or not clean(item[2]).strip():
        raise InputError(
            expected=f"entities with start, end and a label in {location}",
            found=brief(item),
            fix='write [0, 2, "PER"] or {"start": 0, "end": 2, "label": "PER"}',
        )
    start, end = item[0], item[1] + is_last
    if not 0 <= start < end <= len(words):
        raise InputError(
            expected=f"entities of at least one of the {counted(len(words), 'word')} in {location}",
            found=brief(item),
            fix=f"correct the entity: its end is its last word{'' if is_last else ', plus one'}, counted from 0",
        )
    return start, end, clean(item[2]).strip()


def tag_key_of(record: Mapping[str, Any], task: str, wanted: str | None, location: str) -> str:
    """The key of the tags of a record of words."""
    keys = [wanted] if wanted else TAG_KEYS[task]
    key = next((key for key in keys if isinstance(record.get(key), list)), None)
    if key is None:
        raise InputError(
            expected=f"a list of tags under {' or '.join(map(repr, keys[:3]))} in {location}",
            found=f"the keys {', '.join(map(brief, list(record)[:8]))}",
            fix="name the key with --label-column",
        )
    return key


def _tags(record: Mapping[str, Any], key: str, names: Sequence[str], location: str) -> tuple[str, ...]:
    values = record.get(key)
    if not isinstance(values, list):
        raise InputError(expected=f"a list of tags under {key!r} in {location}", found=brief(values), fix="correct it")
    if names:
        return tuple(clean(name_of_class(value, names, location)) for value in values)
    wrong = next((value for value in values if not isinstance(value, str) or len(value.split()) != 1), None)
    if wrong is not None:
        fix = "write names without spaces; numbers have theirs in the features of the data set, as in Parquet files"
        if isinstance(wrong, list | dict):
            fix = "write one for each word; spans of words are read by --task nested-ner"
        raise InputError(expected=f"names of tags under {key!r} in {location}", found=brief(wrong), fix=fix)
    return tuple(clean(value) for value in values)


def _texts(values: Sequence[Any], location: str) -> tuple[str, ...]:
    wrong = next((value for value in values if not isinstance(value, str) or not value.strip()), None)
    if wrong is not None:
        raise InputError(expected=f"words as texts in {location}", found=brief(wrong), fix="correct or remove the word")
    return tuple(clean(value) for value in values)
