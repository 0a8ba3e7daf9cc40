"""corpus and check as a user types them."""

import json
from pathlib import Path

import pytest

from bertsmith.text.corpus.shards import Corpus
from written_files import file_with


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with two files of short documents."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, word in (("one", "store"), ("two", "man")):
        documents = [f"the {word} went .\nhe bought a b c {number} .\n" for number in range(30)]
        (folder / f"{name}.txt").write_text("\n".join(documents), encoding="utf-8")
    return folder


def test_text_becomes_a_corpus_with_a_report_of_the_checks(run, tmp_path: Path, texts: Path, vocabulary: Path) -> None:
    folder = tmp_path / "corpus"
    arguments = ("corpus", texts, "--vocab", vocabulary, "--out", folder, "--workers", 1, "--held-out", "0.2")
    result = run(*arguments).succeeds()
    assert "unigram entropy" in result.out
    corpus = Corpus.open(folder)
    held_out = corpus.held_out()
    assert corpus.num_documents + held_out.num_documents == 60
    again = run("check", folder)
    assert again == (0, result.out, "")
    report = json.loads(run("check", folder, "--json").out)
    assert (report["documents"], report["held_out_documents"]) == (corpus.num_documents, held_out.num_documents)
    refused = run(*arguments)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert refused.err.endswith("found one that exists; choose another folder, or add --replace\n")
    run(*arguments, "--replace").succeeds()


def test_duplicates_and_boilerplate_are_removed_on_request(run, tmp_path: Path, vocabulary: Path) -> None:
    text = tmp_path / "text.txt"
    line = "the man went to store . he bought a mask ."
    documents = [f"{line}\nthe a b c {number} .\n" for number in range(12)]
    text.write_text("\n".join([*documents, documents[0]]), encoding="utf-8")
    command = ("corpus", text, "--vocab", vocabulary, "--workers", 1, "--held-out", 0, "--form", "lines")
    plain = run(*command, "--out", tmp_path / "plain")
    assert "remove the copies with --remove-duplicates exact" in plain.out
    clean = run(*command, "--out", tmp_path / "clean", "--remove-duplicates", "exact", "--remove-boilerplate")
    assert clean.code == 0, clean.err
    assert "removed as copies of earlier documents: " in clean.out
    assert f"    in 13 documents: {line}" in clean.out
    assert Corpus.open(tmp_path / "clean").num_sentences < 13
    run(*command, "--out", tmp_path / "wrong", "--remove-duplicates", "some").refuses()
    empty = run(*command, "--out", tmp_path / "empty", "--remove-boilerplate", "--boilerplate-documents", 2, "--form",
                "paragraphs")  # fmt: skip
    assert empty.code == 0, "one document repeats nothing"


def test_overlap_with_an_evaluation_file_is_named(run, tmp_path: Path, texts: Path, vocabulary: Path) -> None:
    run("corpus", texts, "--vocab", vocabulary, "--out", tmp_path / "corpus", "--workers", 1)
    result = run("check", tmp_path / "corpus", "--evaluation", texts / "one.txt").succeeds()
    assert f"of '{texts / 'one.txt'}', the corpus contains " in result.out


def test_a_vocabulary_that_does_not_fit_the_model_is_reported(
    run, tmp_path: Path, texts: Path, vocabulary: Path, model
) -> None:
    run("corpus", texts, "--vocab", vocabulary, "--out", tmp_path / "corpus", "--workers", 1)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "other.json").write_text(json.dumps({**config, "vocab_size": 7}), encoding="utf-8")
    fits = json.loads(run("check", tmp_path / "corpus", "--config", model / "config.json", "--json").out)
    other = json.loads(run("check", tmp_path / "corpus", "--config", tmp_path / "other.json", "--json").out)
    assert len(other["advice"]) == len(fits["advice"]) + 1


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02binary\x00"])
def test_a_file_without_text_is_one_line(run, tmp_path: Path, vocabulary: Path, content: bytes) -> None:
    file = file_with(tmp_path / "bad.txt", content)
    run("corpus", file, "--vocab", vocabulary, "--out", tmp_path / "corpus").refuses("bad.txt")
    assert not (tmp_path / "corpus").exists()


def test_a_folder_of_the_user_is_never_replaced(run, tmp_path: Path, texts: Path, vocabulary: Path) -> None:
    """Neither the texts themselves, nor a folder above them, nor any other folder that is not a corpus."""
    before = {path: path.read_bytes() for path in texts.iterdir()}
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("keep", encoding="utf-8")
    for out, words in ((texts, "apart from the input"), (tmp_path, "apart from the input"), (other, "corpus.json")):
        run("corpus", texts, "--vocab", vocabulary, "--out", out, "--workers", 1, "--replace").refuses(words)
    assert {path: path.read_bytes() for path in texts.iterdir()} == before
    assert (other / "mine.txt").read_text(encoding="utf-8") == "keep"


