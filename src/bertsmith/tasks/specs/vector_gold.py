"""The gold of examples of vectors: which scores fit it, and which label says that two texts belong together."""

from collections.abc import Iterable, Sequence

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, TextExample, TripletExample
from bertsmith.tasks.metrics.ranking import RANK_METRICS
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec

SCORES = ("spearman", "pearson")
LABELLED = ("average_precision", "accuracy")
PARTNERS = ("recall@1", "mrr@10")
TRIPLETS = ("triplet_accuracy",)
NO_TEXT = -1  # the id of a text that a unit does not have
# Labels of pairs that belong together, and of pairs that say the opposite rather than something else.
TOGETHER = ("entailment", "1", "true", "yes", "duplicate", "paraphrase", "equivalent", "positive", "relevant")
AGAINST = ("contradiction", "0", "false", "no", "not_duplicate", "not_equivalent", "negative", "irrelevant")


def vector_spec(name: str, examples: Sequence[Example], settings: TaskSettings) -> TaskSpec:
    """The spec of a task of vectors, with the labels of labelled pairs, and the scores that fit the examples."""
    pairs = [example for example in examples if isinstance(example, TextExample)]
    labels = {pair.label for pair in pairs if isinstance(pair.label, str)}
    metrics = (metrics_of_examples(examples) if examples else ()) or SCORES
    return TaskSpec(
        kind="similarity",
        name=name,
        labels=tuple(sorted(labels)),
        pair=True,
        metric=metrics[0],
        metrics=metrics,
        reads="mean",
        settings=settings,
    )


def label_together(labels: Iterable[str]) -> str:
    """The label of pairs that belong together.

    >>> label_together(["neutral", "entailment"]), label_together(["0", "1"])
    ('entailment', '1')
    """
    known = dict.fromkeys(labels)
    belonging = [label for label in known if label.lower() in TOGETHER]
    if len(belonging) != 1:
        raise InputError(
            expected=f"one label of pairs that belong together: {', '.join(TOGETHER[:4])} ...",
            found=", ".join(belonging or known),
            fix="add such pairs, or rename their label with --map LABEL=entailment --map OTHER=contradiction",
        )
    return belonging[0]


def metrics_of_examples(examples: Sequence[Example]) -> tuple[str, ...]:
    """The scores that fit the gold of some examples, the most important one first; none for single texts."""
    first = examples[0]
    if isinstance(first, TripletExample):
        return TRIPLETS
    if isinstance(first, ChoiceExample):
        return tuple(RANK_METRICS)
    assert isinstance(first, TextExample)
    if first.second is None:
        return ()
    if isinstance(first.label, str):
        return LABELLED
    return SCORES if isinstance(first.label, float) else PARTNERS
