"""The parameters of `bertsmith demo`, `report` and `sizes`."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.requests import COPIED, Request, path_field
from bertsmith.base.core.settings import Help, help_field
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
