"""Stories with questions: read from files in the format of bAbI or JSON lines, split, and encoded.

::

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary?<tab>bathroom<tab>1

A line with the number 1 starts a new story. A question is about the facts before it, and its last cell, which may be
missing, has the numbers of the lines that support the answer. The same as JSON, with the places of the supporting facts
counted from 1::

    {"facts": ["Mary moved to the bathroom.", "John went to the hallway."],
     "question": "Where is Mary?", "answer": "bathroom", "support": [1]}
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted
from bertsmith.tasks.datasets.records import json_records
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.tokenizer import Tokenizer

_BABI_NUMBER = re.compile(r"\d{1,9}")  # of a line; int() refuses thousands of digits
_BABI = re.compile(rf"({_BABI_NUMBER.pattern})\s+(\S.*)")
_FIELDS = ("facts", "question", "answer", "support")


@dataclasses.dataclass(frozen=True)
class Story:
    """Facts and a question about them.

    Attributes:
        answer: None if only the supporting facts are known, or nothing.
        support: the indices of the supporting facts, in the order in which the hops should find them.
        location: in a file, for messages.
        group: the number of the story in its file; several questions may be about one story. In JSON lines, it is one
            story if all facts are the same.
    """

    facts: tuple[str, ...]
    question: str
    answer: str | None = None
    support: tuple[int, ...] = ()
    location: str = "the story"
    group: int = 0


def read_stories(path: Path, encoding: str = UTF_8) -> list[Story]:
    """The stories of a file, which may be compressed; at least one.

    Args:
        encoding: of a file without a byte order mark.
    """
    text = file_text(path, kind="stories", encoding=encoding)
    if looks_like_json(text):
        stories, groups = [], dict[tuple[str, ...], int]()
        for location, value in json_records(path, text, lines=True):
            story = story_of(value, location, learns=True)
            stories.append(dataclasses.replace(story, group=groups.setdefault(story.facts, len(groups))))
    else:
        stories = list(_babi(path, text))
    if not stories:
        raise InputError(
            expected=f"questions in {quoted(path)}",
            found="facts alone",
            fix="add lines with a question, a tab and its answer",
        )
    return stories


def story_of(record: Any, location: str, *, learns: bool = False) -> Story:
    """The story of a JSON record.

    Args:
        learns: it has an answer, or supporting facts, from which to learn.
    """

    def wrong(name: str, expected: str) -> InputError:
        return InputError.at(location, expected, brief(record.get(name)), "fix this record")

    if not isinstance(record, Mapping):
        raise InputError.at(location, 'a record {"facts": [...], "question": ...}', brief(record), "fix it")
    facts, question, answer, support = (record.get(name) for name in _FIELDS)
    if not isinstance(facts, Sequence) or isinstance(facts, str) or not facts or not all(map(_is_text, facts)):
        raise wrong("facts", "a list of texts as facts, at least one")
    if not (isinstance(question, str) and _is_text(question)):
        raise wrong("question", "a text as question")
    if answer is not None and not _is_text(answer):
        raise wrong("answer", "a text as answer")
    numbers = () if support is None else support
    if (
        not isinstance(numbers, Sequence)
        or isinstance(numbers, str)
        or not all(_is_number(number, len(facts)) for number in numbers)
    ):
        raise wrong("support", f"a list of numbers from 1 to {len(facts)} as support")
    if learns and answer is None and not numbers:
        raise InputError.at(location, "an answer, or the support of one", "neither", "add one of them")
    return Story(
        tuple(clean(fact) for fact in facts),
        clean(question),
        None if answer is None else clean(answer).strip(),
        tuple(number - 1 for number in numbers),
        location,
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _babi(path: Path, text: str) -> Iterator[Story]:
    """The questions of a file in the format of bAbI; facts that no question follows are counted on stderr."""
    facts: list[str] = []
    indices: dict[int, int] = {}  # of the facts, by the numbers of their lines
    group = before = asked = unread = 0
    for number, line in enumerate(lines_of(text), start=1):
        if not line.strip():
            continue
        location, match = line_of(path, number), _BABI.fullmatch(line.strip())
        if match is None:
            raise InputError.at(location, "a number and a sentence", brief(line), "number the lines of each story")
        line_number, content = int(match[1]), match[2]
        if line_number == 1:
            unread += len(facts) - asked
            facts, indices, group, asked = [], {}, group + 1, 0
        elif line_number != before + 1:
            expected = f"the number {before + 1}, or 1 for a new story"
            raise InputError.at(location, expected, str(line_number), "renumber it")
        before = line_number
        if "\t" not in content:
            indices[line_number] = len(facts)
            facts.append(content)
            continue
        question, answer, *rest = (cell.strip() for cell in content.split("\t"))
        if not (question and answer) or len(rest) > 1:
            raise InputError.at(
                location, "a question, a tab, its answer, a tab and numbers of facts", brief(content), "fix this line"
            )
        if not facts:
            raise InputError.at(location, "facts before the question", "none", "add some, or remove it")
        support = rest[0].split() if rest else []
        unknown = [word for word in support if not _BABI_NUMBER.fullmatch(word) or int(word) not in indices]
        if unknown:
            raise InputError.at(location, "numbers of facts of this story", brief(unknown[0]), "fix this line")
        asked = len(facts)
        yield Story(tuple(facts), question, answer, tuple(indices[int(word)] for word in support), location, group)
    if unread := unread + len(facts) - asked:
        warn(f"{path}: {counted(unread, 'fact')} that no question of the story follows; not read")


def split_stories(stories: Sequence[Story], share: float, seed: int) -> tuple[list[Story], list[Story]]:
    """Training and dev stories: about that share of the questions is held out, with all questions of a story."""
    groups = {story.group for story in stories}
    require(
        len(groups) > 1,
        expected="two stories, one of them to be held out",
        found=counted(len(groups), "story", "stories"),
        fix="add stories, or give --dev a file",
    )
    order = np.array(sorted(groups))[generator(seed, "dev stories").permutation(len(groups))].tolist()
    counts = dict.fromkeys(order, 0)
    for story in stories:
        counts[story.group] += 1
    aside, held = set[int](), 0
    for group in order[:-1]:
        if held >= max(1, round(share * len(stories))):
            break
        aside.add(group)
        held += counts[group]
    return [story for story in stories if story.group not in aside], [s for s in stories if s.group in aside]


@dataclasses.dataclass(frozen=True)
class EncodedStories:
    """Stories as ids; each distinct text is encoded once.

    Attributes:
        texts: the distinct texts.
        facts: the facts that are read of each story, as numbers of texts: int64 [their number].
        questions: int64 [stories].
        answers: int64 [stories], the number of the answer; -1 for one that is not known, -2 for no answer.
        support: of each story the indices of its supporting facts among those that are read.
        unknown: of each story, how many of its words are not in the vocabulary.
    """

    texts: Encoded
    facts: tuple[npt.NDArray[np.int64], ...]
    questions: npt.NDArray[np.int64]
    answers: npt.NDArray[np.int64]
    support: tuple[tuple[int, ...], ...]
    unknown: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.facts)


UNKNOWN_ANSWER, NO_ANSWER = -1, -2


def encode_stories(
    stories: Sequence[Story], tokenizer: Tokenizer, answers: Sequence[str], most_facts: int, name: str | None
) -> EncodedStories:
    """The stories as ids, with their last facts; how many have more is written to stderr.

    Args:
        answers: those that the model knows.
        name: of the file, for that message; None if the caller counts.
    """
    numbers: dict[str, int] = {}
    for story in stories:
        for text in (*story.facts, story.question):
            if text not in numbers:
                numbers[text] = len(numbers)
    texts = tokenizer.encode_batch(list(numbers))
    empty = {number for number, count in enumerate(texts.lengths.tolist()) if not count}
    known = {answer: number for number, answer in enumerate(answers)}
    facts, questions, support, gold, unknown = [], [], [], [], []
    of_text = np.add.reduceat(np.append(texts.ids == tokenizer.vocabulary.unk_id, False), texts.offsets[:-1])
    longer = 0
    for story in stories:
        rows = np.array([numbers[fact] for fact in story.facts], dtype=np.int64)
        if empty and not empty.isdisjoint([*rows.tolist(), numbers[story.question]]):
            texts_of_story = (*story.facts, story.question)
            number = next(number for number, text in enumerate(texts_of_story, start=1) if numbers[text] in empty)
            which = "the question" if number == len(texts_of_story) else f"fact {number}"
            raise InputError.at(
                story.location, "words in each fact and in the question", f"a text without any as {which}", "fix it"
            )
        cut = max(0, len(rows) - most_facts)
        longer += cut > 0
        facts.append(rows[cut:])
        questions.append(numbers[story.question])
        support.append(tuple(index - cut for index in story.support if index >= cut))
        gold.append(NO_ANSWER if story.answer is None else known.get(story.answer, UNKNOWN_ANSWER))
        unknown.append(int(of_text[[*rows[cut:], numbers[story.question]]].sum()))
    if name is not None:
        warn_of_longer(longer, most_facts, name)
    return EncodedStories(
        texts, tuple(facts), np.array(questions), np.array(gold, dtype=np.int64), tuple(support), tuple(unknown)
    )


def warn_of_longer(longer: int, most_facts: int, name: str) -> None:
    """Warns of the questions of a file that are about more facts than are read."""
    if longer:
        warn(f"{name}: {counted(longer, 'question')} about more than {most_facts} facts; only the last ones are read")
