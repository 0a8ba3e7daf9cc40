"""The logits of a teacher on the rows of its students, computed once and kept in a folder.

::

    LOGITS/logits.json            digests of the teacher and of the rows, the shape, the rows of a block
    LOGITS/block-00000.safetensors ...   float32 [positions of the block, outputs]

A block is complete or absent, so an interrupted computation resumes with the next one. Logits of another teacher or
of other rows are refused.

Letters: N rows, R positions that the head reads, K outputs of the head.
"""

import contextlib
import dataclasses
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bertsmith.base.core.errors import BertsmithError, InputError
from bertsmith.base.core.progress import Progress
from bertsmith.base.machine.runtime import Runtime
from bertsmith.base.storage.files import atomic_file, digest_bytes, keep_record, remove_partials
from bertsmith.base.storage.locks import locked_folder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, Logits, separate_rows

DESCRIPTION = "logits.json"
BLOCK = 4096  # rows


def stored_logits(
    folder: Path, model: EncoderForTask, teacher: str, features: EncodedExamples, runtime: Runtime, micro_tokens: int
) -> Logits:
    """The teacher's logits at all positions that the head reads, float32 [R, K]: read from a folder, or computed.

    Blocks that are missing are computed and written. Another process that needs the same folder meanwhile is refused.
    """
    with locked_folder(folder):
        return _stored(folder, model, teacher, features, runtime, micro_tokens)


def _stored(
    folder: Path, model: EncoderForTask, teacher: str, features: EncodedExamples, runtime: Runtime, micro_tokens: int
) -> Logits:
    description: dict[str, Any] = {
        "teacher": teacher,
        "rows": digest_of_rows(features),
        "positions": features.num_read,
        "outputs": model.head.outputs,
        "rows_per_block": BLOCK,
    }
    _require_same(folder, description)
    remove_partials(folder)
    count = len(features.rows)
    parts: list[Logits] = []
    with Progress("logits of the teacher", total=count, unit="rows", how=runtime.precision) as progress:
        for number, (begin, end) in enumerate(itertools.pairwise(_bounds(features))):
            part, path = rows_of(features, begin, end), folder / f"block-{number:05d}.safetensors"
            if path.is_file():
                parts.append(_read(path, (part.num_read, model.head.outputs)))
                progress.advance(end - begin)
                continue

            def advance(share: float, size: int = end - begin) -> None:
                progress.advance(share * size)

            logits = task_logits(model.eval(), part, runtime, micro_tokens, advance)
            with atomic_file(path) as file:
                file.write(safetensors.numpy.save({"logits": logits}))
            parts.append(logits)
    return np.concatenate(parts)


@contextlib.contextmanager
def removed_if_refused(folder: Path) -> Iterator[None]:
    """Removes a folder of logits that the block made, if it ends with an error of the user's.

    An interrupted block leaves it, to be resumed, and so does one that found it there.
    """
    was_there = folder.exists()
    try:
        yield
    except BertsmithError:
        if not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def digest_of_rows(features: EncodedExamples) -> str:
    """The digest of what a model reads of examples, where its head reads, and which rows it reads together."""
    rows, read = features.rows, b"" if features.read is None else features.read.tobytes()
    units = b""
    if features.windows_of_first is not None:
        units = features.rows_per_unit.tobytes() + features.windows_of_first.tobytes()
    return digest_bytes(rows.token_ids.tobytes() + rows.segment_ids.tobytes() + rows.lengths.tobytes() + read + units)


def _bounds(features: EncodedExamples) -> list[int]:
    """The first row of each block, and the number of rows; rows that the head reads together are in one block."""
    bounds = [*range(0, len(features.rows), BLOCK), len(features.rows)]
    if features.windows_of_first is None:
        return bounds
    starts = _starts(features)
    return [int(bound) for bound in np.unique(starts[np.searchsorted(starts, bounds)])]


def _starts(features: EncodedExamples) -> Ints:
    """The first row of each unit, and the number of rows, int64 [U + 1]."""
    return np.append(features.first_rows, len(features.rows))


def _require_same(folder: Path, description: dict[str, Any]) -> None:
    """Writes what the logits belong to, or compares it with what is there."""
    if differing := keep_record(folder / DESCRIPTION, description):
        raise InputError(
            expected=f"the logits of this teacher on these examples in '{folder}'",
            found=f"those of {'another teacher' if 'teacher' in differing else 'other examples'}",
            fix="name another folder, or remove this one",
        )


def rows_of(features: EncodedExamples, begin: int, end: int) -> EncodedExamples:
    """Some consecutive rows without gold, as units of their own, unless the head reads the rows of a unit together.

    Then `begin` and `end` are between two units.
    """
    read = features.read
    if read is not None:
        first, last = features.rows.offsets[begin], features.rows.offsets[end]
        read = read[np.searchsorted(read, first) : np.searchsorted(read, last)] - first
    apart = separate_rows(features.rows.select(np.arange(begin, end)), read)
    if features.windows_of_first is None:
        return apart
    starts = _starts(features)
    first, last = np.searchsorted(starts, (begin, end))
    assert (starts[first], starts[last]) == (begin, end), "whole units"
    counts = features.rows_per_unit[first:last]
    return dataclasses.replace(
        apart,
        rows_per_unit=counts,
        example_of_row=np.repeat(np.arange(len(counts)), counts),
        windows_of_first=features.windows_of_first[first:last],
    )


def _read(path: Path, shape: tuple[int, int]) -> Logits:
    try:
        result = np.asarray(safetensors.numpy.load_file(path)["logits"])
    except (safetensors.SafetensorError, KeyError, OSError) as error:
        raise _damaged(path, str(error)[:80]) from error
    if result.shape != shape or result.dtype != np.float32 or not np.isfinite(result).all():
        raise _damaged(path, f"{result.dtype} {list(result.shape)}, or numbers that are not finite")
    return result


def _damaged(path: Path, found: str) -> InputError:
    return InputError(expected=f"logits in '{path}'", found=found, fix="remove the file; it will be computed again")
