"""Further files of a training of vectors, each with a form, a loss and a share of the steps of its own."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.settings import require
from bertsmith.models.heads.head_spec import OBJECTIVES
from bertsmith.tasks.datasets.text_groups import form_of_file
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.task_data.split import Source
from bertsmith.tasks.task_data.task_files import digest_of, read_examples


def parts_of(text: str | os.PathLike[str]) -> tuple[Path, str | None, float | None]:
    """The path, the loss and the share in a text such as "pairs.tsv:cosent:2"; None for what was left out.

    >>> parts_of("a:b.tsv:cosent:0.5")[1:], parts_of("pairs.tsv:3")[1:], parts_of("pairs.tsv")[1:]
    (('cosent', 0.5), (None, 3.0), (None, None))
    """
    path, loss, share = str(text), None, None
    if not os.path.exists(path):
        before, _, last = path.rpartition(":")
        if before and _is_share(last):
            path, share = before, float(last)
        before, _, last = path.rpartition(":")
        if before and last in OBJECTIVES:
            path, loss = before, last
    return Path(path), loss, share


def read_sources(
    named: Sequence[str | os.PathLike[str]], columns: ColumnSettings, settings: TaskSettings
) -> list[Source]:
    """The examples of files, each in the form that its columns have."""
    sources = []
    for text in named:
        path, loss, share = parts_of(text)
        before, _, last = str(path).rpartition(":")
        require(
            path.exists() or not (before and os.path.exists(before)),
            expected=f"one of the losses {', '.join(OBJECTIVES)}, or a share of the steps, after '{before}:'",
            found=repr(last),
            fix="correct it",
        )
        require(
            share is None or share > 0,
            expected="shares above 0 of the steps",
            found=f"{share} in {str(text)!r}",
            fix="leave the file out",
        )
        form = form_of_file(path, encoding=columns.encoding)
        examples = read_examples(form, path, columns, training=True).examples
        spec = spec_for(form, examples, settings)
        sources.append(
            Source(name=str(text), spec=spec, examples=examples, loss=loss, share=share, digest=digest_of(path))
        )
    return sources


def _is_share(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
