"""Word senses: cluster the occurrences of a word by their vectors, with contexts and a picture."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.encoding.loading import load_frozen_encoder
from bertsmith.metrics.vectors import unit
from bertsmith.progress import counted
from bertsmith.reports.html import section, table
from bertsmith.reports.pictures import scatter, write_picture
from bertsmith.search.senses import (
    Senses,
    Vectors,
    find_words,
    group_senses,
    occurrence_vectors,
    plane_beside,
    read_sentences,
)

AROUND = 60  # characters of context on each side of a word


@dataclasses.dataclass(frozen=True, kw_only=True)
class SenseGroup:
    """A group of similar occurrences of a word.

    Attributes:
        occurrences: number of occurrences.
        contexts: the occurrences nearest to the centre of the group, each as {left, word, right}.
        beside: the mean cosine with the other word; None if there is no other word.
    """

    occurrences: int
    contexts: tuple[Mapping[str, str], ...]
    beside: float | None = None

    def lines(self) -> list[str]:
        """The contexts as lines of text."""
        return [f"{one['left']}[{one['word']}]{one['right']}" for one in self.contexts]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordSenses:
    """The groups of a word's occurrences, largest first.

    Attributes:
        word: the word.
        beside: the word that it is compared with, or None.
        groups: the groups of its occurrences.
        senses: the groups with their centres and coordinates.
        vectors, others: float32 [O, D], the vectors of O occurrences of each word.
    """

    word: str
    beside: str | None
    groups: tuple[SenseGroup, ...]
    senses: Senses
    vectors: Vectors
    others: Vectors

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
        points, shown, colours = self.senses.points, self.senses.shown, self.senses.groups
        if len(self.others):
            points, shown, colours = plane_beside(self.senses, self.vectors, self.others)
            names.append(f"{self.beside} ({len(self.others):,})")
        below = "".join(
            section(name, table([[line] for line in group.lines()]))
            for name, group in zip(names, self.groups, strict=False)
        )
        write_picture(path, scatter(points, colours, names, shown), f"Senses of {self.word}", below)


def find_senses(
    word: str,
    text: str | Path,
    model: str | Path,
    *,
    clusters: int | None = None,
    method: str = "k-means",
    layers: str = "last",
    most: int = 2000,
    contexts: int = 3,
    beside: str | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "fp32",
) -> WordSenses:
    """The occurrences of a word in a text, clustered by their vectors.

    Args:
        word: a word or a sequence of words.
        text: .txt, .jsonl or .parquet, or a folder of them.
        model: anything that `load` accepts.
        clusters: number of groups; by default chosen by the silhouette.
        method: "k-means" or "agglomerative".
        layers: a choice of `layer_mix`.
        most: maximum number of occurrences to use.
        contexts: maximum number of contexts per group.
        beside: another word to compare each group with.
        seed: for sampling and clustering.
        device, precision: as in `load`.

    Raises:
        InputError: a word does not occur in the text.
        ConfigError: the method, the layers or the number of groups is invalid.
    """
    encoder = load_frozen_encoder(model, device=device, precision=precision)
    wanted = [word] if beside is None else [word, beside]
    found, *rest = find_words(read_sentences(Path(text)), wanted, encoder.tokenizer.rules, most=most, seed=seed)
    vectors = occurrence_vectors(encoder, found, layers)
    senses = group_senses(found, vectors, clusters=clusters, method=method, seed=seed)
    others = occurrence_vectors(encoder, rest[0], layers) if rest else vectors[:0]
    near = (senses.centres @ unit(others.astype("float64")).mean(axis=0)).tolist() if rest else None
    groups = tuple(
        SenseGroup(
            occurrences=int((senses.groups == group).sum()),
            contexts=tuple(one.context(AROUND) for one in senses.central(group, contexts)),
            beside=None if near is None else near[group],
        )
        for group in range(len(senses.centres))
    )
    return WordSenses(word=word, beside=beside, groups=groups, senses=senses, vectors=vectors, others=others)
