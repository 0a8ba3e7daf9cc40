"""The code of a process and the versions of the packages that it computes with, to compare with other processes."""

import functools
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from bertsmith.base.core.version import __version__
from bertsmith.base.storage.files import digest_bytes

# Packages whose version may affect the numbers of a run.
VERSIONS_OF = ("torch", "numpy", "pyarrow")


def versions() -> dict[str, str]:
    """The versions of the packages that may affect the numbers of a run, with this one; "none" of what is missing."""
    numbers = {"bertsmith": __version__}
    for name in VERSIONS_OF:
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            numbers[name] = "none"
    return numbers


def code_and_versions() -> dict[str, str]:
    """The digest of the code of this package, and the versions."""
    return {"code": digest_of_code(), **versions()}


def first_difference(first: Mapping[str, object], other: Mapping[str, object]) -> str | None:
    """The first name, in alphabetical order, whose value differs or that one of two records lacks; None if none does.

    >>> first_difference({"code": "a", "torch": "2.13"}, {"code": "a", "numpy": "2.4", "torch": "2.13"})
    'numpy'
    """
    return next((name for name in sorted(first.keys() | other.keys()) if first.get(name) != other.get(name)), None)


@functools.cache
def digest_of_code() -> str:
    """The digest of the Python files of this package."""
    root = Path(__file__).parents[2]
    files = sorted(root.rglob("*.py"))
    return digest_bytes(b"".join(f"{file.relative_to(root)}\0".encode() + file.read_bytes() for file in files))
