"""Cancellation: computing that ends when nobody waits for its result any more.

One call of a model is many passes through its encoder, where a text is long or there are many. A pass cannot be
interrupted; before the next one it is asked whether there is still somebody to answer.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from torch import nn


class ComputeCancelledError(Exception):
    """Nobody waits for what is computed."""


@contextlib.contextmanager
def cancelled_unless(encoder: nn.Module, is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Within this block, passes of this thread through an encoder begin only while somebody waits.

    Raises:
        ComputeCancelledError: from the pass that would have been the first in vain.
    """
    thread = threading.get_ident()

    def ask(*_: object) -> None:
        if threading.get_ident() == thread and not is_wanted():
            raise ComputeCancelledError

    hook = encoder.register_forward_pre_hook(ask)
    try:
        yield
    finally:
        hook.remove()
