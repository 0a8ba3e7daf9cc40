"""Losses of the vectors of texts, over all units of an optimizer step.

Letters: U units, R texts of all units, C texts that are not the first of a unit, D width, K labels.

The texts of a unit are consecutive: the first one, the one that is compared with it or belongs to it, then those that
do not belong. Losses are means over the units (CoSENT: of the step), so they do not depend on micro-batches.

Sources: Reimers and Gurevych (2019), "Sentence-BERT", section 3 (cosine, softmax, triplet); Su (2022), "CoSENT", as in
`CoSENTLoss` of sentence-transformers; Conneau et al. (2017), section 3.1 (infersent); Henderson et al. (2017), section
4.4 (ranking); Hofstätter et al. (2020), "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
Distillation", section 3.2 (margin); Kusupati et al. (2022), "Matryoshka Representation Learning", section 3 (widths).
"""

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.heads.head_spec import COSENT, COSINE, INFERSENT, MARGIN, RANKING, TRIPLET, WITH_LAYER
from bertsmith.models.heads.token_similarities import similarities_of_pairs, token_similarities
from bertsmith.models.heads.vector_forms import BY_COSINE, BY_TOKENS, SCALES
from bertsmith.models.parts.layers import linear


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorLoss:
    """A loss of the vectors of a step.

    Attributes:
        objective: cosine, cosent, ranking, softmax, infersent, triplet or margin.
        similarity: how two texts are compared (cosent, cosine, ranking, margin), see `vector_forms.SCALES`.
        scale: similarities are multiplied by it (cosent, ranking).
        margin: by how much a text that does not belong has to be further away (triplet).
        widths: the loss is the mean over the whole vectors and their first numbers of these widths.
        flops: weights of the regularizer of the first texts of the units, and of that of the others; see `flops`.
    """

    objective: str
    similarity: str = BY_COSINE
    scale: float = SCALES[BY_COSINE]
    margin: float = 1.0
    widths: Sequence[int] = ()
    flops: tuple[float, float] = (0.0, 0.0)

    @property
    def is_sum(self) -> bool:
        """Whether it is a sum over units, so that each micro-batch has its own share."""
        return self.objective not in (COSENT, RANKING) and not any(self.flops)

    def regularizer(self, vectors: Tensor, counts: Tensor) -> Tensor | float:
        """What is added to the loss of vectors [R, V], so that they become sparse."""
        if not any(self.flops):
            return 0.0
        is_first = _are_first(counts, counts.cumsum(0) - counts)
        of_queries, of_passages = self.flops
        return of_queries * flops(vectors[is_first]) + of_passages * flops(vectors[~is_first])

    def of(
        self,
        vectors: Tensor,
        counts: Tensor,
        targets: Tensor,
        layer: nn.Module | None,
        total: int,
        lengths: Sequence[int] = (),
    ) -> Tensor:
        """The loss of some units, fp32.

        Args:
            vectors: [R, D]; of tokens, those of each text one after another.
            targets: see `SimilarityTask`: [U], or the ids of the texts [U, texts].
            total: the units of the step, by which sums over units are divided.
            lengths: of vectors of tokens, how many each text has, [R].
        """
        if self.similarity == BY_TOKENS:
            return self._of_tokens(vectors, counts, targets, total, lengths)
        parts = [vectors, *(vectors[:, :width] for width in self.widths)]
        losses = [self._of_width(part, counts, targets, layer, total) for part in parts]
        return torch.stack(losses).mean()

    def _of_width(
        self, vectors: Tensor, counts: Tensor, targets: Tensor, layer: nn.Module | None, total: int
    ) -> Tensor:
        first = counts.cumsum(0) - counts
        if self.objective == RANKING:
            compared = F.normalize(vectors, dim=1) if self.similarity == BY_COSINE else vectors
            is_first = _are_first(counts, first)
            return _ranking(compared[first] @ compared[~is_first].T, counts, first, targets, self.scale)
        anchors, seconds = vectors[first], vectors[first + 1]
        if self.objective in WITH_LAYER:
            parts = [anchors, seconds, (anchors - seconds).abs()]
            parts += [anchors * seconds] if self.objective == INFERSENT else []
            return _softmax(parts, targets, layer) / total
        if self.objective == TRIPLET:
            others = vectors[first + 2]
            near, far = ((anchors - side).norm(dim=1) for side in (seconds, others))
            return F.relu(near - far + self.margin).sum() / total
        other = self._similarity(anchors, vectors[first + 2]) if self.objective == MARGIN else None
        return self._of_similarities(self._similarity(anchors, seconds), other, targets, total)

    def _of_tokens(
        self, vectors: Tensor, counts: Tensor, targets: Tensor, total: int, lengths: Sequence[int]
    ) -> Tensor:
        """The loss of vectors of tokens."""
        first, texts = counts.cumsum(0) - counts, torch.split(vectors, list(lengths))

        def some(places: Tensor) -> tuple[Tensor, list[int]]:
            numbers = places.tolist()
            return torch.cat([texts[number] for number in numbers]), [lengths[number] for number in numbers]

        if self.objective == RANKING:
            others = torch.nonzero(~_are_first(counts, first))[:, 0]
            return _ranking(token_similarities(*some(first), *some(others)), counts, first, targets, self.scale)
        other = similarities_of_pairs(*some(first), *some(first + 2)) if self.objective == MARGIN else None
        return self._of_similarities(similarities_of_pairs(*some(first), *some(first + 1)), other, targets, total)

    def _of_similarities(self, similar: Tensor, other: Tensor | None, targets: Tensor, total: int) -> Tensor:
        """The loss of the similarity of each unit's first two texts [U], and of margin that of its first and third."""
        if other is not None:
            return (similar - other - targets).square().sum() / total
        if self.objective == COSINE:
            return (similar - targets).square().sum() / total
        assert self.objective == COSENT, self.objective
        # log(1 + sum of exp(cosine of j - cosine of i)) over all pairs i, j of the step with a higher score of i.
        scaled = similar * self.scale
        wrong = (scaled[None, :] - scaled[:, None])[targets[:, None] > targets[None, :]]
        return torch.logsumexp(torch.cat([wrong.new_zeros(1), wrong]), dim=0)

    def _similarity(self, first: Tensor, second: Tensor) -> Tensor:
        """The similarity of each of the first texts and the second one in the same row, [U]."""
        return F.cosine_similarity(first, second) if self.similarity == BY_COSINE else (first * second).sum(dim=1)


