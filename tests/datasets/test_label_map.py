"""Labels renamed when a file is read."""

import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets.examples import TaggedExample, TextExample
from bertsmith.tasks.datasets.label_map import renamed
from bertsmith.tasks.metrics.entities import entity_spans, rename_types

NAMES = {"1": "Claim", "0": "Not Claim"}


def texts(*labels: str | tuple[str, ...] | None) -> list[TextExample]:
    return [
        TextExample(id=str(row), first="a", label=label, location=f"line {row + 1} of 'a.csv'")
        for row, label in enumerate(labels)
    ]


def tagged(tags: str) -> TaggedExample:
    return TaggedExample(
        id="0", words=tuple("abcdef"[: len(tags.split())]), tags=tuple(tags.split()), location="line 1"
    )


def test_labels_get_their_new_names_and_the_examples_stay() -> None:
    before = texts("1", "0", "1", None)
    after = renamed(before, NAMES, types=False)
    assert [example.label for example in after] == ["Claim", "Not Claim", "Claim", None]
    assert [example.location for example in after] == [example.location for example in before]
    assert [example.label for example in before] == ["1", "0", "1", None]


def test_two_labels_may_get_one_name() -> None:
    merged = {"a": "x", "b": "x", "c": "y"}
    assert [example.label for example in renamed(texts("a", "b", "c"), merged, types=False)] == ["x", "x", "y"]
    several = renamed(texts(("b", "c", "a"), ()), merged, types=False)
    assert [example.label for example in several] == [("x", "y"), ()]


def test_a_label_that_the_map_lacks_is_named_with_its_row() -> None:
    with pytest.raises(InputError) as error:
        renamed(texts("1", "0", "2", "3"), NAMES, types=False)
    assert str(error.value) == (
        "expected a label that the map names in line 3 of 'a.csv', one of '1', '0'; found '2'; "
        "add 2=NAME to the map; a label that keeps its name needs an entry, too"
    )


def test_labels_of_the_map_that_do_not_occur_are_reported_for_training(capsys: pytest.CaptureFixture[str]) -> None:
    renamed(texts("1", "1"), NAMES, types=False)
    assert capsys.readouterr().err == ""
    renamed(texts("1", "1"), NAMES, types=False, complete=True)
    assert capsys.readouterr().err == "warning: labels of the map that do not occur in the training file: '0'\n"


def test_types_of_entities_are_renamed_and_o_stays() -> None:
    names = {"PER": "Person", "LOC": "Place"}
    (example,) = renamed([tagged("O B-PER I-PER S-LOC")], names, types=True)
    assert example.tags == ("O", "B-Person", "I-Person", "S-Place")
    with pytest.raises(InputError, match="in line 1, one of 'PER', 'LOC'; found 'ORG'"):
        renamed([tagged("O B-ORG")], names, types=True)
    (plain,) = renamed([tagged("NOUN VERB")], {"NOUN": "N", "VERB": "V"}, types=False)
    assert plain.tags == ("N", "V")


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("IOB1", "I-PER I-ORG I-ORG O"),
        ("IOB1", "I-PER B-PER I-ORG O"),
        ("IOB2", "B-PER I-ORG O I-PER"),
        ("IOB2", "B-PER B-ORG I-ORG O"),
        ("IOBES", "B-PER E-ORG S-PER O"),
        ("IOBES", "B-PER I-ORG E-ORG O"),
    ],
)
def test_neighbors_with_one_new_name_stay_two_entities(scheme: str, tags: str) -> None:
    """Also where the tags violate their scheme, as conlleval reads them."""
    before = entity_spans(tags.split(), scheme)
    after = entity_spans(rename_types(tags.split(), {"PER": "Name", "ORG": "Name"}), scheme)
    assert after == [("Name", start, end) for _, start, end in before]


@pytest.mark.parametrize("names", [{"1": ""}, {" ": "Claim"}, {"1": 1}])
def test_names_that_are_no_texts_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="not empty"):
        renamed(texts("1"), names, types=False)
