"""Vectors of texts from a frozen encoder, and the features of pairs of them, for linear models.

Letters: E examples, D width.
"""

from collections.abc import Sequence

import numpy as np

from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.frozen import FrozenEncoder, Vectors
from bertsmith.tasks.specs.task import Task
from bertsmith.tasks.specs.whole_texts import pooled_logits


def text_vectors(
    encoder: FrozenEncoder,
    task: Task,
    examples: Sequence[Example],
    choice: LayerChoice,
    pooling: str = "mean",
) -> Vectors:
    """One vector per text, float32 [E, width], encoded as the task encodes texts; layers are summed unweighted.

    Args:
        pooling: one of `encoding.frozen.POOLINGS`. Windows of one text are averaged.
    """
    encoder.require_positions(task.spec.settings.max_length)
    features = task.encode(examples, encoder.tokenizer)
    with encoder.progress(features.rows) as progress:
        vectors = encoder.row_vectors(features.rows, choice, pooling, progress)
    return pooled_logits(vectors, features, "mean")


def pair_features(first: Vectors, second: Vectors) -> Vectors:
    """Both vectors of each pair, their absolute difference and their product, float32 [E, 4 D].

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations" (2017), section 3.1.
    """
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)
