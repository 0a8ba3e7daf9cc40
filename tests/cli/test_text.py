"""tokenize, inputs and vocab as a user types them."""

import gzip
import io
import json
import os
from pathlib import Path

import pytest

from bertsmith.app.cli.text import count_lines, line_blocks
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model_files.test_sentencepiece_file import write_model
from tasks.architecture_samples import unigram_pieces
from written_files import file_with


def test_lines_become_pieces(run, vocabulary: Path) -> None:
    result = run("tokenize", "--vocab", vocabulary, stdin=b"The man tweeting?\nxanax\n")
    assert result == (0, "the man tweet ##ing ?\nxa ##nax\n", "")


def test_lines_become_ids(run, vocabulary: Path) -> None:
    result = run("tokenize", "--vocab", vocabulary, "--ids", stdin=b"a b\n")
    assert result == (0, "5 6\n", "")


def test_the_pieces_of_a_model_come_from_the_file_that_its_architecture_has(run, tmp_path: Path) -> None:
    write_model(tmp_path / "spm.model", unigram_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"]))
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    result = run("tokenize", "--model", tmp_path, stdin=b"the film\n")
    assert result == (0, "\u2581the \u2581film\n", "")


def test_at_a_terminal_a_message_says_that_lines_are_expected(capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    assert list(line_blocks(Terminal(b"a\nb\n"))) == [["a", "b"]]
    assert capsys.readouterr().err.startswith("bertsmith: reading lines from the terminal; end with Ctrl-D")
    assert list(line_blocks(io.BytesIO(b"a\n"))) == [["a"]]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("stdin", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        ("a\u2028b\x0bc\n".encode(), ["a b ##c"]),
    ],
)
def test_there_is_one_line_out_for_every_line_in(run, vocabulary: Path, stdin: bytes, lines: list[str]) -> None:
    result = run("tokenize", "--vocab", vocabulary, stdin=stdin)
    assert result == (0, "".join(f"{line}\n" for line in lines), "")


def test_many_lines_are_processed_completely(run, vocabulary: Path) -> None:
    texts = [f"the man {'abcde'[number % 5]} tweeting {'bought ' * (number % 7)}" for number in range(60_000)]
    tokenizer = WordPieceTokenizer(Vocabulary.load(vocabulary))
    result = run("tokenize", "--vocab", vocabulary, stdin="\n".join(texts).encode())
    lines = result.out.splitlines()
    assert len(lines) == len(texts)
    for number in (0, 1, 29_999, 59_999):
        assert lines[number] == " ".join(tokenizer.tokenize(texts[number]))


def test_bytes_that_are_not_utf8_are_refused_after_the_lines_before_them_or_dropped(run, vocabulary: Path) -> None:
    data = b"a\nb \xff\xfe\na\n"
    result = run("tokenize", "--vocab", vocabulary, stdin=data)
    assert (result.code, result.out) == (1, "a\n")
    assert "found the byte 0xff in line 2, not UTF-8; save it as UTF-8, or name its encoding" in result.err
    result = run("tokenize", "--vocab", vocabulary, "--bad-bytes", "drop", stdin=data)
    assert (result.code, result.out) == (0, "a\nb\na\n")
    assert "bytes that are not UTF-8, dropped: 2, the first in line 2" in result.err
    for encoding in ("cp1252", "utf-16"):
        text = "the man \xe9\nb\n"
        coded = run("tokenize", "--vocab", vocabulary, "--encoding", encoding, stdin=text.encode(encoding))
        assert coded == run("tokenize", "--vocab", vocabulary, stdin=text.encode()), encoding


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"%PDF-1.7\nthe man\n", "a PDF file"),
        (gzip.compress(b"the man\n", mtime=0), "gzip data"),
        (b"PK\x03\x04 and so on", "a zip archive (unpack it) or an office file such as .xlsx (save it as CSV or text)"),
        ("the man\n".encode("utf-16-le"), "binary data"),
        (b"a\x00b\n", "binary data"),
    ],
)
@pytest.mark.parametrize("command", [["tokenize"], ["fill", "-"]])
def test_binary_stdin_is_refused_in_one_line(run, model: Path, command: list[str], data: bytes, words: str) -> None:
    run(*command, "--model", model, stdin=data).refuses(f"expected lines of text on stdin; found {words}")


