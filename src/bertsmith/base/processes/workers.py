"""A pool of worker processes that end with the process that started them."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bertsmith.base.core.errors import BertsmithError


@contextlib.contextmanager
def worker_pool(
    workers: int, error: type[BertsmithError], initialize: Callable[..., None], *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, each of which first calls `initialize` with the arguments.

    Ctrl-C, which reaches every process, does not stop the workers: the parent decides.

    Raises:
        BertsmithError: of the class `error`; a worker was killed.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(initialize, arguments))
    try:
        yield pool
    except BrokenProcessPool:
        raise error(
            expected=f"{workers} running worker processes",
            found="one that was killed, perhaps because memory ran out",
            fix="use fewer (--workers 1)",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(initialize: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Prepares a worker, and makes it exit when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    initialize(*arguments)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
