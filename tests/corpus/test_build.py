"""Text to a corpus folder, with any number of processes."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bertsmith.base.core.errors import ConfigError, CorpusError, InputError
from bertsmith.text.corpus import encode, shards
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents import readers, sources
from bertsmith.text.documents.readers import Document, read_documents
from corpus.samples import STORY, small_tokenizer
from tasks.architecture_samples import tokenizer_of
from written_files import file_with

TOKENIZER = small_tokenizer()


def story(number: int, sentences: int = 3) -> str:
    return "".join(f"The boat came home in {number} and {position}.\n" for position in range(sentences))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def texts(corpus: Corpus | None) -> list[str]:
    return [corpus.tokenizer.decode(corpus.document_tokens(number)) for number in range(corpus.num_documents)]


def test_text_becomes_a_corpus_with_a_manifest(tmp_path: Path) -> None:
    """Building starts from a folder of text; words are counted."""
    file_with(tmp_path / "in" / "a.txt", STORY.encode() + b"\n\xff\n")
    file_with(tmp_path / "in" / "notes.doc", "x")
    manifest = build_corpus([tmp_path / "in"], TOKENIZER, tmp_path / "out", held_out=0, bad_bytes="drop")
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert json.loads((tmp_path / "out" / "corpus.json").read_text()) == manifest == corpus.manifest
    assert (manifest["documents"], manifest["sentences"], manifest["tokens"]) == (2, 4, corpus.num_tokens)
    read = manifest["read"]
    assert (read["words"], read["files"], read["skipped_files"], read["encoding_errors"]) == (13, 1, 1, 1)
    inputs = [json.loads(line) for line in (tmp_path / "out" / "inputs.jsonl").read_text().splitlines()]
    assert [(Path(entry["name"]).name, entry.get("form"), entry.get("reason")) for entry in inputs] == [
        ("a.txt", "lines", None),
        ("notes.doc", None, "unknown extension"),
    ]
    assert inputs[0]["encoding_errors"] == 1
    assert manifest["vocabulary"]["digest"] == TOKENIZER.vocabulary.digest


def test_lines_without_tokens_are_dropped_and_counted(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "It rained.\n\u200b\u200d\n\n\u200b\n\nA new story.\n")
    manifest = build_corpus([path], TOKENIZER, tmp_path / "out", held_out=0)
    assert texts(Corpus.open(tmp_path / "out")) == ["it rained .", "a new story ."]
    assert manifest["read"]["sentences_without_tokens"] == 2
    assert manifest["read"]["documents_without_tokens"] == 1


def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 300)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 300)
    for number in range(6):
        file_with(
            tmp_path / "in" / f"{number}.txt", "\n".join(story(10 * number + document, 5) for document in range(4))
        )
    file_with(tmp_path / "in" / "wrapped.txt", "The boat came\nhome. Nobody was\nin it.\n\n" * 30)
    for workers in (1, 2, 3):
        build_corpus([tmp_path / "in"], TOKENIZER, tmp_path / str(workers), workers=workers)
    assert content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "3")
    assert Corpus.open(tmp_path / "1").num_documents > 15


def test_documents_are_those_of_the_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a document spans many blocks."""
    for module in (sources, readers):
        monkeypatch.setattr(module, "BLOCK_BYTES", 64)
    path = file_with(tmp_path / "a.txt", "\n".join(story(number, 5) for number in range(9)))
    settings = CorpusSettings(held_out=0)
    build_corpus([path], TOKENIZER, tmp_path / "files", **vars(settings))
    documents = list(read_documents([path]))
    build_corpus(documents, TOKENIZER, tmp_path / "list", **vars(settings))
    build_corpus(iter(documents), TOKENIZER, tmp_path / "iterator", **vars(settings))
    result = texts(Corpus.open(tmp_path / "files"))
    assert result == [
        TOKENIZER.decode(np.concatenate([TOKENIZER.encode(sentence) for sentence in d.sentences])) for d in documents
    ]
    assert result == texts(Corpus.open(tmp_path / "list")) == texts(Corpus.open(tmp_path / "iterator"))


