"""Text files of every kind are read as documents."""

import gzip
import html
import io
import itertools
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.text.documents import readers, sources
from bertsmith.text.documents.encodings import Utf8Stream, decoded, encoding_of, require_encoding
from bertsmith.text.documents.parsing import TextBlock
from bertsmith.text.documents.readers import FileRead, ReadingSettings, ReadReport, read_blocks, read_documents
from bertsmith.text.documents.sources import Cuts, Skipped, Source, SourceStream, find_sources, text_blocks
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from corpus.samples import STORY, sentences_of
from written_files import file_with

STORIES = [["The boat came home.", "Nobody was in it."], ["A new story.", "It rained."]]
PROSE = "The boat came\nhome. Nobody was\nin it.\n\nA new\nstory. It rained.\n"


def read(*paths: Path | str, **settings: str | bool) -> list[list[str]]:
    return sentences_of(read_documents(paths, ReadingSettings(**settings)))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def test_one_sentence_per_line_and_a_blank_line_between_documents(tmp_path: Path) -> None:
    assert read(file_with(tmp_path / "a.txt", STORY)) == STORIES


def test_wrapped_prose_is_one_document_per_file(tmp_path: Path) -> None:
    assert read(file_with(tmp_path / "a.txt", PROSE)) == [STORIES[0] + STORIES[1]]


def test_a_given_form_is_not_detected(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "The boat came home. Nobody was in it.\n\nA new story. It rained.")
    assert read(path) == [STORIES[0] + STORIES[1]]
    assert read(path, form="lines") == [["The boat came home. Nobody was in it."], ["A new story. It rained."]]
    with pytest.raises(ConfigError, match="unknown form 'verse'; did you mean 'prose'"):
        ReadingSettings(form="verse")


ARTICLES = (
    "Boats\nThe boat came home. Nobody was in it.\n\nRain\nA new story. It rained.\n \n\nEnd\nIt ended. It did.\n"
)


def test_blank_lines_between_texts_of_several_paragraphs_divide_documents(tmp_path: Path) -> None:
    expected = [["Boats", *STORIES[0]], ["Rain", *STORIES[1]], ["End", "It ended.", "It did."]]
    assert read(file_with(tmp_path / "a.txt", ARTICLES)) == expected
    assert read(file_with(tmp_path / "b.txt", ARTICLES.replace("\n", "\r\n")), form="prose") == expected


def test_blank_lines_divide_the_documents_of_texts(tmp_path: Path) -> None:
    lines = file_with(tmp_path / "a.txt", "The boat came home. Nobody was in it.\n\nA new story. It rained.")
    assert read(lines, form="texts") == STORIES
    assert read(file_with(tmp_path / "b.txt", PROSE), form="texts") == STORIES


WIKI = (
    '<doc id="12" url="https://x.org/?id=12" title="Boats">\nBoats\n\nThe boat came home. Nobody was in it.\n\n</doc>\n'
    '<doc id="39" url="https://x.org/?id=39" title="Rain">\nRain\n\nA new story. It rained.\n\n</doc>\n'
)


@pytest.mark.parametrize("form", ["auto", "prose", "texts", "wrapped", "paragraphs"])
def test_marks_of_wikiextractor_divide_documents_and_are_not_text(tmp_path: Path, form: str) -> None:
    path = file_with(tmp_path / "wiki.txt", WIKI)
    assert read(path, form=form) == [["Boats", *STORIES[0]], ["Rain", *STORIES[1]]]
    assert read(path, form="lines") == [["Boats", " ".join(STORIES[0])], ["Rain", " ".join(STORIES[1])]]
    assert read(file_with(tmp_path / "b.txt", "It rained.\n<doc>\n"), form="lines") == [["It rained.", "<doc>"]]


