"""Files of word vectors: what is written is read again, and damaged ones are refused in one line."""

import gzip
import struct

import numpy as np
import pytest

from bertsmith.errors import InputError
from bertsmith.word_vectors.formats import load_word_vectors, write_word_vectors
from bertsmith.word_vectors.word_vectors import WordVectors, save_word_vectors

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
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, content, found):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        load_word_vectors(path)
    assert found in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["vectors.safetensors", "words.txt", "bertsmith.json"])
def test_a_folder_with_a_file_cut_short_is_refused(tmp_path, name):
    save_word_vectors(VECTORS, tmp_path / "v")
    assert load_word_vectors(tmp_path / "v").words == VECTORS.words
    path = tmp_path / "v" / name
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError):
        load_word_vectors(tmp_path / "v")
