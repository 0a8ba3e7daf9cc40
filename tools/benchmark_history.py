"""A page of the nightly benchmarks: how many times as fast ours is as the peer, day by day, the newest first.

    python tools/benchmark_history.py FOLDER

FOLDER has a folder for each day, with its result files, as the workflow `nightly` keeps them on the branch
`benchmark-history`. The page is FOLDER/README.md. Runners differ in their processors, so compare rows of the same one.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RATIO = {"median", "lowest", "highest", "rounds"}  # what `ratio_summary` of benchmarks/harness.py returns


def ratios(content: Any, name: str = "") -> Iterator[tuple[str, dict[str, float]]]:
    """Every ratio of a result, with the keys that lead to it.

    >>> list(ratios({"sizes": {"8000": {"median": 4.0, "lowest": 3.2, "highest": 6.1, "rounds": 5}}, "size": "base"}))
    [('sizes, 8000', {'median': 4.0, 'lowest': 3.2, 'highest': 6.1, 'rounds': 5})]
    """
    if not isinstance(content, dict):
        return
    if content.keys() == RATIO:
        yield name, content
    for key, value in content.items():
        yield from ratios(value, f"{name}, {key}".removeprefix(", "))


def page(folder: Path) -> str:
    """The text of the page, in Markdown: a table for each benchmark."""
    tables: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for path in sorted(folder.glob("[0-9]*/*.json"), key=lambda path: (path.parent.name, path.name), reverse=True):
        result = json.loads(path.read_text(encoding="utf-8"))
        script = result["benchmark"].partition("_amd-")[0].partition("_intel-")[0]
        described = result["machine"]
        row = (path.parent.name, f"{described['processor']}, {described['cores']} cores")
        tables.setdefault(script, {})[row] = {
            name: f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"
            for name, ratio in ratios(result)
        }
    parts = [
        "# Benchmarks, night by night\n",
        "How many times as fast as the peer: the median and the range of the rounds.\n",
    ]
    for script, rows in sorted(tables.items()):
        names = list(dict.fromkeys(name for cells in rows.values() for name in cells))
        lines = [["day", "processor", *names], ["---"] * (2 + len(names))]
        lines += [[*row, *(cells.get(name, "") for name in names)] for row, cells in rows.items()]
        parts.append("\n".join([f"## {script}\n", *(f"| {' | '.join(line)} |" for line in lines), ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    history = Path(sys.argv[1])
    (history / "README.md").write_text(page(history), encoding="utf-8")
