"""The site: its navigation is complete and its links are good, and where its generator is installed it is built."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import build_site
import pytest
import site_results
from notebook_page import notebook_page

from bertsmith.base.pages.charts import bar_chart
from written_files import file_with

ROOT = build_site.ROOT
PAGES = {"README.md": "# Home\n\n[a](docs/a.md#one-two)\n", "docs/a.md": "# A\n\n## One `two`!\n\n[up](../README.md)\n"}
SECTIONS = [("Start", ["README.md"]), ("How-to", ["docs/a.md"])]


def test_each_page_of_the_docs_is_in_one_section_and_every_link_leads_somewhere() -> None:
    pages = {**build_site.pages_of(ROOT), **site_results.pages()}
    assert len(pages) > 70
    assert list(build_site.problems(pages, build_site.navigation(ROOT), ROOT)) == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("docs/a.md", "# A\n\n## One two\n\n[b](b.md)\n", r"docs/a.md:5: .* found 'b.md'; correct the link"),
        ("docs/a.md", "# A\n\n## One two\n\n![b](b.png)\n", r"docs/a.md:5: .* found 'b.png'; correct the link"),
        (
            "docs/a.md",
            "# A\n\n## One\n",
            r"README.md:3: expected a heading of docs/a.md; found '#one-two'; correct the link",
        ),
        ("docs/b.md", "# B\n", "expected each page of docs/ in .*; found 'docs/b.md' in no section; add it to one"),
    ],
)
def test_a_bad_link_and_a_page_that_is_nowhere_give_one_line(
    tmp_path: Path, path: str, text: str, problem: str
) -> None:
    (line,) = build_site.problems({**PAGES, path: text}, SECTIONS, tmp_path)
    assert re.fullmatch(problem, line)


def test_entries_that_are_no_page_or_listed_twice_give_one_line_each(tmp_path: Path) -> None:
    absent, twice = build_site.problems(PAGES, [*SECTIONS, ("More", ["absent.md", "docs/a.md"])], tmp_path)
    assert "found no 'absent.md'" in absent
    assert "found 'docs/a.md' 2 times" in twice


def test_headings_have_the_anchors_of_github() -> None:
    text = "# A, b: `c_d`\n\n## A b\n\n## A b\n\n```sh\n# no heading\n```\n"
    assert list(build_site.anchors(text)) == ["a-b-c_d", "a-b", "a-b-1"]


def test_links_to_files_and_folders_lead_to_their_copies_and_pages(tmp_path: Path) -> None:
    file_with(tmp_path / "src" / "a.py", "x = 1\n")
    file_with(tmp_path / "a.json", "{}\n")
    linked = (
        "[code](../src/a.py) [data](../a.json) [home](../README.md) [folder](results/) [file](\nc/d.md) [first](c/)"
    )
    text = f"# A\n\n{linked} `[no](link)`\n"
    pages = {
        **PAGES,
        "docs/a.md": text,
        "docs/results/index.md": "# R\n",
        "docs/results/b.md": "# B\n",
        "docs/c/d.md": "# D\n",
    }
    assert (
        list(build_site.problems(pages, [*SECTIONS, ("R", ["docs/results/index.md", "docs/c/d.md"])], tmp_path))[1:]
        == []
    )
    staged = tmp_path / "staged"
    build_site.stage(pages, SECTIONS, tmp_path, staged)
    text = (staged / "docs" / "a.md").read_text(encoding="utf-8")
    assert "[code](../src/a.py.md) [data](../a.json) [home](../index.md)" in text
    assert "[folder](results/index.md) [file](c/d.md) [first](c/d.md)" in text
    assert "x = 1" in (staged / "src" / "a.py.md").read_text(encoding="utf-8")
    assert (staged / "a.json").is_file()
    assert "\nb.md\n" in (staged / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    assert ":caption: How-to\n\ndocs/a.md\n" in (staged / "index.md").read_text(encoding="utf-8")


def test_a_notebook_becomes_a_page_with_what_it_printed_and_drew(tmp_path: Path) -> None:
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "3"}},
        {
            "output_type": "display_data",
            "data": {"image/svg+xml": "<?xml?>\n<svg>\n\n</svg>", "text/plain": "a figure"},
        },
        {"output_type": "display_data", "data": {"image/png": "aWJt\n", "text/plain": "a figure"}},
        {
            "output_type": "execute_result",
            "data": {
                "text/html": '<style>\n\n</style>\n<table border="1" class="dataframe">\n\n<td>1</td></table>',
                "text/plain": "1 ...",
            },
        },
    ]
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "[b](\nB.ipynb#Of-a-B)"]},
        {"cell_type": "code", "source": "print(1)", "outputs": outputs},
        {"cell_type": "code", "source": "", "outputs": []},
    ]
    notebook = file_with(tmp_path / "a.ipynb", json.dumps({"nbformat": 4, "cells": cells}))
    assert notebook_page(notebook) == (
        "# Title\n[b](\nB.ipynb#of-a-b)\n\n~~~python\nprint(1)\n~~~\n\n~~~text\none\ntwo\n~~~\n\n~~~text\n3\n~~~\n\n"
        "<figure>\n<svg>\n</svg>\n</figure>\n\n![output](data:image/png;base64,aWJt)\n\n"
        '<div class="table-wrapper container">\n<table class="docutils">\n<td>1</td></table>\n</div>\n'
    )
    cells[1]["outputs"] = [{"output_type": "error", "ename": "KeyError"}]
    notebook.write_text(json.dumps({"nbformat": 4, "cells": cells}), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"found KeyError in the outputs of '.*'; run it again"):
        notebook_page(notebook)
    notebook.write_text("{}", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"expected a notebook; found .*; save it as nbformat 4"):
        notebook_page(notebook)


def test_the_results_show_a_figure_before_any_table_and_the_newest_machine_first() -> None:
    pages = site_results.pages()
    for text in pages.values():
        assert text.count("<svg") == 1
        assert text.index("<svg") < text.index("| machine |")
    listed = "".join(pages.values())
    files = [path.name for path in site_results.RESULTS.iterdir() if path.suffix in (".json", ".jsonl")]
    assert [name for name in files if listed.count(f"/{name})") != 1] == []
    days = re.findall(r"^\| .* \| (2[\d-]+) \| \d+ \|$", pages["results/index.md"], re.MULTILINE)
    assert len(days) > 2
    assert days == sorted(days, reverse=True)


def test_bars_have_their_names_and_their_ranges() -> None:
    chart = bar_chart({"ours, $a$ < b": (2.0, 1.5, 2.5), "peer": (1.0, 1.0, 1.0)}, x_label="times")
    assert "ours, $a$ &lt; b" in chart
    assert chart.index("ours") < chart.index("peer")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = ROOT / ".venv-site" / "bin" / "python"
    if not generator.exists():
        pytest.skip("needs the environment that make site installs")
    out = tmp_path_factory.mktemp("site") / "site"
    result = subprocess.run(
        [str(generator), "tools/build_site.py", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return out


@pytest.mark.slow
def test_the_site_is_read_on_a_phone_without_scrolling_sideways_and_contacts_no_other_server(
    site: Path, browser: Any
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 780})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    for path in pages:
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path.name
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.slow
def test_its_search_works_without_a_server(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{(site / 'search.html').as_uri()}?q=perplexity")
    page.wait_for_selector("#search-results li a")
    assert "bertsmith perplexity" in page.locator("#search-results").inner_text()
