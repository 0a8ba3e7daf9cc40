"""Passages searched and re-ranked by the vectors of their tokens, with a model of late interaction.

Letters: Q queries, P passages, k ranked passages.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import Progress, amount, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import memory_bytes
from bertsmith.inference.search.rankings import Ranking, best, joined
from bertsmith.inference.search.token_codes import TokenCoder
from bertsmith.inference.vectors.embedder import BLOCK
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.tasks.encoding.row_encoder import MOST_MEMORY
from bertsmith.tasks.metrics.token_vectors import Documents, TokenMatrix, max_sim
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import truncation_note

_REMEMBERED = 2**28  # bytes of vectors of passages that were scored
_SAMPLE = 1024  # passages that centroids are fitted to
_QUERIES = 64  # that are compared with all passages together


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenIndex:
    """Passages that can be searched by the vectors of their tokens, all of which are compared.

    Attributes:
        embedder: gives the vectors of queries.
        parts: the passages in several parts, in half precision or as codes.
    """

    embedder: TokenEmbedder
    parts: Sequence[Documents]

    @staticmethod
    def of(texts: Sequence[str], embedder: TokenEmbedder, bits: int | None = None) -> "TokenIndex":
        """The index of some passages.

        Args:
            bits: of each number, as codes; None for half precision.
        """
        before, most = (embedder.cut_texts, embedder.cut_tokens), MOST_MEMORY * memory_bytes()
        coder = None if bits is None else coder_of(texts, embedder, bits)
        parts: list[Documents] = []
        size = 0
        how = embedder.encoder.runtime.precision
        with Progress("vectors of tokens", total=len(texts), unit="passages", how=how) as progress:
            for start in range(0, len(texts), BLOCK):
                part = embedder.documents(texts[start : start + BLOCK])
                half = TokenMatrix(part.vectors.astype(np.float16), part.lengths)
                codes = None if coder is None else coder.encode(part)
                size += half.vectors.nbytes if codes is None else codes.nbytes
                parts.append(codes or half)
                expected = size * len(texts) / min(start + BLOCK, len(texts))
                if 0 < most < expected:
                    raise ConfigError(
                        expected=f"at most {amount(most)}B of vectors of tokens, half of the memory",
                        found=f"about {amount(expected)}B for {len(texts):,} passages",
                        fix="use --token-bits 2, or search by words and name this model with --rerank",
                    )
                progress.advance(min(BLOCK, len(texts) - start), f"{amount(size)}B")
        if cut := embedder.cut_texts - before[0]:
            limit = embedder.most(embedder.recipe.documents)
            warn(truncation_note("passages", limit, cut, embedder.cut_tokens - before[1]))
        return TokenIndex(embedder=embedder, parts=parts)

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """The best `top` passages of each query; each passage is compared."""
        asked, parts = query_tokens(queries, self.embedder), []
        with Progress("comparing tokens", total=len(queries), unit="queries", least=1.0) as progress:
            for start in range(0, len(queries), _QUERIES):
                some = asked.select(np.arange(start, min(start + _QUERIES, len(queries))))
                parts.append(best(np.hstack([max_sim(some, part) for part in self.parts]), top))
                progress.advance(len(some))
        return joined(parts)


def query_tokens(queries: Sequence[str], embedder: TokenEmbedder) -> TokenMatrix:
    """The vectors of queries, whose `max_sim` is the score of the model; warns how many were truncated."""
    before = embedder.cut_texts, embedder.cut_tokens
    asked = embedder.queries(queries)
    if cut := embedder.cut_texts - before[0]:
        most = embedder.most(embedder.recipe.queries)
        warn(truncation_note("queries", most, cut, embedder.cut_tokens - before[1]))
    if not embedder.recipe.is_mean:
        return asked
    sizes = np.repeat(asked.lengths, asked.lengths)[:, None]
    return TokenMatrix(np.asarray(asked.vectors / sizes, dtype=np.float32), asked.lengths)


def coder_of(texts: Sequence[str], embedder: TokenEmbedder, bits: int) -> TokenCoder:
    """The coder for the vectors of some passages, fitted to those of a sample."""
    chosen = generator(0, "sample of passages").permutation(len(texts))[:_SAMPLE]
    before = embedder.cut_texts, embedder.cut_tokens
    sample = embedder.documents([texts[number] for number in chosen])
    embedder.cut_texts, embedder.cut_tokens = before  # all passages are counted later
    total = len(sample.vectors) * len(texts) // len(sample)
    return TokenCoder.fitted(sample.rows(0, len(sample.vectors)), total, bits)


class TokenScorer:
    """Scores how well passages answer a query by the vectors of their tokens.

    Attributes:
        cut: the number of queries and passages truncated so far.
        label: "", as of a model that gives a number.
    """

    label = ""

    def __init__(self, embedder: TokenEmbedder) -> None:
        self.embedder, self.cut = embedder, 0
        self._known: dict[str, TokenMatrix] = {}
        self._bytes = 0

    def scores(self, query: str, passages: Sequence[str], known: dict[str, Encoded] | None = None) -> list[float]:
        """One score per passage; higher is better. Vectors of passages are remembered, as far as they fit.

        Args:
            known: not used; see `PairScorer.scores`.
        """
        embedder, before = self.embedder, self.embedder.cut_texts
        asked = embedder.queries([query])
        new = [text for text in dict.fromkeys(passages) if text not in self._known]
        made = embedder.documents(new)
        ready = {**self._known}
        for text, vectors in zip(new, made, strict=True) if new else ():
            ready[text] = TokenMatrix(vectors, np.array([len(vectors)], dtype=np.int64))
            if self._bytes + vectors.nbytes <= _REMEMBERED:
                self._known[text] = TokenMatrix(vectors.copy(), ready[text].lengths)
                self._bytes += vectors.nbytes
        self.cut += embedder.cut_texts - before
        if not passages:
            return []
        matrix = TokenMatrix(
            np.concatenate([ready[text].vectors for text in passages]),
            np.concatenate([ready[text].lengths for text in passages]),
        )
        return [float(score) for score in max_sim(asked, matrix, is_mean=embedder.recipe.is_mean)[0]]
