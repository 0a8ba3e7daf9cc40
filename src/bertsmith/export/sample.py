"""What an exported model is tried on: labelled examples, texts, and rows of the lengths where mistakes show."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.datasets.examples import Example, TextExample
from bertsmith.datasets.text_lines import TextLines
from bertsmith.encoding.units import Features, Ints
from bertsmith.errors import InputError
from bertsmith.files import digest_bytes, digest_file
from bertsmith.progress import warn
from bertsmith.randomness import generator
from bertsmith.settings import require, to_dict
from bertsmith.tasks import named_tasks
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.spec_of_model import read_labelled
from bertsmith.tasks.task import Task, TaskSpec
from bertsmith.text.pack import PackedRows, pack_rows
from bertsmith.text.tokenizer import Tokenizer

BUILT_IN = ("sentiment", "claim", "truth")  # presets whose examples come with the package
NUM_BUILT_IN = 32  # texts of each
NUM_ENDINGS = 3  # rows of a choice among built-in texts
ODD_LENGTHS = (1, 2, 5, 17)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored:
    """Labelled examples with all that is needed to score logits on them."""

    task: Task
    examples: Sequence[Example]
    features: Features
    tokenizer: Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows to try a model on.

    Attributes:
        rows: N rows of text, those of a unit side by side.
        rows_per_unit: int64 [units]; above 1 for the endings of a choice and for windows.
        about: where the rows come from, for the record; plain values.
        scored: the examples, where they are labelled.
    """

    rows: PackedRows
    rows_per_unit: Ints
    about: dict[str, Any]
    scored: Scored | None = None

    def line(self) -> str:
        """What a person wants to know."""
        return f"compared on {self.about['data']} ({self.about['rows']:,} rows) and on rows of odd lengths"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file to try a model on, and how it is read.

    Attributes:
        path: labelled examples of the model's task; for a model without a task a text a line.
        task: the task of the catalogue in whose form the examples stand; None: that of the model's task.
        columns: where the parts of an example stand, for the tasks that do not know it themselves.
    """

    path: Path
    task: str | None = None
    columns: named_tasks.ColumnSettings = dataclasses.field(default_factory=named_tasks.ColumnSettings)

    @property
    def chosen(self) -> dict[str, Any]:
        """What was said of how it is read: the task, and the columns that are not at their defaults."""
        usual = to_dict(named_tasks.ColumnSettings())
        columns = {name: value for name, value in to_dict(self.columns).items() if value != usual[name]}
        return columns if self.task is None else {"task": self.task, **columns}

    @property
    def options(self) -> str:
        """The command line's options for what is chosen, for a message."""
        return ", ".join(f"--{name.replace('_', '-')}" for name in self.chosen)


def sample_for(folder: ModelFolder, spec: TaskSpec | None, file: DataFile | None) -> Sample:
    """The rows of a file in the form of the model's task, or else some sentences that come with the package.

    Args:
        folder: a model with a vocabulary.

    Raises:
        ConfigError: the file is named as one of another kind of task.
        InputError: the file is not of this task, or cannot be read; the message names file and row.
    """
    assert folder.tokenizer is not None, "asked before"
    if file is None:
        return _built_in(folder, folder.tokenizer, spec)
    if spec is None:
        require(
            not file.chosen,
            expected=f"a model with the head of a task, with {file.options}",
            found=f"one without, which reads '{file.path}' as texts",
            fix=f"leave out {file.options}",
        )
        return _texts(folder, folder.tokenizer, file.path)
    return _labelled(folder, folder.tokenizer, file)


