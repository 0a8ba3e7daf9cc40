"""Word2Vec: skip-gram and CBOW, with negative sampling, hierarchical softmax, or both.

V words, D width, B words of a block, C contexts of one word at most, P examples, K outputs of each.

Two engines train: compiled code, which learns one example after the other as the original program does (`compiled.py`),
and NumPy, which computes the gradients of a block of words from the same vectors. Their examples are the same.

Source: Mikolov and others, "Efficient estimation of word representations in vector space" (2013); word2vec.c.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import TrainingError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.randomness import derive, generator
from bertsmith.inference.word_vectors.compiled import SOFTPLUS, compiled, train_words
from bertsmith.inference.word_vectors.draws import (
    NO_WORD,
    NOISE_POWER,
    Ids,
    Integers,
    NoiseWords,
    RandomWords,
    Reaches,
    contexts_of,
    keep_probabilities,
    reaches,
)
from bertsmith.inference.word_vectors.huffman import Paths, huffman_paths
from bertsmith.inference.word_vectors.settings import CBOW, COMPILED, SKIP_GRAM, WordVectorSettings
from bertsmith.inference.word_vectors.shared_work import in_threads
from bertsmith.inference.word_vectors.updates import SIGMOID, Examples, Floats, Gradient, add_rows, update_outputs
from bertsmith.inference.word_vectors.word_stream import WordStream

LOWEST_RATE = 1e-4  # of the initial learning rate
MOST_BLOCK = 256  # words
# The learning rate times how often a row of a table is expected in a block. The gradients of a row are computed from
# the same value and add up, so that more would overshoot.
MOST_STEP = 0.5


class Block(NamedTuple):
    """A block of words to learn from."""

    centers: Ids  # int32 [B]
    contexts: Ids  # int32 [B, C]; -1 for none


class Chunk(NamedTuple):
    """A stretch of the text in an epoch."""

    # epoch, number: of the chunk in the epoch, from 0
    epoch: int
    number: int
    ids: Ids  # int32, -1 after each sentence
    words: int  # how many of them are words
    # first_rate, last_rate: the learning rate before the first word and after the last one
    first_rate: float
    last_rate: float


class Learned(NamedTuple):
    """Of a chunk: its words, the sum of the losses of its predictions, in nats, and how many there were."""

    words: int
    loss: float
    outputs: int


class Word2Vec:
    """The state of a training: the tables of vectors, and what follows from the counts of the words.

    Args:
        counts: int64 [V], descending.

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
        # Twice as far as in the original program, as in gensim 4: outputs start at 0, and what they learn first is in
        # proportion to the inputs, which matters with little text. See benchmarks/README.md.
        self.tables = {"inputs": (2 * start - 1) / np.float32(settings.width)}
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
        learn = self._compiled_chunk if self.settings.engine == COMPILED else self._numpy_chunk
        loss, outputs = 0.0, 0
        for result in in_threads(learn, self._chunks(stream, epoch), self.settings.threads):
            loss += result.loss
            outputs += result.outputs
            if not np.isfinite(loss):
                raise TrainingError(
                    expected="a finite loss", found="NaN or infinity", fix="lower --learning-rate or --block"
                )
            progress.advance(result.words, f"loss {loss / max(outputs, 1):.4f}")
        return loss / max(outputs, 1)

    def _chunks(self, stream: WordStream, epoch: int) -> Iterator[Chunk]:
        """The chunks of an epoch, with their learning rates: it falls to 0 at the end of the last epoch."""
        settings = self.settings
        assert settings.learning_rate
        assert settings.epochs
        words = int(self.counts.sum())
        done = 0
        for number, ids in enumerate(stream.chunks()):
            in_chunk = int((ids != NO_WORD).sum())
            rates = [
                settings.learning_rate * (1 - (epoch * words + passed) / (settings.epochs * words))
                for passed in (done, done + in_chunk)
            ]
            yield Chunk(epoch, number, ids, in_chunk, rates[0], rates[1])
            done += in_chunk

    def _numpy_chunk(self, chunk: Chunk) -> Learned:
        assert self.settings.window
        drawn, noise = self._drawn(chunk)
        contexts = contexts_of(drawn, self.settings.window)
        loss, outputs = 0.0, 0
        for start in range(0, len(contexts), self.block):
            share = start / len(contexts)
            rate = max(chunk.first_rate + (chunk.last_rate - chunk.first_rate) * share, self._lowest_rate)
            part = slice(start, start + self.block)
            for gradient in self.update(Block(drawn.centers[part], contexts[part]), rate, noise):
                loss += gradient.loss
                outputs += gradient.outputs
        return Learned(chunk.words, loss, outputs)

    def _compiled_chunk(self, chunk: Chunk) -> Learned:
        drawn, noise = self._drawn(chunk)
        tables, unused = self.tables, np.empty((0, 0), dtype=np.float32)
        paths = self.paths or Paths(np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.int8))
        limits, others = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int32)
        if self.noise is not None:
            limits, others = self.noise.limits, self.noise.others
        loss, outputs = compiled(train_words)(
            tables["inputs"], tables.get("outputs", unused), tables.get("nodes", unused), *drawn,
            chunk.first_rate, chunk.last_rate, self._lowest_rate, self.settings.method == CBOW,
            self.negatives, limits, others, noise.key, *paths, SIGMOID, SOFTPLUS,
        )  # fmt: skip
        return Learned(chunk.words, loss, outputs)

    def _drawn(self, chunk: Chunk) -> tuple[Reaches, RandomWords]:
        """The words that stay and their windows, and the source of noise words; the same with both engines."""
        settings = self.settings
        assert settings.window
        rng = generator(settings.seed, "word2vec", chunk.epoch, chunk.number)
        noise = RandomWords(derive(settings.seed, "noise words", chunk.epoch, chunk.number))
        return reaches(chunk.ids, self.keep, settings.window, rng), noise

    @property
    def _lowest_rate(self) -> float:
        assert self.settings.learning_rate
        return self.settings.learning_rate * LOWEST_RATE

    def update(self, block: Block, learning_rate: float, noise: RandomWords) -> list[Gradient]:
        """Learns from one block, in place; returns the gradients of each kind of output.

        The gradients of the examples of a block are computed from the same vectors, except with `block` 1.
        """
        if self.settings.method == SKIP_GRAM:
            places, columns = np.nonzero(block.contexts != NO_WORD)
            sources = block.contexts[places, columns][:, None]  # [P, 1]: predicts the center from each context
            centers = block.centers[places]
        else:
            has_context = (block.contexts != NO_WORD).any(axis=1)
            sources, centers = block.contexts[has_context], block.centers[has_context]  # [P, C]
        size = 1 if self.settings.block == 1 else max(len(centers), 1)
        return [
            gradient
            for start in range(0, len(centers), size)
            for gradient in self._update(
                sources[start : start + size], centers[start : start + size], learning_rate, noise
            )
        ]

    def _update(self, sources: Ids, centers: Ids, learning_rate: float, noise: RandomWords) -> list[Gradient]:
        """The same for examples [P]: the words of `sources` [P, C] predict those of `centers`."""
        inputs = self.tables["inputs"]
        hidden = _means(inputs, sources)
        gradients = [
            update_outputs(hidden, self.tables[name], examples, learning_rate)
            for name, examples in self._examples(centers, noise)
        ]
        total = gradients[0].hidden if len(gradients) == 1 else gradients[0].hidden + gradients[1].hidden
        # In full to every context word, although each is only a part of the mean.
        weights = (sources != NO_WORD).astype(np.float32)
        add_rows(inputs, sources.ravel(), weights.ravel(), total, sources.shape[1])
        return gradients

    def _examples(self, centers: Ids, noise: RandomWords) -> list[tuple[str, Examples]]:
        """The outputs for each example, by the name of their table."""
        result = []
        if self.noise is not None:
            result.append(("outputs", noise_examples(centers, self.noise, self.negatives, noise)))
        if self.paths is not None:
            result.append(("nodes", tree_examples(centers, self.paths)))
        return result


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


