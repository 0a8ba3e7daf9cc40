"""Fine-tuning: order of the examples, learning rates by layer, seeds, collapsed training, tuning."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.app.library import finetuning as library_training
from bertsmith.base.core.errors import ConfigError, InputError, RunError, TrainingError
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.linear_start import LinearStart
from bertsmith.recipes.finetuning.opening import opening_lines
from bertsmith.recipes.finetuning.run import RESTARTS, finetune, summary_lines
from bertsmith.recipes.finetuning.settings import GRID, FinetuningSettings, RecipeSettings, against_collapse
from bertsmith.recipes.finetuning.tuning import tune
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.recipes.results.baseline_lines import BAG_FOLDER
from bertsmith.recipes.results.finished_run import SeedResult, table_cells
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.numbers import spearman
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import kind_of, task_name
from bertsmith.tasks.specs.predictions import LabelPrediction, NumberPrediction
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData, split_dev
from bertsmith.training.loop.optimizer import BertAdam
from bertsmith.training.loop.run_folder import RunFolder
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of, write_base_model
from written_files import file_with

SETTINGS = FinetuningSettings(batch_size=8, epochs=2, precision="fp32", dropout=0.0)


def workload(batch_size: int = 8, count: int = 20, seed: int = 1, layer_decay: float = 1.0) -> Finetuning:
    task = task_for(SPECS["single"])
    features = task.encode(examples_of("single", count), TOKENIZER, training=True)
    settings = dataclasses.replace(SETTINGS, batch_size=batch_size, layer_decay=layer_decay)
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=0)
    return Finetuning(model, task, features, None, TOKENIZER, settings, choose("cpu", "fp32"), seed=seed)


@pytest.mark.parametrize(("batch_size", "count"), [(8, 20), (7, 20), (32, 20), (1, 3)])
def test_every_example_occurs_once_per_epoch_across_step_boundaries(batch_size: int, count: int) -> None:
    work = workload(batch_size, count)
    stream = np.concatenate([work.units_of_step(step) for step in range(-(-3 * count // batch_size))])
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count].tolist()) == list(range(count))
    assert stream[:count].tolist() != stream[count : 2 * count].tolist() or count < 4


def test_the_order_is_a_function_of_the_seed_alone() -> None:
    assert workload().units_of_step(5).tolist() == workload().units_of_step(5).tolist()
    assert workload().units_of_step(0).tolist() != workload(seed=2).units_of_step(0).tolist()


def test_ranks_share_the_examples_of_a_step() -> None:
    work = workload(batch_size=9)
    alone = work.plan(1, 0, 1)
    parts = [work.plan(1, rank, 2) for rank in range(2)]
    assert sum(batch.num_units for part in parts for batch in part.micro_batches) == alone.sequences == 9
    assert {part.tokens for part in parts} == {alone.tokens}
    assert {batch.step_targets for part in parts for batch in part.micro_batches} == {9}


def test_layers_learn_more_slowly_towards_the_bottom() -> None:
    work = workload(layer_decay=0.5)
    optimizer = BertAdam(work.model, rate_factor=work.rate_factor)
    factor = {name: group.factor for group in optimizer.groups for name in group.names}
    assert factor["classifier.weight"] == factor["bert.pooler.bias"] == 1.0
    assert factor["bert.layers.1.query.weight"] == 0.5
    assert factor["bert.layers.0.output_norm.bias"] == 0.25
    assert factor["bert.embeddings.word.weight"] == 0.125
    assert factor.keys() == dict(work.model.named_parameters()).keys()


def test_the_top_layers_can_be_re_initialized(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base", seed=3)
    data = TaskData(train=examples_of("single", 8), dev=())
    settings = dataclasses.replace(SETTINGS, reinit_layers=1, epochs=0.5)
    recipe = RecipeSettings(learning_rate=1e-9, weight_decay=0.0, warmup_share=0.0)
    FinetuningJob.prepare(base, SPECS["single"], data, settings, recipe).train_once(tmp_path / "run", 1)
    first, after = load_any(base).tensors, load_any(tmp_path / "run" / "model").tensors
    moved = {name for name in after if name in first and float((after[name] - first[name]).abs().max()) > 1e-3}
    weights = {name for name in first if name.startswith(("bert.layers.1.", "bert.pooler.")) and "norm" not in name}
    assert moved == {name for name in weights if name.endswith("weight")}
    with pytest.raises(ConfigError, match="at most 2"):
        FinetuningJob.prepare(base, SPECS["single"], data, dataclasses.replace(settings, reinit_layers=3), recipe)


def test_one_answer_for_everything_is_a_collapse_unless_gold_is_one_answer_too() -> None:
    task, examples = task_for(SPECS["single"]), examples_of("single", 6)
    same = [LabelPrediction(label="positive", probability=1.0, probabilities=(), labels=(), chosen=("positive",))] * 6
    assert task.is_collapsed(same, examples)
    assert not task.is_collapsed(same[:3], [example for example in examples if example.label == "positive"])


def test_a_fitted_temperature_is_stored_with_the_model_and_changes_no_answer(base: str, tmp_path: Path) -> None:
    spec = dataclasses.replace(SPECS["single"], settings=dataclasses.replace(SPECS["single"].settings, calibrate=True))
    dev = examples_of("single", 20, seed=1)
    dev[:2] = [
        dataclasses.replace(example, label=other.label) for example, other in zip(dev[:2], dev[1::-1], strict=True)
    ]
    data = TaskData(train=examples_of("single", 32), dev=dev)
    settings = dataclasses.replace(SETTINGS, epochs=10)
    result = finetune(base, spec, data, tmp_path / "run", settings, RecipeSettings(learning_rate=1e-3), seeds=1)
    assert not result.runs[0].collapsed
    assert result.spec.temperature != 1.0
    assert result.report["temperature"] == result.spec.temperature
    assert result.report["threshold"] is None
    plain = dataclasses.replace(result.spec, temperature=1.0)
    predictor = load_predictor(tmp_path / "run" / "model")
    assert predictor.task.spec == result.spec
    soft = predictor.predict(data.dev)
    predictor.task = task_for(plain)
    hard = predictor.predict(data.dev)
    assert [prediction.label for prediction in soft] == [prediction.label for prediction in hard]
    assert [prediction.probability for prediction in soft] != [prediction.probability for prediction in hard]


def test_no_temperature_is_fitted_if_all_answers_are_correct(capsys: pytest.CaptureFixture[str]) -> None:
    spec = dataclasses.replace(SPECS["single"], settings=dataclasses.replace(SPECS["single"].settings, calibrate=True))
    task, examples = task_for(spec), examples_of("single", 8)

    def answers(right: float) -> list[LabelPrediction]:
        chances = [(right, 1 - right) if example.label == "negative" else (1 - right, right) for example in examples]
        names = [max(zip(pair, spec.labels, strict=True))[1] for pair in chances]
        return [
            LabelPrediction(label=name, probability=max(pair), probabilities=pair, labels=spec.labels, chosen=(name,))
            for name, pair in zip(names, chances, strict=True)
        ]

    assert task.tuned(examples, answers(0.7)) == spec
    assert capsys.readouterr().err == (
        "warning: calibrate has no effect: no temperature fits, 8 of 8 dev examples are correct\n"
    )
    assert task.tuned(examples, answers(0.3)) == spec
    assert "0 of 8 dev examples are correct" in capsys.readouterr().err
    assert task.tuned(examples, [*answers(0.7)[:6], *answers(0.3)[6:]]).temperature not in (1.0, 0.05)


def test_a_dev_set_is_held_out_and_no_example_is_lost() -> None:
    examples = examples_of("single", 30)
    kept, aside = split_dev(examples, seed=0)
    assert len(aside) == 3
    assert sorted(e.id for e in [*kept, *aside]) == sorted(e.id for e in examples)
    with pytest.raises(ConfigError, match="at least two"):
        split_dev(examples[:1], seed=0)


def test_a_split_by_label_holds_out_a_tenth_of_each() -> None:
    labels = ["often"] * 95 + ["rarely"] * 3 + ["once"]
    examples = [TextExample(id=str(n), first=f"text {n}", label=label) for n, label in enumerate(labels)]
    for seed in range(5):
        kept, aside = split_dev(examples, seed=seed, by_label=True)
        assert Counter(example.label for example in aside) == {"often": 10, "rarely": 1}
        assert len(kept) + len(aside) == len(examples)
    plain = [TextExample(id=str(n), first=f"text {n}") for n in range(40)]
    assert split_dev(plain, seed=0, by_label=True) == split_dev(plain, seed=0)


@pytest.mark.parametrize("several", [False, True])
def test_the_only_example_of_a_label_is_not_held_out_and_the_others_are_as_before(several: bool) -> None:
    def of(names: str) -> list[TextExample]:
        labels = [(name,) if several else name for name in names]
        return [TextExample(id=str(n), first="a", label=label) for n, label in enumerate(labels)]

    usual = {example.id for example in split_dev(of("xy" * 10), seed=0)[1]}
    for number in range(20):
        names = "xy" * 10
        kept, aside = split_dev(of(names[:number] + "z" + names[number + 1 :]), seed=0)
        assert str(number) in {example.id for example in kept}
        assert len(aside) == 2
        if str(number) not in usual:
            assert {example.id for example in aside} == usual
    assert split_dev(of("xyz"), seed=0) == (of("xyz"), []), "none to spare"
    for seed in range(100):
        kept, aside = split_dev(of("zz" + "xy" * 9), seed)
        assert (len(aside), {example.label for example in kept}) == (2, {example.label for example in of("xyz")}), (
            "not both of two"
        )
    numbers = [TextExample(id=str(n), first="a", label=float(n)) for n in range(20)]
    assert {example.id for example in split_dev(numbers, seed=0)[1]} == usual, (
        "each number is different, which is not a label"
    )


def test_a_collapsed_training_is_counted_and_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassificationTask, "is_collapsed", lambda *_: True)
    base = write_base_model(tmp_path / "base")
    data = TaskData(train=examples_of("single", 16), dev=examples_of("single", 10, seed=1))
    result = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, seeds=1)
    assert result.report["collapsed"] == RESTARTS + 1
    again = [path.name for path in sorted((tmp_path / "run").iterdir()) if path.is_dir()]
    assert again == [BAG_FOLDER, "model", "seed-1", *(f"seed-1-again-{n}" for n in range(1, RESTARTS + 1))]


def test_a_restart_after_a_collapse_halves_the_learning_rate_and_the_best_of_all_starts_is_kept(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = iter((0.25, 0.75, 0.5))
    monkeypatch.setattr(ClassificationTask, "is_collapsed", lambda *_: True)
    monkeypatch.setattr(FinetuningJob, "judge", _scripted(FinetuningJob.judge, scores))
    data = TaskData(train=examples_of("single", 16), dev=examples_of("single", 10, seed=1))
    recipe = RecipeSettings(learning_rate=4e-5)
    result = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, recipe, seeds=1)
    assert result.report["best"] == "seed-1-again-1"
    assert result.report["scores"]["accuracy"]["values"] == (0.75,)
    rates = [
        read_json(tmp_path / "run" / name / "settings.json")["settings"]["train"]["learning_rate"]
        for name in ("seed-1", "seed-1-again-1", "seed-1-again-2")
    ]
    assert rates == [4e-5, 2e-5, 1e-5]
    assert "half the learning rate, 2e-05" in capsys.readouterr().err
    training = read_json(tmp_path / "run" / "model" / "bertsmith.json")["training"]
    assert training["learning_rate"] == 2e-5
    lengths = [len(TOKENIZER.encode(example.first)) + 2 for example in data.train]
    assert training["texts"]["tokens"] == pytest.approx(np.mean(lengths), abs=0.01)
    assert training["texts"]["cut"] == 0
    assert 0.5 <= training["confidence"] <= 1
    best = tmp_path / "run" / "seed-1-again-1" / "model" / "model.safetensors"
    assert best.read_bytes() == (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    assert "below 1e-05, --bias-correction" in result.report["advice"]


def _scripted(judge, scores):
    def scripted(*arguments):
        return judge(*arguments)._replace(scores={"accuracy": next(scores)})

    return scripted


@pytest.mark.parametrize("bias_correction", [False, True])
def test_advice_after_a_collapse_names_nothing_that_was_given(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bias_correction: bool
) -> None:
    monkeypatch.setattr(ClassificationTask, "is_collapsed", lambda *_: True)
    data = TaskData(train=examples_of("single", 16), dev=examples_of("single", 10, seed=1))
    recipe = RecipeSettings(learning_rate=1e-4, epsilon=1e-8, bias_correction=bias_correction)
    settings = dataclasses.replace(SETTINGS, epochs=1)
    result = finetune(base, SPECS["single"], data, tmp_path / "run", settings, recipe, seeds=1)
    advice = next(line for line in summary_lines(result.report) if line.startswith("this model"))
    assert ("--bias-correction" in advice) is not bias_correction
    assert "epsilon" not in advice
    assert "a learning rate below 2.5e-05" in advice
    assert "more epochs than 1" in advice


def test_a_regression_that_ranks_its_examples_has_not_collapsed_however_close_its_numbers() -> None:
    task = task_for(SPECS["number"])
    examples = examples_of("number", 60)
    gold = np.array([example.label for example in examples])
    draws = np.random.default_rng(0).normal(size=len(gold))

    def said(values):
        return [NumberPrediction(value=float(value)) for value in 2.5 + 1e-3 * values]

    ranking = gold + 2 * draws
    assert 0.3 < spearman(gold, ranking) < 0.6
    assert not task.is_collapsed(said(ranking), examples)
    assert task.is_collapsed(said(draws), examples)
    assert task.is_collapsed(said(0 * draws), examples)
    assert not task.is_collapsed(said(1e3 * draws), examples)


def test_several_seeds_give_a_mean_with_its_spread_and_the_best_is_kept(base: str, tmp_path: Path) -> None:
    data = TaskData(train=examples_of("number", 32), dev=examples_of("number", 20, seed=1))
    result = finetune(base, SPECS["number"], data, tmp_path / "run", SETTINGS, RecipeSettings(learning_rate=3e-3))
    values = result.report["scores"]["pearson"]["values"]
    assert len(values) == 3
    assert result.report["scores"]["pearson"]["mean"] == pytest.approx(np.mean(values))
    assert result.runs[result.best].scores["pearson"] == max(values)
    best = tmp_path / "run" / result.report["best"] / "model" / "model.safetensors"
    assert best.read_bytes() == (tmp_path / "run" / "model" / "model.safetensors").read_bytes()


def test_a_search_resumes_where_it_stopped_and_returns_the_best_trial(base: str, tmp_path: Path) -> None:
    data = TaskData(train=examples_of("single", 32), dev=examples_of("single", 20, seed=1))
    grid = {"learning_rate": (1e-9, 5e-3), "batch_size": (8,), "epochs": (15,)}
    arguments = (base, SPECS["single"], data, tmp_path / "run", SETTINGS, RecipeSettings())
    tune(*arguments, trials=1, grid=grid)
    with pytest.raises(RunError, match="--resume"):
        tune(*arguments, trials=2, grid=grid)
    first = json.loads((tmp_path / "run-search" / "trials.json").read_text())
    RunFolder.create(tmp_path / "run-search" / "trial-001", {})  # as several processes leave it if they are killed
    tuning = tune(*arguments, trials=6, grid=grid, resume=True)
    table = json.loads((tmp_path / "run-search" / "trials.json").read_text())
    assert len(table) == 2, "no settings are tried twice"
    assert first[0] in table
    assert tuning.table == table
    assert tuning.recipe.learning_rate == table[0]["learning_rate"] == 5e-3
    assert tuning.settings.epochs == 15
    with pytest.raises(RunError, match="that the search in"):
        tune(*arguments, trials=7, grid={**grid, "batch_size": (16,)}, resume=True)


def test_a_trial_that_falls_behind_by_the_selection_score_is_pruned(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With unanswerable questions, plain F1 before fitting the threshold separates trials only by chance."""
    values = iter((50.0, 60.0, 70.0, 10.0))

    def train_once(
        _: FinetuningJob,
        path: Path,
        seed: int,
        on_scores: Callable[[dict[str, float]], None],
        rank: Rank | None = None,
    ) -> SeedResult:
        RunFolder.create(path, {})
        scores = {"f1": 0.0, "best_f1": next(values)}
        on_scores(scores)
        return SeedResult(seed=seed, scores=scores, collapsed=False, best_step=1, steps=1, seconds=0.5, tokens=9)

    monkeypatch.setattr(FinetuningJob, "train_once", train_once)
    data = TaskData(train=examples_of("answer or none", 8), dev=examples_of("answer or none", 6, seed=1))
    grid = {"learning_rate": (1e-5, 2e-5, 3e-5, 4e-5), "batch_size": (8,), "epochs": (2,)}
    spec = SPECS["answer or none"]
    tune(base, spec, data, tmp_path / "run", SETTINGS, RecipeSettings(), trials=4, grid=grid)
    table = json.loads((tmp_path / "run-search" / "trials.json").read_text())
    assert [row["state"] for row in table] == ["complete"] * 3 + ["pruned"]
    assert [row["value"] for row in table] == [70.0, 60.0, 50.0, None]
    assert table[-1]["by_epoch"] == [10.0]
    header, rows = table_cells(table)
    assert header == ["trial", "learning rate", "batch size", "epochs", "state", "value", "seconds"]
    assert rows[0][3:] == [2, "complete", 70.0, 0.5]
    assert rows[3][4:] == ["pruned", None, None]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("epochs", [1, 60])
