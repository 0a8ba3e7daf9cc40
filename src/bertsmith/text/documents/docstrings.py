"""English text that is on every machine: docstrings of the standard library and of installed packages.

Files are parsed with `ast`, never imported, so none of their code is executed. Each module is a document. Only prose is
kept; doctests, code, parameter tables and lists of names are dropped, because a model would learn them as language. Of
repeated sentences only the first is kept: packages copy docstrings from module to module, and a copy in a held-out
module would not test anything.
"""

import ast
import dataclasses
import gc
import multiprocessing
import os
import re
import sysconfig
import textwrap
import warnings
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bertsmith.text.documents.readers import Document
from bertsmith.text.documents.sentences import split_sentences

_FILES_PER_TASK = 64
_MOST_BYTES = 4 * 2**20  # larger Python files are generated tables
# Parsing takes most of the time. Files with a smaller fraction of their bytes in triple quotes contain a third of the
# code of an installation but only a twentieth of its docstrings.
_LEAST_QUOTED = 0.1
_LEFT_OUT = frozenset(
    {"test", "tests", "testing", "idlelib", "lib2to3", "__pycache__", "_vendor", "vendor", "node_modules"}
)
_PLACES = ("site-packages", "dist-packages")

# A section heading and its underline, as in NumPy docstrings and reStructuredText.
_UNDERLINED = re.compile(r"^[^\n]*\n[ \t]*([-=~^\"'*#+`])\1{2,}[ \t]*$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^\s*(\.\. |:\w+[^:`\n]*:(?!`)|@\w+|>>>|\.\.\. ?$|\$ |#|\||\+[-=])")
_HEADING = re.compile(r"^\s*[A-Z][\w ]{0,30}:\s*$")
_ITEM = re.compile(r"^\s*(?:[-*•+]|\d{1,2}[.)])\s+")
_TERM = re.compile(r"^\*{0,2}(?:[a-z_]\w*|\w+ ?\([^)]*\)) ?(?:\([^)]*\))?:\s+")
_ROLE = re.compile(r":[\w:+.-]+:`~?([^`<]+?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_QUOTED = re.compile(r"(`{1,2}|\*{1,2}|\|)([^\s`*|](?:[^`*|\n]*[^\s`*|])?)\1_{0,2}")
_CODE = re.compile(r"[{}\[\]\\<>=|#@]|\w_\w|\w\(")
_WORD = re.compile(r"[^\W\d_]{2,}")
_FINAL = re.compile(r"[.!?][\"')\]]*$")
_FEWEST_WORDS = 4
_MOST_CODE = 0.15  # code symbols per word


@dataclasses.dataclass
class DocstringReport:
    """Counts of `docstring_documents`: read and dropped; they grow as documents are consumed."""

    files: int = 0
    unparsable: int = 0
    without_prose: int = 0
    repeated: int = dataclasses.field(default=0, metadata={"help": "sentences already seen in an earlier module"})
    documents: int = 0
    characters: int = 0


def docstring_documents(
    roots: Iterable[Path | str] | None = None, *, workers: int | None = None, report: DocstringReport | None = None
) -> Generator[Document]:
    """Documents of English prose from the docstrings of Python files, one per module, sorted by module name.

    Args:
        roots: folders of modules and packages; None means the standard library and the installed packages.
    """
    report = report if report is not None else DocstringReport()
    files = list(python_files(default_roots() if roots is None else roots))
    tasks = [files[start : start + _FILES_PER_TASK] for start in range(0, len(files), _FILES_PER_TASK)]
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        yield from _counted(map(_documents_of, tasks), report)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from _counted(pool.map(_documents_of, tasks), report)


