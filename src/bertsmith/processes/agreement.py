"""What all processes of a training must have in common: code, versions of packages, settings, digests of inputs.

Processes that differ would train on different rows, or exchange gradients of different models, and no loss would
show it.
"""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from bertsmith import __version__
from bertsmith.errors import RunError
from bertsmith.files import digest_bytes
from bertsmith.processes.distributed import from_all_ranks
from bertsmith.runtime import Rank

# Packages whose version may affect the numbers of a run.
VERSIONS_OF = ("torch", "numpy", "pyarrow")


def versions() -> dict[str, str]:
    """The versions of this package and of those that may affect the numbers of a run."""
    return {"bertsmith": __version__, **{name: metadata.version(name) for name in VERSIONS_OF}}


def digest_of_code() -> str:
    """The digest of the Python files of this package."""
    root = Path(__file__).parent.parent
    files = sorted(root.rglob("*.py"))
    return digest_bytes(b"".join(f"{file.relative_to(root)}\0".encode() + file.read_bytes() for file in files))


def require_equal(settings: Mapping[str, Any], digests: Mapping[str, str], rank: Rank) -> None:
    """Checks that all processes have the same code, versions, settings and digests; with one process there is no check.

    Args:
        settings: plain values, by dotted name.
        digests: those of the inputs, by name.

    Raises:
        RunError: they differ; on every rank the message names the first process and value.
    """
    if rank.count == 1:
        return
    inputs = {f"digest of {name}": digest for name, digest in digests.items()}
    everyone = from_all_ranks({"code": digest_of_code(), **versions(), **settings, **inputs}, rank)
    for index, theirs in enumerate(everyone):
        for name in sorted(theirs.keys() | everyone[0].keys()):
            first, other = everyone[0].get(name), theirs.get(name)
            if first != other:
                raise RunError(
                    expected=f"the same {name} in all processes",
                    found=f"{str(first)[:60]} in process 0, {str(other)[:60]} in process {index}",
                    fix="start all of them with the same command, code and files",
                )
