"""A real Ray cluster of two nodes on this machine: the bytes of one process, and what happens when parts of it die."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.library.lines import predict_lines
from bertsmith.app.library.vector_files import embed_file
from bertsmith.app.library.vocabulary import learn_vocabulary
from bertsmith.base.core.errors import RunError
from bertsmith.inference.cluster import corpus as cluster_corpus
from bertsmith.inference.cluster import engine as cluster_engine
from bertsmith.inference.cluster.corpus import build_corpus_on
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from cli.test_predicting import write_model
from cluster.text_samples import digests, write_texts
from corpus.samples import small_tokenizer
from storage_server import _server, storage  # noqa: F401
from tasks.task_samples import write_base_model

SETTINGS = CorpusSettings(held_out=0.2, shard_bytes=2**18)
# Ray warns of its own settings, and leaves sockets and processes to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block is passed on by itself, so that most of the work is left when the first result arrives."""
    monkeypatch.setattr(cluster_engine, "_STREAMED_BYTES", 2**16)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Several blocks of a megabyte in one file, so that workers share it, and small files of every kind."""
    return write_texts(tmp_path / "texts", large=20_000)


def expected(tmp_path: Path, texts: Path) -> dict[str, str]:
    build_corpus([texts], small_tokenizer(), tmp_path / "one", **vars(SETTINGS), workers=1)
    return digests(tmp_path / "one")


def workers_of(nodes: Sequence[Any]) -> list[int]:
    """The processes of some nodes that encode blocks."""
    raylets = {process.process.pid for node in nodes for process in node.all_processes["raylet"]}
    workers = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                title, parent = (
                    (entry / "cmdline").read_bytes(),
                    (entry / "stat").read_text().rsplit(")")[-1].split()[1],
                )
            except OSError:
                continue
            if title.startswith(b"ray::MapWorker") and int(parent) in raylets:
                workers.append(int(entry.name))
    return workers


def test_two_nodes_write_the_bytes_of_one_process(engine, texts, tmp_path) -> None:
    build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    assert digests(tmp_path / "many") == expected(tmp_path, texts)


def test_two_nodes_remove_the_documents_with_the_url_of_an_earlier_one(engine, tmp_path) -> None:
    texts = write_texts(tmp_path / "texts")
    settings = CorpusSettings(held_out=0.2, remove_duplicates="url", url_column="page")
    manifest = build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=settings)
    build_corpus([texts], small_tokenizer(), tmp_path / "one", **vars(settings), workers=1)
    assert digests(tmp_path / "many") == digests(tmp_path / "one")
    # Of 60 records of JSON lines the last 30 repeat, and of 60 of Parquet all but five.
    assert manifest["removed"]["duplicates"]["documents"] == 30 + 55


def test_text_at_an_address_is_read_with_the_variables_of_this_process(
    engine,
    storage,  # noqa: F811
    texts,
    tmp_path,
) -> None:
    """The nodes were started without them."""
    storage.put(str(texts), "texts/in", recursive=True)
    build_corpus_on(engine, ["s3://texts/in"], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    build_corpus(["s3://texts/in"], small_tokenizer(), tmp_path / "one", **vars(SETTINGS), workers=1)
    assert digests(tmp_path / "many") == digests(tmp_path / "one")


def test_workers_with_other_code_are_named_in_one_line(engine, texts, tmp_path, monkeypatch) -> None:
    ours = cluster_engine.code_and_versions() | {"code": "sha256:other"}
    monkeypatch.setattr(cluster_engine, "code_and_versions", lambda: ours)
    with pytest.raises(RunError, match=r"^expected the same code on all machines of the cluster, sha256:other; found"):
        build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    assert not (tmp_path / "many").exists()


@pytest.mark.slow
def test_a_driver_that_is_killed_resumes(engine, texts, tmp_path, monkeypatch) -> None:
    program = f"""
import os, signal
from bertsmith.inference.cluster import corpus, engine, kept
from bertsmith.text.corpus.build import CorpusSettings
from corpus.samples import small_tokenizer
real, kept.KEPT_BYTES, engine._STREAMED_BYTES = engine.stream, 1, 2**16

def stream(*given):
    for number, table in enumerate(real(*given)):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield table

corpus.stream = stream
settings = CorpusSettings(held_out=0.2, shard_bytes=2**18)
corpus.build_corpus_on({engine!r}, [{str(texts)!r}], small_tokenizer(), {str(tmp_path / "many")!r}, settings=settings)
"""
    paths = os.pathsep.join([*map(str, (Path(__file__).parents[1], Path(__file__).parents[2] / "src"))])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "many").exists()
    assert len(list((tmp_path / "many.partial").glob("part-*.arrow"))) == 3
    build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS, resume=True)
    assert digests(tmp_path / "many") == expected(tmp_path, texts)


@pytest.mark.slow
def test_vocabulary_vectors_and_predictions_are_those_of_one_process(engine, texts, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cluster_engine, "num_gpus", lambda device: 0)
    alone, many = learn_vocabulary([texts], 80), learn_vocabulary([texts], 80, engine=engine)
    assert many.tokenizer.vocabulary.digest == alone.tokenizer.vocabulary.digest
    assert many.report == alone.report
    lines = ["the film was good", "", "a boat", "the film", "good"] * 900
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    model = write_base_model(tmp_path / "model")
    for folder, name in (("one", "local"), ("many", engine)):
        embed_file(str(tmp_path / "lines.txt"), model, tmp_path / folder / "x.npy", engine=name)
    assert digests(tmp_path / "many") == digests(tmp_path / "one")
    task = write_model(tmp_path / "task", "single")
    answers = [
        list(predict_lines(PredictRequest(task, engine=name, device="cpu"), lines)) for name in ("local", engine)
    ]
    assert answers[0] == answers[1]


def test_an_address_without_a_cluster_is_one_line() -> None:
    program = """
from bertsmith.inference.cluster.engine import PART, Stage, stream
from bertsmith.base.core.errors import RunError
try:
    list(stream("ray://127.0.0.1:9", [{PART: "{}"}], Stage(worker=dict)))
except RunError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stdout.startswith("expected a Ray cluster at '127.0.0.1:9'; found "), done.stderr
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_an_error_of_ours_in_a_worker_arrives_as_it_is(engine, texts, tmp_path, monkeypatch) -> None:
    class Unreadable:
        """Fails as a storage that does not answer does."""

        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

        def __call__(self, table: Any) -> Any:
            raise RunError(expected="an answer from 's3://texts'", found="none", fix="check the network")

    monkeypatch.setattr(cluster_corpus, "_Encoder", Unreadable)
    with pytest.raises(RunError, match=r"^expected an answer from 's3://texts'; found none; check the network$"):
        build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)


@pytest.mark.slow
def test_an_error_of_a_worker_is_one_line(engine, texts, tmp_path, monkeypatch) -> None:
    class Tokenizerless:
        """Fails as a full disk of a worker does."""

        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

        def __call__(self, table: Any) -> Any:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(cluster_corpus, "_Encoder", Tokenizerless)
    with pytest.raises(RunError, match=r"No space left on device.*--resume"):
        build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS)
    assert not (tmp_path / "many").exists()
    monkeypatch.undo()
    build_corpus_on(engine, [texts], small_tokenizer(), tmp_path / "many", settings=SETTINGS, resume=True)
    assert digests(tmp_path / "many") == expected(tmp_path, texts)