def default_roots() -> list[Path]:
    """The folders of the standard library and of the installed packages."""
    paths = sysconfig.get_paths()
    roots = [Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    return list(dict.fromkeys(roots))


def python_files(roots: Iterable[Path | str]) -> Iterator[tuple[str, Path]]:
    """The names and files of the modules in some folders, sorted by name; tests and vendored copies are skipped."""
    for root in map(Path, roots):
        modules = []
        for folder, inner, names in os.walk(root):
            here = Path(folder)
            # Some standard library folders contain the installed packages, which are a root of their own.
            inner[:] = [name for name in inner if name not in _LEFT_OUT and name not in _PLACES and "." not in name]
            for name in names:
                if name.endswith(".py") and not name.startswith("test_"):
                    path = here / name
                    module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                    modules.append((module, path))
        yield from sorted(modules)


def prose(docstring: str) -> list[str]:
    r"""The prose sentences of a docstring.

    >>> prose("Return the mean of `x`, a list.\n\n>>> mean([1])\n1\n\nArgs:\n    x: values\n")
    ['Return the mean of x, a list.']
    """
    text = _UNDERLINED.sub("", textwrap.dedent(_first_line_apart(docstring)))
    sentences = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        for piece in _pieces(paragraph):
            for sentence in split_sentences(_TERM.sub("", _plain(piece))):
                if _is_prose(sentence):
                    sentences.append(sentence)
    return sentences


def _first_line_apart(docstring: str) -> str:
    """The docstring with its first line at the indentation of the others, as in `inspect.cleandoc`."""
    first, _, rest = docstring.expandtabs().partition("\n")
    return f"{first.strip()}\n{textwrap.dedent(rest)}" if rest else first.strip()


def _pieces(paragraph: str) -> Iterator[str]:
    """The parts of a paragraph that may be prose: list items one by one, descriptions without their term."""
    lines: list[str] = []
    margin: int | None = None
    for line in paragraph.split("\n"):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if _DIRECTIVE.match(line) or _HEADING.match(line):
            # A doctest is followed by its output, a directive or heading by its content.
            if lines:
                yield " ".join(lines)
            return
        item = _ITEM.match(line)
        if margin is not None and indent > margin and len(lines) == 1 and not item:
            lines, margin = [], None  # a term; its description follows
        elif item or (margin is not None and indent < margin):
            if lines:
                yield " ".join(lines)
            lines, margin = [], None
        if margin is None:
            margin = item.end() if item else indent
        lines.append((line[item.end() :] if item else line).strip())
    if lines:
        yield " ".join(lines)


def _plain(text: str) -> str:
    """The text without the markup of reStructuredText and Markdown."""
    text = _ROLE.sub(r"\1", text)
    text = _LINK.sub(r"\1", text)
    return _QUOTED.sub(r"\2", text)


def _is_prose(sentence: str) -> bool:
    words = _WORD.findall(sentence)
    return (
        len(words) >= _FEWEST_WORDS
        and (sentence[0].isupper() or sentence[0] in "\"'(")
        and _FINAL.search(sentence) is not None
        and len(_CODE.findall(sentence)) <= _MOST_CODE * len(words)
    )


def _counted(results: Iterable[tuple[list[Document], int, int]], report: DocstringReport) -> Iterator[Document]:
    seen: set[str] = set()
    for documents, files, unparsable in results:
        report.files += files
        report.unparsable += unparsable
        report.without_prose += files - unparsable - len(documents)
        for document in documents:
            fresh = [sentence for sentence in document.sentences if sentence not in seen]
            seen.update(fresh)
            report.repeated += len(document.sentences) - len(fresh)
            if fresh:
                report.documents += 1
                report.characters += sum(map(len, fresh))
                yield Document(document.source, fresh)


def _documents_of(modules: list[tuple[str, Path]]) -> tuple[list[Document], int, int]:
    """The documents of some modules, the number of files, and the number of files that could not be parsed."""
    documents, unparsable = [], 0
    # Syntax trees contain no reference cycles; searching for them takes longer than parsing.
    gc.disable()
    for module, path in modules:
        try:
            sentences = list(dict.fromkeys(_sentences_of(path)))
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            unparsable += 1
            continue
        if sentences:
            documents.append(Document(module, sentences))
    gc.enable()
    return documents, len(modules), unparsable


def _sentences_of(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    quoted = sum(len(inside) for mark in (b'"""', b"'''") for inside in data.split(mark)[1::2])
    if len(data) > _MOST_BYTES or not quoted or quoted < _LEAST_QUOTED * len(data):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old code contains escapes that Python warns about
        tree = ast.parse(data)
    for node in _with_docstrings(tree):
        if docstring := ast.get_docstring(node, clean=False):
            # An escape such as \\ud800 yields a lone surrogate, which cannot be encoded.
            yield from prose(docstring.encode("utf-8", "ignore").decode("utf-8"))


def _with_docstrings(
    node: ast.AST,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The nodes that can have a docstring, in the order of the file."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for child in getattr(node, "body", []):
        if isinstance(child, ast.stmt):
            yield from _with_docstrings(child)
