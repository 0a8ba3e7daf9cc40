"""Runs commands as on a system that lacks what `tests/test_other_systems.py` says, on the standard input as JSON.

Only modules of bertsmith see that system. Python itself and other packages keep the one that they run on.
"""

import builtins
import io
import json
import os
import sys
import types
from typing import Any

ASKED: dict[str, Any] = {}


def asks_for_bertsmith(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("bertsmith")


class OtherModule(types.ModuleType):
    """A module without what the other system lacks, and with what differs there."""

    def __init__(self, name: str, lacking: list[str], differing: dict[str, Any]) -> None:
        super().__init__(name)
        vars(self).update(_real=sys.modules[name], _lacking=frozenset(lacking), _differing=differing)

    def __getattr__(self, name: str) -> Any:
        if asks_for_bertsmith(sys._getframe(1)):
            if name in self._lacking:
                raise AttributeError(f"module '{self.__name__}' has no attribute '{name}' on {ASKED['system']}")
            if name in self._differing:
                return self._differing[name]
        return getattr(self._real, name)


def library_of_windows(name: str | None, *arguments: Any) -> None:
    raise TypeError("LoadLibrary() argument 1 must be str, not None")


def imports(name: str, *arguments: Any, **named: Any) -> Any:
    if name in ASKED["modules"] and asks_for_bertsmith(sys._getframe(1)):
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    return real_import(name, *arguments, **named)


def opens(path: Any, *arguments: Any, **named: Any) -> Any:
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") == "pathlib":
        frame = frame.f_back
    if str(path).startswith(("/proc/", "/sys/")) and asks_for_bertsmith(frame):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return real_open(path, *arguments, **named)


if __name__ == "__main__":
    ASKED |= json.load(sys.stdin)

    import ctypes
    import signal
    import socket

    import torch  # noqa: F401 - it reads the system that it runs on

    real_import, real_open = builtins.__import__, builtins.open
    builtins.__import__ = imports
    builtins.open = io.open = opens
    differing: dict[str, dict[str, Any]] = {"os": {"name": "nt"}, "ctypes": {"CDLL": library_of_windows}}
    for module in (os, ctypes, signal, socket):
        name = module.__name__
        values = differing.get(name, {}) if ASKED["system"] == "win32" else {}
        sys.modules[name] = OtherModule(name, ASKED["names"].get(name, []), values)

    exec(ASKED["program"], {"__name__": "bertsmith_program"})