def test_wikiextractor_files_are_read_as_they_come(tmp_path: Path) -> None:
    file_with(tmp_path / "out" / "AA" / "wiki_00", WIKI)
    records = [{"id": "1", "title": "Boats", "text": " ".join(STORIES[0])}, {"id": "2", "text": " ".join(STORIES[1])}]
    file_with(tmp_path / "out" / "AB" / "wiki_01", "".join(json.dumps(record) + "\n" for record in records))
    file_with(tmp_path / "out" / "AB" / "wiki_02.gz", gzip.compress(WIKI.encode()))
    file_with(tmp_path / "out" / "AB" / "notes", "It rained.\n")
    report = ReadReport()
    result = sentences_of(read_documents([tmp_path / "out"], report=report))
    wiki = [["Boats", *STORIES[0]], ["Rain", *STORIES[1]]]
    assert result == [*wiki, *STORIES, *wiki]
    assert (report.files, report.skipped_files) == (3, 1)
    assert report.divisions == {"marks": 2}


def test_marks_are_no_words_of_a_vocabulary(tmp_path: Path) -> None:
    file_with(tmp_path / "wiki_00", WIKI)
    counts = count_files([tmp_path], TextRules()).total
    assert {"boats", "rained"} <= set(counts)
    assert not {"doc", "url", "https"} & set(counts)


WIKITEXT = (
    " \n = Boats = \n \n The boat came home . Nobody was in it . \n \n = = Later = = \n \n It rained . It did . \n \n"
    " = = = Last = = = \n It ended . \n = Rain = 2 = \n A new story . It rained . \n"
)


def test_headings_divide_documents_and_lose_their_signs(tmp_path: Path) -> None:
    first = [
        "Boats",
        "The boat came home .",
        "Nobody was in it .",
        "Later",
        "It rained .",
        "It did .",
        "Last",
        "It ended .",
    ]
    expected = [first, ["Rain = 2", "A new story .", "It rained ."]]
    for name, text in (("a.txt", WIKITEXT), ("b.txt", WIKITEXT.replace("= =", "==").replace("= =", "=="))):
        assert read(file_with(tmp_path / name, text)) == expected
    # Signs in a text that does not begin with a title are its own.
    assert read(file_with(tmp_path / "c.txt", "It rained.\n= Boats =\n")) == [["It rained.", "= Boats ="]]
    assert read(file_with(tmp_path / "d.txt", "= Boats =\nIt rained.\n"), form="lines") == [["= Boats =", "It rained."]]


def test_two_blank_lines_divide_the_documents_of_prose_with_gaps(tmp_path: Path) -> None:
    text = "The boat came\nhome. Nobody was\nin it.\n\nIt rained.\n\n \n\nA new\nstory. It\nrained.\n\n\n"
    path = file_with(tmp_path / "a.txt", text)
    assert read(path, form="gaps") == [[*STORIES[0], "It rained."], STORIES[1]]
    assert len(read(path)) == 1, "unless it is asked for, a file of prose is one document"


@given(
    st.sampled_from([ARTICLES, WIKI, PROSE, STORY, WIKITEXT, PROSE.replace("\n\n", "\n\n\n")]),
    st.sampled_from(["auto", "prose", "texts", "gaps"]),
    st.integers(1, 60),
)
def test_documents_do_not_depend_on_the_size_of_blocks(
    tmp_path_factory: pytest.TempPathFactory, text: str, form: str, size: int
) -> None:
    path = file_with(tmp_path_factory.mktemp("blocks") / "a.txt", text)
    whole = read(path, form=form)
    settings = ReadingSettings(form=form)
    result = next(item for item in read_blocks([path], settings) if isinstance(item, TextBlock))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_BYTES", size)
        patch.setattr(readers, "_form", lambda *_: (result.form, result.division))
        patch.setattr(readers, "_head", lambda stream, _: stream.read(size))
        assert sentences_of(read_documents([path], settings)) == whole


def test_the_detected_form_is_reported(tmp_path: Path) -> None:
    file_with(tmp_path / "a.txt", STORY)
    file_with(tmp_path / "b.txt", PROSE)
    result = [item for item in read_blocks([tmp_path], ReadingSettings()) if isinstance(item, FileRead)]
    assert [(Path(file.name).name, file.form, file.bytes) for file in result] == [
        ("a.txt", "lines", len(STORY)),
        ("b.txt", "wrapped", len(PROSE)),
    ]


