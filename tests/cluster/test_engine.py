"""Which engine is meant, and what is missing for it."""

import copy
import dataclasses
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bertsmith.base.core.errors import ConfigError, CorpusError, NotFiniteError, RunError
from bertsmith.base.processes.engines import is_cluster
from bertsmith.inference.cluster.engine import (
    PART,
    Stage,
    _Driver,
    _reader,
    _require_machine,
    _Worker,
    error_of,
    num_gpus,
    record_of,
    stream,
)


def test_engines_are_named() -> None:
    assert [is_cluster(name) for name in ("local", "ray", "ray://auto", "ray://10.0.0.7:6379")] == [False, *[True] * 3]
    for name in ("", "ray://", "spark", "ray:10.0.0.7"):
        with pytest.raises(ConfigError, match="an engine: local, ray, or ray://ADDRESS"):
            is_cluster(name)


def test_errors_of_workers_keep_their_kind() -> None:
    for error in (CorpusError(expected="a", found="b", fix="c"), NotFiniteError(7, "line 8")):
        for again in (error_of(record_of(error)), copy.copy(error)):
            assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_worker_gets_a_gpu_if_its_model_runs_on_one() -> None:
    assert (num_gpus("cpu"), num_gpus("cuda"), num_gpus("cuda:1")) == (0, 1, 1)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package Ray as of a process that is connected to a cluster of one machine without a GPU."""
    data = SimpleNamespace()
    ray = SimpleNamespace(
        data=data,
        exceptions=SimpleNamespace(RayError=OSError, RayTaskError=OSError),
        is_initialized=lambda: True,
        get_runtime_context=lambda: SimpleNamespace(gcs_address="10.0.0.7:6379"),
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}],
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    return ray


def test_another_cluster_than_the_connected_one_is_refused(connected, monkeypatch) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = dict(os.environ)
    with pytest.raises(
        RunError, match=r"the cluster at '10.0.0.8:6379'; found one that is connected to '10.0.0.7:6379'"
    ):
        list(stream("ray://10.0.0.8:6379", [{PART: "{}"}], Stage(worker=dict)))
    assert dict(os.environ) == before


@pytest.mark.parametrize("kind", [Exception, RuntimeError, ConnectionError])
def test_a_cluster_that_does_not_start_is_one_line(connected, kind) -> None:
    def init(**options: Any) -> None:
        raise kind("The current node timed out during startup.\nThis could happen because of load.")

    connected.is_initialized, connected.init = lambda: False, init
    message = r"^expected a Ray cluster at 'local'; found \w+: The current node timed out during startup.; start one"
    with pytest.raises(RunError, match=message):
        list(stream("ray", [{PART: "{}"}], Stage(worker=dict)))


def test_an_error_that_is_no_matter_of_the_cluster_is_raised_as_it_is(connected) -> None:
    def init(**options: Any) -> None:
        raise TypeError("a mistake of ours")

    connected.is_initialized, connected.init = lambda: False, init
    with pytest.raises(TypeError, match="a mistake of ours"):
        list(stream("ray", [{PART: "{}"}], Stage(worker=dict)))


def test_workers_that_no_machine_can_hold_are_refused(connected) -> None:
    _require_machine(connected, Stage(worker=dict, threads=2))
    with pytest.raises(RunError, match="a machine with 3 processors"):
        _require_machine(connected, Stage(worker=dict, threads=3))
    with pytest.raises(RunError, match="a machine with 1 processors and a GPU, for a worker; found none"):
        _require_machine(connected, Stage(worker=dict, gpus=1))


def test_a_worker_with_other_code_or_versions_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    driver = _Driver.this()
    other = dataclasses.replace(driver, code={**driver.code, "numpy": "1.0"})
    for enter in (
        lambda: next(_Worker(other, dict, ())(pa.table({}))),
        lambda: next(_reader(other, iter)(pa.table({}))),
    ):
        with pytest.raises(
            RunError, match=r"^expected the same numpy on all machines of the cluster, 1.0; found .* on "
        ):
            enter()
    assert list(_Worker(driver, lambda: iter, ())(pa.table({"a": [1]})))  # the same code


def test_workers_get_the_variables_of_storages_and_no_others(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    driver = _Driver.this()
    assert driver.storage["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"
    assert all(
        name.startswith(("AWS_", "AZURE_", "FSSPEC_", "GCSFS_", "GOOGLE_", "HADOOP_")) for name in driver.storage
    )
    assert "127.0.0.1:9" not in f"{driver} {driver!r}"  # Ray may log it, and with it the credentials
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    driver.enter()
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"
    assert Path.cwd() == tmp_path
