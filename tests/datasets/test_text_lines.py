"""The texts of a file: one per line, whatever its content, or one column of a table."""

import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets import text_lines
from bertsmith.tasks.datasets.blocks import text_blocks
from bertsmith.tasks.datasets.text_lines import RunningDigest, TextLines
from bertsmith.text.documents import sources
from bertsmith.text.documents.encodings import EncodingSettings


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n", [""]),
        ("\ufeffä\u2028b\x0bc\n".encode(), ["ä\u2028b\x0bc"]),
    ],
)
def test_a_text_is_everything_before_a_line_feed(tmp_path, data, texts):
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    assert list(TextLines(tmp_path / "a.txt")) == list(TextLines(tmp_path / "a.txt.gz")) == texts


def test_lines_are_whole_wherever_the_blocks_of_reading_end(tmp_path, monkeypatch):
    lines = ["a" * 30, "", "b", "é" * 9, "c" * 100]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    for size in (1, 2, 7, 31, 1000):
        monkeypatch.setattr(text_lines, "BLOCK_BYTES", size)
        assert list(TextLines(tmp_path / "a.txt")) == lines


def test_bytes_that_are_not_utf_8_are_refused_or_dropped_and_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine and long enough\nb\xffd\n\xc3\nmore")
    lines = iter(TextLines(tmp_path / "a.txt"))
    assert next(lines) == "fine and long enough"
    with pytest.raises(InputError, match=r"byte 0xff in line 2, not UTF-8; .* --encoding cp1252, .* --bad-bytes drop"):
        next(lines)
    with pytest.raises(InputError, match=r"--encoding cp1252$"):
        list(TextLines(tmp_path / "a.txt", may_drop=False))
    source = TextLines(tmp_path / "a.txt", reading=EncodingSettings(bad_bytes="drop"))
    for _ in range(2):
        assert list(source) == ["fine and long enough", "bd", "", "more"]
        assert source.notes() == ["bytes that are not UTF-8, dropped: 2, the first in line 2"]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "shift_jis"])
def test_a_file_in_another_encoding_has_the_same_texts(tmp_path, name, encoding):
    texts = ["the caf\xe9", "", "a"] if encoding != "shift_jis" else ["\u6771\u4eac", "", "a"]
    table = {
        ".csv": "text,label\n" + "".join(f"{text},x\n" for text in texts),
        ".tsv": "text\tlabel\n" + "".join(f"{text}\tx\n" for text in texts),
        ".jsonl": "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts),
    }
    data = table.get("." + name.split(".")[1], "\n".join(texts)).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert list(TextLines(tmp_path / name, reading=EncodingSettings(encoding=encoding))) == texts


def test_a_file_without_line_ends_is_refused_where_it_would_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "LONGEST_RECORD", 100)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 30)
    (tmp_path / "a.txt").write_text("short\n" + "x" * 500)
    with pytest.raises(InputError, match="line 2"):
        list(TextLines(tmp_path / "a.txt"))


def test_a_table_gives_the_column_that_is_asked_for_or_the_only_one_that_can_be_meant(tmp_path):
    rows = [{"id": "1", "text": 'a, "b"\nc', "label": "x"}, {"id": "2", "text": "", "label": "y"}]
    (tmp_path / "a.csv").write_text('id,text,label\n1,"a, ""b""\nc",x\n2,,y\n\n')
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert list(TextLines(tmp_path / name)) == [row["text"] for row in rows], name
        assert list(TextLines(tmp_path / name, "label")) == ["x", "y"], name
        with pytest.raises(InputError) as caught:
            list(TextLines(tmp_path / name, "lable"))
        assert "label" in str(caught.value), name
    source = TextLines(tmp_path / "a.csv")
    list(source)
    assert source.blank_records == 1
    (tmp_path / "a.tsv").write_text('sentence\tn\n"a\t1\n')
    assert list(TextLines(tmp_path / "a.tsv")) == ['"a']


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.txt", b"", "an empty file"),
        ("a.txt", b"a\x00b", "binary data"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', "line 2"),
        ("a.jsonl", b'{"text": "a"}\n["b"]', "line 2"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b", "text": "c"}', "(the key 'text' twice)"),
        ("a.csv", b"text,text\na,b\n", "found the column 'text' twice"),
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}', "line 2"),
        ("a.jsonl", b'{"text": 3}', "column 'text'"),
        ("a.csv", b"text,label\na,b,c\n", "line 2"),
        ("a.csv", b'text,label\n"a,b\n', "quotes"),
        ("a.csv", b"one,two\na,b\n", "--column"),
        ("a.parquet", b"PAR1 no", "Parquet"),
        ("a.txt", b'\xef\xbb\xbf{"text": "a"}\n', "found JSON; convert it to JSON lines"),
        ("a.txt", b'[\n {"text": "a"}\n]', "found JSON; convert it to JSON lines"),
        ("a.tsv", b'{"text": "a"}\n{"text": "b"}\n', "a TSV table"),
        ("a.json", b'["a", "b"]', "ends in .jsonl"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, name, data, found):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=re.escape(found)):
        list(TextLines(tmp_path / name))


