"""The notebooks in docs/tutorials run, their outputs are those of their cells, and what they name exists."""

import ast
import json
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import notebooks
import pytest
from typer.main import get_command

import bertsmith
from bertsmith.app.cli.app import application
from written_files import file_with

ROOT = Path(__file__).parent.parent
PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))
of_each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
COMMAND = re.compile(r"`(bertsmith [^`]+)`")
PORT = "8765"  # of the server in a notebook


def notebook_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def kinds_of(outputs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [(output["output_type"], *sorted(output.get("data", ()))) for output in outputs]


def notebook_with(sources: list[str], **metadata: Any) -> dict[str, Any]:
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": []} for source in sources]
    return {"cells": [{"cell_type": "markdown", "source": ["# A"]}, *cells], "metadata": {"bertsmith": metadata}}


# Newer versions of Python warn of names in their own modules, whose documentation two tutorials read.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@of_each
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("localhost", 0)) as listener:
        port = str(listener.getsockname()[1])
    notebook = notebook_of(path)
    outputs = notebooks.run_cells([source.replace(PORT, port) for source in notebooks.quick_sources(notebook)])
    for cell, of_cell in zip(notebooks.code_cells(notebook), outputs, strict=True):
        assert kinds_of(of_cell) == kinds_of(cell["outputs"]), "".join(cell["source"])


@pytest.mark.slow
@of_each
def test_a_tutorial_runs_in_full(path: Path) -> None:
    notebook = notebook_of(path)
    outputs = notebooks.run_in_new_process(notebooks.sources_of(notebook))
    for cell, of_cell in zip(notebooks.code_cells(notebook), outputs, strict=True):
        assert kinds_of(of_cell) == kinds_of(cell["outputs"]), "".join(cell["source"])


@of_each
def test_the_outputs_of_a_tutorial_are_those_of_its_cells(path: Path) -> None:
    notebook = notebook_of(path)
    assert notebook["metadata"]["bertsmith"]["sources"] == notebooks.digest_of(notebook), "run `make notebooks`"
    assert all(cell["execution_count"] for cell in notebooks.code_cells(notebook))


@of_each
def test_the_outputs_of_a_tutorial_do_not_name_the_machine(path: Path) -> None:
    outputs = [output for cell in notebooks.code_cells(notebook_of(path)) for output in cell["outputs"]]
    assert outputs
    for output in outputs:
        for lines in output.get("data", {"text": output.get("text")}).values():
            assert not re.search(r"""(?:^|[\s'"(=])/[a-z]\w*/""", "".join(lines), re.MULTILINE)


@of_each
def test_a_tutorial_uses_public_names_alone(path: Path) -> None:
    tree = ast.parse("\n".join(source for source in notebooks.sources_of(notebook_of(path))))
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bertsmith"
    }
    assert names
    assert names <= set(bertsmith.__all__)
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [module for module in imported if module.startswith("bertsmith.")]


@of_each
def test_the_commands_of_a_tutorial_have_the_options_that_they_are_given(path: Path) -> None:
    cells = notebook_of(path)["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    commands = [shlex.split(command)[1:] for command in COMMAND.findall(text)]
    assert commands
    known = get_command(application()).commands
    for words in commands:
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        named = {
            option for parameter in get_command(application(name)).commands[name].params for option in parameter.opts
        }
        assert {word for word in words if word.startswith("--")} <= named, words


def test_every_tutorial_is_linked() -> None:
    assert len(PATHS) == 6
    for page in (ROOT / "README.md", ROOT / "docs" / "examples.md"):
        text = page.read_text(encoding="utf-8")
        assert [path.name for path in PATHS if f"tutorials/{path.name}" not in text] == []


def test_cells_share_their_names_and_show_their_last_expression() -> None:
    sources = [
        "import pandas as pd\nnumber = 2\nprint('first')\nprint(number)",
        "number + 1",
        "number + 1;",
        "number = 5",
        "pd.DataFrame({'a': [number]})",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
    ]
    printed, shown, hidden, silent, frame, figure = notebooks.run_cells(sources)
    assert printed == [{"name": "stdout", "output_type": "stream", "text": ["first\n", "2\n"]}]
    assert [output["data"] for output in shown] == [{"text/plain": ["3"]}]
    assert (hidden, silent) == ([], [])
    assert kinds_of(frame) == [("execute_result", "text/html", "text/plain")]
    assert kinds_of(figure) == [("display_data", "image/svg+xml", "text/plain")]
    assert figure[0]["data"]["image/svg+xml"][0].startswith("<svg")


def test_outputs_are_stored_with_the_digest_of_the_cells() -> None:
    notebook = notebook_with(["print(1)", "1 + 1"], quick={})
    stored = json.loads(notebooks.stored(notebook, notebooks.run_cells(notebooks.sources_of(notebook))))
    assert stored["metadata"]["bertsmith"]["sources"] == notebooks.digest_of(stored)
    assert [cell["execution_count"] for cell in notebooks.code_cells(stored)] == [1, 2]
    stored["cells"][1]["source"] = ["print(2)"]
    assert stored["metadata"]["bertsmith"]["sources"] != notebooks.digest_of(stored)


def test_a_tutorial_is_made_quick_by_its_metadata() -> None:
    assert notebooks.quick_sources(notebook_with(["train(steps=900)"], quick={"900": "2"})) == ["train(steps=2)"]
    with pytest.raises(ValueError, match="expected 'epochs' in a cell"):
        notebooks.quick_sources(notebook_with(["train(steps=900)"], quick={"epochs": "2"}))


def test_a_check_compares_words_and_not_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = notebook_with(["print('score 0.5')"], quick={})
    path = file_with(tmp_path / "a.ipynb", notebooks.stored(notebook, [[]]))
    monkeypatch.setattr(notebooks, "run_in_new_process", notebooks.run_cells)

    def main(*arguments: str) -> object:
        monkeypatch.setattr("sys.argv", ["notebooks.py", *arguments, str(path)])
        with pytest.raises(SystemExit) as end:
            notebooks.main()
        return end.value.code

    assert main("--check") == "outputs that are not the stored ones: a.ipynb: cell 1"
    assert main() == 0
    assert main("--check") == 0
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace("score 0.5\\n", "score 0.625\\n"), encoding="utf-8")
    assert main("--check") == 0
    path.write_text(content.replace("score 0.5\\n", "loss 0.5\\n"), encoding="utf-8")
    assert main("--check") == "outputs that are not the stored ones: a.ipynb: cell 1"
    assert "a.ipynb: 0 s" in capsys.readouterr().out
