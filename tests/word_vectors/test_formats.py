"""Files of word vectors: what is written is read again, and damaged ones are refused in one line."""

import gzip
import re
import struct

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.inference.word_vectors.formats import load_word_vectors, write_word_vectors
from bertsmith.inference.word_vectors.word_vectors import WordVectors, save_word_vectors
from oracles.word_vector_files import binary, text, text_without_header
from written_files import file_with

RNG = np.random.default_rng(8)
VECTORS = WordVectors(
    words=["the", "naïve", "東", "3.5", "stick"], vectors=RNG.standard_normal((5, 7)).astype(np.float32) * 1e-3
)


@pytest.mark.parametrize("to", ["text", "binary"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_formats_of_word2vec_hold_the_same_words_and_numbers(tmp_path, to, ending):
    write_word_vectors(VECTORS, tmp_path / "v", to)
    path = tmp_path / f"v{ending}"
    if ending:
        path.write_bytes(gzip.compress((tmp_path / "v").read_bytes()))
    result = load_word_vectors(path)
    assert result.words == VECTORS.words
    np.testing.assert_array_equal(result.vectors, VECTORS.vectors)


def test_the_bytes_are_those_of_the_original_program(tmp_path):
    small = WordVectors(words=["a", "b"], vectors=np.array([[1, -0.5], [0.25, 2]], dtype=np.float32))
    write_word_vectors(small, tmp_path / "t", "text")
    assert (tmp_path / "t").read_bytes() == b"2 2\na 1.0 -0.5\nb 0.25 2.0\n"
    write_word_vectors(small, tmp_path / "b", "binary")
    wanted = b"2 2\na " + struct.pack("<2f", 1, -0.5) + b"\nb " + struct.pack("<2f", 0.25, 2) + b"\n"
    assert (tmp_path / "b").read_bytes() == wanted


def test_glove_text_has_no_header_and_may_have_words_with_spaces(tmp_path):
    (tmp_path / "g.txt").write_bytes(b"the 0.25 -1.5 3\n. . 1 2 3\nstick -0.1 0 1e-3\n")
    result = load_word_vectors(tmp_path / "g.txt")
    assert result.words == ["the", ". .", "stick"]
    np.testing.assert_array_equal(result.vector("stick"), np.array([-0.1, 0, 1e-3], dtype=np.float32))
    with pytest.raises(InputError, match="without white space"):
        write_word_vectors(result, tmp_path / "out", "text")


def test_a_wide_file_without_newline_at_the_end_is_read(tmp_path):
    (tmp_path / "g.txt").write_text("stick " + " ".join(["0.125"] * 200), encoding="utf-8")
    assert load_word_vectors(tmp_path / "g.txt").vectors.shape == (1, 200)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"3 2\na 1 2\nb 3 4\n", "2 words instead of 3"),
        (b"a 1 2\nb 3\n", "1 number in line 2 instead of 2"),
        (b"2 2\na 1 2\nb 3\n", "1 number in line 3 instead of 2"),
        (b"a 1 2\nb 3 x\n", "line 2, which has something else"),
        (b"a 1 2\nb 3 4\na 5 6\n", "'a' twice"),
        (b"a 1 2\nb 3 nan\n", "NaN or infinity for 'b'"),
        (b"2 2\na " + struct.pack("<2f", 1, 2) + b"\nb " + struct.pack("<f", 1), "1 of 2 words: it is cut short"),
        (b"1 2\na " + struct.pack("<2f", 1, 2) + b"\nb " + struct.pack("<2f", 1, 2), "more than 1 word"),
        (b"2 2\n\xff " + struct.pack("<2f", 1, 2) + b"\nb " + struct.pack("<2f", 1, 2), "not UTF-8"),
        (b"99999999 99999\na 1\n", "a first line with 99,999,999 words"),
        (b"", "an empty file"),
        (b"2\nthe 1 2\na 3 4\n", "0 numbers in line 1 instead of 2"),
        (b"2\n", "b'2' and no numbers in line 1"),
        (b"the\t1\t2\na\t3\t4\n", "tabs instead of spaces"),
        (b"2 2\nthe\t1\t2\na\t3\t4\n", "a tab in line 2"),
        (b"2 2\nthe 0,5 1,5\na 2,5 3,5\n", "line 2, which has something else"),
        (b"2 2\nthe 0.5 1.5\na 2,5 3,5\n", "line 3, which has something else"),
        (b"the 0,5 1,5\na 2,5 3,5\n", "line 1, which has something else"),
        (b"2 2\nthe 1 2\n\xc3 3 4\n", "not UTF-8, in line 3"),
        (b"2 2\n\xc3 1 2\nthe 3 4\n", "not UTF-8, in line 2"),
        (b"2 2\n 1 2\nthe 3 4\n", "no word before the numbers of line 2"),
        (b"2 2\n  1 2\nthe 3 4\n", "no word before the numbers of line 2"),
        (b"2 2\nthe  1 2\na 3 4\n", "two spaces after the word in line 2"),
        (b"2 2\nthe 1 2\na 3 1e300\n", "NaN or infinity for 'a' in line 3"),
        (b"2 2\nthe 1 2\na 3 inf\n", "NaN or infinity for 'a' in line 3"),
        (
            b"2 2\na " + struct.pack("<2f", 1, float("nan")) + b"\nb " + struct.pack("<2f", 1, 2),
            "NaN or infinity for 'a'",
        ),
        ("2 2\na 1 2\nb 3 4\n".encode("utf-16"), "vectors"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0", "a model of fastText (.bin)"),
        (b"\x80\x04\x95", "a pickle"),
        (gzip.compress(b"a 1 2\n", mtime=0), "gzip data; name the file .gz"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, content, found):
    path = file_with(tmp_path / "damaged", content)
    with pytest.raises(InputError, match=re.escape(found)) as error:
        load_word_vectors(path)
    assert str(path) in str(error.value)


READABLE = {
    "a byte order mark": (b"\xef\xbb\xbf2 2\nthe 1 2\na 3 4\n", ["the", "a"]),
    "a byte order mark without header": (b"\xef\xbb\xbfthe 1 2\na 3 4\n", ["the", "a"]),
    "a tab in the header": (b"2\t2\nthe 1 2\na 3 4\n", ["the", "a"]),
    "carriage returns": (b"2 2\r\nthe 1 2\r\na 3 4\r\n", ["the", "a"]),
    "fastText": (b"2 2\nthe 1 2 \na 3 4 \n", ["the", "a"]),
    "a first word with a space": (b"2 2\nnew york 1 2\na 3 4\n", ["new york", "a"]),
    "one without header": (b"new york 1 2\na 3 4\nb 5 6\n", ["new york", "a", "b"]),
    "words of numbers": (b"1 1 2\n0.5 3 4\n. 2 5 6\n", ["1", "0.5", ". 2"]),
    "empty lines": (b"the 1 2\n\na 3 4\n\n", ["the", "a"]),
    "a space that is a letter": ("\u00a0 1 2\na\u2028b 3 4\n".encode(), ["\u00a0", "a\u2028b"]),
}


@pytest.mark.parametrize("name", READABLE)
def test_what_other_tools_write_is_read(tmp_path, name):
    content, words = READABLE[name]
    (tmp_path / "v.txt").write_bytes(content)
    result = load_word_vectors(tmp_path / "v.txt")
    assert result.words == words
    np.testing.assert_array_equal(result.vectors, np.arange(1, 2 * len(words) + 1).reshape(-1, 2))


WORD = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=4) | st.sampled_from(
    ["the", "new york", "3.5", "1 2", "é", "猫", "\u00a0", "0x", "1e5", "inf"]
)
NUMBER = st.sampled_from(["0.5", "-1", "1e-3", "3.25", "0"])
DAMAGES = (
    lambda data: data,
    lambda data: data.replace(b"\n", b"\r\n"),
    lambda data: data.replace(b" ", b"\t", 1),
    lambda data: data.replace(b" ", b"\t"),
    lambda data: data.replace(b".", b","),
    lambda data: b"\xef\xbb\xbf" + data,
    lambda data: data[: data.rfind(b" ")],
    lambda data: data.replace(b" ", b"", 1),
    lambda data: data.replace(b"\n", b"\n\n", 1),
    lambda data: data.replace(b"\xc3", b"", 1).replace(b"\xe7\x8c", b"\xe7", 1),
    lambda data: data[data.find(b"\n") + 1 :],
    lambda data: data.replace(b"0.5", b"nan", 1),
    lambda data: data + data[data.find(b"\n") + 1 :],
)


@given(
    st.lists(WORD, min_size=1, max_size=6, unique=True),
    st.integers(1, 4),
    st.data(),
    st.sampled_from(["text", "fastText", "GloVe", "binary", "binary without line feeds"]),
    st.sampled_from(DAMAGES),
)
def test_a_file_of_any_tool_has_the_vectors_of_its_owner_or_is_refused(
    tmp_path_factory, words, width, data, kind, damage
):
    """What the owner refuses may be read only as what was written into the file, such as words with spaces."""
    words = [word for word in words if " " not in word or kind != "GloVe"]
    assume(words and not any(word.startswith(" ") or word.endswith(" ") for word in words))
    numbers = [[data.draw(NUMBER) for _ in range(width)] for _ in words]
    header = "" if kind == "GloVe" else f"{len(words)} {width}\n"
    if kind.startswith("binary"):
        end = b"\n" if kind == "binary" else b""
        rows = [
            word.encode() + b" " + np.array(row, dtype=np.float32).tobytes() + end
            for word, row in zip(words, numbers, strict=True)
        ]
        content = header.encode() + b"".join(rows)
    else:
        end = " \n" if kind == "fastText" else "\n"
        content = (
            header + "".join(f"{word} {' '.join(row)}{end}" for word, row in zip(words, numbers, strict=True))
        ).encode()
    content = damage(content)
    path = file_with(tmp_path_factory.mktemp("vectors") / "v", content)
    try:
        read_back = load_word_vectors(path)
    except InputError:
        return
    result = dict(zip(read_back.words, read_back.vectors.tolist(), strict=True))
    written = {word: np.array(row, dtype=np.float32).tolist() for word, row in zip(words, numbers, strict=True)}
    read = binary if kind.startswith("binary") else text_without_header if kind == "GloVe" else text
    try:
        expected = {word: vector.tolist() for word, vector in read(content).items()}
    except (ValueError, EOFError):
        expected = written
    assert result in (expected, written)


@pytest.mark.parametrize("name", ["vectors.safetensors", "words.txt", "bertsmith.json"])
def test_a_folder_with_a_file_cut_short_is_refused(tmp_path, name):
    save_word_vectors(VECTORS, tmp_path / "v")
    assert load_word_vectors(tmp_path / "v").words == VECTORS.words
    path = tmp_path / "v" / name
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError):
        load_word_vectors(tmp_path / "v")
