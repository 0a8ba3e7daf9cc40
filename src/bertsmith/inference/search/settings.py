"""The settings of a search."""

import dataclasses

from bertsmith.base.core.settings import help_field, require, require_limits, require_number
from bertsmith.text.documents.encodings import UTF_8, require_encoding

VECTORS, BY_WORDS, HYBRID, TF_IDF, ONE_HOT = SYSTEMS = ("vectors", "bm25", "hybrid", "tf-idf", "one-hot")
WORDS_ALONE = (BY_WORDS, TF_IDF, ONE_HOT)  # these need no model
DEPTH = 100  # passages that are fused or re-ranked by default, and that recall@100 counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of a search."""

    model: str | None = help_field(None, "model for the vectors; not needed to search by words alone")
    system: str = help_field(VECTORS, "vectors, bm25, hybrid, tf-idf or one-hot")
    rerank: str | None = help_field(None, "re-rank the best `depth` passages with this fine-tuned model of pairs")
    depth: int = help_field(DEPTH, "passages to fuse or re-rank")
    index: str | None = help_field(None, "store the passage vectors in this file and reuse them in later searches")
    changes: str | None = help_field(None, "apply changes saved by `bertsmith vectors --save-changes` to all vectors")
    approximate: bool = help_field(
        False, "approximate search with a graph index, for millions of passages (needs usearch)"
    )
    bm25_words: str = help_field("words", "terms of a search by words: words, or pieces of the model's vocabulary")
    k1: float = help_field(0.9, "BM25: how much repeated words count")
    b: float = help_field(0.4, "BM25: how much passage length counts, 0 to 1")
    text_column: str | None = help_field(None, "column with the text, if it has no common name")
    query_column: str | None = help_field(None, "the same for the file of queries")
    encoding: str = help_field(
        UTF_8,
        "encoding of text files, such as cp1252; a byte order mark of UTF-8, UTF-16 or UTF-32 in a file takes "
        "precedence",
    )
    pooling: str | None = help_field(None, "mean, cls, pooler or max [the model's setting]")
    query_prompt: str | None = help_field(None, "the model's prompt for queries, by name, or none [query]")
    passage_prompt: str | None = help_field(
        None, "the model's prompt for passages, by name, or none [document, passage or corpus]"
    )
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("fp32", "auto, fp32, bf16, fp16 (GPU only), fp64 or int8 (CPU only)")
    products: str = help_field("auto", "linear layers: packed, plain or auto: packed if possible")

    def __post_init__(self) -> None:
        require_encoding(self.encoding)
        for name, value, known in (
            ("system", self.system, SYSTEMS),
            ("bm25_words", self.bm25_words, ("words", "pieces")),
        ):
            require(
                value in known, expected=f"{' or '.join(known)} as {name}", found=repr(value), fix="use one of them"
            )
        require_limits(self)
        require_number("depth", self.depth, least=1)
        require(
            self.model is not None or (self.system in WORDS_ALONE and self.bm25_words == "words"),
            expected="a model that makes the vectors",
            found="none",
            fix="name a model, or search by words alone with system 'bm25'",
        )