def flops(weights: Tensor) -> Tensor:
    """The squared mean weights of the pieces, summed: an estimate of the products that a search by them computes.

    Args:
        weights: [R, V].

    Source: Paria et al. (2020), "Minimizing FLOPs to Learn Efficient Sparse Representations", section 4.
    """
    return weights.mean(dim=0).square().sum()


def _softmax(parts: Sequence[Tensor], labels: Tensor, layer: nn.Module | None) -> Tensor:
    """The cross-entropy of the labels, summed, from parts [U, D]; of narrower vectors by their part of the layer."""
    assert isinstance(layer, nn.Linear), "softmax has a layer"
    width = layer.in_features // len(parts)
    inputs = torch.cat([F.pad(part, (0, width - part.shape[1])) for part in parts], dim=1)
    return F.cross_entropy(linear(inputs, layer), labels, reduction="sum")


def _are_first(counts: Tensor, first: Tensor) -> Tensor:
    """Whether each text is the first of its unit, bool [R]."""
    is_first = torch.zeros(int(counts.sum()), dtype=torch.bool, device=counts.device)
    is_first[first] = True
    return is_first


def _ranking(similarities: Tensor, counts: Tensor, first: Tensor, ids: Tensor, scale: float) -> Tensor:
    """The mean cross-entropy of finding the text that belongs among all that are not the first of a unit.

    A text of another unit does not count if it equals the first text, or one that belongs to an equal first text in
    this step.
    """
    units, device = len(counts), similarities.device
    is_first = _are_first(counts, first)
    unit_of = torch.repeat_interleave(torch.arange(units, device=device), counts)[~is_first]  # [C]
    place_of = (torch.arange(len(is_first), device=device) - torch.repeat_interleave(first, counts))[~is_first]
    text_of = ids[unit_of, place_of]
    scores = similarities * scale  # [U, C]
    unit = torch.arange(units, device=device)[:, None]
    is_equal = text_of[None, :] == ids[:, :1]
    has_equal_first, is_second = ids[:, :1] == ids[None, :, 0], ids[:, 1:2] == text_of[None, :]  # [U, U] and [U, C]
    is_partner = has_equal_first.to(scores.dtype) @ is_second.to(scores.dtype) > 0
    left_out = (is_equal | is_partner) & (unit_of[None, :] != unit)
    target = (first + 1) - torch.arange(1, units + 1, device=device)  # index among the C
    return F.cross_entropy(scores.masked_fill(left_out, -torch.inf), target)
