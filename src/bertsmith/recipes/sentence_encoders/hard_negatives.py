"""Hard negatives: texts that a model finds similar to another text, although they do not belong to it.

Letters: Q first texts, C distinct second texts.

Source: Xiong et al. (2021), "Approximate Nearest Neighbor Negative Contrastive Learning"; Moreira et al. (2024),
"NV-Retriever", section 4.2, for the limit relative to the partner, which leaves out texts that may belong as well.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.tasks.datasets.drawn_replies import different, same
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, TextExample, TripletExample
from bertsmith.tasks.metrics.vectors import unit

LIMIT = 0.95  # of the cosine of the partner; what is nearer may belong to the text as well
_BLOCK = 512  # first texts that are compared with all second ones at a time


def with_hard_negatives(examples: Sequence[Example], embedder: Embedder, count: int) -> list[Example]:
    """The pairs, each with up to `count` second texts of others that are nearest to its first text.

    Left out are partners of an equal first text, the first text itself, and texts nearer than `LIMIT` times the cosine
    of the pair. Replies and their contexts are equal as `drawn_replies.same` says.
    """
    pairs = [pair for example in examples if (pair := _pair_of(example)) is not None]
    if len(pairs) != len(examples):
        raise ConfigError(
            expected="pairs without labels for hard negatives",
            found="other examples",
            fix="leave --hard-negatives out; labelled pairs and triplets have negatives of their own",
        )
    key = same if isinstance(examples[0], ChoiceExample) else str
    texts: dict[str, str] = {}
    for _, second in pairs:
        texts.setdefault(key(second), second)
    seconds = list(texts.values())
    if len(seconds) < 2:
        raise ConfigError(
            expected="different second texts, for hard negatives", found="one text", fix="leave --hard-negatives out"
        )
    numbers = {text: number for number, text in enumerate(texts)}
    partners: dict[str, set[int]] = {}
    for first, second in pairs:
        partners.setdefault(key(first), set()).add(numbers[key(second)])
    firsts = list(dict.fromkeys(first for first, _ in pairs))
    queries = unit(embedder.for_queries().embed(firsts))
    candidates = unit(embedder.for_passages().embed(seconds))
    row = {text: number for number, text in enumerate(firsts)}
    ranked = np.empty((len(firsts), min(len(seconds), 10 * count + 50)), dtype=np.int64)
    for start in range(0, len(firsts), _BLOCK):
        scores = queries[start : start + _BLOCK] @ candidates.T  # [q, C]
        ranked[start : start + _BLOCK] = np.argsort(-scores, axis=1, kind="stable")[:, : ranked.shape[1]]
    result: list[Example] = []
    mined = 0
    for example, (first, second) in zip(examples, pairs, strict=True):
        query, candidate = queries[row[first]], candidates[numbers[key(second)]]
        limit = LIMIT * float(query @ candidate)
        negatives = [
            seconds[number]
            for number in ranked[row[first]].tolist()
            if number not in partners[key(first)]
            and seconds[number] != first
            and float(query @ candidates[number]) <= limit
        ][:count]
        mined += len(negatives)
        result.append(_with_negatives(example, (first, second, *negatives)) if negatives else example)
    tell(f"hard negatives: {mined:,} for {len(pairs):,} pairs")
    return result


def _pair_of(example: Example) -> tuple[str, str] | None:
    """A text and the one that belongs to it; None if the example says more."""
    if isinstance(example, ChoiceExample) and len(example.endings) == 1:
        return example.context, example.endings[0]
    if isinstance(example, TextExample) and example.second is not None and example.label is None:
        return example.first, example.second
    return None


def _with_negatives(example: Example, texts: tuple[str, ...]) -> Example:
    if isinstance(example, ChoiceExample):
        return dataclasses.replace(example, endings=tuple(different(texts[1:])))
    assert isinstance(example, TextExample), "see `_pair_of`"
    return TripletExample(id=example.id, texts=texts, location=example.location)
