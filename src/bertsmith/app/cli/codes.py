"""Commands for sequences of codes: events of subjects as a vocabulary and visits, models of them, predictions."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bertsmith.app.cli.options import JsonOption, print_json, say
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.recipes.codes.request import BuildCodesRequest


def build(request: "BuildCodesRequest", json: JsonOption = False) -> None:
    """Build a folder of codes from tables of events: a vocabulary, the visits of each subject, and perhaps a tree.

    Prints the subjects, their visits, and the codes of each kind. Events of a subject at one time form a visit.
    """
    from bertsmith.recipes.codes.folder import build_codes

    summary = call(build_codes, request)
    if json:
        print_json(summary)
    else:
        say(*_lines(summary), f"folder: {request.out}")


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """The summary of a folder of codes, a line per kind of codes."""
    once = summary["subjects_with_one_visit"]
    yield f"{counted(summary['subjects'], 'subject')}, {once:,} with one visit; {counted(summary['visits'], 'visit')}"
    for kind, numbers in summary["kinds"].items():
        line = f"{kind}: {counted(numbers['codes'], 'code')}, {numbers['occurrences']:,} times in visits"
        if numbers["dropped_codes"]:
            line += f"; {numbers['dropped_codes']:,} too rare, {numbers['dropped_occurrences']:,} times"
        if numbers["outside_the_tree"]:
            line += f"; {numbers['outside_the_tree']:,} not in the tree"
        yield line
    if summary["tree_nodes"]:
        nodes = counted(summary["tree_nodes"], "node")
        yield f"tree: {nodes}, the codes of the vocabulary that are in it and their ancestors"
