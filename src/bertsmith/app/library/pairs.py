"""Two texts at a time: `Model.rerank` and `Model.next_sentence`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bertsmith.app.library.inputs import checked_pairs, checked_text, checked_texts, cut_counts, silently, warn_cut
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.pretraining_heads import Continuation, PretrainedPredictor

if TYPE_CHECKING:
    from bertsmith.tasks.metrics.vectors import Vectors


def rerank_passages(
    embed: "Callable[[list[str]], Vectors]", predictor: Predictor | None, query: str, passages: Sequence[str]
) -> "list[tuple[float, Vectors | None]]":
    """The score of each passage: of a model of pairs, or, where there is no predictor, its cosine, with its vector.

    Args:
        embed: returns vectors of length 1.

    Raises:
        InputError: a text has the wrong type.
    """
    query, passages = checked_text(query, "the query"), checked_texts(passages, "passage")
    if not passages:
        return []
    if predictor is None:
        vectors = embed([query, *passages])
        # Not a matrix product: its last digits depend on the position of a row.
        scores = (vectors[1:] * vectors[0]).sum(axis=1)
        return [(float(score), vector) for score, vector in zip(scores, vectors[1:], strict=True)]
    scorer = PairScorer(predictor)
    with silently():
        by_model = scorer.scores(query, passages)
    warn_cut(scorer.cut, scorer.cut_tokens)
    return [(score, None) for score in by_model]


def judge_pairs(model: PretrainedPredictor, pairs: Sequence[tuple[str, str]]) -> list[Continuation]:
    """The probability that the second text of each pair follows the first; warns of truncated texts.

    Raises:
        InputError: a text is empty, or not a text.
    """
    result = model.judge_pairs(checked_pairs(pairs, "two texts"))
    warn_cut(*cut_counts(one.cut_tokens for one in result))
    return result
