"""vocab as a user types it."""

import json
import re
from pathlib import Path

import pytest

import bertsmith
from bertsmith import ConfigError, InputError
from bertsmith.base.storage.locks import locked_file
from bertsmith.text.documents import words
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import count_words
from written_files import file_with

SENTENCES = [
    "She was tweeting, he was tweeting: tweet after tweet.",
    "Xanax is no walk in the park, xanax is xanax.",
    "The walking man walked while she talked and talking stopped.",
]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with a file for each sentence, repeated many times."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, sentence in enumerate(SENTENCES):
        (folder / f"{number}.txt").write_text(f"{sentence}\n" * 20, encoding="utf-8")
    return folder


def test_a_vocabulary_of_the_wanted_size_is_learned_and_reported_file_by_file(run, tmp_path, texts) -> None:
    out = tmp_path / "vocab.txt"
    result = run("vocab", texts, "--size", 90, "--out", out, "--report", tmp_path / "report.json").succeeds()
    vocabulary = Vocabulary.load(out)
    assert len(vocabulary) == 90
    words = count_words(sentence for sentence in SENTENCES * 20)
    assert set(vocabulary.pieces) == set(learn_vocabulary(words, 90).pieces)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in report["texts"]] == [str(texts / f"{number}.txt") for number in range(3)]
    assert report["total"]["words"] == words.total
    assert str(texts / "1.txt") in result.out
    assert "total" in result.out


def test_every_character_is_a_piece_on_request(run, tmp_path: Path) -> None:
    text, out = tmp_path / "korean.txt", tmp_path / "vocab.txt"
    syllables = [chr(code) for code in range(0xAC00, 0xAC00 + 60)]
    text.write_text("the man the hat\n" * 9000 + "\n".join(syllables) + "\n", encoding="utf-8")
    kept = []
    for options in ((), ("--character-coverage", 1)):
        run("vocab", text, "--size", 90, "--cased", "--replace", "--out", out, *options).succeeds()
        kept.append(len(set(syllables) & set(Vocabulary.load(out).pieces)))
    assert kept[0] < 60 == kept[1]
    result = run("vocab", text, "--size", 90, "--out", tmp_path / "none", "--character-coverage", 0)
    result.refuses("character coverage must be above 0 and at most 1, not 0.0")


def test_the_same_text_gives_the_same_file_and_capitals_stay_if_wanted(run, tmp_path, texts) -> None:
    first, second, cased = (tmp_path / name for name in ("first.txt", "second.txt", "cased.txt"))
    for out in (first, second):
        run("vocab", texts, "--size", 60, "--out", out).succeeds()
    assert first.read_bytes() == second.read_bytes()
    assert not Vocabulary.load(first).is_cased
    run("vocab", texts, "--size", 80, "--out", cased, "--cased").succeeds()
    assert Vocabulary.load(cased).is_cased


def test_a_vocabulary_may_be_learned_by_the_rules_of_the_original_code(run, tmp_path: Path) -> None:
    text = file_with(tmp_path / "greek.txt", "ΟΔΟΣ λόγος\n" * 20)
    for rules, keeps_final in (("huggingface", False), ("google", True)):
        run("vocab", text, "--size", 25, "--out", tmp_path / rules, "--rules", rules).succeeds()
        # The original code makes a final sigma of the last letter.
        assert ("##οδος" in (pieces := Vocabulary.load(tmp_path / rules).pieces) or "οδος" in pieces) is keeps_final


def test_stdin_is_a_text_too(run, tmp_path, texts) -> None:
    data = b"".join((texts / f"{number}.txt").read_bytes() for number in range(3))
    run("vocab", "-", "--size", 60, "--out", tmp_path / "stdin.txt", stdin=data).succeeds()
    run("vocab", texts, "--size", 60, "--out", tmp_path / "files.txt").succeeds()
    assert (tmp_path / "stdin.txt").read_bytes() == (tmp_path / "files.txt").read_bytes()


def test_many_files_share_a_line_of_the_report(run, tmp_path, texts, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run("vocab", texts, "--size", 60, "--out", tmp_path / "alone.txt")
    monkeypatch.setattr(words, "MOST_FILES", 1)
    together = run("vocab", texts, "--size", 60, "--out", tmp_path / "together.txt")
    assert (tmp_path / "alone.txt").read_bytes() == (tmp_path / "together.txt").read_bytes()
    assert "further files" not in alone.out
    assert "further files" in together.out
    assert alone.out.splitlines()[4].split()[2:] == together.out.splitlines()[3].split()[2:]


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"", [], "text.txt"),
        (b"\x00\x00binary", [], "text.txt"),
        (b"  \n \n", [], "expected"),
        (b"the man went", ["--size", "4"], "expected"),
    ],
)
def test_unusable_text_is_one_line(run, tmp_path, content, options, words) -> None:
    file = file_with(tmp_path / "text.txt", content)
    run("vocab", file, "--out", tmp_path / "vocab.txt", *options).refuses(words)
    assert not (tmp_path / "vocab.txt").exists()


