"""Which engine is meant, and what is missing for it."""

import pickle

import pytest

from bertsmith.cluster.engine import is_cluster, num_gpus
from bertsmith.cluster.failures import error_of, record_of
from bertsmith.errors import ConfigError, CorpusError, NotFiniteError


def test_engines_are_named() -> None:
    assert [is_cluster(name) for name in ("local", "ray", "ray://auto", "ray://10.0.0.7:6379")] == [False, *[True] * 3]
    for name in ("", "ray://", "spark", "ray:10.0.0.7"):
        with pytest.raises(ConfigError, match="an engine: local, ray, or ray://ADDRESS"):
            is_cluster(name)


def test_errors_of_workers_keep_their_kind() -> None:
    for error in (CorpusError(expected="a", found="b", fix="c"), NotFiniteError(7, "line 8")):
        for again in (error_of(record_of(error)), pickle.loads(pickle.dumps(error))):
            assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_worker_gets_a_gpu_if_its_model_runs_on_one() -> None:
    assert (num_gpus("cpu"), num_gpus("cuda"), num_gpus("cuda:1")) == (0, 1, 1)