def test_an_endless_line_is_refused_and_lines_before_it_are_answered(
    run, vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.text.documents.sources.LONGEST_RECORD", 3 << 20)
    whole = b"the man\n" + b"a" * (2 << 20) + b"\n"
    assert run("tokenize", "--vocab", vocabulary, stdin=whole) == (0, "the man\n[UNK]\n", "")
    result = run("tokenize", "--vocab", vocabulary, stdin=whole + b"a" * (5 << 20))
    assert (result.code, result.out, result.err.count("\n")) == (1, "the man\n[UNK]\n", 1)
    assert "found more than 3 MiB without a line end in line 3" in result.err


def test_cased_text_keeps_its_capitals(run, vocabulary: Path) -> None:
    lower = run("tokenize", "--vocab", vocabulary, stdin="É the\n".encode()).out
    cased = run("tokenize", "--vocab", vocabulary, "--cased", stdin="é The\n".encode()).out
    assert (lower, cased) == ("e the\n", "é [UNK]\n")


def test_special_tokens_are_parsed_unless_disabled(run, vocabulary: Path) -> None:
    whole = run("tokenize", "--vocab", vocabulary, stdin=b"[MASK]\n").out
    asked = run("tokenize", "--vocab", vocabulary, "--special-tokens", stdin=b"[MASK]\n").out
    split = run("tokenize", "--vocab", vocabulary, "--no-special-tokens", stdin=b"[MASK]\n").out
    assert asked == whole
    assert (whole, split) == ("[MASK]\n", "[ mask ]\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "expected --vocab or --model; found neither; for example: "),
        (["--vocab", "a", "--model", "b"], "expected --vocab or --model; found both; leave one of them out"),
        (["--model", "b", "--cased"], "a model has its own casing"),
        (["--model", "b", "--rules", "google"], "a model has its own rules"),
    ],
)
def test_one_source_of_the_tokenizer_is_needed(run, options: list[str], words: str) -> None:
    result = run("tokenize", *options)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_the_rules_of_the_original_code_can_be_chosen(run, vocabulary: Path) -> None:
    line = "the\ue000 ΟΔΟΣ\n".encode()  # private use is dropped by one of the two
    usual = run("tokenize", "--vocab", vocabulary, stdin=line).out
    google = run("tokenize", "--vocab", vocabulary, "--rules", "google", stdin=line).out
    assert usual == run("tokenize", "--vocab", vocabulary, "--rules", "huggingface", stdin=line).out
    assert (usual, google) == ("the [UNK]\n", "[UNK] [UNK]\n")
    result = run("tokenize", "--vocab", vocabulary, "--rules", "python")
    result.refuses("expected the text rules huggingface, google or unspaced; found 'python'")


@pytest.mark.parametrize("command", [["tokenize"], ["inputs", "the man"]])
def test_a_casing_mismatch_is_reported(run, tmp_path: Path, vocabulary: Path, command: list[str]) -> None:
    capitals = file_with(tmp_path / "capitals.txt", vocabulary.read_text(encoding="utf-8") + "Paris\n")
    assert run(*command, "--vocab", vocabulary).err == ""
    assert run(*command, "--vocab", capitals, "--cased").err == ""
    for options, words in (
        (["--vocab", capitals], "has capital"),
        (["--vocab", vocabulary, "--cased"], "has hardly any capital"),
    ):
        result = run(*command, *options)
        assert (result.code, result.err.count("\n")) == (0, 1)
        assert result.err.startswith(f"warning: '{options[1]}': the vocabulary {words}")


def test_the_three_rows_of_a_pair_are_printed(run, vocabulary: Path) -> None:
    result = run("inputs", "--vocab", vocabulary, "the man", "he tweeting")
    rows = [line.split() for line in result.out.splitlines()[1:]]
    assert result.code == 0
    assert [row[0] for row in rows] == ["[CLS]", "the", "man", "[SEP]", "he", "tweet", "##ing", "[SEP]"]
    tokenizer = WordPieceTokenizer(Vocabulary.load(vocabulary), TextRules())
    assert [int(row[1]) for row in rows] == [tokenizer.vocabulary.index[row[0]] for row in rows]
    assert [row[2] for row in rows] == ["0"] * 4 + ["1"] * 4
    assert [int(row[3]) for row in rows] == list(range(8))


def test_special_pieces_are_marked_and_those_that_were_typed_are_mentioned(run, vocabulary: Path) -> None:
    with vocabulary.open("a", encoding="utf-8") as file:
        file.write("marked\n")
    result = run("inputs", "--vocab", vocabulary, "the [SEP] marked \u4e2d")
    marked = [line.split()[0] for line in result.out.splitlines() if line.endswith("  special")]
    assert marked == ["[CLS]", "[SEP]", "[UNK]", "[SEP]"]
    said = "[SEP] in a text: read as special tokens, as in transformers"
    assert result.err == f"warning: {said}\n"
    result = run("tokenize", "--vocab", vocabulary, "--no-special-tokens", stdin=b"the marked [SEP]\n" * 2)
    assert result.out == "the marked [ [UNK] ]\n" * 2
    said = "[SEP] in a text: read as ordinary characters; transformers would read special tokens"
    assert result.err == f"warning: {said}\n"


def test_an_input_that_is_too_long_is_truncated_with_a_warning(run, vocabulary: Path) -> None:
    result = run("inputs", "--vocab", vocabulary, "a b c d e", "--max-length", 5)
    assert len(result.out.splitlines()) == 1 + 5
    assert "tokens truncated to fit into 5: 2\n" in result.err


def test_an_input_has_the_length_that_the_model_reads(run, model: Path, vocabulary: Path) -> None:
    result = run("inputs", "--model", model, "a " * 100)
    assert len(result.out.splitlines()) == 1 + 32
    assert "tokens truncated to fit into 32: 70\n" in result.err
    assert run("inputs", "--model", model, "a", "--max-length", 33).code == 1
    assert len(run("inputs", "--vocab", vocabulary, "a " * 600).out.splitlines()) == 1 + 512
    about = json.loads((model / "bertsmith.json").read_text(encoding="utf-8"))
    about |= {"spec": {"settings": {"max_length": 12}}}
    (model / "bertsmith.json").write_text(json.dumps(about), encoding="utf-8")
    assert len(run("inputs", "--model", model, "a " * 100).out.splitlines()) == 1 + 12


def test_the_lines_of_a_redirected_file_are_counted_in_advance(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    for data, lines in ((b"", 0), (b"one\ntwo\n", 2), (b"one\n\nthree", 3), (b"x" * (2 << 20) + b"\ny", 2)):
        path.write_bytes(data)
        with path.open("rb") as stream:
            assert count_lines(stream) == lines
            assert stream.read() == data
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert count_lines(stream) is None
    assert count_lines(io.BytesIO(b"one\n")) is None
