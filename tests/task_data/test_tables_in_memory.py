"""Tables in memory are read as files with the same rows are: examples, runs, scores and predictions."""

import gc
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.requests import from_file, path_or_none
from bertsmith.base.core.tables import as_file
from bertsmith.recipes.adaptation.settings import AdaptRequest
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.tasks.datasets.tables import read_table, read_texts
from tasks.task_samples import examples_of, write_base_model

Rows = list[dict[str, Any]]
SETTINGS: dict[str, Any] = {"seeds": 1, "epochs": 1, "max_length": 32, "learning_rate": 1e-4, "device": "cpu"}


def rows_of(count: int, seed: int = 0) -> Rows:
    return [{"text": text.first, "label": text.label} for text in examples_of("single", count, seed)]


class ClassLabel:
    """The names of classes, as data sets of Hugging Face describe them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def int2str(self, value: int) -> str:
        return self.names[value]


class DataSet:
    """A table with the public methods of a data set of Hugging Face."""

    def __init__(self, rows: Rows, features: Mapping[str, Any]) -> None:
        self.rows, self.features, self.column_names = rows, features, list(features)

    def with_format(self, kind: str | None) -> "DataSet":
        assert kind is None
        return self

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.column_names)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)

    @classmethod
    def from_dict(cls, columns: Mapping[str, Sequence[Any]]) -> "DataSet":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return cls(rows, dict.fromkeys(columns))


def polars_frame(rows: Rows) -> Any:
    return pytest.importorskip("polars").DataFrame(rows)


def in_features(rows: Rows) -> DataSet:
    names = sorted({row["label"] for row in rows})
    numbered = [{**row, "label": names.index(row["label"])} for row in rows]
    return DataSet(numbered, {"text": None, "label": ClassLabel(names)})


TABLES: dict[str, Callable[[Rows], Any]] = {
    "list": lambda rows: rows,
    "pandas": pd.DataFrame,
    "categories": lambda rows: pd.DataFrame(rows).astype({"label": "category", "text": "string[pyarrow]"}),
    "pyarrow": pa.Table.from_pylist,
    "classes": in_features,
    "polars": polars_frame,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def run(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was fine-tuned on a file, with that file in the same folder."""
    folder = tmp_path_factory.mktemp("run")
    pd.DataFrame(rows_of(40)).to_csv(folder / "mails.csv", index=False)
    bertsmith.finetune(base, "classification", folder / "run", train=folder / "mails.csv", **SETTINGS)
    return folder / "run"


def digest_of_weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", TABLES)
def test_the_same_rows_are_the_same_file_whatever_holds_them(kind: str) -> None:
    file = as_file(TABLES[kind](rows_of(40)), "train")
    assert file.path.read_bytes() == as_file(rows_of(40), "dev").path.read_bytes()
    assert file.startswith("a table in memory of 40 rows, sha256:")
    folder = file.path.parent
    assert folder.is_dir()
    del file
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["categories", "classes"])
def test_a_run_on_a_table_in_memory_is_that_on_the_file(base: str, run: Path, tmp_path: Path, kind: str) -> None:
    table = TABLES[kind](rows_of(40))
    result = bertsmith.finetune(base, "classification", tmp_path / "run", train=table, **SETTINGS)
    assert digest_of_weights(tmp_path / "run") == digest_of_weights(run)
    assert 'train = "a table in memory of 40 rows, sha256:' in (tmp_path / "run" / "request.toml").read_text()
    scores = json.loads((run / "report.json").read_text())["scores"]
    assert json.loads(json.dumps(result.report["scores"])) == scores


def test_a_run_is_resumed_with_the_same_table_alone(base: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    bertsmith.finetune(base, "classification", out, train=pd.DataFrame(rows_of(40)), **SETTINGS)
    bertsmith.finetune(base, "classification", out, train=rows_of(40), resume=True, **SETTINGS)
    changed = [*rows_of(39), {"text": "anna was here", "label": "positive"}]
    with pytest.raises(RunError, match="digest of train") as error:
        bertsmith.finetune(base, "classification", out, train=changed, resume=True, **SETTINGS)
    assert error.value.found.startswith("the table 'train' has other rows than when the run began; ")
    assert re.search(r"; digest of train = 'sha256:[0-9a-f]{12}' \(was 'sha256:[0-9a-f]{12}'\)$", error.value.found)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, changed)), encoding="utf-8")
    with pytest.raises(
        RunError, match=r"found '.*rows\.jsonl' has other content than when the run began; digest of train"
    ):
        bertsmith.finetune(base, "classification", out, train=tmp_path / "rows.jsonl", resume=True, **SETTINGS)