@pytest.mark.parametrize(
    "text", ["\ufeff" + STORY, STORY.replace("\n", "\r\n"), STORY.replace("\n", "\r"), STORY + "\n\n"]
)
def test_line_ends_and_marks_of_other_systems_make_no_difference(tmp_path: Path, text: str) -> None:
    assert read(file_with(tmp_path / "a.txt", text)) == STORIES


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_compressed_files_are_read_like_plain_ones(tmp_path: Path, ending: str, pack) -> None:
    data = STORY.encode()
    assert read(file_with(tmp_path / f"a.txt{ending}", pack(data))) == STORIES
    # Multi-threaded compressors write one file as several streams.
    assert read(file_with(tmp_path / f"b.txt{ending}", pack(data[:30]) + pack(data[30:]))) == STORIES
    pq.write_table(pa.table({"text": ["A new story. It rained."]}), tmp_path / "t.parquet")
    packed = file_with(tmp_path / f"c.parquet{ending}", pack((tmp_path / "t.parquet").read_bytes()))
    assert read(packed) == [STORIES[1]]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_truncated_compressed_files_are_refused(tmp_path: Path, ending: str, pack) -> None:
    packed = pack(bytes(STORY * 50, "utf-8"))
    path = file_with(tmp_path / f"a.txt{ending}", packed[: len(packed) - 9])
    with pytest.raises(InputError, match=rf"expected text in '{path}'; found .*cannot be read.*; use a file"):
        read(path)


def urls(*paths: Path, url_column: str | None = "url", **settings: str) -> list[str]:
    return [document.url for document in read_documents(paths, ReadingSettings(**settings), url_column=url_column)]


def test_urls_are_read_only_if_a_column_is_named(tmp_path: Path) -> None:
    """Then a damaged column of URLs harms no one, and blocks have no URLs that workers would receive."""
    path = file_with(tmp_path / "a.jsonl", '{"text": "It rained.", "url": "http://a"}')
    assert urls(path, url_column=None) == [""]
    assert urls(file_with(tmp_path / "wiki.txt", WIKI), url_column=None) == ["", ""]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"url": ["http://a"] * 9, "text": ["It rained."] * 9}), path)
    assert [item.urls for item in read_blocks([path], ReadingSettings()) if isinstance(item, TextBlock)] == [[]]
    column = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.dictionary_page_offset : column.dictionary_page_offset + 8] = b"\xff" * 8
    path.write_bytes(data)
    assert read(path) == [["It rained."]] * 9
    with pytest.raises(InputError, match="Parquet data that cannot be read"):
        urls(path)