def test_text_from_stdin_becomes_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STORY.encode())))
    build_corpus(["-"], TOKENIZER, tmp_path / "out", held_out=0)
    assert texts(Corpus.open(tmp_path / "out"))[1] == "a new story . it rained ."


def test_the_content_determines_what_is_held_out(tmp_path: Path) -> None:
    """Not the position, the vocabulary, or the other documents; copies go to the same side."""
    stories = [story(number) for number in range(60)]
    file_with(tmp_path / "a.txt", "\n".join(stories))
    file_with(tmp_path / "b.txt", "\n".join(reversed(stories + stories[:30])))
    settings = CorpusSettings(held_out=0.3)
    for name in "ab":
        build_corpus([tmp_path / f"{name}.txt"], TOKENIZER, tmp_path / name, **vars(settings))
    first, second = Corpus.open(tmp_path / "a"), Corpus.open(tmp_path / "b")
    held_out = set(texts(first.held_out()))
    assert held_out == set(texts(second.held_out()))
    assert held_out.isdisjoint(texts(first))
    assert held_out | set(texts(first)) == set(texts(second)) | set(texts(second.held_out()))
    assert 5 < len(held_out) < 35
    assert first.manifest["held_out"]["how"] == "documents by the hash of their content"


@pytest.mark.parametrize("shard_bytes", [1, 60, 2**20])
def test_at_least_one_document_is_held_out(tmp_path: Path, shard_bytes: int) -> None:
    path = file_with(tmp_path / "a.txt", "\n".join(story(number) for number in range(5)))
    settings = CorpusSettings(held_out=1e-6, shard_bytes=shard_bytes)
    manifest = build_corpus([path], TOKENIZER, tmp_path / "out", **vars(settings))
    corpus = Corpus.open(tmp_path / "out", verify=True)
    held_out = corpus.held_out()
    assert (corpus.num_documents, len(texts(held_out))) == (4, 1)
    whole = build_corpus([path], TOKENIZER, tmp_path / "all", held_out=0)
    assert sorted(texts(corpus) + texts(held_out)) == sorted(texts(Corpus.open(tmp_path / "all")))
    assert whole["tokens"] == manifest["tokens"] + manifest["held_out"]["tokens"]
    assert manifest["held_out"]["how"].startswith("one document")


def test_not_every_document_is_held_out(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "\n".join(story(number) for number in range(3)))
    build_corpus([path], TOKENIZER, tmp_path / "out", held_out=0.999999)
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert (len(texts(corpus)), len(texts(corpus.held_out()))) == (2, 1)