def test_advice_after_losses_that_are_not_finite_leaves_out_the_precision_that_was_given(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, epochs: int
) -> None:
    """At the end of a short run and in the middle of a long one."""
    loss = Finetuning.loss

    def infinite(*arguments: object) -> object:
        value, sums = loss(*arguments)
        return value * float("inf"), sums

    monkeypatch.setattr(Finetuning, "loss", infinite)
    settings = dataclasses.replace(SETTINGS, epochs=epochs, precision=precision, device="cpu")
    data = TaskData(train=examples_of("single", 8), dev=[])
    job = FinetuningJob.prepare(base, SPECS["single"], data, settings, RecipeSettings(save_minutes=None))
    with pytest.raises(TrainingError, match="lower the learning rate") as error:
        job.train_once(tmp_path / "run", 1)
    assert ("in a row" in str(error.value)) == (epochs > 1)
    assert ("fp32" in str(error.value)) == (job.runtime.precision == "bf16")  # not every processor multiplies it


@pytest.mark.parametrize("bias_correction", [True, False])
def test_advice_after_a_collapse_leaves_out_what_was_given(bias_correction: bool) -> None:
    advice = against_collapse(learning_rate=1e-5, epochs=4, bias_correction=bias_correction)
    assert ("--bias-correction" in advice) == (not bias_correction)
    assert "below 1e-05" in advice
    assert "more epochs than 4" in advice


