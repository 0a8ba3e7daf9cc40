"""Scores of vectors on labelled texts: scored pairs, labelled pairs, partners, triplets and clusters.

The vectors are those of `embed`, with the prompt for queries in front of the first text of an example and that for
passages in front of the others, so any model that `embed` reads can be scored.

Source: Muennighoff et al. (2023), "MTEB: Massive Text Embedding Benchmark", section 3.2, for the scores.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import v_measure_score

from bertsmith.base.core.errors import InputError
from bertsmith.inference.vectors.embedder import BLOCK, Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.tasks.datasets.examples import Example, TextExample, texts_of_group
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.metrics.token_vectors import TokenMatrix
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.predictions import SimilarityPrediction
from bertsmith.tasks.specs.similarity import similarity_scores, token_predictions
from bertsmith.tasks.specs.vector_gold import metrics_of_examples

CLUSTERING_BATCH, CLUSTERING_SEED = 500, 42  # of k-means, those of MTEB
CLUSTERING = "clustering"  # the task whose examples are texts with a label each


def compared(embedder: Embedder, examples: Sequence[Example]) -> list[SimilarityPrediction]:
    """The vectors of the texts of each example [E], with the cosines of its first text with the others."""
    if not examples:
        return []
    groups = [texts_of_group(example) for example in examples]
    counts = np.array([len(texts) for texts in groups])
    is_first = np.zeros(counts.sum(), dtype=bool)
    is_first[np.cumsum(counts) - counts] = True
    every = list(itertools.chain.from_iterable(groups))
    if isinstance(embedder, TokenEmbedder):
        return _compared_by_tokens(embedder, every, is_first, counts)
    vectors = np.empty((len(every), embedder.width), dtype=np.float32)
    cut = np.empty(len(every), dtype=np.int64)
    for chosen, reader in ((is_first, embedder.for_queries()), (~is_first, embedder.for_passages())):
        texts = [every[index] for index in np.flatnonzero(chosen).tolist()]
        vectors[chosen], cut[chosen] = reader.embed_counting(texts)
    return SimilarityPrediction.of_each(vectors, counts, cut, embedder.similarity)


def _compared_by_tokens(
    embedder: TokenEmbedder, texts: Sequence[str], is_first: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64]
) -> list[SimilarityPrediction]:
    """`compared` by the vectors of tokens; the first text of each example is its query."""
    parts, lost = [], np.empty(len(texts), dtype=np.int64)
    for chosen, side in ((is_first, embedder.recipe.queries), (~is_first, embedder.recipe.documents)):
        part, lost[chosen] = embedder.of_encoded(
            embedder.encode_side([texts[number] for number in np.flatnonzero(chosen).tolist()], side), side
        )
        parts.append(part)
    places = np.argsort(np.concatenate([np.flatnonzero(is_first), np.flatnonzero(~is_first)]))
    both = TokenMatrix(
        np.concatenate([part.vectors for part in parts]), np.concatenate([part.lengths for part in parts])
    ).select(places)
    return token_predictions(np.asarray(both.vectors, dtype=np.float32), both.lengths, counts, lost)


def cosines_of(embedder: Embedder, examples: Sequence[Example]) -> list[tuple[float, ...]]:
    """The cosines of the first text of each example [E] with its others; 1 for a single text."""
    blocks = (compared(embedder, examples[start : start + BLOCK]) for start in range(0, len(examples), BLOCK))
    return [(row.value, *row.others) for block in blocks for row in block]


def score_vectors(
    embedder: Embedder, examples: Sequence[Example], widths: Sequence[int] = ()
) -> tuple[dict[str, float], list[SimilarityPrediction]]:
    """The scores that fit the examples, and the vectors of each example's texts."""
    if not metrics_of_examples(examples):
        raise InputError(
            expected="two texts or more in each example",
            found="single texts",
            fix="give scored pairs, pairs or triplets, or --task clustering for labelled texts",
        )
    predictions = compared(embedder, examples)
    return similarity_scores(examples, predictions, widths, embedder.similarity), predictions


def score_clusters(embedder: Embedder, examples: Sequence[TextExample]) -> tuple[dict[str, float], list[int]]:
    """The v-measure of k-means clusters of the vectors of labelled texts, and the tokens cut from each text."""
    labels = [labels_of(example)[0] for example in examples]
    if len(set(labels)) < 2:
        raise InputError(
            expected="texts with different labels to compare clusters with",
            found=f"the label {labels[0]!r} alone",
            fix="name the label column with --label-column",
        )
    vectors, cut = embedder.embed_counting([example.first for example in examples])
    return {"v_measure": clustering_v_measure(unit(vectors), labels)}, cut.tolist()


def clustering_v_measure(vectors: npt.NDArray[np.floating[Any]], labels: npt.ArrayLike) -> float:
    """How well k-means clusters of the vectors [E, D] agree with the labels [E], from 0 to 1; k is that of the labels.

    Source: Rosenberg and Hirschberg, "V-measure" (2007); k-means in batches as in MTEB.
    """
    gold = np.asarray(labels)
    model = MiniBatchKMeans(
        n_clusters=len(np.unique(gold)), batch_size=CLUSTERING_BATCH, n_init="auto", random_state=CLUSTERING_SEED
    )
    return float(v_measure_score(gold, model.fit(vectors).labels_))
