"""The parameters of `bertsmith demo`, `drift`, `report`, `sizes` and `upgrade`."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.requests import COPIED, Request, path_field
from bertsmith.base.core.settings import Help, help_field
from bertsmith.base.core.tables import File
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.text.documents.encodings import EncodingSettings


@dataclasses.dataclass(frozen=True)
class DemoRequest(Request, EncodingSettings):
    """The time that a demo may take, its folder, and what it reads."""

    out: str | Path = help_field(
        Path("demo"), "a new folder for all outputs", metavar="DIR", path="the demo folder", kind=Path
    )
    _: dataclasses.KW_ONLY
    minutes: float = help_field(5.0, "time limit in minutes")
    texts: Sequence[str | Path] = help_field(
        (),
        "files or folders to use instead of the documentation on this machine",
        flag="--text",
        metavar="PATH",
        path="the texts",
        kind=list[Path],
        address=COPIED,
    )
    seed: int = help_field(1, "seed of the random numbers", in_library_only=True)


@dataclasses.dataclass(frozen=True)
class ReportRequest(Request):
    """Runs of one kind, and the file of their report."""

    runs: Annotated[
        Sequence[str | Path],
        Help("run folders; several are compared", flag="RUN...", path="the runs", kind=list[Path]),
    ]
    out: str | Path | None = path_field("output file [RUN/report.html; for several runs ./report-RUN-RUN.html]")
    on_line: Callable[[str], None] | None = help_field(
        None, "receives a line for each comparison of two fine-tuning runs", in_library_only=True
    )
    _: dataclasses.KW_ONLY
    replace: bool = help_field(
        False, "overwrite the file of --out", library="overwrite `out`; the default file is always replaced"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizesRequest(Request):
    """The vocabulary of the models that are counted."""

    vocab_size: int = help_field(30522, "pieces in the vocabulary of the BERT models", least=1, most=10**9)


@dataclasses.dataclass(frozen=True)
class UpgradeRequest(Request, ColumnSettings, ComputeSettings):
    """A model, the one that is to replace it, and texts that both read."""

    old: Annotated[str | Path, Help("the model that is used now", flag="OLD", path="the old model", kind=str)]
    new: Annotated[str | Path, Help("the model that is to replace it", flag="NEW", path="the new model", kind=str)]
    on: Annotated[
        File,
        Help(
            "texts that both read, with labels or without: a file of their task, or .txt with a text on each line",
            metavar="TEXTS",
            path="the texts",
            kind=Path,
            table=True,
        ),
    ]
    _: dataclasses.KW_ONLY
    passages: str | Path | None = path_field(
        "passages that are searched, in any format of `search` [for models without a task: the texts themselves]"
    )
    index: str | Path | None = path_field("an index of the old model's vectors: can the new one use it?", kind=str)
    most: float | None = help_field(
        None,
        "exit with code 1 if more than this share of the answers changes",
        library="the largest share of changed answers that `Upgrade.passes`",
        least=0,
        most=1,
        metavar="SHARE",
    )
    out: str | Path | None = help_field(
        None,
        "a new folder for changes.csv, upgrade.json and report.html",
        metavar="DIR",
        path="the folder",
        kind=Path,
    )


@dataclasses.dataclass(frozen=True)
class DriftRequest(Request, ColumnSettings, ComputeSettings):
    """Texts that a model was trained on, and later ones."""

    train: Annotated[
        File,
        Help(
            "the training texts: a file of the model's task, or .txt with a text on each line",
            flag="TRAIN",
            path="the training texts",
            kind=str,
            table=True,
        ),
    ]
    texts: Annotated[
        File,
        Help("later texts, such as requests, in either form", flag="TEXTS", path="the texts", kind=str, table=True),
    ]
    _: dataclasses.KW_ONLY
    model: str | Path | None = path_field(
        "also compare pieces, lengths and predictions of this model, or its vectors if it has no task",
        "DIR",
        path="the model",
        kind=str,
    )
    out: str | Path | None = help_field(
        None,
        "a new folder for unlike.csv, drift.json and report.html",
        metavar="DIR",
        path="the folder",
        kind=Path,
    )
    seed: int = help_field(1, "seed of the folds, the random divisions and the draw of many texts")