def test_json_lines_that_come_without_a_column_say_how_to_name_it(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"body": "a"}\n')))
    with pytest.raises(InputError, match="set --column"):
        list(TextLines("-"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"body": "a"}\n')))
    assert list(TextLines("-", "body")) == ["a"]


def test_a_text_may_begin_with_a_bracket(tmp_path):
    (tmp_path / "a.txt").write_text("[1] the first note\n{curly}\n")
    assert list(TextLines(tmp_path / "a.txt")) == ["[1] the first note", "{curly}"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_every_kind_of_table_has_one_rule_for_its_column(tmp_path, name):
    path = tmp_path / name

    def write(rows: list[dict[str, str]]) -> None:
        if name == "a.csv":
            path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
        elif name == "a.jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)

    for column in ("body", "Sentence", "text", "text2"):
        wanted = "text" if column == "text2" else column
        write([{"id": "x", "label": "y", column: "a"} | {wanted: "a"}])
        assert list(TextLines(path)) == ["a"]
    for rows in ([{"title": "a", "body": "b"}], [{"id": "a", "name": "b"}]):
        write(rows)
        with pytest.raises(InputError, match=r"known name for texts in .*name it with --column"):
            list(TextLines(path))
    with pytest.raises(InputError, match=r"the column 'nam' in .*'name'"):
        list(TextLines(path, "nam"))


def test_only_columns_of_texts_count_in_a_typed_table_and_its_errors_name_the_one_that_was_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1], "name": ["a"]}), path)
    assert list(TextLines(path)) == ["a"]
    with pytest.raises(InputError, match=r"texts in the column 'n' of .*column 'name'"):
        list(TextLines(path, "n"))
    pq.write_table(pa.table({"n": [1]}), path)
    with pytest.raises(InputError, match=r"texts in the column 'n' of "):
        list(TextLines(path))


def test_a_column_of_a_file_that_is_no_table_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="table"):
        TextLines(tmp_path / "a.txt", "text")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.txt"):
        list(TextLines(tmp_path / "absent.txt"))


@given(st.lists(st.text(max_size=9)), st.integers(1, 5), st.integers(1, 20))
def test_blocks_hold_all_texts_and_keep_their_limits(texts, most_texts, most_characters):
    blocks = list(text_blocks(texts, most_texts, most_characters))
    assert [text for block in blocks for text in block] == texts
    for block in blocks:
        assert len(block) <= most_texts
        assert len(block) == 1 or sum(map(len, block)) <= most_characters


@given(st.lists(st.text(), min_size=1), st.data())
def test_the_digest_of_texts_does_not_depend_on_how_they_are_given(texts, data):
    cut = data.draw(st.integers(0, len(texts)))
    whole, parts, other = RunningDigest(), RunningDigest(), RunningDigest()
    whole.add(texts)
    parts.add(texts[:cut])
    parts.add(texts[cut:])
    other.add(["".join(texts), *[""] * len(texts)])
    assert str(whole) == str(parts) != str(other)


def test_the_longest_line_is_longer_than_what_a_corpus_keeps():
    assert text_lines.LONGEST_RECORD > sources.LONGEST_LINE


def test_a_folder_is_reported_as_a_folder(tmp_path):
    with pytest.raises(InputError, match="found a folder; name a file"):
        list(TextLines(tmp_path))
