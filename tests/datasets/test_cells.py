"""CSV and Excel tables: every command reads the cells that Python's csv and pandas read, or refuses the file."""

import csv
import io
import re
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.search.passages import read_text_set
from bertsmith.tasks.datasets.choice import read_choices
from bertsmith.tasks.datasets.nli import read_nli
from bertsmith.tasks.datasets.tables import read_table, read_texts
from bertsmith.tasks.datasets.text_groups import read_groups
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data.task_files import read_examples
from written_files import file_with

PIECES = st.sampled_from(["a", "b c", "é", " ", '"', '""', ",", ";", "\t", "\n", "\r", "\r\n", "1.0", "NA", ""])
CELLS = st.lists(PIECES, max_size=3).map("".join)


def rows_of(path: Path) -> list[list[str]]:
    return [list(row.values.values()) for row in read_table(path)]


@given(
    names=st.tuples(CELLS, CELLS),
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4),
    mark=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    bom=st.booleans(),
    last=st.booleans(),
)
def test_what_csv_writes_is_read_as_csv_and_pandas_read_it(
    tmp_path_factory: pytest.TempPathFactory, names, rows, mark, end, quoting, bom, last
) -> None:
    header = [f"text{names[0]}".rstrip(), f"more{names[1]}".rstrip()]
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=mark, lineterminator=end, quoting=quoting).writerows([header, *rows])
    text = stream.getvalue() if last else stream.getvalue().removesuffix(end)
    path = file_with(tmp_path_factory.mktemp("csv") / "a.csv", (("\ufeff" if bom else "") + text).encode())
    owner = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark))
    owner = [row for row in owner if row]  # a blank line is not a row
    try:
        read = [list(next(iter(read_table(path))).values), *rows_of(path)]
        texts = list(TextLines(path, owner[0][0]))
    except InputError:
        # The writer leaves a lone carriage return without quotes; and of a header whose names hold other separators,
        # the right one cannot be known.
        is_ragged = any(len(row) != 2 for row in owner)
        assert is_ragged or owner[0][0] == owner[0][1] or any(other in "".join(header) for other in ",;\t")
        return
    if any(other in "".join(header) for other in {",", ";", "\t"} - {mark}) and len(read[0]) != 2:
        return
    assert read == [[name.strip() for name in owner[0]], *owner[1:]]
    assert texts == [row[0] for row in owner[1:]]
    frame = pd.read_csv(path, sep=mark, dtype=str, keep_default_na=False, encoding="utf-8-sig", engine="python")
    assert frame.values.tolist() == owner[1:]


RAW = st.lists(
    st.sampled_from(["text", "label", "a", '"', '""', ",", ",", "\n", "\n", "\r", "\r\n", " ", "é"]), max_size=14
).map("".join)


@given(RAW)
def test_any_text_is_read_as_csv_reads_it_by_every_command_or_refused_by_all(
    tmp_path_factory: pytest.TempPathFactory, drawn: str
) -> None:
    text = f"text,label\n{drawn}"
    path = file_with(tmp_path_factory.mktemp("csv") / "a.csv", text.encode())
    results: list[list[str] | None] = []
    for read in (
        lambda: [row.values["text"] for row in read_table(path)],
        lambda: list(TextLines(path)),
    ):
        try:
            results.append(read())
        except InputError:
            results.append(None)
    owner: list[list[str]] | None
    try:
        owner = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row][1:]
    except csv.Error:
        owner = None
    if owner is None or any(len(row) != 2 and any(row) for row in owner):
        assert results == [None, None]
    else:
        texts = [row[0] for row in owner if row != [""]]
        assert results == [texts or None, texts]


def test_a_name_of_a_column_may_have_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(f'text;"label{end}(yes/no)"{end}a;1{end}b;0{end}'.encode())
        assert [row.values["text"] for row in read_table(path)] == ["a", "b"]
        assert list(TextLines(path)) == ["a", "b"]


