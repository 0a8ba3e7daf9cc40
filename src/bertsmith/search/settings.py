"""How passages are searched: the settings of one search."""

import dataclasses

from bertsmith.settings import help_field, require

VECTORS, BY_WORDS, HYBRID = SYSTEMS = ("vectors", "bm25", "hybrid")
DEPTH = 100  # passages that a first search hands on, and that recall@100 looks at


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How passages are searched.

    Raises:
        ConfigError: a value is impossible.
    """

    model: str | None = help_field(None, "makes the vectors; not needed to search by words alone")
    system: str = help_field(VECTORS, "vectors, bm25 or hybrid")
    rerank: str | None = help_field(None, "a fine-tuned model of pairs, which reads the best passages again")
    depth: int = help_field(DEPTH, "passages that are fused or read again")
    index: str | None = help_field(None, "the file that keeps the vectors of the passages for the next search")
    changes: str | None = help_field(None, "changes of all vectors, as `bertsmith vectors --save-changes` kept them")
    approximate: bool = help_field(False, "search by a graph, for millions of passages (needs usearch)")
    bm25_words: str = help_field("words", "what the words of BM25 are: words, or pieces of the model's vocabulary")
    k1: float = help_field(0.9, "of BM25: how much it counts that a word comes again")
    b: float = help_field(0.4, "of BM25: how much the length of a passage counts, 0 to 1")
    text_column: str | None = help_field(None, "column of the passages, where it has no usual name")
    query_column: str | None = help_field(None, "the same of the file of queries")
    pooling: str | None = help_field(None, "mean, cls, pooler or max; what the model says if not given")
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("fp32", "fp32, bf16, int8 and the like")

    def __post_init__(self) -> None:
        for name, value, known in (
            ("system", self.system, SYSTEMS),
            ("bm25_words", self.bm25_words, ("words", "pieces")),
        ):
            require(
                value in known, expected=f"{' or '.join(known)} as {name}", found=repr(value), fix="use one of them"
            )
        require(self.depth >= 1, expected="depth of at least 1", found=self.depth, fix="raise depth")
        require(
            self.model is not None or (self.system == BY_WORDS and self.bm25_words == "words"),
            expected="a model that makes the vectors",
            found="none",
            fix="name a model, or search by words alone with system 'bm25'",
        )
