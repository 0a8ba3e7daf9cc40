"""CoNLL files: words and tags in columns."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.conll import read_conll
from bertsmith.tasks.datasets.examples import TaggedExample
from written_files import file_with

START = "-DOCSTART- -X- -X- O\n\n"
STORY = f"{START}EU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nHe PRP I-NP O\n\n{START}No DT O O\n"
WORDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=6).filter(
    lambda word: not word.startswith("-DOCSTART-") and not word.startswith('{"') and not word.startswith("[{")
)
SENTENCES = st.lists(
    st.lists(st.tuples(WORDS, st.sampled_from(["O", "B-PER", "I-PER"])), min_size=1, max_size=5), min_size=1, max_size=5
)


def write_tagged(path: Path, examples: list[TaggedExample]) -> None:
    lines, document = [], 0
    for example in examples:
        lines += ["-DOCSTART-", ""] if example.document != document else []
        lines += [*map("\t".join, zip(example.words, example.tags, strict=True)), ""]
        document = example.document
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def sentences(path: Path, **columns: int | None) -> list[tuple[tuple[str, ...], tuple[str, ...] | None]]:
    return [(example.words, example.tags) for example in read_conll(path, **columns).examples]


def test_blank_lines_end_sentences_and_marks_begin_documents(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", STORY)
    examples = read_conll(path).examples
    assert [(example.words, example.tags, example.document) for example in examples] == [
        (("EU", "rejects"), ("I-ORG", "O"), 0),
        (("He",), ("O",), 0),
        (("No",), ("O",), 1),
    ]
    assert [(example.id, example.location) for example in examples] == [
        ("0", f"line 3 of '{path}'"),
        ("1", f"line 6 of '{path}'"),
        ("2", f"line 10 of '{path}'"),
    ]


def test_a_mark_without_blank_lines_ends_a_sentence_as_well(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "a O\n-DOCSTART- O\nb O\n-DOCSTART- O\n-DOCSTART- O\nc O")
    assert [(example.words, example.document) for example in read_conll(path).examples] == [
        (("a",), 0),
        (("b",), 1),
        (("c",), 2),
    ]


def test_any_column_may_hold_words_or_tags(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", STORY)
    assert sentences(path, tag_column=1)[0] == (("EU", "rejects"), ("NNP", "VBZ"))
    assert sentences(path, word_column=1, tag_column=2)[0] == (("NNP", "VBZ"), ("I-NP", "I-VP"))
    assert sentences(path, tag_column=None)[0] == (("EU", "rejects"), None)
    assert sentences(file_with(tmp_path / "b.txt", "one\nword\n\nmore\n"), tag_column=None) == [
        (("one", "word"), None),
        (("more",), None),
    ]


def test_columns_stand_between_tabs_or_spaces(tmp_path: Path) -> None:
    wanted = [(("New", "York"), ("B-LOC", "I-LOC"))]
    for text in ("New\tB-LOC\nYork\tI-LOC\n", "New B-LOC\nYork   I-LOC \n", "New\tB-LOC\r\nYork\tI-LOC\r\n\t\r\n"):
        assert sentences(file_with(tmp_path / "a.txt", text)) == wanted
    assert sentences(file_with(tmp_path / "a.txt", "New York\tB-LOC\n")) == [(("New York",), ("B-LOC",))]


def test_a_line_of_white_space_ends_a_sentence(tmp_path: Path) -> None:
    assert len(sentences(file_with(tmp_path / "a.txt", "a\tO\n\t\nb\tO\n  \nc\tO\n"))) == 3


def test_comments_have_no_tag_and_hashes_with_one_are_words(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "# sentence 1 of 2\n#\tO\n# a\n#tag\tO\n\n# x\tO\n")
    assert sentences(path) == [(("#", "#tag"), ("O", "O")), (("# x",), ("O",))]
    path = file_with(tmp_path / "b.txt", "# newdoc id = 1\na O\n# O\n# a comment\nb O\n")
    assert sentences(path) == [(("a", "#", "b"), ("O", "O", "O"))]


@given(SENTENCES, st.data())
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, drawn, data) -> None:
    path = tmp_path_factory.mktemp("conll") / "a.txt"
    document, examples = 0, []
    for number, sentence in enumerate(drawn):
        document += bool(number and data.draw(st.booleans()))
        words, tags = zip(*sentence, strict=True)
        examples.append(TaggedExample(id=str(number), words=words, tags=tags, document=document))
    write_tagged(path, examples)
    assert [dataclasses.replace(example, location="") for example in read_conll(path).examples] == examples


SQUAD = {"version": "1.1", "data": [{"paragraphs": []}]}
BAD_FILES = {
    "other columns": ("EU NNP O\nrejects O\n", "expected 3 columns in line 2 of"),
    "a word without a tag": ("EU\tB-ORG\nrejects\t\n", "expected 2 columns in line 2 of"),
    "no word": ("EU\tB-ORG\n\tO\n", "expected a word in line 2 of"),
    "one column": ("EU\nrejects\n", "expected a word in column 0"),
    "an empty file": ("", "found an empty file"),
    "marks alone": ("-DOCSTART- -X- O O\n\n", "found only marks and comments"),
    "comments alone": ("# nothing\n", "found only marks and comments"),
    "binary": (b"EU O\n\x00\x01\n", "found binary data"),
    "latin-1": ("EU O\nEspaña B-LOC\n".encode("latin-1"), "the byte 0xf1 in line 2, not UTF-8"),
    "SQuAD": (json.dumps(SQUAD), "found JSON"),
    "indented SQuAD": (json.dumps(SQUAD, indent=1), "found JSON"),
    "a table of texts": ("label\ttext\n1\tshort one\n", "found a table of texts, with the header"),
    "prose": ("The boat came home.\nNobody was in it that day.\n", "expected 4 columns in line 2 of"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    content, result = BAD_FILES[name]
    with pytest.raises(InputError, match=re.escape(result)) as error:
        read_conll(file_with(tmp_path / "a.txt", content))
    assert "a.txt" in str(error.value)


@pytest.mark.parametrize("columns", [{"tag_column": 2}, {"word_column": -3}, {"word_column": 1}, {"tag_column": 0}])
def test_a_column_that_is_not_there_is_an_error(tmp_path: Path, columns: dict[str, int]) -> None:
    with pytest.raises(InputError, match="found 2 columns; name the columns with --word-column and --tag-column"):
        read_conll(file_with(tmp_path / "a.txt", "a O\n"), **columns)


def test_real_files_have_their_exact_counts(real_data: Path) -> None:
    wnut = real_data / "ner" / "wnut17"
    files = ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]
    assert [len(read_conll(wnut / file).examples) for file in files] == [3394, 1009, 1287]
    ncbi = [read_conll(real_data / "ner/bio_scibert/NCBI-disease" / f"{part}.txt") for part in ("train", "dev", "test")]
    assert [len(file.examples) for file in ncbi] == [5424, 923, 940]
    assert {tag for example in ncbi[0].examples for tag in example.tags} == {"O", "B-Disease", "I-Disease"}


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "text,label\na b c,x\n", "a table of texts, with the header 'text,label'"),
        ("a.tsv", "Sentence\tid\tlabel\na b\t1\tx\n", "a table of texts"),
        ("a.csv", "body,kind\na b,x\n", "1 column"),
        ("a.parquet", "PAR1", "a Parquet table"),
    ],
)
def test_a_table_of_texts_is_refused_with_the_task_for_it(tmp_path: Path, name: str, text: str, found: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"found {found}.*; use --task classification for one label of each text"):
        read_conll(tmp_path / name)


def test_words_that_name_columns_are_words(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("text O\nlabel O\n", encoding="utf-8")
    assert read_conll(tmp_path / "a.conll").examples[0].words == ("text", "label")