def test_line_ends_of_old_systems_are_line_ends_for_every_command(tmp_path: Path) -> None:
    for name, text in (
        ("a.csv", "text,label\ra,1\rb,0\r"),
        ("a.tsv", "text\tlabel\ra\t1\rb\t0\r"),
        ("a.txt", "a\rb\r"),
    ):
        (tmp_path / name).write_bytes(text.encode())
        assert list(TextLines(tmp_path / name)) == ["a", "b"]
        if name != "a.txt":
            assert [row.values["text"] for row in read_table(tmp_path / name)] == ["a", "b"]


def test_a_row_without_any_text_is_skipped_and_listed(tmp_path: Path) -> None:
    def table(name: str, *lines: str) -> Path:
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    path = table("a.csv", "id;text;label;note", "1;a;x;", ";;;", ";;", "2;b;y;", ";;;")
    file = read_texts(path)
    assert [example.first for example in file.examples] == ["a", "b"]
    assert file.skipped == tuple((f"line {line} of '{path}'", "no text in any column") for line in (3, 4, 6))
    assert len(read_texts(path, target="labels").examples) == 2
    choices = read_choices(table("b.csv", "sent1,sent2,ending0,ending1,label", "a,b,c,d,0", ",,,,"))
    assert (len(choices.examples), len(choices.skipped)) == (1, 1)
    nli = read_nli("snli", table("c.csv", "sentence1,sentence2,gold_label", "a,b,neutral", ",,"))
    assert (len(nli.examples), len(nli.skipped)) == (1, 1)
    triplets = read_groups("triplets", table("d.csv", "anchor,positive,negative", "a,b,c", ",,"))
    assert (len(triplets.examples), len(triplets.skipped)) == (1, 1)
    assert len(read_text_set(table("e.csv", "id,text", "1,a", ",", "2,b")).texts) == 2


def sheet(path: Path, *rows: list[object]) -> Path:
    pytest.importorskip("openpyxl")
    pd.DataFrame(rows).to_excel(path, header=False, index=False)
    return path


def test_the_first_sheet_of_a_workbook_is_a_table(tmp_path: Path) -> None:
    path = sheet(tmp_path / "a.xlsx", ["text", "label", "n"], ["a", 1, 2.5], [None, None, None], ["b", 0, True])
    values = [row.values for row in read_table(path)]
    assert values == [
        {"text": "a", "label": "1", "n": "2.5"},
        {"text": "", "label": "", "n": ""},
        {"text": "b", "label": "0", "n": "true"},
    ]
    file = read_texts(path)
    assert [(example.first, example.label) for example in file.examples] == [("a", "1"), ("b", "0")]
    assert file.skipped == ((f"row 3 of '{path}'", "no text in any column"),)


def test_a_blank_far_away_adds_no_rows_and_an_error_is_an_empty_cell(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "label", "n"], ["a", "x", "=NA()"]):
        book.active.append(row)
    book.active.cell(row=2000, column=16384, value=" ")
    book.save(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx") as source, zipfile.ZipFile(tmp_path / "b.xlsx", "w") as target:
        for name in source.namelist():
            formula = rb'<c r="C2"><f>NA\(\)</f><v\s*(?:/>|></v>)</c>'
            computed = b'<c r="C2" t="e"><f>NA()</f><v>#N/A</v></c>'
            target.writestr(name, re.sub(formula, computed, source.read(name)))
    assert [row.values for row in read_table(tmp_path / "b.xlsx")] == [{"text": "a", "label": "x", "n": ""}]


def test_a_workbook_that_is_no_table_is_refused(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    (tmp_path / "a.xlsx").write_bytes(b"no archive")
    sheet(tmp_path / "d.xlsx", ["text", "label"], ["a", "b"])
    with zipfile.ZipFile(tmp_path / "d.xlsx") as source, zipfile.ZipFile(tmp_path / "e.xlsx", "w") as target:
        for name in source.namelist():  # a relation without the part that it names
            target.writestr(name, source.read(name).replace(b"worksheets/sheet1.xml", b"worksheets/sheet9.xml"))
    for name in ("a.xlsx", "e.xlsx"):
        with pytest.raises(InputError, match=r"expected an Excel workbook in .*; found something else, or a damaged"):
            read_table(tmp_path / name).__next__()
    with pytest.raises(InputError, match="with the names of the columns"):
        list(read_table(sheet(tmp_path / "b.xlsx", ["text", "label"])))
    with pytest.raises(InputError, match=r"a name above each column .* in row 2 of .*; found 'x' in column 2"):
        list(read_table(sheet(tmp_path / "c.xlsx", ["text", None], ["a", "x"])))
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["a", "=1+1"]):
        book.active.append(row)
    book.save(tmp_path / "d.xlsx")
    with pytest.raises(InputError, match=re.escape("found '=1+1' without one; open the workbook")):
        list(read_table(tmp_path / "d.xlsx"))


def test_without_the_package_for_workbooks_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=re.escape("pip install 'bertsmith[excel]'")):
        list(read_table(tmp_path / "a.xlsx"))


