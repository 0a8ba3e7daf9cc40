"""Examples as they stand in task files, before anything is encoded: one class for each shape of task.

Labels and tags are the words of the file; numbering them is the task's affair. `place` says where an example
stands, so that an error can name file and row.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text or a pair of texts.

    Attributes:
        id: what the file calls it, or its row.
        first: text A.
        second: text B; None for a single text.
        label: a class by name, a number (regression), names (multi-label), or None where there is no gold.
        place: file and row.
    """

    id: str
    first: str
    second: str | None = None
    label: str | float | tuple[str, ...] | None = None
    place: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceExample:
    """A context with several endings, one of which fits.

    Attributes:
        id: what the file calls it, or its row.
        context: text A of every row, may be empty.
        endings: text B of each row; two at least.
        label: which ending fits, from 0; None where there is no gold.
        place: file and row.
    """

    id: str
    context: str
    endings: tuple[str, ...]
    label: int | None = None
    place: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedExample:
    """A sentence of words with a tag for each.

    Attributes:
        id: number of the sentence in the file, from 0.
        words: its words.
        tags: one a word; None where there is no gold.
        document: number of the document it stands in; neighbours of one document may serve as context.
        place: file and line.
        offsets: the characters (start, end) of each word in the text it came from; None where it came as words.
    """

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    document: int = 0
    place: str = ""
    offsets: tuple[tuple[int, int], ...] | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """A gold answer: its text and the character of the context where it starts."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionExample:
    """A question about a context.

    Attributes:
        id: what the file calls it.
        question: the question.
        context: the text that holds the answer, of any length.
        answers: gold answers; empty where there is no gold or no answer.
        absent_answers: gold answers whose text the context does not hold: they count in scoring alone.
        is_impossible: the context holds no answer (SQuAD 2.0).
        place: file and question.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    absent_answers: tuple[str, ...] = ()
    is_impossible: bool = False
    place: str = ""


Example = TextExample | ChoiceExample | TaggedExample | QuestionExample


def is_blank(example: Example) -> bool:
    """Whether it is a text, or a pair of texts, of nothing but white space."""
    return isinstance(example, TextExample) and not f"{example.first}{example.second or ''}".strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleFile:
    """What a reader found in a file.

    Attributes:
        examples: those that can be used, in the order of the file.
        skipped: place and reason of each row that cannot; never silent, whoever reads prints them.
    """

    examples: tuple[Example, ...]
    skipped: tuple[tuple[str, str], ...] = ()
