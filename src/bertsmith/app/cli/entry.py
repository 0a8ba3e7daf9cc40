"""The entry point of the process: runs the command line, and ends quietly on Ctrl-C at any moment.

Python turns Ctrl-C into a KeyboardInterrupt wherever the program happens to be. In the first seconds that is an import:
a compiled module may turn the exception into another error, and a bare `except` in a package may swallow it. An import
writes nothing that could be left half done, so there the process ends at once, with exit code 130. Everywhere else the
exception is raised as usual, so that files are closed and temporary ones removed.
"""

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import Any

STOPPED = 130  # 128 and the number of SIGINT, as shells report it
_IMPORTING = "<frozen importlib._bootstrap"


def main() -> None:
    """Runs the command line of this process and exits with its code."""
    _open_closed_streams()
    try:
        # Ignored, for example, in a background job of a script; then it stays ignored.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _stop)
            sys.unraisablehook = _stop_if_swallowed
        from bertsmith.app.cli.app import main as run

        run()
    except KeyboardInterrupt:
        _leave()
    finally:
        if signal.getsignal(signal.SIGINT) is _stop:
            # Python shuts down: there is nothing left to interrupt.
            signal.signal(signal.SIGINT, lambda number, frame: _leave())


def _open_closed_streams() -> None:
    """Opens what the caller has closed of stdin, stdout and stderr, as a service manager may, onto nothing.

    Otherwise the first files that are opened get their numbers. Only stdin stays None for Python, so that a command
    that reads it can say that it is closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the end
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _stop(number: int, frame: FrameType | None) -> None:
    """Handles SIGINT: leaves at once during an import, and raises KeyboardInterrupt otherwise."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _stop_if_swallowed(unraisable: Any) -> None:
    """Leaves if Ctrl-C came where Python reports exceptions instead of raising them, such as in a `__del__`."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(unraisable)


def _leave() -> None:
    """Ends the process without running anything else."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed, or interrupted while it was written
            stream.flush()
    os._exit(STOPPED)
