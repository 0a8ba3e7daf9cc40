"""Counts of the package: lines, entries, circles, modules, and the functions that common requests pass.

    python tools/house.py [--table | --list "functions, fine-tuning one seed"]

`--table` prints the Markdown table of docs/house.md; `--list` prints what one of the counts of functions or modules
counts, by module. Functions are counted with `sys.setprofile` in processes of their
own: those of the package that are called at least once, in any thread, while a warm model labels a text, a server of
the library answers `/predict`, or `finetune` trains one seed. The model is the starter, fine-tuned on 40 lines.
"""

import argparse
import ast
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "bertsmith"
MODULES = {
    ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(SOURCE.rglob("*.py"))
}
COUNTED = """
import json, sys, threading
from pathlib import Path
import bertsmith
root, calls = str(Path(bertsmith.__file__).parent), set()
def listed():
    return json.dumps(sorted(f"{str(Path(file).relative_to(root))}: {name}" for file, name in calls))
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
        calls.add((code.co_filename, code.co_qualname))
def called(action):
    calls.clear()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return listed()
train, out = Path(sys.argv[1]) / "train.csv", Path(sys.argv[1]) / "run"
def finetune(folder):
    bertsmith.finetune("starter", "classification", folder, train=train, dev=train, seeds=1, epochs=1, device="cpu")
"""
PROGRAMS = {
    "functions, fine-tuning one seed": """
first, second = (Path(sys.argv[1]) / name for name in ("first", "second"))
finetune(first)
print(called(lambda: finetune(second)))
""",
    "functions, warm text to label": """
model = bertsmith.load(out, device="cpu")
model.classify(["good day"])
print(called(lambda: model.classify(["a good day"])))
""",
    "functions, a request to /predict": """
import asyncio
sys.path.insert(0, sys.argv[2])
from server.asgi import Client, running
from bertsmith.app.server.app import create_app
app = create_app({"spam": bertsmith.load(out, device="cpu")})
async def requests():
    async with running(app) as client:
        await client.post("/predict", {"texts": ["good day"]})
        calls.clear()
        await client.post("/predict", {"texts": ["a good day"]})
threading.setprofile(note)
sys.setprofile(note)
asyncio.run(requests())
sys.setprofile(None)
print(listed())
""",
    "modules that finetune imports": """
finetune(Path(sys.argv[1]) / "third")
print(json.dumps(sorted(name for name in sys.modules if name.startswith("bertsmith"))))
""",
}


def imports(file: Path) -> Iterator[str]:
    """The modules of the package that a file imports, for types too."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in names]
        yield from (name for name in names if name in MODULES)


def circles() -> list[list[str]]:
    """Groups of modules that import each other."""
    graph = {module: set(imports(file)) - {module} for module, file in MODULES.items()}
    reached = {module: _reached(module, graph) for module in graph}
    groups = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
    return [sorted(group) for group in groups if group]


def _reached(module: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    left = list(graph[module])
    while left:
        following = left.pop()
        if following not in reached:
            reached.add(following)
            left += graph[following]
    return reached


@contextlib.contextmanager
def trained() -> Iterator[Path]:
    """A folder with the training examples, and the run that the programs of `PROGRAMS` read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [f"{word} day {number},{word}" for number in range(20) for word in ("good", "bad")]
        (folder / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
        output_of("finetune(out)", folder)
        yield folder


def output_of(program: str, folder: Path) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", COUNTED + program, str(folder), str(ROOT / "tests")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if result.returncode:
        raise SystemExit(f"house: expected a list; found {result.stderr[-2000:]}")
    return result.stdout


def listed(label: str, folder: Path) -> list[str]:
    """What a program of `PROGRAMS` counts, in a folder of `trained`."""
    names: list[str] = json.loads(output_of(PROGRAMS[label], folder).splitlines()[-1])
    return names


def counts() -> dict[str, int]:
    """All counts by name."""
    shown = subprocess.run(
        [sys.executable, "-m", "bertsmith", "finetune", "--help"], capture_output=True, text=True, check=True
    ).stdout
    numbers = {
        "entries at the top of the package": len([path for path in SOURCE.iterdir() if _is_entry(path)]),
        "files": len(MODULES),
        "lines in src/": sum(len(file.read_text(encoding="utf-8").splitlines()) for file in MODULES.values()),
        "import circles, for types too": len(circles()),
        "lines of finetune --help": len(shown.splitlines()),
    }
    with trained() as folder:
        return numbers | {label: len(listed(label, folder)) for label in PROGRAMS}


def _is_entry(path: Path) -> bool:
    """A room, a loose module, or the starter; not what Python needs."""
    return path.suffix in ("", ".py") and not path.name.startswith("__")


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="as the table of docs/house.md")
    parser.add_argument("--list", choices=PROGRAMS, help="print what this count counts")
    arguments = parser.parse_args()
    if arguments.list:
        with trained() as folder:
            print("\n".join(listed(arguments.list, folder)))
        return
    form = "| {} | {:,} |" if arguments.table else "{}: {:,}"
    for name, number in counts().items():
        print(form.format(name, number))


if __name__ == "__main__":
    main()
