"""Replaces the models of a running server by what is in their folders now.

The new models are loaded in a thread next to the old ones. Requests that begin afterwards are answered by the new
ones; those that have begun are finished by the models that they began with. If loading fails, the old ones stay.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bertsmith.app.server.refusal import RefusalError
from bertsmith.app.server.service import Service
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import tell, warn

if TYPE_CHECKING:
    from bertsmith.app.library.loading import Served

    Load = Callable[[Mapping[str, Served]], Mapping[str, Served]]

LOADING, DONE, FAILED = "loading", "done", "failed"


class Reload:
    """The reloads of a server. Call its methods from the event loop.

    Args:
        service: whose models are replaced.
        load: returns the new models, given those that are served, or raises an error to keep these.

    Attributes:
        state: of the last reload, for /health: "loading", "done" or "failed", and since when; empty before the first.
    """

    def __init__(self, service: Service, load: "Load") -> None:
        self._service, self._load = service, load
        self._running: asyncio.Task[None] | None = None
        self.state: dict[str, str] = {}

    def begin(self) -> "asyncio.Task[None]":
        """Begins a reload; the task raises RefusalError if it fails. The log has every failure.

        Raises:
            RefusalError: 409, one is running.
        """
        if self._running is not None and not self._running.done():
            raise RefusalError(409, "the models are being loaded; try again when /health says that it is done")
        self._running = asyncio.create_task(self._run())
        self._running.add_done_callback(_log)
        return self._running

    async def _run(self) -> None:
        self._set(LOADING)
        try:
            models = await asyncio.to_thread(self._load, self._service.models)
        except (BertsmithError, OSError, MemoryError) as error:
            sentence = str(error) or type(error).__name__
            warn(f"reload failed, the old models stay: {sentence}")
            raise RefusalError(422, f"the old models stay: {sentence}") from None
        else:
            self._service.replace(models)
            self._set(DONE)
            tell(f"reloaded {', '.join(models)}")
        finally:
            if self.state["state"] == LOADING:
                self._set(FAILED)

    def _set(self, state: str) -> None:
        since = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self.state = {"state": state, "since": since}


def _log(reload: "asyncio.Task[None]") -> None:
    """Logs a mistake of ours with its traceback; after SIGHUP no request waits for it."""
    error = None if reload.cancelled() else reload.exception()
    if error is not None and not isinstance(error, RefusalError):
        context = {"message": "reload failed, the old models stay", "exception": error}
        reload.get_loop().call_exception_handler(context)
