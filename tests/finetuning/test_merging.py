"""The model of several trainings: the average of their weights, and the last training on all labelled examples."""

import contextlib
import dataclasses
import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.app.library.finetuning import finetune
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning import merging
from bertsmith.recipes.finetuning import run as runs
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.merging import Trained, average_of
from bertsmith.recipes.finetuning.run import summary_lines
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.finished_run import kept_scores
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import SPECS, examples_of

OPTIONS: dict[str, Any] = {
    "epochs": 12.0,
    "batch_size": 16,
    "max_length": 16,
    "device": "cpu",
    "precision": "fp32",
    "baselines": False,
    "learning_rate": 1e-2,
}


@pytest.fixture(scope="module")
def run(base: str, mails: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a few labelled examples and no dev file, and what it said in `run.txt`."""
    out = tmp_path_factory.mktemp("runs") / "run"
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr("bertsmith.base.core.progress._silent", 0)
        patch.setattr("bertsmith.recipes.finetuning.run.LONG", 0)
        finetune(base, "classification", out, train=mails, **OPTIONS)
    out.with_suffix(".txt").write_text(said.getvalue(), encoding="utf-8")
    return out


def test_the_second_trainings_have_a_name_of_their_own(run: Path) -> None:
    said = run.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    which = [line.partition(":")[0] for line in said if line.startswith(("training:", "again on all examples"))]
    assert list(dict.fromkeys(which)) == [
        "training",
        *(f"again on all examples, {seed} of 3, seed {seed}" for seed in (1, 2, 3)),
    ]
    left = [line.partition(" left for ")[2] for line in said if " left for " in line]
    assert left == ["3 more trainings", "2 more trainings", "1 more training"]


def tensors_of(folder: Path) -> Mapping[str, Tensor]:
    return load_any(folder).tensors


def test_the_average_is_the_mean_of_each_number() -> None:
    draw = np.random.default_rng(3)
    models = [{"a": torch.from_numpy(draw.normal(size=(3, 2)).astype(np.float32))} for _ in range(3)]
    expected = np.mean([model["a"].double().numpy() for model in models], axis=0).astype(np.float32)
    np.testing.assert_array_equal(average_of(models)["a"].numpy(), expected)
    assert average_of([{"ids": torch.tensor([1, 2])}] * 2)["ids"].tolist() == [1, 2]


def test_the_model_is_the_average_of_trainings_on_all_examples_and_of_their_start(run: Path, base: str) -> None:
    report = read_json(run / "report.json")
    assert report["best"] == "average"
    assert report["average"]["parts"] == 3
    assert report["train_examples"] == 36
    assert report["trained_on_all"] == 40
    every = [tensors_of(run / "all" / f"seed-{seed}" / "model") for seed in (1, 2, 3)]
    averaged = tensors_of(run / "model")
    start = tensors_of(Path(base))  # what all of them started from, apart from the new layer
    assert not torch.equal(every[0]["classifier.weight"], every[1]["classifier.weight"])
    shared = averaged.keys() & start.keys()
    assert len(shared) > 10
    for name in shared:
        expected = torch.stack([tensors[name] for tensors in (*every, start)]).mean(dim=0)
        torch.testing.assert_close(averaged[name], expected, rtol=0, atol=1e-6)
    scored = tensors_of(run / "seed-1" / "model")
    assert any(not torch.equal(tensor, scored[name]) for name, tensor in averaged.items())
    written = load_any(run / "model").metadata.training
    assert {name: written[name] for name in ("examples", "dev_examples", "average_of", "trained_on_dev", "steps")} == {
        "examples": 40,
        "dev_examples": 4,
        "average_of": 3,
        "trained_on_dev": True,
        "steps": 30,
    }
    every_one = [*report["runs"], *report["refit_runs"]]
    steps, tokens = (sum(training[name] for training in every_one) for name in ("steps", "tokens"))
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| fine-tuning, 4 trainings | {steps:,} | {tokens:,} |" in card
    assert "On 4 labelled examples that were held out; the model was then trained again, on these as well" in card
    assert len(load_predictor(run / "model", device="cpu").predict(examples_of("single", 2))) == 2


def test_three_seeds_that_are_scored_give_the_same_model_as_one(
    run: Path, base: str, mails: Path, tmp_path: Path
) -> None:
    report = finetune(base, "classification", tmp_path / "run", train=mails, seeds=3, **OPTIONS).report
    assert len(report["runs"]) == 3
    assert [training["folder"] for training in read_json(run / "report.json")["runs"]] == ["seed-1"]
    model, other = (folder / "model" / "model.safetensors" for folder in (run, tmp_path / "run"))
    assert model.read_bytes() == other.read_bytes()


def test_where_the_one_that_is_scored_collapses_the_others_are_scored_as_well(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, folder = runs._train_seed, tmp_path / "run"

    def collapsing(job: FinetuningJob, out: Path, seed: int, *arguments: Any) -> Trained:
        path, result, restarts = train(job, out, seed, *arguments)
        return path, dataclasses.replace(result, collapsed=(out, seed) == (folder, 1)), restarts

    monkeypatch.setattr(runs, "_train_seed", collapsing)
    report = finetune(base, "classification", folder, train=mails, **OPTIONS).report
    assert [training["folder"] for training in report["runs"]] == ["seed-1", "seed-2", "seed-3"]
    assert report["best"] == "average"
    assert report["average"]["parts"] == len(report["refit_runs"]) == 2


def test_what_is_reported_is_the_average_without_the_held_out_examples(run: Path, tmp_path: Path) -> None:
    report, lines = read_json(run / "report.json"), read_json_lines(run / "predictions.jsonl")
    assert lines == read_json_lines(run / "average" / "predictions.jsonl")
    assert len(lines) == report["dev_examples"] == 4
    right = sum(line["prediction"]["label"] == line["gold"] for line in lines) / len(lines)
    assert report["average"]["scores"]["accuracy"] == pytest.approx(right)
    said = summary_lines(report, str(run))
    assert any(line.startswith("kept: the average of 3 trainings") for line in said)
    assert "the model that is written was trained again, on all 40 examples" in said
    page = write_finetuning_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "average" in page
    assert "the best training" not in page
    assert "fine-tuning, 1 training" in page
    assert "again on all examples, 3 trainings" in page


def test_a_stopped_last_training_resumes_to_the_same_model(run: Path, base: str, mails: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    shutil.copytree(run, again)
    for name in ("all/seed-2", "all/seed-3", "model", "average"):
        shutil.rmtree(again / name)
    (again / "report.json").unlink()
    finetune(base, "classification", again, train=mails, resume=True, **OPTIONS)
    assert (again / "model" / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()


def test_the_model_that_was_scored_is_written_where_all_trainings_on_all_examples_collapse(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = FinetuningJob.judge
    monkeypatch.setattr(
        FinetuningJob, "judge", lambda job, *arguments: judge(job, *arguments)._replace(collapsed=job.dev is None)
    )
    report = finetune(base, "classification", tmp_path / "run", train=mails, seeds=2, **OPTIONS).report
    assert report["best"] == "average"
    assert "trained_on_all" not in report
    written = load_any(tmp_path / "run" / "model").metadata.training
    assert (written["examples"], written["average_of"]) == (36, 2)
    assert "trained_on_dev" not in written


def test_with_more_examples_the_start_is_no_part_of_the_average(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FEW_EXAMPLES", 10)
    run = tmp_path / "run"
    finetune(base, "classification", run, train=mails, dev=mails, seeds=2, **OPTIONS)
    every = [tensors_of(run / f"seed-{seed}" / "model") for seed in (1, 2)]
    for name, tensor in tensors_of(run / "model").items():
        torch.testing.assert_close(tensor, average_of(every)[name], rtol=0, atol=0)


def test_an_average_on_all_examples_has_the_parts_of_the_one_that_was_scored(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FEW_EXAMPLES", 38)  # 36 examples are trained on first, then all 40
    run = tmp_path / "run"
    finetune(base, "classification", run, train=mails, seeds=2, **OPTIONS)
    every = [tensors_of(run / "all" / f"seed-{seed}" / "model") for seed in (1, 2)]
    start = tensors_of(Path(base))
    averaged = tensors_of(run / "model")
    for name in averaged.keys() & start.keys():
        expected = torch.stack([tensors[name] for tensors in (*every, start)]).mean(dim=0)
        torch.testing.assert_close(averaged[name], expected, rtol=0, atol=1e-6)


def test_a_dev_file_is_not_trained_on(base: str, mails: Path, tmp_path: Path) -> None:
    report = finetune(base, "classification", tmp_path / "run", train=mails, dev=mails, seeds=2, **OPTIONS).report
    assert report["best"] == "average"
    assert "trained_on_all" not in report
    assert not (tmp_path / "run" / "all").exists()
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "also used to choose between the seeds and their average;" in card
    start = tensors_of(tmp_path / "run" / "model")
    assert any(not torch.equal(start[name], tensors_of(tmp_path / "run" / "seed-1" / "model")[name]) for name in start)


def test_the_best_training_is_kept_where_it_is_better_than_the_average(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opposite(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return {name: -values if "classifier" in name else values for name, values in models[0].items()}

    monkeypatch.setattr(merging, "average_of", opposite)
    report = finetune(base, "classification", tmp_path / "run", train=mails, dev=mails, seeds=2, **OPTIONS).report
    best = report["best"]
    assert best in ("seed-1", "seed-2")
    best_tensors, kept = tensors_of(tmp_path / "run" / best / "model"), tensors_of(tmp_path / "run" / "model")
    assert all(torch.equal(best_tensors[name], kept[name]) for name in best_tensors)
    lost = report["average"]["scores"]["accuracy"]
    assert lost < kept_scores(report)["accuracy"]
    (line,) = (line for line in summary_lines(report) if line.startswith("the average of 2 trainings is not kept"))
    assert f"accuracy {lost:.4f}; " in line
    page = write_finetuning_report([tmp_path / "run"]).read_text()
    assert "The average of 2 trainings is not kept" in page


def test_the_best_one_can_be_asked_for_and_trained_again(base: str, mails: Path, tmp_path: Path) -> None:
    finetune(base, "classification", tmp_path / "run", train=mails, seeds=2, merge="best", **OPTIONS)
    report = read_json(tmp_path / "run" / "report.json")
    assert report["best"] in ("seed-1", "seed-2")
    assert [path.name for path in (tmp_path / "run" / "all").iterdir()] == [report["best"]]
    best_tensors = tensors_of(tmp_path / "run" / "all" / report["best"] / "model")
    assert all(
        torch.equal(best_tensors[name], values) for name, values in tensors_of(tmp_path / "run" / "model").items()
    )


def test_a_job_on_all_examples_has_no_dev_examples(base: str) -> None:
    data = TaskData(train=examples_of("single", 30), dev=examples_of("single", 6, seed=1), held_out=True)
    job = FinetuningJob.prepare(base, SPECS["single"], data, FinetuningSettings(batch_size=8), RecipeSettings())
    every = job.on_all_examples()
    assert len(every.data.train) == len(every.train) == 36
    assert every.dev is None
    assert every.digests()["train_rows"] != job.digests()["train_rows"]


def test_an_unknown_way_to_merge_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown merge 'avrage'.*average"):
        FinetuningSettings(merge="avrage")


def test_a_last_training_on_all_examples_keeps_no_best_evaluation(base: str, mails: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'`refit=True` needs `keep="last"`'):
        finetune(base, "classification", tmp_path / "run", train=mails, keep="best", refit=True, **OPTIONS)
    assert not (tmp_path / "run").exists()
