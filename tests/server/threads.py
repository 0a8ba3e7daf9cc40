"""An application behind a real socket, in a thread of this process."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn

from bertsmith.app.server.gate import Gate


@contextlib.contextmanager
def in_a_thread(app: Gate) -> Iterator[str]:
    """The address of an application while it runs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
            assert thread.is_alive()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