def test_the_end_of_the_only_document_is_held_out(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", story(1, 20))
    manifest = build_corpus([path], TOKENIZER, tmp_path / "out", held_out=0.1)
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert (corpus.num_sentences, corpus.held_out().num_sentences) == (18, 2)
    assert " ".join(texts(corpus) + texts(corpus.held_out())) == TOKENIZER.decode(TOKENIZER.encode(story(1, 20)))
    assert manifest["held_out"]["how"] == "the last 2 sentences of the only document"


def test_a_single_sentence_is_a_corpus_without_held_out_text(tmp_path: Path) -> None:
    manifest = build_corpus([file_with(tmp_path / "a.txt", "It rained.")], TOKENIZER, tmp_path / "out")
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert texts(corpus) == ["it rained ."]
    assert corpus.held_out() is None
    assert manifest["held_out"]["how"] == "nothing: the corpus is a single sentence"


def test_many_shards_are_one_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BATCH_TOKENS", 50)
    path = file_with(tmp_path / "a.txt", "\n".join(story(number) for number in range(20)))
    small = build_corpus([path], TOKENIZER, tmp_path / "s", held_out=0, shard_bytes=200)
    build_corpus([path], TOKENIZER, tmp_path / "l", held_out=0)
    assert len(small["shards"]) > 5
    assert texts(Corpus.open(tmp_path / "s", verify=True)) == texts(Corpus.open(tmp_path / "l"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_broken_file_stops_the_work_and_leaves_nothing(tmp_path: Path, workers: int) -> None:
    path = file_with(tmp_path / "in" / "a.jsonl", '{"text": "It rained."}\n{"text"')
    with pytest.raises(InputError, match=r"expected JSON in line 2 of '.*a\.jsonl'; found .*; correct the line"):
        build_corpus([path], TOKENIZER, tmp_path / "out", workers=workers)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_text_without_a_sentence_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "\n \n\n")
    with pytest.raises(InputError, match="expected text with at least one sentence; found none in 1 file "):
        build_corpus([path], TOKENIZER, tmp_path / "out")
    with pytest.raises(InputError, match="expected text with at least one sentence"):
        build_corpus([Document("a", [])], TOKENIZER, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", STORY)
    build_corpus([path], TOKENIZER, tmp_path / "out")
    before = content(tmp_path / "out")
    with pytest.raises(InputError, match=r"expected no folder at '.*out'; found one that exists"):
        build_corpus([path], TOKENIZER, tmp_path / "out")
    assert content(tmp_path / "out") == before
    build_corpus([path], TOKENIZER, tmp_path / "out", replace=True, held_out=0)
    assert not (tmp_path / "out" / "held_out").exists()


def test_only_a_corpus_is_replaced_and_never_an_input(tmp_path: Path) -> None:
    path = file_with(tmp_path / "in" / "a.txt", STORY)
    for out, words in ((tmp_path / "in", "apart from the input"), (tmp_path, "apart from the input")):
        with pytest.raises(InputError, match=words):
            build_corpus([path], TOKENIZER, out, replace=True)
    with pytest.raises(InputError, match=r"expected a corpus at .*, since .* found a folder without corpus\.json"):
        build_corpus([Document("a", ["It rained."])], TOKENIZER, tmp_path / "in", replace=True)
    assert content(tmp_path) == {"in/a.txt": STORY.encode()}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"held_out": 1.0}, "held_out must be at least 0 and below 1, not 1.0"),
        ({"held_out": -0.1}, "held_out must be at least 0 and below 1, not -0.1"),
        ({"shard_bytes": 0}, "shard_bytes must be at least 1, not 0"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusSettings(**wrong)


def test_a_tokenizer_whose_pieces_include_the_space_before_them_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", STORY)
    with pytest.raises(ConfigError, match=r"the space before a sentence .*; found .*those of RoBERTa"):
        build_corpus([path], tokenizer_of("roberta"), tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_a_path_is_no_tokenizer(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", STORY)
    with pytest.raises(ConfigError, match="expected a tokenizer; found str; take that of"):
        build_corpus([path], "vocab.txt", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_a_killed_process_is_an_error_with_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_with(tmp_path / "a.txt", STORY)
    monkeypatch.setattr(encode, "_encode_here", sys.exit)
    monkeypatch.setattr(encode, "_start_worker", _die)
    with pytest.raises(CorpusError, match=r"found one that was killed.*; use fewer"):
        build_corpus([path], TOKENIZER, tmp_path / "out", workers=2)


def _die(*_: object) -> None:
    sys.exit(1)


def test_small_texts_need_no_second_process() -> None:
    assert encode.default_workers(10_000) == 1
    assert 1 <= encode.default_workers(2**40) <= 2**10


def test_a_line_of_ten_megabytes_becomes_a_sentence(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", "boat " * (2 * 2**20))
    manifest = build_corpus([path], TOKENIZER, tmp_path / "out", form="lines")
    assert (manifest["sentences"], manifest["tokens"], manifest["read"]["cut_lines"]) == (1, 2 * 2**20, 0)
