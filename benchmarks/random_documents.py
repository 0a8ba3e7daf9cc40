"""Shared by the benchmarks of pre-training: random documents, a vocabulary of the published shape, one of our steps."""

from collections.abc import Callable

import numpy as np
import torch

from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.loop.optimizer import BertAdam, clip, global_norm
from bertsmith.training.pretraining.workload import Pretraining

PIECES = 30522
RATE = 1e-4


class RandomDocuments:
    """A corpus of random pieces.

    Args:
        sentences: sentences per document.
        tokens: median tokens per sentence; lengths are log-normal, approximately like those of real sentences.
    """

    def __init__(self, documents: int, sentences: int, tokens: float) -> None:
        rng = np.random.default_rng(0)
        lengths = np.ceil(tokens * rng.lognormal(0, 0.7, size=(documents, sentences))).astype(np.int64)
        self._edges = [np.concatenate([[0], np.cumsum(row)]) for row in lengths]
        self._tokens = [rng.integers(999, PIECES, size=edges[-1]).astype(np.uint16) for edges in self._edges]

    @property
    def num_documents(self) -> int:
        """As the protocol says."""
        return len(self._edges)

    @property
    def document_lengths(self) -> np.ndarray:
        """As the protocol says."""
        return np.array([edges[-1] for edges in self._edges])

    def prefetch(self, documents: np.ndarray) -> None:
        """There is nothing to fetch."""

    def document_tokens(self, index: int) -> np.ndarray:
        """As the protocol says."""
        return self._tokens[index]

    def document_sentences(self, index: int) -> np.ndarray:
        """As the protocol says."""
        return self._edges[index]


def published_shape() -> Vocabulary:
    """A vocabulary with the size and special ids of the published one."""
    pieces = [f"p{number}" for number in range(PIECES)]
    for number, piece in {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}.items():
        pieces[number] = piece
    return Vocabulary(pieces)


def our_step(task: Pretraining, optimizer: BertAdam) -> Callable[[], float]:
    """A function that runs one of our steps, including data preparation, and returns its loss."""

    def step() -> float:
        task.model.zero_grad()
        total = torch.zeros((), device=task.runtime.torch_device)
        for micro_batch in task.plan(0, 0, 1).micro_batches:
            loss, _ = task.loss(task.model, micro_batch)
            loss.backward()
            total += loss.detach()
        clip(optimizer.gradients(), global_norm(optimizer.gradients()).item(), 1.0)
        optimizer.step(RATE)
        return total.item()

    return step
