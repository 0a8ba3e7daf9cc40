"""A stream in this process, and a Ray cluster of two nodes on this machine."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from bertsmith.inference.cluster import corpus, indexes, predictions, vectors, words
from bertsmith.inference.cluster.engine import Stage, environment


def stream_here(engine: str, parts: list[dict[str, Any]], stage: Stage) -> Iterator[pa.Table]:
    """The stream of `bertsmith.inference.cluster.engine` without Ray: each part is read when it is needed."""
    worker = stage.worker(*stage.arguments)
    for part in parts:
        table = pa.Table.from_pylist([part])
        for rows in [table] if stage.read is None else stage.read(table):
            for made in worker(rows):
                yield made if isinstance(made, pa.Table) else Objects(made)


class Objects:
    """Rows that hold Python objects."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    def to_pylist(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine whose workers are in this process."""
    for module in (corpus, indexes, predictions, vectors, words):
        monkeypatch.setattr(module, "stream", stream_here)
    monkeypatch.setattr(predictions, "held", lambda engine: contextlib.nullcontext())
    return "ray"


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with two processors each."""
    os.environ |= environment()
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 200 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def engine(nodes: Any) -> str:
    """The engine of the cluster."""
    return f"ray://{nodes.address}"
