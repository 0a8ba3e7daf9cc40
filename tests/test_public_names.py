"""`import bertsmith` exports exactly what it lists and what docs/library.md promises."""

import dataclasses
import importlib
import inspect
import re
import types
from pathlib import Path

import pytest

import bertsmith
import bertsmith.base.core.errors

PAGE = Path(__file__).parent.parent / "docs" / "library.md"
PROMISED = sorted(set(re.findall(r"`(bertsmith(?:\.\w+)*\.[A-Za-z_]\w*)`", PAGE.read_text(encoding="utf-8"))))


ERRORS = {name for name in bertsmith.__all__ if name.endswith("Error")}


def test_the_package_exports_exactly_what_it_lists() -> None:
    assert all(getattr(bertsmith, name) for name in bertsmith.__all__)
    public = {
        name
        for name, value in vars(bertsmith).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public - {"TYPE_CHECKING", "Any"} | {"__version__"} == set(bertsmith.__all__)
    assert bertsmith.__all__ == sorted(bertsmith.__all__)
    assert set(bertsmith.__all__) <= set(dir(bertsmith))


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        bertsmith.lod  # noqa: B018


def test_every_exported_name_is_in_a_table_of_the_library_page() -> None:
    rows = "\n".join(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `bertsmith."))
    assert set(re.findall(r"`bertsmith\.(\w+)`", rows)) == set(bertsmith.__all__) - {"__version__"}


def test_every_error_is_exported() -> None:
    tree = {
        name
        for name, value in vars(bertsmith.base.core.errors).items()
        if isinstance(value, type) and issubclass(value, bertsmith.BertsmithError)
    }
    assert tree == ERRORS


def test_the_drawn_tree_shows_every_error() -> None:
    drawn = set(re.findall(r"\w+Error", bertsmith.base.core.errors.__doc__ or ""))
    assert drawn == ERRORS


def test_the_changelog_names_the_version() -> None:
    changelog = (PAGE.parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(bertsmith.__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)


def test_the_version_is_the_one_that_is_installed() -> None:
    project = (PAGE.parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{bertsmith.__version__}"\n' in project


@pytest.mark.parametrize("name", PROMISED)
def test_every_name_in_the_library_page_is_there(name: str) -> None:
    module, attribute = name.rsplit(".", 1)
    value = getattr(importlib.import_module(module), attribute)
    # A dataclass without a docstring gets its signature as one.
    shown = value.__doc__ if isinstance(value, type) else inspect.getdoc(value)
    assert shown, f"{name} has no docstring"
    assert not shown.startswith(f"{attribute}("), f"{name} has only its signature for a docstring"


def test_a_signature_is_what_a_dataclass_without_a_docstring_shows() -> None:
    assert (dataclasses.make_dataclass("Bare", ["field"]).__doc__ or "").startswith("Bare(")


INNER_IMPORT = re.compile(r"^\s*(?:from|import) bertsmith\.\S+", re.MULTILINE)


def test_the_documentation_and_examples_import_public_names() -> None:
    pages = [PAGE.parent.parent / "README.md", *PAGE.parent.rglob("*.md")]
    blocks = {str(page): "".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)) for page in pages}
    scripts = {path.name: path.read_text() for path in (PAGE.parent.parent / "examples").glob("*.py")}
    inner = {name: INNER_IMPORT.findall(text) for name, text in (blocks | scripts).items()}
    assert not {name for name, imports in inner.items() if imports}
