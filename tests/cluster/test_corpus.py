"""A corpus that a cluster encodes has the bytes of one process, however often it is interrupted."""

import errno
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.library.vocabulary import learn_vocabulary
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.inference.cluster import corpus as cluster_corpus
from bertsmith.inference.cluster import kept as cluster_kept
from bertsmith.inference.cluster import words as cluster_words
from bertsmith.inference.cluster.corpus import build_corpus_on
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.documents.languages import SamplingSettings
from bertsmith.text.documents.readers import Document
from cluster.conftest import stream_here
from cluster.text_samples import digests, write_texts
from corpus.samples import small_tokenizer
from written_files import file_with

SETTINGS = CorpusSettings(held_out=0.2, shard_bytes=4096)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "texts")


def built(
    out: Path, texts: Path, settings: CorpusSettings = SETTINGS, sampling: SamplingSettings | None = None
) -> dict[str, str]:
    build_corpus([texts], small_tokenizer(), out, **vars(settings), **vars(sampling or SamplingSettings()))
    return digests(out)


@pytest.mark.parametrize(("removal", "column"), [("none", "url"), ("near", "url"), ("url", "url"), ("url", "page")])
def test_every_layout_of_text_gives_the_bytes_of_one_process(here, texts, tmp_path, removal, column) -> None:
    settings = CorpusSettings(held_out=0.2, shard_bytes=4096, remove_duplicates=removal, url_column=column)
    expected = built(tmp_path / "one", texts, settings=settings)
    build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=settings)
    assert digests(tmp_path / "many") == expected
    assert ("removed.jsonl" in expected) == (removal != "none")
    assert not (tmp_path / "many.partial").exists()


def test_languages_give_the_bytes_of_one_process(here, texts, tmp_path) -> None:
    (tmp_path / "by-language").mkdir()
    texts.rename(tmp_path / "by-language" / "en")
    write_texts(tmp_path / "by-language" / "de", documents=7)
    sampling = SamplingSettings(languages=True)
    expected = built(tmp_path / "one", tmp_path / "by-language", sampling=sampling)
    build_corpus_on(
        here,
        [tmp_path / "by-language"],
        small_tokenizer(),
        tmp_path / "many",
        settings=SETTINGS,
        sampling=sampling,
    )
    assert digests(tmp_path / "many") == expected


class StoppedError(Exception):
    """The driver ends here."""


def stop_after(tables: int, monkeypatch: pytest.MonkeyPatch, parts: list[Any]) -> None:
    """Lets a stream end with an error after some tables; collects the parts that streams begin with."""

    def stream(engine: str, rows: Any, stage: Any) -> Any:
        parts.extend(json.loads(part["part"]) for part in rows)
        if not rows:
            return
        yield from itertools.islice(stream_here(engine, rows, stage), tables)
        raise StoppedError

    monkeypatch.setattr(cluster_corpus, "stream", stream)


@pytest.mark.parametrize("removal", ["none", "url"])
def test_a_run_that_is_stopped_anywhere_resumes_with_the_same_bytes(
    here, texts, tmp_path, monkeypatch, removal
) -> None:
    """Stopped after each table in turn, nothing is encoded twice and nothing is lost."""
    settings = CorpusSettings(held_out=0.2, shard_bytes=4096, remove_duplicates=removal)
    expected = built(tmp_path / "one", texts, settings=settings)
    monkeypatch.setattr(cluster_kept, "KEPT_BYTES", 1)
    begun: list[tuple[int, int]] = []
    for stop in range(1, 100):
        parts: list[Any] = []
        stop_after(1, monkeypatch, parts)
        try:
            build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=settings, resume=stop > 1)
        except StoppedError:
            assert not (tmp_path / "many").exists()
            begun.append((parts[0]["first"], parts[0]["skip"]))
        else:
            assert not parts
            break
    assert begun == sorted(set(begun))
    assert len(begun) > len(list(texts.iterdir()))
    assert digests(tmp_path / "many") == expected


def test_an_unfinished_corpus_is_neither_lost_nor_taken_for_another(here, texts, tmp_path, monkeypatch) -> None:
    out = tmp_path / "many"
    monkeypatch.setattr(cluster_kept, "KEPT_BYTES", 1)
    with monkeypatch.context() as patch:
        stop_after(3, patch, [])
        with pytest.raises(StoppedError):
            build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS)
    with pytest.raises(RunError, match="resume with --resume"):
        build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS)
    with pytest.raises(RunError, match="the settings that the unfinished corpus"):
        build_corpus_on(here, [texts], small_tokenizer(), out, resume=True)
    (texts / "a-lines.txt").write_text("The boat came home.\n")
    with pytest.raises(RunError, match="the texts that the unfinished corpus"):
        build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS, resume=True)
    build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS, replace=True)
    assert digests(out) == built(tmp_path / "one", texts)


