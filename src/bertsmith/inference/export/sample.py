"""Data to test an exported model on: labelled examples, texts, and rows of lengths that reveal mistakes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import to_dict
from bertsmith.base.storage.files import digest_bytes, digest_file
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.parts.head_inputs import OF_TWO_TEXTS
from bertsmith.tasks.datasets.examples import Example, TextExample, document_of
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, separate_rows
from bertsmith.tasks.specs import named_tasks
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import Task, TaskSpec
from bertsmith.tasks.task_data.labelled_examples import read_labelled
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

BUILT_IN = ("sentiment", "claim", "truth")  # presets whose examples come with the package
NUM_BUILT_IN = 32  # texts from each preset
SENTENCES_OF_TEXT = 5  # of a text made of built-in ones, for a head on sentences
NUM_ENDINGS = 3  # rows of a multiple-choice example made of built-in texts
ODD_LENGTHS = (1, 2, 5, 17)
ODD_SENTENCE = 7  # tokens of a sentence
LONGEST_ODD = 1024  # tokens; attention weights and logits of a padded batch of longer ones would take gigabytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored:
    """Labelled examples with everything needed, besides their features, to score logits on them."""

    task: Task
    examples: Sequence[Example]
    tokenizer: Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows to test a model on."""

    features: EncodedExamples  # N rows; several in a unit are endings of a choice, or windows of a text
    about: dict[str, Any]
    scored: Scored | None = None  # the examples, if they are labelled

    @property
    def rows(self) -> PackedRows:
        """The rows of text."""
        return self.features.rows

    def line(self) -> str:
        """A summary for display."""
        return f"compared on {self.about['data']} ({self.about['rows']:,} rows) and on rows of odd lengths"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file to test a model on, and how to read it."""

    path: Path  # labelled examples of the model's task; for a model without a task, one text per line
    task: str | None = None  # the named task whose format the file has; None for the format of the model's task
    columns: ColumnSettings = dataclasses.field(default_factory=ColumnSettings)

    @property
    def chosen(self) -> dict[str, Any]:
        """The reading options that are set: the task, and columns that differ from their defaults."""
        usual = to_dict(ColumnSettings())
        columns = {name: value for name, value in to_dict(self.columns).items() if value != usual[name]}
        return columns if self.task is None else {"task": self.task, **columns}

    @property
    def options(self) -> str:
        """The command-line options of the choices, for a message."""
        return ", ".join(f"--{name.replace('_', '-')}" for name in self.chosen)


def sample_for(folder: ModelFolder, spec: TaskSpec | None, file: DataFile | None) -> Sample:
    """The rows of a file, encoded for the model's task, or else of sentences that come with the package."""
    assert folder.tokenizer is not None, "checked before"
    if file is None:
        return _built_in(folder, folder.tokenizer, spec)
    if spec is None:
        if not set(file.chosen) <= {"encoding"}:
            fix = f"omit it, and '{file.path}' is read as texts"
            raise ConfigError.needs(file.options, "a model with a task head", fix)
        return _texts(folder, folder.tokenizer, file)
    return _labelled(folder, folder.tokenizer, file)


def odd_rows(folder: ModelFolder) -> PackedRows:
    """Rows of random ids, of one token, a few, and all positions of the model; the second half is segment 1."""
    longest = min(folder.config.max_tokens, LONGEST_ODD)
    lengths = np.minimum(np.array([*ODD_LENGTHS, longest], dtype=np.int32), longest)
    draw = generator(0, "export check")
    ids = draw.integers(folder.config.vocab_size, size=int(lengths.sum()), dtype=np.int32)
    if folder.config.first_position:  # other tools do not count the padding among the positions
        ids[ids == folder.config.pad_token_id] += 1
    within = np.concatenate([np.arange(length) / length for length in lengths])
    has_segments = folder.config.type_vocab_size > 1 or folder.metadata.reads in OF_TWO_TEXTS
    return PackedRows(
        ids,
        np.where(within >= 0.5, int(has_segments), 0).astype(np.int32),
        lengths,
        np.zeros_like(lengths),
    )


def odd_features(folder: ModelFolder, *, of_sentences: bool) -> EncodedExamples:
    """The rows of `odd_rows` as one unit; for a head on sentences, as the windows of a text of short sentences."""
    rows = odd_rows(folder)
    count = np.array([len(rows)])
    if not of_sentences:
        return _in_units(rows, count)
    within = np.concatenate([np.arange(length) for length in rows.lengths])
    features = separate_rows(rows, np.flatnonzero(within % ODD_SENTENCE == 0))
    return dataclasses.replace(features, rows_per_unit=count, windows_of_first=count)


