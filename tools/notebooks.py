"""Run the notebooks of docs/tutorials, each in a new process and an empty folder, and store their outputs in them.

Cells run in order and share their names, as in Jupyter, which is not needed. What is stored is what a cell prints, its
last expression (as text, and as HTML if it has that), and figures of `matplotlib.pyplot`, as SVG. The metadata of a
notebook (`bertsmith`) has the digest of the cells that made its outputs, and replacements for a quick run in the tests.

Usage: python tools/notebooks.py [--check] [NOTEBOOK ...]
    --check   stores nothing; fails where the outputs, apart from their numbers, are not the stored ones
"""

import argparse
import ast
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bertsmith.base.pages.charts import STYLE, svg_text

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
Output = dict[str, Any]


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The code cells of a notebook, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def sources_of(notebook: dict[str, Any]) -> list[str]:
    """The text of each code cell."""
    return ["".join(cell["source"]) for cell in code_cells(notebook)]


def digest_of(notebook: dict[str, Any]) -> str:
    """The SHA-256 of the code cells, which says whether outputs are those of the cells."""
    return hashlib.sha256("\0".join(sources_of(notebook)).encode()).hexdigest()


def quick_sources(notebook: dict[str, Any]) -> list[str]:
    """The text of each code cell, with the replacements of the notebook, which make it run in seconds."""
    text = "\0".join(sources_of(notebook))
    for slow, quick in notebook["metadata"]["bertsmith"]["quick"].items():
        if slow not in text:
            raise ValueError(f"expected {slow!r} in a cell; found no such text; correct the metadata of the notebook")
        text = text.replace(slow, quick)
    return text.split("\0")


def run_cells(sources: Sequence[str]) -> list[list[Output]]:
    """The outputs of each cell, run in the folder of the process."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [list(_outputs(source, number, namespace)) for number, source in enumerate(sources, start=1)]


def _outputs(source: str, number: int, namespace: dict[str, Any]) -> Iterator[Output]:
    tree = ast.parse(source)
    shown = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        shown = ast.Expression(tree.body.pop().value)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        value = None if shown is None else eval(compile(shown, f"cell {number}", "eval"), namespace)
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())}
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": _lines(value._repr_html_()), **data}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
    yield from _figures()


def _figures() -> Iterator[Output]:
    """The figures that a cell drew, which are closed."""
    if "matplotlib.pyplot" in sys.modules:
        import matplotlib.pyplot as plt

        for figure in map(plt.figure, plt.get_fignums()):
            figure.set_layout_engine("constrained")  # leaves room for labels, as Jupyter does
            for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
                patch.set_alpha(0)
            data = {"image/svg+xml": _lines(svg_text(figure)), "text/plain": ["<Figure>"]}
            yield {"data": data, "metadata": {}, "output_type": "display_data"}
        plt.close("all")


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run_in_new_process(sources: Sequence[str]) -> list[list[Output]]:
    """The outputs of each cell, run in a process and a folder of their own, on one core and offline."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run_in_new_folder, sources).result()


def _run_in_new_folder(sources: Sequence[str]) -> list[list[Output]]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({**STYLE, "svg.hashsalt": "notebook"})
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return run_cells(sources)


def stored(notebook: dict[str, Any], outputs: Sequence[Sequence[Output]]) -> str:
    """The text of a notebook file with these outputs."""
    for number, (cell, of_cell) in enumerate(zip(code_cells(notebook), outputs, strict=True), start=1):
        cell.update(outputs=of_cell, execution_count=number)
    notebook["metadata"]["bertsmith"]["sources"] = digest_of(notebook)
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def words_of(outputs: Sequence[Output]) -> str:
    """What is printed and shown, without numbers and pictures, which depend on the processor."""
    texts = [output.get("text") or output["data"]["text/plain"] for output in outputs]
    return " ".join(re.sub(r"[-+]?\d[\d.,]*", "#", "".join(map("".join, texts))).split())


def main() -> None:
    """Runs the given notebooks, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    differing = []
    for path in options.notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        start = time.monotonic()
        outputs = run_in_new_process(sources_of(notebook))
        print(f"{path.name}: {time.monotonic() - start:.0f} s", flush=True)
        if options.check:
            pairs = zip(code_cells(notebook), outputs, strict=True)
            cells = [n for n, (cell, of_cell) in enumerate(pairs, 1) if words_of(cell["outputs"]) != words_of(of_cell)]
            differing += [f"{path.name}: cell {number}" for number in cells]
        else:
            path.write_text(stored(notebook, outputs), encoding="utf-8")
    sys.exit("outputs that are not the stored ones: " + ", ".join(differing) if differing else 0)


if __name__ == "__main__":
    main()
