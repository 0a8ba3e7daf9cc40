"""Files that tests read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def file_with(path: Path, content: str | bytes) -> Path:
    """The path, now that of a file with this content, a text in UTF-8; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def file_of_records(path: Path, records: Iterable[Any]) -> Path:
    """The path, now that of a file of JSON lines."""
    return file_with(path, "".join(json.dumps(record) + "\n" for record in records))
