"""The text of a page from a notebook (nbformat 4): its Markdown, its code, and what it printed and drew."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> str:
    """The page in Markdown.

    Raises:
        SystemExit: the file is no notebook, or one of its outputs is an error.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return "\n\n".join(part for cell in cells for part in _parts(cell, path)) + "\n"
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"expected a notebook; found {error!r} in '{path}'; save it as nbformat 4")


def _parts(cell: dict[str, Any], path: Path) -> Iterator[str]:
    source = _text(cell["source"])
    if cell["cell_type"] == "markdown":
        # Jupyter's anchors keep the capitals of a heading.
        yield re.sub(r"(\]\([^)#]*)(#[^)]*\))", lambda link: link[1] + link[2].lower(), source)
    elif cell["cell_type"] == "code" and source:
        yield _fence(source, "python")
        for output in cell["outputs"]:
            yield _shown(output, path)


def _shown(output: dict[str, Any], path: Path) -> str:
    """An output: text as it is, a picture or a table as such."""
    if output["output_type"] == "error":
        sys.exit(f"expected a notebook that ran; found {output['ename']} in the outputs of '{path}'; run it again")
    if output["output_type"] == "stream":
        return _fence(_text(output["text"]).rstrip(), "text")
    data = output["data"]
    if "image/svg+xml" in data:  # a blank line would end the block
        lines = [line for line in _text(data["image/svg+xml"]).splitlines() if line.strip()]
        return "\n".join(["<figure>", *lines[[line.startswith("<svg") for line in lines].index(True) :], "</figure>"])
    if "image/png" in data:
        return f"![output](data:image/png;base64,{_text(data['image/png']).replace(chr(10), '')})"
    if table := re.search(r"<table.*</table>", _text(data.get("text/html", "")), re.DOTALL):  # its text is cut
        lines = re.sub(r"\n\s*\n", "\n", table[0]).replace('border="1" class="dataframe"', 'class="docutils"')
        return f'<div class="table-wrapper container">\n{lines}\n</div>'  # which scrolls where the page is narrow
    return _fence(_text(data["text/plain"]), "text")


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def _fence(text: str, language: str) -> str:
    marks = "~" * max(3, *(len(line) + 1 for line in text.splitlines() if set(line) == {"~"}), 3)
    return f"{marks}{language}\n{text}\n{marks}"