@pytest.mark.parametrize("option", ["--out", "--report"])
def test_a_place_that_cannot_be_written_is_refused_before_any_word_is_counted(
    run, tmp_path, texts, option, monkeypatch
) -> None:
    monkeypatch.setattr(words, "count_files", None)
    file = file_with(tmp_path / "file", b"mine")
    for target in (texts, file / "vocab.txt"):
        places = {"--out": tmp_path / "vocab.txt"} | {option: target}
        result = run("vocab", texts, *(part for pair in places.items() for part in pair))
        result.refuses(f"'{target}'")
        assert ".partial" not in result.err


def test_bytes_that_are_not_utf8_are_counted(run, tmp_path) -> None:
    file = file_with(tmp_path / "text.txt", b"the man went to the store\nhe \xff bought \xfe\n" * 5)
    result = run("vocab", file, "--size", 40, "--out", tmp_path / "vocab.txt")
    result.refuses("found the byte 0xff in line 2, not UTF-8; save it as UTF-8, or name its encoding")
    result = run("vocab", file, "--size", 40, "--out", tmp_path / "vocab.txt", "--bad-bytes", "drop").succeeds()
    assert f"bertsmith: bytes that are not UTF-8, dropped: 10 ({file}: 10)\n" in result.err
    run("vocab", file, "--size", 40, "--out", tmp_path / "latin.txt", "--encoding", "latin-1", "--cased").succeeds()
    assert "ÿ" in (tmp_path / "latin.txt").read_text(encoding="utf-8")


def test_two_processes_do_not_write_one_vocabulary(run, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    with locked_file(tmp_path / "vocab.txt"):
        result = run("vocab", tmp_path / "a.txt", "--size", 60, "--out", tmp_path / "vocab.txt")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "no other process that writes" in result.err
    assert not (tmp_path / "vocab.txt").exists()


def test_the_rows_of_more_than_twenty_files_go_to_the_report_file(run, tmp_path) -> None:
    folder, report = tmp_path / "many", tmp_path / "report.json"
    folder.mkdir()
    for number in range(21):
        (folder / f"{number:02}.txt").write_text(f"{SENTENCES[number % 3]}\n", encoding="utf-8")
    short = run("vocab", folder, "--size", 60, "--out", tmp_path / "vocab.txt", "--report", report).succeeds()
    assert "20.txt" not in short.out
    assert f"\nthe figures of each of the 21 texts: {report}\n" in short.out
    assert len(json.loads(report.read_text(encoding="utf-8"))["texts"]) == 21
    # Without a report file nothing is left out.
    whole = run("vocab", folder, "--size", 60, "--out", tmp_path / "again.txt")
    assert all(f"{number:02}.txt" in whole.out for number in range(21))


def test_languages_are_weighted_and_reported_one_by_one(run, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "en.txt").write_text("\n".join(SENTENCES * 20), encoding="utf-8")
    small = "Он читал книгу, она читала письмо, мы читали письма и книги.\n"
    (folder / "ru.txt").write_text(small * 2, encoding="utf-8")
    pieces = {}
    for exponent in ("1", "0"):
        out = tmp_path / f"vocab-{exponent}.txt"
        options = ("--language-exponent", exponent, "--size", 72, "--report", tmp_path / f"{exponent}.json")
        result = run("vocab", folder, "--languages", *options, "--out", out).succeeds()
        assert [line.split()[0] for line in result.out.splitlines()[1:4]] == ["en", "ru", "total"]
        report = json.loads((tmp_path / f"{exponent}.json").read_text(encoding="utf-8"))
        pieces[exponent] = [row["pieces"] for row in report["texts"]]
    assert re.search(r"share with the exponent 0: en 9\d\.\d\d to 50\.00 %, ru \d\.\d\d to 50\.00 %", result.err)
    assert pieces["0"][0] >= pieces["1"][0]
    assert pieces["0"][1] < pieces["1"][1], "the small language needs fewer pieces if it weighs more"
    refused = run("vocab", folder, "--languages", "--language-exponent", "1.5", "--size", 110, "--out", tmp_path / "x")
    refused.refuses("between 0 and 1; found 1.5")
    (folder / "th.txt").write_text(" \n", encoding="utf-8")
    empty = run("vocab", folder, "--languages", "--size", 110, "--out", tmp_path / "x")
    assert (empty.code, empty.out) == (1, "")
    assert "expected text of the language 'th'" in empty.err.splitlines()[-1]


def test_a_report_of_the_library_alone_does_not_overwrite_a_file(tmp_path: Path, texts: Path) -> None:
    report = file_with(tmp_path / "report.json", '["mine"]')
    with pytest.raises(InputError, match=r"report\.json"):
        bertsmith.learn_vocabulary([texts], 90, report=report)
    assert report.read_text(encoding="utf-8") == '["mine"]'
    with pytest.raises(ConfigError, match="`resume=True` needs `out`"):
        bertsmith.learn_vocabulary([texts], 90, engine="ray", resume=True)
