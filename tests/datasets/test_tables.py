"""Tables of texts and labels, valid and invalid."""

import csv
import gzip
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError, nearest_path
from bertsmith.tasks.datasets.tables import read_table, read_texts
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.text.documents.names import doubled
from written_files import file_with

RECORDS = [{"text": 'He said, "go".', "label": "spam"}, {"text": "two\nlines", "label": "ham"}]
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t\ufeff\x00"), max_size=8)


def csv_of(rows: list[list[str]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


def squad() -> str:
    questions = [{"id": "1", "question": "Who, then?", "answers": [{"text": "Ann", "answer_start": 0}]}]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": "Ann, it was.", "qas": questions}]}]})


def table(folder: Path, kind: str) -> Path:
    path = folder / f"train{kind}"
    if kind == ".csv":
        return file_with(path, csv_of([["text", "label"], *([record["text"], record["label"]] for record in RECORDS)]))
    if kind == ".jsonl":
        return file_with(path, "".join(json.dumps(record) + "\n" for record in RECORDS))
    if kind == ".json":
        return file_with(path, json.dumps(RECORDS, indent=1))
    pq.write_table(pa.Table.from_pylist(RECORDS), path)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".json", ".parquet"])
def test_a_table_of_every_kind_says_the_same(tmp_path: Path, kind: str, packed: bool) -> None:
    path = table(tmp_path, kind)
    if packed:
        path = file_with(tmp_path / f"packed{kind}.gz", gzip.compress(path.read_bytes()))
    assert [row.values for row in read_table(path)] == RECORDS
    assert [(example.first, example.label) for example in read_texts(path).examples] == [
        (record["text"], record["label"]) for record in RECORDS
    ]


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5))
def test_what_is_written_as_csv_or_tsv_is_read_again(tmp_path_factory: pytest.TempPathFactory, rows) -> None:
    folder = tmp_path_factory.mktemp("tables")
    header = ["text", "label"]
    as_csv = file_with(folder / "a.csv", csv_of([header, *rows]))
    assert [list(row.values.values()) for row in read_table(as_csv)] == rows
    as_tsv = file_with(folder / "a.tsv", "".join("\t".join(row) + "\n" for row in [header, *rows]))
    assert [list(row.values.values()) for row in read_table(as_tsv)] == rows


def test_quotes_of_tsv_are_characters_and_those_of_csv_are_not(tmp_path: Path) -> None:
    tsv = file_with(tmp_path / "a.tsv", 'text\tlabel\n"He left\t0\nShe said "no"\t1\n')
    assert [example.first for example in read_texts(tsv).examples] == ['"He left', 'She said "no"']
    comma = file_with(tmp_path / "a.csv", 'text,label\n"a ""b"", c",0\n')
    assert read_texts(comma).examples[0].first == 'a "b", c'


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_csv_of_a_spreadsheet_has_the_separator_of_its_header(tmp_path: Path, mark: str) -> None:
    cells = [["text", "label"], [f'a, "b"{mark} c\nd', "0"], ["e", "1"]]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=mark).writerows(cells)
    path = file_with(tmp_path / "a.csv", "\ufeff" + text.getvalue())
    assert [[row.values["text"], row.values["label"]] for row in read_table(path)] == cells[1:]
    assert list(TextLines(path)) == [row[0] for row in cells[1:]]


