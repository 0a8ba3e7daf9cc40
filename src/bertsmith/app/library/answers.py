"""The predictions and scores of several examples together, with a warning of what was truncated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.app.library.inputs import warn_cut
from bertsmith.base.core.progress import quiet, unseen
from bertsmith.base.core.settings import require
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.models.heads.vector_forms import BY_PRODUCT
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.token_vectors import max_sim
from bertsmith.tasks.metrics.vectors import similarities
from bertsmith.tasks.specs.task import Prediction
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Encoded

Vectors = npt.NDArray[np.float32]
Scored = list[tuple[float, Vectors | None]]  # scores of passages, with the vectors that were compared


def predicted(predictor: Predictor, examples: Sequence[Any]) -> list[Any]:
    """The predictions of examples; those of texts and of pairs are computed separately if there are both."""
    is_pair = [getattr(example, "second", None) is not None for example in examples]
    answers: dict[int, Prediction] = {}
    for kind in sorted(set(is_pair)):
        numbers = [number for number, of_pair in enumerate(is_pair) if of_pair == kind]
        part = [examples[number] for number in numbers]
        answers |= zip(numbers, predictor.predict(part, unseen), strict=True)
    warn_cut(answers[number].cut_tokens for number in range(len(examples)))
    return [answers[number] for number in range(len(examples))]


def scored_by_pairs(predictor: Predictor, pairs: Sequence[TextExample], *, raw: bool = False) -> Scored:
    """The score, or the raw score, of each pair of query and passage, by a model that reads both together."""
    with quiet():
        scored = PairScorer(predictor).scored(pairs, raw=raw)
    warn_cut(cut for _, cut in scored)
    return [(score, None) for score, _ in scored]


def scored_by_vectors(embedder: Embedder, pairs: Sequence[TextExample]) -> Scored:
    """The similarity of the vectors of the query and of each passage, and the latter; of tokens, a score alone.

    Args:
        embedder: with normalized vectors if it compares by cosine, or of late interaction.
        pairs: with the same query.
    """
    if isinstance(embedder, TokenEmbedder):
        return _scored_by_tokens(embedder, pairs)
    require(
        embedder.encoder.of_queries is None,
        expected="a model that reads queries as it reads passages, to compare a query with some passages",
        found="one with weights for the pieces of queries",
        fix="use it with `search`",
    )
    encoded = encoded_texts(pairs, embedder.encoder.tokenizer)
    texts = encoded.select(np.concatenate([[0], np.arange(1, len(encoded), 2)]))  # the query once
    vectors, cut = embedder.embed_encoded(texts)
    warn_cut(cut.tolist())
    if embedder.compares_units or embedder.is_sparse or embedder.similarity == BY_PRODUCT:
        # Not a matrix product: its last digits depend on the position of a row.
        scores = (vectors[1:] * vectors[0]).sum(axis=1)
    else:
        scores = similarities(np.repeat(vectors[:1], len(vectors) - 1, axis=0), vectors[1:], embedder.similarity)
    return [(float(score), vector) for score, vector in zip(scores, vectors[1:], strict=True)]


def _scored_by_tokens(embedder: TokenEmbedder, pairs: Sequence[TextExample]) -> Scored:
    """The score of each pair of query and passage by the vectors of their tokens.

    Args:
        pairs: with the same query, tokenized by the embedder.
    """
    recipe, pieces = embedder.recipe, [pair.pieces for pair in pairs if pair.pieces is not None]
    first = np.zeros(1, dtype=np.int64)
    query, _ = embedder.of_encoded(pieces[0].select(first), recipe.queries)
    passages = Encoded.joined([of_pair.select(first + 1) for of_pair in pieces])
    vectors, cut = embedder.of_encoded(passages, recipe.documents)
    warn_cut(cut.tolist())
    return [(score, None) for score in max_sim(query, vectors, is_mean=recipe.is_mean)[0].tolist()]
