"""Token shards are read back as they were written, and damaged ones are refused by name."""

import itertools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import CorpusError
from bertsmith.base.storage.files import digest_file
from bertsmith.text.corpus import shards
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus, ShardWriter, read_shard
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from corpus.samples import STORY, small_tokenizer, small_vocabulary
from written_files import file_with

# Documents are lists of sentences, and sentences are lists of ids.
DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=6), min_size=1, max_size=4),
    min_size=1,
    max_size=12,
)


def write_documents(folder: Path, documents: Sequence[Sequence[Sequence[int]]], **options: int) -> ShardWriter:
    writer = ShardWriter(folder, 2**16, **options)
    for number, sentences in enumerate(documents):
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.uint32)
        writer.add(f"file {number}", np.concatenate(sentences).astype(np.uint16), lengths)
    writer.close()
    return writer


def corpus_of(batches: list[shards.DocumentBatch], folder: Path) -> Corpus:
    return Corpus(folder, {}, small_vocabulary(), batches)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build_corpus([file_with(tmp_path / "a.txt", STORY)], small_tokenizer(), tmp_path / "corpus", held_out=0)
    return tmp_path / "corpus"


@given(DOCUMENTS, st.integers(1, 40), st.integers(1, 20))
def test_documents_and_sentences_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], shard_bytes: int, batch_tokens: int
) -> None:
    """For any distribution of the documents over shards and record batches."""
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "BATCH_TOKENS", batch_tokens)
        writer = write_documents(folder, documents, shard_bytes=shard_bytes)
    corpus = corpus_of([batch for entry in writer.shards for batch in read_shard(folder / entry["file"])], folder)
    assert corpus.num_documents == len(documents) == writer.totals()["documents"]
    assert corpus.num_sentences == sum(map(len, documents)) == writer.totals()["sentences"]
    assert corpus.document_lengths.tolist() == [sum(map(len, sentences)) for sentences in documents]
    assert corpus.num_tokens == corpus.document_lengths.sum() == writer.totals()["tokens"]
    for number, sentences in enumerate(documents):
        tokens, offsets = corpus.document_tokens(number), corpus.document_sentences(number)
        assert [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets)] == sentences
        assert corpus.document_source(number) == f"file {number}"
    for entry in writer.shards:
        assert entry["documents"] == 1 or 2 * entry["tokens"] <= shard_bytes
        assert entry["digest"] == digest_file(folder / entry["file"])


def test_tokens_are_views_into_the_file_with_the_smallest_type(folder: Path) -> None:
    corpus = Corpus.open(folder)
    tokens = corpus.document_tokens(0)
    assert tokens.dtype == np.uint16
    assert not tokens.flags.owndata
    assert np.shares_memory(tokens, corpus.batches[0].tokens)
    assert shards.token_type(2**16 + 1) is np.uint32


def test_large_vocabularies_are_stored_in_four_bytes(tmp_path: Path) -> None:
    pieces = [*small_vocabulary().pieces, *(f"x{number}" for number in range(2**16))]
    writer = ShardWriter(tmp_path, len(pieces))
    writer.add("a", np.array([2**16 + 3], dtype=np.uint32), np.array([1], dtype=np.uint32))
    writer.close()
    (batch,) = read_shard(tmp_path / "shard-00000.arrow")
    assert (batch.tokens.dtype, batch.tokens.tolist()) == (np.uint32, [2**16 + 3])


