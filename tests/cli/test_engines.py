"""The option --engine, addresses as outputs, and what is said when a package for them is missing."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from bertsmith.base.core.errors import RunError
from bertsmith.base.storage import downloads, uploads
from bertsmith.inference.predictors.predictor import Predictor
from cli.test_predicting import write_model
from storage_server import _server, storage  # noqa: F401
from tasks.task_samples import SPECS

# botocore and s3fs leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def task_model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "task", "single")


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
        answer.refuses(
            "expected the package ray for --engine ray; found none; install it: pip install 'bertsmith[ray]'"
        )
    assert not any(out.rglob("*"))


def unanswered(*arguments: Any) -> None:
    raise RunError(expected="an answer", found="none", fix="check the network")


def test_an_address_without_its_host_is_refused(run) -> None:
    answer = run("corpus", "texts", "--vocab", "vocab.txt", "--out=hdfs:///user/x")
    answer.refuses("expected the host of an address, hdfs://HOST/...; found 'hdfs:///user/x'")


def test_resuming_needs_a_cluster(run, tmp_path, vocabulary) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\n")
    answer = run("corpus", tmp_path / "a.txt", "--vocab", vocabulary, "--out", tmp_path / "corpus", "--resume")
    assert "--resume needs --engine ray; add it" in answer.err


def test_text_vocabulary_corpus_and_vectors_at_addresses(run, tmp_path, model, storage, monkeypatch) -> None:  # noqa: F811
    """The whole chain with no path on a local disk but the model."""
    monkeypatch.chdir(tmp_path)
    storage.pipe_file("texts/in/a.txt", b"The boat came home.\nNobody was in it.\n\nA new story.\nIt rained.\n" * 9)
    run("vocab", "s3://texts/in", "--size", 50, "--out", "s3://texts/vocab.txt").succeeds()
    (tmp_path / "v.txt").write_bytes(storage.cat_file("texts/vocab.txt"))
    command = ("corpus", "s3://texts/in", "--vocab", tmp_path / "v.txt", "--out", "s3://texts/corpus")
    run(*command).succeeds("documents")
    assert storage.exists("texts/corpus/corpus.json")
    assert "expected nothing at 's3://texts/corpus'; found an existing output" in run(*command).err
    run(*command, "--replace").succeeds()
    storage.rm("texts/corpus", recursive=True)
    with monkeypatch.context() as patch:
        patch.setattr(uploads, "_upload", unanswered)
        assert "the complete output is kept in" in run(*command).err
    answer = run(*command, "--resume").succeeds()
    assert "is complete; it is uploaded" in answer.err
    assert storage.exists("texts/corpus/corpus.json")
    answer = run("embed", "s3://texts/in/a.txt", "--model", model, "--out", "s3://texts/vectors/x.npy").succeeds()
    assert answer.out.startswith("s3://texts/vectors/x.npy: ")
    storage.rm("texts/vectors", recursive=True)
    embed = ("embed", "s3://texts/in/a.txt", "--model", model, "--out", "s3://texts/vectors/x.npy")
    with monkeypatch.context() as patch:
        patch.setattr(uploads, "_upload", unanswered)
        assert "the complete output is kept in" in run(*embed).err
    run(*embed, "--resume").succeeds()
    for option in ((), ("--resume",)):
        assert "found an existing output" in run(*embed, *option).err
    run("embed", "s3://texts/in/a.txt", "--model", model, "--out", tmp_path / "x.npy").succeeds()
    assert storage.cat_file("texts/vectors/x.npy") == (tmp_path / "x.npy").read_bytes()
    assert storage.exists("texts/vectors/x.npy.json")
    assert not list(tmp_path.glob("*.staged"))


REFUSED = (
    ("pretrain", "corpus", "--size", "tiny", "--steps", 1, "--out"),
    ("finetune", "--model", "starter", "--task", "spam", "--out"),
    ("distill", "--teacher", "starter", "--out"),
    ("adapt", "starter", "texts", "--out"),
    ("demo", "--out"),
    ("vectors", "x.npy", "--center", "--out"),
    ("vectors", "static", "--model", "starter", "--out"),
    ("vectors", "train", "texts", "--out"),
    ("compare", "--task", "spam", "--out"),
    ("audit", "mails.csv", "--out"),
    ("train-translation", "pairs.tsv", "--out"),
    ("memory", "train", "stories.txt", "--out"),
    ("codes", "build", "events.csv", "--out"),
    ("codes", "train", "my-codes", "--out"),
    ("convert", "starter"),
    ("vocab", "texts", "--out", "v.txt", "--report"),
    ("check",),
    ("report",),
)


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: " ".join(map(str, command[:2])))
def test_other_paths_at_addresses_are_refused_before_any_work(run, command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run(*command, "memory://box/place")
    answer.refuses("on this machine; found the address 'memory://box/place'; name a local path")
    assert not list(tmp_path.iterdir())


def test_what_is_refused_is_refused_before_anything_is_copied(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bertsmith.app.cli.options.local_copy", lambda source: pytest.fail("copied"))
    answer = run("adapt", "s3://bucket/model", tmp_path, "--out", "s3://bucket/run")
    assert "expected a path for out on this machine; found the address 's3://bucket/run'" in answer.err


def test_vocabulary_model_and_labelled_files_at_addresses_are_copied(
    run,
    tmp_path,
    vocabulary,
    task_model,
    storage,  # noqa: F811
    monkeypatch,
) -> None:
    """The whole answer is that of the same files on a disk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloads, "CACHE", tmp_path / "cache")
    storage.put(str(task_model), "texts/models/spam", recursive=True)
    storage.put(str(vocabulary), "texts/vocab.txt")
    (tmp_path / "mails.csv").write_text(
        "text,label\n" + "".join(f"the film was {label},{label}\n" for label in SPECS["single"].labels)
    )
    storage.put("mails.csv", "texts/mails.csv")
    lines = b"he bought the mask\n\nthe man went to store\n"
    at, here = "s3://texts/models/spam", task_model
    for command in (
        ("tokenize", "--vocab", {at: "s3://texts/vocab.txt", here: vocabulary}),
        ("tokenize", "--model", {}),
        ("predict", "--model", {}),
        ("predict", "--model", {}, "--also", {}),
        ("predict", "--data", {at: "s3://texts/mails.csv", here: "mails.csv"}, "--model", {}),
        ("evaluate", "--data", {at: "s3://texts/mails.csv", here: "mails.csv"}, "--model", {}, "--json"),
    ):
        answers = [
            run(
                *(argument.get(root, root) if isinstance(argument, dict) else argument for argument in command),
                stdin=lines,
            )
            for root in (at, here)
        ]
        assert [answer.code for answer in answers] == [0, 0], answers
        assert answers[0].out == answers[1].out != ""


