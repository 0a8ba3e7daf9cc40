"""Word senses: cluster the occurrences of a word by their vectors, or compare two of them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.app.library.inputs import checked_text
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import counted, short_repr, tell
from bertsmith.base.core.requests import takes
from bertsmith.base.pages.html import section, table
from bertsmith.inference.search.request import ContextsRequest, SensesRequest
from bertsmith.inference.search.senses import (
    Floats,
    Occurrence,
    Senses,
    Vectors,
    find_words,
    group_senses,
    occurrence_vectors,
    plane_of_both,
    read_sentences,
    static_vectors,
)
from bertsmith.inference.vectors.pictures import scatter, write_picture
from bertsmith.inference.word_vectors.answers import Neighbor, neighbors, similarity
from bertsmith.inference.word_vectors.formats import load_word_vectors
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.readers import ReadingSettings

AROUND = 60  # characters of context on each side of a word


@dataclasses.dataclass(frozen=True, kw_only=True)
class SenseGroup:
    """A group of similar occurrences of a word.

    Attributes:
        contexts: the occurrences nearest to the center of the group, each as {left, word, right}.
        beside: the mean cosine with the other word; None if there is no other word.
    """

    occurrences: int
    contexts: tuple[Mapping[str, str], ...]
    beside: float | None = None

    def lines(self) -> list[str]:
        """The contexts as lines of text."""
        return [_marked(context) for context in self.contexts]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordSenses:
    """The groups of a word's occurrences, largest first.

    Attributes:
        beside: the word that it is compared with, or None.
        groups: the groups of its occurrences.
        senses: the groups with their centers and coordinates.
        vectors, others: float32 [O, D], the vectors of O occurrences of each word.
    """

    word: str
    beside: str | None
    groups: tuple[SenseGroup, ...]
    senses: Senses
    vectors: Vectors
    others: Vectors

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        groups = [
            {
                "occurrences": group.occurrences,
                "contexts": [dict(context) for context in group.contexts],
                **({} if group.beside is None else {"beside": group.beside}),
            }
            for group in self.groups
        ]
        count = len(self.senses.occurrences)
        return {"word": self.word, "occurrences": count, "silhouettes": self.senses.silhouettes, "groups": groups}

    def lines(self) -> list[str]:
        """The groups with their contexts, as lines of text."""
        tried = ", ".join(f"{number}: {value:.2f}" for number, value in self.senses.silhouettes.items())
        counts = f"{counted(len(self.senses.occurrences), 'occurrence')}, {counted(len(self.groups), 'group')}"
        lines = [f"{self.word}: {counts}" + (f" (silhouette of {tried})" if tried else "")]
        for number, group in enumerate(self.groups, start=1):
            close = "" if group.beside is None else f", mean cosine with {self.beside!r} {group.beside:.2f}"
            lines.append(f"group {number}: {counted(group.occurrences, 'occurrence')}{close}")
            lines += [f"  {line}" for line in group.lines()]
        return lines

    def draw(self, path: Path) -> None:
        """Draws the occurrences in two dimensions as .png, .svg or .html."""
        names = [
            f"{self.word}, group {number} ({group.occurrences:,})" for number, group in enumerate(self.groups, start=1)
        ]
        points, shown, colors = self.senses.points, self.senses.shown, self.senses.groups
        if len(self.others):
            points, shown, colors = plane_of_both(self.senses, self.vectors, self.others)
            names.append(f"{self.beside} ({len(self.others):,})")
        below = "".join(
            section(name, table([[line] for line in group.lines()]))
            for name, group in zip(names, self.groups, strict=False)
        )
        write_picture(path, scatter(points, colors, names, shown), f"Senses of {self.word}", below)


@takes(SensesRequest)
def find_senses(request: SensesRequest) -> WordSenses:
    """The occurrences of a word in a text, clustered by their vectors.

    Raises:
        InputError: a word does not occur in the text.
        ConfigError: the method, the layers or the number of groups is invalid.
    """
    encoder = load_frozen_encoder(request.model, **request.values(ComputeSettings))
    words = [request.word] if request.beside is None else [request.word, request.beside]
    occurrences, *others = _occurrences(request, words, request.text, encoder)
    vectors = occurrence_vectors(encoder, occurrences, request.layers)
    senses = group_senses(occurrences, vectors, clusters=request.clusters, method=request.method, seed=request.seed)
    of_others = occurrence_vectors(encoder, others[0], request.layers) if others else vectors[:0]
    near = (senses.centers @ unit(of_others.astype("float64")).mean(axis=0)).tolist() if others else None
    groups = tuple(
        SenseGroup(
            occurrences=int((senses.groups == group).sum()),
            contexts=tuple(occurrence.context(AROUND) for occurrence in senses.central(group, request.contexts)),
            beside=None if near is None else near[group],
        )
        for group in range(len(senses.centers))
    )
    return WordSenses(
        word=request.word, beside=request.beside, groups=groups, senses=senses, vectors=vectors, others=of_others
    )


def _occurrences(
    request: SensesRequest | ContextsRequest, words: Sequence[str], text: str | Path, encoder: FrozenEncoder
) -> list[list[Occurrence]]:
    """The occurrences of words in a text, as a request limits them."""
    sentences = read_sentences(Path(text), ReadingSettings(**request.values(EncodingSettings)))
    return find_words(sentences, words, encoder.tokenizer.rules, most=request.most, seed=request.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NearContext:
    """An occurrence of a word in a text, and the cosine of its vector with that of the word in a given context.

    Attributes:
        cosine: from -1 to 1.
        context: the occurrence as left, word and right.
    """

    cosine: float
    context: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"cosine": self.cosine, **self.context}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithoutContext:
    """A word of two sentences in vectors without context.

    Attributes:
        cosine: of its vectors in the two sentences: 1 if the word is spelled alike, because it has one vector.
        neighbors: the words nearest to this vector, and their cosines; of the spelling in the first sentence.
    """

    cosine: float
    neighbors: tuple[Neighbor, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"cosine": self.cosine, "neighbours": [neighbor._asdict() for neighbor in self.neighbors]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedContexts:
    """A word in two contexts.

    Attributes:
        contexts: the two contexts, each as left, word and right.
        cosine: of the word's vectors in the two contexts.
        static: of its rows in the table of word embeddings: 1 if the word is spelled alike, whatever is around it.
        nearest: for each of the two, the most similar occurrences in a text, best first; empty without a text.
        without_context: the same in vectors without context, if such vectors were given.
    """

    word: str
    contexts: tuple[Mapping[str, str], Mapping[str, str]]
    cosine: float
    static: float
    nearest: tuple[tuple[NearContext, ...], tuple[NearContext, ...]] = ((), ())
    without_context: WithoutContext | None = None

    __repr__ = short_repr

    @property
    def shared(self) -> int:
        """How many of the nearest occurrences are the same for both contexts."""
        first, second = ({tuple(occurrence.context.items()) for occurrence in near} for near in self.nearest)
        return len(first & second)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "word": self.word,
            "cosine": self.cosine,
            "static": self.static,
            "contexts": [
                {**context, "nearest": [occurrence.to_dict() for occurrence in near]}
                for context, near in zip(self.contexts, self.nearest, strict=True)
            ],
            "shared": self.shared,
            **({} if self.without_context is None else {"without_context": self.without_context.to_dict()}),
        }

    def lines(self) -> list[str]:
        """The cosines, and the contexts with their nearest ones, as lines of text."""
        lines = [f"cosine of {self.word!r} in the two contexts: {self.cosine:.2f} (static vectors: {self.static:.2f})"]
        for context, near in zip(self.contexts, self.nearest, strict=True):
            lines.append(_marked(context))
            lines += [f"  {occurrence.cosine:.2f}  {_marked(occurrence.context)}" for occurrence in near]
        if any(self.nearest):
            most = max(map(len, self.nearest))
            lines.append(f"nearest contexts in common: {self.shared} of {most} (static vectors: {most} of {most})")
        if (plain := self.without_context) is not None:
            words = ", ".join(f"{neighbor.word} {neighbor.cosine:.2f}" for neighbor in plain.neighbors)
            lines.append(
                f"vectors without context: cosine {plain.cosine:.2f}; nearest words, in both sentences: {words}"
            )
        return lines


@takes(ContextsRequest)
def compare_contexts(request: ContextsRequest) -> ComparedContexts:
    """How similar a word is in two sentences, and which sentences of a text use it most like each of them.

    The first occurrence of the word in each sentence is compared; of nearest contexts, at most one is from a sentence.

    Raises:
        InputError: the word does not occur in a sentence or in the text, or has no vector among `vectors`.
        ConfigError: the layers are unknown.
    """
    encoder = load_frozen_encoder(request.model, **request.values(ComputeSettings))
    pair = [
        _first_of(request.word, checked_text(sentence, name), name, encoder)
        for sentence, name in ((request.first, "the first sentence"), (request.second, "the second sentence"))
    ]
    contexts = pair[0].context(AROUND), pair[1].context(AROUND)
    plain = None
    if request.vectors is not None:
        plain = _without_context(Path(request.vectors), [context["word"] for context in contexts], request.top)
    of_pair = unit(occurrence_vectors(encoder, pair, request.layers).astype(np.float64))
    static = unit(static_vectors(encoder, pair).astype(np.float64))
    near: tuple[tuple[NearContext, ...], ...] = ((), ())
    if request.text is not None:
        (occurrences,) = _occurrences(request, [request.word], request.text, encoder)
        others = unit(occurrence_vectors(encoder, occurrences, request.layers).astype(np.float64))
        near = tuple(_nearest(occurrences, others @ vector, request.top) for vector in of_pair)
    return ComparedContexts(
        word=request.word,
        contexts=contexts,
        cosine=float(of_pair[0] @ of_pair[1]),
        static=float(static[0] @ static[1]),
        nearest=(near[0], near[1]),
        without_context=plain,
    )


def _without_context(path: Path, spellings: Sequence[str], top: int) -> WithoutContext:
    """A word, as spelled in two sentences, in vectors without context."""
    vectors = load_word_vectors(path)
    if any(vectors.row(spelling) is None for spelling in spellings):
        vectors = dataclasses.replace(vectors, lowercase=True)  # such as at the start of a sentence
    words = tuple(neighbors(vectors, spellings[0], top))
    return WithoutContext(cosine=similarity(vectors, *spellings), neighbors=words)


def _first_of(word: str, sentence: str, name: str, encoder: FrozenEncoder) -> Occurrence:
    """The first occurrence of a word in a sentence; a notice says if there are more."""
    (occurrences,) = find_words([sentence], [word], encoder.tokenizer.rules)
    if len(occurrences) > 1:
        tell(f"{word!r} occurs {len(occurrences)} times in {name}; the first is used")
    return occurrences[0]


def _nearest(occurrences: Sequence[Occurrence], cosines: Floats, top: int) -> tuple[NearContext, ...]:
    """The occurrences with the highest cosines, at most one from equal sentences."""
    best: dict[str, NearContext] = {}
    for index in np.argsort(-cosines, kind="stable").tolist():
        nearest = occurrences[index]
        if len(best) == top:
            break
        best.setdefault(nearest.sentence, NearContext(cosine=float(cosines[index]), context=nearest.context(AROUND)))
    return tuple(best.values())


def _marked(context: Mapping[str, str]) -> str:
    """A context in one line, with the word in brackets."""
    return f"{context['left']}[{context['word']}]{context['right']}"
