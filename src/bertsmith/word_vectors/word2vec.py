"""Word2Vec: skip-gram and CBOW, with negative sampling, hierarchical softmax, or both.

V words, D width, B words of a block, C contexts of one word at most, P examples, K outputs of each.

Source: Mikolov and others, "Efficient estimation of word representations in vector space" (2013); word2vec.c.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.errors import TrainingError
from bertsmith.progress import Progress
from bertsmith.randomness import generator
from bertsmith.word_vectors.draws import NO_WORD, NOISE_POWER, Ids, Integers, NoiseWords, keep_probabilities, windows
from bertsmith.word_vectors.huffman import Paths, huffman_paths
from bertsmith.word_vectors.settings import SKIP_GRAM, WordVectorSettings
from bertsmith.word_vectors.updates import Examples, Floats, Gradient, add_rows, update_outputs
from bertsmith.word_vectors.word_stream import WordStream

LOWEST_RATE = 1e-4  # of the initial learning rate
MOST_BLOCK = 256  # words
# The learning rate times how often a row of a table is expected in a block. The gradients of a row are computed from
# the same value and add up, so that more would overshoot.
MOST_STEP = 0.5


class Block(NamedTuple):
    """A block of words to learn from.

    Attributes:
        centres: int32 [B].
        contexts: int32 [B, C]; -1 for none.
    """

    centres: Ids
    contexts: Ids


class Word2Vec:
    """The state of a training: the tables of vectors, and what follows from the counts of the words.

    Args:
        counts: int64 [V], descending.
        settings: resolved ones, of skip-gram or CBOW.

    Attributes:
        tables: float32 tables by name: `inputs` [V, D], from which word vectors come; `outputs` [V, D] with negative
            samples; `nodes` [V - 1, D] with hierarchical softmax.
    """

    def __init__(self, counts: Integers, settings: WordVectorSettings) -> None:
        assert settings.width is not None
        assert settings.negatives is not None
        assert settings.subsample is not None
        self.settings = settings
        self.counts = counts
        self.negatives = settings.negatives
        self.keep = keep_probabilities(counts, settings.subsample)
        self.noise = NoiseWords(counts) if self.negatives else None
        self.paths = huffman_paths(counts) if settings.hierarchical else None
        self.block = settings.block or safe_block(counts, self.keep, settings)
        shape = len(counts), settings.width
        start = generator(settings.seed, "word vectors").random(shape, dtype=np.float32)
        self.tables = {"inputs": (start - np.float32(0.5)) / np.float32(settings.width)}
        if self.noise is not None:
            self.tables["outputs"] = np.zeros(shape, dtype=np.float32)
        if self.paths is not None:
            self.tables["nodes"] = np.zeros((shape[0] - 1, shape[1]), dtype=np.float32)

    @property
    def vectors(self) -> Floats:
        """The word vectors, float32 [V, D]."""
        return self.tables["inputs"]

    def train_epoch(self, stream: WordStream, epoch: int, progress: Progress) -> float:
        """Trains on the whole text once; returns the mean loss of a prediction, in nats.

        A prediction is one output: a right word, a noise word or a turn in the tree. The learning rate falls evenly
        with the words that were read.
        """
        settings = self.settings
        assert settings.learning_rate
        assert settings.epochs
        assert settings.window
        words = int(self.counts.sum())
        loss, outputs, done = 0.0, 0, 0
        for chunk, ids in enumerate(stream.chunks()):
            rng = generator(settings.seed, "word2vec", epoch, chunk)
            found = windows(ids, self.keep, settings.window, rng)
            in_chunk = int((ids != NO_WORD).sum())
            for start in range(0, len(found.centres), self.block):
                share = start / len(found.centres)
                passed = (epoch * words + done + share * in_chunk) / (settings.epochs * words)
                rate = settings.learning_rate * max(1 - passed, LOWEST_RATE)
                part = slice(start, start + self.block)
                for gradient in self.update(Block(found.centres[part], found.contexts[part]), rate, rng):
                    loss += gradient.loss
                    outputs += gradient.outputs
            if not np.isfinite(loss):
                raise TrainingError(
                    expected="a finite loss", found="NaN or infinity", fix="lower --learning-rate or --block"
                )
            done += in_chunk
            progress.advance(in_chunk, f"loss {loss / max(outputs, 1):.4f}")
        return loss / max(outputs, 1)

    def update(self, block: Block, learning_rate: float, rng: np.random.Generator) -> list[Gradient]:
        """Learns from one block, in place; returns a gradient per kind of output."""
        if self.settings.method == SKIP_GRAM:
            places, columns = np.nonzero(block.contexts != NO_WORD)
            sources = block.contexts[places, columns][:, None]  # [P, 1]: predicts the centre from each context
            centres = block.centres[places]
        else:
            has_context = (block.contexts != NO_WORD).any(axis=1)
            sources, centres = block.contexts[has_context], block.centres[has_context]  # [P, C]
        if not len(centres):
            return []
        inputs = self.tables["inputs"]
        hidden = _means(inputs, sources)
        gradients = [
            update_outputs(hidden, self.tables[name], examples, learning_rate)
            for name, examples in self._examples(centres, rng)
        ]
        total = gradients[0].hidden if len(gradients) == 1 else gradients[0].hidden + gradients[1].hidden
        # In full to every context word, although each is only a part of the mean.
        weights = (sources != NO_WORD).astype(np.float32)
        add_rows(inputs, sources.ravel(), weights.ravel(), total, sources.shape[1])
        return gradients

    def _examples(self, centres: Ids, rng: np.random.Generator) -> list[tuple[str, Examples]]:
        """The outputs for each example, by the name of their table."""
        found = []
        if self.noise is not None:
            found.append(("outputs", noise_examples(centres, self.noise, self.negatives, rng)))
        if self.paths is not None:
            found.append(("nodes", tree_examples(centres, self.paths)))
        return found


def safe_block(counts: Integers, keep: npt.NDArray[np.float64], settings: WordVectorSettings) -> int:
    """The number of words whose gradients can be added without overshooting, from 1 to 256.

    It is limited by the output that occurs most often: a frequent word, or the root of the Huffman tree.

    Args:
        counts: int64 [V].
        keep: float64 [V], the probability that an occurrence stays.
    """
    assert settings.window
    assert settings.learning_rate
    stays = counts * keep
    noise = counts**NOISE_POWER
    per_example = (stays / stays.sum() + (settings.negatives or 0) * noise / noise.sum()).max()
    if settings.hierarchical:
        per_example = max(per_example, 1.0)
    # The mean radius is half of the largest, on two sides.
    examples = settings.window + 1 if settings.method == SKIP_GRAM else 1
    return int(np.clip(MOST_STEP / (settings.learning_rate * examples * per_example), 1, MOST_BLOCK))


def noise_examples(centres: Ids, noise: NoiseWords, negatives: int, rng: np.random.Generator) -> Examples:
    """Each right word with its noise words; noise that is the right word is left out, and not drawn again."""
    outputs = np.empty((len(centres), 1 + negatives), dtype=np.int32)
    outputs[:, 0] = centres
    drawn = noise.draw((len(centres), negatives), rng)
    outputs[:, 1:] = np.where(drawn == centres[:, None], NO_WORD, drawn)
    labels = np.zeros(outputs.shape, dtype=np.float32)
    labels[:, 0] = 1
    return Examples(outputs, labels, skips_saturated=False)


def tree_examples(centres: Ids, paths: Paths) -> Examples:
    """The inner nodes on the path to each right word; the label of a node is 1 where the turn is 0."""
    labels: npt.NDArray[np.float32] = np.float32(1) - paths.turns[centres]
    return Examples(paths.nodes[centres], labels, skips_saturated=True)


def _means(table: Floats, rows: Ids) -> Floats:
    """The mean of the vectors in each line of `rows` [P, C] of which some may be -1, float32 [P, D]."""
    if rows.shape[1] == 1:
        return table[rows[:, 0]]
    exists = (rows != NO_WORD).astype(np.float32)
    weights = exists / exists.sum(axis=1, keepdims=True)
    return np.asarray((weights[:, None, :] @ table[rows])[:, 0])