def test_a_damaged_file_ends_the_run_with_its_line(here, tmp_path) -> None:
    bad = file_with(tmp_path / "bad.jsonl", '{"text": "The boat came home."}\n{"text": \n')
    with pytest.raises(InputError, match=r"expected JSON in line 2 of '.*bad.jsonl'"):
        build_corpus_on(here, [bad], small_tokenizer(), tmp_path / "many")
    bad.write_bytes(b"\0\1\2")
    with pytest.raises(InputError, match="found binary data"):
        build_corpus_on(here, [bad], small_tokenizer(), tmp_path / "many", replace=True)
    assert not (tmp_path / "many").exists()


def test_what_workers_cannot_open_is_refused(here, tmp_path) -> None:
    with pytest.raises(ConfigError, match="found stdin"):
        build_corpus_on(here, ["-"], small_tokenizer(), tmp_path / "many")
    with pytest.raises(ConfigError, match="documents that have already been read"):
        build_corpus_on(here, [Document("a", ["The boat."])], small_tokenizer(), tmp_path / "many")


def test_a_full_disk_loses_nothing_and_nothing_looks_complete(here, texts, tmp_path, monkeypatch) -> None:
    expected = built(tmp_path / "one", texts)
    real, written = cluster_kept.atomic_file, []

    def full(path: Path) -> Any:
        written.append(path)
        if len(written) > 4:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(cluster_kept, "KEPT_BYTES", 1)
        patch.setattr(cluster_kept, "atomic_file", full)
        with pytest.raises(OSError, match="No space left on device"):
            build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    assert not (tmp_path / "many").exists()
    assert len(list((tmp_path / "many.partial").glob("part-*.arrow"))) == 4
    build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS, resume=True)
    assert digests(tmp_path / "many") == expected


def test_resuming_never_takes_an_older_corpus_for_the_new_one(here, texts, tmp_path, monkeypatch) -> None:
    out = tmp_path / "many"
    older = built(out, texts, settings=CorpusSettings())
    with pytest.raises(InputError, match="one that exists"):
        build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS)
    assert not (tmp_path / "many.partial").exists()
    with monkeypatch.context() as patch:
        stop_after(3, patch, [])
        with pytest.raises(StoppedError):
            build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS, replace=True)
    with pytest.raises(InputError, match="one that exists"):
        build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS, resume=True)
    assert digests(out) == older
    build_corpus_on(here, [texts], small_tokenizer(), out, settings=SETTINGS, resume=True, replace=True)
    assert digests(out) == built(tmp_path / "one", texts)


def test_a_corpus_that_was_complete_when_the_run_was_killed_is_resumed_without_work(
    here, texts, tmp_path, monkeypatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cluster_kept.Kept, "remove", lambda kept: None)
        made = build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    stop_after(0, monkeypatch, [])
    again = build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS, resume=True)
    assert again == made
    assert not (tmp_path / "many.partial").exists()


def test_rows_are_never_kept_twice(here, texts, tmp_path, monkeypatch) -> None:
    expected = built(tmp_path / "one", texts)
    real = cluster_kept.Kept.add

    def interrupted(kept: Any, tables: Any) -> None:
        real(kept, tables)
        if tables:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cluster_kept, "KEPT_BYTES", 1)
        patch.setattr(cluster_kept.Kept, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    parts = sorted((tmp_path / "many.partial").glob("part-*.arrow"))
    assert len(parts) == 1
    twice = parts[0].with_name("part-000001.arrow")
    twice.write_bytes(parts[0].read_bytes())
    with pytest.raises(RunError, match=r"next in .*many.partial"):
        build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS, resume=True)
    twice.unlink()
    build_corpus_on(here, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS, resume=True)
    assert digests(tmp_path / "many") == expected


def test_text_at_an_address_is_encoded(here, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\nIt rained.\n" * 9)
    manifest = build_corpus_on(here, [f"file://{tmp_path}/a.txt"], small_tokenizer(), tmp_path / "many")
    assert manifest["read"] == build_corpus([tmp_path / "a.txt"], small_tokenizer(), tmp_path / "one")["read"]


def test_a_file_that_differs_on_the_machine_of_a_worker_is_named(here, texts, tmp_path, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\n" * 3)

    def elsewhere(engine: str, parts: list[dict[str, Any]], stage: Any) -> Any:
        (tmp_path / "a.txt").write_text("The boat came home.\n" * 4)  # as it is on the other machine
        yield from stream_here(engine, parts, stage)

    message = (
        r"^expected the same file '.*a.txt' on all machines of the cluster, of 60 bytes; found one of 80 bytes on "
    )
    monkeypatch.setattr(cluster_corpus, "stream", elsewhere)
    with pytest.raises(InputError, match=message):
        build_corpus_on(here, [tmp_path / "a.txt"], small_tokenizer(), tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    (tmp_path / "a.txt").write_text("The boat came home.\n" * 3)
    monkeypatch.setattr(cluster_words, "stream", elsewhere)
    with pytest.raises(InputError, match=message):
        learn_vocabulary([tmp_path / "a.txt"], 40, engine=here)
