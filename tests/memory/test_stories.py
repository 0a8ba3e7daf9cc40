"""Stories from files: both formats, what is refused and how, dev stories, ids."""

import json
import re
from pathlib import Path

import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.recipes.memory.model_folder import rows_of_answers, words_of
from bertsmith.recipes.memory.stories import (
    NO_ANSWER,
    UNKNOWN_ANSWER,
    Story,
    encode_stories,
    read_stories,
    split_stories,
    story_of,
)
from memory.sample_stories import write_stories
from written_files import file_with

BABI = "1 Mary went to the garden.\n2 John left.\n3 Where is Mary?\tgarden\t1\n4 Ann came.\n5 Who came? \tAnn\t4 2\n"


def write(folder: Path, text: str, name: str = "stories.txt") -> Path:
    return file_with(folder / name, text)


def test_the_format_of_babi_gives_facts_before_each_question_and_supports_by_line(tmp_path: Path) -> None:
    first, second, third = read_stories(write(tmp_path, BABI + "1 It rains.\n2 What?\train\n"))
    assert first.facts == ("Mary went to the garden.", "John left.")
    assert (first.question, first.answer, first.support) == ("Where is Mary?", "garden", (0,))
    assert second.facts == (*first.facts, "Ann came.")
    assert (second.answer, second.support) == ("Ann", (2, 1))
    assert (third.facts, third.support) == (("It rains.",), ())
    assert [story.group for story in (first, second, third)] == [1, 1, 2]


