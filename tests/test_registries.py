"""Entries of registries, such as "tasks.specs.span:SpanTask", are names in the source; each must lead to its object."""

import ast
import re
from collections.abc import Iterator

import pytest

from bertsmith.base.core.registry import Registry, imported
from bertsmith.models.checkpoints.architectures import ARCHITECTURES, ENCODER_DECODERS
from bertsmith.models.checkpoints.load import _READERS as MODEL_READERS
from bertsmith.tasks.specs.kinds import KINDS
from bertsmith.tasks.task_data.task_files import _READERS as DATA_READERS
from test_architecture import FILES, FLOORS, SOURCE

ENTRY = re.compile(r"[a-z]\w*(\.[a-z]\w*)+:[A-Za-z]\w*")


def entries() -> Iterator[tuple[str, str]]:
    """The district of a file, and the full name of an entry in it."""
    for file in FILES:
        district = file.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ENTRY.fullmatch(node.value):
                is_whole = node.value.split(".")[0] in FLOORS
                yield district, node.value if is_whole else f"models.{node.value}"


@pytest.mark.parametrize(("district", "name"), sorted(set(entries())))
def test_every_entry_is_there_and_no_higher_than_its_registry(district: str, name: str) -> None:
    assert imported(name) is not None
    other = name.split(".", maxsplit=1)[0]
    assert other == district or FLOORS[other] < FLOORS[district]


def test_entries_have_the_names_of_what_they_lead_to() -> None:
    assert all(kind.kind == name for name, kind in KINDS.items())
    assert all(architecture.config.model_type == name for name, architecture in ARCHITECTURES.items())
    assert all(config.model_type == name for name, config in ENCODER_DECODERS.items())
    assert all(callable(entry) for registry in (MODEL_READERS, DATA_READERS) for entry in registry.values())


def test_a_registry_imports_nothing_to_say_what_it_has() -> None:
    registry = Registry[object]({"missing": "base.core.missing:NAME"})
    assert "missing" in registry
    assert (list(registry), len(registry)) == (["missing"], 1)
    with pytest.raises(ModuleNotFoundError):
        registry["missing"]