def test_documents_of_json_lines_have_the_url_of_their_record(tmp_path: Path) -> None:
    records = [
        {"text": "It rained.", "url": " https://example.org/A/ "},
        {"url": "https://example.org/b\ud800", "sentences": ["It rained."]},
        {"text": "It rained.", "url": None, "page": "https://example.org/c"},
        {"text": "It rained.", "url": 7},
        {"text": "", "url": "https://example.org/d"},
        "It rained.",
    ]
    path = file_with(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert urls(path) == ["https://example.org/A/", "https://example.org/b", "", "", ""]
    path = file_with(tmp_path / "b.jsonl", json.dumps(records[2]))
    assert urls(path, url_column="page") == ["https://example.org/c"]
    path = file_with(tmp_path / "c.jsonl", json.dumps({"url": "https://example.org/d"}))
    assert urls(path, column="url") == [""], "the text is not its own URL"


def test_documents_of_parquet_have_the_url_of_their_record(tmp_path: Path) -> None:
    addresses = ["https://example.org/a", None, "https://example.org/c"]
    texts = ["It rained."] * 3
    table = pa.table(
        {"url": addresses, "page": pa.array(addresses[::-1]).dictionary_encode(), "id": [1, 2, 3], "text": texts}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert urls(tmp_path / "a.parquet") == ["https://example.org/a", "", "https://example.org/c"]
    assert urls(tmp_path / "a.parquet", url_column="page") == ["https://example.org/c", "", "https://example.org/a"]
    for column in ("id", "other", "text"):
        assert urls(tmp_path / "a.parquet", url_column=column) == [""] * 3
    assert read(tmp_path / "a.parquet") == [["It rained."]] * 3


@pytest.mark.parametrize("size", [1, 40, 2**20])
def test_documents_of_wikiextractor_have_the_url_of_their_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = file_with(tmp_path / "wiki.txt", WIKI + "<doc>\nIt rained.\n</doc>\nIt ended.\n" + WIKI)
    expected = ["https://x.org/?id=12", "https://x.org/?id=39"]
    for module in (sources, readers):
        monkeypatch.setattr(module, "BLOCK_BYTES", size)
    monkeypatch.setattr(readers, "_form", lambda *_: ("paragraphs", "marks"))
    assert urls(path) == [*expected, "", "", *expected]


def test_documents_that_are_cut_keep_their_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (readers, "MOST_SENTENCES", 2),
        (sources, "BLOCK_BYTES", 8),
        (readers, "BLOCK_BYTES", 8),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(readers, "_form", lambda *_: ("paragraphs", "marks"))
    lines = "".join(f"Sentence {number}.\n" for number in range(5))
    path = file_with(
        tmp_path / "wiki.txt", f'<doc url="http://a">\n{lines}</doc>\n<doc url="http://b">\n{lines}</doc>\n'
    )
    assert urls(path) == ["http://a"] * 3 + ["http://b"] * 3


def test_json_lines_contain_texts_or_sentences(tmp_path: Path) -> None:
    text = {"id": "1", "text": "The boat came home. Nobody was in it."}
    lines = [text, {"text": ["A new story.", " ", "It rained."], "x": None}, {"text": None}, {"text": " "}]
    path = file_with(tmp_path / "a.jsonl", "\n".join(json.dumps(line) for line in lines) + "\n\n")
    report = ReadReport()
    assert sentences_of(read_documents([path], report=report)) == STORIES
    assert report.empty_documents == 2


def test_the_column_is_given_or_detected(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.jsonl", '{"body": "It rained.", "n": 1}\n"A new story."\n')
    assert read(path) == [["It rained."], ["A new story."]]
    path = file_with(tmp_path / "b.jsonl", '{"body": "It rained.", "title": "A new story."}\n')
    assert read(path, column="title") == [["A new story."]]
    with pytest.raises(
        InputError, match=r"expected a column 'text' in line 1 of .*; found 'body', 'title'; name the col"
    ):
        read(path)


@pytest.mark.parametrize(
    "broken", ['{"text": "It', "17", '{"text": "It", "text": "rained."}', '{"text": 5}', '{"text": [1]}']
)
def test_an_invalid_json_line_is_named(tmp_path: Path, broken: str) -> None:
    path = file_with(tmp_path / "a.jsonl", f'{{"text": "It rained."}}\n\n{broken}\n')
    with pytest.raises(InputError, match=r"line 3 of .*a\.jsonl'; found .*; "):
        read(path)


def test_json_lines_are_read_from_stdin_too(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'{"text": "It rained."}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert read("-", form="jsonl") == [["It rained."]]


def test_text_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STORY.encode())))
    assert read("-") == STORIES


def test_parquet_contains_texts_or_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "text": ["A new story. It rained.", None, "A\nnew story."]}), path)
    report = ReadReport()
    documents = read_documents([path], report=report)
    assert sentences_of(documents) == [STORIES[1], ["A new story."]]
    assert (report.files, report.bytes, report.empty_documents) == (1, path.stat().st_size, 1)
    pq.write_table(pa.table({"x": STORIES}), path)
    assert read(path) == STORIES


def test_parquet_without_the_column_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"title": ["a"], "body": ["b"]}), path)
    with pytest.raises(InputError, match=r"found no text column 'text' among 'title', 'body'"):
        read(path)
    file_with(path, path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"expected text in '.*a\.parquet'; found Parquet data that cannot be read"):
        read(path)