def odd_rows(folder: ModelFolder) -> PackedRows:
    """Rows of random ids: of one token, of a few, of all positions of the model; the second half is segment 1."""
    lengths = np.array([*ODD_LENGTHS, folder.config.max_tokens], dtype=np.int32)
    lengths = np.minimum(lengths, folder.config.max_tokens)
    draw = generator(0, "export check")
    within = np.concatenate([np.arange(length) / length for length in lengths])
    last_segment = max(folder.config.type_vocab_size - 1, 0)
    return PackedRows(
        draw.integers(folder.config.vocab_size, size=int(lengths.sum()), dtype=np.int32),
        np.where(within >= 0.5, min(1, last_segment), 0).astype(np.int32),
        lengths,
        np.zeros_like(lengths),
    )


def _built_in(folder: ModelFolder, tokenizer: Tokenizer, spec: TaskSpec | None) -> Sample:
    """Sentences of the package, alone and in pairs."""
    texts: list[str] = []
    for name in BUILT_IN:
        path = named_tasks.bundled_examples(name)
        assert path is not None, "the examples come with the package"
        found = named_tasks.read_examples(name, path).examples[:NUM_BUILT_IN]
        texts += [example.first for example in found if isinstance(example, TextExample)]
    limit = folder.config.max_tokens
    if spec is not None:
        limit = min(limit, spec.settings.max_length)
    encoded = [tokenizer.encode(text) for text in texts]
    seconds = encoded[::2] if folder.config.type_vocab_size > 1 else None
    rows = _joined(
        pack_rows(encoded[::2], template=tokenizer.template, max_length=limit, model_limit=limit),
        pack_rows(encoded[1::2], seconds, template=tokenizer.template, max_length=limit, model_limit=limit),
    )
    per_unit = NUM_ENDINGS if spec is not None and spec.kind == "choice" else 1
    assert len(rows) % per_unit == 0, "whole units"
    about = {
        "data": "sentences that come with bertsmith",
        "digest": digest_bytes("\n".join(texts).encode()),
        "rows": len(rows),
    }
    counts = np.full(len(rows) // per_unit, per_unit, dtype=np.int64)
    return Sample(rows=rows, rows_per_unit=counts, about=about)


def _labelled(folder: ModelFolder, tokenizer: Tokenizer, file: DataFile) -> Sample:
    """The examples of a file, read and scored as `bertsmith evaluate` does."""
    name, spec, examples = read_labelled(folder, file.path, file.task, file.columns)
    task = task_for(spec)
    task.check(examples, gold=True)
    features = task.encode(examples, tokenizer)
    about = {"data": file.path.name, "digest": digest_file(file.path), **file.chosen, "task": name}
    return Sample(
        rows=features.rows,
        rows_per_unit=features.rows_per_unit,
        about=about | {"examples": len(examples), "rows": len(features.rows)},
        scored=Scored(task=task, examples=examples, features=features, tokenizer=tokenizer),
    )


def _joined(first: PackedRows, second: PackedRows) -> PackedRows:
    """The rows of both."""
    return PackedRows(
        np.concatenate([first.token_ids, second.token_ids]),
        np.concatenate([first.segment_ids, second.segment_ids]),
        np.concatenate([first.lengths, second.lengths]),
        np.concatenate([first.cut_by_row, second.cut_by_row]),
    )


def _texts(folder: ModelFolder, tokenizer: Tokenizer, data: Path) -> Sample:
    """The texts of a file as `TextLines` reads them, a row each, without blank ones.

    What is longer than the model reads is cut, and told in `about`.
    """
    source = TextLines(data)
    texts = [text for text in source if text.strip()]
    for note in source.notes():
        warn(f"{data}: {note}")
    if not texts:
        raise InputError(expected=f"a text a line in '{data}'", found="none", fix="name another file with --data")
    limit = folder.config.max_tokens
    encoded = tokenizer.encode_batch(texts)
    rows = pack_rows(encoded, template=tokenizer.template, max_length=limit, model_limit=limit)
    about = {"data": data.name, "digest": digest_file(data), "texts": len(texts), "rows": len(rows)}
    about |= {"cut_texts": rows.truncated} if rows.truncated else {}
    return Sample(rows=rows, rows_per_unit=np.ones(len(rows), dtype=np.int64), about=about)
