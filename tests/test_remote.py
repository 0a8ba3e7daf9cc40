"""Addresses: what is read from and written to an S3 server on this machine, and each fault in one line."""

import gzip
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError
from bertsmith.base.storage import remote, uploads
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.remote import find_files, open_address
from bertsmith.base.storage.uploads import is_staged, staged
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.manifest import MANIFEST
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.sources import Skipped, Source, find_sources
from corpus.samples import STORY, small_tokenizer
from storage_server import _server, storage  # noqa: F401

# botocore and s3fs leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def fill(system: Any) -> None:
    system.pipe_file("texts/a/one.txt", STORY.encode())
    system.pipe_file("texts/a/two.txt.gz", gzip.compress(b"It rained.\n", mtime=0))
    system.pipe_file("texts/a/notes.bin", b"\0")
    with system.open("texts/a/three.parquet", "wb") as file:
        pq.write_table(pa.table({"text": ["A new story. It rained.", "The boat."]}), file)


def test_paths_are_distinguished_from_addresses() -> None:
    assert address_of("s3://bucket/a b.txt") == address_of(Path("s3://bucket/a b.txt")) == "s3://bucket/a b.txt"
    assert address_of(Path("file:///tmp/a.txt")) == "file:///tmp/a.txt"
    assert address_of("hdfs://host/user/x") == "hdfs://host/user/x"
    with pytest.raises(ConfigError, match="the host of an address, hdfs://HOST/"):
        list(find_sources(["hdfs:///user/x"]))
    for path in ("a/s3:/b.txt", "C:/texts", "http:/x", "-", "/tmp/s3://x", "s3"):
        assert address_of(path) is None


def test_text_at_an_address_gives_the_shards_of_the_same_text_on_disk(storage, tmp_path) -> None:  # noqa: F811
    fill(storage)
    storage.get("texts/a", str(tmp_path / "a"), recursive=True)
    result = list(find_sources(["s3://texts/a"]))
    assert [type(entry) for entry in result] == [Skipped, Source, Source, Source]
    on_disk = build_corpus([tmp_path / "a"], small_tokenizer(), tmp_path / "disk")
    other = build_corpus(["s3://texts/a"], small_tokenizer(), tmp_path / "address")
    assert other["read"] == on_disk["read"]
    result = [Corpus.open(tmp_path / name) for name in ("disk", "address")]
    tokens = [[corpus.document_tokens(row).tolist() for row in range(corpus.num_documents)] for corpus in result]
    assert tokens[0] == tokens[1] != []
    assert list(TextLines("s3://texts/a/two.txt.gz")) == ["It rained."]


def test_a_corpus_at_an_address_is_complete_or_not_there(storage, tmp_path, monkeypatch) -> None:  # noqa: F811
    fill(storage)
    sent: list[str] = []
    real = uploads._upload

    def upload(file: Path, address: str) -> None:
        if len(sent) == 3:
            raise RunError(expected="an answer", found="none", fix="check the network")
        sent.append(address)
        real(file, address)

    out = Path("s3://texts/corpus")
    with monkeypatch.context() as patch:
        patch.setattr(uploads, "_upload", upload)
        message = r"the complete output is kept in 'corpus\.[0-9a-f]{12}\.staged/corpus'"
        with pytest.raises(RunError, match=message), staged(out, last=MANIFEST) as folder:
            build_corpus(["s3://texts/a"], small_tokenizer(), folder)
    assert len(storage.find("texts/corpus")) == 3
    assert not storage.exists(f"texts/corpus/{MANIFEST}")
    assert is_staged(out, MANIFEST)
    documents = Corpus.open(folder, verify=True).num_documents
    storage.pipe_file("texts/corpus/left-by-the-upload", b"1")
    with staged(out, last=MANIFEST) as again:
        assert again == folder
    assert not is_staged(out, MANIFEST)
    assert not storage.exists("texts/corpus/left-by-the-upload")
    storage.get("texts/corpus", str(tmp_path / "back"), recursive=True)
    assert Corpus.open(tmp_path / "back", verify=True).num_documents == documents


def test_outputs_of_one_name_are_made_in_folders_of_their_own(storage) -> None:  # noqa: F811
    Path("corpus.staged").mkdir()
    storage.pipe_file("texts/others/.bertsmith-probe", b"1")
    with (
        staged(Path("s3://texts/one/corpus"), last=MANIFEST) as first,
        staged(Path("s3://texts/others/corpus"), last=MANIFEST) as other,
    ):
        assert first.parent != other.parent
        for folder in (first, other):
            folder.mkdir(parents=True)
            (folder / MANIFEST).write_text("{}")
    assert Path("corpus.staged").exists()
    assert storage.find("texts") == [
        "texts/one/corpus/corpus.json",
        "texts/others/.bertsmith-probe",
        "texts/others/corpus/corpus.json",
    ]


