"""The pre-training objectives, one object each: what a row is, what is predicted in it, and which parts that trains."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.masking import Masker, MaskSettings
from bertsmith.training.pretraining.spans import Walk, walk_next_sentence, walk_sentence_order, walk_single, walk_twice
from bertsmith.training.pretraining.targets import (
    FindTargets,
    both_neighbors,
    next_pieces,
    no_pieces,
    previous_pieces,
    second_copies,
)

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.encoder_with_head import PreTrainingOutput
    from bertsmith.training.pretraining.batch import PretrainingBatch

# Added to the number of predictions, as in the original, to avoid a division by zero.
MASK_COUNT_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class LossTerm:
    """One cross-entropy term in the loss of an objective.

    Attributes:
        name: the prefix of its sums and figures in the log, e.g. `mlm_loss`, `mlm_accuracy`; `lm` of language models.
        logits: returns its logits, [targets, classes], from the output of the model; None if no row has a target.
        targets: returns its targets, int64 [targets], from a micro-batch.
    """

    name: str
    parts: tuple[str, ...]
    logits: "Callable[[PreTrainingOutput], Tensor | None]"
    targets: "Callable[[PretrainingBatch], Tensor | None]"
    step_count: "Callable[[PretrainingBatch], float]"
    has_perplexity: bool = False


PIECES = LossTerm(
    name="mlm",
    parts=("mlm",),
    logits=attrgetter("mlm_logits"),
    targets=attrgetter("targets"),
    step_count=lambda batch: batch.step_predictions + MASK_COUNT_EPSILON,
    has_perplexity=True,
)
NEIGHBORS = dataclasses.replace(PIECES, name="lm")
NEXT = dataclasses.replace(PIECES, name="forward")
PREVIOUS = LossTerm(
    name="backward",
    parts=("mlm",),
    logits=attrgetter("backward_logits"),
    targets=attrgetter("backward_targets"),
    step_count=PIECES.step_count,  # a row has as many previous pieces as next ones
    has_perplexity=True,
)
PAIRS = LossTerm(
    name="nsp",
    parts=("pooler", "nsp"),
    logits=attrgetter("nsp_logits"),
    targets=attrgetter("labels"),
    step_count=attrgetter("step_rows"),
)

FOLLOWS, IN_ORDER = "follows", "in order"


@dataclass(frozen=True, kw_only=True)
class Objective:
    """How documents become rows, what a model predicts in them, and which heads it needs for that.

    Attributes:
        shortest_document: the minimum number of tokens for a document to make a row.
        positive_pairs: the name for pairs with label 1; None if a row has one part.
        relation: what the head of pairs judges about the second part: that it follows the first, or that both are in
            order.
        find_targets: returns the function that finds the predicted positions and their gold pieces.
        masks: whether that function masks words, so that the masking settings apply.
        is_causal: whether each token attends only to itself and those to its left.
        is_backward: whether the model reads from right to left, and predicts the piece before.
        carries_state: whether the corpus is read as tracks of contiguous text, with the state of a recurrent model
            carried from step to step; otherwise it is read in rows that do not know of each other.
        repeats_text: whether both parts of a row are the same text, of which the second is regenerated.
    """

    name: str
    help: str
    walk: Walk
    shortest_document: int = 1
    positive_pairs: str | None = None
    relation: str = FOLLOWS
    find_targets: Callable[[Vocabulary, MaskSettings], FindTargets]
    masks: bool = False
    is_causal: bool = False
    repeats_text: bool = False
    is_backward: bool = False
    carries_state: bool = False
    terms: tuple[LossTerm, ...]

    def __post_init__(self) -> None:
        assert self.pairs or not self.scores_pairs, "only pairs have a label"

    @property
    def pairs(self) -> bool:
        """Whether rows have two parts and a label."""
        return self.positive_pairs is not None

    @property
    def has_two_parts(self) -> bool:
        """Whether rows have two parts, as a pair with a label or as a text and its copy."""
        return self.pairs or self.repeats_text

    @property
    def two_directions(self) -> bool:
        """Whether it trains two language models, one from left to right and one from right to left."""
        return PREVIOUS in self.terms

    @property
    def scores_pairs(self) -> bool:
        """Whether the pair label is predicted, from [CLS]."""
        return PAIRS in self.terms

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """The model parts besides the encoder that the objective trains."""
        return tuple(dict.fromkeys(part for term in self.terms for part in term.parts))

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Loss (nats) and accuracy of each term, and the total loss, from the sums of a step or an evaluation.

        >>> OBJECTIVES["nsp"].figures({"nsp_nll": 6.0, "nsp_correct": 9, "nsp_count": 10})
        {'loss': 0.6, 'nsp_loss': 0.6, 'nsp_accuracy': 0.9}
        """
        figures: dict[str, float] = {"loss": 0.0}
        for name in (term.name for term in self.terms):
            if sums.get(f"{name}_count"):
                figures[f"{name}_loss"] = sums[f"{name}_nll"] / sums[f"{name}_count"]
                figures[f"{name}_accuracy"] = sums[f"{name}_correct"] / sums[f"{name}_count"]
                figures["loss"] += figures[f"{name}_loss"]
        return figures

    @property
    def higher_is_better(self) -> dict[str, bool]:
        """The names of losses, accuracies and perplexities, with whether a higher one is better.

        >>> OBJECTIVES["nsp"].higher_is_better
        {'loss': False, 'nsp_loss': False, 'nsp_accuracy': True}
        """
        directions = {"loss": False}
        for term in self.terms:
            directions |= {f"{term.name}_loss": False, f"{term.name}_accuracy": True}
            directions |= {f"{term.name}_perplexity": False} if term.has_perplexity else {}
        return directions

    def perplexities(self, figures: Mapping[str, float]) -> dict[str, float]:
        """The perplexity of each term that has one, from its loss."""
        losses = {term.name: figures.get(f"{term.name}_loss") for term in self.terms if term.has_perplexity}
        return {f"{name}_perplexity": float(np.exp(loss)) for name, loss in losses.items() if loss is not None}


