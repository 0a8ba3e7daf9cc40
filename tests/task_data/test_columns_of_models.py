"""A model remembers the columns that its training named: tables with them are read so, and others as by any model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data.task_files import columns_for
from tasks.task_samples import examples_of, write_base_model

Rows = list[dict[str, Any]]
COLUMNS = {"text_column": "subject", "label_column": "kind"}
NOTE = 'read with `text_column="subject"`'


def rows_of(count: int, seed: int, **names: str) -> Rows:
    """Rows with a text and a label, and with a column of other texts that has a known name."""
    texts, labels = names.get("texts", "subject"), names.get("labels", "kind")
    return [
        {texts: example.first, labels: example.label, "text" if texts != "text" else "note": f"number {number}"}
        for number, example in enumerate(examples_of("single", count, seed))
    ]


TRAINING: dict[str, Any] = {
    "train": rows_of(40, 0),
    "dev": rows_of(8, 9),
    **COLUMNS,
    "seeds": 1,
    "epochs": 1,
    "max_length": 32,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def run(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    bertsmith.finetune(base, "classification", out, **TRAINING)
    return out


@pytest.fixture(autouse=True)
def _printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)


def test_predictions_and_scores_need_no_columns_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(20, 1)
    model = bertsmith.load(run, device="cpu")
    answers = model.predict(rows)
    assert f"{NOTE}, as in training" in capsys.readouterr().err
    assert [answer["prediction"] for answer in answers] == [
        answer.label for answer in model.classify([row["subject"] for row in rows])
    ]
    assert bertsmith.evaluate(run, rows, device="cpu") == bertsmith.evaluate(run, rows, device="cpu", **COLUMNS)
    assert f'{NOTE} `label_column="kind"`, as in training' in capsys.readouterr().err
    bag = bertsmith.evaluate(run / "bag-of-words", rows, device="cpu")
    assert bag.examples == 20


def test_the_command_writes_a_table_with_the_columns_of_training(run: Path, tmp_path: Path) -> None:
    from bertsmith.app.library.prediction_tables import write_predictions
    from bertsmith.inference.predictors.request import PredictRequest

    rows = rows_of(6, 2)
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "mails.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    request = PredictRequest(model=run, data=tmp_path / "mails.csv", out=tmp_path / "out.csv", device="cpu")
    texts = [getattr(example, "first", "") for example, _ in write_predictions(request)]
    assert texts == [row["subject"] for row in rows]


def test_other_tables_are_read_as_by_any_model(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(20, 1, texts="text", labels="label")
    bertsmith.evaluate(run, rows, device="cpu")
    assert "as in training" not in capsys.readouterr().err
    with pytest.raises(InputError, match="one column with a known name for the text"):
        bertsmith.load(run, device="cpu").predict([{"a": "anna", "b": "was"}])
    chosen = bertsmith.load(run, device="cpu").predict(rows_of(4, 1), text_column="text")
    assert len(chosen) == 4, "what is named counts"
    assert "as in training" not in capsys.readouterr().err


def test_drift_and_audit_use_them_too(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bertsmith.drift(rows_of(40, 0), rows_of(40, 3), model=run, device="cpu")
    assert capsys.readouterr().err.count(NOTE) == 2
    rows = rows_of(40, 0)
    with_run = tmp_path / "run"
    shutil.copytree(run / "model", with_run / "model")
    chances = {"probabilities": dict.fromkeys(sorted({row["kind"] for row in rows}), 0.5)}
    lines = [{"texts": [row["subject"]], "gold": row["kind"], "prediction": chances} for row in rows]
    (with_run / "out_of_fold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for number, source in enumerate(({"run": with_run}, {"model": run})):
        report = bertsmith.audit_labels(rows, tmp_path / f"{number}", folds=2, device="cpu", **source).report
        assert report["examples"] == 40
        assert f'{NOTE} `label_column="kind"`' in capsys.readouterr().err


def test_only_named_columns_are_stored(base: str, run: Path, tmp_path: Path) -> None:
    assert (read_metadata(run / "model").spec or {})["columns"] == COLUMNS
    rows = rows_of(40, 0, texts="text", labels="label")
    bertsmith.finetune(base, "classification", tmp_path / "run", train=rows, keep="bag", device="cpu")
    assert "columns" not in (read_metadata(tmp_path / "run" / "bag-of-words").spec or {})


def test_a_run_whose_record_has_no_columns_resumes_with_its_columns(base: str, run: Path, tmp_path: Path) -> None:
    started = tmp_path / "run"
    shutil.copytree(run, started)
    (started / "report.json").unlink()
    for path in started.rglob("settings.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        record["settings"]["spec"].pop("columns", None)
        path.write_text(json.dumps(record), encoding="utf-8")
    bertsmith.finetune(base, "classification", started, **TRAINING, resume=True)
    assert (read_metadata(started / "model").spec or {})["columns"] == COLUMNS
    assert (started / "report.json").is_file()


def test_columns_of_a_damaged_model_are_refused_by_an_audit(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "model")
    path = tmp_path / "model" / "bertsmith.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["spec"]["columns"] = None
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"columns in .* must be a map from a text to a text, not None"):
        bertsmith.audit_labels(rows_of(40, 0), tmp_path / "out", model=tmp_path / "model", device="cpu")


@pytest.mark.parametrize(
    ("header", "trained", "named", "text", "pair", "label"),
    [
        ("a,b,c", {"text_column": "a", "label_column": "c"}, {}, "a", None, "c"),
        ("a,b", {"text_column": "a", "label_column": "c"}, {}, "a", None, None),
        ("b,c", {"text_column": "a", "label_column": "c"}, {}, None, None, "c"),
        ("a,c", {"text_column": "a", "pair_column": "b"}, {}, None, None, None),
        ("a,b", {"text_column": "a", "pair_column": "b"}, {}, "a", "b", None),
        ("a,b", {"text_column": "a", "pair_column": "b"}, {"text_column": "b"}, "b", None, None),
        ("a,b,c", {"text_column": "a", "label_column": "b,c"}, {}, "a", None, "b,c"),
        ("a,b", {"text_column": "a", "label_column": "b,c"}, {}, "a", None, None),
        ("The-Text,B,c", {"text_column": "the text", "label_column": "b, C"}, {}, "The-Text", None, "B,c"),
        ("a,A,text", {"text_column": "A"}, {}, "A", None, None),
        ("Ab,AB,text", {"text_column": "ab"}, {}, None, None, None),
    ],
)
def test_columns_are_used_where_all_are_there_and_none_is_named(
    header: str, trained: dict[str, str], named: dict[str, str], text: str, pair: str, label: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}\n{header}\n", encoding="utf-8")
    columns = columns_for(trained, path, ColumnSettings(**named))
    assert (columns.text_column, columns.pair_column, columns.label_column) == (text, pair, label)
    assert columns_for(trained, path, ColumnSettings(**named), gold=False).label_column is None
