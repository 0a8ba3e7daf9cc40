"""A corpus at an address gives the rows of the same corpus on a disk, with a bounded cache."""

import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest

from bertsmith.base.core.errors import BertsmithError, CorpusError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.text.corpus import shards
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.corpus.streamed import StreamedCorpus
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.stream import PretrainingStream
from corpus.samples import small_tokenizer
from written_files import file_with

ADDRESS = "memory://streamed/corpus"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of several shards with several record batches each, on a disk and at the address."""
    words, draw = "the cat sat on a mat and it ran home".split(), generator(0, "words")
    texts = ["\n".join(" ".join(draw.choice(words, 6)) + "." for _ in range(draw.integers(1, 9))) for _ in range(60)]
    monkeypatch.setattr(shards, "BATCH_TOKENS", 50)
    build_corpus(
        [file_with(tmp_path / f"{number}.txt", text) for number, text in enumerate(texts)],
        small_tokenizer(), tmp_path / "corpus", held_out=0.1, shard_bytes=2000,
    )  # fmt: skip
    memory = fsspec.filesystem("memory")
    if memory.exists("/streamed"):
        memory.rm("/streamed", recursive=True)
    for path in (tmp_path / "corpus").rglob("*.*"):
        memory.pipe_file(f"/streamed/corpus/{path.relative_to(tmp_path / 'corpus')}", path.read_bytes())
    return tmp_path / "corpus"


def stream_of(corpus: Corpus) -> PretrainingStream:
    settings = PretrainingDataSettings(max_length=24, block_tokens=300)
    return PretrainingStream(corpus, settings, corpus.vocabulary, rows_per_step=8)


@pytest.mark.parametrize("limit", [1, 200, 10**6])
def test_the_rows_are_those_of_the_corpus_on_a_disk_whatever_the_cache_holds(
    folder: Path, tmp_path: Path, limit: int
) -> None:
    local, streamed = Corpus.open(folder), StreamedCorpus.open_at(ADDRESS, tmp_path / "cache", limit=limit)
    assert len(local.manifest["shards"]) > 2
    assert streamed.num_documents == local.num_documents
    assert streamed.document_lengths.tolist() == local.document_lengths.tolist()
    assert streamed.sentence_counts.tolist() == local.sentence_counts.tolist()
    assert streamed.token_counts().tolist() == local.token_counts().tolist()
    for number in range(local.num_documents):
        assert streamed.document_tokens(number).tolist() == local.document_tokens(number).tolist()
        assert streamed.document_sentences(number).tolist() == local.document_sentences(number).tolist()
    for step in (0, 1, 7, 3):
        first, other = stream_of(local).step_rows(step), stream_of(streamed).step_rows(step)
        assert np.array_equal(first.token_ids, other.token_ids)
        assert np.array_equal(first.keys, other.keys)
    held_out, expected = streamed.held_out(), local.held_out()
    assert held_out.document_tokens(0).tolist() == expected.document_tokens(0).tolist()


def test_no_shard_stays_on_the_disk_and_memory_keeps_to_its_limit(folder: Path, tmp_path: Path) -> None:
    streamed = StreamedCorpus.open_at(ADDRESS, tmp_path / "cache", limit=200)
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".arrow", ".partial")]
    assert all("held_out" in path.parts for path in kept)
    stream = stream_of(streamed)
    for step in range(12):
        stream.step_rows(step)
        assert sum(tokens.nbytes for tokens in streamed._kept.values()) <= 200
    assert streamed.fetched > 200


def test_the_index_is_made_once_and_documents_of_a_step_are_fetched_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StreamedCorpus.open_at(ADDRESS, tmp_path / "cache", limit=10**6)
    for shard in fsspec.filesystem("memory").glob("/streamed/corpus/shard-*"):
        fsspec.filesystem("memory").rm(shard)  # a second index could not be made
    streamed = StreamedCorpus.open_at(ADDRESS, tmp_path / "cache", limit=10**6)
    calls = []

    def read_ranges(ranges: list[tuple[str, int, int]]) -> list[bytes]:
        calls.append(len(ranges))
        return [(folder / name.rsplit("/", 1)[1]).read_bytes()[begin:end] for name, begin, end in ranges]

    monkeypatch.setattr("bertsmith.text.corpus.streamed.read_ranges", read_ranges)
    result, expected = (stream_of(corpus).step_rows(0).token_ids for corpus in (streamed, Corpus.open(folder)))
    assert np.array_equal(result, expected)
    assert len(calls) == 1
    assert calls[0] > 2


@pytest.mark.parametrize("damage", ["altered", "missing", "no corpus"])
def test_what_is_wrong_at_the_address_is_said_in_one_line_and_nothing_looks_complete(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    memory = fsspec.filesystem("memory")
    shard = sorted(memory.glob("/streamed/corpus/shard-*"))[1]
    if damage == "altered":
        memory.pipe_file(shard, memory.cat_file(shard)[:-1] + b"?")
    else:
        memory.rm(shard if damage == "missing" else "/streamed/corpus/corpus.json")
    with pytest.raises(BertsmithError) as caught:
        StreamedCorpus.open_at(ADDRESS, tmp_path / "cache", limit=100)
    assert isinstance(caught.value, CorpusError if damage == "altered" else InputError)
    assert not list((tmp_path / "cache").rglob("index.json"))


def test_a_shard_that_was_cut_after_the_index_was_made_is_found_when_it_is_read(folder: Path, tmp_path: Path) -> None:
    streamed = StreamedCorpus.open_at(ADDRESS, tmp_path / "cache", limit=100)
    memory = fsspec.filesystem("memory")
    for shard in memory.glob("/streamed/corpus/shard-*"):
        memory.pipe_file(shard, memory.cat_file(shard)[:20])
    with pytest.raises(InputError, match="restore the file"):
        streamed.document_tokens(streamed.num_documents - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_shards_on_a_disk_are_mapped_so_that_processes_share_one_copy(folder: Path) -> None:
    corpus = Corpus.open(folder)
    tokens = corpus.document_tokens(0)
    assert not tokens.flags.owndata
    assert not tokens.flags.writeable
    first, last = tokens.__array_interface__["data"][0], 0
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= first < end:
                last += str(folder / "shard-00000.arrow") in line
    assert last == 1, "the address of the tokens is in a mapping of the file"
