"""Texts in sentences, some of which are to be chosen: the files of extractive summaries.

They are those of `sequences.py`. The source is a text, which is split into sentences, or a list of its sentences in
JSON, which then are joined with spaces. A file may say which sentences are right, by a list of zeros and ones; the
targets, if there are none, are then these sentences.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.tasks.datasets.examples import DocumentExample, ExampleFile, document_of
from bertsmith.tasks.datasets.sequences import is_list, parse_texts, read_sequences
from bertsmith.tasks.datasets.values import brief, parse_json

MARK_COLUMNS = ("source_labels", "sentence_labels")


def read_documents(path: Path, *, training: bool = False, **options: Any) -> ExampleFile:
    """The examples of a file; a row without a source or target, or without a choice to learn, is skipped and listed.

    Args:
        training: the examples are for training, so each has two sentences or more.
        options: see `read_sequences`.
    """
    build = functools.partial(_document, least=2 if training else 1)
    return read_sequences(path, marks=MARK_COLUMNS, example_of=build, **options)


def _document(
    source: str, targets: tuple[str, ...], location: str, least: int, marks: str | None = None, **fields: Any
) -> DocumentExample | str:
    """The example of a row, or why it is none, such as fewer than `least` sentences."""
    texts = parse_texts(source, "source", location) if is_list(source) else source
    if isinstance(texts, list) and not all(text.strip() for text in texts):
        return "an empty sentence"
    example = document_of(texts, targets=targets, location=location, **fields)
    if len(example.sentences) < least:
        return "one sentence" if example.sentences else "no sentence"
    if marks is None:
        return example
    chosen, sentences = _chosen(marks, len(example.sentences), location), example.texts
    if not chosen and not targets:
        return "no right sentence"
    return dataclasses.replace(
        example, chosen=chosen, targets=targets or (" ".join(sentences[number] for number in chosen),)
    )


def _chosen(marks: str, count: int, location: str) -> tuple[int, ...]:
    """The numbers of the right sentences of `count`, from a list of zeros and ones in JSON."""
    values = parse_json(marks, location)
    if not isinstance(values, list) or not all(value in (0, 1) for value in values) or len(values) != count:
        shown = counted(len(values), "value") if isinstance(values, list) else brief(marks)
        raise InputError(
            expected=f"a 0 or 1 for each of {counted(count, 'sentence')} in {location}",
            found=f"{shown}: {brief(marks)}",
            fix="give the sentences as a list too, or leave this column out",
        )
    return tuple(number for number, value in enumerate(values) if value)
