"""The parameters of `bertsmith corpus` and `check`, and those of their functions."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.parameters import ENGINE, TEXTS, WORKERS, optional
from bertsmith.base.core.requests import AS_IT_IS, COPIED, Request
from bertsmith.base.core.settings import Help, help_field, require_counts, require_limits, require_number
from bertsmith.base.processes.engines import LOCAL
from bertsmith.text.corpus.encode import Item
from bertsmith.text.corpus.removal import RemovalSettings
from bertsmith.text.corpus.shards import SHARD_BYTES
from bertsmith.text.documents.languages import SamplingSettings
from bertsmith.text.documents.readers import Document
from bertsmith.text.documents.request import CASED, MODEL, RULES, VOCAB
from bertsmith.text.tokenizers.tokenizer import Tokenizer

_OUT = Help(
    "the corpus folder; must not exist yet", metavar="DIR", path="the corpus folder", kind=Path, address=AS_IT_IS
)
_REPLACE = Help("replace DIR when the new corpus is complete")
_WEIGHTS = Help(
    "how many times the training documents of a file or folder go into the corpus: 2 is twice, 0.5 is every second "
    "document; repeatable [1]",
    library="how many times the training documents of a file or folder go into the corpus, by its path; 1 if it has "
    "none",
    flag="--weight",
    metavar="TEXT=W",
    kind=list[str],
)
_EVALUATION = Help(
    "evaluation texts that should not be in the corpus; repeatable",
    flag="--evaluation",
    metavar="FILE",
    path="an evaluation file",
    kind=list[Path],
    address=COPIED,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(RemovalSettings):
    """How a corpus is built from text."""

    held_out: float = help_field(0.01, "fraction of the documents held out for evaluation; at least one document")
    shard_bytes: int = help_field(SHARD_BYTES, "maximum bytes of tokens per shard", most=2**40)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_limits(self)
        require_number("held_out", self.held_out, least=0, below=1)
        require_counts(shard_bytes=self.shard_bytes)


@dataclasses.dataclass(frozen=True)
class BuildRequest(Request, CorpusSettings, SamplingSettings):
    """Texts, a tokenizer, and how they become a corpus."""

    texts: Annotated[
        Iterable[Path | str] | Iterable[Document],
        Help("files, folders or `-` for stdin, or documents that have already been read; with languages, folders"),
    ]
    tokenizer: Annotated[Tokenizer, Help("of `learn_vocabulary`, of a model, or of your own pieces")]
    out: Annotated[Path | str, _OUT]
    _: dataclasses.KW_ONLY
    workers: int | None = optional(None, WORKERS)
    replace: bool = optional(False, _REPLACE)
    weights: Mapping[str, float] | None = optional(None, _WEIGHTS)
    encode: Callable[[Sequence[Path | str]], Iterator[Item]] | None = help_field(
        None, "reads and encodes files elsewhere, with the results of `encode_blocks`; then `workers` is not used"
    )


@dataclasses.dataclass(frozen=True)
class CorpusRequest(Request, CorpusSettings, SamplingSettings):
    """The same with the name of a tokenizer, as on the command line."""

    texts: Annotated[Sequence[Path | str], TEXTS]
    out: Annotated[Path | str, _OUT]
    _: dataclasses.KW_ONLY
    vocab: Path | str | None = optional(None, VOCAB)
    model: Path | str | None = optional(None, MODEL)
    cased: bool = optional(False, CASED)
    rules: str | None = optional(None, RULES)
    workers: int | None = optional(None, WORKERS)
    engine: str = optional(LOCAL, ENGINE)
    resume: bool = help_field(False, "with --engine ray: resume an unfinished DIR; give the same options again")
    replace: bool = optional(False, _REPLACE)
    evaluation: Sequence[Path | str] = optional((), _EVALUATION)
    weights: Mapping[str, float] | None = optional(None, _WEIGHTS)


@dataclasses.dataclass(frozen=True)
class CheckRequest(Request):
    """A corpus, and what it is checked against."""

    folder: Annotated[
        Path | str, Help("a folder that `bertsmith corpus` wrote", flag="CORPUS", path="the corpus", kind=Path)
    ]
    evaluation_files: Sequence[Path | str] = optional((), _EVALUATION)
    _: dataclasses.KW_ONLY
    verify: bool = help_field(
        True, "compare the digest of every shard first, held-out ones included", in_library_only=True
    )
    model_vocabulary: int | None = help_field(
        None,
        "config.json of the model that the corpus is for",
        library="the vocabulary size of the model to be trained",
        flag="--config",
        metavar="FILE",
        kind=Path,
        no_setting=True,
    )
