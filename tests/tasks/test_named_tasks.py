"""Tasks by name: what their files reveal before any training."""

import json
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks import named_tasks

SENTENCES = "Anna B-PER\nsings O\n\nOslo B-LOC\n"


@pytest.mark.parametrize("tag", ["B_LOC", "b-PER", "NOUN"])
def test_a_tag_outside_any_scheme_is_named_with_its_sentence(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "train.conll"
    path.write_text(f"{SENTENCES}\nBergen B-LOC\nfjord {tag}\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        named_tasks.read_task("ner", path, path)
    assert str(error.value) == (
        f"expected a tag such as O, B-PER or I-PER in the sentence at line 6 of '{path}'; found {tag!r}; "
        "correct the tag, or use --task pos for plain tags without a scheme"
    )
    spec, _ = named_tasks.read_task("pos", path, path)
    assert (spec.scheme, spec.metric) == ("", "accuracy")


def test_a_label_that_only_dev_examples_have_is_named_with_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("text,label\na,Spam\nb,Not Spam\nc,Social\n", encoding="utf-8")
    dev.write_text("text,label\na,Spam\nb,Promotion\nc,Promotion\n", encoding="utf-8")
    named_tasks.read_task("spam4", train, dev)
    message = "warning: labels missing from the training examples, so never learned: Promotion"
    assert capsys.readouterr().err == f"{message}; the first in the dev examples is 'Promotion' in line 3 of '{dev}'\n"
    same = tmp_path / "same.csv"
    same.write_text("text,label\na,Spam\nb,Not Spam\nd,Social\n", encoding="utf-8")
    named_tasks.read_task("spam4", train, same)
    assert capsys.readouterr().err == f"{message}\n"


def test_a_tag_that_occurs_only_in_held_out_sentences_is_named_with_its_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.conll"
    # Whichever sentence is held out, its tag is held out with it.
    path.write_text("\n".join(f"word B-{letter}\n" for letter in "ABCDEFGH"), encoding="utf-8")
    _, data = named_tasks.read_task("ner", path, None)
    (aside,) = data.dev
    assert capsys.readouterr().err == (
        f"warning: labels missing from the training examples, so never learned: {aside.tags[0]}; "
        f"the first in the dev examples is {aside.tags[0]!r} in {aside.place}\n"
    )


def test_the_labels_are_those_of_the_whole_file_whatever_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text("\n".join(f"word B-{letter}\n" for letter in "ABCDEFGH"), encoding="utf-8")
    dev.write_text("word B-A\n\nword B-H\n", encoding="utf-8")
    spec, data = named_tasks.read_task("ner", train, dev, limit=2)
    assert spec.labels == tuple(f"B-{letter}" for letter in "ABCDEFGH")
    learned = [tag for example in data.train for tag in example.tags]
    assert len(learned) == 2
    missing = ", ".join(label for label in spec.labels if label not in learned)
    assert (
        f"warning: labels missing from the training examples, so never learned: {missing};" in capsys.readouterr().err
    )


def test_a_limit_draws_from_the_whole_file_and_keeps_its_order(tmp_path: Path) -> None:
    """A file sorted by label has only one label in its first rows."""
    path, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    rows = [f"text {number:03},{'a' if number < 100 else 'b'}" for number in range(200)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    dev.write_text("text,label\none,a\ntwo,b\n", encoding="utf-8")
    drawn = [named_tasks.read_task("classification", path, dev, limit=40)[1].train for _ in range(2)]
    assert drawn[0] == drawn[1]
    texts = [example.first for example in drawn[0]]
    assert len(set(texts)) == 40
    assert texts == sorted(texts)
    assert 10 <= sum(example.label == "a" for example in drawn[0]) <= 30
    for limit in (200, 500, None):
        assert len(named_tasks.read_task("classification", path, dev, limit=limit)[1].train) == 200


def test_using_one_file_for_training_and_dev_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy, other = (tmp_path / f"{name}.csv" for name in ("train", "copy", "other"))
    for file in (path, copy):
        file.write_text("text,label\na,x\nb,y\n", encoding="utf-8")
    other.write_text("text,label\nc,x\nd,y\n", encoding="utf-8")
    named_tasks.read_task("classification", path, copy)
    assert capsys.readouterr().err == (
        "warning: the dev examples are the training examples; their scores say nothing about other texts\n"
    )
    named_tasks.read_task("classification", path, other)
    assert capsys.readouterr().err == ""


def test_labels_that_differ_only_in_case_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,label\na,Spam\nb,spam\nc,ham\n", encoding="utf-8")
    spec = named_tasks.spec_for("classification", named_tasks.read_examples("classification", path).examples)
    assert spec.labels == ("Spam", "ham", "spam")
    assert capsys.readouterr().err == "warning: 'Spam' and 'spam' differ only in case, and are different labels\n"
    tags = tmp_path / "train.conll"
    tags.write_text("Oslo B-LOC\nBergen B-Loc\n", encoding="utf-8")
    named_tasks.spec_for("ner", named_tasks.read_examples("ner", tags).examples)
    assert capsys.readouterr().err.startswith("warning: 'B-LOC' and 'B-Loc' differ only in case")


def test_wnli_comes_with_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "dev"):
        rows = [f"{number}\tthe {name}\tfilm {number}\t{number % 2}" for number in range(4)]
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows])
        (tmp_path / f"{name}.tsv").write_text(text + "\n", encoding="utf-8")
    named_tasks.read_task("rte", *_entailment(tmp_path))
    assert capsys.readouterr().err == ""
    named_tasks.read_task("wnli", tmp_path / "train.tsv", tmp_path / "dev.tsv")
    err = capsys.readouterr().err
    assert err.startswith("warning: WNLI's dev set")
    assert err.count("\n") == 1


def _entailment(folder: Path) -> list[Path]:
    paths = [folder / f"rte-{name}.tsv" for name in ("train", "dev")]
    for path in paths:
        rows = [f"0\tthe {path.stem}\tfilm\tentailment", f"1\tthe {path.stem}\tfilm\tnot_entailment"]
        path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n", encoding="utf-8")
    return paths


def test_a_question_without_an_answer_is_skipped_and_listed_in_train_and_dev(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dev.json"
    asked = {"id": "1", "question": "who ?", "answers": [{"text": "anna", "answer_start": 4}]}
    bare = {"id": "2", "question": "where ?", "answers": []}
    content = {"data": [{"title": "t", "paragraphs": [{"context": "the anna film .", "qas": [asked, bare]}]}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    for training in (True, False):
        found = named_tasks.read_examples("squad", path, training=training)
        assert [example.id for example in found.examples] == ["1"]
        assert capsys.readouterr().err == (
            f"warning: {path}: 1 row skipped\nwarning: question '2' of '{path}': no answer\n"
        )
    assert len(named_tasks.read_examples("squad", path, gold=False).examples) == 2


def test_rows_skipped_for_several_reasons_are_counted_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "snli.tsv"
    rows = ["-\ta\tb", "neutral\tc\td", "-\te\tf", "neutral\t\tg"]
    path.write_text("\n".join(["gold_label\tsentence1\tsentence2", *rows]) + "\n", encoding="utf-8")
    assert len(named_tasks.read_examples("classification", path).examples) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        f"warning: {path}: 3 rows skipped: 2 with the label '-', on which the annotators did not agree; "
        "1 with empty text in column 'sentence1'"
    )
