"""The folder of `bertsmith codes build`: a vocabulary of codes, visits, and perhaps a tree.

::

    DIR/codes.tsv       the codes, the most frequent ones first
    DIR/tree.tsv        their ancestors, if there is a tree
    DIR/visits.jsonl    the subjects with their visits; codes that are too rare for the vocabulary are kept in them
    DIR/codes.json      what there is of each, and the digests of the inputs
"""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import (
    FORMAT,
    FolderKind,
    atomic_folder,
    digest_file,
    read_json,
    require_file,
    require_format,
    require_outside,
    require_replaceable,
    write_json,
)
from bertsmith.recipes.codes.request import BuildCodesRequest
from bertsmith.recipes.codes.tables import read_subjects, read_tree
from bertsmith.text.codes import tree as trees
from bertsmith.text.codes import vocabulary as vocabularies
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.visits import Subject, all_codes, read_visits, write_visits
from bertsmith.text.codes.vocabulary import CodeVocabulary

VISITS, SUMMARY = "visits.jsonl", "codes.json"
CODES_FOLDER = FolderKind("a folder of codes", ((vocabularies.FILE, VISITS, SUMMARY),))


@dataclasses.dataclass(frozen=True)
class CodesFolder:
    """The content of a folder of codes; the tree is empty if there is none."""

    vocabulary: CodeVocabulary
    tree: CodeTree
    subjects: list[Subject]
    summary: dict[str, Any]


@takes(BuildCodesRequest)
def build_codes(request: BuildCodesRequest) -> dict[str, Any]:
    """The summary of a new folder of codes: subjects, visits, the codes of each kind, and what was dropped.

    Raises:
        BertsmithError: a table, a row or a setting is invalid; the message says which.
    """
    out = Path(request.out)
    inputs = [*request.events, *request.tree]
    require(bool(request.events), expected="a table of events", found="none", fix="name one")
    require_outside(out, inputs)
    replace = CODES_FOLDER if request.replace else False
    require_replaceable(out, replace)
    subjects, descriptions = read_subjects(request.events, request)
    tree, of_nodes = read_tree(request.tree, request.encoding)
    counts = Counter(all_codes(subjects))
    for key in counts:
        if text := of_nodes.get(key, of_nodes.get(("", key[1]), "")):
            descriptions.setdefault(key, text)
    vocabulary = CodeVocabulary.of(subjects, minimum_count=request.minimum_count, descriptions=descriptions)
    require(
        bool(vocabulary.codes),
        expected=f"codes in at least {counted(request.minimum_count, 'visit')}",
        found="none",
        fix="lower --minimum-count",
    )
    own_tree = tree.part(code.key for code in vocabulary.codes)
    visits = sum(len(subject.visits) for subject in subjects)
    summary: dict[str, Any] = {
        "format": FORMAT,
        "subjects": len(subjects),
        "subjects_with_one_visit": sum(len(subject.visits) == 1 for subject in subjects),
        "visits": visits,
        "codes": counts.total(),
        "kinds": {kind: _of_kind(kind, counts, vocabulary, own_tree) for kind in sorted({kind for kind, _ in counts})},
        "minimum_count": request.minimum_count,
        "tree_nodes": len(own_tree),
        "vocabulary": vocabulary.digest,
        "inputs": {str(path): digest_file(Path(path)) for path in inputs},
    }
    if len(tree) and not len(own_tree):
        warn("no code of the events is in the tree; do its codes have the same names and kinds?")
    with atomic_folder(out, replace=replace) as partial:
        vocabulary.save(partial / vocabularies.FILE)
        if len(own_tree):
            own_tree.save(partial / trees.FILE)
        write_visits(partial / VISITS, subjects)
        write_json(partial / SUMMARY, summary)
    return summary


def _of_kind(kind: str, counts: Counter[Any], vocabulary: CodeVocabulary, tree: CodeTree) -> dict[str, int]:
    """The numbers about the codes of a kind."""
    keys = [key for key in counts if key[0] == kind]
    dropped = [key for key in keys if key not in vocabulary.index]
    known = [key for key in keys if key in vocabulary.index]
    return {
        "codes": len(known),
        "occurrences": sum(counts[key] for key in known),
        "dropped_codes": len(dropped),
        "dropped_occurrences": sum(counts[key] for key in dropped),
        "outside_the_tree": sum(tree.node(key) is None for key in known) if len(tree) else 0,
    }


def read_codes_folder(path: Path | str) -> CodesFolder:
    """The content of a folder that `build_codes` wrote.

    Raises:
        BertsmithError: there is no such folder, or it is damaged.
    """
    folder = Path(path)
    require_file(folder / SUMMARY, "the summary of a folder of codes")
    summary = read_json(folder / SUMMARY)
    require(
        isinstance(summary, dict), expected=f"an object in '{folder / SUMMARY}'", found="none", fix="build it again"
    )
    require_format(summary, folder / SUMMARY)
    require_file(folder / VISITS, "the visits of a folder of codes")
    vocabulary = CodeVocabulary.load(folder)
    require(
        vocabulary.digest == summary.get("vocabulary"),
        expected=f"the vocabulary of '{folder}' as it was built",
        found="another one",
        fix="build the folder again",
    )
    tree = CodeTree.load(folder / trees.FILE) if (folder / trees.FILE).exists() else CodeTree({})
    return CodesFolder(vocabulary, tree, list(read_visits(folder / VISITS)), summary)
