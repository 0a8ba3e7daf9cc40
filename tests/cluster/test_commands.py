"""Every command that a cluster works for: killed in the middle, it ends with the bytes of one process."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.inference.cluster import corpus, predictions, vectors, words
from bertsmith.inference.cluster import engine as cluster_engine
from bertsmith.tasks.encoding.onnx_session import num_threads
from cli.conftest import run  # noqa: F401
from cli.test_predicting import write_model
from cluster import test_two_nodes
from cluster.of_commands import cut_small, watch
from cluster.text_samples import digests, write_texts
from tasks.task_samples import TOKENIZER, write_base_model
from training.toy import environment

pytestmark = test_two_nodes.pytestmark
PROGRAM = Path(__file__).with_name("of_commands.py")
LINES = ["the film was good", "", "a boat", "the film " * 40, "good", "bad", "the plot"] * 4
STOP = 4  # results that arrive before the process is killed

# The arguments of each command, and the name of its output.
COMMANDS: dict[str, tuple[list[str], str]] = {
    "vocab": (["vocab", "texts", "--size", "80"], "vocab.txt"),
    "corpus": (["corpus", "texts", "--vocab", "pieces.txt", "--held-out", "0.2"], "corpus"),
    "embed": (["embed", "lines.txt", "--model", "base", "--device", "cpu"], "x.npy"),
    "features": (["features", "lines.txt", "--model", "base", "--device", "cpu"], "x.parquet"),
    "predict": (["predict", "--model", "task", "--device", "cpu"], "answers.jsonl"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_texts(folder / "texts")
    (folder / "pieces.txt").write_text("\n".join(TOKENIZER.vocabulary.pieces) + "\n")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    write_base_model(folder / "base")
    write_model(folder / "task", "single")
    return folder


@pytest.fixture(params=["", pytest.param("two nodes", marks=pytest.mark.slow)], ids=["here", "two nodes"])
def address(request: pytest.FixtureRequest) -> str:
    """The engine of two nodes; empty for workers in this process."""
    return request.getfixturevalue("engine") if request.param else ""


@pytest.fixture
def command(run: Any, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:  # noqa: F811
    """Runs a command in a folder with the inputs, on blocks of three lines; its output is in a folder of its own."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path)
    cut_small(monkeypatch.setattr)

    def call(name: str, folder: str, *options: str) -> Any:
        Path(folder).mkdir(exist_ok=True)
        return run(*line_of(name, folder), *options, stdin=Path("lines.txt").read_bytes())

    return call


def line_of(name: str, folder: str) -> list[str]:
    arguments, out = COMMANDS[name]
    return [*arguments, "--out", f"{folder}/{out}"]


def made(folder: str) -> dict[str, str]:
    """The digest of every file of an output."""
    return {name: digest for name, digest in digests(Path(folder)).items() if not name.endswith(".lock")}


def places(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_driver_that_is_killed_resumes_with_what_is_left(
    address: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """kill -9: nothing is computed twice, nothing is lost, and nothing looks complete meanwhile."""
    assert command(name, "one").code == 0
    on_cluster = ["--engine", address or "ray"]
    with monkeypatch.context() as patch:
        watch(patch.setattr, address, tmp_path / "straight.log")
        assert command(name, "straight", *on_cluster).code == 0
    whole = places(tmp_path / "straight.log")
    assert len(whole) > STOP + 1

    (tmp_path / "many").mkdir()
    program = [sys.executable, str(PROGRAM), address, "killed.log", str(STOP), *line_of(name, "many"), *on_cluster]
    paths = environment()
    paths["PYTHONPATH"] += f"{os.pathsep}{PROGRAM.parents[1]}"
    paths["OMP_NUM_THREADS"] = str(num_threads())  # as here, so that sums have the same order
    with open("lines.txt", "rb") as stdin:
        killed = subprocess.run(program, env=paths, stdin=stdin, check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "many" / COMMANDS[name][1]).exists()

    with monkeypatch.context() as patch:
        watch(patch.setattr, address, tmp_path / "resumed.log")
        refused = command(name, "many", *on_cluster)
        assert refused.code == 1
        assert "--resume" in refused.err
        assert refused.err.count("\n") == 1
        assert command(name, "many", *on_cluster, "--resume").code == 0
    assert places(tmp_path / "killed.log"), "what was done is kept"
    assert places(tmp_path / "killed.log") + places(tmp_path / "resumed.log") == whole
    assert made("many") == made("straight") == made("one")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_fills_is_one_line_and_nothing_looks_complete(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert command(name, "one").code == 0
    real, written = os.fsync, []

    def full(file: int) -> None:
        written.append(file)
        if len(written) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    with monkeypatch.context() as patch:
        watch(patch.setattr, "", tmp_path / "full.log")
        patch.setattr(os, "fsync", full)
        answer = command(name, "many", "--engine", "ray")
    assert answer.code == 1
    assert "space" in answer.err
    assert "found none left" in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "many" / COMMANDS[name][1]).exists()
    with monkeypatch.context() as patch:
        watch(patch.setattr, "", tmp_path / "resumed.log")
        assert command(name, "many", "--engine", "ray", "--resume").code == 0
    assert made("many") == made("one")


# The class that works on the rows of each command.
WORKERS = {
    "vocab": (words, "_Counter"),
    "corpus": (corpus, "_Encoder"),
    "embed": (vectors, "_Worker"),
    "features": (vectors, "_Worker"),
    "predict": (predictions, "_Worker"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_fills_for_a_worker_is_one_line_and_nothing_looks_complete(
    engine: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Full:
        """Fails as a full disk of a worker does."""

        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

        def __call__(self, table: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*WORKERS[name], Full)
        answer = command(name, "many", "--engine", engine)
    assert answer.code == 1
    assert "expected workers that run to the end; found " in answer.err
    assert "No space left on device" in answer.err
    assert "then resume with --resume" in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "many" / COMMANDS[name][1]).exists()
    assert command(name, "many", "--engine", engine, "--resume").code == 0
    assert command(name, "one").code == 0
    assert made("many") == made("one")


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["workers", "node"])
@pytest.mark.parametrize("name", COMMANDS)
def test_workers_that_are_killed_and_a_node_that_is_lost_cost_nothing(
    nodes: Any, engine: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lost: str
) -> None:
    """All workers, or a third node with its workers and results, when the first result arrives.

    The large file and the long list are not done by then.
    """
    write_texts(tmp_path / "more", documents=5, large=20_000)
    (tmp_path / "more" / "large.txt").rename(tmp_path / "texts" / "large.txt")
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 40) + "\n")
    third = nodes.add_node(num_cpus=2, object_store_memory=200 * 2**20) if lost == "node" else None
    killed: list[int] = []

    def kill() -> None:
        killed.extend(test_two_nodes.workers_of(nodes.list_all_nodes() if third is None else [third]))
        if third is None:
            for process in killed:
                os.kill(process, signal.SIGKILL)
        elif killed:
            nodes.remove_node(third, allow_graceful=False)

    real = cluster_engine.stream

    def stream(*arguments: Any) -> Iterator[Any]:
        for table in real(*arguments):
            if not killed:
                kill()
            yield table

    for module in (corpus, predictions, vectors, words):
        monkeypatch.setattr(module, "stream", stream)
    assert command(name, "many", "--engine", engine).code == 0
    assert killed
    assert command(name, "one").code == 0
    assert made("many") == made("one")