@pytest.mark.parametrize("workers", [0, -3])
def test_there_is_at_least_one_worker(run, tmp_path: Path, texts: Path, vocabulary: Path, workers: int) -> None:
    result = run("corpus", texts, "--vocab", vocabulary, "--out", tmp_path / "corpus", "--workers", workers)
    result.refuses(f"expected at least one worker; found {workers}")
    assert not (tmp_path / "corpus").exists()


def test_a_folder_that_is_no_corpus_is_one_line(run, texts: Path) -> None:
    run("check", texts).refuses()


def test_languages_are_sampled_and_reported(run, tmp_path: Path, vocabulary: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    for name, count in (("en", 40), ("xx", 4)):
        documents = [f"the man went to {name} .\nhe bought a b c {number} .\n" for number in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(documents), encoding="utf-8")
    command = ("corpus", folder, "--vocab", vocabulary, "--workers", 1, "--form", "lines", "--languages")
    result = run(*command, "--out", tmp_path / "out", "--language-exponent", "0.5", "--language-seed", 3).succeeds()
    assert "languages, sampled with the exponent 0.5" in result.out
    assert "the vocabulary does not cover the text of 'xx'" in result.out
    record = json.loads((tmp_path / "out" / "corpus.json").read_text(encoding="utf-8"))["languages"]
    assert (record["exponent"], record["seed"], list(record["by_name"])) == (0.5, 3, ["en", "xx"])
    assert json.loads(run("check", tmp_path / "out", "--json").out)["languages"] == record
    pretrain = ("pretrain", tmp_path / "out", "--size", "tiny", "--steps", 1, "--rows-per-step", 2, "--device", "cpu")
    paired = run(*pretrain, "--objective", "mlm+nsp", "--precision", "fp32", "--out", tmp_path / "run").succeeds()
    assert "mostly come from another language" in paired.err
    run(*command, "--out", tmp_path / "other", "--language-exponent", "-1").refuses()
    refused = run(*command[:1], folder / "en.txt", *command[2:], "--out", tmp_path / "other")
    refused.refuses("with a folder or file for each language")


def test_rules_for_scripts_without_spaces_go_from_the_corpus_into_the_model(run, tmp_path: Path) -> None:
    text = file_with(tmp_path / "th.txt", "ประเทศไทยสวยงามมากที่สุดในโลก\nเมืองไทยเป็นเมืองที่น่าอยู่\n" * 3)
    vocabulary, folder, out = tmp_path / "vocab.txt", tmp_path / "corpus", tmp_path / "run"
    rules = ("--cased", "--rules", "unspaced")
    run("vocab", text, *rules, "--size", 90, "--out", vocabulary).succeeds()
    run("corpus", text, *rules, "--vocab", vocabulary, "--out", folder, "--workers", 1).succeeds()
    pretrain = ("pretrain", "--steps", 1, "--rows-per-step", 2, "--device", "cpu", "--precision", "fp32")
    run(*pretrain, folder, "--size", "tiny", "--out", out).succeeds()
    line = "เมืองไทยสวยงาม".encode()
    ours = run("tokenize", "--vocab", vocabulary, *rules, stdin=line).out
    assert run("tokenize", "--model", out / "model", stdin=line).out == ours
    assert run("tokenize", "--vocab", vocabulary, "--cased", stdin=line).out != ours
    # Other rules are other tokens: a corpus without them does not continue this model.
    run("corpus", text, "--cased", "--vocab", vocabulary, "--out", tmp_path / "other", "--workers", 1).succeeds()
    refused = run(*pretrain, tmp_path / "other", "--init", out / "model", "--out", tmp_path / "run-2")
    refused.refuses("split_unspaced True; found split_unspaced False")
    google = run("convert", out / "model", tmp_path / "google", "--to", "google")
    google.refuses("found rules that split scripts without spaces")


def test_weights_of_sources_are_in_the_report(run, tmp_path):
    texts, vocabulary = tmp_path / "texts", tmp_path / "vocab.txt"
    texts.mkdir()
    for name in ("a", "b"):
        text = "\n\n".join(f"It rained {name} {n}.\nNobody was in it." for n in range(50))
        (texts / f"{name}.txt").write_text(text + "\n")
    run("vocab", texts, "--size", 60, "--out", vocabulary).succeeds()
    options = [texts, "--vocab", vocabulary, "--held-out", 0.2, "--out", tmp_path / "corpus"]
    run("corpus", *options, "--weight", f"{texts / 'a.txt'}=2").succeeds(f"source '{texts / 'a.txt'}', weight 2: ")
    for wrong in ("a.txt", "a.txt=x", "=2"):
        run("corpus", *options, "--replace", "--weight", wrong).refuses("--weight with TEXT=W")