def test_scores_and_predictions_of_a_table_are_those_of_the_file(run: Path, tmp_path: Path) -> None:
    rows = rows_of(20, seed=1)
    pd.DataFrame(rows).to_csv(tmp_path / "dev.csv", index=False)
    wanted = bertsmith.evaluate(run, tmp_path / "dev.csv", device="cpu").to_dict()
    model = bertsmith.load(run, device="cpu")
    answers = model.predict(tmp_path / "dev.csv")
    assert [answer["prediction"] for answer in answers] == [
        answer.label for answer in model.classify([row["text"] for row in rows])
    ]
    for kind in ("list", "pandas", "pyarrow", "classes"):
        assert bertsmith.evaluate(run, TABLES[kind](rows), device="cpu").to_dict() == wanted
    assert model.predict(rows) == answers
    assert model.predict(pa.Table.from_pylist(rows)).to_pylist() == answers
    assert model.predict(in_features(rows)).rows == answers
    assert model.predict(in_features(rows[:0])).column_names == list(answers[0])
    assert model.predict(pa.Table.from_pylist(rows)[:0]).column_names == list(answers[0])


def test_a_conversion_and_an_adaptation_take_tables_too(run: Path, tmp_path: Path) -> None:
    rows = rows_of(12, seed=1)
    pd.DataFrame(rows).to_csv(tmp_path / "dev.csv", index=False)
    lines = [
        bertsmith.convert(run / "model", tmp_path / name, to="google", data=data).comparisons
        for name, data in (("a", rows), ("b", tmp_path / "dev.csv"))
    ]
    assert any("accuracy" in line for line in lines[0])
    assert [line.replace("data.jsonl", "dev.csv") for line in lines[0]] == list(lines[1])
    request = AdaptRequest(str(run), [tmp_path / "dev.csv"], tmp_path / "out", task="classification", train=rows)
    train = path_or_none(request.train)
    assert train is not None
    assert [example.first for example in read_texts(train).examples] == [row["text"] for row in rows]