def noise_examples(centers: Ids, noise: NoiseWords, negatives: int, words: RandomWords) -> Examples:
    """Each right word with its noise words; noise that is the right word is left out, and not drawn again."""
    outputs = np.empty((len(centers), 1 + negatives), dtype=np.int32)
    outputs[:, 0] = centers
    drawn = noise.draw((len(centers), negatives), words)
    outputs[:, 1:] = np.where(drawn == centers[:, None], NO_WORD, drawn)
    labels = np.zeros(outputs.shape, dtype=np.float32)
    labels[:, 0] = 1
    return Examples(outputs, labels, skips_saturated=False)


def tree_examples(centers: Ids, paths: Paths) -> Examples:
    """The inner nodes on the path to each right word; the label of a node is 1 where the turn is 0."""
    labels: npt.NDArray[np.float32] = np.float32(1) - paths.turns[centers]
    return Examples(paths.nodes[centers], labels, skips_saturated=True)


def _means(table: Floats, rows: Ids) -> Floats:
    """The mean of the vectors in each line of `rows` [P, C] of which some may be -1, float32 [P, D]."""
    if rows.shape[1] == 1:
        return table[rows[:, 0]]
    exists = (rows != NO_WORD).astype(np.float32)
    weights = exists / exists.sum(axis=1, keepdims=True)
    return np.asarray((weights[:, None, :] @ table[rows])[:, 0])
