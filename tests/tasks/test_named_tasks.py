"""Tasks by name: what their files reveal before any training."""

import json
from pathlib import Path

import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.specs import named_tasks
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data import task_files
from written_files import file_with

SENTENCES = "Anna B-PER\nsings O\n\nOslo B-LOC\n"


@pytest.mark.parametrize("tag", ["B_LOC", "b-PER", "NOUN"])
def test_a_tag_outside_any_scheme_is_named_with_its_sentence(tmp_path: Path, tag: str) -> None:
    path = file_with(tmp_path / "train.conll", f"{SENTENCES}\nBergen B-LOC\nfjord {tag}\n")
    with pytest.raises(InputError) as error:
        task_files.read_task("ner", path, path)
    assert str(error.value) == (
        f"expected a tag such as O, B-PER or I-PER in the sentence at line 6 of '{path}'; found {tag!r}; "
        "correct the tag, or use --task pos for plain tags without a scheme"
    )
    spec, _ = task_files.read_task("pos", path, path)
    assert (spec.scheme, spec.metric) == ("", "accuracy")


def test_a_label_that_only_dev_examples_have_is_named_with_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("text,label\n" + "a,Spam\nb,Not Spam\nc,Social\n" * 2, encoding="utf-8")
    dev.write_text("text,label\nd,Spam\ne,Promotion\nf,Promotion\n", encoding="utf-8")
    task_files.read_task("spam4", train, dev)
    message = "warning: labels missing from the training examples, so never learned: Promotion"
    assert capsys.readouterr().err == f"{message}; the first in the dev examples is 'Promotion' in line 3 of '{dev}'\n"
    same = file_with(tmp_path / "same.csv", "text,label\ng,Spam\nh,Not Spam\ni,Social\n")
    task_files.read_task("spam4", train, same)
    assert capsys.readouterr().err == f"{message}\n"


def test_a_tag_that_occurs_only_in_held_out_sentences_is_named_with_its_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_with(tmp_path / "train.conll", "\n".join(f"word{letter} B-{letter}\n" for letter in "ABCDEFGH"))
    _, data = task_files.read_task("ner", path, None)
    (aside,) = data.dev
    assert capsys.readouterr().err == (
        f"warning: labels missing from the training examples, so never learned: {aside.tags[0]}; "
        f"the first in the dev examples is {aside.tags[0]!r} in {aside.location}\n"
    )


def test_the_labels_are_those_of_the_whole_file_whatever_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, dev = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text("\n".join(f"word B-{letter}\n" for letter in "ABCDEFGH"), encoding="utf-8")
    dev.write_text("word B-A\n\nword B-H\n", encoding="utf-8")
    spec, data = task_files.read_task("ner", train, dev, limit=2)
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
    drawn = [task_files.read_task("classification", path, dev, limit=40)[1].train for _ in range(2)]
    assert drawn[0] == drawn[1]
    texts = [example.first for example in drawn[0]]
    assert len(set(texts)) == 40
    assert texts == sorted(texts)
    assert 10 <= sum(example.label == "a" for example in drawn[0]) <= 30
    for limit in (200, 500, None):
        assert len(task_files.read_task("classification", path, dev, limit=limit)[1].train) == 200


def test_using_one_file_for_training_and_dev_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy, other = (tmp_path / f"{name}.csv" for name in ("train", "copy", "other"))
    for file in (path, copy):
        file.write_text("text,label\n" + "a,x\nb,y\n" * 2, encoding="utf-8")
    other.write_text("text,label\nc,x\nd,y\n", encoding="utf-8")
    task_files.read_task("classification", path, copy)
    assert capsys.readouterr().err == (
        "warning: the dev examples are the training examples; their scores say nothing about other texts\n"
    )
    task_files.read_task("classification", path, other)
    assert capsys.readouterr().err == ""


