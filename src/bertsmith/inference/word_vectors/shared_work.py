"""Several threads that train the same tables.

The threads read and write the vectors without waiting for each other (Niu and others, "Hogwild!", 2011), as in the
original programs. Few updates are lost, because two threads rarely meet at a word, but which ones depends on the
moment: with more than one thread the result is not repeatable.
"""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")
_WAITING = 2  # pieces of work per thread that are held in memory


def in_threads(learn: Callable[[Work], Result], work: Iterable[Work], threads: int) -> Iterator[Result]:
    """The results of `learn` for each piece of work, in order.

    With one thread they are computed one after the other, here.

    Args:
        threads: how many compute at the same time.
    """
    if threads == 1:
        yield from map(learn, work)
        return
    left = iter(work)
    with ThreadPoolExecutor(threads) as pool:
        running: collections.deque[Future[Result]] = collections.deque(
            pool.submit(learn, item) for item in itertools.islice(left, _WAITING * threads)
        )
        try:
            while running:
                yield running.popleft().result()
                running.extend(pool.submit(learn, item) for item in itertools.islice(left, 1))
        finally:
            for future in running:
                future.cancel()
