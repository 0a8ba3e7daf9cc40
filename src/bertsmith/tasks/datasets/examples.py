"""Examples as read from task files, before encoding: one class for each shape of task.

Labels and tags are the strings of the file; the task numbers them. `location` says where an example comes from, so that
an error can name file and row.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from bertsmith.base.core.errors import InputError
from bertsmith.text.documents.sentences import sentence_spans, split_sentences
from bertsmith.text.tokenizers.encoded import Encoded, Pieces, offsets_of

# The forms of examples whose texts are compared by their vectors; see `text_groups.py`.
SIMILARITY, PAIRS, TRIPLETS, TEXTS = FORMS = ("similarity", "pairs", "triplets", "texts")

NESTED_NER = "nested-ner"  # the task whose entities may be inside one another
ENTITIES_BY_NAME = "entities-by-name"  # the task whose entities have labels that a caller may name
MARKED = (NESTED_NER, ENTITIES_BY_NAME)  # tasks of entities as spans of words, in place of tags

NEITHER = -1  # the label of a pronoun that refers to none of its candidates

_PIECES: Any = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExample:
    """A single text or a pair of texts."""

    id: str
    first: str
    second: str | None = None
    # the name of a class, a number (regression), several names (multi-label), or None if there is no gold
    label: str | float | tuple[str, ...] | None = None
    weight: float = 1.0  # in the loss of a training, above 0
    location: str = ""
    pieces: Encoded | None = _PIECES  # of each text, if they were tokenized before; see `specs.tokenized`

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both."""
        return (self.first,) if self.second is None else (self.first, self.second)


def named_texts(texts: Iterable[str], names: Iterable[str] | None = None) -> list[TextExample]:
    """Texts as examples, with their names in errors; by default these are numbers from 1."""
    named = zip(texts, names or (f"text {number}" for number in itertools.count(1)), strict=False)
    return [TextExample(id=name, first=text, location=name) for text, name in named]


