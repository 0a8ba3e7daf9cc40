"""Passages, queries and judgements in all supported formats, valid and invalid."""

import dataclasses
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.search import passages
from bertsmith.inference.search.passages import (
    TextSet,
    judgements_for,
    read_judgements,
    read_records,
    read_text_set,
)
from written_files import file_with


def test_lines_of_plain_text_are_called_by_their_numbers(tmp_path: Path) -> None:
    result = read_text_set(file_with(tmp_path / "p.txt", "one\n\n  two words \n"))
    assert result == TextSet(ids=("1", "3"), texts=("one", "two words"), skipped=1)


@given(content=st.text(st.sampled_from("ab \t\r\n\x0b\x85\u2028é"), min_size=1).filter(str.strip))
def test_a_large_file_of_lines_has_the_records_of_a_small_one(content: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "p.txt"
        path.write_bytes(content.encode())
        small = list(read_records(path))
        patch.setattr(passages, "_WHOLE", 0)
        assert list(read_records(path)) == small


@given(
    texts=st.lists(st.text(st.sampled_from('ab \t"\\\r\x85\u2028\ud83dé')), min_size=1),
    blank=st.sampled_from(["", "\n", " \n"]),
)
def test_a_large_table_of_json_lines_has_the_records_of_a_small_one(texts: list[str], blank: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        rows = [{"id": f"r{number}", "text": text, "year": number} for number, text in enumerate(texts)]
        lines = "".join(f"{json.dumps(row)}\n{blank}" for row in rows)
        path = file_with(Path(folder) / "p.jsonl", lines)
        small = list(read_records(path))
        patch.setattr(passages, "_WHOLE", 0)
        assert list(read_records(path)) == small


def test_tables_have_ids_and_titles(tmp_path: Path) -> None:
    rows = [
        {"_id": "a", "title": "Kites", "text": "They fly."},
        {"_id": "b", "title": "", "text": "Kites again."},
        {"_id": "c", "title": "Birds", "text": "Birds fly too."},
        {"_id": "d", "title": "", "text": " "},
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    expected = TextSet(ids=("a", "b", "c"), texts=("Kites They fly.", "Kites again.", "Birds fly too."), skipped=1)
    assert read_text_set(file_with(tmp_path / "p.jsonl", lines)) == expected
    assert read_text_set(tmp_path / "p.parquet") == expected
    csv = file_with(tmp_path / "p.csv", 'docid,body\n7,"one, two"\n8,three\n')
    assert read_text_set(csv) == TextSet(ids=("7", "8"), texts=("one, two", "three"))
    tsv = file_with(tmp_path / "p.tsv", "number\tsaid\n7\tone\n")
    assert read_text_set(tsv, text_column="said") == TextSet(ids=("1",), texts=("one",))
    with pytest.raises(InputError, match="--text-column"):
        read_text_set(tsv)


@pytest.mark.parametrize("name", ["passage", "tweet", "Comment Text", "utterance", "sentence1", "title"])
def test_the_column_of_the_text_has_any_of_the_names_that_fine_tuning_knows(name: str, tmp_path: Path) -> None:
    table = file_with(tmp_path / "p.csv", f"number,{name}\n7,one\n")
    assert read_text_set(table).texts == ("one",)


def test_a_folder_has_the_paragraphs_of_its_text_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    file_with(folder / "a.txt", "one\ntwo\n")
    file_with(folder / "deep" / "b.txt", "\n\nthree\n \nfour\n  five\n")
    file_with(folder / "empty.txt", "")
    file_with(folder / "blank.txt", "\n \n")
    file_with(folder / "c.csv", "text\nno\n")
    assert read_text_set(folder) == TextSet(ids=("a", "deep/b:3", "deep/b:5"), texts=("one two", "three", "four five"))
    assert "not .txt files, not read: 1" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    file_with(tmp_path / "none" / "c.csv", "text\nno\n")
    with pytest.raises(InputError, match=r"\.txt"):
        read_text_set(tmp_path / "none")


def test_trec_files_are_read_by_their_content(tmp_path: Path) -> None:
    documents = (
        "<doc>\n<docno>1</docno>\n<title>wings in a\nslipstream .</title>\n<author>x</author>\n"
        "<text>wings in a slipstream .\n they lift &amp; turn .</text>\n</doc>\n"
        "<doc>\n<docno>2</docno>\n<title>heat .</title>\n<text>of walls</text>\n</doc>\n"
        "<doc><docno>3</docno><title></title><text>\n</text></doc>"
    )
    result = read_text_set(file_with(tmp_path / "p.xml", documents))
    assert result == TextSet(
        ids=("1", "2"), texts=("wings in a slipstream . they lift & turn .", "heat . of walls"), skipped=1
    )
    topics = (
        "<?xml version='1.0' encoding='utf-8'?>\n<xml>\n<top>\n<num> 4</num> \n<title>\nwhat is\nheat .\n</title>\n"
        "</top>\n<top>\n<num> Number: 301 \n<title> crime \n<desc> more \n</top>\n</xml>"
    )
    assert read_text_set(file_with(tmp_path / "q", topics)) == TextSet(
        ids=("4", "301"), texts=("what is heat .", "crime")
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "", "empty file"),
        ("p.txt", '{"text": "a"}\n', "rename it to end in .jsonl"),
        ("p.csv", "id,text\na,x\na,y\n", "a unique id in line 3"),
        ("p.jsonl", '{"id": "a", "text": "x"}\n{"id": "b"}\n', "the column 'text' in line 2"),
        ("p.csv", "id,text\na, \n", "1 without text"),
        ("p.xml", "<doc><title>x</title></doc>", "<docno> or <num> in record 1"),
        ("p.xml", "<doc><docno>1</docno><docno>2</docno><text>x</text></doc>", "found 2 of them"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_text_set(file_with(tmp_path / name, content))


def test_judgements_are_read_in_both_forms(tmp_path: Path) -> None:
    expected = {"1": {"a": 2.0, "b": 0.0}, "2": {"a": 0.0}}
    assert read_judgements(file_with(tmp_path / "t", "1 0 a 2\r\n1 0 b -1\r\n\r\n2 0 a 0\r\n")) == expected
    headed = "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n2\ta\t0\n"
    assert read_judgements(file_with(tmp_path / "b.tsv", headed)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 a\n", "found 2 columns"),
        ("1 0 a 1\n1 0 b much\n", "a number as gain in line 2"),
        ("1 0 a relevant\n", "a number as gain in '.*t'; found none"),
        ("1 0 a 1\n1 0 a 2\n", "each passage once per query, in line 2"),
    ],
)
def test_wrong_judgements_are_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_judgements(file_with(tmp_path / "t", content))


def test_judgements_go_by_id_where_they_can() -> None:
    queries = TextSet(ids=("1", "2", "4"), texts=("a", "b", "c"))
    by_id = {"2": {"x": 1.0}, "4": {"y": 1.0}}
    assert judgements_for(by_id, queries) is by_id
    assert judgements_for(by_id, queries, "ids") is by_id
    partly = {"2": {"x": 1.0}, "9": {"y": 1.0}}
    assert judgements_for(partly, queries) == {"2": {"x": 1.0}}


def test_judgements_that_count_the_queries_are_taken_by_place() -> None:
    queries = TextSet(ids=("a", "b", "d"), texts=("a", "b", "c"))
    counted = {"1": {"x": 1.0}, "3": {"z": 1.0}}
    assert judgements_for(counted, queries) == {"a": {"x": 1.0}, "d": {"z": 1.0}}
    with pytest.raises(InputError, match="query 'q9'"):
        judgements_for({"q9": {"x": 1.0}}, queries)


def test_judgements_that_could_be_ids_or_places_are_refused_until_it_is_said() -> None:
    """As in Cranfield, whose queries have the ids 1, 2, 4, 8 ... and are judged as 1, 2, 3, 4 ..."""
    queries = TextSet(ids=("1", "2", "4"), texts=("a", "b", "c"))
    counted = {"1": {"x": 1.0}, "2": {"y": 1.0}, "3": {"z": 1.0}}
    with pytest.raises(InputError, match="query '3', which is not an id, though others are; use --judged-by"):
        judgements_for(counted, queries)
    assert judgements_for(counted, queries, "places") == {"1": {"x": 1.0}, "2": {"y": 1.0}, "4": {"z": 1.0}}
    assert judgements_for(counted, queries, "ids") == {"1": {"x": 1.0}, "2": {"y": 1.0}}
    with pytest.raises(InputError, match="number the 3 queries from 1; found query '4'"):
        judgements_for({"4": {"x": 1.0}}, queries, "places")
    with pytest.raises(InputError, match="1 queries without text"):
        judgements_for(counted, dataclasses.replace(queries, skipped=1), "places")
    with pytest.raises(ConfigError, match="ids or places"):
        judgements_for(counted, queries, "names")


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ("<text>flow at M < 1 is <b>sub</b>sonic</text>", "flow at M < 1 is subsonic"),
        ("<TEXT>\n<P>\nhello\n</P>\n<P>world</P></TEXT>", "hello world"),
        ("<text>one</text><note>no</note><text type='more'>two</text>", "one two"),
        ("<text>a &lt;b&gt; <!-- said\nonce --> if x<y and z>y</text>", "a <b> if x<y and z>y"),
        ("<title>A<sub>2</sub> <a href='x'>link</a></title>\n<text>is <f p=102>long</f></text>", "A2 link is long"),
        ("<title> if M < 1 \n<desc> more", "if M < 1"),
        ("<text> open <text> closed </text>", "open closed"),
    ],
)
def test_a_field_of_trec_is_read_as_a_whole(tmp_path: Path, record: str, text: str) -> None:
    result = read_text_set(file_with(tmp_path / "p.xml", f"<doc><docno>1</docno>{record}</doc>"))
    assert result.texts == (text,)


def test_a_column_that_is_named_in_vain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="since --query-column is set"):
        read_text_set(file_with(tmp_path / "q.txt", "one\n"), text_column="said", option="--query-column")
    with pytest.raises(InputError, match="name it with --query-column"):
        read_text_set(file_with(tmp_path / "q.tsv", "number\tsaid\n7\tone\n"), option="--query-column")
