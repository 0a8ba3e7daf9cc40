"""`--keep auto`: the best of a training, the average and their linear start, by a paired test."""

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.app.library.finetuning import finetune, read_examples
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning import merging
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.recipes import Situation, resolved
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.finetuning.run import summary_lines
from bertsmith.recipes.finetuning.settings import RecipeSettings
from bertsmith.recipes.results import comparison
from bertsmith.recipes.results.finished_run import kept_name, kept_scores
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.datasets.labels import warn_of_held_out
from bertsmith.tasks.specs.task import TaskSpec
from finetuning.test_merging import OPTIONS, tensors_of
from tasks.task_samples import CONFIG
from written_files import file_with

AUTO: dict[str, Any] = {**OPTIONS, "keep": "auto"}
RUINS: dict[str, Any] = {"learning_rate": 0.3, "epochs": 1.0}


@pytest.fixture(scope="module")
def ruined(base: str, mails: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose steps are so long that the trainings forget what they started from, without a bag of words."""
    out = tmp_path_factory.mktemp("runs") / "ruined"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "has_bag", lambda job: False)
        finetune(base, "classification", out, train=mails, dev=mails, seeds=2, **{**AUTO, **RUINS})
    return out


def test_the_start_is_kept_where_the_trainings_are_worse(ruined: Path, base: str) -> None:
    report = read_json(ruined / "report.json")
    assert report["best"] == "start"
    assert kept_name(report) == "the linear start"
    assert kept_scores(report) == report["start"]["scores"]
    assert kept_scores(report)["accuracy"] > max(run["scores"]["accuracy"] for run in report["runs"])
    kept, before = tensors_of(ruined / "model"), tensors_of(Path(base))
    shared = kept.keys() & before.keys()
    assert len(shared) > 10
    assert all(torch.equal(kept[name], before[name]) for name in shared)


def test_a_kept_start_answers_as_it_was_scored(ruined: Path) -> None:
    lines = read_json_lines(ruined / "predictions.jsonl")
    assert lines == read_json_lines(ruined / "start" / "predictions.jsonl")
    answers = bertsmith.load(ruined).classify([line["texts"][0] for line in lines])
    assert [answer.label for answer in answers] == [line["prediction"]["label"] for line in lines]
    actual, expected = (
        [[answer["probabilities"][label] for label in answers[0].labels] for answer in every]
        for every in ((answer.to_dict() for answer in answers), (line["prediction"] for line in lines))
    )
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


def test_the_choice_is_said_with_its_paired_test(ruined: Path, tmp_path: Path) -> None:
    report, lines = read_json(ruined / "report.json"), read_json_lines(ruined / "predictions.jsonl")
    other = report["choice"][-1]
    assert other["examples"] == len(lines) == 40
    loser = next(run for run in report["runs"] if run["folder"] == other["name"]) if "seed" in other["name"] else None
    scores = report["average"]["scores"] if loser is None else loser["scores"]
    assert (other["score"], other["of_model"]) == (scores["accuracy"], report["start"]["scores"]["accuracy"])
    folder = "average" if loser is None else other["name"]
    spec = TaskSpec.from_dict(load_any(ruined / "model").metadata.spec or {}, "the model")
    expected = comparison.tested(spec, [lines], [read_json_lines(ruined / folder / "predictions.jsonl")])
    assert {name: other[name] for name in expected} == expected
    said = summary_lines(report)
    line = f"{other['name']} is not kept: accuracy {other['score']:.4f} against {other['of_model']:.4f}; the difference"
    assert any(text.startswith(line) and f"p = {other['p_value']:.4f}" in text for text in said)
    assert any(text.startswith("kept: the linear start, ") for text in said)
    assert not any("made it worse" in text for text in said)
    card = (ruined / "model" / "README.md").read_text(encoding="utf-8")
    assert line in card
    assert "between the trainings and their linear start" in card
    page = write_finetuning_report([ruined], tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"p = {other['p_value']:.4f}" in page


def test_trainings_that_are_better_are_kept_and_their_start_is_no_part_of_their_average(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_is_better", lambda *_: False)
    auto = finetune(base, "classification", tmp_path / "auto", train=mails, dev=mails, **AUTO).report
    assert auto["best"] == "average"
    assert auto["average"]["parts"] == 2
    assert [other["name"] for other in auto["choice"][-2:]] == ["the linear start", "the bag of words"]
    every = [tensors_of(tmp_path / "auto" / f"seed-{seed}" / "model") for seed in (1, 2)]
    kept = tensors_of(tmp_path / "auto" / "model")
    assert all(torch.equal(kept[name], values) for name, values in merging.average_of(every).items())


def test_a_start_that_is_kept_is_fitted_again_to_all_examples(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_is_better", lambda job, model, other, *level: model.name == "start")
    started, examples = FinetuningJob.started_model, []
    monkeypatch.setattr(
        FinetuningJob, "started_model", lambda job, *seed: examples.append(len(job.data.train)) or started(job, *seed)
    )
    run = tmp_path / "run"
    report = finetune(base, "classification", run, train=mails, **AUTO).report
    assert report["best"] == "start"
    assert report["trained_on_all"] == 40
    assert report["refit_runs"] == []
    assert len(report["runs"]) == 2
    assert examples == [36, 36, 36, 40]  # two trainings, the start that was scored, the start that is written
    written = load_any(run / "model").metadata.training
    expected = {"examples": 40, "dev_examples": 4, "trained_on_dev": True, "steps": 0, "epochs": 0.0}
    assert {name: written[name] for name in expected} == expected
    weights = (run / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(run / "model")
    (run / "report.json").unlink()
    finetune(base, "classification", run, train=mails, resume=True, **AUTO)
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    assert read_json(run / "report.json")["choice"] == report["choice"]


def test_each_label_has_a_held_out_example_where_a_choice_depends_on_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"text {n},{'bad' if n < 33 or n in (46, 56, 59) else 'good'}" for n in range(60)]
    train = file_with(tmp_path / "rows.csv", "\n".join(["text,label", *rows]))
    request = FinetuneRequest("base", "classification", tmp_path / "run", train=train, keep="auto")
    data = read_examples(request).data
    assert Counter(example.label for example in data.dev) == {"bad": 4, "good": 2}
    assert "held-out" not in capsys.readouterr().err
    for keep in ("last", "best"):
        usual = read_examples(request.replaced(keep=keep)).data
        assert [example.id for example in usual.dev] == ["6", "12", "14", "32", "46", "56"]
        warning = "all 6 held-out examples have the label bad; give --dev or more examples"
        assert (list(usual.warnings), capsys.readouterr().err) == ([warning], f"warning: {warning}\n")


def test_each_of_several_labels_has_its_share_of_the_held_out_examples(tmp_path: Path) -> None:
    train = tmp_path / "rows.jsonl"
    rows = [
        {"text": f"text {n}", "labels": [*["a"] * (n % 2 == 0), *["b"] * (n % 5 == 0), *["rare"] * (n in (3, 57))]}
        for n in range(60)
    ]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    request = FinetuneRequest("base", "multi-label", tmp_path / "run", train=train, keep="auto")
    data = read_examples(request).data
    held = Counter(label for example in data.dev for label in example.label)
    assert held == {"a": 3, "b": 1, "rare": 1}
    assert 5 <= len(data.dev) <= 7
    assert {label for example in data.train for label in example.label} == {"a", "b", "rare"}
    assert data.by_label
    without = sum(not example.label for example in data.dev)
    assert without == 2, "those without a label are held out as well"


def test_labels_without_a_held_out_example_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def of(names: str) -> list[TextExample]:
        return [TextExample(id=str(n), first="a", label=name) for n, name in enumerate(names)]

    warn_of_held_out(of("xxyyzzv"), of("xy"))
    assert (
        capsys.readouterr().err == "warning: no held-out example, of 2, has the label z; give --dev or more examples\n"
    )
    warn_of_held_out(of("xxyy"), of("x"))
    assert "warning: the only held-out example has the label x; give" in capsys.readouterr().err
    for train, dev in (("xxyyv", "xy"), ("xy", "")):  # that of a single example is named elsewhere
        warn_of_held_out(of(train), of(dev))
        assert capsys.readouterr().err == ""


def test_tags_are_compared_with_their_start_too(base: str, tmp_path: Path) -> None:
    tags = file_with(tmp_path / "tags.conll", "the O\nold O\njudge B-PER\n\na O\nmap B-MAP\n\n" * 12)
    report = finetune(base, "ner", tmp_path / "run", train=tags, seeds=1, **{**AUTO, "epochs": 1.0}).report
    assert report["start"].keys() == {"scores", "parts", "collapsed", "fitted"}
    assert len(report["choice"]) == 1


def test_what_auto_cannot_compare_is_refused(base: str, mails: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'`keep="auto"` needs `start="linear"`'):
        finetune(base, "classification", tmp_path / "run", train=mails, start="random", **AUTO)
    assert not (tmp_path / "run").exists()
    for option in (
        {"start": "random"},
        {"recipe": "2018"},
        {"recipe": "ulmfit"},
        {"freeze": "body"},
        {"reinit_layers": 1},
        {"reads": "concat"},
        {"task": "similarity"},
    ):
        values: dict[str, Any] = {"source": "nowhere", "task": "classification", "out": "run", "keep": "auto", **option}
        with pytest.raises(ConfigError, match=r"--keep auto needs --start linear"):
            FinetuneRequest(**values)
    FinetuneRequest("nowhere", "classification", "run", keep="auto", recipe="2018", start="linear")
    FinetuneRequest("nowhere", "classification", "run", keep="auto", recipe="setfit", freeze="body")
    for option in ({"keep": "best"}, {"recipe": "2018"}):
        with pytest.raises(ConfigError, match=r"--refit needs --keep last or auto"):
            FinetuneRequest("nowhere", "classification", "run", refit=True, **option)
    with pytest.raises(ConfigError, match=r"--patience needs --keep best"):
        RecipeSettings(keep="auto", patience=2)
    with pytest.raises(ConfigError, match=r"unknown keep 'bets'"):
        RecipeSettings(keep="bets")


def test_few_examples_take_fewer_steps_with_auto() -> None:
    few = Situation(task="classification", kind="classification", examples=108, config=CONFIG)
    usual, auto = (resolved("auto", few, values) for values in ({}, {"keep": "auto"}))
    assert {name for name in usual if usual[name] != auto[name]} == {"epochs", "keep"}
    assert int(108 / 16 * auto["epochs"]) == 45
    assert int(108 / 16 * usual["epochs"]) == 135
    more = dataclasses.replace(few, examples=600)
    assert resolved("auto", more, {"keep": "auto"})["epochs"] == resolved("auto", more, {})["epochs"]
