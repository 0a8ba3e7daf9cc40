"""A Ray cluster, through which rows are streamed in order.

A stream has up to two stages: readers, which turn parts of the input into rows, and workers, which turn rows into
results and keep what they loaded (a tokenizer, a model) for as long as they live. Ray Data holds readers back when
workers are busy, starts a lost worker again, and computes again what a lost node held. Results arrive in the order of
the parts, whatever the number of workers.
"""

import contextlib
import dataclasses
import importlib.util
import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bertsmith.base.core import errors
from bertsmith.base.core.errors import BertsmithError, NotFiniteError, RunError
from bertsmith.base.processes.code import code_and_versions, first_difference
from bertsmith.base.processes.engines import RAY, environment

PART = "part"  # the column with a part of the input, a JSON object
_WORKERS_OF_READER = 8  # a reader reads as fast as about that number of workers encodes
_SECONDS_TO_ANSWER = 20.0
_NO_CLUSTER = (OSError, RuntimeError, ValueError)  # what Ray raises if it cannot start or join one
_STREAMED_BYTES = 4 * 2**20  # rows are passed on in tables of about this size,
_MOST_TIMES = 4  # or of up to that many times as much, if there are
_TABLES_OF_WORKER = 16  # at least that many for each worker, so that all of them end at about the same time
# Beginnings of the names of variables with the credentials and endpoints of storages, which workers get.
_STORAGE = ("AWS_", "AZURE_", "FSSPEC_", "GCSFS_", "GOOGLE_", "HADOOP_")

