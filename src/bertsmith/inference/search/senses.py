"""The senses of a word: its occurrences in a text, clustered by their contextual vectors.

The vector of an occurrence is the mean over the word's pieces in its sentence. Normalized vectors are clustered;
occurrences of the same sense should end up in the same group. The silhouette determines the number of groups.

Letters: O occurrences, K groups, D width of the vectors.

Source: Rousseeuw, "Silhouettes" (1987); Wiedemann et al., "Does BERT make any sense?" (2019), for BERT vectors as
representations of senses.
"""

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.metrics import silhouette_score

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted, tell
from bertsmith.base.core.randomness import derive, generator
from bertsmith.base.core.settings import require, require_known
from bertsmith.inference.search.request import METHODS
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.documents.readers import ReadingSettings, ReadReport, read_documents
from bertsmith.text.tokenizers.encoded import Ids, places_of
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens, basic_tokens_with_offsets
from bertsmith.text.tokenizers.pack import pack_rows, room_for_text

MOST_CLUSTERS = 6
LOWEST_SILHOUETTE = 0.25
"""Below this value Kaufman and Rousseeuw (1990) find no substantial structure: all occurrences form one group."""

_BLOCK = 256  # occurrences

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Occurrence:
    """An occurrence of a word in a sentence.

    Attributes:
        start: position of the word's first character.
        end: position after its last character.
    """

    sentence: str
    start: int
    end: int

    def context(self, around: int) -> dict[str, str]:
        """The word with up to `around` characters of context on each side, for display: left, word and right."""
        text, start, end = self.sentence, self.start, self.end
        left, right = text[max(0, start - around) : start], text[end : end + around]
        return {
            "left": f"…{left}" if start > around else left,
            "word": text[start:end],
            "right": f"{right}…" if end + around < len(text) else right,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Senses:
    """The occurrences of a word in groups, the largest group first.

    Attributes:
        occurrences: O occurrences.
        groups: int64 [O], the group of each occurrence, from 0.
        closeness: float64 [O], the cosine of each vector with the center of its group.
        centers: float64 [K, D], normalized.
        silhouettes: by number of groups tried, from -1 to 1; higher means better separation.
        points: float64 [O, 2], the vectors projected on their first two principal components.
        shown: the fraction of the variance in these two components.
    """

    occurrences: Sequence[Occurrence]
    groups: Ints
    closeness: Floats
    centers: Floats
    silhouettes: dict[int, float]
    points: Floats
    shown: float

    def central(self, group: int, most: int) -> list[Occurrence]:
        """The occurrences nearest to the center of a group, at most one per sentence."""
        members = np.flatnonzero(self.groups == group)
        members = members[np.argsort(-self.closeness[members], kind="stable")]
        occurrences: dict[str, Occurrence] = {}
        for member in members.tolist():
            occurrences.setdefault(self.occurrences[member].sentence, self.occurrences[member])
        return list(occurrences.values())[:most]


def read_sentences(path: Path, settings: ReadingSettings | None = None) -> Iterator[str]:
    """Yields the sentences of a text file or a folder of text files; reports at the end what was skipped."""
    report = ReadReport()
    for document in read_documents([path], settings, report=report):
        yield from document.sentences
    if report.encoding_errors or report.cut_lines or report.skipped_files:
        tell(
            f"skipped: {counted(report.encoding_errors, 'byte')} of invalid UTF-8, the ends of "
            f"{counted(report.cut_lines, 'overlong line')}, {counted(report.skipped_files, 'file')}"
        )


def find_words(
    sentences: Iterable[str], words: Sequence[str], rules: TextRules, *, most: int | None = None, seed: int = 0
) -> list[list[Occurrence]]:
    """The occurrences of each of several words, from one pass over the sentences.

    Args:
        words: each is a single word or a sequence of words.
        rules: how text is split into words, and whether case matters.
        most: with more occurrences of a word, a random sample of this size is kept, and a notice says so.
    """
    parts = [_Kept(word, rules, most, seed) for word in words]
    seen: set[str] = set()
    for sentence in sentences:
        tokens = basic_tokens(sentence, rules)
        seen.update(tokens)
        for part in parts:
            if part.wanted[0] in tokens:
                part.add(occurrences_in(sentence, part.wanted, rules))
    return [part.result(seen) for part in parts]


class _Kept:
    """Reservoir sample of at most `most` occurrences of a word.

    Source: Vitter, "Random sampling with a reservoir" (1985), algorithm R.
    """

    def __init__(self, word: str, rules: TextRules, most: int | None, seed: int) -> None:
        self.word, self.most = word, most
        self.wanted = basic_tokens(word, rules)
        if not self.wanted:
            raise InputError(expected="a word", found=repr(word), fix="name one")
        self._draws = generator(seed, "occurrences")
        self._kept: list[tuple[int, Occurrence]] = []
        self._count = 0

    def add(self, occurrences: Iterable[Occurrence]) -> None:
        for occurrence in occurrences:
            if self.most is None or self._count < self.most:
                self._kept.append((self._count, occurrence))
            elif (slot := int(self._draws.integers(self._count + 1))) < self.most:
                self._kept[slot] = (self._count, occurrence)
            self._count += 1

    def result(self, seen: Collection[str]) -> list[Occurrence]:
        """The sampled occurrences, in order."""
        if not self._kept:
            near = difflib.get_close_matches(" ".join(self.wanted), seen, n=3, cutoff=0.7)
            raise InputError(
                expected=f"the word {self.word!r} in the text",
                found=f"none among {len(seen):,} different words",
                fix=f"similar spellings in the text: {', '.join(near)}" if near else "name a word of the text",
            )
        if self._count > len(self._kept):
            tell(f"{self.word!r} occurs {self._count:,} times; using a random sample of {self.most:,}")
        return [occurrence for _, occurrence in sorted(self._kept, key=lambda pair: pair[0])]


def occurrence_vectors(encoder: FrozenEncoder, occurrences: Sequence[Occurrence], layers: str = "last") -> Vectors:
    """The vector of each occurrence, the mean over the word's pieces, float32 [O, D].

    A sentence over the model's length limit is truncated to the part around the word, and a notice says so.

    Args:
        layers: a name known to `layer_choice`; lower layers can separate senses, too.
    """
    choice = encoder.choice(layers)
    limit = encoder.model.max_tokens
    room = room_for_text(limit, encoder.tokenizer.template, texts=1, model_limit=limit)
    texts, spans, start = [], [], len(encoder.tokenizer.template.start)
    for occurrence in occurrences:
        ids, first, last = _pieces_of(occurrence, encoder)
        if last - first > room:
            raise InputError(
                expected=f"a word of at most {room} pieces", found=f"{last - first}", fix="name another word"
            )
        begin = max(0, min((first + last - room) // 2, len(ids) - room))
        texts.append(ids[begin : begin + room])
        spans.append((first - begin + start, last - begin + start, len(ids) > room))
    if cut := sum(span[2] for span in spans):
        tell(f"sentences longer than {limit} tokens, truncated around the word: {cut:,}")
    vectors = np.empty((len(texts), choice.width(encoder.hidden_size)), dtype=np.float32)
    with Progress("vectors of the word", total=len(texts), unit="occurrences") as progress:
        for start in range(0, len(texts), _BLOCK):
            part = slice(start, start + _BLOCK)
            rows = pack_rows(texts[part], template=encoder.tokenizer.template, max_length=limit, model_limit=limit)
            counts = np.array([last - first for first, last, _ in spans[part]], dtype=np.int64)
            begins = rows.offsets[:-1] + np.array([first for first, _, _ in spans[part]], dtype=np.int64)
            read = encoder.token_vectors(rows, choice, places_of(begins, counts))
            vectors[part] = np.add.reduceat(read, np.cumsum(counts) - counts) / counts[:, None]
            progress.advance(len(rows))
    return vectors


def static_vectors(encoder: FrozenEncoder, occurrences: Sequence[Occurrence]) -> Vectors:
    """The mean of the word's rows in the table of word embeddings, float32 [O, D], whatever its sentence is.

    Equal pieces have equal vectors: two occurrences differ only if they are spelled differently.
    """
    table = encoder.model.word_table.detach().float().cpu().numpy()
    pieces = [_pieces_of(occurrence, encoder) for occurrence in occurrences]
    means = [table[ids[first:last]].mean(axis=0) for ids, first, last in pieces]
    return np.stack(means) if means else np.empty((0, table.shape[1]), np.float32)


def _pieces_of(occurrence: Occurrence, encoder: FrozenEncoder) -> tuple[Ids, int, int]:
    """The pieces of the sentence, and the first and one past the last piece of the word."""
    pieces = encoder.tokenizer.encode_with_offsets(occurrence.sentence)
    inside = np.flatnonzero((pieces.starts < occurrence.end) & (pieces.ends > occurrence.start))
    if not len(inside):
        spelled = repr(occurrence.sentence[occurrence.start : occurrence.end])
        raise InputError(
            expected="a word that the model reads", found=f"{spelled}, which has no pieces", fix="mark another word"
        )
    return pieces.ids, int(inside[0]), int(inside[-1]) + 1


def group_senses(
    occurrences: Sequence[Occurrence],
    vectors: Vectors,
    *,
    clusters: int | None = None,
    method: str = "k-means",
    seed: int = 0,
) -> Senses:
    """The occurrences, grouped by their vectors [O, D].

    Args:
        clusters: the number of groups; None picks the number from 2 to MOST_CLUSTERS with the highest silhouette, or
            a single group if none reaches LOWEST_SILHOUETTE.
        method: "k-means", or "agglomerative" with average linkage on cosine distances.
    """
    require_known("method", method, METHODS)
    count = len(occurrences)
    require(
        clusters is None or 1 <= clusters <= count,
        expected=f"1 to {count} groups, at most one per occurrence",
        found=clusters,
        fix="use fewer groups",
    )
    directions = unit(vectors.astype(np.float64))
    tried = range(2, min(MOST_CLUSTERS, count - 1) + 1) if clusters is None else [clusters]
    divisions = {number: _divide(directions, number, method, seed) for number in tried}
    silhouettes = {
        number: float(silhouette_score(directions, division, metric="cosine"))
        for number, division in divisions.items()
        if 1 < len(np.unique(division)) < count
    }
    if clusters is None:
        number = max(silhouettes, key=lambda number: silhouettes[number], default=1)
        groups = divisions[number] if silhouettes.get(number, -1.0) >= LOWEST_SILHOUETTE else np.zeros(count, np.int64)
    else:
        groups = divisions[clusters]
    groups = _by_size(groups)
    centers = unit(np.stack([directions[groups == group].mean(axis=0) for group in range(groups.max() + 1)]))
    points, shown = plane(directions)
    return Senses(
        occurrences=occurrences,
        groups=groups,
        closeness=np.einsum("od,od->o", directions, centers[groups]),
        centers=centers,
        silhouettes=silhouettes,
        points=points,
        shown=shown,
    )


def plane(directions: Floats) -> tuple[Floats, float]:
    """The vectors projected on their first two principal components, [O, 2], and the fraction of variance in them."""
    centered = directions - directions.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
    points = np.zeros((len(directions), 2))
    held = min(2, len(sizes))
    points[:, :held] = left[:, :held] * sizes[:held]
    total = float((sizes**2).sum())
    return points, float((sizes[:2] ** 2).sum()) / total if total else 1.0


def plane_of_both(senses: Senses, vectors: Vectors, others: Vectors) -> tuple[Floats, float, Ints]:
    """The occurrences of two words in one plane: points, the fraction of variance in the plane, and groups.

    Args:
        vectors: [O, D], vectors of the occurrences.
        others: vectors of the other word's occurrences, which form the last group.
    """
    points, shown = plane(unit(np.concatenate([vectors, others]).astype(np.float64)))
    return points, shown, np.concatenate([senses.groups, np.full(len(others), len(senses.centers))])


def occurrences_in(sentence: str, wanted: Sequence[str], rules: TextRules) -> list[Occurrence]:
    """The places of consecutive words in a sentence, which are spelled as `rules` normalize them."""
    tokens = basic_tokens_with_offsets(sentence, rules)
    size = len(wanted)
    return [
        Occurrence(sentence=sentence, start=min(tokens[position].starts), end=max(tokens[position + size - 1].ends))
        for position in range(len(tokens) - size + 1)
        if [token.text for token in tokens[position : position + size]] == list(wanted)
    ]


def _divide(directions: Floats, number: int, method: str, seed: int) -> Ints:
    if number == 1:
        return np.zeros(len(directions), dtype=np.int64)
    if method == "agglomerative":
        model = AgglomerativeClustering(number, metric="cosine", linkage="average")
    else:
        number = min(number, len(np.unique(directions, axis=0)))
        model = KMeans(number, n_init=10, random_state=derive(seed, "senses", number) % 2**32)
    return np.asarray(model.fit_predict(directions), dtype=np.int64)


def _by_size(groups: Ints) -> Ints:
    """The groups renumbered by size, largest first; groups of equal size by first occurrence."""
    names, first, counts = np.unique(groups, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    number = np.empty(len(names), dtype=np.int64)
    number[order] = np.arange(len(names))
    return number[np.searchsorted(names, groups)]