def test_a_shard_is_an_arrow_file_that_other_tools_can_open(folder: Path) -> None:
    with pa.memory_map(str(folder / "shard-00000.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
    pieces = small_vocabulary().pieces
    assert [pieces[id] for id in table["tokens"][0].as_py()[:4]] == ["the", "boat", "came", "home"]
    assert table["sentence_lengths"].to_pylist() == [[5, 5], [4, 3]]


def test_an_index_outside_the_corpus_is_an_index_error(folder: Path) -> None:
    corpus = Corpus.open(folder)
    for index in (-1, 2):
        with pytest.raises(IndexError, match="of 2"):
            corpus.document_tokens(index)


def test_the_corpus_includes_its_tokenizer(folder: Path) -> None:
    corpus = Corpus.open(folder, verify=True)
    assert corpus.vocabulary == small_vocabulary()
    assert corpus.tokenizer.decode(corpus.document_tokens(1)) == "a new story . it rained ."


def refused(folder: Path, **options: object) -> str:
    with pytest.raises(CorpusError) as error:
        Corpus.open(folder, **options)
    assert all([error.value.expected, error.value.found, error.value.fix])
    return str(error.value)


def test_a_truncated_shard_is_refused_by_name(folder: Path) -> None:
    shard = folder / "shard-00000.arrow"
    file_with(shard, shard.read_bytes()[:-10])
    assert f"in '{shard}'" in refused(folder)
    assert "cut short" in refused(folder)


def test_an_altered_shard_is_refused_by_name_when_verified(folder: Path) -> None:
    shard = folder / "shard-00000.arrow"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    file_with(shard, bytes(data))
    message = refused(folder, verify=True)
    assert f"in '{shard}'" in message
    assert "it was altered" in message


def test_a_shard_of_another_corpus_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    other = file_with(tmp_path / "other.txt", STORY.replace("rained", "came home") * 3)
    build_corpus([other], small_tokenizer(), tmp_path / "other", workers=1)
    shutil.copy(tmp_path / "other" / "shard-00000.arrow", folder / "shard-00000.arrow")
    with pytest.raises(CorpusError, match=r"bytes in '.*shard-00000.arrow'; found \d+: it was"):
        Corpus.open(folder)


def test_a_missing_shard_is_refused_by_name(folder: Path) -> None:
    (folder / "shard-00000.arrow").unlink()
    assert f"in '{folder / 'shard-00000.arrow'}'; found no such file; restore that shard" in refused(folder)


def test_a_shard_with_other_columns_is_refused_by_name(folder: Path) -> None:
    shard = folder / "shard-00000.arrow"
    table = pa.table({"x": [1]})
    with pa.ipc.new_file(str(shard), table.schema) as writer:
        writer.write_table(table)
    manifest = json.loads((folder / "corpus.json").read_text())
    manifest["shards"][0] |= {"bytes": shard.stat().st_size, "digest": digest_file(shard)}
    (folder / "corpus.json").write_text(json.dumps(manifest))
    assert f"the columns of a shard in '{shard}'" in refused(folder)


def test_a_shard_truncated_anywhere_is_refused(folder: Path) -> None:
    """Even if the manifest was changed to match."""
    shard = folder / "shard-00000.arrow"
    whole = shard.read_bytes()
    manifest = json.loads((folder / "corpus.json").read_text())
    for cut in range(0, len(whole), 41):
        file_with(shard, whole[:cut])
        manifest["shards"][0]["bytes"] = cut
        file_with(folder / "corpus.json", json.dumps(manifest))
        assert f"'{shard}'" in refused(folder)


def test_folders_that_are_not_a_corpus_are_refused(folder: Path, tmp_path: Path) -> None:
    assert "found no such folder; build one" in refused(tmp_path / "none")
    assert "found a file; build one" in refused(file_with(tmp_path / "text.txt", "x"))
    assert "found no corpus.json in it" in refused(file_with(tmp_path / "other" / "x.txt", "x").parent)
    for manifest in ("{", "[]", "{}", '{"format": "bertsmith-corpus"}'):
        file_with(folder / "corpus.json", manifest)
        assert "corpus.json" in refused(folder)


def test_a_corpus_of_another_version_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / "corpus.json").read_text())
    file_with(folder / "corpus.json", json.dumps(manifest | {"version": 99}))
    assert "expected format version 1 in" in refused(folder)
    assert "found version 99" in refused(folder)


def test_another_vocabulary_is_refused(folder: Path) -> None:
    other = Vocabulary([*small_vocabulary().pieces, "more"])
    assert "found another one" in refused(folder, vocabulary=other)
    assert Corpus.open(folder, vocabulary=small_vocabulary()).num_documents == 2
    other.save(folder / "vocab.txt")
    assert "found another vocabulary" in refused(folder)
    (folder / "vocab.txt").unlink()
    assert "vocab.txt'; found no such file" in refused(folder)


def test_a_full_disk_leaves_the_existing_corpus(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards.ShardWriter, "add", full)
    with pytest.raises(OSError, match="No space"):
        build_corpus([tmp_path / "a.txt"], small_tokenizer(), folder, replace=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert not list(folder.parent.glob(".*"))


def test_a_corpus_can_be_moved(folder: Path, tmp_path: Path) -> None:
    moved = shutil.move(folder, tmp_path / "elsewhere")
    assert Corpus.open(moved, verify=True).num_documents == 2
