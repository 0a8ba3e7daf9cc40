"""The parameters of `bertsmith embed`, `features`, `vectors` and `vectors static`."""

import dataclasses
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.parameters import (
    COLUMN,
    DEVICE,
    ENGINE,
    MODEL,
    PRECISION,
    TEXT_FILE,
    ComputeSettings,
    optional,
)
from bertsmith.base.core.requests import AS_IT_IS, Request, path_field
from bertsmith.base.core.settings import Help, help_field, require, require_other
from bertsmith.text.documents.encodings import EncodingSettings

UNITS = ("first", "mean", "pieces")
_OUT = Help(
    "the file to write, .npy or .parquet; of sparse vectors .npz",
    metavar="X",
    path="the output",
    kind=Path,
    address=AS_IT_IS,
)
LAYERS = Help(
    "last, second-to-last, sum-last-4, concat-last-4, sum-all, sum-with-embeddings, embeddings, or numbers such as "
    "-1,-2 (0: embeddings, 1: first layer, -1: last), whose vectors are concatenated"
)


@dataclasses.dataclass(frozen=True)
class VectorFileRequest(Request, ComputeSettings, EncodingSettings):
    """A file of texts, a model, and the file of their vectors."""

    file: Annotated[str | Path, TEXT_FILE]
    model: Annotated[str | Path, MODEL]
    out: Annotated[str | Path, _OUT]
    _: dataclasses.KW_ONLY
    layers: str = optional("last", LAYERS)
    max_length: int | None = help_field(None, "maximum tokens per row [the model's limit]")
    column: str | None = optional(None, COLUMN)
    float16: bool = help_field(False, "write float16 instead of float32")
    engine: str = optional("local", ENGINE)
    resume: bool = help_field(False, "resume X; give the same options again")
    replace: bool = help_field(False, "overwrite X, or an unfinished X")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not (self.resume and self.replace), expected="--resume or --replace", found="both", fix="leave one out")


@dataclasses.dataclass(frozen=True)
class EmbedRequest(VectorFileRequest):
    """How the vector of a text is made."""

    _: dataclasses.KW_ONLY
    pooling: str | None = help_field(
        None,
        "mean, cls, pooler, max, lasttoken, weightedmean or mean_sqrt_len_tokens; cls+mean and the like give the "
        "vectors of both, one after the other [the folder's setting, else mean]",
    )
    normalize: bool | None = help_field(None, "scale vectors to length 1 [the folder's setting]")
    prompt: str | None = help_field(
        None, "prompt of the folder, such as query or document [its default]", metavar="NAME|none"
    )
    dimensions: int | None = help_field(None, "keep the first K numbers of each vector [all]", metavar="K", least=1)
    text: bool = help_field(False, "add the texts to a .parquet file, next to the vectors")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.text or Path(self.out).suffix.lower() == ".parquet",
            expected="a .parquet output for --text",
            found=f"'{self.out}'",
            fix="leave out --text, or name a .parquet file",
        )


@dataclasses.dataclass(frozen=True)
class FeaturesRequest(VectorFileRequest):
    """How the vector of a word or piece is made."""

    out: Annotated[str | Path, dataclasses.replace(_OUT, help="the file to write, .npy, .parquet or .jsonl")]
    _: dataclasses.KW_ONLY
    unit: str = help_field(
        "first",
        "vector of a word: first (that of its first piece) or mean (of all its pieces)",
        library='for words, the vector of the "first" piece or the "mean" of all pieces; or "pieces"',
        flag="--words",
        choices=UNITS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangeSettings:
    """The changes to apply, in the order of the fields.

    Removing directions and whitening also subtract the mean, as in their papers.
    """

    center: bool = help_field(False, "subtract the mean vector", flag="--center")
    remove_top: int = help_field(0, "remove the mean and the N directions of largest variance", metavar="N")
    whiten: bool = help_field(False, "decorrelate all directions and scale them to equal variance", flag="--whiten")
    dimensions: int | None = help_field(None, "with --whiten: keep K dimensions", metavar="K")
    normalize: bool = help_field(False, "scale each vector to length 1", flag="--normalize")

    def __post_init__(self) -> None:
        require(
            self.remove_top >= 0,
            expected="remove_top of 0 or more directions",
            found=self.remove_top,
            fix="set the number of directions to remove",
        )
        require_other(self.dimensions is None or self.whiten, "--dimensions", "--whiten")
        require(
            self.dimensions is None or self.dimensions >= 1,
            expected="at least one dimension",
            found=self.dimensions,
            fix="keep one or more",
        )

    @property
    def is_nothing(self) -> bool:
        """Whether vectors are left unchanged."""
        return self == ChangeSettings()


@dataclasses.dataclass(frozen=True)
class VectorsRequest(Request, ChangeSettings):
    """A file of vectors, and what is fitted, changed, written and drawn."""

    source: Annotated[
        str | Path,
        Help("vectors, one per row, as written by `embed`, .npy or .parquet", flag="X", path="the vectors", kind=Path),
    ]
    _: dataclasses.KW_ONLY
    fit_on: str | Path | None = path_field("fit the changes on these vectors [X]", "Z")
    changes: str | Path | None = path_field("apply saved changes")
    save_changes: str | Path | None = path_field("save the changes for other vectors (.safetensors)")
    out: str | Path | None = path_field("output file for the changed vectors", "Y.npy")
    replace: bool = help_field(False, "overwrite existing files")
    picture: str | Path | None = path_field("plot the cosines of random pairs: .png, .svg or .html")


@dataclasses.dataclass(frozen=True)
class StaticVectorsRequest(Request, EncodingSettings):
    """An encoder, and the folder of static vectors that is made from it."""

    model: Annotated[str | Path, MODEL]
    out: Annotated[str | Path, Help("the model folder to write", metavar="DIR", path="the folder", kind=Path)]
    _: dataclasses.KW_ONLY
    dimensions: int | None = help_field(None, "width of the vectors [256, or that of the model]", metavar="K", least=1)
    text: str | Path | None = help_field(
        None, "weight pieces by their frequency in this text [by Zipf's law]", metavar="FILE", path="the text", kind=str
    )
    column: str | None = optional(None, COLUMN)
    layers: str = optional("last", LAYERS)
    replace: bool = help_field(False, "overwrite DIR, if it is a model")
    device: str = optional("auto", DEVICE)
    precision: str = optional("fp32", PRECISION)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in sorted({"column", "encoding", "bad_bytes"} & self.given):
            require_other(self.text is not None, f"--{name.replace('_', '-')}", "--text")
