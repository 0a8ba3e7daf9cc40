"""GloVe: vectors whose dot products approximate the logarithms of co-occurrence counts.

V words, D width, E entries of the table of counts that are not 0.

Source: Pennington, Socher and Manning, "GloVe: global vectors for word representation" (2014); glove.c.
"""

from collections.abc import Iterator

import numpy as np

from bertsmith.base.core.errors import TrainingError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.randomness import generator
from bertsmith.inference.word_vectors.compiled import compiled, train_entries
from bertsmith.inference.word_vectors.settings import COMPILED, WordVectorSettings
from bertsmith.inference.word_vectors.shared_work import in_threads
from bertsmith.inference.word_vectors.updates import Floats, add_rows
from bertsmith.text.corpus.pairs import Entries, PairFiles

LARGEST_GRADIENT = 100.0  # of a component
MOST_BLOCK = 1024  # entries whose gradients are computed from the same vectors
MOST_REPEATS = 8  # expected in a block, of the row with most entries
_PART = 2**16  # entries that compiled code learns from at once


class GloVe:
    """The state of a training.

    Args:
        pairs: the counts, how often words occur near each other, weighted by distance.

    Attributes:
        tables: float32 tables [V, D + 1] by name, the last column the bias: `words` and `contexts`, and the sums of
            squared steps of each, `word_squares` and `context_squares`, from 1.
    """

    def __init__(self, pairs: PairFiles, size: int, settings: WordVectorSettings) -> None:
        assert settings.width is not None
        self.settings = settings
        self.pairs = pairs
        self.block = int(np.clip(MOST_REPEATS * pairs.total // max(pairs.most, 1), 1, MOST_BLOCK))
        shape = size, settings.width + 1
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
        is_compiled = self.settings.engine == COMPILED
        learn, size = (self.update_in_order, _PART) if is_compiled else (self.update, self.block)
        cost, done = 0.0, 0
        parts = ((part, len(part.counts)) for part in self._parts(epoch, size))
        for part_cost, count in in_threads(lambda item: (learn(item[0]), item[1]), parts, self.settings.threads):
            cost += part_cost
            done += count
            if not np.isfinite(cost):
                raise TrainingError(expected="a finite cost", found="NaN or infinity", fix="lower --learning-rate")
            progress.advance(count, f"cost {cost / done:.5f}")
        return cost / max(done, 1)

    def _parts(self, epoch: int, size: int) -> Iterator[Entries]:
        rng = generator(self.settings.seed, "glove", epoch)
        for number in rng.permutation(self.pairs.files).tolist():
            entries = self.pairs.shuffled(number, rng)
            for start in range(0, len(entries.counts), size):
                yield entries.part(start, start + size)

    def update_in_order(self, entries: Entries) -> float:
        """Learns from some entries, one after the other, in place; returns the sum of their costs."""
        tables = [self.tables[name] for name in ("words", "contexts", "word_squares", "context_squares")]
        cost: float = compiled(train_entries)(
            *tables, entries.words, entries.contexts, np.log(entries.counts), self._weights(entries.counts),
            np.float32(self.settings.learning_rate or 0), np.float32(LARGEST_GRADIENT),
        )  # fmt: skip
        return cost

    def _weights(self, counts: Floats) -> Floats:
        """The weights of errors, float32 [E], at most 1."""
        assert self.settings.maximum_count
        assert self.settings.power is not None
        share = np.minimum(counts / np.float32(self.settings.maximum_count), 1)
        return np.asarray(share**self.settings.power, dtype=np.float32)

    def update(self, entries: Entries) -> float:
        """Learns from some entries, in place; returns the sum of their costs, half the weighted squared errors.

        The gradients of all entries are computed from the same vectors; the steps, and their squares, are then added.
        """
        settings = self.settings
        assert settings.learning_rate
        words, contexts = self.tables["words"][entries.words], self.tables["contexts"][entries.contexts]  # [E, D + 1]
        products = np.einsum("ed,ed->e", words[:, :-1], contexts[:, :-1])
        errors = products + words[:, -1] + contexts[:, -1] - np.log(entries.counts)
        weighted = self._weights(entries.counts) * errors
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
