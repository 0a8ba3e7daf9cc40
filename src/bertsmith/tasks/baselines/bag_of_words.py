"""TF-IDF features of texts, from words and character n-grams, for a linear model without any encoder.

Letters: E examples, V terms, D columns.

The terms of a text are its words and pairs of neighboring words, and the runs of two to five letters inside its words.
The weight of a term is (1 + ln of its count in the text) times its smoothed inverse document frequency; the words of a
text have length 1 together, as have its runs of letters. The formulas are scikit-learn's `TfidfVectorizer`'s
with `sublinear_tf=True`.

Source: Manning, Raghavan and Schütze, "Introduction to Information Retrieval" (2008), section 6.4.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import from_dict
from bertsmith.tasks.baselines.sparse_rows import SparseRows, side_by_side, sparse
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import WINDOWED, TaskSettings

if TYPE_CHECKING:
    import scipy.sparse as sp

MOST_TERMS = 50_000  # of each kind; the most frequent are kept
MOST_WEIGHTS = 2_000_000  # terms times outputs
MOST_CELLS = 10**8  # texts times width of the vectors of a `WordSpace`, 400 MB
MANY_OUTPUTS = 20  # with more, runs of letters are left out, which would take most of the time

_WORD = re.compile(r"\w+|[^\w\s]")
_LETTERS = (2, 5)
_OVERLAP = 3.0  # factor of the overlap of two texts, a few columns among thousands

Terms = Callable[[str], Iterator[str]]


class BagOfWords:
    """The columns of texts or pairs of texts, as far as training texts have them.

    The columns of a pair say which words only one text has and which both have, and how much the two overlap.

    Args:
        settings: how long texts are cut: to `max_length` words, which is never less than what a model reads.
        one_hot: single words alone, and no weights: 1 for a word that a text has, 0 for one that it has not.
        letters: whether runs of letters are read next to words; never with more than `MANY_OUTPUTS`.
    """

    def __init__(
        self,
        examples: Sequence[TextExample],
        settings: TaskSettings,
        num_outputs: int,
        *,
        one_hot: bool = False,
        letters: bool = True,
    ) -> None:
        self._settings, self._one_hot = settings, one_hot
        self._pair = examples[0].second is not None
        texts = [text for side in (0, 1)[: 1 + self._pair] for text in self._texts(examples, side)]
        most = min(MOST_TERMS, max(1, MOST_WEIGHTS // num_outputs))
        kinds: list[Terms] = [_words, _letters] if letters and num_outputs <= MANY_OUTPUTS else [_words]
        kinds = [_single_words] if one_hot else kinds
        self._spaces = [_Space(terms, texts, most, one_hot=one_hot) for terms in kinds]

    def state(self) -> dict[str, Any]:
        """The terms of each kind with their inverse frequencies, plain values for JSON; `restored` reads them."""
        spaces = [{"terms": list(space.numbers), "rarity": space.rarity.tolist()} for space in self._spaces]
        return {"pair": self._pair, "spaces": spaces, "settings": dataclasses.asdict(self._settings)}

    @staticmethod
    def restored(state: Mapping[str, Any], where: str) -> "BagOfWords":
        """The columns whose `state` this is."""
        settings = from_dict(TaskSettings, state["settings"], where)
        empty = TextExample(id="", first="", second="" if state["pair"] else None)
        bag = BagOfWords([empty], settings, 1 if len(state["spaces"]) > 1 else MANY_OUTPUTS + 1)
        for space, kept in zip(bag._spaces, state["spaces"], strict=True):
            space.numbers = {term: number for number, term in enumerate(kept["terms"])}
            space.rarity = np.array(kept["rarity"], dtype=np.float64)
        return bag

    @property
    def terms(self) -> dict[str, Collection[str]]:
        """The terms of each kind, by the name of the kind."""
        return dict(
            zip(("words and pairs of words", "runs of letters"), (s.numbers for s in self._spaces), strict=False)
        )

    @property
    def num_columns(self) -> int:
        """D."""
        return self.rows([TextExample(id="", first="", second="" if self._pair else None)]).shape[1]

    def columns(self, examples: Sequence[TextExample]) -> "sp.csr_array":
        """The columns of examples as an array of SciPy, float32 [E, D]."""
        return self.rows(examples).matrix(np.float32)

    def rows(self, examples: Sequence[TextExample]) -> SparseRows:
        """The columns of examples, [E, D]."""
        first = [space.weights(self._texts(examples, 0)) for space in self._spaces]
        if not self._pair:
            return side_by_side(first)
        second = [space.weights(self._texts(examples, 1)) for space in self._spaces]
        shared = first[0].combined(second[0], np.multiply)
        parts = [shared, first[0].combined(second[0], lambda a, b: np.abs(a - b))]
        if self._one_hot:
            return side_by_side(parts)
        overlaps = [
            shared.sums(),
            *(a.combined(b, np.multiply).sums() for a, b in zip(first[1:], second[1:], strict=True)),
        ]
        counts = np.array([[len(e.first.split()), len((e.second or "").split())] for e in examples]).reshape(-1, 2)
        overlaps.append(counts.min(axis=1) / np.maximum(counts.max(axis=1), 1))
        parts[0] = shared._replace(values=_OVERLAP * shared.values)
        return side_by_side([*parts, sparse(_OVERLAP * np.stack(overlaps, axis=1))])

    def _texts(self, examples: Sequence[TextExample], side: int) -> list[str]:
        return [cut_text((example.first, example.second or "")[side], self._settings) for example in examples]


class TextSpace:
    """Sparse vectors of texts by TF-IDF of their words and pairs of words, of length 1 or 0."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._space = _Space(_words, texts, MOST_TERMS)

    def weights(self, texts: Sequence[str]) -> "sp.csr_array":
        """The vectors of texts, sparse float64 [texts, terms]."""
        return self._space.weights(texts).matrix()