def test_predictions_at_an_address_are_those_on_a_disk(run, tmp_path, task_model, storage, monkeypatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    lines = b"he bought the mask\n\nthe man went to store\n" * 3
    predict = ("predict", "--model", task_model, "--device", "cpu", "--out")
    run(*predict, "here.jsonl", stdin=lines).succeeds()
    there = (*predict, "s3://texts/new/there.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(uploads, "_upload", unanswered)
        assert "the complete output is kept in" in run(*there, stdin=lines).err
    assert "found others; give the same lines again" in run(*there, "--resume", stdin=b"other lines\n" * 9).err
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "predict", None)  # nothing is predicted a second time
        answer = run(*there, "--resume", stdin=lines)
    assert (answer.code, answer.out) == (0, "s3://texts/new/there.jsonl\n"), answer.err
    assert storage.cat_file("texts/new/there.jsonl") == (tmp_path / "here.jsonl").read_bytes()
    assert storage.find("texts") == ["texts/new/there.jsonl"]
    assert "found an existing output" in run(*there, stdin=lines).err
    run(*there, "--replace", stdin=lines).succeeds()
    (tmp_path / "mails.csv").write_text("text\nhe bought the mask\n")
    table = ("--data", "mails.csv", "--out")
    for target in ("s3://texts/new/table.csv", "table.csv"):
        run(*predict[:-1], *table, target).succeeds()
    assert storage.cat_file("texts/new/table.csv") == (tmp_path / "table.csv").read_bytes()
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
        run(*command).refuses(f"expected permission to write '{command[-1]}'; found Access Denied")
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
        run(*command).refuses("expected an answer from 's3://texts/")
    assert sorted(path for path in tmp_path.rglob("*") if not path.name.endswith(".lock")) == before