def test_folders_are_read_in_order_and_skipped_files_are_listed(tmp_path: Path) -> None:
    file_with(tmp_path / "b" / "2.txt", "It rained.")
    file_with(tmp_path / "a.txt", "A new story.")
    file_with(tmp_path / "b" / "1.txt.gz", gzip.compress(b"Nobody was in it."))
    file_with(tmp_path / "picture.txt", b"\x89PNG\x00\x01")
    file_with(tmp_path / "empty.txt", "")
    file_with(tmp_path / "notes.pdf", "x")
    file_with(tmp_path / ".hidden.txt", "x")
    report = ReadReport()
    items = list(read_blocks([tmp_path, tmp_path / "a.txt"], ReadingSettings()))
    skipped = {Path(item.name).name: item.reason for item in items if isinstance(item, Skipped)}
    assert skipped == {
        "picture.txt": "binary data",
        "empty.txt": "an empty file",
        "notes.pdf": "unknown extension",
        ".hidden.txt": "hidden",
        "a.txt": "the same file as an earlier one",
    }
    documents = list(read_documents([tmp_path], report=report))
    assert sentences_of(documents) == [["A new story."], ["Nobody was in it."], ["It rained."]]
    assert [Path(document.source).name for document in documents] == ["a.txt", "1.txt.gz", "2.txt"]
    assert (report.files, report.skipped_files) == (3, 4)


BAD = {
    "empty.txt": (b"", "an empty file"),
    "binary.txt": (b"abc\x00def", "binary data"),
    "packed.txt": (gzip.compress(b"x"), "gzip data (name it .gz)"),
    "wide.txt": ("Zwölf".encode("utf-16-le"), "binary data"),
    "text.gz": (b"no gzip at all", "gzip that cannot be read"),
    "text.zst": (b"no zstd at all", "zstd that cannot be read"),
    "a.parquet": (b"PAR1", "Parquet data that cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_named_file_without_text_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    data, reason = BAD[name]
    path = file_with(tmp_path / name, data)
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value).startswith(f"expected text in '{path}'; found {reason}")
    assert str(error.value).endswith("; use a file that contains text")


def test_missing_files_and_folders_without_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file or folder at '.*none\.txt'; found nothing there; check"):
        read(tmp_path / "none.txt")
    with pytest.raises(InputError, match=r"expected \.txt, .* files in '.*'; found none; name the files"):
        read(tmp_path)


def test_a_file_without_read_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_with(tmp_path / "a.txt", STORY)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sources, "open", refuse, raising=False)
    with pytest.raises(InputError, match=r"expected text in '.*a\.txt'; found permission denied; "):
        read(path)


def test_bytes_that_are_not_utf8_are_dropped_and_counted(tmp_path: Path) -> None:
    """They are dropped on request alone, and the files with them are named."""
    path = file_with(tmp_path / "a.txt", STORY.encode().replace(b"boat", b"b\xffoa\xc3t"))
    report = ReadReport()
    dropping = ReadingSettings(bad_bytes="drop")
    assert sentences_of(read_documents([path], dropping, report=report)) == STORIES
    assert report.encoding_errors == 2
    assert report.notes == [f"bytes that are not UTF-8, dropped: 2 ({path}: 2)"]
    file_with(tmp_path / "cyrillic.txt", "Он пришёл домой".encode("cp1251"))
    with pytest.raises(InputError, match=r"cyrillic\.txt'; found bytes that are not UTF-8 \(13 of the first 15\)"):
        list(read_documents([tmp_path / "cyrillic.txt"], dropping))


def test_a_byte_that_is_not_valid_is_refused_with_its_line(tmp_path: Path) -> None:
    """So is a file of a folder, since a letter would be lost, and a file that is cut into many blocks."""
    path = file_with(tmp_path / "in" / "a.txt", b"It rained.\r\n" * 200_000 + "Café.\n".encode("cp1252"))
    for named in (path, path.parent):
        with pytest.raises(InputError) as error:
            list(read_documents([named]))
        assert str(error.value) == (
            f"expected text in '{path}'; found the byte 0xe9 in line 200001, not UTF-8; "
            "save it as UTF-8, or name its encoding, as in --encoding cp1252, or drop such bytes with --bad-bytes drop"
        )
    (document,) = read_documents([path], ReadingSettings(encoding="cp1252"))
    assert document.sentences[-1] == "Café."


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("form", ["lines", "jsonl"])
@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8-sig", "cp1252"), ("utf-16", "utf-8"), ("utf-32", "utf-8"), ("utf-16-be", "utf-16-be"), ("gbk", "GBK")],
)
def test_a_byte_order_mark_has_precedence_over_the_encoding_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, named: str, form: str, ending: str
) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 7)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 7)
    text = "它下雨了\nIt rained\n" if form == "lines" else '"它下雨了"\n"It rained"\n'
    data = text.encode(encoding)
    path = file_with(tmp_path / f"a.txt{ending}", gzip.compress(data) if ending else data)
    report = ReadReport()
    documents = list(read_documents([path], ReadingSettings(form=form, encoding=named), report=report))
    assert [sentence for document in documents for sentence in document.sentences] == ["它下雨了", "It rained"]
    assert report.bytes == path.stat().st_size


