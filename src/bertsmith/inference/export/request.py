"""The parameters of `bertsmith convert`, `inspect`, `models` and `push`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field, require_other
from bertsmith.base.core.tables import File
from bertsmith.tasks.specs.settings import ColumnSettings

SOURCE = Help(
    "model folder, run folder, Google checkpoint (folder, prefix or file), ELMo of AllenNLP (folder) or hub id",
    flag="SRC",
    path="the model",
    kind=str,
)


@dataclasses.dataclass(frozen=True)
class ConvertRequest(Request, ColumnSettings):
    """A model, the format and folder to write, and the examples that its outputs are compared on."""

    source: Annotated[str | Path, SOURCE]
    destination: Annotated[
        str | Path, Help("a folder that does not exist yet", flag="DST", path="the destination", kind=Path)
    ]
    _: dataclasses.KW_ONLY
    to: str = help_field("huggingface", "huggingface, google or onnx", metavar="FORMAT")
    int8: bool = help_field(False, "with --to onnx: also write model_int8.onnx, with 8-bit weights")
    data: File | None = help_field(
        None,
        "labelled examples of the model's task to compare on; texts, one per line, for a model without a task "
        "[built-in sentences]",
        metavar="FILE",
        path=True,
        kind=Path,
        table=True,
    )
    task: str | None = help_field(None, "with --data: format of the file [that of the model's task]", metavar="NAME")
    limit: float | None = help_field(
        None,
        "maximum difference of outputs, in standard deviations [0.0001]; with --int8: maximum loss of score on FILE "
        "[0.004, and more on few examples], without FILE maximum mean difference of outputs [0.2]",
        metavar="X",
        least=0,
    )
    cased: bool | None = help_field(None, "keep or remove upper case [as SRC specifies]", flag="--cased/--uncased")
    rules: str | None = help_field(
        None,
        "text rules huggingface or google, with --cased or --uncased",
        library="text rules huggingface or google, with `cased`",
        metavar="NAME",
    )
    allow_unknown: bool = help_field(False, "skip tensors with unknown names")
    replace: bool = help_field(False, "overwrite DST")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_other(self.to == "onnx" or not self.int8, "--int8", "--to onnx", "use it, or leave --int8 out")
        require_other(self.cased is not None or self.rules is None, f"--rules {self.rules}", "--cased or --uncased")


@dataclasses.dataclass(frozen=True)
class InspectRequest(Request):
    """A model to describe."""

    source: Annotated[str | Path, SOURCE]


@dataclasses.dataclass(frozen=True)
class PushRequest(Request):
    """A model folder, and the repository of the hub that receives its files."""

    folder: Annotated[
        str | Path, Help("model folder, or the run that made it", flag="MODEL", path="the model folder", kind=Path)
    ]
    name: Annotated[str, Help("the repository, such as my-name/my-model", flag="OWNER/NAME")]
    _: dataclasses.KW_ONLY
    public: bool = help_field(False, "create a public repository [private]")
    replace: bool = help_field(False, "overwrite files of a repository that has a model; others stay")


@dataclasses.dataclass(frozen=True)
class ModelsRequest(Request):
    """Where the published checkpoints are looked for, besides the cache of the hub."""

    folders: Sequence[str | Path] = help_field(
        (), "folders to search for them", flag="DIR...", path="a folder", kind=list[Path]
    )
