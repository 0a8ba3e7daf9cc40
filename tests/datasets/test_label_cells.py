"""Labels as other tools write them: each is read as what its tool means, or refused."""

import datetime as dt
import decimal
import json
import re
import unicodedata
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.tables import read_table, read_texts
from bertsmith.tasks.datasets.text_groups import read_groups
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data.task_files import read_examples, read_task
from written_files import file_with

NAMES = st.lists(st.text("abcd ", min_size=1, max_size=4).filter(str.strip).map(str.strip), max_size=3, unique=True)


def write_lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def labels(path: Path, target: str = "label", **options: object) -> list[object]:
    return [example.label for example in read_texts(path, target=target, **options).examples]


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (["pos"], "pos"),  # doccano
        ('["pos"]', "pos"),
        ({"choices": ["pos"]}, "pos"),  # Label Studio, JSON-MIN and CSV
        ({"choices": "pos"}, "pos"),
        ({"pos": 1.0, "neg": 0.0}, "pos"),  # spaCy
        ({"pos": True, "neg": False}, "pos"),
        ([3], "3"),
        (" pos ", "pos"),
        ("[unknown]", "[unknown]"),
        ("{x}", "{x}"),
    ],
)
def test_one_label_in_a_list_or_record_is_its_name(tmp_path: Path, cell: object, name: str) -> None:
    assert labels(write_lines(tmp_path / "a.jsonl", {"text": "a", "label": cell})) == [name]


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        (["a", "b"], r"expected one label in line 2 of .*; found 2: .*; use --task multi-label"),
        ([0, 1, 0], r"expected one label in line 2 of .*; found 3: '\[0, 1, 0\]'"),
        ({"pos": 0.7, "neg": 0.3}, r"expected a label in line 2 of .*; found "),
        ({"id": 4, "name": "x"}, r"expected a label in line 2 of"),
        ([None], r"expected a label in line 2 of"),
        ([["a"]], r"expected a label in line 2 of"),
        ("['pos']", r"expected a label in line 2 of"),  # how pandas writes a list into a CSV file
        ("[\"a\", 'b']", r"expected a label in line 2 of"),
    ],
)
def test_what_is_no_single_label_is_refused(tmp_path: Path, cell: object, found: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b", "label": cell})
    with pytest.raises(InputError, match=found):
        read_texts(path)


@pytest.mark.parametrize("cell", [[], None, "", {"choices": []}, {"pos": 0, "neg": 0}, float("nan")])
def test_an_empty_list_is_no_label(tmp_path: Path, cell: object) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b", "label": cell})
    with pytest.raises(InputError, match="an empty cell in 1 row, the first in line 2"):
        read_texts(path)
    assert labels(path, skip_unlabelled=True) == ["x"]


@given(st.lists(NAMES, min_size=1, max_size=6), st.integers(0, 3))
def test_several_labels_are_the_same_in_every_form(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[str]], form: int
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    every = sorted({name for names in drawn for name in names} | {"first", "second"})
    texts = [f"text {number}" for number in range(len(drawn))]
    if form == 0:
        path = write_lines(
            folder / "a.jsonl", *({"text": text, "labels": names} for text, names in zip(texts, drawn, strict=True))
        )
    elif form == 1:
        cats = [{name: float(name in names) for name in every} for names in drawn]
        path = write_lines(
            folder / "a.jsonl", *([text, {"cats": record}] for text, record in zip(texts, cats, strict=True))
        )
    elif form == 2:
        table = pd.DataFrame({"text": texts} | {name: [int(name in names) for names in drawn] for name in every})
        path = folder / "a.csv"
        table.to_csv(path, index=False)
    else:
        tasks = [
            {
                "data": {"text": text},
                "annotations": [{"result": [{"type": "choices", "from_name": "x", "value": {"choices": names}}]}],
            }
            for text, names in zip(texts, drawn, strict=True)
        ]
        path = file_with(folder / "a.json", json.dumps(tasks))
    assert [set(names) for names in labels(path, "labels")] == [set(names) for names in drawn]


def test_lists_of_zeros_and_ones_have_a_number_for_each_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    rows = ([0, 1, 0], [1.0, 0.0, 1.0], [0, 0, 0])
    path = write_lines(tmp_path / "a.jsonl", *({"text": "a", "labels": row} for row in rows))
    assert labels(path, "labels") == [("1",), ("0", "2"), ()]
    assert "a 0 or 1 for each of 3 labels, named 0 to 2" in capsys.readouterr().err
    texts = write_lines(tmp_path / "e.jsonl", *({"text": "a", "labels": list(map(str, map(int, row)))} for row in rows))
    assert labels(texts, "labels") == [("1",), ("0", "2"), ()]
    numbers = write_lines(tmp_path / "b.jsonl", {"text": "a", "labels": [0, 1]}, {"text": "b", "labels": [27]})
    assert labels(numbers, "labels") == [("0", "1"), ("27",)]
    for other in ([0, 1], [3], ["a"]):
        mixed = write_lines(tmp_path / "c.jsonl", {"text": "a", "labels": [0, 1, 0]}, {"text": "b", "labels": other})
        with pytest.raises(InputError, match="expected a list of 3 zeros and ones in line 2"):
            labels(mixed, "labels")
    scores = write_lines(tmp_path / "d.jsonl", {"text": "a", "labels": [0.2, 0.8]}, {"text": "b", "labels": [1, 0]})
    with pytest.raises(InputError, match=r"expected a list of names in line 1 of .*; found '\[0.2, 0.8\]'"):
        labels(scores, "labels")


def test_lists_of_the_dev_file_are_read_as_those_of_the_training_file(tmp_path: Path) -> None:
    def file(name: str, *rows: list[int]) -> Path:
        return write_lines(tmp_path / name, *({"text": f"{name} {n}", "labels": row} for n, row in enumerate(rows)))

    def dev_labels(train: Path, dev: Path) -> list[object]:
        _, data = read_task("multi-label", train, dev)
        return [example.label for example in data.dev]

    ones = file("ones.jsonl", [0, 1], [1, 1], [0, 0], [1, 0])
    classes = file("classes.jsonl", [0], [1], [0, 1])
    either = file("either.jsonl", [0, 1], [1, 0])
    assert dev_labels(ones, either) == [("1",), ("0",)]
    assert dev_labels(classes, either) == [("0", "1"), ("1", "0")]
    assert dev_labels(either, either) == [("1",), ("0",)]
    three = file("three.jsonl", [0, 1, 0], [1, 0, 1], [0, 0, 1])
    for dev in (either, classes):
        with pytest.raises(InputError, match=r"a list of 3 zeros and ones in line 1 of .*, as in the training file"):
            read_task("multi-label", three, dev)
    with pytest.raises(InputError, match=r"lists of the names of labels, as in the training file; found \[1, 1\]"):
        read_task("multi-label", classes, ones)


def test_columns_of_zeros_and_ones_are_labels(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", "id,comment_text,toxic,insult,source\n1,a,1,0,web\n2,b,0,0,mail\n3,c,1,1,\n")
    assert labels(path, "labels") == [("toxic",), (), ("toxic", "insult")]
    assert labels(path, "labels", label_column="insult, toxic") == [("toxic",), (), ("insult", "toxic")]
    with pytest.raises(InputError, match=r"expected 0 or 1 in the label column 'source' in line 2 of .*; found 'web'"):
        labels(path, "labels", label_column="toxic,source")
    with pytest.raises(InputError, match="name it with --label-column"):
        labels(path)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([b"good", b"bad"], ["good", "bad"]),
        ([decimal.Decimal("1.50"), decimal.Decimal("2.25")], ["1.50", "2.25"]),
        ([dt.date(2024, 5, 1), dt.date(2024, 5, 2)], ["2024-05-01", "2024-05-02"]),
        ([["good"], ["bad"]], ["good", "bad"]),
        (pa.array(["good", "bad"]).dictionary_encode(), ["good", "bad"]),
        ([True, False], ["true", "false"]),
        (pa.array([3, 4], pa.int8()), ["3", "4"]),
    ],
)
def test_columns_of_parquet_are_read_by_their_type(tmp_path: Path, values: object, names: list[str]) -> None:
    texts = [b"first", b"second"] if isinstance(values, list) and isinstance(values[0], bytes) else ["first", "second"]
    pq.write_table(pa.table({"text": texts, "label": values}), tmp_path / "a.parquet")
    examples = read_texts(tmp_path / "a.parquet").examples
    assert [(example.first, example.label) for example in examples] == list(
        zip(["first", "second"], names, strict=True)
    )


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [b"a", b"\xff"], "label": ["x", "y"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"expected text in row 2 of .*; found bytes that are not UTF-8"):
        read_texts(tmp_path / "a.parquet")


