"""Tasks by their names: what their files tell before anything is trained."""

from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks import catalogue

SENTENCES = "Anna B-PER\nsings O\n\nOslo B-LOC\n"


@pytest.mark.parametrize("tag", ["B_LOC", "b-PER", "NOUN"])
def test_a_tag_of_no_scheme_is_named_with_its_sentence(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "train.conll"
    path.write_text(f"{SENTENCES}\nBergen B-LOC\nfjord {tag}\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        catalogue.read_task("ner", path, path)
    assert str(error.value) == (
        f"expected a tag such as O, B-PER or I-PER in the sentence at line 6 of '{path}'; found {tag!r}; "
        "correct the tag, or use --task pos for tags that stand alone"
    )
    spec, _ = catalogue.read_task("pos", path, path)
    assert (spec.scheme, spec.metric) == ("", "accuracy")


def test_a_label_that_only_dev_examples_have_is_named_with_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("text,label\na,Spam\nb,Not Spam\nc,Social\n", encoding="utf-8")
    dev.write_text("text,label\na,Spam\nb,Promotion\nc,Promotion\n", encoding="utf-8")
    catalogue.read_task("spam4", train, dev)
    message = "warning: never in the training examples, so never learned: Promotion"
    assert capsys.readouterr().err == f"{message}; the first in the dev examples is 'Promotion' in line 3 of '{dev}'\n"
    catalogue.read_task("spam4", train, train)
    assert capsys.readouterr().err == f"{message}\n"


def test_a_tag_that_is_set_aside_as_a_whole_is_named_with_its_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.conll"
    # Whichever sentence is drawn takes its tag along.
    path.write_text("\n".join(f"word B-{letter}\n" for letter in "ABCDEFGH"), encoding="utf-8")
    _, data = catalogue.read_task("ner", path, None)
    (aside,) = data.dev
    assert capsys.readouterr().err == (
        f"warning: never in the training examples, so never learned: {aside.tags[0]}; "
        f"the first in the dev examples is {aside.tags[0]!r} in {aside.place}\n"
    )
