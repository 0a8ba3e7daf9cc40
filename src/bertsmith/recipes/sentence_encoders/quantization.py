"""The cost of int8 for the vectors of a model: their cosine to those in fp32, and the scores of labelled texts.

Source: Xiao et al. (2023), "SmoothQuant", for scales that are fixed beforehand; see `products.calibration`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import quiet
from bertsmith.inference.predictors.quantization import (
    Calibration,
    Quantization,
    calibrated,
    require_int8,
    trials_within,
)
from bertsmith.inference.predictors.request import INT8_LOSS
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.int8_scales import RecordedInt8
from bertsmith.models.products.int8_linear import InputScale
from bertsmith.recipes.sentence_encoders.evaluation import score_vectors
from bertsmith.tasks.datasets.examples import Example, TextExample, TripletExample, texts_of_group
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.metrics.vectors import cosines
from bertsmith.tasks.specs.vector_gold import metrics_of_examples

COSINE = "cosine"  # the metric of texts without labels; 1 in fp32
MOST_TEXTS = 2048  # whose vectors are compared


def calibrate_vectors(source: str | Path, texts: Sequence[str]) -> Calibration:
    """The scales of a model's inputs, measured while it embeds the first texts; see `quantization.calibrated`."""
    with quiet():  # the user did not ask for plain products
        embedder = load_embedder(source, device="cpu", precision="fp32", products="plain")
    encoder = embedder.encoder
    assert isinstance(encoder, FrozenEncoder), "exports have no layers to observe"
    return calibrated(encoder.model, embedder.embed, texts)


def quantize_vectors(
    source: str | Path,
    examples: Sequence[Example],
    limit: float = INT8_LOSS,
    calibration: Calibration | None = None,
) -> tuple[str, float, list[Quantization]]:
    """The metric, its value in fp32, and the int8 trials up to the first that loses at most `limit` of it.

    The metric of pairs and triplets is the first of their scores, such as Spearman's correlation for scored pairs. That
    of single texts is the mean cosine of their vectors to those in fp32, which every trial has.

    Args:
        examples: texts, pairs or triplets; the vectors of the first `MOST_TEXTS` texts are compared.
        calibration: from `calibrate_vectors`; None for one scale per token in all trials.
    """
    require_int8()
    texts = texts_of(examples)[:MOST_TEXTS]
    metrics = metrics_of_examples(examples)
    metric = metrics[0] if metrics else COSINE
    reference = load_embedder(source, device="cpu", precision="fp32")
    vectors = reference.embed(texts)

    def score(embedder: Embedder, cosine: float) -> float:
        return score_vectors(embedder, examples)[0][metric] if metrics else cosine

    def measure(kept: tuple[str, ...], scales: Mapping[str, InputScale] | None) -> Quantization:
        int8 = RecordedInt8(kept, scales, "")
        embedder = load_embedder(source, device="cpu", precision="int8", int8=int8)
        cosine = float(np.mean(cosines(embedder.embed(texts), vectors)))
        return Quantization(kept=kept, score=score(embedder, cosine), fixed=scales is not None, cosine=cosine)

    exact = score(reference, 1.0)
    return metric, exact, trials_within(limit, exact, measure, calibration)


def texts_of(examples: Sequence[Example]) -> list[str]:
    """The texts of examples, in order."""
    if not isinstance(examples[0], TextExample | TripletExample):
        raise InputError(
            expected="texts, pairs or triplets, for a model that gives vectors",
            found="examples of another kind",
            fix="name a file of texts, or of scored pairs (--task similarity)",
        )
    return [text for example in examples for text in texts_of_group(example)]
