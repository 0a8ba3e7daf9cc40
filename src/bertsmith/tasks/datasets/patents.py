"""Reader for patents with the subclasses that they belong to, in the layouts of the public data.

* USPTO-2M: JSON lines with `Title`, `Abstract`, `Subclass_labels` (a list) and `No`; the text is title and abstract.
* Claims: a table with a column of claims (`claims`, `claim`, `first_claim` or `text`) and one of codes (`cpc_ids`,
  `ipc_ids`, `labels` and the like), a list or separated by commas, semicolons or |. The text is the first claim.

Codes of CPC and IPC are cut to the subclass, `H04L 12/56` to `H04L`.

Source: Li et al. (2018), "DeepPatent", for USPTO-2M; Lee and Hsiang (2020), "Patent classification by fine-tuning BERT
language model" (PatentBERT), for first claims and subclasses.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.cells import Row, first_known, show_columns
from bertsmith.tasks.datasets.examples import ExampleFile, TextExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import parse_json
from bertsmith.text.documents.encodings import UTF_8

CLAIM_COLUMNS = ("first_claim", "claims", "claim", "text")
CODE_COLUMNS = "subclass_labels cpc_ids ipc_ids cpc_codes ipc_codes cpc ipc codes subclasses labels label".split()
ID_COLUMNS = ("no", "patent_id", "id", "number", "publication_number")
_TITLE, _ABSTRACT = "title", "abstract"
_FIRST = re.compile(r"\s*(?:(?:what is claimed is|we claim|i claim|claims?)\s*:?\s*)?(?:1\s*[.)]\s+)?", re.IGNORECASE)
_SECOND = re.compile(r"(?:^|[.;]\s+|\n\s*)2\s*[.)]\s+(?=[A-Z])")
_CODE = re.compile(r"([A-HY]\d\d[A-Z])(?:\s*\d.*)?")


def first_claim(claims: str) -> str:
    """The first of some claims, without its number.

    >>> first_claim("1. A boat with a sail. 2. The boat of claim 1, with 2. masts.")
    'A boat with a sail.'
    >>> first_claim("What is claimed is: 1. A method of claim 1.5 volts.")
    'A method of claim 1.5 volts.'
    """
    rest = claims[_FIRST.match(claims).end() :]  # type: ignore[union-attr]
    second = _SECOND.search(rest)
    if second is None:
        return rest.strip()
    end = second.start() + (1 if rest[second.start()] in ".;" else 0)
    return rest[:end].strip()


def subclass_of(code: str) -> str:
    """The subclass of a code of CPC or IPC; any other label is kept.

    >>> subclass_of("H04L12/56"), subclass_of("A61K 31/00"), subclass_of("H04L"), subclass_of("H04"), subclass_of("x")
    ('H04L', 'A61K', 'H04L', 'H04', 'x')
    """
    match = _CODE.fullmatch(code)
    return match[1] if match else code


def read_patents(path: Path, *, gold: bool = True, encoding: str = UTF_8) -> ExampleFile:
    """The patents of a file; a row without text is skipped and listed."""
    examples, skipped = [], []
    for number, row in enumerate(read_table(path, encoding=encoding)):
        named = {name.strip().lower().replace(" ", "_"): name for name in row.values}
        text = _text_of(path, row, named)
        if not text:
            skipped.append((row.location, "no text"))
            continue
        codes = _only(path, row, named, CODE_COLUMNS, "codes") if gold else ""
        id_column = first_known(named, ID_COLUMNS)
        examples.append(
            TextExample(
                id=(row.values[id_column] if id_column else "") or str(number),
                first=text,
                label=_labels(row.values[codes], row.location) if codes else None,
                location=row.location,
            )
        )
    return ExampleFile.of(
        examples, skipped, expected=f"patents with text in {quoted(path)}", fix="name a file that holds some"
    )


def _text_of(path: Path, row: Row, named: dict[str, str]) -> str:
    if not any(name in named for name in CLAIM_COLUMNS) and _ABSTRACT in named:
        parts = [row.values[named[name]].strip() for name in (_TITLE, _ABSTRACT) if name in named]
        return " ".join(filter(None, parts))
    return first_claim(row.values[_only(path, row, named, CLAIM_COLUMNS, "claims")])


def _only(path: Path, row: Row, named: dict[str, str], known: Sequence[str], kind: str) -> str:
    result = first_known(named, known)
    if result is None:
        raise InputError(
            expected=f"a column of {kind} in {quoted(path)}: {', '.join(known[:4])} ...",
            found=show_columns(row.values),
            fix="rename the column, or use --task multi-label with --text-column and --label-column",
        )
    return result


def _labels(cell: str, location: str) -> tuple[str, ...]:
    cell = cell.strip()
    parts = parse_json(cell, location) if cell.startswith("[") else re.split(r"[,;|]", cell)
    result = tuple(dict.fromkeys(subclass_of(str(part).strip()) for part in parts if str(part).strip()))
    if not result:
        raise InputError(expected=f"codes in {location}", found="none", fix="fill the cell or remove the row")
    return result