def test_a_search_and_its_run_encode_probe_and_fit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def call(self: object, *arguments: object, **options: object) -> object:
            calls.append(name)
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, name, call)

    counted(ClassificationTask, "encode")
    counted(LinearStart, "best_reads")
    counted(LinearStart, "layer")
    path = file_with(tmp_path / "a.tsv", "text\tlabel\n" + "a\tx\nb\ty\n" * 8)
    files = {"train": path, "dev": path, "seeds": 1}
    options = {"max_length": 16, "epochs": 1.0, "device": "cpu", "keep": "best", "baselines": False, "start": "linear"}
    base = write_base_model(tmp_path / "base")
    library_training.finetune(
        base, "classification", tmp_path / "run", search=True, trials=3, reads="probe", **files, **options
    )
    assert sorted(calls) == ["best_reads", "encode", "encode", "layer"]
    trial = read_json(tmp_path / "run-search" / "trial-000" / "settings.json")["settings"]["run"]
    run = read_json(tmp_path / "run" / "settings.json")["settings"]["run"]
    assert trial.get("reads") == run.get("reads") != "probe"


@pytest.mark.parametrize("collapsed", [True, False])
def test_a_search_whose_trials_all_collapse_suggests_remedies(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], collapsed: bool
) -> None:
    outcomes = iter((True, collapsed))

    def train_once(
        _: FinetuningJob,
        path: Path,
        seed: int,
        on_scores: Callable[[dict[str, float]], None],
        rank: Rank | None = None,
    ) -> SeedResult:
        RunFolder.create(path, {})
        scores = {"accuracy": 0.5}
        return SeedResult(
            seed=seed, scores=scores, collapsed=next(outcomes), best_step=1, steps=1, seconds=0.5, tokens=9
        )

    monkeypatch.setattr(FinetuningJob, "train_once", train_once)
    data = TaskData(train=examples_of("single", 8), dev=examples_of("single", 6, seed=1))
    grid = {"learning_rate": (1e-5, 2e-5), "batch_size": (8,), "epochs": (2,)}
    tune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, RecipeSettings(), trials=2, grid=grid)
    warning = capsys.readouterr().err
    assert ("try a learning rate below 1e-05, --bias-correction (" in warning) == collapsed
    assert ("more epochs than 2" in warning) == collapsed