def _built_in(folder: ModelFolder, tokenizer: Tokenizer, spec: TaskSpec | None) -> Sample:
    """Sentences that come with the package, single and in pairs; for a head on sentences, as texts of a few."""
    texts: list[str] = []
    for name in BUILT_IN:
        path = named_tasks.bundled_examples(name)
        assert path is not None, "the examples come with the package"
        examples = read_examples(name, path).examples[:NUM_BUILT_IN]
        texts += [example.first for example in examples if isinstance(example, TextExample)]
    if spec is not None and task_for(spec).head.of_sentences:
        parts = [texts[first : first + SENTENCES_OF_TEXT] for first in range(0, len(texts), SENTENCES_OF_TEXT)]
        documents = [document_of(part, id=str(number), location="") for number, part in enumerate(parts)]
        features = task_for(spec).encode(documents, tokenizer)
    else:
        rows = _alone_and_in_pairs(folder, tokenizer, spec, texts)
        per_unit = NUM_ENDINGS if spec is not None and spec.kind == "choice" else 1
        features = _in_units(rows, np.full(len(rows) // per_unit, per_unit, dtype=np.int64))
    about = {
        "data": "sentences that come with bertsmith",
        "digest": digest_bytes("\n".join(texts).encode()),
        "rows": len(features.rows),
    }
    return Sample(features=features, about=about)


def _alone_and_in_pairs(
    folder: ModelFolder, tokenizer: Tokenizer, spec: TaskSpec | None, texts: Sequence[str]
) -> PackedRows:
    """Rows of every other text, and of the same texts with the next one; without segments, of each text alone."""
    limit = folder.config.max_tokens
    if spec is not None:
        limit = min(limit, spec.settings.max_length)
    encoded = [tokenizer.encode(text) for text in texts]
    has_segments = folder.config.type_vocab_size > 1 or (spec is not None and spec.reads in OF_TWO_TEXTS)
    seconds = encoded[::2] if has_segments else None
    return _joined(
        pack_rows(encoded[::2], template=tokenizer.template, max_length=limit, model_limit=limit),
        pack_rows(encoded[1::2], seconds, template=tokenizer.template, max_length=limit, model_limit=limit),
    )


def _in_units(rows: PackedRows, rows_per_unit: Ints) -> EncodedExamples:
    """Rows, all tokens of which are read, as units of these sizes."""
    assert rows_per_unit.sum() == len(rows), "whole units"
    return dataclasses.replace(separate_rows(rows, None), rows_per_unit=rows_per_unit)


def _labelled(folder: ModelFolder, tokenizer: Tokenizer, file: DataFile) -> Sample:
    """The examples of a file, read and scored as by `bertsmith evaluate`."""
    name, spec, examples = read_labelled(folder, file.path, file.task, file.columns)
    task = task_for(spec)
    task.check(examples, gold=True)
    features = task.encode(examples, tokenizer)
    about = {"data": file.path.name, "digest": digest_file(file.path), **file.chosen, "task": name}
    return Sample(
        features=features,
        about=about | {"examples": len(examples), "rows": len(features.rows)},
        scored=Scored(task=task, examples=examples, tokenizer=tokenizer),
    )


def _joined(first: PackedRows, second: PackedRows) -> PackedRows:
    return PackedRows(
        np.concatenate([first.token_ids, second.token_ids]),
        np.concatenate([first.segment_ids, second.segment_ids]),
        np.concatenate([first.lengths, second.lengths]),
        np.concatenate([first.cut_by_row, second.cut_by_row]),
    )


def _texts(folder: ModelFolder, tokenizer: Tokenizer, file: DataFile) -> Sample:
    """The texts of a file as read by `TextLines`, one row each, without blank ones."""
    data = file.path
    source = TextLines(data, reading=EncodingSettings(encoding=file.columns.encoding), may_drop=False)
    texts = [text for text in source if text.strip()]
    source.tell_notes()
    if not texts:
        raise InputError(expected=f"one text per line in '{data}'", found="none", fix="name another file with --data")
    limit = folder.config.max_tokens
    encoded = tokenizer.encode_batch(texts)
    rows = pack_rows(encoded, template=tokenizer.template, max_length=limit, model_limit=limit)
    about = {"data": data.name, "digest": digest_file(data), "texts": len(texts), "rows": len(rows)}
    about |= {"cut_texts": rows.truncated} if rows.truncated else {}
    return Sample(features=separate_rows(rows, None), about=about)