def test_labels_that_differ_only_in_case_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_with(tmp_path / "train.csv", "text,label\na,Spam\nb,spam\nc,ham\n")
    spec = named_tasks.spec_for("classification", task_files.read_examples("classification", path).examples)
    assert spec.labels == ("Spam", "ham", "spam")
    assert capsys.readouterr().err == "warning: 'Spam' and 'spam' differ only in case, and are different labels\n"
    tags = file_with(tmp_path / "train.conll", "Oslo B-LOC\nBergen B-Loc\n")
    named_tasks.spec_for("ner", task_files.read_examples("ner", tags).examples)
    assert capsys.readouterr().err.startswith("warning: 'B-LOC' and 'B-Loc' differ only in case")


def test_wnli_comes_with_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "dev"):
        rows = [f"{number}\tthe {name}\tfilm {number}\t{number % 2}" for number in range(4)]
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows])
        (tmp_path / f"{name}.tsv").write_text(text + "\n", encoding="utf-8")
    task_files.read_task("rte", *_entailment(tmp_path))
    assert capsys.readouterr().err == ""
    task_files.read_task("wnli", tmp_path / "train.tsv", tmp_path / "dev.tsv")
    err = capsys.readouterr().err
    assert err.startswith("warning: WNLI's dev set")
    assert err.count("\n") == 1


def _entailment(folder: Path) -> list[Path]:
    paths = [folder / f"rte-{name}.tsv" for name in ("train", "dev")]
    for path in paths:
        rows = [f"0\tthe {path.stem}\tfilm\tentailment", f"1\tthe {path.stem}\tother film\tnot_entailment"]
        path.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows, *rows]) + "\n", encoding="utf-8")
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
        result = task_files.read_examples("squad", path, training=training)
        assert [example.id for example in result.examples] == ["1"]
        assert capsys.readouterr().err == (
            f"warning: {path}: 1 row skipped\nwarning: question '2' of '{path}': no answer\n"
        )
    assert len(task_files.read_examples("squad", path, gold=False).examples) == 2


def test_rows_skipped_for_several_reasons_are_counted_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "snli.tsv"
    rows = ["-\ta\tb", "neutral\tc\td", "-\te\tf", "neutral\t\tg"]
    path.write_text("\n".join(["gold_label\tsentence1\tsentence2", *rows]) + "\n", encoding="utf-8")
    assert len(task_files.read_examples("classification", path).examples) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        f"warning: {path}: 3 rows skipped: 2 with the label '-', on which the annotators did not agree; "
        "1 with empty text in column 'sentence1'"
    )


SPANS = [
    {"text": "Anna sings in Oslo.", "spans": [[0, 4, "PER"], [14, 18, "LOC"]]},
    {"text": "Bert is in Rome.", "spans": [[0, 4, "PER"], [11, 15, "LOC"]]},
    {"text": "No one came.", "spans": []},
]


def test_marked_spans_train_and_score_like_columns_of_tags(tmp_path: Path) -> None:
    spans, columns, other = (tmp_path / name for name in ("a.jsonl", "a.conll", "b.conll"))
    spans.write_text("".join(json.dumps(record) + "\n" for record in SPANS), encoding="utf-8")
    sentences = "Anna B-PER\nsings O\nin O\nOslo B-LOC\n. O\n\nBert B-PER\nis O\nin O\nRome B-LOC\n. O\n\n"
    columns.write_text(sentences + "No O\none O\ncame O\n. O\n", encoding="utf-8")
    other.write_text("Anna S-PER\n\nNew B-LOC\nYork E-LOC\n\nby O\n", encoding="utf-8")
    marked, data = task_files.read_task("ner", spans, columns)
    read, tagged = task_files.read_task("ner", columns, spans)
    assert marked == read
    assert (marked.scheme, marked.labels) == ("IOB2", ("O", "B-LOC", "B-PER"))
    assert [example.tags for example in data.train] == [example.tags for example in tagged.train]
    assert [example.words for example in data.dev] == [example.words for example in tagged.dev]
    _, with_ends = task_files.read_task("ner", other, spans)  # dev tags in the scheme of the training tags
    assert with_ends.dev[0].tags == ("S-PER", "O", "O", "S-LOC", "O")
    with pytest.raises(InputError, match="found JSON, which --task ner reads as texts with marked spans"):
        task_files.read_examples("pos", spans)
    with pytest.raises(ConfigError, match="found JSON, which has none; omit --word-column"):
        task_files.read_examples("ner", spans, ColumnSettings(word_column=1))