def test_a_comma_in_the_header_separates_its_cells(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", "text,label;other\na;b,0\n")
    assert [row.values for row in read_table(path)] == [{"text": "a;b", "label;other": "0"}]


def test_rows_without_a_label_are_counted_in_the_error_or_skipped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_with(tmp_path / "a.csv", "text,label\na,0\nb,\nc,1\nd, \n")
    with pytest.raises(InputError, match=r"an empty cell in 2 rows, the first in line 3; .* --skip-unlabelled"):
        read_texts(path)
    file = read_texts(path, skip_unlabelled=True)
    assert [example.first for example in file.examples] == ["a", "c"]
    assert not file.skipped
    assert capsys.readouterr().err == f"warning: '{path}': 2 rows skipped, with an empty label in column 'label'\n"


def test_line_ends_and_marks_of_other_systems_make_no_difference(tmp_path: Path) -> None:
    plain = "text\tlabel\na b\t0\nc\t1\n"
    wanted = read_texts(file_with(tmp_path / "a.tsv", plain)).examples
    for text in ("\ufeff" + plain, plain.replace("\n", "\r\n"), plain.replace("\n", "\r"), plain.rstrip("\n")):
        assert read_texts(file_with(tmp_path / "a.tsv", text)).examples == wanted


def test_a_row_knows_the_line_where_it_begins(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", 'text,label\n"one\ntwo",0\n\nthree,1\n')
    assert [row.location for row in read_table(path)] == [f"line 2 of '{path}'", f"line 5 of '{path}'"]


def test_a_text_longer_than_the_csv_module_likes_is_read(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", csv_of([["text", "label"], ["a " * 100_000, "0"]]))
    assert len(read_texts(path).examples[0].first) == 200_000


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        ("text label", "text", None),
        ("class Message", "Message", None),
        ("id review label", "review", None),
        ("label title text", "text", None),
        ("label title", "title", None),
        ("sentence1 sentence2 label", "sentence1", "sentence2"),
        ("premise hypothesis gold_label", "premise", "hypothesis"),
        ("index question sentence label", "question", "sentence"),
        ("question1 question2 category", "question1", "question2"),
        ("text text2 label", "text", "text2"),
    ],
)
def test_columns_are_found_by_their_usual_names(tmp_path: Path, header: str, first: str, second: str | None) -> None:
    names = header.split()
    path = file_with(tmp_path / "a.tsv", "\n".join(["\t".join(names), "\t".join(f"<{name}>" for name in names)]))
    example = read_texts(path).examples[0]
    assert (example.first, example.second) == (f"<{first}>", second and f"<{second}>")
    assert example.label in ("<label>", "<class>", "<gold_label>", "<category>")
    assert example.id == {"id": "<id>", "index": "<index>"}.get(names[0], "0")


def test_columns_that_are_named_are_taken(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.tsv", "a\tb\ttext\tc\n1\t2\t3\t4\n")
    example = read_texts(path, text_column="b", label_column="c").examples[0]
    assert (example.first, example.second, example.label) == ("2", None, "4")
    example = read_texts(path, text_column="b", pair_column="a", label_column="text").examples[0]
    assert (example.first, example.second, example.label) == ("2", "1", "3")
    example = read_texts(path, pair_column="a", target=None).examples[0]
    assert (example.first, example.second, example.label) == ("3", "1", None)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("words\tlabel", "found columns 'words', 'label'; name it with --text-column"),
        ("tokens\tentities", "; sentences of words are for --task ner, pos or nested-ner"),
        ("text\tsentence\tlabel", "candidates are 'text', 'sentence'; name it with --text-column"),
        ("text", "found column 'text'; add a label column"),
        ("text\tkind", "found columns 'text', 'kind'; name it with --label-column"),
        ("text\tlabel\tclass", "candidates are 'label', 'class'; name it with --label-column"),
    ],
)
def test_columns_that_are_missing_or_could_be_several_are_named(tmp_path: Path, header: str, found: str) -> None:
    path = file_with(tmp_path / "a.tsv", f"{header}\n{header}\n")
    with pytest.raises(InputError, match=re.escape(found)) as error:
        read_texts(path)
    assert all(name in str(error.value) for name in header.split("\t"))
    with pytest.raises(InputError, match="expected the column 'tekst'"):
        read_texts(path, text_column="tekst")


def test_labels_are_not_needed_where_none_are_read(tmp_path: Path) -> None:
    assert read_texts(file_with(tmp_path / "a.tsv", "text\na\n"), target=None).examples[0].label is None
    assert read_texts(file_with(tmp_path / "b.tsv", "text\tlabel\na\t\n"), target=None).examples[0].label is None
    with pytest.raises(InputError, match="an empty cell in 1 row, the first in line 3"):
        read_texts(file_with(tmp_path / "c.tsv", "text\tlabel\na\t1\nb\t \n"))


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("a", ("a",)),
        ("a|b", ("a", "b")),
        (" b | a |b", ("b", "a")),
        ('["a", "b|c"]', ("a", "b|c")),
        ("[1, 2]", ("1", "2")),
        ("[]", ()),
        ("", ()),
    ],
)
def test_several_labels_stand_in_a_cell(tmp_path: Path, cell: str, names: tuple[str, ...]) -> None:
    path = file_with(tmp_path / "a.tsv", f"text\tlabels\na\t{cell}\n")
    assert read_texts(path, target="labels").examples[0].label == names


def test_several_labels_are_a_list_in_a_record(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}\n')
    assert [example.label for example in read_texts(path, target="labels").examples] == [("x", "y"), ()]
    for cell, message in (("[1", "expected JSON in line 2"), ("[{}]", "expected a list of names in line 2")):
        with pytest.raises(InputError, match=re.escape(message)):
            read_texts(file_with(tmp_path / "a.tsv", f"text\tlabels\na\t{cell}\n"), target="labels")


