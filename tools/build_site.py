"""Builds the site from docs/, or checks its navigation and links alone, which needs no generator.

    python tools/build_site.py [OUT]       (by default site/)
    python tools/build_site.py --check

The pages are those of docs/navigation.toml, as they are in the repository, and some that are generated: the results,
the tutorials from their notebooks, the list of decisions. A link to another file of the repository leads to a copy of
it. A page in no section, or in two, and a link to a missing page, file or heading are refused, with a line for each.
docs/decisions/0032-site.md says why Sphinx.
"""

import io
import itertools
import posixpath
import re
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from notebook_page import notebook_page

ROOT = Path(__file__).parent.parent
NAVIGATION = "docs/navigation.toml"
HOME = "README.md"  # index.md of the site
FOLDERS = {"examples": "docs/examples.md", "benchmarks/results": "results/index.md"}  # the pages of links to folders
LINK = re.compile(r"\]\(\s*([^)\s#]+)(#[^)\s]*)?\)")
SHOWN = {".py": "python", ".toml": "toml", ".txt": "text", "": "text"}  # files that get a page; others are copied
MARKDOWN = MarkdownIt("commonmark").enable("table")
SETTINGS: dict[str, Any] = {
    "project": "Bertsmith",
    "html_title": "Bertsmith",
    "root_doc": "index",
    "extensions": ["myst_parser"],
    "html_theme": "furo",
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "html_show_copyright": False,
    "html_show_search_summary": False,  # it would need a server
    "myst_heading_anchors": 6,
    # The pages are written for GitHub, where these are plain text.
    "myst_disable_syntax": ["myst_block_break", "myst_line_comment", "myst_role", "myst_target"],
    "suppress_warnings": ["misc.highlighting_failure"],  # outputs with "..." are no valid JSON
}
Sections = list[tuple[str, list[str]]]


def pages_of(root: Path) -> dict[str, str]:
    """The text of every page by its path in the repository, or where it would be: docs/, and pages outside of it."""
    paths = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    paths |= {entry for _, entries in navigation(root) for entry in entries if (root / entry).is_file()}
    pages = {path: (root / path).read_text(encoding="utf-8") for path in paths if path.endswith(".md")}
    for path in (root / "docs").rglob("*.ipynb"):
        pages[path.relative_to(root).as_posix()] = notebook_page(path)
    names = sorted(path for path in pages if path.startswith("docs/decisions/"))
    if names:
        links = "\n".join(f"- [{title(pages[name])}]({posixpath.basename(name)})" for name in names)
        pages["docs/decisions/index.md"] = f"# Decisions\n\nWhy things are as they are.\n\n{links}\n"
    return pages


def navigation(root: Path) -> Sections:
    """The sections with their entries, of which patterns are replaced by their files."""
    sections = tomllib.loads((root / NAVIGATION).read_text(encoding="utf-8"))["sections"]
    return [
        (section["title"], [path for entry in section["pages"] for path in _expanded(root, entry)])
        for section in sections
    ]


def _expanded(root: Path, entry: str) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob(entry)) if "*" in entry else [entry]


def title(text: str) -> str:
    """The first heading of a page."""
    return next(line for line in text.splitlines() if line.startswith("# "))[2:]


def problems(pages: Mapping[str, str], sections: Sections, root: Path) -> Iterator[str]:
    """A line for each page that is not in exactly one section, and each link that leads nowhere."""
    listed = Counter(path for _, entries in sections for path in entries)
    for path, times in sorted(listed.items()):
        if path not in pages:
            yield f"expected the pages of {NAVIGATION}; found no '{path}'; add the page, or remove the entry"
        elif times > 1:
            yield f"expected each page once in {NAVIGATION}; found '{path}' {times} times; remove one"
    folders = [posixpath.dirname(path) for path in listed if path.endswith("/index.md")]
    for path in sorted(pages):
        if path not in listed and posixpath.dirname(path) not in folders:
            yield f"expected each page of docs/ in {NAVIGATION}; found '{path}' in no section; add it to one"
    headings = {path: set(anchors(text)) for path, text in pages.items()}
    for path, text in sorted(pages.items()):
        for line, link in links(text):
            where = f"{path}:{line}" if path.endswith(".md") else path
            target, _, anchor = link.partition("#")
            page = resolved(path, target, pages) if target else path
            if page not in pages and not (root / page).is_file():
                yield f"{where}: expected a page or a file of the repository; found '{link}'; correct the link"
            elif anchor and anchor not in headings.get(page, ()):
                yield f"{where}: expected a heading of {page}; found '#{anchor}'; correct the link"


