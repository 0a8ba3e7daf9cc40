"""Two texts at a time: `Model.rerank` and `Model.next_sentence`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertsmith.app.library.inputs import checked_pairs, checked_text, checked_texts, warn_cut
from bertsmith.base.core.progress import quiet
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.pretraining_heads import Continuation, PretrainedPredictor
from bertsmith.tasks.datasets.examples import TextExample

if TYPE_CHECKING:
    from bertsmith.tasks.metrics.vectors import Vectors


def checked_passages(query: str, passages: Sequence[str]) -> list[TextExample]:
    """The pairs of a query and each passage, as examples."""
    query = checked_text(query, "the query")
    return [
        TextExample(id=str(number), first=query, second=passage, location=f"passage {number}")
        for number, passage in enumerate(checked_texts(passages, "passage"), start=1)
    ]


def compared(vectors: "Vectors") -> "list[tuple[float, Vectors]]":
    """The cosine of the first vector with each of the others, and that vector; all have length 1."""
    # Not a matrix product: its last digits depend on the position of a row.
    scores = (vectors[1:] * vectors[0]).sum(axis=1)
    return [(float(score), vector) for score, vector in zip(scores, vectors[1:], strict=True)]


def scored_passages(predictor: Predictor, pairs: Sequence[TextExample]) -> list[tuple[float, None]]:
    """The score of each pair by a model of pairs; warns of truncated ones."""
    with quiet():
        scored = PairScorer(predictor).scored(pairs)
    warn_cut(cut for _, cut in scored)
    return [(score, None) for score, _ in scored]


def judge_pairs(model: PretrainedPredictor, pairs: Sequence[tuple[str, str]]) -> list[Continuation]:
    """The probability that the second text of each pair follows the first; warns of truncated texts."""
    result = model.judge_pairs(checked_pairs(pairs, "two texts"))
    warn_cut(answer.cut_tokens for answer in result)
    return result