def pairs_of(query: str, passages: Iterable[str]) -> list[TextExample]:
    """The pairs of a query and each passage, as examples."""
    numbered = enumerate(passages, start=1)
    return [TextExample(id=str(n), first=query, second=text, location=f"passage {n}") for n, text in numbered]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TripletExample:
    """A text, one that belongs to it, and one or more that do not."""

    id: str
    texts: tuple[str, ...]  # at least three, in this order
    margin: float | None = None  # by how much a teacher scores the second text above the third; None without a teacher
    location: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceExample:
    """A context with several endings, one of which is correct."""

    id: str
    context: str
    endings: tuple[str, ...]
    label: int | None = None  # number of the correct ending, from 0; None if there is no gold
    location: str = ""
    pieces: Encoded | None = _PIECES  # of the context and of each ending

    @property
    def texts(self) -> tuple[str, ...]:
        """The context and the endings."""
        return (self.context, *self.endings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListExample(ChoiceExample):
    """A query with candidates, each of which has a score: how relevant it is, or what a teacher says."""

    scores: tuple[float, ...]  # as many as there are endings


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The words of all sentences of a document, and the index of one of them, from 0."""

    sentences: tuple[tuple[str, ...], ...]
    index: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedExample:
    """A sentence of words with one tag per word."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    document: int = 0  # the number of its document; neighboring sentences of the same document may serve as context
    location: str = ""
    # (start, end) of each word in the original text, in characters; None if the input was already words
    offsets: tuple[tuple[int, int], ...] | None = None
    # the document in the file, if the sentence may be used without its neighbors; else None
    surroundings: Surroundings | None = dataclasses.field(default=None, repr=False)
    pieces: Encoded | None = _PIECES  # of each word
    tokens_of_labels: int = dataclasses.field(default=0, repr=False, compare=False)  # in front of the words of a row
    # the plain text that was split into these words, for a model with words of its own; None if the input was words
    text: str | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The words."""
        return self.words


class WordSpan(NamedTuple):
    """The words from `start` to `end` (exclusive) of a sentence, from 0, and their label."""

    start: int
    end: int
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntityExample(TaggedExample):
    """A sentence of words with entities, which may be inside one another or overlap, in place of tags."""

    entities: tuple[WordSpan, ...] = ()  # sorted, each once
    labels: tuple[str, ...] = ()  # those of its file; empty if that does not matter

    @classmethod
    def of(cls, sentence: TaggedExample, entities: Iterable[tuple[int, int, str]]) -> Self:
        """The words of a sentence with entities."""
        values = {field.name: getattr(sentence, field.name) for field in dataclasses.fields(TaggedExample)}
        return cls(**{**values, "tags": None}, entities=tuple(sorted({WordSpan(*entity) for entity in entities})))

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The sentence with new names of labels, where there are some."""
        spans = {WordSpan(start, end, names.get(label, label)) for start, end, label in self.entities}
        return dataclasses.replace(self, entities=tuple(sorted(spans)))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A gold answer: its text, and the character of the context at which it starts."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionExample:
    """A question about a context."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    absent_answers: tuple[str, ...] = ()  # gold answers whose text does not occur in the context; used for scoring only
    is_impossible: bool = False
    location: str = ""
    pieces: Encoded | None = _PIECES  # of the question and of each word of the context


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceExample:
    """A text, and another one to write for it, such as its summary.

    Attributes:
        targets: the right answers, the first of which a training reads; empty if there is no gold.
        is_answer: whether they answer a question, and are compared as such, too.
        pieces: of the source, if it was tokenized before.
    """

    id: str
    source: str
    targets: tuple[str, ...] = ()
    is_answer: bool = False
    location: str = ""
    pieces: Encoded | None = _PIECES

    @property
    def texts(self) -> tuple[str, ...]:
        """The source."""
        return (self.source,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentExample(SequenceExample):
    """A source text in sentences, of which some are to be chosen, such as those of its summary.

    Attributes:
        sentences: the start and end of each sentence in the source, in characters, ascending.
        chosen: the numbers of the right sentences where the file says so, ascending; None: those that come closest to
            the targets.
    """

    sentences: tuple[tuple[int, int], ...]
    chosen: tuple[int, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences."""
        return tuple(self.source[start:end] for start, end in self.sentences)


def document_of(source: str | Sequence[str], **fields: Any) -> DocumentExample:
    """A text, or the sentences of a text, as an example; `fields` are its other ones."""
    if isinstance(source, str):
        return DocumentExample(source=source, sentences=tuple(sentence_spans(source)), **fields)
    texts = [text.strip() for text in source]
    empty = next((number for number, text in enumerate(texts, start=1) if not text), None)
    if empty is not None:
        raise InputError(
            expected=f"sentences in {fields['location']}",
            found=f"an empty one as number {empty} of {len(texts)}",
            fix="remove it",
        )
    starts = offsets_of([len(text) + 1 for text in texts]).tolist()
    spans = tuple((start, start + len(text)) for start, text in zip(starts, texts, strict=False))
    return DocumentExample(source=" ".join(texts), sentences=spans, **fields)


def usual_sentences(examples: Sequence[DocumentExample]) -> int:
    """The usual number of sentences to choose: the median of the right ones, or of the first targets; at least 1."""
    counts = [
        len(split_sentences(example.targets[0])) if example.chosen is None else len(example.chosen)
        for example in examples
        if example.targets
    ]
    return max(1, round(statistics.median(counts))) if counts else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class MentionExample:
    """A text with a pronoun and the names that it may refer to.

    Attributes:
        pronoun: its (start, end) in the text, in characters.
        candidates: those of the names.
        label: the number of the right candidate, from 0; NEITHER if none is; None if there is no gold.
        pieces: of the text, if it was tokenized before.
    """

    id: str
    text: str
    pronoun: tuple[int, int]
    candidates: tuple[tuple[int, int], ...]
    label: int | None = None
    location: str = ""
    pieces: Pieces | None = _PIECES

    @property
    def texts(self) -> tuple[str, ...]:
        """The text."""
        return (self.text,)

    @property
    def mentions(self) -> tuple[tuple[int, int], ...]:
        """The spans of the pronoun and of the candidates."""
        return (self.pronoun, *self.candidates)

    def within(self, span: tuple[int, int]) -> str:
        """The characters of a span."""
        return self.text[slice(*span)]


Example = (
    TextExample | TripletExample | ChoiceExample | TaggedExample | QuestionExample | SequenceExample | MentionExample
)


def is_blank(example: Example) -> bool:
    """Whether the example is a text, or a pair of texts, with nothing but whitespace."""
    return isinstance(example, TextExample) and not f"{example.first}{example.second or ''}".strip()


def whole_text(example: Example) -> str:
    """All texts of an example, one after another."""
    texts = (example.question, example.context) if isinstance(example, QuestionExample) else example.texts
    return " ".join(texts)


def empty_texts_note(count: int, *, of_words: bool = False) -> str:
    """A sentence that says how many texts were predicted although they are blank; "" for none.

    Args:
        of_words: the model reads words, and no special pieces.
    """
    reads = "without a word" if of_words else "from [CLS] [SEP] alone"
    return f"empty texts, predicted {reads}: {count:,}" if count else ""


def texts_of_group(example: Example) -> tuple[str, ...]:
    """The texts of an example whose texts are compared: of a pair, a triplet, or a context and its candidates."""
    assert isinstance(example, TextExample | TripletExample | ChoiceExample), "this task takes texts, pairs, triplets"
    return example.texts


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleFile:
    """The examples of a file, and the rows that were skipped."""

    examples: tuple[Example, ...]
    # location and reason of each unusable row; never silent: the caller prints them
    skipped: tuple[tuple[str, str], ...] = ()
    # of a column of several labels, the width of the lists of zeros and ones that it holds; 0 if it names labels, None
    # if nothing was decided
    ones: int | None = None

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        skipped: Sequence[tuple[str, str]] = (),
        *,
        expected: str,
        found: str = "none",
        fix: str = "name another file",
    ) -> Self:
        """The examples that a reader kept; without any, an error with these parts."""
        if not examples:
            raise InputError(expected=expected, found=found, fix=fix)
        return cls(examples=tuple(examples), skipped=tuple(skipped))