TABLES = {
    "a.csv": "text,label\nein Rat für zwölf,größer\ncafé,x\n",
    "a.tsv": "text\tlabel\nein Rat für zwölf\tgrößer\ncafé\tx\n",
    "a.jsonl": '{"text": "ein Rat für zwölf", "label": "größer"}\n{"text": "café", "label": "x"}\n',
    "a.ft": "__label__größer ein Rat für zwölf\n__label__x café\n",
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig", "utf-8"])
def test_a_table_in_another_encoding_is_the_same_table(tmp_path: Path, name: str, encoding: str) -> None:
    path = file_with(tmp_path / name, TABLES[name].encode(encoding))
    columns = ColumnSettings(encoding="cp1252" if encoding == "cp1252" else "utf-8")
    examples = read_examples("classification", path, columns).examples
    assert [(example.first, example.label) for example in examples] == [("ein Rat für zwölf", "größer"), ("café", "x")]
    if encoding == "cp1252":
        with pytest.raises(InputError, match=r"not UTF-8; save it as UTF-8, or name its encoding, as in --encoding"):
            read_examples("classification", path)


TAGGED = {
    "a.conll": "Müller B-PER\nsingt O\n",
    "a.jsonl": '{"text": "Müller singt", "spans": [[0, 6, "PER"]]}\n',
    "b.jsonl": '{"tokens": ["Müller", "singt"], "ner_tags": ["B-PER", "O"]}\n',
    "a.csv": "sentence_id,word,tag\n1,Müller,B-PER\n1,singt,O\n",
    "a.pubtator": "1|t|Müller singt\n1\t0\t6\tMüller\tPER\n",
}


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8"])
def test_tagged_sentences_in_another_encoding_are_the_same_sentences(tmp_path: Path, name: str, encoding: str) -> None:
    path = file_with(tmp_path / name, TAGGED[name].encode(encoding))
    columns = ColumnSettings(encoding="cp1252" if encoding == "cp1252" else "utf-8")
    examples = read_examples("ner", path, columns).examples
    assert [(example.words, example.tags) for example in examples] == [(("Müller", "singt"), ("B-PER", "O"))]


def test_an_encoding_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="the name of an encoding of text; found 'utf8x'"):
        ColumnSettings(encoding="utf8x")


def test_quotes_that_another_program_wrote_into_a_tsv_table_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.DataFrame({"text": ['He said "no".', "fine"], "label": ["x", "y"]}).to_csv(
        tmp_path / "a.tsv", sep="\t", index=False
    )
    assert read_texts(tmp_path / "a.tsv").examples[0].first == '"He said ""no""."'
    assert "1 text in quotes, with doubled quotes inside, the first in line 2 of" in capsys.readouterr().err
    (tmp_path / "a.tsv").rename(tmp_path / "a.csv")
    assert read_texts(tmp_path / "a.csv").examples[0].first == 'He said "no".'
    assert capsys.readouterr().err == ""
