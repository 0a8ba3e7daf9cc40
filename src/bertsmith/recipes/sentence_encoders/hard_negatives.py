"""Hard negatives: texts that a model finds similar to another text, although they do not belong to it.

Letters: Q first texts, C distinct other texts.

Source: Xiong et al. (2021), "Approximate Nearest Neighbor Negative Contrastive Learning"; Moreira et al. (2024),
"NV-Retriever", section 4.2, for the margin relative to the partner, which leaves out texts that may belong as well;
`mine_hard_negatives` of sentence-transformers for ranks and margins.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.rankings import merged, nearest_vectors
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.tasks.datasets.drawn_replies import different, same
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, ListExample, TextExample, TripletExample
from bertsmith.tasks.metrics.vectors import unit

_QUERIES = 256  # first texts whose nearest ones are found together
RELATIVE_MARGIN = 0.05  # share of the cosine of the partner; what is nearer may belong to the text as well


class _Group(NamedTuple):
    """A text, the ones that belong to it, and the ones that are known not to."""

    first: str
    partners: Sequence[str]
    others: Sequence[str] = ()


def with_hard_negatives(
    examples: Sequence[Example],
    embedder: Embedder,
    count: int,
    *,
    ranks: tuple[int, int] | None = None,
    margin: float = RELATIVE_MARGIN,
    texts: Iterable[str] = (),
    index: Index | None = None,
) -> list[Example]:
    """The pairs or lists, each with up to `count` texts of others that are nearest to its first text.

    Left out are partners of an equal first text, the first text itself, and texts that are not less similar to it than
    its least similar partner, by the margin. The score of a negative in a list is 0, or the lowest one of the list.
    Replies and their contexts are equal as `drawn_replies.same` says.

    Args:
        ranks: the nearest texts that are skipped, of those that are not left out, and the last one that may be a
            negative; by default 0 and 10 times `count` and 50.
        margin: by which share of the similarity of the partner a negative is less similar.
        texts: that may be negatives, too.
        index: of more of them, by dense vectors of the same model.
    """
    first_rank, last_rank = ranks or (0, 10 * count + 50)
    groups = [group for example in examples if (group := _group_of(example)) is not None]
    if len(groups) != len(examples):
        raise ConfigError(
            expected="pairs without labels, or lists, for hard negatives",
            found="other examples",
            fix="leave --hard-negatives out; labelled pairs and triplets have negatives of their own",
        )
    is_conversation = isinstance(examples[0], ChoiceExample) and not isinstance(examples[0], ListExample)
    key = same if is_conversation else str
    known: dict[str, str] = {}
    for text in (*(text for group in groups for text in (*group.partners, *group.others)), *texts):
        known.setdefault(key(text), text)
    seconds, numbers = list(known.values()), {text: number for number, text in enumerate(known)}
    if len(seconds) < 2 and index is None:
        raise ConfigError(
            expected="different second texts, for hard negatives", found="one text", fix="leave --hard-negatives out"
        )
    partners: dict[str, set[int]] = {}
    judged: dict[str, set[int]] = {}
    for group in groups:
        partners.setdefault(key(group.first), set()).update(numbers[key(text)] for text in group.partners)
        judged.setdefault(key(group.first), set()).update(numbers[key(text)] for text in group.others)
    firsts = list(dict.fromkeys(group.first for group in groups))
    queries = unit(embedder.for_queries().embed(firsts))
    candidates = unit(embedder.for_passages().embed(seconds))
    left_out = [partners[key(first)] | judged[key(first)] for first in firsts]
    reach = np.array([last_rank + len(each) for each in left_out])
    order = np.argsort(reach, kind="stable")  # so that only texts with many partners rank many others
    negatives: dict[str, list[str]] = {}

    def texts_of(nearest: Sequence[tuple[int, float]]) -> Iterator[tuple[str, float]]:
        """The texts of a ranking with their similarities, each once, as some may be in the index more than once."""
        passed = set[str]()
        for number, cosine in nearest:
            text = seconds[number] if index is None or number < len(seconds) else index.texts[number - len(seconds)]
            if (name := key(text)) not in passed:
                passed.add(name)
                yield text, cosine

    def negatives_of(row: int, nearest: Sequence[tuple[int, float]]) -> Iterator[str]:
        first = firsts[row]
        least = float((candidates[sorted(partners[key(first)])] @ queries[row]).min())
        for text, cosine in itertools.islice(texts_of(nearest), int(reach[row])):
            is_far = cosine <= least - margin * abs(least)
            if is_far and numbers.get(key(text)) not in left_out[row] and text not in ("", first):
                yield text

    for rows in np.split(order, range(_QUERIES, len(order), _QUERIES)):
        top = int(reach[rows[-1]])
        ranking = nearest_vectors(queries[rows], candidates, top)
        if index is not None:
            ranking = merged([ranking, index.search(queries[rows], 2 * top)], [0, len(seconds)], 2 * top)
        for position, row in enumerate(rows.tolist()):
            far = negatives_of(row, ranking.row(position))
            negatives[firsts[row]] = list(itertools.islice(far, first_rank, min(last_rank, first_rank + count)))
    result = [
        _with_negatives(example, group, negatives[group.first]) if negatives[group.first] else example
        for example, group in zip(examples, groups, strict=True)
    ]
    mined = sum(len(negatives[group.first]) for group in groups)
    kind = "lists" if isinstance(examples[0], ListExample) else "pairs"
    tell(f"hard negatives: {mined:,} for {len(groups):,} {kind}")
    return result


def _group_of(example: Example) -> _Group | None:
    """A text and what belongs to it; None if the example says more."""
    if isinstance(example, ListExample):
        best = max(example.scores)
        relevant = [text for text, score in zip(example.endings, example.scores, strict=True) if score == best]
        return _Group(example.context, relevant, [text for text in example.endings if text not in relevant])
    if isinstance(example, ChoiceExample) and len(example.endings) == 1:
        return _Group(example.context, example.endings)
    if isinstance(example, TextExample) and example.second is not None and example.label is None:
        return _Group(example.first, (example.second,))
    return None


def _with_negatives(example: Example, group: _Group, negatives: Sequence[str]) -> Example:
    if isinstance(example, ListExample):
        scores = (*example.scores, *[min(0.0, *example.scores)] * len(negatives))
        return dataclasses.replace(example, endings=(*example.endings, *negatives), scores=scores)
    texts = (*group.partners, *negatives)
    if isinstance(example, ChoiceExample):
        return dataclasses.replace(example, endings=tuple(different(texts)))
    assert isinstance(example, TextExample), "see `_group_of`"
    return TripletExample(id=example.id, texts=(group.first, *texts), location=example.location)
