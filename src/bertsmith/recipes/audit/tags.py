"""The audit of tagged sentences: entities that are missing, spurious, or have another type or other boundaries.

A word is an example, and its tag is its label. A finding is a run of words, as short as possible, outside of which the
entities of the file and those of the most likely tags are equal.

Letters: E sentences, W words of all sentences, K tags, S systems.

Source: Wang and Mueller (2022), "Detecting Label Errors in Token Classification Data", for words as examples. They rank
sentences by their lowest score; findings are ranked by the mean margin of the words whose tags differ.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.recipes.audit.issues import (
    DIFFERS,
    MOST_PAIRS,
    OUTLIER,
    SHARED,
    UNCLEAR,
    WRONG,
    estimated,
    issues_of_texts,
    overlaps_of,
)
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample
from bertsmith.tasks.metrics.entities import Span, entity_spans, scheme_tags
from bertsmith.tasks.metrics.label_errors import (
    NO_LABEL,
    Floats,
    Ints,
    confident_labels,
    normalized_margins,
    probably_wrong,
    share_probably_wrong,
)
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

MISSING, SPURIOUS, TYPE, BOUNDARY, OTHERS = (
    "missing entity",
    "spurious entity",
    "wrong type",
    "wrong boundary",
    "other entities",
)
CORRECTED = (WRONG, MISSING, SPURIOUS, TYPE, BOUNDARY, OTHERS)
CERTAIN = 0.99  # below, more suggestions are wrong than labels of usual data
OF_SENTENCES = (DIFFERS, SHARED, UNCLEAR, OUTLIER)


class Finding(NamedTuple):
    """Entities or tags of a sentence that are not the most likely ones.

    Attributes:
        margin: of the labels that it has, the mean; the lower it is, the more certain is the error.
        is_wrong: whether it is probably an error; None: no label is confidently right or wrong, False: not an error.
        record: of issues.csv.
    """

    margin: float
    is_wrong: bool | None
    record: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SentencesAudited(abc.ABC):
    """Sentences with predictions for what is labelled in them."""

    spec: TaskSpec
    sentences: Sequence[TaggedExample]

    @abc.abstractmethod
    def findings(self) -> Iterator[Finding]:
        """Where the most likely labels are others, in the order of the sentences."""

    @abc.abstractmethod
    def marked(self, row: int) -> str:
        """The words of a sentence with its labels."""

    @abc.abstractmethod
    def lowest(self, row: int) -> float:
        """The probability of the least likely label of a sentence."""

    def issues(self, near: float, dev: Sequence[Example] = (), vectors: Any = None) -> list[dict[str, Any]]:
        """The findings that are probably errors, the most certain first, and other sentences to look at.

        Args:
            near, dev: see `issues_of`.
            vectors: of sentences, [E, D], to find outliers by.
        """
        ranked = sorted(self.findings(), key=lambda finding: finding.margin)
        labels = [
            example.entities if isinstance(example, EntityExample) else example.tags for example in self.sentences
        ]
        numbers = {labelling: number for number, labelling in enumerate(dict.fromkeys(labels))}
        others = issues_of_texts(
            self.sentences,
            np.array([numbers[labelling] for labelling in labels]),
            self.marked,
            self.sentence,
            near,
            dev,
            vectors,
            are_comparable=False,
        )
        others += [finding.record | {"issue": UNCLEAR} for finding in ranked if finding.is_wrong is None]
        return [
            *(finding.record for finding in ranked if finding.is_wrong),
            *sorted(others, key=lambda issue: OF_SENTENCES.index(issue["issue"])),
        ]

    def sentence(self, row: int, kind: str, other: str = "") -> dict[str, Any]:
        """The record of a whole sentence; see `Audited.issue`."""
        sentence, marked, lowest = self.sentences[row], self.marked(row), round(self.lowest(row), 4)
        return {
            "row": row + 1,
            "location": sentence.location,
            "issue": kind,
            "label": marked,
            "suggested": marked,
            "probability": lowest,
            "probability_of_suggested": lowest,
            "other": other,
            "text": text_of_sentence(sentence),
        }

    def part(self, row: int, kind: str, start: int, end: int, chances: tuple[float, float]) -> dict[str, Any]:
        """The record of some words of a sentence, without their labels.

        Args:
            chances: the mean probability of what they have, and of what is suggested.
        """
        return self.sentence(row, kind) | {
            "probability": round(chances[0], 4),
            "probability_of_suggested": round(chances[1], 4),
            "other": f"word {end}" if end - start == 1 else f"words {start + 1} to {end}",
            "words": (start, end),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TagsAudited(SentencesAudited):
    """Tagged sentences with the predictions for their words.

    Attributes:
        tags: the number of the tag of each word, [W].
        probabilities: of the tags, [W, K].
        judged: whether words of several parts have the tag of a word, [W].
    """

    tags: Ints
    probabilities: Floats
    judged: npt.NDArray[np.bool_]

    @functools.cached_property
    def borders(self) -> Ints:
        """The first word of each sentence, and the number of words, [E + 1]."""
        return offsets_of([len(sentence.words) for sentence in self.sentences])

    @functools.cached_property
    def confident(self) -> Ints:
        """The tag that each word confidently has, or `NO_LABEL`, [W]."""
        return np.where(self.judged, confident_labels(self.probabilities, self.tags), NO_LABEL)

    @functools.cached_property
    def suggested(self) -> Sequence[tuple[str, ...]]:
        """The most likely tags of each sentence that the scheme allows."""
        scores = np.log(np.maximum(self.probabilities, np.finfo(np.float64).tiny))
        predictions: Any = task_for(self.spec).decode(self.sentences, None, scores, None)  # type: ignore[arg-type]
        return [prediction.tags for prediction in predictions]

    def findings(self) -> Iterator[Finding]:
        """See `SentencesAudited`."""
        margins = normalized_margins(self.probabilities, self.tags)
        is_wrong = probably_wrong(self.probabilities, self.tags, self.confident)
        for row, (sentence, suggested) in enumerate(zip(self.sentences, self.suggested, strict=True)):
            if suggested == sentence.tags:
                continue
            for start, end, kind in self._findings(sentence, suggested):
                words = self.borders[row] + np.array(
                    [word for word in range(start, end) if sentence.tags[word] != suggested[word]]  # type: ignore[index]
                )
                is_unclear = (self.confident[words] == NO_LABEL).all() and self.judged[words].all()
                state = True if is_wrong[words].any() else None if is_unclear else False
                yield Finding(float(margins[words].mean()), state, self._finding(row, kind, start, end, words))

    def _findings(self, sentence: TaggedExample, suggested: tuple[str, ...]) -> Iterator[tuple[int, int, str]]:
        """The first word, one past the last, and the kind of each finding."""
        tags, scheme = sentence.tags or (), self.spec.scheme
        if not scheme:
            pairs = enumerate(zip(tags, suggested, strict=True))
            yield from ((word, word + 1, WRONG) for word, (tag, other) in pairs if tag != other)
            return
        parts: list[tuple[int, int, list[Span], list[Span]]] = []
        sides = [(span, side) for side, row in enumerate((tags, suggested)) for span in entity_spans(row, scheme)]
        for span, side in sorted(sides, key=lambda pair: (pair[0][1], pair[0][2], pair[1])):
            if not parts or span[1] >= parts[-1][1]:
                parts.append((span[1], span[2], [], []))
            start, end, *spans = parts[-1]
            spans[side].append(span)
            parts[-1] = (start, max(end, span[2]), spans[0], spans[1])
        # The same entities may have other tags, which violate the scheme.
        yield from ((start, end, kind_of_change(ours, theirs)) for start, end, ours, theirs in parts if ours != theirs)

    def _finding(self, row: int, kind: str, start: int, end: int, words: Ints) -> dict[str, Any]:
        """The record of a finding.

        Args:
            words: those whose tags differ, among all words; its probabilities are the means of theirs.
        """
        suggested = self.suggested[row]
        numbers = [self.spec.labels.index(suggested[word]) for word in (words - self.borders[row]).tolist()]
        chances = [float(self.probabilities[words, part].mean()) for part in (self.tags[words], numbers)]
        return self.part(row, kind, start, end, (chances[0], chances[1])) | {
            "label": marked_words(self.sentences[row], self.spec.scheme, start, end),
            "suggested": marked_words(self.sentences[row], self.spec.scheme, start, end, suggested),
            "change": " ".join([str(start + 1), *suggested[start:end]]),
        }

    def marked(self, row: int) -> str:
        """See `SentencesAudited`."""
        sentence = self.sentences[row]
        return marked_words(sentence, self.spec.scheme, 0, len(sentence.words))

    def lowest(self, row: int) -> float:
        """See `SentencesAudited`."""
        words = slice(self.borders[row], self.borders[row + 1])
        return float(self.probabilities[words][np.arange(len(self.sentences[row].words)), self.tags[words]].min())

    def corrected(self, issues: Sequence[Mapping[str, Any]], gain: float = CERTAIN) -> list[tuple[str, ...]]:
        """The tags of all sentences, with the suggested entities in place of those that are almost certainly wrong.

        Args:
            gain: how much more probable the suggested tags must be.
        """
        tags = [sentence.tags or () for sentence in self.sentences]
        for issue in issues:
            if issue["issue"] in CORRECTED and issue["probability_of_suggested"] - issue["probability"] >= gain:
                row, (start, end) = issue["row"] - 1, issue["words"]
                tags[row] = replaced_tags(tags[row], self.suggested[row][start:end], start, self.spec.scheme)
        return tags

    def report(
        self, systems: Mapping[str, Floats], weights: Floats, issues: Sequence[Mapping[str, Any]], seed: int
    ) -> dict[str, Any]:
        """The content of audit.json; the share of errors is that of words."""
        lengths = np.diff(self.borders)

        def errors(drawn: Any) -> float:
            rows = np.asarray(drawn, dtype=np.int64)
            words = places_of(self.borders[rows], lengths[rows])
            words = words[self.judged[words]]
            return share_probably_wrong(self.probabilities[words], self.tags[words]) if len(words) else 0.0

        kinds = [issue["issue"] for issue in issues]
        counts = np.bincount(self.tags, minlength=len(self.spec.labels))
        overlaps = overlaps_of(self.spec.labels, self.confident, self.tags)
        if self.spec.scheme:  # types of entities alone
            types = [{pair[side].partition("-")[2] for side in ("label", "other")} - {""} for pair in overlaps]
            overlaps = [pair for pair, names in zip(overlaps, types, strict=True) if len(names) == 2]
        named = (WRONG,) if not self.spec.scheme else CORRECTED[1:]
        return {
            "examples": len(self.sentences),
            "words": len(self.tags),
            "labels": dict(zip(self.spec.labels, counts.tolist(), strict=True)),
            "accuracy": {name: float((part.argmax(axis=1) == self.tags).mean()) for name, part in systems.items()},
            "weights": dict(zip(systems, weights.round(4).tolist(), strict=True)),
            # Whole sentences are drawn, as errors of neighboring words come together.
            **estimated(np.arange(len(self.sentences)), errors, seed),
            "issues": {kind: kinds.count(kind) for kind in (*named, *OF_SENTENCES)},
            "overlaps": overlaps[:MOST_PAIRS],
        }


def text_of_sentence(sentence: TaggedExample) -> str:
    """The plain text of a sentence, or its words."""
    return sentence.text or " ".join(sentence.words)


def marked_words(sentence: TaggedExample, scheme: str, start: int, end: int, tags: Sequence[str] = ()) -> str:
    """The words from `start` to `end` with their tags: entities in brackets with their types, or a tag after each word.

    >>> sentence = TaggedExample(id="0", words=("in", "New", "York"), tags=("O", "B-LOC", "I-LOC"))
    >>> marked_words(sentence, "IOB2", 0, 3), marked_words(sentence, "IOB2", 1, 3, ["O"] * 3)
    ('in [New York LOC]', 'New York')

    Args:
        tags: of all its words; by default, those that it has.
    """
    tags = tags or sentence.tags or ()
    if scheme:
        return bracketed(sentence.words, entity_spans(tags, scheme), start, end)
    return " ".join(f"{word}/{tag}" for word, tag in zip(sentence.words[start:end], tags[start:end], strict=True))


def bracketed(words: Sequence[str], spans: Iterable[Span], start: int, end: int) -> str:
    """The words from `start` to `end` with entities in brackets, in front of whose end is the type.

    >>> bracketed(("at", "Oslo", "University"), [("ORG", 1, 3), ("LOC", 1, 2)], 0, 3)
    'at [[Oslo LOC] University ORG]'
    """
    shown = list(words)
    for kind, first, past in sorted(spans, key=lambda span: span[2] - span[1]):
        shown[first] = f"[{shown[first]}"
        shown[past - 1] += f" {kind}]" if kind else "]"
    return " ".join(shown[start:end])


def replaced_tags(tags: Sequence[str], new: Sequence[str], start: int, scheme: str) -> tuple[str, ...]:
    """The tags of a sentence with other ones from a word on, in which no entity of either begins before or ends after.

    >>> replaced_tags("O I-LOC I-LOC".split(), ["I-LOC"], 0, "IOB1")
    ('I-LOC', 'B-LOC', 'I-LOC')
    """
    end = start + len(new)
    if not scheme:
        return (*tags[:start], *new, *tags[end:])
    kept = [span for span in entity_spans(tags, scheme) if not start <= span[1] < end]
    added = [(kind, start + first, start + past) for kind, first, past in entity_spans(new, scheme)]
    written = scheme_tags(sorted([*kept, *added], key=lambda span: span[1]), len(tags), scheme)
    # In IOB1, an entity directly after another one may need another tag.
    return (*tags[:start], *written[start : end + 1], *tags[end + 1 :])


def kind_of_change(ours: Sequence[Span], theirs: Sequence[Span]) -> str:
    """What is wrong with the entities of some words if those of another tagging are right.

    >>> missing, longer = ([], [("LOC", 0, 2)]), ([("LOC", 0, 1)], [("LOC", 0, 2)])
    >>> kind_of_change(*missing), kind_of_change([("ORG", 0, 2)], [("LOC", 0, 2)]), kind_of_change(*longer)
    ('missing entity', 'wrong type', 'wrong boundary')
    """
    if not (ours and theirs):
        return SPURIOUS if ours else MISSING
    if len(ours) == len(theirs) == 1:
        (kind, *words), (other, *others) = ours[0], theirs[0]
        if words == others:
            return TYPE
        if kind == other:
            return BOUNDARY
    return OTHERS