def test_the_manifest_goes_first_and_comes_last_when_a_corpus_is_replaced(storage, monkeypatch) -> None:  # noqa: F811
    fill(storage)
    order: list[str] = []
    real = uploads._upload

    def upload(file: Path, address: str) -> None:
        order.append(f"{file.name} {storage.exists(f'texts/corpus/{MANIFEST}')}")
        storage.invalidate_cache()
        real(file, address)

    monkeypatch.setattr(uploads, "_upload", upload)
    for replace in (False, True):
        with staged(Path("s3://texts/corpus"), last=MANIFEST, replace=replace) as folder:
            build_corpus(["s3://texts/a"], small_tokenizer(), folder)
        assert order[-1] == f"{MANIFEST} False"
        assert not any(key.endswith("True") for key in order)
    assert not list(Path().glob("*.staged"))
    with pytest.raises(InputError, match="found an existing output"), staged(Path("s3://texts/corpus"), last=MANIFEST):
        pass


def test_a_file_and_the_files_next_to_it_are_uploaded(storage) -> None:  # noqa: F811
    with staged(Path("s3://texts/out/x.npy")) as path:
        path.parent.mkdir()
        for name in ("x.npy", "x.npy.json", "x.tokens.jsonl", ".x.npy.lock", "x.npy.partial.json"):
            (path.parent / name).write_text(name)
    assert storage.find("texts/out") == ["texts/out/x.npy", "texts/out/x.npy.json", "texts/out/x.tokens.jsonl"]


def test_an_output_is_apart_from_its_inputs(storage) -> None:  # noqa: F811
    inside = staged(Path("s3://texts/a"), last=MANIFEST, inputs=["s3://texts/a/one.txt"])
    with pytest.raises(InputError, match=r"apart from the input 's3://texts/a/one.txt'"), inside:
        pass


def test_a_file_needs_a_name_in_its_bucket() -> None:
    for address in ("s3://nowhere", "s3://"):
        with pytest.raises(InputError, match="expected the address of a file, s3://BUCKET/NAME; found 's3://"):
            open_address(address)


def test_an_output_needs_a_name_in_its_bucket() -> None:
    for address in ("s3://nowhere", "gs://nowhere/", "hdfs://host"):
        message = "expected an address with a name after the bucket, .*://BUCKET/NAME; found '.*'; add the name"
        with pytest.raises(InputError, match=message), staged(Path(address)):
            pass


def read(address: str) -> bytes:
    find_files(address)
    with open_address(address) as file:
        return file.read()


def test_each_fault_is_one_line(storage, monkeypatch) -> None:  # noqa: F811
    import s3fs

    fill(storage)
    for address, kind, message in (
        ("s3://texts/none.txt", InputError, "expected a file or folder at .*; found nothing there"),
        ("s3://no-such-bucket/a.txt", InputError, "found no such bucket"),
        ("gs://bucket/a.txt", ConfigError, "expected the package that reads 'gs://bucket/a.txt'"),
    ):
        with pytest.raises(kind, match=message):
            read(address)
    with pytest.raises(InputError, match="found no such bucket"), staged(Path("s3://no-such-bucket/c"), last=MANIFEST):
        pass
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(RunError, match=r"expected credentials for 's3://texts/a/one.txt'; found none; set them"):
        read("s3://texts/a/one.txt")


@pytest.mark.slow
def test_an_address_that_does_not_answer_is_one_line(storage, monkeypatch) -> None:  # noqa: F811
    """s3fs tries five times before it gives up."""
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(RunError, match=r"expected an answer from 's3://texts/a.txt'; found none"):
        read("s3://texts/a.txt")


def test_a_bucket_that_is_read_only_is_found_before_any_work(storage, monkeypatch) -> None:  # noqa: F811
    def denied(path: str, *rest: Any, **options: Any) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(storage, "pipe_file", denied)
    message = "permission to write 's3://texts/corpus'; found Access Denied"
    with pytest.raises(InputError, match=message), staged(Path("s3://texts/corpus"), last=MANIFEST):
        pytest.fail("the work began")


def test_errors_of_packages_for_other_storages_are_one_line(monkeypatch) -> None:
    class AzureError(Exception):
        pass

    monkeypatch.setitem(sys.modules, "azure.core.exceptions", SimpleNamespace(AzureError=AzureError))
    with (
        pytest.raises(RunError, match=r"to read 'az://box/a.txt'; found AzureError: no"),
        remote.errors_in_words("az://box/a.txt"),
    ):
        raise AzureError("no such account")


def test_without_fsspec_one_line_says_what_to_install(monkeypatch) -> None:
    result = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "fsspec" else result(name, *a))
    with pytest.raises(BertsmithError, match=r"the package fsspec for 's3://b/a.txt'; found none; install it: pip"):
        read("s3://b/a.txt")


def test_other_file_systems_are_read_and_written(tmp_path) -> None:
    for address in (f"file://{tmp_path}/stored/corpus", "memory://stored/corpus"):
        with staged(Path(address), last=MANIFEST) as folder:
            folder.mkdir(parents=True)
            (folder / "shard").write_bytes(b"12345")
            (folder / MANIFEST).write_bytes(b"{}")
        result, is_folder = find_files(address)
        assert is_folder
        assert [(entry.address.rsplit("/", 1)[-1], entry.size) for entry in result] == [(MANIFEST, 2), ("shard", 5)]
        assert read(result[1].address) == b"12345"