def _masked(vocabulary: Vocabulary, settings: MaskSettings) -> FindTargets:
    return Masker(vocabulary, settings).mask_rows


def _always(find: FindTargets) -> Callable[[Vocabulary, MaskSettings], FindTargets]:
    """For targets that depend neither on the vocabulary nor on the settings."""
    return lambda vocabulary, settings: find


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective(
            name="mlm+nsp",
            help="masked LM and next sentence",
            walk=walk_next_sentence,
            positive_pairs="random next",
            find_targets=_masked,
            masks=True,
            terms=(PIECES, PAIRS),
        ),
        Objective(
            name="mlm",
            help="masked LM, one segment",
            walk=walk_single,
            find_targets=_masked,
            masks=True,
            terms=(PIECES,),
        ),
        Objective(
            name="mlm+sop",
            help="masked LM and sentence order",
            walk=walk_sentence_order,
            # A pair from one document needs two tokens.
            shortest_document=2,
            positive_pairs="swapped pairs",
            relation=IN_ORDER,
            find_targets=_masked,
            masks=True,
            terms=(PIECES, PAIRS),
        ),
        Objective(
            name="nsp",
            help="next sentence only",
            walk=walk_next_sentence,
            positive_pairs="random next",
            find_targets=_always(no_pieces),
            terms=(PAIRS,),
        ),
        Objective(
            name="left-to-right",
            help="one segment, every position predicts the next piece",
            walk=walk_single,
            find_targets=_always(next_pieces),
            is_causal=True,
            terms=(NEIGHBORS,),
        ),
        Objective(
            name="autoencoder",
            help="read a text from left to right, then regenerate it (sequence autoencoder)",
            walk=walk_twice,
            find_targets=_always(second_copies),
            is_causal=True,
            repeats_text=True,
            terms=(NEIGHBORS,),
        ),
        Objective(
            name="forward+backward",
            help="one segment, every position predicts the next piece and, from right to left, the previous one",
            walk=walk_single,
            find_targets=_always(both_neighbors),
            terms=(NEXT, PREVIOUS),
        ),
        Objective(
            name="forward+backward-language-model",
            help="both directions of ELMo on contiguous text: tracks that are read from left to right and others from "
            "right to left, the state of each carried from step to step",
            walk=walk_single,
            find_targets=_always(both_neighbors),
            carries_state=True,
            terms=(NEXT, PREVIOUS),
        ),
        Objective(
            name="language-model",
            help="for recurrent models: contiguous text in parallel tracks, the state carried from step to step, every "
            "position predicts the next piece",
            walk=walk_single,
            find_targets=_always(next_pieces),
            is_causal=True,
            carries_state=True,
            terms=(NEIGHBORS,),
        ),
        Objective(
            name="backward-language-model",
            help="the same from right to left, every position predicts the piece before",
            walk=walk_single,
            find_targets=_always(previous_pieces),
            is_causal=True,
            is_backward=True,
            carries_state=True,
            terms=(NEIGHBORS,),
        ),
    )
}
