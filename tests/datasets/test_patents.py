"""Patents and hierarchies of labels as files: what is read, what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.hierarchy import by_label, read_hierarchy
from bertsmith.tasks.datasets.patents import first_claim, read_patents
from written_files import file_with


def test_uspto_2m_is_title_and_abstract_with_subclasses(tmp_path: Path) -> None:
    records = [
        {"No": "US1", "Title": "A boat", "Abstract": "It has a sail.", "Subclass_labels": ["B63H", "B63B"]},
        {"No": "US2", "Title": "A phone", "Abstract": "It rings.", "Subclass_labels": ["H04M"]},
        {"No": "US3", "Title": "", "Abstract": "", "Subclass_labels": ["H04M"]},
    ]
    path = file_with(tmp_path / "USPTO.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    result = read_patents(path)
    assert [(example.id, example.first, example.label) for example in result.examples] == [
        ("US1", "A boat It has a sail.", ("B63H", "B63B")),
        ("US2", "A phone It rings.", ("H04M",)),
    ]
    assert [reason for _, reason in result.skipped] == ["no text"]
    assert read_patents(path, gold=False).examples[0].label is None


def test_claims_are_cut_to_the_first_and_codes_to_the_subclass(tmp_path: Path) -> None:
    claims = "1. A boat with a sail. 2. The boat of claim 1."
    path = file_with(tmp_path / "a.tsv", f"patent_id\tclaims\tcpc_ids\n7\t{claims}\tB63H 9/06; B63H 9/08, H04L12/56\n")
    (result,) = read_patents(path).examples
    assert (result.id, result.first, result.label) == ("7", "A boat with a sail.", ("B63H", "H04L"))


@given(st.text())
def test_the_first_claim_is_a_part_of_the_claims(text: str) -> None:
    assert first_claim(text) in text
    assert first_claim(f"1. {'A boat.'} 2. {'The boat.'}") == "A boat."


def test_other_tables_are_refused(tmp_path: Path) -> None:
    for name, text, match in (
        ("a.tsv", "body\tcodes\nx\tH04L\n", "a column of claims"),
        ("b.tsv", "claim\tkind\nx\tH04L\n", "a column of codes"),
        ("c.tsv", "claim\tcodes\nx\t;\n", "codes in"),
        ("d.tsv", "claim\tcodes\n \tH04L\n", "patents with text"),
    ):
        with pytest.raises(InputError, match=match):
            read_patents(file_with(tmp_path / name, text))


def test_the_parents_of_codes_are_in_the_codes() -> None:
    parents = read_hierarchy("cpc", ["H04L", "H04M", "G06", "other"])
    assert parents == {"H04L": "H04", "H04M": "H04", "H04": "H", "G06": "G"}
    assert by_label(["H04L", "other"], parents) == (("H04L", "other", "H04", "H"), ("H04", "", "H", ""))


def test_a_hierarchy_is_read_from_a_file_and_a_cycle_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "h.tsv", "cat\tanimal\ndog\tanimal\n\nanimal\tthing\nloop\tpool\npool\tloop\n")
    assert read_hierarchy(str(path), ["cat", "none"]) == {"cat": "animal", "animal": "thing"}
    with pytest.raises(InputError, match=r"without a cycle in .*found loop -> pool -> loop; remove one"):
        read_hierarchy(str(path), ["loop"])
    with pytest.raises(InputError, match="found pool -> loop -> pool"):
        read_hierarchy(str(path), ["pool"])
    with pytest.raises(InputError, match="one parent of 'a'"):
        read_hierarchy(str(file_with(tmp_path / "two.tsv", "a\tb\na\tc\n")), ["a"])
    with pytest.raises(InputError, match=r"a label, a tab and its parent in .*line 1"):
        read_hierarchy(str(file_with(tmp_path / "bad.tsv", "a b\n")), ["a"])
    itself = file_with(tmp_path / "self.tsv", "a\ta\n")
    with pytest.raises(InputError, match="found a -> a"):
        read_hierarchy(str(itself), ["a"])


def test_a_hierarchy_in_another_encoding_has_the_same_parents(tmp_path: Path) -> None:
    path = file_with(tmp_path / "hierarchy.tsv", "caf\xe9\tplaces\n".encode("cp1252"))
    assert read_hierarchy(str(path), ["caf\xe9"], "cp1252") == {"caf\xe9": "places"}
    with pytest.raises(InputError, match="not UTF-8"):
        read_hierarchy(str(path), ["caf\xe9"])
