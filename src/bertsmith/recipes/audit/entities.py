"""The audit of entities that may share words: those that are missing, spurious, or have another type or boundary.

A pair of a span of words and a label is an example, a question with two answers: whether it is an entity. Pairs are the
entities of the file, and all others that a model takes for possible ones. A finding is an entity that is not among the
most likely ones, or one of these that is missing, or both together where one is to replace the other.

Letters: E sentences, P pairs, K labels, S systems.

Sources: as in `several.py`, for labels as questions, and in `tags.py`.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.recipes.audit.issues import MOST_PAIRS, estimated, overlaps_of
from bertsmith.recipes.audit.several import two_answers
from bertsmith.recipes.audit.tags import (
    CERTAIN,
    CORRECTED,
    OF_SENTENCES,
    Finding,
    SentencesAudited,
    bracketed,
    kind_of_change,
)
from bertsmith.tasks.datasets.examples import TaggedExample, WordSpan
from bertsmith.tasks.metrics.entities import counts_of_spans, share_words, span_scores
from bertsmith.tasks.metrics.label_errors import (
    NO_LABEL,
    Floats,
    Ints,
    confident_labels,
    mixture_weights,
    normalized_margins,
    probably_wrong,
)
from bertsmith.tasks.specs.nested_entities import EntitiesTask, gold_of
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

CHANGE = ("remove", "add")  # the keys of the column "change" of issues.csv
LISTED = "entities of other folds"
_UNKNOWN = 0.5  # the probability where a system knows nothing, which leaves the others their answer
Scored = dict[WordSpan, float]  # the probabilities of spans of a sentence
Bools = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EntitiesAudited(SentencesAudited):
    """Sentences with entities, and the probabilities of spans and labels.

    Attributes:
        systems: of each model, the probabilities of the spans of each sentence; of one that it does not name, 0, while
            the list of entities knows nothing of words that are not in it.
        judged: the labels that sentences of several parts have, [K].
    """

    systems: Mapping[str, Sequence[Scored]]
    judged: Bools

    @functools.cached_property
    def pairs(self) -> list[tuple[int, WordSpan]]:
        """The sentence and the span of each pair, in this order, [P]."""
        every = zip(self.sentences, *self.systems.values(), strict=True)
        spans = [{*gold_of(sentence)}.union(*systems) for sentence, *systems in every]
        return [(row, span) for row, of_sentence in enumerate(spans) for span in sorted(of_sentence)]

    @functools.cached_property
    def has(self) -> Ints:
        """Whether the file has each pair, 0 or 1, [P]."""
        gold = [{*gold_of(sentence)} for sentence in self.sentences]
        return np.array([span in gold[row] for row, span in self.pairs], dtype=np.int64)

    @functools.cached_property
    def labels(self) -> Ints:
        """The number of the label of each pair, [P]."""
        number = {label: index for index, label in enumerate(self.spec.labels)}
        return np.array([number[span.label] for _, span in self.pairs], dtype=np.int64)

    @functools.cached_property
    def starts(self) -> Ints:
        """The first pair of each sentence, and the number of pairs, [E + 1]."""
        return offsets_of(np.bincount([row for row, _ in self.pairs], minlength=len(self.sentences)))

    @functools.cached_property
    def weights(self) -> Mapping[str, float]:
        """The weight of each system."""
        weights = mixture_weights([two_answers(part) for part in self._parts], self.has)
        return dict(zip(self.systems, weights.tolist(), strict=True))

    @functools.cached_property
    def _parts(self) -> list[Floats]:
        """The probabilities of the pairs by each system, [P]; 0.5 where it knows nothing."""
        parts = []
        for name, scored in self.systems.items():
            words = [{span[:2] for span in spans} for spans in scored]
            unknown = [name == LISTED and span[:2] not in words[row] for row, span in self.pairs]
            parts.append(np.where(unknown, _UNKNOWN, self._named(name)))
        return parts

    def _named(self, system: str) -> Floats:
        """The probabilities of the pairs by a system, [P]; 0 of those that it does not name."""
        return np.array([self.systems[system][row].get(span, 0.0) for row, span in self.pairs])

    @functools.cached_property
    def chances(self) -> Floats:
        """The probabilities that each pair is an entity, [P]."""
        chances: Floats = np.average(self._parts, axis=0, weights=[*self.weights.values()])
        return chances

    @functools.cached_property
    def suggested(self) -> Sequence[frozenset[WordSpan]]:
        """The most likely entities of each sentence, of which no two share words in a way that the file does not."""
        return self._predicted(self.chances)

    def _predicted(self, chances: Floats) -> list[frozenset[WordSpan]]:
        task = EntitiesTask(dataclasses.replace(self.spec, threshold=None))
        scored: list[list[tuple[WordSpan, float]]] = [[] for _ in self.sentences]
        for (row, span), chance in zip(self.pairs, chances.tolist(), strict=True):
            scored[row].append((span, chance))
        return [task.prediction(sentence, spans).spans for sentence, spans in zip(self.sentences, scored, strict=True)]

    def _confident(self, places: Ints) -> Ints:
        """Whether some pairs are confidently entities, 0 or 1, `NO_LABEL` where it is not clear."""
        labels, confident = self.labels[places], np.full(len(places), NO_LABEL)
        for label in np.unique(labels[self.judged[labels]]).tolist():
            part = labels == label
            confident[part] = confident_labels(two_answers(self.chances[places][part]), self.has[places][part])
        return confident

    def wrong(self, places: Ints) -> Bools:
        """Whether the file is probably wrong about some pairs, whose thresholds are those of these pairs."""
        return probably_wrong(two_answers(self.chances[places]), self.has[places], self._confident(places))

    def findings(self) -> Iterator[Finding]:
        """See `SentencesAudited`."""
        every = np.arange(len(self.pairs))
        confident, is_wrong = self._confident(every), self.wrong(every)
        answers, index = two_answers(self.chances), dict(zip(self.pairs, every, strict=True))
        margins, right = normalized_margins(answers, self.has), answers[every, self.has]
        for row, (sentence, suggested) in enumerate(zip(self.sentences, self.suggested, strict=True)):
            gold = frozenset(gold_of(sentence))
            for ours, theirs in _changes(gold - suggested, suggested - gold):
                spans = [*ours, *theirs]
                of_pairs = np.array([index[row, span] for span in spans])
                is_unclear = (confident[of_pairs] == NO_LABEL).all() and self.judged[self.labels[of_pairs]].all()
                state = True if is_wrong[of_pairs].any() else None if is_unclear else False
                chance = float(right[of_pairs].mean())
                start, end = min(span.start for span in spans), max(span.end for span in spans)
                kind = kind_of_change(
                    *([(label, first, past) for first, past, label in part] for part in (ours, theirs))
                )
                record = self.part(row, kind, start, end, (chance, 1 - chance)) | {
                    "label": marked_entities(sentence, ours, start, end),
                    "suggested": marked_entities(sentence, theirs, start, end),
                    "change": json.dumps(dict(zip(CHANGE, (ours, theirs), strict=True)), ensure_ascii=False),
                    "spans": (ours, theirs),
                }
                yield Finding(float(margins[of_pairs].mean()), state, record)

    def marked(self, row: int) -> str:
        """See `SentencesAudited`."""
        sentence = self.sentences[row]
        return marked_entities(sentence, gold_of(sentence), 0, len(sentence.words))

    def lowest(self, row: int) -> float:
        """See `SentencesAudited`; 1 without entities."""
        places = slice(self.starts[row], self.starts[row + 1])
        return float(self.chances[places][self.has[places] == 1].min(initial=1.0))

    def corrected(self, issues: Sequence[Mapping[str, Any]], gain: float = CERTAIN) -> list[tuple[WordSpan, ...]]:
        """The entities of all sentences, in which those that are almost certainly wrong are replaced.

        Args:
            gain: see `TagsAudited.corrected`.
        """
        result = [gold_of(sentence) for sentence in self.sentences]
        for issue in issues:
            if issue["issue"] in CORRECTED and issue["probability_of_suggested"] - issue["probability"] >= gain:
                row = issue["row"] - 1
                result[row] = changed_entities(result[row], *issue["spans"])
        return result

    def report(self, issues: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
        """The content of audit.json; the share of errors is that of the entities, in the file or missing from it."""
        in_question = (self.has == 1) | (self.chances > 0.5)  # P

        def errors(drawn: Any) -> float:
            rows = np.asarray(drawn, dtype=np.int64)
            places = places_of(self.starts[rows], np.diff(self.starts)[rows])
            counted = in_question[places] & self.judged[self.labels[places]]
            return float(self.wrong(places)[counted].mean()) if counted.any() else 0.0

        kinds = [issue["issue"] for issue in issues]
        gold = [gold_of(sentence) for sentence in self.sentences]
        counts = np.bincount(self.labels[self.has == 1], minlength=len(self.spec.labels))
        predicted = {name: self._predicted(self._named(name)) for name in self.systems}
        return {
            "examples": len(self.sentences),
            "entities": int(self.has.sum()),
            "labels": dict(zip(self.spec.labels, counts.tolist(), strict=True)),
            "f1": {
                name: span_scores(counts_of_spans(zip(gold, spans, strict=True)).sum(axis=0))["f1"]
                for name, spans in predicted.items()
            },
            "weights": {name: round(weight, 4) for name, weight in self.weights.items()},
            # Whole sentences are drawn, as errors of neighboring entities come together.
            **estimated(np.arange(len(self.sentences)), errors, seed),
            "issues": {kind: kinds.count(kind) for kind in (*CORRECTED[1:-1], *OF_SENTENCES)},
            "overlaps": self._overlaps()[:MOST_PAIRS],
        }

    def _overlaps(self) -> list[dict[str, Any]]:
        """The pairs of labels that the most likely entities of the same words have in place of each other."""
        number = {label: index for index, label in enumerate(self.spec.labels)}
        labels, others = [], []
        for sentence, suggested in zip(self.sentences, self.suggested, strict=True):
            gold = frozenset(gold_of(sentence))
            pairs = [
                (ours[0], theirs[0]) for ours, theirs in _changes(gold - suggested, suggested - gold) if ours and theirs
            ]
            named = {span: other.label for span, other in pairs if span[:2] == other[:2]}
            labels += [number[span.label] for span in sorted(gold)]
            others += [number[named.get(span, span.label)] for span in sorted(gold)]
        return overlaps_of(self.spec.labels, np.array(others), np.array(labels))


def marked_entities(sentence: TaggedExample, spans: Sequence[WordSpan], start: int, end: int) -> str:
    """The words from `start` to `end` with these entities; see `bracketed`."""
    return bracketed(sentence.words, [(label, first, past) for first, past, label in spans], start, end)


def changed_entities(
    entities: Iterable[WordSpan], removed: Iterable[WordSpan], added: Iterable[WordSpan]
) -> tuple[WordSpan, ...]:
    """Entities without some and with others, sorted."""
    return tuple(sorted({*entities}.difference(removed).union(added)))


def _changes(ours: frozenset[WordSpan], theirs: frozenset[WordSpan]) -> list[tuple[list[WordSpan], list[WordSpan]]]:
    """Entities and those that are to replace them: of the same words, else of the same label and with common words.

    >>> old, new = WordSpan(0, 2, "A"), WordSpan(1, 2, "A")
    >>> _changes(frozenset([old]), frozenset([new])) == [([old], [new])]
    True
    """
    result, left, free = list[tuple[list[WordSpan], list[WordSpan]]](), sorted(ours), sorted(theirs)
    for same_words in (True, False):
        for span in list(left):
            fitting = (
                other
                for other in free
                if (span[:2] == other[:2] if same_words else span.label == other.label and share_words(span, other))
            )
            if (other := next(fitting, None)) is not None:
                left.remove(span)
                free.remove(other)
                result.append(([span], [other]))
    nothing = list[WordSpan]()
    result += [([span], nothing) for span in left] + [(nothing, [span]) for span in free]
    return sorted(result, key=lambda change: min([*change[0], *change[1]]))
