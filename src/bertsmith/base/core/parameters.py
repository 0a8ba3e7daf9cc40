"""Parameters that several commands share, for the fields of their requests.

A field with a default is `dataclasses.field` of one of these, see `optional`; one without has it in its annotation::

    model: Annotated[str | Path, MODEL]
    engine: str = optional("local", ENGINE)
"""

import dataclasses
from pathlib import Path
from typing import Any

from bertsmith.base.core.requests import AS_IT_IS, COPIED
from bertsmith.base.core.settings import Help, help_field

MODEL = Help("model folder, checkpoint, hub id, starter or minilm", metavar="DIR", path="the model", kind=str)
TUNED_MODEL = Help("fine-tuned model: folder, run folder or hub id", metavar="DIR", path="the model", kind=str)
ALSO = Help(
    "another model for the same classification or regression, such as one that reads backward; the probabilities or "
    "numbers of all models are averaged; repeatable",
    library="further models for the same classification or regression; their probabilities or numbers are averaged",
    metavar="DIR",
    path="also",
    kind=list[str],
)
HEAD = Help(
    "your own head: a Python file, which is executed, and a subclass of bertsmith.OwnHead in it",
    library="your own head, a subclass of `bertsmith.OwnHead`",
    metavar="FILE:CLASS",
    kind=str,
    no_setting=True,
)
MAP_LABELS = Help(
    "rename a label in the files, such as 1=Claim (for entities: a type); repeatable",
    library="new names of the labels in the files",
    flag="--map",
    metavar="LABEL=NAME",
    kind=list[str],
)
TEXTS = Help(
    ".txt, .jsonl or .parquet files (also .gz, .zst), folders, or - for stdin",
    flag="TEXT...",
    path="the texts",
    kind=list[Path],
    address=AS_IT_IS,
)
# Not a path on the command line: - is stdin, and an address is read as it is.
TEXT_FILE = Help(
    "one text per line; or .csv, .tsv, .jsonl, .parquet (all also .gz, .zst); or - for stdin",
    flag="FILE",
    path="the file",
    kind=str,
)
COLUMN = Help("column of a table with the texts [detected]; with -, of JSON lines", metavar="NAME")
FORMAT = Help("format of the file [that of the model's task]", metavar="NAME")
LABELLED = Help(
    "labelled examples, in a format of the model's task",
    metavar="FILE",
    path="the data",
    kind=Path,
    address=COPIED,
    table=True,
)
ENGINE = Help(
    "where the work is done: local, in this process; ray, on a Ray cluster on this machine; ray://ADDRESS, on a "
    "cluster that is already running. The result is the same",
    metavar="local|ray[://ADDRESS]",
)
DEVICE = Help("auto, cpu, cuda or cuda:N")
PRECISION = Help("auto, fp32, bf16, fp16 (GPU only), fp64 or int8 (CPU only)")
WORKERS = Help("number of parallel processes; default: one per core")


def optional(default: Any, about: Help) -> Any:
    """A field of a request with a default, described by `about`."""
    return dataclasses.field(default=default, metadata={"about": about})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeSettings:
    """Where and in which numbers a model computes; the values are checked where the model is loaded."""

    device: str = optional("auto", DEVICE)
    precision: str = optional("fp32", PRECISION)
    products: str = help_field(
        "auto", "linear layers: packed (by oneDNN), plain (by PyTorch alone) or auto: packed if possible"
    )