Read = Callable[[pa.Table], Iterator[pa.Table]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """The work of the worker processes on rows."""

    # a class; an instance is called with a table of rows, and yields tables of results, or columns of Python objects by
    # name
    worker: type
    arguments: tuple[Any, ...] = ()
    read: Read | None = None  # turns a table of parts into tables of rows; None if the parts are the rows
    workers: int | None = None  # the largest number of worker processes; None: as many as there are processors for
    threads: int = 1
    gpus: int = 0
    size: int = 0  # bytes of all rows, about; 0 if that is not known
    resumes: bool = False  # whether the command has --resume, for the advice when workers fail


def stream(engine: str, parts: Sequence[Mapping[str, Any]], stage: Stage) -> Generator[pa.Table, None, None]:
    """The results of all parts, in their order, as tables of one or more rows.

    Args:
        engine: `ray` for a cluster of this machine that ends with the stream; `ray://ADDRESS` for one that is running.
    """
    if not parts:
        return
    with _running(engine) as ray, _errors_in_words(ray, resumes=stage.resumes):
        context = ray.data.DataContext.get_current().copy()
        context.execution_options.preserve_order = True
        context.execution_options.verbose_progress = False
        context.enable_progress_bars = False
        context.memory_usage_poll_interval_s = None  # a statistic of each worker that is shown nowhere
        processors = int(ray.cluster_resources().get("CPU", 1))
        most = stage.workers or max(1, processors // stage.threads)
        at_once = max(1, min(most, processors // stage.threads))
        context.target_max_block_size = table_bytes(stage.size, at_once)
        context.target_min_block_size = 1
        with ray.data.DataContext.current(context):
            rows = ray.data.from_items([dict(part) for part in parts], override_num_blocks=len(parts))
            here = _Driver.this()
            if stage.read is not None:
                read = _reader(here, stage.read)
                # Readers wait for disks. They need no processor of their own: a worker may have taken the last one.
                rows = rows.map_batches(
                    read,
                    batch_size=None,
                    batch_format="pyarrow",
                    num_cpus=0,
                    compute=ray.data.TaskPoolStrategy(size=min(len(parts), 1 + processors // _WORKERS_OF_READER)),
                )
            _require_machine(ray, stage)
            results = rows.map_batches(
                _Worker,
                batch_size=None,
                batch_format="pyarrow",
                fn_constructor_args=(here, stage.worker, stage.arguments),
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most, initial_size=at_once),
                num_cpus=stage.threads,
                num_gpus=stage.gpus or None,
            )
            yield from results.iter_batches(batch_size=None, batch_format="pyarrow")


def table_bytes(size: int, workers: int) -> int:
    """The bytes of the tables in which rows are passed on: few and large ones for much text, because each costs time.

    >>> [table_bytes(size * 2**20, 2) >> 20 for size in (0, 100, 300, 10_000)]
    [4, 4, 9, 16]
    """
    return max(_STREAMED_BYTES, min(_MOST_TIMES * _STREAMED_BYTES, size // (_TABLES_OF_WORKER * workers)))


def use_threads(count: int) -> None:
    """Makes a worker compute with as many threads as the process that started the stream, so with the same results."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(count)


def num_gpus(device: str) -> int:
    """The GPUs of a worker whose model runs on a device; one for `auto` if this machine has one."""
    if device == "auto" and importlib.util.find_spec("torch") is not None:
        import torch

        return int(torch.cuda.is_available())
    return int(device.startswith("cuda"))


def held(engine: str) -> contextlib.AbstractContextManager[Any]:
    """Keeps a cluster of this machine running during the block, in which several streams use it."""
    return _running(engine) if engine == RAY else contextlib.nullcontext()


@contextlib.contextmanager
def _running(engine: str) -> Iterator[Any]:
    """Yields the package `ray`, connected to the cluster of an engine; one that was connected before stays so."""
    added = {name: value for name, value in environment(engine).items() if name not in os.environ}
    os.environ |= added
    try:
        with _connected(engine) as ray:
            yield ray
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _connected(engine: str) -> Iterator[Any]:
    import ray
    import ray.data

    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised, in one line
    address = "local" if engine == RAY else engine.removeprefix(f"{RAY}://")
    if ray.is_initialized():
        joined = ray.get_runtime_context().gcs_address
        if address not in ("local", "auto", joined):
            raise RunError(
                expected=f"a process that is not connected to Ray, for the cluster at '{address}'",
                found=f"one that is connected to '{joined}'",
                fix="call ray.shutdown() first, or use --engine ray for the cluster that is connected",
            )
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _start_in_words(address):
        if address == "local":
            ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        else:
            _require_answer(address)
            ray.init(address=address, **quiet)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _start_in_words(address: str) -> Iterator[None]:
    """Turns what Ray raises if it cannot start or join a cluster into one line.

    It catches everything (decision 0025), because Ray raises `Exception` itself if a node does not start in time. Other
    classes that are not expected are raised again.
    """
    try:
        yield
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, _NO_CLUSTER):
            raise
        raise RunError(
            expected=f"a Ray cluster at '{address}'",
            found=_first_line(error),
            fix="start one (ray start --head), or use --engine ray for one of this machine",
        ) from None


def _require_answer(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()


@dataclasses.dataclass(frozen=True)
class _Driver:
    """The state that a worker takes over from the process that started the stream."""

    folder: str
    code: Mapping[str, str]
    storage: Mapping[str, str] = dataclasses.field(repr=False)  # Ray may log arguments

    @staticmethod
    def this() -> "_Driver":
        """This process."""
        storage = {name: value for name, value in os.environ.items() if name.startswith(_STORAGE)}
        return _Driver(os.getcwd(), code_and_versions(), storage)

    def enter(self) -> None:
        """Makes the process of a worker like the driver."""
        # On a machine without that folder, a relative path is reported as missing.
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        os.environ |= self.storage
        theirs = code_and_versions()
        if name := first_difference(self.code, theirs):
            raise RunError(
                expected=f"the same {name} on all machines of the cluster, {self.code.get(name, 'none')[:20]}",
                found=f"{theirs.get(name, 'none')[:20]} on {socket.gethostname()}",
                fix="install the same versions of bertsmith and its packages there",
            )


class _Worker:
    """A worker that is like the process that started the stream."""

    def __init__(self, driver: _Driver, worker: type, arguments: tuple[Any, ...]) -> None:
        self.failure: RunError | None = None
        try:
            driver.enter()
        except RunError as error:  # of a constructor, Ray would pass on the text alone
            self.failure = error
        else:
            self.worker = worker(*arguments)

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        if self.failure is not None:
            raise self.failure
        yield from self.worker(table)


def _reader(driver: _Driver, read: Read) -> Read:
    def read_there(table: pa.Table) -> Iterator[pa.Table]:
        driver.enter()
        yield from read(table)

    return read_there


def _require_machine(ray: Any, stage: Stage) -> None:
    """Refuses workers that would wait forever for a machine with enough processors and GPUs."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
    if most < stage.threads:
        raise RunError(
            expected=f"a machine with {stage.threads} processors, the threads of a worker",
            found=f"at most {most}",
            fix="set OMP_NUM_THREADS to fewer threads",
        )
    if not any(node.get("CPU", 0) >= stage.threads and node.get("GPU", 0) >= stage.gpus for node in nodes):
        raise RunError(
            expected=f"a machine with {stage.threads} processors and a GPU, for a worker",
            found="none in the cluster",
            fix="use --device cpu",
        )


_ERROR_PARTS = ("expected", "found", "fix", "sentence")


def record_of(error: BertsmithError) -> dict[str, Any]:
    """An error as plain values for JSON: in its rows, a worker's error arrives after all results before it.

    >>> record_of(errors.InputError(expected="text", found="none", fix="name a file"))
    {'kind': 'InputError', 'expected': 'text', 'found': 'none', 'fix': 'name a file', 'sentence': ''}
    """
    record = {"kind": type(error).__name__} | {name: getattr(error, name) for name in _ERROR_PARTS}
    return record | ({"index": error.index} if isinstance(error, NotFiniteError) else {})


def error_of(record: dict[str, Any]) -> BertsmithError:
    """The error of a record.

    >>> error_of(record_of(errors.InputError(expected="text", found="none", fix="name a file")))
    InputError('expected text; found none; name a file')
    """
    parts = {name: str(record[name]) for name in _ERROR_PARTS}
    if record["kind"] == NotFiniteError.__name__:
        error = NotFiniteError(int(record["index"]))
        BertsmithError.__init__(error, **parts)
        return error
    kind: type[BertsmithError] = getattr(errors, record["kind"])
    return kind(**parts)


def another_model(names: Iterable[object]) -> RunError:
    """The error of a machine whose models are not those of the process that started the work."""
    return RunError(
        expected=f"the same model on every machine: {', '.join(map(str, names))}",
        found="another one at that path on one of them",
        fix="copy the model there",
    )


def raise_any(record: dict[str, Any] | None) -> None:
    """Raises the error of a record, if there is one."""
    if record is not None:
        raise error_of(record)


@contextlib.contextmanager
def _errors_in_words(ray: Any, *, resumes: bool) -> Iterator[None]:
    try:
        yield
    except (ray.exceptions.RayError, ray.exceptions.RayTaskError) as error:
        cause = getattr(error, "cause", None) or error.__cause__ or error
        if isinstance(cause, BertsmithError):
            # Ray adds lines of its own to the message.
            raise error_of(record_of(cause)) from None
        raise RunError(
            expected="workers that run to the end",
            found=_first_line(cause),
            fix="see that every machine has memory, disk space and the same input, then "
            + ("resume with --resume" if resumes else "start again"),
        ) from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