@given(
    st.text(max_size=60), st.sampled_from(["utf-8", "utf-16-le", "utf-32-be", "gb18030", "utf-7"]), st.integers(1, 9)
)
def test_a_stream_in_any_encoding_is_read_as_utf8(text: str, encoding: str, size: int) -> None:
    data = text.lstrip("\ufeff").encode(encoding)
    assume(encoding_of(data, encoding) == require_encoding(encoding))
    stream = Utf8Stream(io.BytesIO(data).read, name="a.txt", encoding=encoding)
    assert b"".join(iter(lambda: stream.read(size), b"")) == text.lstrip("\ufeff").encode()
    assert decoded(data, name="a.txt", encoding=encoding) == text.lstrip("\ufeff")


@given(
    st.lists(st.text("a&<>;ltgmp .\n", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=3),
    st.booleans(),
)
def test_text_that_wikiextractor_escaped_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], as_json: bool
) -> None:
    """In its two formats; `html.escape` is what it calls."""
    path = tmp_path_factory.mktemp("wiki") / "wiki_00"
    escaped = [html.escape(text, quote=False) for text in texts]
    if as_json:
        file_with(path, "".join(json.dumps({"id": "1", "title": "t", "text": text}) + "\n" for text in escaped))
    else:
        file_with(path, "".join(f'<doc id="1" url="u" title="t">\n{text}\n</doc>\n' for text in escaped))
    plain = file_with(path.parent / "plain.jsonl", "".join(json.dumps(text) + "\n" for text in texts))
    assert read(path, form="lines") == read(plain, form="lines")


def test_text_of_wikiextractor_that_is_not_escaped_stays(tmp_path: Path) -> None:
    path = file_with(tmp_path / "wiki_00", '<doc id="1">\nWrite a < b as a &lt; b.\n</doc>\n')
    assert read(path) == [["Write a < b as a &lt; b."]]
    path = file_with(tmp_path / "a.jsonl", '{"text": "Write &lt;."}\n')
    assert read(path) == [["Write &lt;."]]


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "punycode", "a\0b", ""])
def test_an_encoding_that_does_not_exist_is_refused(encoding: str) -> None:
    with pytest.raises(ConfigError, match=r"expected the name of an encoding of text; found .*; use a name such as"):
        ReadingSettings(encoding=encoding)
    with pytest.raises(ConfigError, match="--bad-bytes drop needs --encoding utf-8; "):
        ReadingSettings(encoding="cp1252", bad_bytes="drop")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_an_order_of_bytes_that_neither_the_file_nor_the_user_names_is_refused(tmp_path: Path, encoding: str) -> None:
    path = file_with(tmp_path / "a.txt", "It rained\n".encode(f"{encoding}-be"))
    message = f"expected a byte order mark .* in {encoding}; found none; name .*, {encoding}-le or {encoding}-be"
    with pytest.raises(ConfigError, match=message):
        list(read_documents([path], ReadingSettings(encoding=encoding)))
    with pytest.raises(ConfigError, match=message):
        decoded(path.read_bytes(), name="a.txt", encoding=encoding)


def test_documents_continue_in_the_next_file_only_on_request(tmp_path: Path) -> None:
    """In the original code only blank lines end a document."""
    file_with(tmp_path / "1.txt", "A new story.\n")
    file_with(tmp_path / "2.txt", "It rained.\n\nNobody was in it.\n")
    assert read(tmp_path) == [["A new story."], ["It rained."], ["Nobody was in it."]]
    assert read(tmp_path, files_continue=True) == [["A new story.", "It rained."], ["Nobody was in it."]]


