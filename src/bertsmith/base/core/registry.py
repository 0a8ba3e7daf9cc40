"""Registries of classes and functions whose modules are imported when they are looked up.

A command then imports the one task, architecture or file format that it needs, not all of them:

>>> formats = Registry[type[Exception]]({"run": "base.core.errors:RunError", "config": "base.core.errors:ConfigError"})
>>> list(formats), formats["run"].__name__
(['run', 'config'], 'RunError')
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, cast

Entry = TypeVar("Entry")


def imported(name: str) -> object:
    """The class, function or value with a name such as "base.core.errors:RunError", below `bertsmith`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"bertsmith.{module}"), attribute)


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, in order."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)

    def __getitem__(self, name: str) -> Entry:
        return cast("Entry", imported(self._names[name]))

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry with this name; nothing is imported."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