def test_the_grid_joins_the_lists_of_the_paper_and_of_its_readers() -> None:
    assert set(GRID["learning_rate"]) == {3e-6, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5}
    assert (GRID["batch_size"], GRID["epochs"]) == ((16, 32), (2, 3, 4))


def test_a_model_that_learned_nothing_is_reported_with_remedies() -> None:
    report = {
        "scores": {"accuracy": {"mean": 0.5, "deviation": 0.0, "values": [0.5]}},
        "collapsed": 3,
        "runs": [{"collapsed": True}],
        "metric": "accuracy",
        "best": "seed-1-again-2",
        "tokens_per_second": 100.0,
        "intervals": {},
        "advice": against_collapse(learning_rate=5e-5, epochs=3, bias_correction=False),
    }
    first, second, third, _ = summary_lines(report)
    assert first == "accuracy: 0.5000"
    assert second.endswith(": 3")
    assert third.startswith(
        "this model gives the same answer to every example; try a learning rate below 5e-05, --bias"
    )
    report["runs"].append({"collapsed": False})
    assert not any("--bias-correction" in line for line in summary_lines(report))


def test_the_best_score_comes_with_its_interval() -> None:
    report = {
        "scores": {"accuracy": {"mean": 0.7, "deviation": 0.1, "values": [0.6, 0.8]}},
        "collapsed": 0,
        "runs": [{"folder": f"seed-{n}", "collapsed": False, "scores": {"accuracy": 0.4 + n / 5}} for n in (1, 2)],
        "metric": "accuracy",
        "best": "seed-2",
        "tokens_per_second": 1234.5,
        "intervals": {"accuracy": [0.75, 0.85]},
    }
    assert summary_lines(report) == [
        "accuracy: 0.7000 ± 0.1000 (0.6000, 0.8000)",
        "best by accuracy: seed-2, 0.8000 (95% interval 0.7500 to 0.8500, over the dev examples); 1,234 tokens/s",
    ]
    report["intervals"] = {"accuracy": [0.6, 0.9]}
    report["train_examples"] = 9
    shared = {"intervals": {}, "seconds": 1.0, "train_examples": 9}
    scores = {"bag of words": 0.75, "a linear model": 0.85, "a guess": 0.5}
    report["baselines"] = [{"name": name, "scores": {"accuracy": score}, **shared} for name, score in scores.items()]
    tie = "tied with seed-2, within its interval: seed-1 (0.6000), bag of words (0.7500); more dev examples would tell "
    assert summary_lines(report)[-1] == tie + "them apart"


