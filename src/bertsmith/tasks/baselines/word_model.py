"""Baselines from word counts, and the folder of one with its task, which needs no encoder.

::

    FOLDER/n-grams.json   the task and the counts: of tags, of words of questions and contexts, or of words of texts

Letters: W words of all sentences, N rows (the endings of all examples), K tags.

Sources: the most frequent tag of a word is the usual baseline of tagging (Jurafsky and Martin, "Speech and Language
Processing", section on part-of-speech tagging); the sentence with most words of the question comes from Rajpurkar et
al. (2016), section 5.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import atomic_folder, misfit, read_json, write_json, write_text
from bertsmith.models.checkpoints.card import card_of_words
from bertsmith.models.model_files.metadata import CARD, NGRAM_TERMS, ModelMetadata, write_metadata
from bertsmith.tasks.baselines.bag_of_words import WordSpace, cut_text, words_of_text
from bertsmith.tasks.baselines.n_grams import FIX, NGramModel, decoded, spec_of_words
from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    EntityExample,
    Example,
    QuestionExample,
    TaggedExample,
    WordSpan,
    texts_of_group,
)
from bertsmith.tasks.encoding.units import Logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import AnswerPrediction, SimilarityPrediction
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import SPANS, Prediction, TaskSpec

_ENDING = 3  # letters of a word's ending
_UNSEEN = 0.01  # added to the counts of tags
_SHARPNESS = 5.0  # from shares of overlap to logits
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_TOKEN = re.compile(r"\w+(?:[.,'’-]\w+)*|[^\w\s]")
_LONGEST = 10  # words of an answer
_NONE_HAS = 2.0  # share of the words of a question that no sentence has

Rarity = Mapping[str, float]
Counts = Mapping[str, Any]
_TAGS = {"*": {"*": int}}
_COUNTS: Mapping[str, Any] = {
    "tagging": {"word": _TAGS, "lower case": _TAGS, "ending": _TAGS, "shape": _TAGS, "any": {"": {"*": int}}},
    "choice": {"rarity": {"*": float}},
    "span": {"rarity": {"*": float}, "kinds": {"*": {"*": int}}, "limit?": float},
    "selection": {"rarity": {"": float, "*": float}},
    "similarity": {"rarity": {"": float, "*": float}},
    **{kind: {"entities": {"*": {"*": int}}, "occurrences": {"*": int}} for kind in SPANS},
}
_SEED_OF_COLUMNS = 1  # see `WordSpace.vectors`


def counted_tags(train: Sequence[TaggedExample]) -> Counts:
    """How often each word has each tag; also its spelling in lower case, its shape and ending, its shape, and any."""
    counts: dict[str, dict[str, Counter[str]]] = {kind: defaultdict(Counter) for kind, _ in keys_of_word("")}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
            for kind, key in keys_of_word(word):
                counts[kind][key][tag] += 1
    return counts


def tag_logits(counts: Counts, sentences: Sequence[TaggedExample], labels: Sequence[str]) -> Logits:
    """Log-probabilities of the tags of each word, float32 [W, K], from the tags that the word has in training.

    A word that does not occur there is replaced by its lower-case spelling, by its shape and ending, by its shape, or
    by any word, whichever is the first to occur.
    """

    @functools.cache
    def logits(word: str) -> np.ndarray:
        of_word = next(counts[kind][key] for kind, key in keys_of_word(word) if key in counts[kind])
        count = np.array([of_word.get(label, 0) for label in labels]) + _UNSEEN
        return np.asarray(np.log(count / count.sum()))

    words = [word for sentence in sentences for word in sentence.words]
    return np.array([logits(word) for word in words], dtype=np.float32).reshape(len(words), len(labels))


def counted_entities(train: Sequence[EntityExample]) -> Counts:
    """How often each run of words is an entity of each label, and how often it occurs."""
    entities: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for start, end, label in sentence.entities:
            entities[" ".join(sentence.words[start:end])][label] += 1
    longest = max((end - start for sentence in train for start, end, _ in sentence.entities), default=1)
    runs = (text for sentence in train for _, _, text in runs_of_words(sentence.words, longest))
    return {"entities": entities, "occurrences": Counter(text for text in runs if text in entities)}


def known_entities(
    counts: Counts, sentence: TaggedExample, longest: int, unseen: float = 0.0
) -> list[tuple[WordSpan, float]]:
    """The spans of a sentence that are entities of the training examples, with the share of their occurrences.

    Args:
        unseen: occurrences as no entity that are added to those that were counted.
    """
    return [
        (WordSpan(start, end, label), count / (counts["occurrences"][text] + unseen))
        for start, end, text in runs_of_words(sentence.words, longest)
        for label, count in counts["entities"].get(text, {}).items()
    ]


def runs_of_words(words: Sequence[str], longest: int) -> Iterator[tuple[int, int, str]]:
    """All runs of at most this many words: first word, one past the last, and text."""
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            yield start, end, " ".join(words[start:end])


def counted_contexts(train: Sequence[ChoiceExample]) -> Counts:
    """How rare each word of contexts and endings is."""
    return {"rarity": _rarity(text for example in train for text in (example.context, *example.endings))}


def choice_logits(counts: Counts, examples: Sequence[ChoiceExample]) -> Logits:
    """A score per ending, float32 [N, 1]: the share of its words that the context has; rare words count more."""
    scores = []
    for example in examples:
        context = set(words_of_text(example.context))
        scores += [
            _SHARPNESS * _share(set(words_of_text(ending)), context, counts["rarity"]) for ending in example.endings
        ]
    return np.array(scores, dtype=np.float32)[:, None]


def counted_answers(train: Sequence[QuestionExample], *, unanswerable: bool) -> Counts:
    """How rare each word is, and the kinds of words that answer to each question word.

    Args:
        unanswerable: questions may have no answer; then the counts have a limit: the share of the words of a question
            that its best sentence needs, fitted to the training questions.
    """
    rarity = _rarity(dict.fromkeys(question.context for question in train))
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for question in train:
        if question.answers and (words := _TOKEN.findall(question.answers[0].text)):
            for key in (_question_word(question.question), ""):
                kinds[key][_kind(words[0])] += 1
    counts: dict[str, Any] = {"rarity": rarity, "kinds": kinds}
    if unanswerable:
        shares = np.array([_best_sentence(question, rarity)[1] for question in train])
        counts["limit"] = _limit(shares, np.array([question.is_impossible for question in train]))
    return counts


def answers(counts: Counts, questions: Sequence[QuestionExample]) -> list[AnswerPrediction]:
    """An answer to each question, from the sentence of its context that has most of the question's words.

    In the sentence, the answer is the run of words of one kind (numbers, capitalized words, others) that are not in the
    question, of the kind that answers to this question word have in training. If the counts have a limit, a question
    whose best sentence has too few of its words has no answer.
    """
    return [_answer(question, counts["rarity"], counts["kinds"], counts.get("limit")) for question in questions]


def keys_of_word(word: str) -> list[tuple[str, str]]:
    """What is counted of a word, from the word itself to nothing of it: the kind and the key of each."""
    shape = shape_of_word(word)
    return [
        ("word", word),
        ("lower case", word.lower()),
        ("ending", f"{shape} {word[-_ENDING:]}"),
        ("shape", shape),
        ("any", ""),
    ]


def shape_of_word(word: str) -> str:
    """Upper-case letters as X, others as x, digits as 9, without repetitions."""
    letters = ["9" if c.isdigit() else ("X" if c.isupper() else "x") if c.isalpha() else c for c in word]
    return "".join(c for c, before in zip(letters, ["", *letters], strict=False) if c != before)


def _rarity(texts: Iterable[str]) -> Rarity:
    """The smoothed inverse document frequency of each word; words that do not occur are missing."""
    documents = [dict.fromkeys(words_of_text(text)) for text in texts]
    counts = Counter(word for words in documents for word in words)
    return {word: math.log((1 + len(documents)) / (1 + count)) + 0.1 for word, count in counts.items()}


def _share(words: set[str], others: set[str], rarity: Rarity) -> float:
    """The share of the weight of some words that is on those among the others."""
    highest = max(rarity.values(), default=1.0)
    weights = {word: rarity.get(word, highest) for word in sorted(words)}
    return sum(weight for word, weight in weights.items() if word in others) / (sum(weights.values()) or 1.0)


def _best_sentence(question: QuestionExample, rarity: Rarity) -> tuple[tuple[int, int], float]:
    question_words = set(words_of_text(question.question))
    borders = [0, *(match.end() for match in _SENTENCE.finditer(question.context)), len(question.context)]
    spans = list(itertools.pairwise(borders))
    shares = [_share(question_words, set(words_of_text(question.context[start:end])), rarity) for start, end in spans]
    best = int(np.argmax(shares))
    return spans[best], shares[best]


def _limit(shares: np.ndarray, is_impossible: np.ndarray) -> float:
    """The share from which questions have answers most often, and below which they have none."""
    order = np.argsort(shares, kind="stable")
    # Right answers if the first n questions in this order are impossible and the others are not.
    right = np.concatenate([[0], np.cumsum(is_impossible[order])]) + (~is_impossible).sum()
    right = right - np.concatenate([[0], np.cumsum(~is_impossible[order])])
    count = int(right.argmax())
    return float(shares[order[count]]) if count < len(order) else _NONE_HAS


def _question_word(question: str) -> str:
    return next(iter(words_of_text(question)), "")


def _kind(token: str) -> str:
    if any(c.isdigit() for c in token):
        return "number"
    return ("capitalized" if token[0].isupper() else "other") if token[0].isalnum() else "mark"


def _answer(
    question: QuestionExample, rarity: Rarity, kinds: Mapping[str, Mapping[str, int]], limit: float | None
) -> AnswerPrediction:
    (begin, end), share = _best_sentence(question, rarity)
    question_words = set(words_of_text(question.question))
    usual = kinds.get(_question_word(question.question)) or kinds.get("") or {}
    runs = _runs(question.context, begin, end, question_words)
    highest = max(rarity.values(), default=1.0)

    def merit(run: tuple[str, int, int]) -> tuple[int, float]:
        words = words_of_text(question.context[run[1] : run[2]])
        return usual.get(run[0], 0), sum(rarity.get(word, highest) for word in words)

    _, start, stop = max(runs, key=merit, default=("other", begin, end))
    text = " ".join(question.context[start:stop].split())
    has_answer = bool(text) and (limit is None or share >= limit)
    candidates = [(text, start, stop, share)] if text else []
    if limit is not None or not text:
        candidates.append(("", 0, 0, 1 - share))
    return AnswerPrediction(
        text=text if has_answer else "",
        start=start if has_answer else 0,
        end=stop if has_answer else 0,
        probability=share if has_answer else 1 - share,
        n_best=tuple(sorted(candidates, key=lambda candidate: -candidate[3])),
        null_score_diff=None if limit is None else limit - share,
        has_answer=has_answer,
        no_answer_probability=None if limit is None else 1 - share,
    )


def _runs(context: str, begin: int, end: int, question_words: set[str]) -> list[tuple[str, int, int]]:
    """The runs of tokens of one kind that are not in the question: kind, start and end in the context."""
    runs: list[tuple[str, int, int]] = []
    size, last = 0, ""
    for token in _TOKEN.finditer(context, begin, end):
        kind = _kind(token.group())
        if kind == "mark" or token.group().lower() in question_words:
            last = ""
        elif kind == last and size < _LONGEST:
            runs[-1], size = (kind, runs[-1][1], token.end()), size + 1
        else:
            runs.append((kind, token.start(), token.end()))
            size, last = 1, kind
    return runs


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordModel:
    """Counts of words and the task that they answer: tags, an ending, an answer in the context, or a similarity."""

    spec: TaskSpec
    counts: Counts

    @classmethod
    def fitted(cls, spec: TaskSpec, train: Sequence[Example]) -> "WordModel":
        """The model that counts the words of training examples."""
        examples = cast("Any", train)
        count: Mapping[str, Callable[[], Counts]] = {
            "tagging": lambda: counted_tags(examples),
            **dict.fromkeys(SPANS, lambda: counted_entities(examples)),
            "choice": lambda: counted_contexts(examples),
            "span": lambda: counted_answers(examples, unanswerable=spec.unanswerable),
            "selection": lambda: _counted_texts(examples, spec.settings),
            "similarity": lambda: _counted_texts(examples, spec.settings),
        }
        return cls(spec=spec, counts=count[spec.kind]())

    def predict(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        """One prediction per example."""
        task, asked = cast("Any", task_for(self.spec)), cast("Any", examples)
        if self.spec.kind == "span":
            return answers(self.counts, asked)
        if self.spec.kind == "similarity":
            return self._cosines(examples)
        if self.spec.kind == "selection":
            return self._selected(asked, task)
        if self.spec.kind in SPANS:
            longest = self.spec.settings.entity_words
            return [task.prediction(sentence, known_entities(self.counts, sentence, longest)) for sentence in asked]
        if self.spec.kind == "tagging":
            return list(task.decode(asked, None, tag_logits(self.counts, asked, self.spec.labels), None))
        endings = np.array([len(example.endings) for example in asked], dtype=np.int64)
        return decoded(task, asked, choice_logits(self.counts, asked), rows_per_unit=endings)

    def _cosines(self, examples: Sequence[Example]) -> list[SimilarityPrediction]:
        """The TF-IDF vectors of the texts of each example; `cut_tokens` are the words that were cut."""
        if not examples:
            return []
        groups = [texts_of_group(example) for example in examples]
        texts = [cut_text(text, self.spec.settings) for group in groups for text in group]
        vectors = WordSpace(texts, rarity=self.counts["rarity"]).vectors(texts, _SEED_OF_COLUMNS)
        whole = (text for group in groups for text in group)
        cut = [len(text.split()) - len(kept.split()) for text, kept in zip(whole, texts, strict=True)]
        return SimilarityPrediction.of_each(vectors, list(map(len, groups)), cut)

    def _selected(self, examples: Sequence[ChoiceExample], task: Any) -> Sequence[Prediction]:
        """The candidates of each example by the cosines of TF-IDF vectors; `cut_tokens` are the words that were cut."""
        kept: dict[str, str] = {}
        for text in itertools.chain.from_iterable(example.texts for example in examples):
            kept[text] = cut_text(text, self.spec.settings)
        number_of = {text: number for number, text in enumerate(kept)}
        pairs = [(number_of[example.context], number_of[ending]) for example in examples for ending in example.endings]
        texts = list(kept.values())
        scores = WordSpace(texts, rarity=self.counts["rarity"]).cosines(texts, np.array(pairs).reshape(-1, 2))
        lost = [sum(len(text.split()) - len(kept[text].split()) for text in example.texts) for example in examples]
        return list(task.predictions(examples, scores, lost))

    @property
    def about(self) -> tuple[str, ...]:
        """What it consists of, in sentences."""
        return (f"{self.parameters:,} counts of words or weights by how rare they are, without an encoder.",)

    @property
    def parameters(self) -> int:
        """The numbers among the counts."""
        return sum(1 for _ in _numbers_of(self.counts))

    def write(self, folder: Path) -> None:
        """Writes the file."""
        write_json(folder / NGRAM_TERMS, {"spec": self.spec.to_dict(), "counts": self.counts})


def read_counted(folder: Path) -> "NGramModel | WordModel":
    """The model in a folder without an encoder: on n-grams or on counts of words."""
    file = folder / NGRAM_TERMS
    values = read_json(file)
    if not (isinstance(values, dict) and "counts" in values):
        return NGramModel.read(folder)
    wrong = misfit(values, {"spec": dict})
    if wrong:
        raise InputError(expected=f"a task in '{file}'", found=wrong, fix=FIX)
    spec, counts = spec_of_words(folder, values["spec"]), values["counts"]
    wrong = misfit(counts, _COUNTS[spec.kind]) if spec.kind in _COUNTS else spec.kind
    if not wrong and ("limit" in counts) != spec.unanswerable:
        wrong = f"limit = {counts.get('limit')}"
    if not wrong and not all(0 <= number < math.inf for number in _numbers_of(counts)):
        wrong = "a number that is negative or not finite"
    if wrong:
        raise InputError(expected=f"counts of words in '{file}'", found=wrong, fix=FIX)
    return WordModel(spec=spec, counts=counts)


def write_words_folder(folder: Path, model: NGramModel | WordModel, metadata: ModelMetadata) -> None:
    """Writes a model on words as a model folder, with metadata and a card, in place of an older one."""
    with atomic_folder(folder, replace=True) as partial:
        model.write(partial)
        write_text(partial / CARD, card_of_words(metadata, model.about))
        write_metadata(partial, None, metadata)


def _counted_texts(train: Sequence[Example], settings: TaskSettings) -> Counts:
    """The inverse document frequency of each word of texts; see `WordSpace`."""
    texts = [cut_text(text, settings) for example in train for text in _counted_once(example)]
    return {"rarity": WordSpace(texts).rarity(len(texts))}


def _counted_once(example: Example) -> tuple[str, ...]:
    """The texts of an example; without wrong candidates, which are the right ones of other examples."""
    if isinstance(example, ChoiceExample):
        return example.context, example.endings[example.label or 0]
    return texts_of_group(example)


def _numbers_of(counts: Any) -> Iterator[float]:
    """All numbers of counts, however deep."""
    if isinstance(counts, dict):
        for part in counts.values():
            yield from _numbers_of(part)
    elif isinstance(counts, int | float):
        yield counts
