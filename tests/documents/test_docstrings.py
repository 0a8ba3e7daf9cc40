"""English text from docstrings: prose is kept, everything else is dropped, and no code is executed."""

from pathlib import Path

import pytest

from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.docstrings import DocstringReport, default_roots, docstring_documents, prose, python_files
from corpus.samples import small_tokenizer
from written_files import file_with

MODULE = '''"""{name} opens the boat house at night.

    >>> import {name}

It was written by *nobody* in particular, see
:func:`os.path.join` or `the page <https://a.example>`_.
"""

raise RuntimeError("this module was imported")


class Boat:
    """A boat that came home without its crew."""

    async def sail(self):
        """Sail away from {name} into the night."""

        def inner():
            r"""Sail home again before the morning."""
'''


def library(folder: Path, *names: str) -> Path:
    for name in names:
        file_with(folder / f"{name}.py", MODULE.replace("{name}", f"Boat {name.replace('/__init__', '')}"))
    return folder


def test_every_docstring_of_a_module_is_one_document(tmp_path: Path) -> None:
    """No module is imported: these would raise an error."""
    (document,) = docstring_documents([library(tmp_path, "harbour")])
    assert document.source == "harbour"
    assert document.sentences == [
        "Boat harbour opens the boat house at night.",
        "It was written by nobody in particular, see os.path.join or the page.",
        "A boat that came home without its crew.",
        "Sail away from Boat harbour into the night.",
        "Sail home again before the morning.",
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_documents_are_sorted_by_name(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, "a", "b/__init__", "b/c/d", "b/z", "tests/no", "test_no", "node_modules/no", "b.dist-info/no")
    monkeypatch.setattr("bertsmith.text.documents.docstrings._FILES_PER_TASK", 2)
    report = DocstringReport()
    documents = list(docstring_documents([tmp_path], workers=workers, report=report))
    assert [document.source for document in documents] == ["a", "b", "b.c.d", "b.z"]
    assert (report.files, report.documents, report.unparsable) == (4, 4, 0)
    assert report.characters == sum(len(sentence) for document in documents for sentence in document.sentences)


def test_only_the_first_occurrence_of_a_sentence_is_kept(tmp_path: Path) -> None:
    report = DocstringReport()
    first, second = docstring_documents([library(tmp_path, "a", "b")], report=report, workers=1)
    assert set(first.sentences).isdisjoint(second.sentences)
    assert report.repeated == 3


def test_files_that_cannot_be_parsed_are_counted(tmp_path: Path) -> None:
    library(tmp_path, "good")
    file_with(tmp_path / "old.py", '"""This module is for an older Python."""\nprint "x"\n')
    file_with(tmp_path / "odd.py", b'"""\xff\xfe\x00"""')
    file_with(tmp_path / "deep.py", '"""' + "This one is nested too deeply. " * 9 + '"""\nx = ' + "(" * 500 + ")" * 500)
    file_with(tmp_path / "plain.py", "x = 1\n")
    report = DocstringReport()
    assert [document.source for document in docstring_documents([tmp_path], report=report, workers=1)] == ["good"]
    assert (report.files, report.unparsable, report.without_prose) == (5, 3, 1)


PROSE = {
    "Compute the mean of all values.": ["Compute the mean of all values."],
    "Sum(x, y) -> z": [],
    "Too short here.": [],
    "No mark at the end of this line": [],
    "First sentence of a paragraph that\n    goes on. Second sentence stands here.": [
        "First sentence of a paragraph that goes on.",
        "Second sentence stands here.",
    ],
    "Parameters\n----------\nx : int\n    The number of rows in it.\ny : bool\n    Not used. See its notes for it.": [
        "The number of rows in it.",
        "See its notes for it.",
    ],
    "Args:\n    x (int): The number of rows.\n": [],
    "The list has items:\n\n* The first of all items.\n* The second goes\n  on below it.\n1. The last one is here.": [
        "The first of all items.",
        "The second goes on below it.",
        "The last one is here.",
    ],
    "It prints a number to the screen.\n\n>>> f(1)\nThis output is no prose.\n\nAfter it comes more text.": [
        "It prints a number to the screen.",
        "After it comes more text.",
    ],
    ".. note:: This is a note for all.\n\nTitle of the Page\n=================\nIt begins below the title.": [
        "It begins below the title."
    ],
    "Use ``np.mean`` or **not** as |you| like it.": ["Use np.mean or not as you like it."],
    "Set a[i] = b[j] + {c: d} for x == y.": [],
    "See https://a.example/page.html for more.": ["See https://a.example/page.html for more."],
}


@pytest.mark.parametrize("docstring", PROSE)
def test_prose_is_kept_and_the_rest_is_dropped(docstring: str) -> None:
    assert prose(docstring) == PROSE[docstring]


def test_the_standard_library_and_the_packages_are_found() -> None:
    roots = default_roots()
    assert any((root / "ast.py").is_file() for root in roots)
    assert any((root / "numpy" / "__init__.py").is_file() for root in roots)
    names = [name for name, _ in python_files(roots)]
    assert {"ast", "json.decoder", "numpy"} <= set(names)
    assert len(names) == len(set(names))


def test_docstrings_become_a_corpus(tmp_path: Path) -> None:
    """This is the default text of the demo."""
    documents = docstring_documents([library(tmp_path / "in", "a", "b", "c")], workers=1)
    manifest = build_corpus(documents, small_tokenizer(), tmp_path / "out", held_out=0)
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert [corpus.document_source(number) for number in range(3)] == ["a", "b", "c"]
    assert manifest["read"]["files"] == 1


def test_code_with_hardly_any_docstrings_is_not_parsed(tmp_path: Path) -> None:
    """Parsing is slow, and tables of numbers contain no English."""
    file_with(tmp_path / "table.py", '"""This is a table of numbers."""\nx = [' + "1, " * 500 + "]\n")
    assert list(docstring_documents([tmp_path], workers=1)) == []
