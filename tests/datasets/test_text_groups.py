"""Files of scored pairs, pairs, triplets and texts."""

from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.datasets.text_groups import form_of_file, read_groups
from written_files import file_with


def table(folder: Path, header: str, *rows: str, name: str = "examples.tsv") -> Path:
    return file_with(folder / name, "\n".join("\t".join(line.split("|")) for line in (header, *rows)) + "\n")


def test_the_form_of_a_file_follows_from_its_columns(tmp_path: Path) -> None:
    assert form_of_file(table(tmp_path, "sentence1|sentence2|score", "a|b|1")) == "similarity"
    assert form_of_file(table(tmp_path, "sentence1|sentence2|label", "a|b|1")) == "pairs"
    assert form_of_file(table(tmp_path, "anchor|positive", "a|b")) == "pairs"
    assert form_of_file(table(tmp_path, "query|positive|negative_1", "a|b|c")) == "triplets"
    (tmp_path / "texts.txt").write_text("one\n", encoding="utf-8")
    assert form_of_file(tmp_path / "texts.txt") == "texts"


def test_pairs_have_labels_where_the_file_has_them(tmp_path: Path) -> None:
    path = table(tmp_path, "anchor|positive", "a|b", "c|d")
    assert read_groups("pairs", path).examples[1] == TextExample(
        id="1", first="c", second="d", location=f"line 3 of '{path}'"
    )
    path = table(tmp_path, "premise|hypothesis|label", "a|b|entailment")
    assert read_groups("pairs", path).examples[0].label == "entailment"


def test_triplets_may_have_several_negatives_and_fewer_in_some_rows(tmp_path: Path) -> None:
    path = table(tmp_path, "anchor|positive|negative|negative_2", "a|b|c|d", "e|f|g|")
    first, second = read_groups("triplets", path).examples
    assert (first.texts, second.texts) == (("a", "b", "c", "d"), ("e", "f", "g"))


def test_the_same_text_twice_is_skipped_and_listed(tmp_path: Path) -> None:
    path = table(tmp_path, "anchor|positive", "a|a", "b|c")
    result = read_groups("pairs", path)
    assert [example.first for example in result.examples] == ["b"]
    assert result.skipped == ((f"line 2 of '{path}'", "the same text twice"),)
    # Two equal texts with a score say how similar equal texts are.
    assert len(read_groups("similarity", table(tmp_path, "text1|text2|score", "a|a|5", "b|c|0")).examples) == 2


@pytest.mark.parametrize(
    ("form", "header", "row", "expected"),
    [
        ("pairs", "anchor|positive", "a|a", "different texts; found the same text twice in each row"),
        ("pairs", "text", "a", "two columns of texts"),
        ("similarity", "text|score", "a|1", "two columns of texts"),
        ("triplets", "anchor|positive", "a|b", "the column 'negative'"),
        ("triplets", "positive|negative", "a|b", "the column 'anchor'"),
    ],
)
def test_a_file_that_lacks_something_is_refused_in_one_line(
    form: str, header: str, row: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=expected):
        read_groups(form, table(tmp_path, header, row))


def test_a_text_file_has_one_text_per_line_and_blank_lines_are_none(tmp_path: Path) -> None:
    path = file_with(tmp_path / "texts.txt", "one\n\n two \n")
    assert [example.first for example in read_groups("texts", path).examples] == ["one", "two"]
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match="texts, one per line"):
        read_groups("texts", path)
