"""Multiple-choice files."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.choice import read_choices
from written_files import file_with

SWAG_HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label".split(",")
SWAG_ROW = [
    "0",
    "v1",
    "3416",
    "He sat, still. He",
    "He sat, still.",
    "He",
    "gold",
    "got up.",
    "sang.",
    "is.",
    "fell.",
    "2",
]


def as_csv(rows: list[list[str]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


def test_an_ending_of_swag_follows_the_beginning_of_its_sentence(tmp_path: Path) -> None:
    path = file_with(tmp_path / "train.csv", as_csv([SWAG_HEADER, SWAG_ROW]))
    (example,) = read_choices(path).examples
    assert example.context == "He sat, still."
    assert example.endings == ("He got up.", "He sang.", "He is.", "He fell.")
    assert (example.id, example.label, example.location) == ("0", 2, f"line 2 of '{path}'")


def test_a_test_file_of_swag_has_no_labels(tmp_path: Path) -> None:
    path = file_with(tmp_path / "test.csv", as_csv([SWAG_HEADER[:-1], SWAG_ROW[:-1]]))
    assert read_choices(path, labelled=False).examples[0].label is None
    with pytest.raises(InputError, match=r"expected columns for label in line 2"):
        read_choices(path)


def test_codah_has_no_header(tmp_path: Path) -> None:
    path = file_with(tmp_path / "full.tsv", 'o\tI "am\thungry.\tsad.\told.\tin.\t3\n\ti slept\ta\tb\tc\td\t0\n')
    first, second = read_choices(path).examples
    assert (first.context, first.endings, first.label) == ('I "am', ("hungry.", "sad.", "old.", "in."), 3)
    assert (second.context, second.label) == ("i slept", 0)


@pytest.mark.parametrize("count", [2, 3, 11])
def test_there_may_be_any_number_of_endings(tmp_path: Path, count: int) -> None:
    endings = [f"ending {number}" for number in range(count)]
    names = [f"ending{number}" for number in range(count)]
    codah = file_with(tmp_path / "a.tsv", "\t".join(["o", "context", *endings, "1"]) + "\n")
    table = file_with(
        tmp_path / "b.tsv", "\t".join(["context", *names, "label"]) + "\n" + "\t".join(["", *endings, "1"]) + "\n"
    )
    records = file_with(
        tmp_path / "c.jsonl", json.dumps({"question": "context", "endings": endings, "label": 1}) + "\n"
    )
    for path in (codah, table, records):
        (example,) = read_choices(path).examples
        assert (example.endings, example.label) == (tuple(endings), 1)
        assert example.context == ("" if path == table else "context")


def test_records_of_one_file_may_have_different_numbers_of_endings(tmp_path: Path) -> None:
    records = [
        {"context": "c", "endings": ["a", "b"], "label": 1},
        {"context": "c", "endings": ["a", "b", "d"], "label": 2},
    ]
    path = file_with(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert [(len(example.endings), example.label) for example in read_choices(path).examples] == [(2, 1), (3, 2)]


def test_a_start_phrase_without_its_sentences_is_the_context(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", "startphrase,sent2,ending0,ending1,label\nHe sat. He,He,got up.,fell.,0\n")
    (example,) = read_choices(path).examples
    assert (example.context, example.endings) == ("He sat. He", ("got up.", "fell."))


def test_halves_of_surrogate_pairs_do_not_survive_in_endings(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.jsonl", '{"context": "c", "endings": ["a\\ud83d", "b"], "label": 0}')
    assert read_choices(path).examples[0].endings == ("a\ufffd", "b")


def test_a_question_with_an_empty_ending_is_skipped_and_listed(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", "context,ending0,ending1,label\nc,a,,0\nc,a,b,1\n")
    file = read_choices(path)
    assert [example.id for example in file.examples] == ["1"]
    assert file.skipped == ((f"line 2 of '{path}'", "an empty ending"),)
    with pytest.raises(InputError, match="found 1 row, each with an empty ending"):
        read_choices(file_with(tmp_path / "b.csv", "context,ending0,ending1,label\nc,a,,0\n"))


SQUAD = '{"version": "1.1", "data": [{"paragraphs": []}]}'
BAD_FILES = {
    "a label beyond the endings": ("a.csv", "context,ending0,ending1,label\nc,a,b,2\n", "0 to 1, as label in line 2"),
    "a label that is not a number": ("a.csv", "context,ending0,ending1,label\nc,a,b,one\n", "found 'one'"),
    "a negative label": ("a.csv", "context,ending0,ending1,label\nc,a,b,-1\n", "found '-1'"),
    "a label of thousands of digits": ("a.csv", f"context,ending0,ending1,label\nc,a,b,{'1' * 5000}\n", "found '1111"),
    "no label": ("a.tsv", "o\tc\ta\tb\t\n", "as label in line 1"),
    "no endings": (
        "a.csv",
        "context,label\nc,1\n",
        "expected columns for the endings (ending0, ending1, ...) in line 2",
    ),
    "no context": ("a.csv", "ending0,ending1,label\na,b,1\n", "expected columns for the context"),
    "one ending": ("a.csv", "context,ending0,label\nc,a,0\n", "expected at least 2 endings in line 2"),
    "endings that are not a list": (
        "a.jsonl",
        '{"context": "c", "endings": {"a": 1}, "label": 0}',
        "expected a list of texts",
    ),
    "other columns below": ("a.tsv", "o\tc\ta\tb\t0\no\tc\ta\tb\td\t0\n", "in line 2 of"),
    "too few columns": ("a.tsv", "text\tlabel\na\t1\n", "found 2 columns"),
    "SQuAD as CSV": ("a.csv", SQUAD, "found JSON"),
    "SQuAD as TSV": ("a.tsv", SQUAD, "found JSON"),
    "SQuAD as JSON": ("a.json", SQUAD, "found columns 'version', 'data'"),
    "an empty file": ("a.tsv", "\n\n", "found an empty file"),
    "another ending": ("a.docx", "x", "expected a table"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    file, content, result = BAD_FILES[name]
    with pytest.raises(InputError, match=re.escape(result)) as error:
        read_choices(file_with(tmp_path / file, content))
    assert file in str(error.value)


def test_real_files_have_their_exact_counts(real_data: Path) -> None:
    folder = real_data / "multiple_choice"
    codah = read_choices(folder / "codah" / "full_data.tsv")
    assert (len(codah.examples), codah.skipped) == (2776, ())
    labels = [example.label for example in codah.examples]
    assert [labels.count(number) for number in range(4)] == [689, 684, 697, 706]
    assert {len(example.endings) for example in codah.examples} == {4}
    swag = read_choices(folder / "swag_sample" / "sample.json")
    assert len(swag.examples) == 10
    assert swag.examples[0].endings[1] == "A drum line has heard approaching them."
