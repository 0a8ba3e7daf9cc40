"""Counting the words of files: each file for itself and all together, each distinct word once."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.documents import words
from bertsmith.text.documents.parsing import TextBlock, parse, parse_lines
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.vocabularies import word_counts
from bertsmith.text.vocabularies.word_counts import count_words

TEXTS = ["It's a dog, a big dog.\n\n  Crème brûlée  \n", "A dog! It's a cat; it's\r\nnot a dog.", "\n \nIt's it\n"]


def files(folder: Path) -> list[Path]:
    """A file for each text."""
    paths = [folder / f"{number}.txt" for number in range(len(TEXTS))]
    for path, text in zip(paths, TEXTS, strict=True):
        path.write_bytes(text.encode())
    return paths


def test_the_counts_of_files_are_those_of_their_texts_and_add_up(tmp_path: Path) -> None:
    paths = files(tmp_path)
    counts = count_files(paths, TextRules())
    assert {name: dict(words) for name, words in counts.files.items()} == {
        str(path): dict(count_words([text])) for path, text in zip(paths, TEXTS, strict=True)
    }
    assert [words.chunks for words in counts.files.values()] == [len(text.split()) for text in TEXTS]
    assert dict(counts.total) == dict(count_words(TEXTS))
    assert counts.total.num_sources == len(TEXTS)
    assert counts.total["it"] == sum(words.get("it", 0) for words in counts.files.values())


def test_rare_words_that_are_dropped_are_said_and_are_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 4)
    counts = count_files(files(tmp_path), TextRules())
    assert counts.total["dog"] == 4
    assert set(counts.files) > {words.FURTHER_FILES}
    assert all(set(of_file) <= set(counts.total) for of_file in counts.files.values())
    assert re.search(r"warning: .*; rare ones were dropped, \d+\.\d\d% of all words", capsys.readouterr().err)


def test_a_word_of_several_files_is_split_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = []

    def spy(text: str, rules: TextRules) -> list[str]:
        split.append(text)
        return word_counts_basic_tokens(text, rules)

    word_counts_basic_tokens = word_counts.basic_tokens
    monkeypatch.setattr(word_counts, "basic_tokens", spy)
    count_files(files(tmp_path), TextRules())
    assert "crème" in split
    assert "'" in split
    assert len(split) == len(set(split))


@given(st.text(alphabet=" \t\n\rab\x1c\u2003\ufeffé", max_size=40), st.integers(1, 2))
def test_the_lines_of_a_block_are_those_of_its_documents(text: str, line: int) -> None:
    block = TextBlock("a.txt", "lines", text.encode() + b"\xff\n", line, ends=True, drops=True)
    parts, counts = parse(block)
    lines, lost = parse_lines(block)
    assert lines == [sentence for part in parts for sentence in part.sentences]
    assert lost.encoding_errors == counts.encoding_errors == 1
