"""The parameters of the commands that search passages, documents and the occurrences of a word."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.parameters import MODEL, TUNED_MODEL, ComputeSettings, optional
from bertsmith.base.core.requests import Request, file_field, path_field
from bertsmith.base.core.settings import Help, help_field, require, require_other
from bertsmith.base.storage.outputs import INDEX_ADDITION, INDEX_MANIFEST
from bertsmith.inference.search.rankings import BY_RANKS, FUSIONS
from bertsmith.inference.vectors.request import LAYERS
from bertsmith.text.documents.encodings import EncodingSettings, TableEncoding
from bertsmith.text.documents.forms import FORMS

VECTORS, BY_WORDS, HYBRID, TF_IDF, ONE_HOT = SYSTEMS = ("vectors", "bm25", "hybrid", "tf-idf", "one-hot")
WORDS_ALONE = (BY_WORDS, TF_IDF, ONE_HOT)  # these need no model
DENSE, SPARSE, TOKENS, WORDS = KINDS = ("dense", "sparse", "tokens", "words")  # what an index is searched by
DEPTH = 100  # passages that are fused or re-ranked by default, and that recall@100 counts
MANIFEST, BUILDING = "index.json", "building.json"  # the files by which the folder of an index is known
JUDGED_BY = ("ids", "places")
METHODS = ("k-means", "agglomerative")
CENTROID, NEAREST = SENSE_METHODS = ("centroid", "nearest")

ALSO_FOR_INDEX = Help(
    "a further model, for vectors of another kind: dense, sparse (SPLADE) or of tokens (ColBERT); repeatable",
    metavar="DIR",
    path="also",
    kind=list[str],
)
_TOP = Help("passages per query", least=1)
_JUDGED_BY = Help("how judgements refer to queries [ids if they match]", metavar="|".join(JUDGED_BY), choices=JUDGED_BY)
# Not checked with the other types: columns of tables and arrays are read too.
_Queries = Annotated[
    "str | Path | Sequence[str]", Help(library="a file of queries, a list of texts, or their vectors [Q, D]")
]


@dataclasses.dataclass(frozen=True)
class RetrievalRequest(Request, ComputeSettings, TableEncoding):
    """Passages, and how they are searched."""

    passages: Annotated[
        str | Path,
        Help(
            "a text file with one passage per line, a table (.jsonl, .csv, .tsv, .parquet), a TREC file, a folder, or "
            "an index that `bertsmith index` built",
            flag="PASSAGES",
            path="the passages",
            kind=Path,
        ),
    ]
    _: dataclasses.KW_ONLY
    model: str | Path | None = path_field(
        "model for the vectors; not needed to search by words alone", "DIR", path="the model", kind=str
    )
    also: Sequence[str | Path] = optional((), ALSO_FOR_INDEX)
    by: Sequence[str] = help_field(
        (),
        "in place of --method, what an index or several models are searched by: some of dense, sparse, tokens and "
        "words; the rankings of several are fused",
        metavar="KIND,...",
        kind=str,
    )
    fuse: str = help_field(
        BY_RANKS,
        "how rankings are fused: rrf, by the sum of 1 / (60 + rank), or scores, by the sum of the scores, each scaled "
        "to go from 0 to 1",
        choices=tuple(FUSIONS),
    )
    system: str = help_field(
        VECTORS,
        "vectors, bm25, tf-idf, one-hot or hybrid",
        library="vectors, bm25, tf-idf, one-hot or hybrid; its results are those that `rerank` scores again",
        flag="--method",
        metavar="NAME",
        choices=SYSTEMS,
    )
    rerank: str | Path | None = path_field(
        "re-rank the best --depth passages with a fine-tuned model of pairs or one of late interaction (ColBERT), "
        "whose vectors of passages are read from an index that has them",
        "DIR",
        path="the model",
        kind=str,
    )
    depth: int = help_field(DEPTH, "passages to fuse or re-rank", least=1)
    index: str | Path | None = path_field("store the passage vectors there and reuse them in later searches")
    changes: str | Path | None = path_field("apply changes saved by `vectors --save-changes` to all vectors")
    approximate: bool = help_field(False, "approximate search of 20,000 passages or more (needs faiss)")
    where: Sequence[str] = help_field(
        (), "search only texts of an index that meet a condition such as 'year >= 2020'; repeatable", kind=list[str]
    )
    exact: bool = help_field(False, "compare all vectors of an index, not only those in the nearest cells")
    bm25_words: str = help_field(
        "words",
        "terms of a search by words: words, or pieces of the model's vocabulary",
        choices=("words", "pieces"),
    )
    k1: float = help_field(0.9, "BM25: how much repeated words count")
    b: float = help_field(0.4, "BM25: how much passage length counts, 0 to 1")
    token_bits: int | None = help_field(
        None,
        "with a model of late interaction: bits of each number of the passages' vectors, 1 or 2: what is left of it "
        "next to the nearest of some centroids [16]",
        least=1,
        most=2,
    )
    text_column: str | None = help_field(None, "column with the text, if it has no common name")
    query_column: str | None = help_field(None, "the same for the file of queries")
    pooling: str | None = help_field(None, "mean, cls, pooler, max or another of `embed` [the model's setting]")
    query_prompt: str | None = help_field(None, "the model's prompt for queries [query]", metavar="NAME|none")
    passage_prompt: str | None = help_field(
        None, "the model's prompt for passages [document, passage or corpus]", metavar="NAME|none"
    )


def named(kind: str) -> str:
    """The vectors of a kind in words, or the words themselves."""
    return kind if kind == WORDS else "vectors of tokens" if kind == TOKENS else f"{kind} vectors"


def made_by(kind: str) -> str:
    """A model of a kind of vectors in words, with the command that trains one."""
    trained = f", which `bertsmith finetune --task pairs --vectors {kind}` trains" if kind in (SPARSE, TOKENS) else ""
    return f"a model of that kind{trained}"


def kinds_of(request: RetrievalRequest) -> tuple[str, ...]:
    """What is searched by `by`, checked; empty if it was not given."""
    kinds = tuple(request.by)
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError.unknown("kind of search", kind, KINDS)
    require(
        len(set(kinds)) == len(kinds), expected="each kind of search once", found=", ".join(kinds), fix="leave it out"
    )
    require_other(not kinds or "system" not in request.given, "--by", "no --method", "leave one of them out")
    return kinds


def is_index(path: Path | str) -> bool:
    """Whether a path is the folder of an index, finished or not."""
    files = ((Path(path) / MANIFEST, INDEX_MANIFEST), (Path(path) / BUILDING, INDEX_ADDITION))
    return any(file.is_file() and kind.fits(file) for file, kind in files)


def require_passages(request: RetrievalRequest) -> None:
    """Refuses a path of passages where nothing is."""
    if not Path(request.passages).exists():
        raise InputError(expected=f"passages at '{request.passages}'", found="nothing there", fix="correct the path")


def require_model(request: RetrievalRequest) -> None:
    """Refuses a search without the passages or the model that it needs."""
    require_passages(request)
    require(
        request.model is not None
        or is_index(request.passages)
        or (request.bm25_words == "words" and (tuple(request.by) == (WORDS,) or request.system in WORDS_ALONE)),
        expected="a model that makes the vectors",
        found="none",
        fix="name a model, or search by words alone with system 'bm25'",
    )


@dataclasses.dataclass(frozen=True)
class SearchPassagesRequest(RetrievalRequest):
    """The queries of a search."""

    queries: _Queries
    _: dataclasses.KW_ONLY
    top: int = optional(10, _TOP)


@dataclasses.dataclass(frozen=True)
class ScoreSearchesRequest(RetrievalRequest):
    """The queries of searches that are scored, and which passages are relevant to them."""

    queries: _Queries
    judgements: Annotated[str | Path, Help("a file of `query 0 passage gain` lines", path="the judgements")]
    _: dataclasses.KW_ONLY
    judged_by: str | None = optional(None, _JUDGED_BY)


@dataclasses.dataclass(frozen=True)
class SearchRequest(RetrievalRequest):
    """The queries of `bertsmith search`, as texts or a file, and whether it is scored."""

    _: dataclasses.KW_ONLY
    query: Sequence[str] = help_field((), "the query; repeatable", kind=list[str])
    queries: str | Path | None = path_field("a file of queries, in any format of PASSAGES; for an index also .npy")
    top: int = optional(10, _TOP)
    bm25: bool = help_field(False, "search by words instead of vectors")
    hybrid: bool = help_field(False, "search by vectors and by words, and fuse the ranks")
    judgements: str | Path | None = path_field(
        "score the search, and BM25 for comparison, by the `query 0 passage gain` lines of this file"
    )
    judged_by: str | None = optional(None, _JUDGED_BY)


@dataclasses.dataclass(frozen=True)
class AskRequest(Request, ComputeSettings, TableEncoding):
    """A model that answers questions, a document of any length, and the questions."""

    model: Annotated[str | Path, dataclasses.replace(TUNED_MODEL, flag="MODEL")]
    file: Annotated[str | Path, Help("a text file (also .gz, .zst)", flag="FILE", path="the file", kind=Path)]
    questions: Annotated[Sequence[str], Help("one or more questions", flag="QUESTION...", kind=list[str])]
    _: dataclasses.KW_ONLY
    top: int = help_field(1, "maximum number of answers to a question", least=1)
    writer: str | Path | None = path_field(
        "also write answers in words from the best passages, with a model of --task text-to-text",
        "DIR",
        path="the writer",
        kind=str,
    )
    passages: int = help_field(3, "with --writer: passages that it answers from", least=1, most=100)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_other("passages" not in self.given or self.writer is not None, "--passages", "--writer")


@dataclasses.dataclass(frozen=True)
class RankRequest(Request, ComputeSettings, EncodingSettings):
    """A model that classifies texts, and a document whose sentences it ranks."""

    model: Annotated[str | Path, dataclasses.replace(TUNED_MODEL, flag="MODEL")]
    file: Annotated[
        str | Path,
        Help(
            ".txt, .jsonl or .parquet (also .gz, .zst), a folder, or - for stdin",
            flag="FILE",
            path="the file",
            kind=Path,
        ),
    ]
    label: str | None = help_field(None, "the label to rank by; see MODEL's card", metavar="NAME")
    _: dataclasses.KW_ONLY
    top: int | None = help_field(None, "maximum number of sentences [all]", least=1)
    form: str = help_field(
        "auto", f"layout of .txt files, as in `corpus`: {', '.join(FORMS[:-1])} or {FORMS[-1]}", choices=FORMS
    )


@dataclasses.dataclass(frozen=True)
class WordRequest(Request, ComputeSettings, EncodingSettings):
    """A word whose occurrences are compared by their vectors."""

    word: Annotated[str, Help("a word or a sequence of words", flag="WORD")]
    _: dataclasses.KW_ONLY
    layers: str = optional("last", LAYERS)
    seed: int = help_field(0, "random seed")


@dataclasses.dataclass(frozen=True)
class SensesRequest(WordRequest):
    """A text with the word, and how its occurrences are grouped."""

    text: Annotated[
        str | Path,
        Help(".txt, .jsonl or .parquet, or a folder of them", flag="FILE", path="the text", kind=Path),
    ]
    model: Annotated[str | Path, MODEL]
    _: dataclasses.KW_ONLY
    clusters: int | None = help_field(
        None,
        "number of groups; auto: by the silhouette, 1 to 6 [auto]",
        library="number of groups; by default chosen by the silhouette",
        metavar="K|auto",
        kind=str,
    )
    method: str = help_field("k-means", "k-means or agglomerative", choices=METHODS)
    most: int = help_field(2000, "maximum number of occurrences to use", least=2)
    contexts: int = help_field(3, "contexts to print per group", least=1)
    beside: str | None = help_field(None, "compare each group with another word", metavar="WORD")


@dataclasses.dataclass(frozen=True)
class ContextsRequest(WordRequest):
    """Two sentences with the word, and what they are compared with."""

    first: Annotated[str, Help("a sentence with the word", flag="A")]
    second: Annotated[str, Help("another sentence with the word", flag="B")]
    model: Annotated[str | Path, MODEL]
    _: dataclasses.KW_ONLY
    text: str | Path | None = path_field("print the nearest contexts of a text: .txt, .jsonl, .parquet, or a folder")
    vectors: str | Path | None = path_field("compare with vectors without context, see `vectors train`", "V")
    top: int = help_field(3, "with --text: contexts to print for each sentence; with --vectors: nearest words", least=1)
    most: int = help_field(2000, "with --text: maximum number of occurrences to use", least=1)


@dataclasses.dataclass(frozen=True)
class DisambiguateRequest(Request, ComputeSettings, TableEncoding):
    """Words in texts, and what is known about their senses."""

    file: Annotated[
        str | Path,
        Help(
            "a table (.csv, .tsv, .jsonl, .parquet, .xlsx) with columns lemma and text; the word is marked as [[word]] "
            "in the text, or there is a column index (of the word, from 0), or start and end (of characters), or it "
            "occurs once. Also read: pos, id",
            flag="FILE",
            path="the file",
            kind=Path,
        ),
    ]
    _: dataclasses.KW_ONLY
    model: str | Path | None = optional(None, MODEL)
    examples: str | Path | None = file_field("labelled examples: such a table with a column sense")
    glosses: str | Path | None = file_field(
        "a table with columns lemma, sense, gloss and perhaps pos; of a word, the most frequent sense comes first. "
        "Used alone for words without labelled examples, and together with examples where some senses have none"
    )
    pair_model: str | Path | None = path_field(
        "score text and gloss together with a fine-tuned model of pairs, in place of vectors; see `gloss-pairs`",
        "DIR",
        path="the model",
        kind=str,
    )
    method: str = help_field(
        CENTROID, "with --examples: the nearest centroid of a sense, or the nearest example", choices=SENSE_METHODS
    )
    layers: str = optional("last", LAYERS)
    prior: float = help_field(
        0.0,
        "with --glosses: weight of the order of the senses: this times log(1 / number of the sense) is added",
        least=0.0,
        most=1e6,
    )
    evaluate: bool = help_field(
        False, "score the answers by a column sense, against the most frequent sense or the first gloss"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.examples is not None or self.glosses is not None,
            expected="--examples, --glosses or both",
            found="neither",
            fix="name a table of labelled examples or of glosses",
        )
        for name, other in (
            ("pair_model", "glosses"),
            ("prior", "glosses"),
            ("method", "examples"),
            ("layers", "examples"),
        ):
            is_used = name not in self.given or getattr(self, other) is not None
            require_other(is_used, f"--{name.replace('_', '-')}", f"--{other}")
        require(
            self.model is not None or (self.examples is None and self.pair_model is not None),
            expected="--model for the vectors of labelled examples and glosses",
            found="none",
            fix="name a model",
        )
        require_other(
            None in (self.model, self.pair_model) or self.examples is not None,
            "--model next to --pair-model",
            "--examples",
            "leave --model out: without examples, the model of pairs scores alone",
        )


@dataclasses.dataclass(frozen=True)
class GlossPairsRequest(Request, TableEncoding):
    """Words in texts with their senses, and glosses."""

    file: Annotated[
        str | Path,
        Help("labelled examples, as in `disambiguate --examples`", flag="FILE", path="the file", kind=Path),
    ]
    glosses: Annotated[
        str | Path, Help("a table with columns lemma, sense, gloss and perhaps pos", path="the glosses", kind=Path)
    ]