class WordSpace:
    """Vectors of texts with a number for each word, whose cosines say how many words two texts share.

    Args:
        one_hot: 1 for a word that a text has, in place of its weight by TF-IDF.
        rarity: in place of the document frequencies in the texts, the inverse document frequency of each known word,
            and under "" the weight of all others.
    """

    def __init__(
        self, texts: Sequence[str], *, one_hot: bool = False, rarity: Mapping[str, float] | None = None
    ) -> None:
        self._space = _Space(_single_words, texts, most=None, one_hot=one_hot)
        if rarity is not None:
            self._space.rarity = np.array([rarity.get(word, rarity[""]) for word in self._space.numbers])

    def __len__(self) -> int:
        """The number of words."""
        return len(self._space.numbers)

    def rarity(self, texts: int) -> dict[str, float]:
        """The inverse document frequencies as the argument `rarity` takes them."""
        known = zip(self._space.numbers, self._space.rarity.tolist(), strict=True)
        return {"": float(np.log(1 + texts)) + 1, **dict(known)}

    def vectors(self, texts: Sequence[str], seed: int) -> npt.NDArray[np.float32]:
        """The vectors of texts, float32 [texts, D], by TF-IDF of length 1 or 0; comparable within one call.

        D is the number of different words in the texts. If the vectors would take too much memory, the words share
        columns at random, with random signs, which changes cosines little (Weinberger et al., 2009, "Feature hashing").
        """
        weights = self._space.weights(texts)
        used, places = np.unique(weights.columns, return_inverse=True)
        width, most = max(1, len(used)), max(1, MOST_CELLS // max(1, len(texts)))
        columns, values = places, weights.values
        if width > most:
            width, draws = most, generator(seed, "shared columns of words")
            columns = draws.integers(width, size=len(used))[places]
            values = values * draws.choice([-1.0, 1.0], len(used))[places]
        # In float32, as in float64 the matrix would be twice as large.
        vectors = np.zeros((len(texts), width), dtype=np.float32)
        np.add.at(vectors, (weights.rows, columns), values.astype(np.float32))
        return vectors

    def cosines(self, texts: Sequence[str], pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The cosines of pairs of texts, float64 [pairs], given by their numbers [pairs, 2]."""
        weights = self._space.weights(texts).matrix()
        first, second = weights[pairs[:, 0]], weights[pairs[:, 1]]
        return np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).reshape(-1)


def misfit_of_terms(spaces: Sequence[Mapping[str, Any]]) -> str:
    """The fault of the "spaces" of a `state`, which are terms with their inverse frequencies, in words; or ""."""
    if len(spaces) not in (1, 2):
        return f"{len(spaces)} kinds of terms"
    for space in spaces:
        terms, rarity = space["terms"], space["rarity"]
        if not (set(map(type, terms)) <= {str} and set(map(type, rarity)) <= {int, float}):
            return "terms or frequencies of another type"
        if not len(set(terms)) == len(terms) == len(rarity) or not np.isfinite(np.array(rarity, np.float64)).all():
            return f"{len(set(terms)):,} different terms with {len(rarity):,} frequencies, or one that is not finite"
    return ""


class _Space:
    """The most frequent terms of texts, with their inverse document frequencies."""

    def __init__(self, terms: Terms, texts: Sequence[str], most: int | None, *, one_hot: bool = False) -> None:
        counts = Counter[str]()
        for text in texts:
            counts.update(list(dict.fromkeys(terms(text))))  # in the order of the text, so that ties have a fixed one
        kept = counts.most_common(most)
        self._terms, self._one_hot = terms, one_hot
        self.numbers = {term: number for number, (term, _) in enumerate(kept)}
        frequencies = np.array([count for _, count in kept], dtype=np.float64)
        self.rarity = np.log((1 + len(texts)) / (1 + frequencies)) + 1

    def weights(self, texts: Sequence[str]) -> SparseRows:
        """The weights of terms, [E, V], rows of length 1 or 0; one-hot, of zeros and ones."""
        values, columns, lengths = [np.zeros(0)], [np.zeros(0, dtype=np.int64)], []
        for text in texts:
            counts = Counter(number for term in self._terms(text) if (number := self.numbers.get(term)) is not None)
            numbers = np.array(sorted(counts), dtype=np.int64)
            row = (1 + np.log([counts[number] for number in numbers.tolist()])) * self.rarity[numbers]
            values.append(np.ones(len(row)) if self._one_hot else row / max(float(np.sqrt((row**2).sum())), 1e-12))
            columns.append(numbers)
            lengths.append(len(numbers))
        rows = np.repeat(np.arange(len(texts)), lengths)
        return SparseRows(rows, np.concatenate(columns), np.concatenate(values), (len(texts), len(self.numbers)))


def words_of_text(text: str) -> list[str]:
    """The words and punctuation marks of a text, lower-cased.

    >>> words_of_text("It's 1895.")
    ['it', "'", 's', '1895', '.']
    """
    return _WORD.findall(text.lower())


def _single_words(text: str) -> Iterator[str]:
    yield from words_of_text(text)


def _words(text: str) -> Iterator[str]:
    words = words_of_text(text)
    yield from words
    for pair in itertools.pairwise(words):
        yield " ".join(pair)


def _letters(text: str) -> Iterator[str]:
    for word in text.lower().split():
        padded = f" {word} "
        for size in range(_LETTERS[0], _LETTERS[1] + 1):
            for start in range(max(1, len(padded) - size + 1)):
                yield padded[start : start + size]
            if size >= len(padded):
                break


def cut_text(text: str, settings: TaskSettings) -> str:
    """The words of a text that a model may read; a word has at least one token."""
    words, most = text.split(), settings.max_length
    if settings.long_text in WINDOWED or len(words) <= most:
        return text
    if settings.long_text == "tail":
        return " ".join(words[-most:])
    if settings.long_text == "head_tail":
        return " ".join([*words[:most], *words[max(most, len(words) - most) :]])
    return " ".join(words[:most])


def words_read(example: TextExample, settings: TaskSettings) -> int:
    """The number of words of a text, or of both texts of a pair, that `cut_text` keeps."""
    return sum(len(cut_text(text, settings).split()) for text in (example.first, example.second or ""))


def cut_words(example: TextExample, settings: TaskSettings) -> int:
    """The number of words of a text, or of both texts of a pair, that `cut_text` leaves out."""
    texts = [example.first, example.second or ""]
    return sum(max(0, len(text.split()) - len(cut_text(text, settings).split())) for text in texts)
