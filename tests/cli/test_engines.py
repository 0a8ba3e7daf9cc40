"""The option --engine, addresses as outputs, and what is said when a package for them is missing."""

import importlib.util
from typing import Any

import pytest

from bertsmith import remote
from bertsmith.errors import RunError
from storage_server import _server, storage  # noqa: F401

# botocore and s3fs leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_without_ray_one_line_says_what_to_install(run, tmp_path, vocabulary, model, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\n")
    result = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else result(name, *rest))
    text, out = tmp_path / "a.txt", tmp_path / "out"
    for command in (
        ("corpus", text, "--vocab", vocabulary, "--out", out / "corpus"),
        ("vocab", text, "--size", 60, "--out", out / "vocab.txt"),
        ("embed", text, "--model", model, "--out", out / "x.npy"),
        ("features", text, "--model", model, "--out", out / "y.npy"),
        ("predict", "--model", model),
    ):
        answer = run(*command, "--engine", "ray", stdin=b"The boat.\n")
        assert answer.code == 1
        assert "expected the package ray for --engine ray; found none; install it: pip install 'bertsmith[ray]'" in (
            answer.err
        )
    assert not any(out.rglob("*"))


def unanswered(*arguments: Any) -> None:
    raise RunError(expected="an answer", found="none", fix="check the network")


def test_an_address_without_its_host_is_refused(run) -> None:
    answer = run("corpus", "texts", "--vocab", "vocab.txt", "--out=hdfs:///user/x")
    assert answer.code == 1
    assert "expected the host of an address, hdfs://HOST/...; found 'hdfs:///user/x'" in answer.err


def test_resuming_needs_a_cluster(run, tmp_path, vocabulary) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\n")
    answer = run("corpus", tmp_path / "a.txt", "--vocab", vocabulary, "--out", tmp_path / "corpus", "--resume")
    assert "expected --engine ray with --resume; found local" in answer.err


def test_text_vocabulary_corpus_and_vectors_at_addresses(run, tmp_path, model, storage, monkeypatch) -> None:  # noqa: F811
    """The whole chain with no path on a local disk but the model."""
    monkeypatch.chdir(tmp_path)
    storage.pipe_file("texts/in/a.txt", b"The boat came home.\nNobody was in it.\n\nA new story.\nIt rained.\n" * 9)
    answer = run("vocab", "s3://texts/in", "--size", 50, "--out", "s3://texts/vocab.txt")
    assert answer.code == 0, answer.err
    (tmp_path / "v.txt").write_bytes(storage.cat_file("texts/vocab.txt"))
    command = ("corpus", "s3://texts/in", "--vocab", tmp_path / "v.txt", "--out", "s3://texts/corpus")
    answer = run(*command)
    assert answer.code == 0, answer.err
    assert "documents" in answer.out
    assert storage.exists("texts/corpus/corpus.json")
    assert "expected nothing at 's3://texts/corpus'; found an existing output" in run(*command).err
    assert run(*command, "--replace").code == 0
    storage.rm("texts/corpus", recursive=True)
    with monkeypatch.context() as patch:
        patch.setattr(remote, "_upload", unanswered)
        assert "the complete output is kept in" in run(*command).err
    answer = run(*command, "--resume")
    assert answer.code == 0, answer.err
    assert "is complete; it is uploaded" in answer.err
    assert storage.exists("texts/corpus/corpus.json")
    answer = run("embed", "s3://texts/in/a.txt", "--model", model, "--out", "s3://texts/vectors/x.npy")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("s3://texts/vectors/x.npy: ")
    storage.rm("texts/vectors", recursive=True)
    embed = ("embed", "s3://texts/in/a.txt", "--model", model, "--out", "s3://texts/vectors/x.npy")
    with monkeypatch.context() as patch:
        patch.setattr(remote, "_upload", unanswered)
        assert "the complete output is kept in" in run(*embed).err
    answer = run(*embed, "--resume")
    assert answer.code == 0, answer.err
    for option in ((), ("--resume",)):
        assert "found an existing output" in run(*embed, *option).err
    local = run("embed", "s3://texts/in/a.txt", "--model", model, "--out", tmp_path / "x.npy")
    assert local.code == 0, local.err
    assert storage.cat_file("texts/vectors/x.npy") == (tmp_path / "x.npy").read_bytes()
    assert storage.exists("texts/vectors/x.npy.json")
    assert not list(tmp_path.glob("*.staged"))


def outputs_at(bucket: str, text: object, vocabulary: object, model: object) -> list[tuple[object, ...]]:
    """The commands that write to an address."""
    return [
        ("vocab", text, "--size", 50, "--out", f"s3://{bucket}/new/vocab.txt"),
        ("corpus", text, "--vocab", vocabulary, "--out", f"s3://{bucket}/new/corpus"),
        ("embed", text, "--model", model, "--out", f"s3://{bucket}/new/x.npy"),
        ("features", text, "--model", model, "--out", f"s3://{bucket}/new/y.npy"),
    ]


def test_a_bucket_that_is_read_only_is_one_line_before_any_work(
    run,
    tmp_path,
    vocabulary,
    model,
    storage,  # noqa: F811
    monkeypatch,
) -> None:
    def denied(path: str, *rest: Any, **options: Any) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.chdir(tmp_path)
    storage.pipe_file("texts/in/a.txt", b"The boat came home.\n" * 9)
    monkeypatch.setattr(storage, "pipe_file", denied)
    before = sorted(tmp_path.rglob("*"))
    for command in outputs_at("texts", "s3://texts/in/a.txt", vocabulary, model):
        answer = run(*command)
        assert (answer.code, answer.out) == (1, "")
        assert f"expected permission to write '{command[-1]}'; found Access Denied" in answer.err
        assert answer.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert storage.find("texts") == ["texts/in/a.txt"]


@pytest.mark.slow
def test_an_address_that_does_not_answer_is_one_line_and_leaves_nothing(
    run,
    tmp_path,
    vocabulary,
    model,
    storage,  # noqa: F811
    monkeypatch,
) -> None:
    """As an output, as text, and as a corpus; s3fs tries five times before it gives up."""
    import s3fs

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("The boat came home.\n" * 9)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3fs.S3FileSystem.clear_instance_cache()
    before = sorted(tmp_path.rglob("*"))
    for command in (
        *outputs_at("texts", tmp_path / "a.txt", vocabulary, model),
        ("corpus", "s3://texts/a.txt", "--vocab", vocabulary, "--out", tmp_path / "corpus"),
        ("pretrain", "s3://texts/corpus", "--size", "tiny", "--steps", 2, "--out", tmp_path / "run"),
    ):
        answer = run(*command)
        assert (answer.code, answer.out) == (1, "")
        assert "expected an answer from 's3://texts/" in answer.err
        assert answer.err.count("\n") == 1
    assert sorted(path for path in tmp_path.rglob("*") if not path.name.endswith(".lock")) == before
