"""The parameters of `bertsmith index` and the commands under it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.parameters import ENGINE, MODEL, ComputeSettings, optional
from bertsmith.base.core.requests import Request, path_field
from bertsmith.base.core.settings import Help, help_field, require
from bertsmith.inference.search.request import ALSO_FOR_INDEX
from bertsmith.text.documents.encodings import TableEncoding

_RECALL = Help(
    "share of the 10 nearest texts that a search of a large index should find; more takes longer [that of the index, "
    "0.95 for a new one]",
    above=0,
    most=1,
)
_ROWS = Help("texts per segment, if --memory is enough for its cells", least=1, most=2**24)
_MEMORY = Help(
    "megabytes for building, besides Python and the model; with fewer, segments are smaller and more, and a search "
    "takes longer",
    above=0,
    most=1e7,
)
_INDEX = Help("the index", flag="INDEX", path="the index", kind=Path)
_OUT = Help("the folder of the index", metavar="INDEX", path="the index", kind=Path)


@dataclasses.dataclass(frozen=True)
class IndexRequest(Request, ComputeSettings, TableEncoding):
    """Texts, one model or several, and the index of the texts' vectors."""

    texts: Annotated[
        str | Path,
        Help(
            "a text file with one text per line, a table (.jsonl, .csv, .tsv, .parquet), a TREC file or a folder; or "
            "vectors: .npy, or .parquet with a column `vector`, as `embed` writes them",
            flag="TEXTS",
            path="the texts",
            kind=Path,
        ),
    ]
    out: Annotated[str | Path, _OUT]
    _: dataclasses.KW_ONLY
    model: str | Path | None = optional(None, dataclasses.replace(MODEL, help=f"{MODEL.help} [that of the index]"))
    also: Sequence[str | Path] = optional((), ALSO_FOR_INDEX)
    vectors: str | Path | None = path_field(
        "the vectors of the texts, row by row: .npy, or .parquet with a column `vector`; no model is needed then"
    )
    add: bool = help_field(False, "add the texts to an index; a text whose id it has replaces that text")
    resume: bool = help_field(False, "resume a build; give the same options again")
    text_column: str | None = help_field(None, "column with the text, if it has no common name")
    pooling: str | None = help_field(None, "mean, cls, pooler, max or another of `embed` [the model's setting]")
    passage_prompt: str | None = help_field(
        None, "the model's prompt for passages [document, passage or corpus]", metavar="NAME|none"
    )
    recall: float | None = optional(None, _RECALL)
    segment_rows: int = optional(2**20, _ROWS)
    memory: float = optional(1000.0, _MEMORY)
    engine: str = optional("local", ENGINE)


@dataclasses.dataclass(frozen=True)
class RemoveFromIndexRequest(Request, TableEncoding):
    """An index, and the ids of texts to remove."""

    index: Annotated[str | Path, _INDEX]
    _: dataclasses.KW_ONLY
    id: Sequence[str] = help_field((), "the id of a text; repeatable", kind=list[str])
    ids: str | Path | None = path_field("a file with one id per line")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.id) or self.ids is not None, expected="ids of texts", found="none", fix="give --id or --ids")


@dataclasses.dataclass(frozen=True)
class JoinIndexesRequest(Request):
    """Indexes, and the one that is made of them."""

    indexes: Annotated[Sequence[str | Path], Help("the indexes", flag="INDEX...", path="the indexes", kind=list[Path])]
    out: Annotated[str | Path, _OUT]


@dataclasses.dataclass(frozen=True)
class ExportIndexRequest(Request):
    """An index, and the file that its rows are written to."""

    index: Annotated[str | Path, _INDEX]
    out: Annotated[str | Path, Help("the file to write, .parquet", metavar="X", path="the output", kind=Path)]
    _: dataclasses.KW_ONLY
    replace: bool = help_field(False, "overwrite X")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            Path(self.out).suffix.lower() == ".parquet",
            expected="an output that ends in .parquet",
            found=f"'{self.out}'",
            fix="add the ending",
        )


@dataclasses.dataclass(frozen=True)
class CompactIndexRequest(Request):
    """An index whose small segments are joined."""

    index: Annotated[str | Path, _INDEX]
    _: dataclasses.KW_ONLY
    recall: float | None = optional(None, _RECALL)
    segment_rows: int = optional(2**20, _ROWS)
    memory: float = optional(1000.0, _MEMORY)
