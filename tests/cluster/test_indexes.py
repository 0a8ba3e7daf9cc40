"""Indexes whose segments a cluster writes have the bytes of one process."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import build_index, search_passages
from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.inference.cluster import indexes
from bertsmith.inference.indexes import parts
from cluster import test_two_nodes
from cluster.conftest import stream_here
from cluster.text_samples import digests
from indexes.test_indexes import Killed, killed_after
from search.late_samples import write_late
from tasks.task_samples import write_base_model

pytestmark = test_two_nodes.pytestmark
LINES = ["the film was good", "", "a boat", "the film " * 40, "good", "bad", "the plot"] * 12


@pytest.fixture
def inputs(tmp_path: Path) -> Mapping[str, Any]:
    """A file of texts, with vectors of another program, and a model."""
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")
    np.save(tmp_path / "v.npy", np.random.default_rng(0).standard_normal((len(LINES), 6)))
    return {"texts": tmp_path / "lines.txt", "segment_rows": 20, "model": write_base_model(tmp_path / "model")}


def of_vectors(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs with vectors in place of the model."""
    return {**inputs, "model": None, "vectors": inputs["texts"].with_name("v.npy")}


@pytest.mark.parametrize("change", [dict, of_vectors])
def test_an_index_has_the_bytes_of_one_process(here, inputs, tmp_path, monkeypatch, capsys, change: Any) -> None:
    monkeypatch.setattr(parts, "LEAST_ROWS", 20)
    build_index(**change(inputs), out=tmp_path / "one")
    alone = capsys.readouterr().err
    result = build_index(**change(inputs), out=tmp_path / "many", engine=here)
    assert result.segments == 4
    assert digests(tmp_path / "many") == digests(tmp_path / "one")
    assert [line for line in capsys.readouterr().err.splitlines() if "cut" in line or "skipped" in line] == [
        line for line in alone.splitlines() if "cut" in line or "skipped" in line
    ]
    more = tmp_path / "more.txt"
    more.write_text("a new text\n" * 9)
    if change is dict:
        for name, options in (("one", {}), ("many", {"engine": here})):
            build_index(more, tmp_path / name, add=True, segment_rows=20, **options)
        assert digests(tmp_path / "many") == digests(tmp_path / "one")


@pytest.mark.parametrize("step", ["write_words", "write_vectors_of", "_with_cells"])
def test_an_index_that_was_interrupted_resumes_to_the_same_bytes(here, inputs, tmp_path, monkeypatch, step) -> None:
    build_index(**inputs, out=tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(parts, step, killed_after(1, getattr(parts, step)))
        with pytest.raises(Killed):
            build_index(**inputs, out=tmp_path / "many", engine=here)
    build_index(**inputs, out=tmp_path / "many", engine=here, resume=True)
    assert digests(tmp_path / "many") == digests(tmp_path / "one")


def test_another_model_or_folder_of_a_worker_is_refused_in_a_line(here, inputs, tmp_path, monkeypatch) -> None:
    def with_another(engine: str, tasks: Any, stage: Any) -> Any:
        shutil.rmtree(inputs["model"])
        write_base_model(inputs["model"], seed=5)
        yield from stream_here(engine, tasks, stage)

    def elsewhere(engine: str, tasks: Any, stage: Any) -> Any:
        (tmp_path / "b").rename(tmp_path / "c")
        yield from stream_here(engine, tasks, stage)

    for name, stream, message in (
        ("b", elsewhere, r"the folder .* on every machine of the cluster; found none on one of them"),
        ("a", with_another, "another one at that path"),
    ):
        monkeypatch.setattr(indexes, "stream", stream)
        with pytest.raises(RunError, match=message):
            build_index(**inputs, out=tmp_path / name, engine=here)


def test_an_engine_that_there_is_not_is_refused(inputs, tmp_path) -> None:
    with pytest.raises(BertsmithError, match="an engine: local, ray, or"):
        build_index(**inputs, out=tmp_path / "index", engine="spark")
    assert not (tmp_path / "index").exists()


def test_vectors_of_tokens_are_refused_before_anything_is_written(here, inputs, tmp_path) -> None:
    late = write_late(tmp_path / "late", prefixes=("who ", "it "))
    with pytest.raises(BertsmithError, match="for vectors of tokens; found ray"):
        build_index(**inputs, also=[late], out=tmp_path / "index", engine=here)
    assert not (tmp_path / "index").exists()


def test_two_nodes_write_the_index_of_one_process(engine, inputs, tmp_path) -> None:
    build_index(**inputs, out=tmp_path / "one")
    build_index(**inputs, out=tmp_path / "many", engine=engine)
    assert digests(tmp_path / "many") == digests(tmp_path / "one")
    hits = search_passages(tmp_path / "many", ["a boat"], top=1)[0].passages
    assert hits[0].text == "a boat"
