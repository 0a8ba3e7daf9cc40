"""Convert a model to another format and compare its outputs before writing it."""

import dataclasses
from pathlib import Path
from typing import Any

from bertsmith.base.core.settings import require_other, split_settings
from bertsmith.inference.export.conversion import export
from bertsmith.models.checkpoints.load import kind_of
from bertsmith.models.checkpoints.plan import LoadReport
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.text.tokenizers.normalize import TextRules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """The result of a conversion.

    Attributes:
        path: the folder that was written.
        tensors: which tensors of the source were mapped, skipped or unknown.
        comparisons: the results of the comparisons, one line each.
    """

    path: Path
    tensors: LoadReport
    comparisons: tuple[str, ...]

    def lines(self) -> list[str]:
        """The result as lines of text."""
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
    rules: str | None = None,
    allow_unknown: bool = False,
    replace: bool = False,
    **columns: Any,
) -> Conversion:
    """The conversion written to `destination`, and how its outputs compare with those of the source.

    Args:
        source: anything that `load` accepts.
        destination: a folder that does not exist yet.
        to: "huggingface", "google" or "onnx".
        int8: with "onnx", also write a file with 8-bit weights.
        data: labelled examples of the model's task to compare on, or texts for a model without a task.
        task: the format of `data`; by default that of the model's task.
        limit: maximum difference of outputs, in units of their standard deviation; see
            `bertsmith.inference.export.record`.
        cased: keep upper case; by default as the source specifies.
        rules: "huggingface", "google" or "unspaced", with `cased`; by default "google" for a Google checkpoint.
        allow_unknown: skip tensors with unknown names.
        replace: overwrite `destination`.
        columns: fields of ColumnSettings by name.

    Raises:
        CheckpointError: the outputs differ by more than the limit, or the source cannot be written in this format.
        BertsmithError: the source, the data or the destination is invalid; the message says which.
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
        rules=_rules(source, cased, rules),
        allow_unknown=allow_unknown,
        replace=replace,
    )
    return Conversion(path=Path(destination), tensors=report, comparisons=tuple(lines))


def _rules(source: str | Path, cased: bool | None, rules: str | None) -> TextRules | None:
    """The requested text rules; None: those of the source."""
    require_other(cased is not None or rules is None, f"--rules {rules}", "--cased or --uncased")
    if cased is None:
        return None
    usual = "google" if kind_of(Path(source)) == "google" else "huggingface"
    return TextRules.named(rules or usual, lowercase=not cased)