def resolved(path: str, target: str, pages: Mapping[str, str]) -> str:
    """The path of a page or file that a link on page `path` leads to; that of a folder is a page of it."""
    result = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    inside = sorted(page for page in pages if posixpath.dirname(page) == result)
    return next((page for page in (f"{result}/index.md", FOLDERS.get(result, ""), *inside) if page in pages), result)


def links(text: str) -> Iterator[tuple[int, str]]:
    """(line number, target) of the links and pictures of a page, except for those to other sites."""
    for token in MARKDOWN.parse(text):
        for child in token.children or ():
            target = str(child.attrGet("href") or child.attrGet("src") or "")
            if target and not re.match(r"[a-z]+:", target):
                yield (token.map or [0])[0] + 1, target


def anchors(text: str) -> Iterator[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    seen: Counter[str] = Counter()
    tokens = MARKDOWN.parse(text)
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            slug = re.sub(r"[^\w\- ]", "", _plain(token).lower()).replace(" ", "-")
            yield f"{slug}-{seen[slug]}" if seen[slug] else slug
            seen[slug] += 1


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


def stage(pages: Mapping[str, str], sections: Sections, root: Path, folder: Path) -> None:
    """Writes the pages with their table of contents to a folder, and the files that they link to."""
    files: set[str] = set()

    def linked(path: str, match: re.Match[str]) -> str:
        page = resolved(path, match[1], pages)
        if page not in pages and not (root / page).is_file():
            return match[0]
        if page not in pages:
            files.add(page)
        return f"]({posixpath.relpath(_staged(page, pages), posixpath.dirname(path) or '.')}{match[2] or ''})"

    def written(path: str, text: str) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")

    for path, text in pages.items():
        text = LINK.sub(lambda match, path=path: linked(path, match), text)
        if path.endswith("/index.md"):
            inside = sorted(
                name for name in pages if posixpath.dirname(name) == posixpath.dirname(path) and name != path
            )
            text += _contents("", [posixpath.basename(name) for name in inside])
        if path == HOME:
            text += "".join(
                _contents(name, ["self" if page == HOME else _staged(page, pages) for page in entries])
                for name, entries in sections
            )
        written(_staged(path, pages), text)
    for path in files:
        suffix = Path(path).suffix
        if suffix in SHOWN:
            code = (root / path).read_text(encoding="utf-8")
            written(
                _staged(path, pages), f"---\norphan: true\n---\n# {path}\n\n~~~~~~{SHOWN[suffix]}\n{code}\n~~~~~~\n"
            )
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, folder / path)


def _staged(path: str, pages: Mapping[str, str]) -> str:
    """Where the source of a page or a file is when the site is built."""
    if path == HOME:
        return "index.md"
    if path in pages:
        return path.removesuffix(".ipynb").removesuffix(".md") + ".md"
    return f"{path}.md" if Path(path).suffix in SHOWN else path


def _contents(name: str, entries: list[str]) -> str:
    caption = f":caption: {name}\n" if name else ""
    return "\n".join(["", "```{toctree}", f":hidden:\n{caption}", *entries, "```", ""])


def generate(source: Path, out: Path) -> None:
    """Builds the site with Sphinx.

    Raises:
        SystemExit: it has a warning, or is not installed.
    """
    try:
        from sphinx.application import Sphinx
    except ModuleNotFoundError:
        sys.exit("expected Sphinx; found none; run make site, or pip install -r requirements/site.txt")
    warnings = io.StringIO()
    with tempfile.TemporaryDirectory() as trees:
        program = Sphinx(source, None, out, trees, "html", SETTINGS, status=None, warning=warnings, parallel=2)
        program.build()
    if text := re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue()).replace(f"{source}/", "").strip():
        sys.exit(text)


def main() -> None:
    """Checks the pages and builds the site."""
    import site_results

    names = [name for name in sys.argv[1:] if name != "--check"]
    pages = {**pages_of(ROOT), **site_results.pages()}
    sections = navigation(ROOT)
    if lines := list(problems(pages, sections, ROOT)):
        sys.exit("\n".join(lines))
    if "--check" in sys.argv[1:]:
        return
    out = Path(names[0] if names else ROOT / "site").resolve()
    with tempfile.TemporaryDirectory() as folder:
        stage(pages, sections, ROOT, Path(folder))
        if (out / ".buildinfo").exists():  # of Sphinx
            shutil.rmtree(out)
        generate(Path(folder), out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{len(pages)} pages in {out} ({size / 1e6:.0f} MB); open {out / 'index.html'}")


if __name__ == "__main__":
    main()