def test_the_lines_of_a_training_name_what_matters_once(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    monkeypatch.setattr(ClassificationTask, "is_collapsed", lambda *_: False)
    data = TaskData(train=examples_of("single", 16), dev=examples_of("single", 10, seed=1))
    settings = dataclasses.replace(SETTINGS, reads="mean", epochs=1)
    finetune(base, SPECS["single"], data, tmp_path / "run", settings, RecipeSettings(save_minutes=None), seeds=2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("training")] == [
        "training 1 of 2, seed 1",
        "training 2 of 2, seed 2",
    ]
    assert sum("--reads mean --start random" in line for line in lines) == 1
    assert not any("pooler" in line or "0 of" in line for line in lines)
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("label", [1e300, -1e16, float("nan"), float("inf")])
def test_a_gold_number_that_fp32_cannot_square_is_refused_with_its_place(tmp_path: Path, label: float) -> None:
    base = write_base_model(tmp_path / "base")
    train = examples_of("number", 8)
    train[3] = dataclasses.replace(train[3], label=label)
    data = TaskData(train=train, dev=examples_of("number", 4, seed=1))
    with pytest.raises(InputError, match=r"a number from -1e\+15 to 1e\+15 in line 4 of 'samples'; found"):
        finetune(base, SPECS["number"], data, tmp_path / "run", SETTINGS, seeds=1)
    assert not (tmp_path / "run").exists()
    data = TaskData(train=examples_of("number", 8), dev=train)
    with pytest.raises(InputError, match="in line 4 of 'samples'"):
        finetune(base, SPECS["number"], data, tmp_path / "run", SETTINGS, seeds=1)


def test_a_model_that_overflows_at_every_step_ends_as_a_failure(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base", scale=3e38)
    data = TaskData(train=examples_of("number", 16), dev=examples_of("number", 4, seed=1))
    settings = dataclasses.replace(SETTINGS, epochs=1)
    with pytest.raises(TrainingError, match="2 steps, all skipped, so nothing was learned"):
        finetune(base, SPECS["number"], TaskData(train=data.train, dev=[]), tmp_path / "run", settings, seeds=1)
    assert not (tmp_path / "run" / "model").exists()
    assert not (tmp_path / "run" / "report.json").exists()


def test_a_search_and_its_run_say_everything_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_base_model(tmp_path / "base")
    path = file_with(tmp_path / "a.tsv", "text\tlabel\n" + "a\tx\nb\ty\n" * 4)
    library_training.finetune(
        base,
        "classification",
        tmp_path / "run",
        train=path,
        dev=path,
        seeds=1,
        search=True,
        trials=1,
        max_answer=3,
        epochs=1,
        device="cpu",
    )
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert any("max_length reduced" in line for line in said)
    assert len(said) == len(set(said)), said


@pytest.mark.parametrize("kind", ["single", "pair", "tags"])
def test_a_model_of_another_task_lends_its_encoder_and_gets_a_new_head(kind: str, tmp_path: Path) -> None:
    """Also where the head of the earlier task has the shape of the new one."""
    recipe = RecipeSettings(learning_rate=1e-9, weight_decay=0.0, warmup_share=0.0)

    def job(base: Path | str, kind: str) -> FinetuningJob:
        data = TaskData(train=examples_of(kind, 16), dev=examples_of(kind, 8, seed=1))
        return FinetuningJob.prepare(base, SPECS[kind], data, dataclasses.replace(SETTINGS, epochs=1), recipe)

    first = job(write_base_model(tmp_path / "base"), "single")
    assert "in place of" not in opening_lines(first)[0]
    first.train_once(tmp_path / "first", seed=1)
    second = job(tmp_path / "first", kind)
    assert "new parameters on top, in place of the base model's head for sentiment" in opening_lines(second)[0]
    second.train_once(tmp_path / "second", seed=2)
    before, after = (load_any(tmp_path / name / "model").tensors for name in ("first", "second"))
    body = [name for name in before if name.startswith("bert.layers.")]
    assert body
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in body)
    assert not torch.equal(before["classifier.weight"], after["classifier.weight"])


def test_the_steps_of_questions_are_counted_by_examples_as_in_the_original(base: str, tmp_path: Path) -> None:
    train = examples_of("answer or none", 24)
    data = TaskData(train=train, dev=[])
    job = FinetuningJob.prepare(base, SPECS["answer or none"], data, SETTINGS, RecipeSettings())
    windows = len(job.train)
    assert windows > 24
    assert job.training.steps == 24 / 8 * 2
    line = next(line for line in opening_lines(job) if "windows" in line)
    assert line.startswith(f"{windows:,} windows for 24 examples; as in the paper's code, an epoch has as many windows")
    tags = TaskData(train=examples_of("tags", 24), dev=[])
    job = FinetuningJob.prepare(base, SPECS["tags"], tags, SETTINGS, RecipeSettings())
    assert job.training.steps == int(len(job.train) / 8 * 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"epochs": 1.0},
            "only 2 steps, which can hardly change the model; train for more epochs or with smaller batches",
        ),
        ({"epochs": 1.0, "start": "linear", "reads": "mean"}, "which can make the model worse than its linear start;"),
        ({"epochs": 1.0, "freeze": "body"}, None),
        ({"epochs": 5.0}, None),
    ],
)
def test_a_line_says_that_a_training_has_too_few_steps(
    settings: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    data = TaskData(train=examples_of("single", 32), dev=())
    chosen = FinetuningSettings(batch_size=16, device="cpu", precision="fp32", **settings)
    job = FinetuningJob.prepare(write_base_model(tmp_path / "base"), SPECS["single"], data, chosen, RecipeSettings())
    lines = [line for line in opening_lines(job) if line.startswith("only ")]
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


@pytest.mark.parametrize(
    ("task", "wanted"),
    [("SQuAD2", (48, 2.0, 5e-5)), ("swag", (16, 3.0, 2e-5)), ("squad", (32, 3.0, 5e-5)), ("cola", (32, 3.0, 5e-5))],
)
def test_a_task_of_the_paper_has_the_recipe_of_the_paper_unless_another_is_given(
    task: str, wanted: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = []

    def taken(*arguments, **_):
        *_, settings, recipe = arguments
        result.append((settings.batch_size, settings.epochs, recipe.learning_rate))

    def read(name: str, *_, **__):
        return TaskSpec(kind=kind_of(task_name(name)), name=task_name(name)), TaskData(train=[], dev=[])

    monkeypatch.setattr(library_training, "read_task", read)
    monkeypatch.setattr(library_training, "run_finetuning", taken)
    model = write_base_model(tmp_path / "base")
    library_training.finetune(model, task, "out", recipe="2018")
    library_training.finetune(model, task, "out", recipe="2018", batch_size=8, learning_rate=1e-4, epochs=1.0)
    assert result == [wanted, (8, 1.0, 1e-4)]


def test_the_dropout_of_a_training_applies_to_its_head_too(base: str, tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, dropout=0.25)
    path = Path(base) / "config.json"
    write_json(path, {**read_json(path), "classifier_dropout": 0.5})
    data = TaskData(train=examples_of("single", 8), dev=[])
    for dropout, wanted in ((0.25, 0.25), (None, 0.5)):
        job = FinetuningJob.prepare(base, SPECS["single"], data, SETTINGS, RecipeSettings())
        job = job.with_settings(dataclasses.replace(settings, dropout=dropout), RecipeSettings())
        job.train_once(tmp_path / f"run-{dropout}", 1)
        config = load_predictor(tmp_path / f"run-{dropout}" / "model").model.config
        assert config.head_dropout("classifier", pooled=True) == wanted
