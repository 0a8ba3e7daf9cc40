"""The parameters of the commands for sequences of codes.

=================  =====================================================================================
codes build        tables of events, and a tree over their codes, to a folder: a vocabulary and visits
codes train        such a folder to a model of visits (G-BERT), compared with simple baselines
codes predict      a model and events to the codes that each subject is likely to have
codes anomalies    a model and events to how improbable each visit is
codes embed        a model and events to a file with a vector per subject
=================  =====================================================================================
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import Help, help_field, require_number
from bertsmith.recipes.codes.tables import EventSettings

EVENTS = Help(
    "tables of events with subject, time, code and perhaps kind: .csv, .tsv, .jsonl, .parquet (also .gz, .zst); or "
    "visits as JSON lines",
    flag="EVENTS...",
    path="the events",
    kind=list[Path],
)


@dataclasses.dataclass(frozen=True)
class BuildCodesRequest(Request, EventSettings):
    """Tables of events, and how they become a vocabulary of codes and visits."""

    events: Annotated[Sequence[Path | str], EVENTS]
    out: Annotated[
        Path | str, Help("the folder of codes; must not exist yet", metavar="DIR", path="the folder", kind=Path)
    ]
    _: dataclasses.KW_ONLY
    tree: Sequence[Path | str] = help_field(
        (),
        "a tree over the codes: a table with code, parent and perhaps kind; an empty parent, or ROOT, is the top; "
        "repeatable",
        metavar="FILE",
        path="a tree",
        kind=list[Path],
    )
    minimum_count: int = help_field(1, "codes in fewer visits are unknown", least=1, most=10**9)
    replace: bool = help_field(False, "replace DIR when the new folder is complete")

    def __post_init__(self) -> None:
        super().__post_init__()
        EventSettings.__post_init__(self)
        require_number("minimum_count", self.minimum_count, least=1)