def test_a_number_is_read_and_what_is_none_is_an_error(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.tsv", "text\tscore\na\t2.5\nb\t-1e2\n")
    assert [example.label for example in read_texts(path, target="number").examples] == [2.5, -100.0]
    for cell in ("much", "nan", "inf", "1_0", "1,5"):
        with pytest.raises(InputError, match=rf"expected a number in line 3 of .*found '{cell}'"):
            read_texts(file_with(tmp_path / "b.tsv", f"text\tscore\na\t1\nb\t{cell}\n"), target="number")


def test_labels_of_json_and_parquet_may_be_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), tmp_path / "a.parquet")
    assert [example.label for example in read_texts(tmp_path / "a.parquet").examples] == ["0", "1"]
    path = file_with(tmp_path / "a.jsonl", '{"text": "a", "label": true}\n{"text": "b \\ud83d", "label": 3}\n')
    assert [(example.first, example.label) for example in read_texts(path).examples] == [
        ("a", "true"),
        ("b \ufffd", "3"),
    ]


def test_nan_is_an_empty_cell(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.jsonl", '{"text": "a", "label": 1.0}\n{"text": "b", "label": NaN}\n')
    with pytest.raises(InputError, match="found an empty cell in 1 row, the first in line 2"):
        read_texts(path)
    pq.write_table(pa.table({"text": ["a", "b"], "label": [float("nan"), 0.0]}), tmp_path / "a.parquet")
    assert [example.label for example in read_texts(tmp_path / "a.parquet", skip_unlabelled=True).examples] == ["0.0"]


def test_a_column_is_not_read_twice(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", "text,other,label\na,b,1\n")
    message = r"a column of its own for each text and for the label in .*; found 'text' twice"
    with pytest.raises(InputError, match=message):
        read_texts(path, label_column="text")
    with pytest.raises(InputError, match=message):
        read_texts(path, text_column="text", pair_column="text")


def test_a_pair_of_snli_without_a_gold_label_is_skipped_and_listed(tmp_path: Path) -> None:
    rows = "gold_label\tsentence1\tsentence2\n-\ta\tb\nneutral\tc\td\n - \te\tf\n"
    file = read_texts(file_with(tmp_path / "a.tsv", rows))
    assert [example.label for example in file.examples] == ["neutral"]
    assert [location.split(" of ")[0] for location, _ in file.skipped] == ["line 2", "line 4"]
    assert {reason for _, reason in file.skipped} == {"the label '-', on which the annotators did not agree"}
    assert len(read_texts(tmp_path / "a.tsv", target=None).examples) == 3
    signs = file_with(tmp_path / "b.tsv", "text\tlabel\na\t-\nb\t+\n")
    assert [example.label for example in read_texts(signs).examples] == ["-", "+"]


def test_a_label_of_thousands_of_characters_is_an_error_where_it_is_read(tmp_path: Path) -> None:
    for cell, target in (("1" * 5000, "label"), (f"b|{'a' * 1001}", "labels")):
        path = file_with(tmp_path / "a.tsv", f"text\tlabel\na\tb\nc\t{cell}\n")
        with pytest.raises(InputError, match=r"at most 1,000 characters in line 3 of .*,\d{3} characters; check"):
            read_texts(path, target=target)
    whole = file_with(tmp_path / "b.tsv", f"text\tlabel\na\t{'a' * 1000}\n")
    assert len(read_texts(whole).examples) == 1


def test_halves_of_surrogate_pairs_do_not_survive_in_lists(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.jsonl", '{"text": "t", "labels": ["a\\ud83d", "b"]}')
    assert read_texts(path, target="labels").examples[0].label == ("a\ufffd", "b")
    cell = file_with(tmp_path / "a.tsv", 'text\tlabels\nt\t["\\udc00"]\n')
    assert read_texts(cell, target="labels").examples[0].label == ("\ufffd",)


class Counted(str):
    """A name that counts the comparisons with it."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str(self) == str(other)


def test_doubled_names_of_columns_are_found_with_few_comparisons() -> None:
    names = [Counted(f"c{number}") for number in range(3000)]
    assert doubled([*names, Counted("c7"), Counted("c5")]) == "the column 'c5' twice"
    assert Counted.comparisons < 10 * len(names)


def test_messages_about_very_many_columns_are_short(tmp_path: Path) -> None:
    header = "\t".join(f"c{number}" for number in range(100_000))
    path = file_with(tmp_path / "a.tsv", f"{header}\n{header}\n")
    for read in (
        lambda: read_texts(path, text_column="x"),
        lambda: list(TextLines(path, "x")),
        lambda: read_texts(path),
    ):
        with pytest.raises(InputError) as error:
            read()
        assert len(str(error.value)) < 600
    assert len(list(read_table(path))) == 1


def test_a_row_with_an_empty_text_is_skipped_and_listed(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.tsv", "text\ttext2\tlabel\na\tb\t0\n \tb\t1\na\t\t1\nc\td\t1\n")
    file = read_texts(path)
    assert [(example.id, example.first) for example in file.examples] == [("0", "a"), ("3", "c")]
    assert file.skipped == (
        (f"line 3 of '{path}'", "empty text in column 'text'"),
        (f"line 4 of '{path}'", "empty text in column 'text2'"),
    )
    lone = read_texts(file_with(tmp_path / "b.csv", "text\na\n\nb\n"), target=None)
    assert ([example.id for example in lone.examples], len(lone.skipped)) == (["0", "2"], 1)
    with pytest.raises(InputError, match="found 2 rows, none with text"):
        read_texts(file_with(tmp_path / "c.csv", "text,label\n,1\n ,2\n"))


BAD_FILES = {
    "too few columns": ("a.tsv", "text\tlabel\na\t1\nb\n", "expected 2 columns in line 3 of"),
    "too many columns": ("a.csv", "text,label\na,1\nb, c,1\n", "expected 2 columns in line 3 of"),
    "an open quote": ("a.csv", 'text,label\na,1\n"b,1\nc,1\n', "expected a CSV row starting at line 3 of"),
    "a name twice": ("a.csv", "text,text\na,1\n", "found the column 'text' twice; give each column a unique name"),
    "a key twice": ("a.jsonl", '{"text": "a", "text": "b", "label": 1}', "(the key 'text' twice)"),
    "an inner key twice": ("a.json", '[{"text": "a", "label": {"a": 1, "a": 2}}]', "(the key 'a' twice)"),
    "a blank header": ("a.csv", "\ntext,label\n", "found a blank line"),
    "a line for Excel": (
        "a.csv",
        "sep=;\r\ntext;label\r\na;1\r\n",
        "found 'sep=;', which is for Excel; remove this line",
    ),
    "a header alone": ("a.csv", "text,label\n", "found none, only columns 'text', 'label'"),
    "an empty file": ("a.csv", "", "found an empty file"),
    "a byte order mark alone": ("a.csv", "\ufeff\n", "found an empty file"),
    "binary": ("a.csv", b"text,label\n\x00\x01\x02", "found binary data"),
    "UTF-16": ("a.csv", "text,label\n".encode("utf-16"), "found none, only columns 'text', 'label'"),
    "UTF-16 without a mark": ("a.csv", "text,label\n".encode("utf-16-le"), "found binary data"),
    "latin-1": ("a.csv", "text,label\nfine,1\ncafé,1\n".encode("latin-1"), "found the byte 0xe9 in line 3, not UTF-8"),
    "another ending": ("a.txt", "text\nb\n", "expected a table, a file that ends in .csv"),
    "SQuAD as CSV": ("a.csv", squad(), "found JSON"),
    "SQuAD as TSV": ("a.tsv", squad(), "found JSON"),
    "SQuAD as JSON lines": ("a.jsonl", squad(), "found columns 'version', 'data'"),
    "SQuAD as JSON": ("a.json", squad(), "found columns 'version', 'data'"),
    "CSV as JSON lines": ("a.jsonl", "text,label\na,1\n", "expected JSON in line 1 of"),
    "a list as a record": ("a.jsonl", '{"text": "a", "label": 1}\n[1]\n', "expected a JSON record {...} in line 2 of"),
    "a record that lacks a field": ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "'label' in line 2 of"),
    "text as Parquet": ("a.parquet", "text,label\na,1\n", "expected Parquet data in"),
    "no gzip": ("a.csv.gz", "text,label\na,1\n", "gzip that cannot be read"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    file, content, message = BAD_FILES[name]
    with pytest.raises(InputError, match=re.escape(message)) as error:
        read_texts(file_with(tmp_path / file, content))
    assert file in str(error.value)
    assert len(str(error.value)) < 600


def test_a_file_or_folder_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found nothing there; check the path"):
        read_texts(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="found a folder"):
        read_texts(tmp_path / "folder.csv")


def test_a_folder_in_place_of_a_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found the folder .*; name a file in it"):
        read_table(tmp_path)


def test_a_parquet_file_without_rows_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="found none"):
        read_texts(tmp_path / "a.parquet")


def test_real_tables_have_the_counts_of_their_makers(real_data: Path) -> None:
    mnli = read_texts(real_data / "nli" / "mnli_train.tsv")
    assert len(mnli.examples) == 20_000
    assert {example.label for example in mnli.examples} == {"entailment", "neutral", "contradiction"}
    counts = {
        part: len(read_texts(real_data / "cls/chnsenticorp" / f"{part}.tsv").examples) for part in ("train", "dev")
    }
    assert counts == {"train": 9600, "dev": 1200}
    claims = [read_texts(real_data / "claims/claimbuster_clef" / f"{part}.json") for part in ("train", "test")]
    assert [len(file.examples) for file in claims] == [7976, 702]


def test_columns_that_are_not_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    read_texts(file_with(tmp_path / "pairs.tsv", "id\ttext\tpair\tlabel\n1\ta\tb\tx\n"))
    assert capsys.readouterr().err == ""
    read_texts(file_with(tmp_path / "more.tsv", "text\tabstract\tlabel\na\tb\tx\n"))
    told = capsys.readouterr().err
    assert told == f"'{tmp_path}/more.tsv': text from 'text', gold from 'label'; not read: column 'abstract'\n"


@pytest.mark.parametrize("name", ["mails", "mails.txt", "mails.csv.bak"])
def test_a_file_without_a_usual_ending_is_to_be_renamed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"rename it to end in \.tsv or \.jsonl if that is its format, or save it"):
        read_texts(file_with(tmp_path / name, "text\tlabel\na\tb\n"))


def test_a_table_without_names_of_columns_is_told_in_the_error_or_by_its_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_with(tmp_path / "sms.tsv", "ham\tGo until jurong\nspam\tFree entry\nham\tOk lar\n")
    with pytest.raises(InputError, match="name it with --text-column; the first line must name the columns"):
        read_texts(path)
    assert capsys.readouterr().err == ""
    assert len(read_texts(path, text_column="Go until jurong", label_column="ham").examples) == 2
    assert capsys.readouterr().err == (
        f"warning: '{path}' has the label 'ham', the name of its label column: the file needs a header\n"
    )
    records = file_with(
        tmp_path / "a.jsonl", '{"text": "a", "label": "label"}\n{"text": "b", "kind": 1, "label": "x"}\n'
    )
    read_texts(records)
    named = file_with(tmp_path / "b.jsonl", '{"words": "a", "kind": 1}\n')
    with pytest.raises(InputError) as error:
        read_texts(named)
    assert "first line" not in str(error.value)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("record", "location"),
    [
        ({"text": "Anna in Rome", "label": [[0, 4, "PER"]]}, "'label'"),
        ({"text": "Anna in Rome", "label": []}, "'label'"),
        ({"text": "Anna in Rome", "entities": [{"start": 0, "end": 4, "label": "PER"}]}, "'entities'"),
        ({"text": "Anna in Rome", "spans": [{"start_offset": 0, "end_offset": 4, "label": "PER"}]}, "'spans'"),
    ],
)
def test_texts_with_marked_spans_are_refused_with_the_task_for_them(tmp_path: Path, record, location: str) -> None:
    path = tmp_path / "a.jsonl"
    second = {**record, "label": [[0, 4, "PER"]]} if "label" in record else record
    path.write_text(f"{json.dumps(record)}\n{json.dumps(second)}\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"found spans in {location}.*; use --task ner for texts with marked spans"):
        read_texts(path)
    path.write_text(json.dumps({**record, "label": "x"}) + "\n", encoding="utf-8")
    assert read_texts(path).examples[0].label == "x", "spans next to a label"
    assert read_texts(path, target=None).examples[0].first == "Anna in Rome"


def test_a_file_of_words_is_refused_with_the_task_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Anna B-PER\n", encoding="utf-8")
    with pytest.raises(InputError, match="use --task ner for entities"):
        read_texts(tmp_path / "a.conll")


def test_a_misspelled_path_is_answered_with_the_nearest_one_and_a_right_one_never(tmp_path: Path) -> None:
    path = file_with(tmp_path / "support.csv", "text,label\na,x\n")
    with pytest.raises(InputError, match=r"found nothing there; did you mean '.*/support\.csv'\?"):
        read_texts(tmp_path / "suport.csv")
    assert nearest_path(path) == ""