def hub_table(values: dict[str, list[object]], features: dict[str, object]) -> pa.Table:
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(values).replace_schema_metadata(metadata)


def test_classes_of_hugging_face_have_their_names(tmp_path: Path) -> None:
    kind = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    table = hub_table({"text": ["a", "b", "c"], "label": [1, 0, -1]}, {"label": kind})
    pq.write_table(table, tmp_path / "a.parquet")
    assert labels(tmp_path / "a.parquet", skip_unlabelled=True) == ["pos", "neg"]
    several = hub_table({"text": ["a"], "labels": [[1, 0]]}, {"labels": {"feature": kind, "_type": "Sequence"}})
    pq.write_table(several, tmp_path / "b.parquet")
    assert labels(tmp_path / "b.parquet", "labels") == [("pos", "neg")]
    pq.write_table(hub_table({"text": ["a"], "label": [2]}, {"label": kind}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"expected a number of a class, 0 to 1, in row 1 of .*; found 2"):
        labels(tmp_path / "c.parquet")


FRAME = pd.DataFrame({"text": ["a", "b", "c"], "label": ["x", "y", "x"], "n": [1.5, None, 3.0]})


@pytest.mark.parametrize("orient", ["columns", "index", "records", "split", "table"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_every_json_of_pandas_is_the_table_or_refused(
    tmp_path: Path, orient: str, named: bool, indent: int | None
) -> None:
    frame = FRAME.set_axis(["first", "second", "third"]) if named else FRAME
    frame.to_json(tmp_path / "a.json", orient=orient, indent=indent)
    rows = [{name: row.values[name] for name in FRAME} for row in read_table(tmp_path / "a.json")]
    assert [(row["text"], row["label"]) for row in rows] == [("a", "x"), ("b", "y"), ("c", "x")]
    assert [row["n"] for row in rows] == ["1.5", "", "3.0"]


def test_a_table_whose_rows_may_be_columns_is_refused(tmp_path: Path) -> None:
    for name in ("a.json", "a.jsonl"):
        FRAME.set_axis(["p", "q", "r"]).rename(columns={"text": "u", "label": "v"}).to_json(tmp_path / name)
        with pytest.raises(InputError, match=r"a table whose columns have known names in .*orient='records'"):
            read_texts(tmp_path / name)
    FRAME.to_json(tmp_path / "b.json", orient="values")
    with pytest.raises(InputError, match="expected a JSON record"):
        read_texts(tmp_path / "b.json")
    lone = write_lines(tmp_path / "c.jsonl", {"text": "a", "label": "x"})
    assert labels(lone) == ["x"]


@pytest.mark.parametrize("answer", ["reject", "ignore"])
def test_what_the_annotator_did_not_accept_is_no_gold(tmp_path: Path, answer: str) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        {"text": "a", "label": "x", "answer": "accept"},
        {"text": "b", "label": "x", "answer": answer},
        {"text": "c", "options": [{"id": "x"}], "label": "y", "answer": "accept"},
    )
    file = read_texts(path)
    assert [example.first for example in file.examples] == ["a", "c"]
    assert file.skipped == ((f"line 2 of '{path}'", f"the answer '{answer}' of the annotator"),)
    assert len(read_texts(path, target=None).examples) == 3
    chosen = write_lines(tmp_path / "b.jsonl", {"text": "a", "options": [], "accept": ["x"], "answer": "accept"})
    assert labels(chosen) == ["x"]
    spans = {"text": "A of B", "spans": [[0, 1, "G"], [5, 6, "D"]], "label": "causes"}
    related = write_lines(tmp_path / "c.jsonl", spans, {**spans, "answer": answer})
    assert len(read_examples("relations", related).examples) == 1
    questions = write_lines(tmp_path / "d.jsonl", {"question": "q", "answer": answer, "label": "x"})
    assert len(read_texts(questions).examples) == 1


def test_choices_of_label_studio_are_labels(tmp_path: Path) -> None:
    def task(text: str, *choices: str, name: str = "mood", **more: object) -> dict[str, object]:
        result = {"type": "choices", "from_name": name, "value": {"choices": list(choices)}}
        return {"data": {"text": text}, "annotations": [{"result": [result], **more}]}

    path = tmp_path / "a.json"
    tasks = [task("a", "good"), task("b", "bad", was_cancelled=True), {"data": {"text": "c"}}, task("d", "bad")]
    path.write_text(json.dumps(tasks), encoding="utf-8")
    file = read_texts(path)
    assert [(example.first, example.label) for example in file.examples] == [("a", "good"), ("d", "bad")]
    assert [reason for _, reason in file.skipped] == ["only cancelled annotations", "no annotation"]
    differing = {**task("a", "good"), "annotations": task("a", "x")["annotations"] + task("a", "y")["annotations"]}
    path.write_text(json.dumps([differing]), encoding="utf-8")
    with pytest.raises(InputError, match="found 2 that differ; mark one of them as ground truth"):
        read_texts(path)
    path.write_text(json.dumps([task("a", "good"), task("b", "yes", name="urgent")]), encoding="utf-8")
    assert labels(path, label_column="mood", skip_unlabelled=True) == ["good"]


def test_lines_of_fasttext_have_their_labels(tmp_path: Path) -> None:
    path = file_with(tmp_path / "train.ft", "__label__pos A good film .\nnothing\n\nso __label__neg it was\n")
    file = read_texts(path)
    assert [(example.first, example.label) for example in file.examples] == [
        ("A good film .", "pos"),
        ("so it was", "neg"),
    ]
    assert file.skipped == ((f"line 2 of '{path}'", "no word that starts with __label__"),)
    (tmp_path / "texts.txt").write_text("__label__pos A good film .\n", encoding="utf-8")
    (example,) = read_groups("texts", tmp_path / "texts.txt").examples
    assert (example.first, example.label) == ("A good film .", None)
    path.write_text("__label__a __label__b both\n__label__a one\n", encoding="utf-8")
    assert labels(path, "labels") == [("a", "b"), ("a",)]
    with pytest.raises(InputError, match="use --task multi-label"):
        labels(path)


SPELLINGS = [
    ("1", "1.0"),
    ("0", "0.0"),
    ("true", "True"),
    (unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")),
    ("Not Spam", "Not  Spam"),
    ("Not Spam", "Not\u00a0Spam"),
]


def test_spellings_that_look_equal_are_told_apart_by_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,caf\xe9\nb,cafe\u0301\nc,\u03b1 b\nd,\u03b1  b\n", encoding="utf-8")
    read_examples("classification", tmp_path / "a.csv")
    notices = capsys.readouterr().err
    assert r"'cafe\u0301' as 'caf\xe9' (1), '\u03b1 \x20b' as '\u03b1 b' (1)" in notices


@pytest.mark.parametrize(("plain", "other"), SPELLINGS)
def test_spellings_of_one_label_are_one_class(
    tmp_path: Path, plain: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def table(name: str, *cells: str) -> Path:
        rows = "".join(f"text {number},{cell}\n" for number, cell in enumerate(cells))
        (tmp_path / name).write_text(f"text,label\n{rows}", encoding="utf-8")
        return tmp_path / name

    mixed = table("mixed.csv", plain, other, "z", "z")
    assert {example.label for example in read_examples("classification", mixed).examples} == {plain, "z"}
    assert "labels that are spelled in several ways are read as one: " in capsys.readouterr().err
    for first, second in ((plain, other), (other, plain)):
        spec, data = read_task("classification", table("train.csv", first, "z"), table("dev.csv", second, "z"))
        assert spec.labels == tuple(sorted([first, "z"]))
        assert [example.label for example in data.dev] == [first, "z"]
    renamed = read_examples("classification", mixed, map_labels={other: "new", "z": "z"})
    assert {example.label for example in renamed.examples} == {"new", "z"}


def test_numbers_that_are_not_whole_keep_their_spelling(tmp_path: Path) -> None:
    pd.DataFrame({"text": ["a", "b", "c"], "label": [1, None, 0]}).to_csv(tmp_path / "a.csv", index=False)
    columns = ColumnSettings(skip_unlabelled=True)
    examples = read_examples("classification", tmp_path / "a.csv", columns).examples
    assert [example.label for example in examples] == ["1.0", "0.0"]
    known = read_examples("classification", tmp_path / "a.csv", columns, known=("0", "1")).examples
    assert [example.label for example in known] == ["1", "0"]
    (tmp_path / "b.csv").write_text("text,label\na,1\nb,01\nc,1.5\nd,1.50\n", encoding="utf-8")
    names = [example.label for example in read_examples("classification", tmp_path / "b.csv").examples]
    assert names == ["1", "01", "1.5", "1.50"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("a.spacy", "this is a DocBin of spaCy"), ("a.xls", "save its sheet as .xlsx or CSV")],
)
def test_formats_that_are_not_read_are_named(tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / name).write_bytes(b"\x78\x9c\x00")
    with pytest.raises(InputError, match=re.escape(found)):
        read_texts(tmp_path / name)
