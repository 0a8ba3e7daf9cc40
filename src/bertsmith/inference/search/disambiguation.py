"""Word sense disambiguation: which of the known senses a word has in a text.

Labelled examples: their contextual vectors of the word are compared with its vector in the text. Glosses: their vectors
are, or a model scores pairs of text and gloss. Examples decide where there are some of every sense of the word, glosses
where there are none. Otherwise both do: the score of a sense is by how much its gloss is better than the mean of the
glosses, and its examples than the mean of the senses with examples; what a sense lacks counts as the mean. Next to each
answer is the one without a model: the most frequent sense of the examples where they decide alone, or else the first
gloss.

Letters: W words, D width of the vectors.

Sources: Devlin et al. (2019), section 5.3, Wiedemann et al., "Does BERT make any sense?" (2019), and Loureiro et al.,
"Analysis and Evaluation of Language Models for Word Sense Disambiguation" (2021), for neighbors and centroids; Huang et
al., "GlossBERT" (2019), for the pairs.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import Progress, counted, shown_p, warn
from bertsmith.inference.predictors.pair_scorer import RELEVANT, PairScorer
from bertsmith.inference.search.request import CENTROID
from bertsmith.inference.search.sense_tables import ByWord, Gloss, WordInText
from bertsmith.inference.search.senses import Floats, occurrence_vectors
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.metrics.uncertainty import PairedTest, bootstrap_interval, paired_test
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.tokenizers.pack import truncation_note

EXAMPLES, PAIRS, GLOSSES = "examples", "pairs", "glosses"
WITH_EXAMPLES = " with examples"  # after PAIRS or GLOSSES
WAYS = (EXAMPLES, PAIRS, PAIRS + WITH_EXAMPLES, GLOSSES, GLOSSES + WITH_EXAMPLES)
RIGHT, WRONG = "yes", "no"  # the labels of pairs of text and gloss
_SHOWN = 8  # words in a message
_PART = 64  # words whose glosses are scored together


@dataclasses.dataclass(frozen=True, kw_only=True)
class SenseAnswer:
    """The sense of a word in a text.

    Attributes:
        sense: None if no sense of the word is known.
        by: what it was chosen by, one of WAYS; "" without a sense.
        scores: those of all known senses of the word, the best first.
        first: the sense without a model: the most frequent one of the labelled examples, or that of the first gloss.
    """

    word: WordInText
    sense: str | None = None
    by: str = ""
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    first: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        occurrence = self.word.occurrence
        return {
            "id": self.word.id,
            "lemma": self.word.lemma,
            "word": occurrence.sentence[occurrence.start : occurrence.end],
            "sense": self.sense,
            "by": self.by,
            "scores": {sense: round(score, 6) for sense, score in self.scores.items()},
            "first": self.first,
            **({"gold": list(self.word.senses)} if self.word.senses else {}),
        }


@dataclasses.dataclass(frozen=True)
class SenseScores:
    """How many senses are right, with a model and without.

    Attributes:
        words: all words, those without an answer included.
        answered: how many of them have an answer.
        f1, f1_of_first: micro-averaged; with an answer for each word, the accuracy.
        low, high: the 95 % interval of `f1`.
        test: `f1` against `f1_of_first`, paired by words; None for a single word.
        reachable: the fraction of words one of whose right senses was among those to choose from.
        by: for each way the number of words, and the accuracy with a model and without.
    """

    words: int
    answered: int
    f1: float
    low: float
    high: float
    f1_of_first: float
    test: PairedTest | None
    reachable: float
    by: Mapping[str, tuple[int, float, float]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """The scores as lines of text."""
        lines = [
            f"F1 {self.f1:.4f} ({self.low:.4f} to {self.high:.4f}), {counted(self.words, 'word')}, "
            f"{self.answered:,} with an answer; a right sense was known for {self.reachable:.1%}",
            f"without a model (most frequent or first sense): {self.f1_of_first:.4f}",
        ]
        if self.test is not None:
            test = self.test
            interval = f"{test.low:+.4f} to {test.high:+.4f}"
            lines.append(f"difference: {test.difference:+.4f} ({interval}, paired), p {shown_p(test.p_value)}")
        if len(self.by) > 1:
            for way, (words, accuracy, first) in self.by.items():
                lines.append(f"  by {way}: {counted(words, 'word')}, accuracy {accuracy:.4f}, without {first:.4f}")
        return lines


class Disambiguator:
    """Chooses among the senses of labelled examples and of glosses.

    Args:
        embedder: the model of the vectors; not needed if a model of pairs scores all glosses.
        examples: words whose sense is known.
        scorer: scores pairs of text and gloss, see `gloss_pair`.
        method: compare with the centroid of the examples of each sense, or with the nearest of them.
        layers: those of the vectors that are compared with examples, a name known to `layer_choice`.
        prior: how much an earlier gloss counts: prior x log(1 / number of the gloss) is added to its score.
    """

    def __init__(
        self,
        embedder: Embedder | None,
        examples: Sequence[WordInText] = (),
        glosses: Sequence[Gloss] = (),
        scorer: PairScorer | None = None,
        *,
        method: str = CENTROID,
        layers: str = "last",
        prior: float = 0.0,
    ) -> None:
        if scorer is not None and scorer.label not in ("", RELEVANT, RIGHT):
            raise ConfigError(
                expected=f"a model that was fine-tuned on pairs of `gloss-pairs`, with the labels {WRONG} and {RIGHT}",
                found=f"one whose last label is {scorer.label!r}",
                fix="name such a model",
            )
        self.embedder, self.scorer = embedder, scorer
        self.examples, self.glosses = examples, glosses
        self.method, self.layers, self.prior = method, layers, prior
        self._of_examples, self._of_glosses = ByWord(examples), ByWord(glosses)

    def answers(self, words: Sequence[WordInText]) -> list[SenseAnswer]:
        """The sense of each word, in order."""
        known = [self._of_examples.of(word) for word in words]
        candidates = [
            [] if indices and self._has_every_sense(indices, of_word) else of_word
            for indices, of_word in zip(known, map(self._of_glosses.of, words), strict=True)
        ]
        with_examples = [number for number, indices in enumerate(known) if indices]
        by_glosses = [number for number, indices in enumerate(candidates) if indices]
        answers = [SenseAnswer(word=word) for word in words]
        for number, answer in zip(with_examples, self._nearest(words, known, with_examples), strict=True):
            answers[number] = answer
        score = self._by_vectors if self.scorer is None else self._by_pairs
        for number, answer in zip(by_glosses, score(words, candidates, by_glosses), strict=True):
            answers[number] = _together(answers[number], answer) if known[number] else answer
        return answers

    def _has_every_sense(self, examples: Sequence[int], glosses: Sequence[int]) -> bool:
        """Whether there is an example of every sense that has a gloss."""
        senses = {sense for index in examples for sense in self.examples[index].senses}
        return senses.issuperset(self.glosses[index].sense for index in glosses)

    def _nearest(
        self, words: Sequence[WordInText], known: Sequence[list[int]], chosen: Sequence[int]
    ) -> list[SenseAnswer]:
        """The answers for the chosen words by labelled examples."""
        if not chosen:
            return []
        used = sorted({index for number in chosen for index in known[number]})
        row = {index: position for position, index in enumerate(used)}
        of_examples = self._vectors([self.examples[index] for index in used], self.layers)
        of_words = self._vectors([words[number] for number in chosen], self.layers)
        tables: dict[tuple[int, ...], _Senses] = {}
        answers = []
        for number, vector in zip(chosen, of_words, strict=True):
            indices = tuple(known[number])
            if indices not in tables:
                senses = [(sense, row[index]) for index in indices for sense in self.examples[index].senses]
                tables[indices] = _Senses.of(senses, of_examples, self.method)
            table = tables[indices]
            answers.append(_answer(words[number], table.scores(vector), EXAMPLES, table.first))
        return answers

    def _by_vectors(
        self, words: Sequence[WordInText], candidates: Sequence[list[int]], chosen: Sequence[int]
    ) -> list[SenseAnswer]:
        """The answers for the chosen words by the vectors of glosses."""
        if not chosen:
            return []
        used = sorted({index for number in chosen for index in candidates[number]})
        row = {index: position for position, index in enumerate(used)}
        of_glosses = self._texts([self.glosses[index].text for index in used])
        texts = list(dict.fromkeys(words[number].occurrence.sentence for number in chosen))
        of_texts = dict(zip(texts, self._texts(texts), strict=True))
        answers = []
        for number, vector in zip(chosen, self._vectors([words[number] for number in chosen], "last"), strict=True):
            # The mean of the cosines with the word in its text and with the whole text.
            both = (vector + of_texts[words[number].occurrence.sentence]) / 2
            cosines = of_glosses[[row[index] for index in candidates[number]]] @ both
            answers.append(self._of_gloss_scores(words[number], candidates[number], cosines.tolist(), GLOSSES))
        return answers

    def _by_pairs(
        self, words: Sequence[WordInText], candidates: Sequence[list[int]], chosen: Sequence[int]
    ) -> list[SenseAnswer]:
        """The answers for the chosen words by a model that reads text and gloss together."""
        assert self.scorer is not None, "a model of pairs"
        answers, cut = [], 0
        with Progress("texts with glosses", total=len(chosen), unit="words") as progress:
            for start in range(0, len(chosen), _PART):
                part = chosen[start : start + _PART]
                pairs = [
                    TextExample(id=words[number].id, first=text, second=gloss, location=words[number].location)
                    for number in part
                    for text, gloss in (gloss_pair(words[number], self.glosses[index]) for index in candidates[number])
                ]
                scored = self.scorer.scored(self.scorer.predictor.tokenized(pairs))
                cut += sum(lost > 0 for _, lost in scored)
                scores = iter(score for score, _ in scored)
                for number in part:
                    of_glosses = [next(scores) for _ in candidates[number]]
                    answers.append(self._of_gloss_scores(words[number], candidates[number], of_glosses, PAIRS))
                progress.advance(len(part))
        if cut:
            warn(f"pairs of text and gloss that were truncated: {cut:,}")
        return answers

    def _of_gloss_scores(
        self, word: WordInText, indices: Sequence[int], scores: Sequence[float], way: str
    ) -> SenseAnswer:
        best: dict[str, float] = {}
        for rank, (index, score) in enumerate(zip(indices, scores, strict=True), start=1):
            sense = self.glosses[index].sense
            best[sense] = max(best.get(sense, -math.inf), score - self.prior * math.log(rank))
        return _answer(word, best, way, self.glosses[indices[0]].sense)

    def _vectors(self, words: Sequence[WordInText], layers: str) -> Floats:
        """The normalized vectors of words in their texts, [W, D]."""
        encoder = self._model().encoder
        if not isinstance(encoder, FrozenEncoder):
            raise ConfigError(
                expected="a model in torch for vectors of words", found="an export", fix="name the folder it came from"
            )
        return unit(occurrence_vectors(encoder, [word.occurrence for word in words], layers).astype(np.float64))

    def _texts(self, texts: Sequence[str]) -> Floats:
        """The normalized vectors of whole texts, [texts, D]."""
        embedder = self._model()
        vectors, cut = embedder.embed_counting(texts)
        if (lost := int((cut > 0).sum())) > 0:
            warn(truncation_note("texts and glosses", embedder.max_length, lost, int(cut.sum())))
        return unit(vectors.astype(np.float64))

    def _model(self) -> Embedder:
        if self.embedder is None:
            raise ConfigError(
                expected="--model for the vectors of labelled examples and glosses", found="none", fix="name a model"
            )
        return self.embedder


@dataclasses.dataclass(frozen=True)
class _Senses:
    """The senses of a word with the vectors that stand for them.

    Attributes:
        rows: [R, D], one for each example or for each sense.
        of_row: the number of the sense of each row, int64 [R].
        first: the most frequent one, of equal ones that of the earlier example.
    """

    names: Sequence[str]
    rows: Floats
    of_row: npt.NDArray[np.int64]
    first: str

    @staticmethod
    def of(senses: Sequence[tuple[str, int]], vectors: Floats, method: str) -> "_Senses":
        """The senses of some examples, each with the row of its vector."""
        counts = Counter(sense for sense, _ in senses)
        names = list(counts)
        rows = vectors[[row for _, row in senses]]
        of_row = np.array([names.index(sense) for sense, _ in senses], dtype=np.int64)
        if method == CENTROID:
            rows = unit(np.stack([rows[of_row == number].mean(axis=0) for number in range(len(names))]))
            of_row = np.arange(len(names))
        return _Senses(names, rows, of_row, max(names, key=counts.__getitem__))

    def scores(self, vector: Floats) -> dict[str, float]:
        """The highest cosine of each sense with a vector [D]."""
        best = np.full(len(self.names), -np.inf)
        np.maximum.at(best, self.of_row, self.rows @ vector)
        return dict(zip(self.names, best.tolist(), strict=True))


def _together(of_examples: SenseAnswer, of_glosses: SenseAnswer) -> SenseAnswer:
    """The answer by both: what either says about a sense, in comparison with its mean, or nothing."""
    parts = [(answer.scores, sum(answer.scores.values()) / len(answer.scores)) for answer in (of_glosses, of_examples)]
    senses = {**of_glosses.scores, **of_examples.scores}
    scores = {sense: sum(known.get(sense, mean) - mean for known, mean in parts) for sense in senses}
    return _answer(of_glosses.word, scores, of_glosses.by + WITH_EXAMPLES, of_glosses.first)


def _answer(word: WordInText, scores: Mapping[str, float], way: str, first: str | None) -> SenseAnswer:
    ordered = dict(sorted(scores.items(), key=lambda pair: -pair[1]))
    return SenseAnswer(word=word, sense=next(iter(ordered)), by=way, scores=ordered, first=first)


def gloss_pair(word: WordInText, gloss: Gloss) -> tuple[str, str]:
    """The text with the word in quotes, and the gloss after its lemma.

    Source: Huang et al. (2019), "context-gloss pairs with weak supervision".
    """
    text, start, end = word.occurrence.sentence, word.occurrence.start, word.occurrence.end
    return f'{text[:start]}"{text[start:end]}"{text[end:]}', f"{gloss.lemma}: {gloss.text}"


def labelled_pairs(words: Sequence[WordInText], glosses: Sequence[Gloss]) -> tuple[list[tuple[str, str, str]], int]:
    """Training pairs: each word with each of its glosses, and yes or no; and how many words no gloss is right for."""
    by_word, pairs, without = ByWord(glosses), [], 0
    for word in words:
        of_word = [glosses[index] for index in by_word.of(word)]
        if not any(gloss.sense in word.senses for gloss in of_word):
            without += 1
            continue
        for gloss in of_word:
            pairs.append((*gloss_pair(word, gloss), RIGHT if gloss.sense in word.senses else WRONG))
    return pairs, without


def unknown_words(answers: Iterable[SenseAnswer]) -> str:
    """A sentence about the words without a known sense; "" if there are none."""
    counts = Counter(answer.word.lemma for answer in answers if answer.sense is None)
    if not counts:
        return ""
    shown = ", ".join(lemma for lemma, _ in counts.most_common(_SHOWN))
    rest = f" and {counted(len(counts) - _SHOWN, 'other word')}" if len(counts) > _SHOWN else ""
    return f"no sense is known for {counted(counts.total(), 'row')}: {shown}{rest}"


def sense_scores(answers: Sequence[SenseAnswer]) -> SenseScores:
    """The scores of answers for words whose senses are known."""
    right = [answer.sense in answer.word.senses for answer in answers]
    first = [answer.first in answer.word.senses for answer in answers]
    answered = [answer.sense is not None for answer in answers]
    ours, theirs = (np.array([column, answered], dtype=np.int64).T for column in (right, first))
    ways = {way: [n for n, answer in enumerate(answers) if answer.by == way] for way in WAYS}
    return SenseScores(
        words=len(answers),
        answered=sum(answered),
        f1=_f1(ours),
        **dict(zip(("low", "high"), bootstrap_interval(ours, _f1), strict=True)),
        f1_of_first=_f1(theirs),
        test=paired_test(ours, theirs, statistic=_f1) if len(answers) > 1 else None,
        reachable=float(np.mean([not answer.scores.keys().isdisjoint(answer.word.senses) for answer in answers])),
        by={
            way: (len(chosen), float(ours[chosen, 0].mean()), float(theirs[chosen, 0].mean()))
            for way, chosen in ways.items()
            if chosen
        },
    )


def _f1(rows: npt.NDArray[np.generic]) -> float:
    """The micro-averaged F1 of rows [W, 2]: whether a word is right, and whether it has an answer."""
    right, answered = (float(rows[:, column].sum(dtype=np.int64)) for column in (0, 1))
    return 2 * right / (answered + len(rows))