def test_json_lines_are_read_as_the_same_stories(tmp_path: Path) -> None:
    babi = read_stories(write(tmp_path, BABI))
    lines = [
        json.dumps(
            {
                "facts": story.facts,
                "question": story.question,
                "answer": story.answer,
                "support": [index + 1 for index in story.support],
            }
        )
        for story in babi
    ]
    read = read_stories(write(tmp_path, "\n".join(lines) + "\n", "stories.jsonl"))
    for ours, theirs in zip(read, babi, strict=True):
        assert (ours.facts, ours.question, ours.answer, ours.support) == (
            theirs.facts, theirs.question, theirs.answer, theirs.support,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Mary left.\n", "expected a number and a sentence in line 1 of"),
        ("1 Mary left.\n3 Who?\tMary\t1\n", "expected the number 2, or 1 for a new story in line 2 of"),
        ("1 Who?\tMary\n", "expected facts before the question in line 1 of"),
        ("1 Mary left.\n2 Who?\t\t1\n", "expected a question, a tab, its answer, a tab and numbers of facts in line 2"),
        ("1 Mary left.\n2 Who?\tMary\t7\n", "expected numbers of facts of this story in line 2 of"),
        ("1 Mary left.\n2 Who?\tMary\tone\n", "found 'one'"),
        ("1 Mary left.\n2 Who?\tMary\t3\n3 John left.\n", "found '3'"),
        ("1" * 5000 + " Mary left.\n", "expected a number and a sentence in line 1 of"),
        ("1 Mary left.\n2 Who?\tMary\t" + "1" * 5000 + "\n", "expected numbers of facts of this story in line 2 of"),
        ("1 Mary left.\n", "found facts alone"),
        (
            '{"facts": [], "question": "Who?", "answer": "a"}\n',
            "expected a list of texts as facts, at least one in line",
        ),
        ('{"facts": "a b", "question": "Who?", "answer": "a"}\n', "expected a list of texts as facts"),
        ('{"facts": ["a"], "answer": "a"}\n', "expected a text as question in line 1 of"),
        ('{"facts": ["a"], "question": "b", "answer": 3}\n', "expected a text as answer in line 1 of"),
        ('{"facts": ["a"], "question": "b", "support": [0]}\n', "expected a list of numbers from 1 to 1 as support"),
        ('{"facts": ["a"], "question": "b"}\n', "expected an answer, or the support of one in line 1 of"),
        ('{"facts": ["a"], "question": "b", "answer": "a"}\n{"fa\n', "expected JSON in line 2 of"),
    ],
)
def test_what_is_no_story_is_refused_in_one_line_with_its_location(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        read_stories(write(tmp_path, text))
    assert "stories.txt" in str(error.value)


def test_whole_stories_are_held_out_and_always_the_same_ones(tmp_path: Path) -> None:
    stories = read_stories(write_stories(tmp_path / "stories.txt", 20))
    train, dev = split_stories(stories, 0.2, 3)
    assert len(dev) == 8
    assert {story.group for story in train}.isdisjoint(story.group for story in dev)
    assert split_stories(stories, 0.2, 3) == (train, dev)
    assert split_stories(stories, 0.2, 4) != (train, dev)
    with pytest.raises(ConfigError, match="two stories"):
        split_stories(stories[:2], 0.5, 3)


def test_the_last_facts_are_read_and_their_supports_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(("a b.", "c d.", "a d."), "b?", "c d", (0, 2))
    tokenizer = words_of([story], 1)
    encoded = encode_stories([story], tokenizer, ["c d"], 2, "stories")
    assert [tokenizer.decode(encoded.texts[number]) for number in encoded.facts[0]] == ["c d .", "a d ."]
    assert encoded.support == ((1,),)
    assert encoded.answers.tolist() == [0]
    assert "stories: 1 question about more than 2 facts; only the last ones are read" in capsys.readouterr().err


def test_facts_that_no_question_follows_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_stories(write(tmp_path, BABI))
    assert not capsys.readouterr().err
    # A question without tabs is a fact; so is what follows the last question of a story.
    read_stories(
        write(tmp_path, BABI + "6 Bob came.\n1 It rains.\n2 What? rain 1\n1 It rains.\n2 What?\train\n3 No.\n")
    )
    assert "stories.txt: 4 facts that no question of the story follows; not read" in capsys.readouterr().err


def test_answers_and_words_that_are_not_known_are_counted_as_such() -> None:
    tokenizer = words_of([Story(("a b.",), "b?", "a")], 1)
    asked = [Story(("a zebra.",), "zebra?", "zebra"), Story(("a.",), "b?")]
    encoded = encode_stories(asked, tokenizer, ["a"], 5, "stories")
    assert encoded.answers.tolist() == [UNKNOWN_ANSWER, NO_ANSWER]
    assert encoded.unknown == (2, 0)
    expected = "words in each fact and in the question in here; found a text without any as"
    with pytest.raises(InputError, match=f"{expected} fact 2"):
        encode_stories([Story(("a", "\u200b"), "a?", "a", (), "here")], tokenizer, ["a"], 5, "stories")
    with pytest.raises(InputError, match=f"{expected} the question"):
        encode_stories([Story(("a",), "\u200b", "a", (), "here")], tokenizer, ["a"], 5, "stories")


def test_an_answer_has_the_row_of_its_word_or_one_of_its_own() -> None:
    tokenizer = words_of([Story(("a b.",), "b?", "a"), Story(("b.",), "b?", "A b")], 1)
    rows = rows_of_answers(["A", "A b", "a", "zebra"], tokenizer)
    words = len(tokenizer.vocabulary)
    assert rows == [tokenizer.vocabulary.index["a"], words, words + 1, words + 2]


def test_rare_words_are_left_out() -> None:
    stories = [Story(("a b.",), "c?", "a"), Story(("a d.",), "c?", "a")]
    assert "b" not in words_of(stories, 2).vocabulary.index
    assert {"a", "b", "c", "d"} <= words_of(stories, 1).vocabulary.index.keys()


def test_a_record_for_an_answer_needs_no_answer() -> None:
    assert story_of({"facts": ["a"], "question": "b?"}, "line 1").answer is None
    with pytest.raises(InputError, match="line 1"):
        story_of(["a"], "line 1")