def test_very_long_documents_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_SENTENCES", 4)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 16)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 16)
    path = file_with(tmp_path / "a.txt", "".join(f"Sentence {number}.\n" for number in range(10)))
    report = ReadReport()
    documents = sentences_of(read_documents([path], report=report))
    assert list(itertools.chain(*documents)) == [f"Sentence {number}." for number in range(10)]
    assert [len(document) for document in documents] == [4, 4, 2]
    assert report.cut_documents == 2


def test_a_line_of_ten_megabytes_is_one_sentence(tmp_path: Path) -> None:
    line = "boat " * (2 * 2**20)
    path = file_with(tmp_path / "a.txt", f"It rained.\n{line}\nA new story.\n")
    report = ReadReport()
    (document,) = read_documents([path], ReadingSettings(form="lines"), report=report)
    assert [len(sentence) for sentence in document.sentences] == [10, len(line) - 1, 12]
    assert report.cut_lines == 0


@given(
    st.lists(st.sampled_from(["a", "ä", "他", "\n", "\r\n", "\r", " ", "\n\n"]), min_size=1, max_size=60).map("".join),
    st.integers(1, 9),
)
def test_blocks_of_any_size_give_the_same_lines(tmp_path_factory: pytest.TempPathFactory, text: str, size: int) -> None:
    path = file_with(tmp_path_factory.mktemp("blocks") / "a.txt", text)
    unix = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    with pytest.MonkeyPatch.context() as patch, SourceStream(Source(str(path), "text", None, True, 0)) as stream:
        patch.setattr(sources, "BLOCK_BYTES", size)
        blocks = list(text_blocks(stream, Cuts(), head=stream.read(size), by_paragraph=False, longest=2**20))
    assert b"".join(blocks) == unix
    assert all(block.endswith(b"\n") for block in blocks[:-1])


@given(st.text("ab\u00e4\u4ed6 ", min_size=1, max_size=80))
def test_overlong_lines_are_cut_between_characters(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = file_with(tmp_path_factory.mktemp("cut") / "a.txt", text)
    cuts = Cuts()
    with SourceStream(Source(str(path), "text", None, True, 0)) as stream:
        blocks = list(text_blocks(stream, cuts, head=stream.read(10), by_paragraph=False, longest=8))
    assert "".join(block.decode("utf-8") for block in blocks) == text
    assert len(blocks) - 1 <= cuts.count <= len(blocks)
    assert cuts.count > 0 or len(text.encode("utf-8")) <= 10


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    file_with(tmp_path / "in" / "a.txt", STORY)
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    result = list(find_sources([tmp_path / "in"]))
    assert [type(item) for item in result] == [Source, Skipped]


def test_lone_surrogates_in_json_are_dropped_and_counted(tmp_path: Path) -> None:
    path = file_with(
        tmp_path / "a.jsonl",
        '{"text": "It \\ud83drained."}\n{"text": "A \\ud83d\\ude00 story."}\n{"text": "\\udc00"}\n',
    )
    report = ReadReport()
    assert sentences_of(read_documents([path], report=report)) == [["It rained."], ["A \U0001f600 story."]]
    assert report.encoding_errors == 2


def test_a_path_that_is_not_utf8_is_read_and_shown_with_escapes(tmp_path: Path) -> None:
    path = file_with(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")), "It rained.")
    (document,) = read_documents([path])
    assert document.source == f"{tmp_path}/caf\\udce9.txt"


def test_parquet_columns_of_repeated_texts_are_read(tmp_path: Path) -> None:
    texts = pa.array(["It rained.", "It rained."]).dictionary_encode()
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [["It rained."]] * 2


@pytest.mark.parametrize("name", ["mails.csv", "mails.TSV", "records.json", "mails.csv.gz"])
def test_a_table_that_is_named_is_not_read_as_prose(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = b"text,label\nBuy these pills,spam\n"
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match="a table or JSON by its name; save its texts"):
        list(read_documents([path]))


def test_json_lines_are_read_under_any_name_with_that_form(tmp_path: Path) -> None:
    path = file_with(tmp_path / "records.json", '{"text": "It rained."}\n')
    assert [document.sentences for document in read_documents([path], ReadingSettings(form="jsonl"))] == [
        ["It rained."]
    ]
