"""GloVe: vectors whose products are the logarithms of how often two words occur near each other.

V words, D width, E entries of the table of counts that are not 0.

Source: Pennington, Socher and Manning, "GloVe: global vectors for word representation" (2014); glove.c.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from bertsmith.errors import TrainingError
from bertsmith.progress import Progress
from bertsmith.randomness import generator
from bertsmith.word_vectors.draws import Ids
from bertsmith.word_vectors.settings import WordVectorSettings
from bertsmith.word_vectors.updates import Floats, add_rows

LARGEST_GRADIENT = 100.0  # of a component
MOST_BLOCK = 1024  # entries whose gradients are computed from the same vectors
MOST_REPEATS = 8  # expected in a block, of the row with most entries


class Entries(NamedTuple):
    """Counts that are not 0: of row `words[e]` and column `contexts[e]`, int32 [E] and float32 [E]."""

    words: Ids
    contexts: Ids
    counts: Floats


class GloVe:
    """The state of a training.

    Args:
        counts: float32 [V, V], how often words occur near each other, weighted by distance.
        settings: resolved ones.

    Attributes:
        tables: float32 tables [V, D + 1] by name, the last column the bias: `words` and `contexts`, and the sums of
            squared steps of each, `word_squares` and `context_squares`, from 1.
    """

    def __init__(self, counts: sparse.csr_matrix, settings: WordVectorSettings) -> None:
        assert settings.width is not None
        self.settings = settings
        filled = counts.tocoo()
        self.entries = Entries(filled.row.astype(np.int32), filled.col.astype(np.int32), filled.data.astype(np.float32))
        fullest = max(int(np.diff(counts.tocsr().indptr).max()), 1)
        self.block = int(np.clip(MOST_REPEATS * len(filled.data) // fullest, 1, MOST_BLOCK))
        shape = counts.shape[0], settings.width + 1
        rng = generator(settings.seed, "word vectors")
        self.tables = {
            name: (rng.random(shape, dtype=np.float32) - np.float32(0.5)) / np.float32(settings.width)
            for name in ("words", "contexts")
        }
        self.tables |= {name: np.ones(shape, dtype=np.float32) for name in ("word_squares", "context_squares")}

    @property
    def vectors(self) -> Floats:
        """The word vectors, the sums of both sides without their biases, float32 [V, D]."""
        return np.ascontiguousarray((self.tables["words"] + self.tables["contexts"])[:, :-1])

    def train_epoch(self, epoch: int, progress: Progress) -> float:
        """Trains on all entries once, in a random order; returns the mean cost of an entry."""
        order = generator(self.settings.seed, "glove", epoch).permutation(len(self.entries.counts))
        words, contexts, counts = self.entries
        cost = 0.0
        for start in range(0, len(order), self.block):
            part = order[start : start + self.block]
            cost += self.update(Entries(words[part], contexts[part], counts[part]))
            if not np.isfinite(cost):
                raise TrainingError(expected="a finite cost", found="NaN or infinity", fix="lower --learning-rate")
            progress.advance(len(part), f"cost {cost / (start + len(part)):.5f}")
        return cost / max(len(order), 1)

    def update(self, entries: Entries) -> float:
        """Learns from some entries, in place; returns the sum of their costs, half the weighted squared errors.

        The gradients of all entries are computed from the same vectors; the steps, and their squares, are then added.
        """
        settings = self.settings
        assert settings.learning_rate
        assert settings.maximum_count
        assert settings.power is not None
        words, contexts = self.tables["words"][entries.words], self.tables["contexts"][entries.contexts]  # [E, D + 1]
        products = np.einsum("ed,ed->e", words[:, :-1], contexts[:, :-1])
        errors = products + words[:, -1] + contexts[:, -1] - np.log(entries.counts)
        weighted = np.minimum(entries.counts / np.float32(settings.maximum_count), 1) ** settings.power * errors
        weighted = weighted.astype(np.float32)
        words[:, -1] = contexts[:, -1] = 1  # the derivative of a bias
        sides = (
            ("words", "word_squares", entries.words, contexts),
            ("contexts", "context_squares", entries.contexts, words),
        )
        for name, squares, rows, others in sides:
            steps = np.clip(weighted[:, None] * others, -LARGEST_GRADIENT, LARGEST_GRADIENT)
            steps *= np.float32(settings.learning_rate)
            minus = np.full(len(rows), -1, dtype=np.float32)
            scaled = steps / np.sqrt(self.tables[squares][rows])
            add_rows(self.tables[name], rows, minus, scaled, 1)
            add_rows(self.tables[squares], rows, -minus, steps * steps, 1)
        return float(0.5 * (weighted * errors).sum(dtype=np.float64))
