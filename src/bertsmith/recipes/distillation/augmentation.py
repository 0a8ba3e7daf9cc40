"""Augmented copies of texts, from which a student learns with the predictions of its teacher.

In each copy, each word except stop words is replaced with a probability of 0.4. A word of one piece is replaced by one
of the 15 most likely predictions of a masked-LM head; a word of several pieces by one of its 15 nearest neighbors among
the word vectors, or not at all without word vectors. The released code also gives the head the unchanged text as a
second segment; here it sees only the words around the mask, up to 40 on each side.

Source: Jiao et al. (2020), "TinyBERT", section 3.3 and algorithm 1; `data_augmentation.py` of the released code.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import Progress, counted, tell
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import Runtime
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.word_vectors.answers import neighbors
from bertsmith.inference.word_vectors.formats import load_word_vectors
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.distillation.settings import DistillationSettings
from bertsmith.tasks.datasets.examples import Example, TextExample, named_texts
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, MASK

CHANCE, CANDIDATES = 0.4, 15
AROUND = 40  # words on each side of a gap
_BLOCK = 512  # gaps that are filled together
_WORD = re.compile(r"\w+")
STOP_WORDS = frozenset(
    "a about after again all also am an and any are as at be because been before being both but by can could did do "
    "does doing down each for from had has have having he her here hers him his how i if in into is it its just me "
    "more most my no nor not of off on once only or other our out over own same she should so some such than that "
    "the their them then there these they this those through to too under until up very was we were what when where "
    "which while who whom why will with would you your".split()
)


@dataclasses.dataclass(frozen=True)
class WordSpan:
    """A word of a text that may be replaced: the characters from `start` to `end`."""

    word: str
    start: int
    end: int


class Augmenter:
    """Makes changed copies of texts."""

    def __init__(self, teacher: ModelFolder, settings: DistillationSettings, runtime: Runtime) -> None:
        filler = teacher if settings.fill_with is None else load_any(settings.fill_with)
        if "mlm" not in filler.parts:
            fix = "name a pre-trained model with --fill-with, such as starter"
            raise CheckpointError.needs("--augment", f"a masked-LM head, and '{filler.name}' has none", fix)
        self._heads = load_pretraining_heads(str(filler.path), device=runtime.device, needs=("mlm",))
        self._count = settings.augment
        self._vectors = None
        if settings.word_vectors is not None:
            self._vectors = load_word_vectors(settings.word_vectors)
        self._near: dict[str, tuple[str, ...]] = {}

    def copies(self, examples: Sequence[Example], spec: TaskSpec, *, seed: int) -> list[Example]:
        """The changed copies of all texts, without labels; those that equal their text are left out."""
        texts = [example for example in examples if isinstance(example, TextExample)]
        if len(texts) < len(examples):
            needed = f"a task on texts or pairs of texts, not {spec.title}"
            raise ConfigError.needs("--augment", needed, "leave it out, or give examples with --unlabelled")
        parts = [text for example in texts for text in (example.first, example.second or "")]
        candidates = self._candidates(parts)
        copies: list[Example] = []
        for number, example in enumerate(texts):
            for copy in range(self._count):
                rng = generator(seed, "augmentation", number, copy)
                first, second = (
                    _changed(parts[2 * number + side], candidates[2 * number + side], rng) for side in (0, 1)
                )
                if (first, second) != (example.first, example.second or ""):
                    changed = second if example.second is not None else None
                    name = f"{example.id}, copy {copy + 1}"
                    copies.append(
                        dataclasses.replace(
                            example, id=name, first=first, second=changed, label=None, location=example.location
                        )
                    )
        return copies

    def _candidates(self, texts: Sequence[str]) -> list[list[tuple[WordSpan, tuple[str, ...]]]]:
        """For each text the words that may be replaced, each with what may replace it."""
        spans = [spans_of(text) for text in texts]
        words = sorted({span.word for of_text in spans for span in of_text})
        counts = self._heads.tokenizer.encode_words(words).lengths if words else np.zeros(0, np.int64)
        pieces = dict(zip(words, np.asarray(counts).tolist(), strict=True))
        result: list[list[tuple[WordSpan, tuple[str, ...]]]] = [[] for _ in texts]
        gaps = [(number, span) for number, of_text in enumerate(spans) for span in of_text if pieces[span.word] == 1]
        with Progress("words to fill in", total=len(gaps), unit="words") as progress:
            for begin in range(0, len(gaps), _BLOCK):
                part = gaps[begin : begin + _BLOCK]
                masked = named_texts(gap_of(texts[number], span) for number, span in part)
                filled = self._heads.fill_texts(masked, CANDIDATES)
                for (number, span), fillings in zip(part, filled, strict=True):
                    options = tuple(filling.piece for filling in fillings[0] if _is_word(filling.piece, span.word))
                    result[number].append((span, options))
                progress.advance(len(part))
        several = 0
        for number, of_text in enumerate(spans):
            for span in of_text:
                if pieces[span.word] > 1:
                    several += 1
                    result[number].append((span, self._nearest(span.word)))
        if several and self._vectors is None:
            tell(
                f"{counted(several, 'word')} of several pieces stay as they are; --word-vectors would replace them too"
            )
        return result

    def _nearest(self, word: str) -> tuple[str, ...]:
        """The nearest neighbours of a word, none if it has no vector."""
        if self._vectors is None:
            return ()
        if word not in self._near:
            known = next((form for form in (word, word.lower()) if self._vectors.row(form) is not None), None)
            near = [] if known is None else neighbors(self._vectors, known, CANDIDATES)
            self._near[word] = tuple(neighbor.word for neighbor in near if neighbor.word.isalpha())
        return self._near[word]


def spans_of(text: str) -> list[WordSpan]:
    """The words of a text that may be replaced: letters alone, and no stop words.

    >>> [span.word for span in spans_of("The film is a 2nd chance.")]
    ['film', 'chance']
    """
    matches = (WordSpan(match[0], match.start(), match.end()) for match in _WORD.finditer(text))
    return [span for span in matches if span.word.isalpha() and span.word.lower() not in STOP_WORDS]


def gap_of(text: str, span: WordSpan) -> str:
    """The words around a word, with the mask in its place.

    >>> gap_of("a long good film", WordSpan("good", 7, 11))
    'a long [MASK] film'
    """
    before, after = text[: span.start].split(), text[span.end :].split()
    return " ".join([*before[-AROUND:], MASK, *after[:AROUND]])


def _changed(text: str, spans: Sequence[tuple[WordSpan, tuple[str, ...]]], rng: np.random.Generator) -> str:
    """The text with some of its words replaced."""
    parts, end = [], 0
    for span, options in sorted(spans, key=lambda item: item[0].start):
        if rng.random() < CHANCE and options:
            parts += [text[end : span.start], options[int(rng.integers(len(options)))]]
            end = span.end
    return "".join([*parts, text[end:]])


def _is_word(piece: str, word: str) -> bool:
    """Whether a piece can stand for a word: letters, a whole word, and another one."""
    return piece.isalpha() and not piece.startswith(CONTINUATION) and piece.lower() != word.lower()
