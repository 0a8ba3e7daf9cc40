"""The parameters of the commands that convert and ask word vectors, such as `bertsmith vectors neighbours`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field

MOST_FREQUENT = 30_000  # words that may answer an analogy, as in the original program


@dataclasses.dataclass(frozen=True)
class VectorsOfWordsRequest(Request):
    """Word vectors."""

    vectors: Annotated[
        str | Path,
        Help(
            "folder of word vectors, or a file of Word2Vec or GloVe (also .gz)", flag="V", path="the vectors", kind=Path
        ),
    ]


@dataclasses.dataclass(frozen=True)
class ConvertVectorsRequest(VectorsOfWordsRequest):
    """The file of another tool."""

    to: Annotated[str, Help("text or binary, the formats of Word2Vec")]
    out: Annotated[str | Path, Help("output file", metavar="F", path="the output", kind=Path)]
    _: dataclasses.KW_ONLY
    replace: bool = help_field(False, "overwrite F")


@dataclasses.dataclass(frozen=True)
class LookUpRequest(VectorsOfWordsRequest):
    """How words are looked up."""

    _: dataclasses.KW_ONLY
    lowercase: bool = help_field(False, "look words up in lower case; a folder knows that itself")


@dataclasses.dataclass(frozen=True)
class NeighboursRequest(LookUpRequest):
    """Words, and how many neighbors of each."""

    words: Annotated[Sequence[str], Help("one or more words", flag="WORD...", kind=list[str])]
    _: dataclasses.KW_ONLY
    count: int = help_field(10, "number of neighbours", least=1)


@dataclasses.dataclass(frozen=True)
class AnalogyRequest(LookUpRequest):
    """A question, or a file of questions."""

    words: Annotated[
        Sequence[str],
        Help("three words; or a file with four words per line", flag="A B C | FILE", kind=list[str]),
    ]
    _: dataclasses.KW_ONLY
    count: int = help_field(1, "number of answers to A B C", least=1)
    most_frequent: int = help_field(
        MOST_FREQUENT, "only the N most frequent words may answer; 0: all", metavar="N", least=0
    )


@dataclasses.dataclass(frozen=True)
class SimilarityRequest(LookUpRequest):
    """Two words, or a file of pairs."""

    words: Annotated[
        Sequence[str],
        Help("two words; or a file with two words and a score per line", flag="A B | FILE", kind=list[str]),
    ]


@dataclasses.dataclass(frozen=True)
class OppositesRequest(LookUpRequest):
    """Pairs to learn from, and two words to judge."""

    pairs: Annotated[
        str | Path,
        Help("two words and `similar` or `opposite` per line", flag="PAIRS", path="the pairs", kind=Path),
    ]
    words: Sequence[str] = help_field((), "two words to judge", flag="A B", kind=list[str])


@dataclasses.dataclass(frozen=True)
class ShowRequest(LookUpRequest):
    """A word."""

    word: Annotated[str, Help("", flag="WORD")]
