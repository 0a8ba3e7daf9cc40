"""The program that runs the command lines of the documentation sees all of them, and notices failures."""

from pathlib import Path

import check_docs
import pytest

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


def test_command_lines_are_found_with_their_changes_and_reasons(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    found = [(line.line, line.text, line.why_not) for line in check_docs.command_lines(page)]
    assert found == [
        (4, "first --steps 20000 --out x", ""),
        (7, "second", ""),
        (13, "third --size tiny --steps 4", ""),
        (18, "fourth", "needs the network"),
        (27, 'for number in range(1):\n    print("$ no command", number)\n', ""),
    ]


def test_a_change_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run with: a => b -->\n```console\n$ true\n```\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="correct the mark"):
        list(check_docs.command_lines(page))


def test_a_command_line_that_fails_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    page = check_docs.ROOT / "README.md"
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
    assert check_docs.run_page(lines) == 2
    shown = capsys.readouterr().out
    marks = [line.split()[0] for line in shown.splitlines() if "README" in line]
    assert marks == ["ok", "ok", "FAIL", "skip", "ok", "FAIL"]


def test_the_readme_shows_the_two_commands_of_a_fresh_clone() -> None:
    shown = [line.text for line in check_docs.command_lines(check_docs.ROOT / "README.md")]
    assert shown[:2] == ["make demo", "make test"]