def test_predictions_of_a_frame_have_its_index_and_nothing_for_rows_without_text(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame({"body": ["anna was here", None, "anna was"]}, index=pd.Index([7, 3, 7], name="mail"))
    answers = bertsmith.load(run, device="cpu").predict(frame, text_column="body")
    pd.testing.assert_index_equal(answers.index, frame.index)
    assert list(answers.columns) == ["prediction", "probability"]
    assert answers["prediction"].isna().tolist() == [False, True, False]
    assert answers["probability"].isna().tolist() == [False, True, False]
    assert "row 2 of the table 'data': empty text in column 'body'" in capsys.readouterr().err
    assert list(frame.columns) == ["body"]


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=6), data=st.data())
def test_any_table_has_the_examples_of_its_files(texts: list[str], data: st.DataObject, tmp_path_factory: Any) -> None:
    kind = data.draw(st.sampled_from([st.text(max_size=5), st.integers(-9, 9), st.sampled_from([None, "a", "b"])]))
    rows = [{"text": text, "label": data.draw(kind)} for text in texts]
    folder = tmp_path_factory.mktemp("tables")
    frame = pd.DataFrame(rows)
    frame.to_parquet(folder / "rows.parquet")
    (folder / "rows.json").write_text(json.dumps(rows))

    def examples(path: Path) -> Any:
        try:
            file = read_texts(path, skip_unlabelled=True)
        except InputError as error:
            return type(error)
        return [(text.id, text.first, text.label) for text in file.examples], [why for _, why in file.skipped]

    wanted = examples(folder / "rows.json")
    for table in (rows, frame, pa.Table.from_pandas(frame)):
        assert examples(as_file(table, "train").path) == wanted
    assert examples(folder / "rows.parquet") == wanted


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "expected rows in train; found none; give a table that holds examples"),
        (["a text"], "expected a dict as row 1 of train; found a value of type str; convert it"),
        ([__file__], "one file or one table as train; found a list of paths, .*; concatenate the files into one, and"),
        ([Path("no.csv"), Path("b.csv")], "found a list of paths, the first 'no.csv'; concatenate the files"),
        ({"train": []}, "found a value of type dict; name one of its parts"),
        (5, "expected train as a path or a table: a list of dicts, .* found a value of type int"),
        (pd.DataFrame({0: ["a"]}), "expected names of columns in train that are texts; found 0; rename"),
        (pd.DataFrame([["a", "b"]], columns=["text"] * 2), "different names of columns in train; found 'text' twice"),
        ([{"text": "a", "label": {1}}], "in column 'label' of row 1 of train; found a value of type set; convert it"),
        ([{"text": "a", "label": "b"}, {"text": "c", "label": " "}], "row 2 of the table 'train'|in row 2"),
        ([{"text": "a"}], r"for the label in the table 'train'; found column 'text'"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_in_a_line(base: str, tmp_path: Path, table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        bertsmith.finetune(base, "classification", tmp_path / "run", train=table, **SETTINGS)
    assert "bertsmith-table" not in str(error.value)


def test_a_column_of_a_data_set_is_a_list_of_texts(run: Path) -> None:
    class Column(Sequence[str]):
        def __getitem__(self, number: Any) -> Any:
            return ["anna was here", "anna"][number]

        def __len__(self) -> int:
            return 2

    model = bertsmith.load(run, device="cpu")
    assert model.classify(Column()) == model.classify(["anna was here", "anna"])
    np.testing.assert_array_equal(model.embed(Column()), model.embed(["anna was here", "anna"]))


def test_vectors_of_a_table_are_those_of_its_texts_in_order(run: Path) -> None:
    model = bertsmith.load(run, device="cpu")
    rows = rows_of(6)
    wanted = model.embed([row["text"] for row in rows])
    for table in (rows, pd.DataFrame(rows, index=[3, 1, 2, 5, 4, 0]), in_features(rows)):
        np.testing.assert_array_equal(model.embed(table), wanted)
    np.testing.assert_array_equal(model.embed(pd.DataFrame(rows)[:0]), wanted[:0])
    with pytest.raises(InputError, match=r"expected a text in row 2 of the table 'texts'; found empty text"):
        model.embed(pd.DataFrame({"text": ["anna", None]}))
    with pytest.raises(InputError, match="expected one column of texts in the table 'texts'; found two"):
        model.embed(pd.DataFrame({"text": ["anna"], "text2": ["was"]}))


def test_a_student_and_a_comparison_learn_from_tables(run: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame(rows_of(40))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    options: dict[str, Any] = {"systems": ["one-hot"], "seeds": 1, "device": "cpu"}
    reports = [
        bertsmith.compare_systems(table, tmp_path / name, **options).report["rows"]
        for name, table in (("of file", tmp_path / "rows.csv"), ("of frame", frame))
    ]
    assert reports[0][0]["values"] == reports[1][0]["values"]
    texts = frame[["text"]]
    texts.to_csv(tmp_path / "texts.csv", index=False)
    for name, files in (("a", (frame, texts)), ("b", (tmp_path / "rows.csv", tmp_path / "texts.csv"))):
        bertsmith.distill(run, tmp_path / name, train=files[0], unlabelled=files[1], student="n-grams", times=False)
    students = [(tmp_path / name / "n-grams.safetensors") for name in ("a", "b")]
    assert students[0].read_bytes() == students[1].read_bytes()


def test_missing_values_are_empty_cells_and_numbers_dates_and_lists_are_those_of_a_file(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "text": pd.array(["a b", None, "c"], dtype="string"),
            "label": pd.array([1, None, 3], dtype="Int64"),
            "day": pd.to_datetime(["2024-05-01", None, "2024-05-02"]),
            "share": [0.5, float("nan"), 2.0],
            "words": [["a", "b"], None, np.array(["c"])],
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    file = as_file(frame, "train")
    rows = [row.values for row in read_table(file.path)]
    assert rows == [row.values for row in read_table(tmp_path / "rows.parquet")]
    assert rows[1] == dict.fromkeys(frame.columns, "")
    assert rows[0]["label"] == "1"


def test_a_settings_file_holds_no_table(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('train = [{text = "a", label = "b"}]')
    with pytest.raises(ConfigError, match=r"train in .* must be a text or a path"):
        from_file(FinetuneRequest, tmp_path / "settings.toml")
