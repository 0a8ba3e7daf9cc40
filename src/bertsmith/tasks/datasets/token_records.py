"""Reader for sentences as records of words and tags: the form of the data sets of Hugging Face, in JSON and Parquet.

`{"tokens": ["Ann", "sings"], "ner_tags": ["B-PER", "O"]}`. Tags that are numbers need names, which the Parquet files of
`datasets` have; the other formats do not.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.examples import ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.parquet_records import class_names, name_of_class
from bertsmith.tasks.datasets.values import brief, clean

WORD_KEYS = ("tokens", "words")
TAG_KEYS: Mapping[str, tuple[str, ...]] = {
    "ner": ("ner_tags", "ner", "tags", "labels", "entities", "bio_tags", "iob_tags"),
    "pos": ("pos_tags", "upos", "pos", "tags", "labels"),
}


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
            raise InputError(
                expected=f"words under {' or '.join(map(repr, WORD_KEYS))} in {location}",
                found=brief(record),
                fix="correct the record",
            )
        words = _texts(next(record[key] for key in WORD_KEYS if isinstance(record.get(key), list)), location)
        if not words:
            skipped.append((location, "no words"))
            continue
        key = key or (_tag_key(record, task, label_column, location) if gold else "")
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


def _tag_key(record: Mapping[str, Any], task: str, wanted: str | None, location: str) -> str:
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
        raise InputError(
            expected=f"names of tags under {key!r} in {location}",
            found=brief(wrong),
            fix="write names without spaces; numbers have theirs in the features of the data set, as in Parquet files",
        )
    return tuple(clean(value) for value in values)


def _texts(values: Sequence[Any], location: str) -> tuple[str, ...]:
    wrong = next((value for value in values if not isinstance(value, str) or not value.strip()), None)
    if wrong is not None:
        raise InputError(expected=f"words as texts in {location}", found=brief(wrong), fix="correct or remove the word")
    return tuple(clean(value) for value in values)
