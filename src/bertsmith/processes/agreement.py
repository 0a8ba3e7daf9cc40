"""What all processes of a training must have in common: code, versions of packages, settings, digests of inputs.

Processes that differ would train on different rows, or exchange gradients of different models, and no loss would
show it.
"""

from collections.abc import Mapping
from typing import Any

from bertsmith.errors import RunError
from bertsmith.processes.code import digest_of_code, versions
from bertsmith.processes.distributed import from_all_ranks
from bertsmith.runtime import Rank


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
