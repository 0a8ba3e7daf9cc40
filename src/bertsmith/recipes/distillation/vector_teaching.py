"""Distillation of text vectors on plain text: a student learns to give the vectors of its teacher.

The mean of the student's last hidden states learns to have the direction of the teacher's vector of the same text.

Letters: N rows of a micro-batch, T tokens, D width of the student, E width of the teacher.

The teacher reads the text of a row, decoded from its pieces, with a tokenizer of its own, so that teacher and student
may have different vocabularies. A narrower student learns the vectors in their first D principal directions, taken
about the origin, which keeps cosines as close as D numbers can. A student that is continued learns them turned towards
the vectors that it has, so that a second training, on other texts, builds on the first. Masked pieces are predicted at
the same time, so that the student keeps its masked-LM head.

Source: Reimers and Gurevych (2020), "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation",
section 2, with one minus the cosine in place of the squared error, which also compares lengths.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.progress import Progress
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.processes.sharding import whole_parameters
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.models.heads.encoder_with_head import PreTrainingOutput
from bertsmith.models.heads.row_vectors import pool_rows
from bertsmith.models.parts.part_names import PREFIX
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings
from bertsmith.tasks.metrics.vectors import principal_axes, unit
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import CONTINUATION
from bertsmith.training.loop.teaching import Teaching
from bertsmith.training.pretraining.batch import PretrainingBatch

_WORDS = f"{PREFIX}embeddings.word.weight"
_SAMPLE = 2048  # texts whose vectors determine the directions
_SAMPLED_TOKENS = 64  # of each of these texts

Floats = npt.NDArray[np.float32]


class VectorTeaching(Teaching):
    """The loss of a student on plain text against the vectors of a teacher.

    Args:
        directions: float32 [E, D], see `principal_directions`.
        is_new: whether the student is a new model, whose word vectors are set.
    """

    needs_states = True

    def __init__(
        self,
        teacher: Embedder,
        directions: Floats,
        tokenizer: Tokenizer,
        settings: CorpusDistillationSettings,
        origin: Mapping[str, Any],
        *,
        is_new: bool,
    ) -> None:
        self._teacher, self._directions, self._tokenizer = teacher, directions, tokenizer
        self._settings, self._is_new = settings, is_new
        self.record, self.digests = to_dict(settings), {"teacher": teacher.encoder.digests["base"]}
        self.origin = {**origin, "method": settings.method}
        self.trains_own = settings.mlm_weight > 0

    @torch.no_grad()
    def initialize(self, model: nn.Module) -> None:
        """The word vectors of a new student: the teacher's vectors of its pieces, as long as its own were.

        Special pieces keep their random vectors. A student that is continued keeps all.
        """
        if not self._is_new:
            return
        special = self._tokenizer.vocabulary.special_ids
        ids = [id for id in range(len(self._tokenizer.vocabulary)) if id not in special]
        texts = [self._tokenizer.decode([id]).removeprefix(CONTINUATION) for id in ids]
        vectors = torch.from_numpy(_vectors_of(self._teacher, texts, "word vectors") @ self._directions)
        with whole_parameters(model, _WORDS):
            table = model.get_parameter(_WORDS)
            table[ids] = F.normalize(vectors, dim=1).to(table) * table[ids].norm(dim=1, keepdim=True)

    def new_trace(self) -> None:
        """See `Teaching.new_trace`; the last hidden states are in the output of the model."""

    def loss(
        self, model: nn.Module, micro_batch: Any, output: Any, trace: Any, workload_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Teaching.loss`."""
        assert isinstance(micro_batch, PretrainingBatch)
        assert isinstance(output, PreTrainingOutput)
        settings, lengths = self._settings, micro_batch.batch.lengths
        wanted = torch.from_numpy(self.wanted(micro_batch)).to(output.hidden.device)
        distances = (1 - F.cosine_similarity(pool_rows(output.hidden, lengths), wanted)).sum()
        loss = settings.mlm_weight * workload_loss + settings.vector_weight * distances / micro_batch.step_rows
        rows = torch.tensor(micro_batch.batch.num_rows, device=loss.device)
        return loss, {"vectors": distances.detach(), "taught_rows": rows}

    def wanted(self, batch: PretrainingBatch) -> Floats:
        """The teacher's vectors of the whole rows in the directions of the student, float32 [N, D]."""
        assert batch.targets is not None, "an objective that predicts pieces"
        ids = batch.batch.token_ids.clone()
        ids[batch.predicted_positions] = batch.targets
        rows = np.split(ids.cpu().numpy(), np.cumsum(batch.batch.lengths)[:-1])
        return unit(self._teacher.embed([self._tokenizer.decode(row) for row in rows])) @ self._directions

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The mean distance of a row, one minus the cosine, without its weight."""
        rows = sums.get("taught_rows", 0.0)
        return {"vector_loss": sums["vectors"] / rows} if rows else {}


def principal_directions(
    teacher: Embedder, corpus: Corpus, width: int, seed: int, student: Embedder | None = None
) -> Floats:
    """The directions in which a student of some width learns the vectors of its teacher, float32 [E, width].

    They are orthonormal, and those in which the vectors of texts from the corpus are longest; for a student as wide as
    its teacher they are the identity.

    Args:
        student: one that is continued. The directions are then turned within their span, so that the vectors of the
            teacher are nearest to its own (orthogonal Procrustes: Schönemann, 1966).
    """
    require(
        width <= teacher.width,
        expected=f"a student at most as wide as the vectors of its teacher ({teacher.width})",
        found=f"a width of {width}",
        fix="choose a narrower --student, or another teacher",
    )
    if width == teacher.width:
        return np.eye(width, dtype=np.float32)
    texts = _sampled_texts(corpus, seed)
    vectors = _vectors_of(teacher, texts, "directions of the teacher").astype(np.float64)
    _, axes = principal_axes(vectors.T @ vectors)
    directions = axes[:, :width]
    if student is not None:
        students = _vectors_of(student, texts, "directions of the student").astype(np.float64)
        left, _, right = np.linalg.svd((vectors @ directions).T @ students)
        directions = directions @ left @ right
    return np.ascontiguousarray(directions, dtype=np.float32)


def _vectors_of(embedder: Embedder, texts: Sequence[str], label: str) -> Floats:
    """Unit vectors of texts, float32 [N, E], with progress."""
    parts = []
    with Progress(label, total=len(texts), unit="texts", least=1.0) as progress:
        for vectors in embedder.stream(texts):
            parts.append(unit(vectors))
            progress.advance(len(vectors))
    return np.concatenate(parts)


def _sampled_texts(corpus: Corpus, seed: int) -> list[str]:
    """Up to `_SAMPLE` texts of up to `_SAMPLED_TOKENS` tokens from random positions of a corpus."""
    draw = generator(seed, "distillation-directions")
    positions = np.sort(draw.integers(corpus.num_tokens, size=min(_SAMPLE, corpus.num_tokens)))
    ends = np.cumsum(corpus.document_lengths)
    texts = []
    for position in positions.tolist():
        document = int(np.searchsorted(ends, position, side="right"))
        begin = position - (int(ends[document - 1]) if document else 0)
        texts.append(corpus.tokenizer.decode(corpus.document_tokens(document)[begin : begin + _SAMPLED_TOKENS]))
    return texts