def test_mapped_labels_are_those_of_the_spec(tmp_path: Path) -> None:
    path = file_with(tmp_path / "claims.csv", "text,label\n" + "a,1\nb,0\nc,1\nd,0\n")
    names = {"1": "Claim", "0": "Not Claim"}
    for name in ("classification", "claim"):
        spec, data = task_files.read_task(name, path, path, map_labels=names)
        assert set(spec.labels) == {"Claim", "Not Claim"}
        assert (
            [example.label for example in data.train]
            == [example.label for example in data.dev]
            == ["Claim", "Not Claim"] * 2
        )
    tags = file_with(tmp_path / "a.conll", "Anna I-PER\nAcme I-ORG\n\nOslo I-LOC\nis O\n")
    spec, data = task_files.read_task("ner", tags, tags, map_labels={"PER": "Name", "ORG": "Name", "LOC": "Place"})
    assert spec.labels == ("O", "B-Name", "I-Name", "I-Place")
    assert [example.tags for example in data.train] == [("I-Name", "B-Name"), ("I-Place", "O")]
    with pytest.raises(InputError, match=f"map names in line 3 of '{path}', one of '1'; found '0'"):
        task_files.read_task("classification", path, path, map_labels={"1": "Claim"})


@pytest.mark.parametrize("name", ["regression", "sts-b", "squad", "swag"])
def test_a_task_without_labels_refuses_a_map(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"found {name}, which has no labels; omit --map"):
        task_files.read_examples(name, tmp_path / "absent.tsv", map_labels={"1": "x"})


@pytest.mark.parametrize("name", ["cola", "snli"])
def test_the_labels_of_official_files_are_not_mapped(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"found {name}, whose labels are those of its official files; use --task cl"):
        task_files.read_examples(name, tmp_path / "absent.tsv", map_labels={"1": "x"})


def test_a_language_is_for_xnli_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--language needs --task xnli; "):
        task_files.read_examples("snli", tmp_path / "absent.tsv", ColumnSettings(language="de"))


def test_a_label_with_a_single_training_example_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, dev = tmp_path / "a.csv", tmp_path / "dev.csv"
    path.write_text("text,label\n" + "".join(f"a{row},x\nb{row},y\n" for row in range(5)) + "c,z\n", encoding="utf-8")
    dev.write_text("text,label\nd,x\ne,y\n", encoding="utf-8")
    start = "warning: labels with a single training example, which {}: 'z' (line 12 of '" + str(path) + "'); "
    advice = "add examples of that label, or merge it into another label with --map\n"
    task_files.read_task("classification", path, None)
    alone = "warning: the only held-out example has the label y; give --dev or more examples\n"
    assert capsys.readouterr().err == start.format("is kept for training, so no score covers them") + advice + alone
    task_files.read_task("classification", path, dev)
    assert capsys.readouterr().err == start.format("can hardly be learned from") + advice


@pytest.mark.parametrize("name", ["snli", "xnli"])
def test_pairs_without_a_gold_label_are_counted(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nli.tsv"
    rows = ["-\ta\tb", "neutral\tc\td", "-\te\tf"]
    path.write_text("\n".join(["gold_label\tsentence1\tsentence2", *rows]) + "\n", encoding="utf-8")
    examples = task_files.read_examples(name, path).examples
    assert [example.label for example in examples] == ["neutral"]
    assert capsys.readouterr().err.startswith(f"warning: {path}: 2 rows skipped\n")
    spec = named_tasks.spec_for(name, examples)
    assert (spec.labels, spec.metrics, spec.pair) == (("contradiction", "entailment", "neutral"), ("accuracy",), True)
