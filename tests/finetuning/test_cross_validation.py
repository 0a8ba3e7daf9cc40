"""`--folds`: every training example is predicted by a model that was trained without it; the kept model has all."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.app.library import finetuning
from bertsmith.app.library.finetuning import finetune
from bertsmith.base.core.errors import BertsmithError, ConfigError, RunError
from bertsmith.base.core.progress import said_once, warn
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning import folds
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.finetuning.run import summary_lines
from bertsmith.recipes.results.finished_run import kept_scores
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.training.loop.callbacks import Callback, callbacks
from tasks.task_samples import examples_of

OPTIONS: dict[str, Any] = {
    "folds": 3,
    "seeds": 2,
    "epochs": 12.0,
    "batch_size": 16,
    "max_length": 16,
    "learning_rate": 1e-2,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def rows(mails: Path) -> list[dict[str, Any]]:
    """The mails, of which the first two are one text."""
    records = [json.loads(line) for line in mails.read_text().splitlines()]
    for number, record in enumerate(records):
        record["text"] += f" {number}"
    records[1]["text"] = records[0]["text"]
    return records


@pytest.fixture(scope="module")
def run(base: str, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    finetune(base, "classification", out, train=rows, **OPTIONS)
    return out


def test_every_row_is_predicted_by_the_run_of_its_fold(run: Path, rows: list[dict[str, Any]]) -> None:
    lines = read_json_lines(run / "out_of_fold.jsonl")
    assert [line["row"] for line in lines] == list(range(1, 41))
    assert [(line["texts"][0], line["gold"]) for line in lines] == [(row["text"], row["label"]) for row in rows]
    assert lines[0]["fold"] == lines[1]["fold"], "equal texts are in one fold"
    assert not (run / "predictions.jsonl").exists()
    for number in (1, 2, 3):
        of_fold = [line for line in lines if line["fold"] == number]
        written = read_json_lines(run / "folds" / str(number) / "average" / "predictions.jsonl")
        assert [{name: line[name] for name in written[0]} for line in of_fold] == written
        assert load_any(run / "folds" / str(number) / "model").metadata.training["examples"] == 40 - len(of_fold)


def test_the_scores_are_those_of_all_rows_and_the_model_has_seen_all(run: Path) -> None:
    report, lines = read_json(run / "report.json"), read_json_lines(run / "out_of_fold.jsonl")
    accuracy = np.mean([line["gold"] == line["prediction"]["label"] for line in lines])
    assert report["cross_validation"]["scores"]["accuracy"] == pytest.approx(accuracy)
    assert kept_scores(report) == report["cross_validation"]["scores"]
    of_folds = [fold["scores"]["accuracy"] for fold in report["cross_validation"]["folds"]]
    assert report["scores"]["accuracy"]["values"] == of_folds
    assert [fold["examples"] for fold in report["cross_validation"]["folds"]] == [
        sum(line["fold"] == number for line in lines) for number in (1, 2, 3)
    ]
    low, high = report["intervals"]["accuracy"]
    assert low <= accuracy <= high
    assert {baseline["name"] for baseline in report["baselines"]} >= {"bag of words"}
    assert {baseline["train_examples"] for baseline in report["baselines"]} <= {0, 40}
    kept = load_any(run / "model").metadata
    assert kept.training["examples"] == kept.training["dev_examples"] == 40
    assert kept.scores["accuracy"] == pytest.approx(accuracy)
    assert "each by a model trained without it" in (run / "model" / "README.md").read_text(encoding="utf-8")
    assert bertsmith.load(run).classify(["Buy pills"])


def test_what_is_printed_and_the_page_speak_of_folds(run: Path, tmp_path: Path) -> None:
    printed = summary_lines(read_json(run / "report.json"))
    assert any(line.startswith("accuracy, mean of 3 folds: ") for line in printed)
    assert any("over 40 examples, each predicted by a training on the other folds" in line for line in printed)
    baselines = [line for line in printed if line.startswith("baseline, ")]
    assert baselines
    assert all(", fitted to the other folds; " in line for line in baselines)
    page = write_finetuning_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Scores on examples that a model was not trained on" in page
    assert "folds/3" in page
    assert "Confusion matrix" in page


@pytest.mark.parametrize("at", ["1", "3", "run"])
def test_a_run_that_was_stopped_in_any_fold_ends_with_the_same_bytes(
    run: Path, base: str, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    train = finetuning.run_finetuning

    def stopped(*arguments: Any, **options: Any) -> Any:
        if Path(arguments[3]).name == at:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(finetuning, "run_finetuning", stopped)
        with pytest.raises(KeyboardInterrupt):
            finetune(base, "classification", out, train=rows, **OPTIONS)
    if at != "1":
        with pytest.raises(RunError, match="resume it with `resume=True`"):
            finetune(base, "classification", out, train=rows, **OPTIONS)
        with pytest.raises(RunError, match="folds = 4"):
            finetune(base, "classification", out, train=rows, resume=True, **{**OPTIONS, "folds": 4})
    finetune(base, "classification", out, train=rows, resume=at != "1", **OPTIONS)
    for name in ("out_of_fold.jsonl", "model/model.safetensors"):
        assert (out / name).read_bytes() == (run / name).read_bytes()


def test_folds_in_processes_of_their_own_give_the_same_bytes_also_after_a_stop(
    run: Path, base: str, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, trained = tmp_path / "run", list[Path]()
    train = finetuning.run_finetuning

    def recorded(*arguments: Any, **options: Any) -> Any:
        trained.append(Path(arguments[3]))
        if trained[-1].name == "2":
            raise KeyboardInterrupt
        return train(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(finetuning, "run_finetuning", recorded)
        with pytest.raises(KeyboardInterrupt):
            finetune(base, "classification", out, train=rows, workers=2, **OPTIONS)
    assert [path.name for path in trained] == ["1", "2"]
    assert all((out / "folds" / number / "report.json").is_file() for number in "123"), "before they are read"
    shutil.rmtree(out / "folds" / "3")
    finetune(base, "classification", out, train=rows, workers=3, resume=True, **OPTIONS)
    names = ["out_of_fold.jsonl", "model/model.safetensors", "folds/3/model/model.safetensors"]
    for name in [*names, *(f"folds/{number}/average/predictions.jsonl" for number in (1, 2, 3))]:
        assert (out / name).read_bytes() == (run / name).read_bytes(), name


def test_warnings_of_folds_in_processes_are_seen_once(
    base: str, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    request = FinetuneRequest(base, "classification", tmp_path / "run", train=rows, workers=2, **OPTIONS)
    monkeypatch.setattr(finetuning, "worker_pool", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(finetuning, "read_examples", lambda *_: warn("the table is short"))
    monkeypatch.setattr(finetuning, "_train", lambda *_, **__: warn("the loss is high"))
    with said_once(), callbacks(Callback()):
        finetuning._train_folds(request, None, Rank(), seeds=1, resume=False)
    printed = capsys.readouterr().err
    assert "callbacks are not called by the trainings of folds by --workers 2" in printed
    assert printed.count("warning: the loss is high") == 1
    assert "the table is short" not in printed, "it was said for all examples"


def test_what_a_process_refuses_is_refused_in_one_line(base: str, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "run" / "folds" / "2").mkdir(parents=True)
    (tmp_path / "run" / "folds" / "2" / "settings.json").write_text("{")
    with pytest.raises(BertsmithError, match=r"settings\.json"):
        finetune(base, "classification", tmp_path / "run", train=rows, workers=2, resume=True, **OPTIONS)
    with pytest.raises(ConfigError, match="`workers` needs `folds`"):
        finetune(base, "classification", tmp_path / "other", train=rows, workers=2)


def test_all_rows_together_decide_about_the_linear_start(
    base: str, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folds, "_is_better", lambda spec, model, other: model.name == "the linear start")
    out = tmp_path / "run"
    report = finetune(base, "classification", out, train=rows, keep="auto", **OPTIONS).report
    assert report["best"] == "start"
    assert report["choice"][0]["name"] == "the average of 2 trainings"
    lines = read_json_lines(out / "out_of_fold.jsonl")
    started = read_json_lines(out / "folds" / "1" / "start" / "predictions.jsonl")
    assert [line["prediction"] for line in lines if line["fold"] == 1] == [line["prediction"] for line in started]
    assert kept_scores(report) == report["start"]["scores"]
    assert not list(out.glob("seed-*")), "nothing is trained on all examples"
    assert load_any(out / "model").metadata.training["examples"] == len(rows)
    assert write_finetuning_report([out], tmp_path / "report.html").is_file()


def test_fitted_values_are_those_of_the_same_model_in_every_fold() -> None:
    of_folds = [
        {"bag-of-words": {"fitted": {"temperature": value, "threshold": value / 4, "thresholds": [value / 4, 0.5]}}}
        for value in (1.0, 3.0)
    ]
    fitted = folds._fitted([Path("no"), Path("folder")], of_folds, ["bag-of-words"] * 2)
    assert fitted == {"temperature": 2.0, "threshold": 0.5, "thresholds": (0.5, 0.5)}


def test_whole_groups_and_several_labels(base: str, tmp_path: Path) -> None:
    rows = [
        {"text": f"mail {n} {'pills' * (n % 2)}", "labels": ["a"] * (n % 2) + ["b"] * (n % 3 == 0), "author": n // 3}
        for n in range(24)
    ]
    out = tmp_path / "run"
    options = {**OPTIONS, "seeds": 1, "folds": 2, "tune_threshold": True, "baselines": False}
    report = finetune(base, "multi-label", out, train=rows, group_column="author", **options).report
    lines = read_json_lines(out / "out_of_fold.jsonl")
    assert len({(line["fold"], (line["row"] - 1) // 3) for line in lines}) == 8
    fitted = [load_any(out / "folds" / name / "model").metadata.spec["threshold"] for name in "12"]
    assert load_any(out / "model").metadata.spec["threshold"] == pytest.approx(np.mean(fitted))
    assert report["metric"] in report["cross_validation"]["scores"]


@pytest.mark.parametrize("kind", ["tags", "number"])
def test_other_tasks_too(base: str, tmp_path: Path, kind: str) -> None:
    texts = [example.first for example in examples_of("single", 12)]
    rows: list[dict[str, Any]] = [{"text": f"{text} {n}", "score": n / 4} for n, text in enumerate(texts)]
    if kind == "tags":
        rows = [{"tokens": ["Ann", "saw", f"x{n}"], "tags": ["B-PER", "O", "O"]} for n in range(12)]
    task = {"tags": "ner", "number": "regression"}[kind]
    report = finetune(base, task, tmp_path / "run", train=rows, **{**OPTIONS, "seeds": 1, "folds": 2}).report
    assert len(read_json_lines(tmp_path / "run" / "out_of_fold.jsonl")) == 12
    assert report["metric"] in kept_scores(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dev": "dev.csv"}, "no such option with --folds; found --dev; score the model on that file"),
        ({"search": True}, "found --search"),
        ({"keep": "best"}, "found --keep best; use --keep last or auto"),
        ({"refit": True}, "found --refit"),
        ({"patience": 2}, "found --patience; leave it out"),
        ({"folds": 1}, "folds"),
    ],
)
def test_what_does_not_go_with_folds_is_refused_before_anything_is_read(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FinetuneRequest("model", "classification", "run", **{"train": "train.csv", "folds": 3, **options})
