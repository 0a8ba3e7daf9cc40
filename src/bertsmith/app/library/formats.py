"""Convert a model to another format and compare its outputs before writing it."""

import dataclasses
from pathlib import Path

from bertsmith.base.core.progress import short_repr
from bertsmith.base.core.requests import call, takes
from bertsmith.inference.export.conversion import export
from bertsmith.inference.export.request import ConvertRequest
from bertsmith.models.checkpoints.plan import LoadReport


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

    __repr__ = short_repr

    def lines(self) -> list[str]:
        """The result as lines of text."""
        return [*self.tensors.lines(), *self.comparisons, f"written: {self.path}"]


@takes(ConvertRequest)
def convert(request: ConvertRequest) -> Conversion:
    """The conversion written to `destination`, and how its outputs compare with those of the source.

    Raises:
        CheckpointError: the outputs differ by more than the limit, or the source cannot be written in this format.
        BertsmithError: the source, the data or the destination is invalid; the message says which.
    """
    report, lines = call(export, request)
    return Conversion(path=Path(request.destination), tensors=report, comparisons=tuple(lines))
