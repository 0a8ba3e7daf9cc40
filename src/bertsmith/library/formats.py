"""What a checkpoint holds, and a model in another format, compared with itself before it is written."""

import dataclasses
from pathlib import Path
from typing import Any

from bertsmith.checkpoints.google import inspect_google
from bertsmith.checkpoints.load import kind_of, load_any
from bertsmith.checkpoints.plan import LoadReport
from bertsmith.export.conversion import export
from bertsmith.library.training import split_settings
from bertsmith.tasks.named_tasks import ColumnSettings
from bertsmith.text.normalize import TextRules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """The result of a conversion.

    Attributes:
        path: the folder that was written.
        tensors: which tensors of the source were taken, left out or unknown.
        comparisons: what was compared, a line each.
    """

    path: Path
    tensors: LoadReport
    comparisons: tuple[str, ...]

    def lines(self) -> list[str]:
        """All of it, for people."""
        return [*self.tensors.lines(), *self.comparisons, f"written: {self.path}"]


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    to: str,
    int8: bool = False,
    data: str | Path | None = None,
    task: str | None = None,
    limit: float | None = None,
    cased: bool | None = None,
    allow_unknown: bool = False,
    replace: bool = False,
    **columns: Any,
) -> Conversion:
    """What was written to `destination`, and how its outputs compare with those of the source.

    Args:
        source: anything that `load` takes.
        destination: a folder that does not exist yet.
        to: "huggingface", "google" or "onnx".
        int8: with "onnx", also a file with weights of 8 bits.
        data: labelled examples of the model's task, or texts for a model without one, to compare on.
        task: the form of `data`; that of the model's task if not given.
        limit: most that outputs may differ, in units of their standard deviation; see `bertsmith.export.limits`.
        cased: whether text keeps its capitals; what the source says if not given.
        allow_unknown: leave out tensors of unknown names.
        replace: write over `destination`.
        columns: fields of ColumnSettings by name.

    Raises:
        CheckpointError: the outputs differ by more than the limit, or the source cannot be written in this format.
        BertsmithError: source, data or place do not fit; the message says which.
    """
    report, lines = export(
        source,
        destination,
        to=to,
        int8=int8,
        data=None if data is None else Path(data),
        task=task,
        columns=ColumnSettings(**split_settings(columns, [ColumnSettings])[ColumnSettings]),
        limit=limit,
        rules=None if cased is None else TextRules(lowercase=not cased),
        allow_unknown=allow_unknown,
        replace=replace,
    )
    return Conversion(path=Path(destination), tensors=report, comparisons=tuple(lines))


def inspect(source: str | Path) -> LoadReport:
    """Which tensors of a checkpoint are taken, left out or unknown; nothing is written.

    Args:
        source: anything that `load` takes; of a Google checkpoint only the names are read.

    Raises:
        CheckpointError: there is none, or it cannot be read.
    """
    if kind_of(Path(source)) == "google":
        return inspect_google(source)
    return load_any(source, allow_unknown=True).report
