"""Tests of the baselines that fine-tuning is compared with."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.app.library.labelled import evaluate
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.inference.predictors.ensemble import load_ensemble
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.weakness import weakness_of
from bertsmith.recipes.finetuning import bag, cheaper
from bertsmith.recipes.finetuning import baselines as module
from bertsmith.recipes.finetuning.baselines import Baselines, baselines_of
from bertsmith.recipes.finetuning.cheaper import best_baseline, with_bag_of_words, write_linear
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.run import finetune, summary_lines
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.baseline_lines import BAG_FOLDER, SAVED, lines_of_baselines, verdict
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.recipes.results.resampling import example_lines
from bertsmith.tasks.baselines.word_model import WordModel
from bertsmith.tasks.datasets.examples import Example, SequenceExample, TextExample
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.predictions import NumberPrediction
from bertsmith.tasks.specs.task import (
    BAG,
    BEFORE,
    CEILINGS,
    CENTRAL,
    CHOSEN,
    CLOSEST,
    COSINE,
    FIRST_CANDIDATE,
    FROZEN_COSINE,
    OVERLAP,
    PAIRS,
    RIGHT_BRANCHING,
    TAGS,
    VECTORS,
    WORDS_COSINE,
    WRITTEN,
    TaskSpec,
)
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.specs.written_forms import Trees
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import BAD, GOOD, PEOPLE, PLACES, SPECS, examples_of, write_base_model

SETTINGS = FinetuningSettings(batch_size=8, epochs=0.5, precision="fp32", dropout=0.0, device="cpu")
HOPELESS = RecipeSettings(learning_rate=1e-9, save_minutes=None)  # learns nothing


def data_of(kind: str, train: int = 40, dev: int = 20) -> TaskData:
    return TaskData(train=examples_of(kind, train), dev=examples_of(kind, dev, seed=1))


def computed(tmp_path: Path, kind: str, data: TaskData | None = None, spec: TaskSpec | None = None) -> Baselines:
    base = write_base_model(tmp_path / "base")
    job = FinetuningJob.prepare(base, spec or SPECS[kind], data or data_of(kind), SETTINGS, HOPELESS)
    (tmp_path / "run").mkdir()
    return baselines_of(job, tmp_path / "run", resume=False)


def saved(job: FinetuningJob, name: str, tmp_path: Path) -> tuple[Predictor, dict[str, Any], list[dict[str, Any]]]:
    """The linear model of a baseline as it is saved and loaded, with the baseline's result and predictions."""
    baselines = baselines_of(job, tmp_path, resume=False)
    (result,) = (result for result in baselines.results if result["name"] == name)
    write_linear(job, baselines.linear[name], result, tmp_path / "linear")
    predictor = load_predictor(tmp_path / "linear", device="cpu", precision="fp32")
    return predictor, result, [line["prediction"] for line in baselines.lines[name]]


def scores_of(baselines: Baselines, metric: str) -> dict[str, float]:
    return {result["name"]: result["scores"][metric] for result in baselines.results}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("single", [BAG, VECTORS]),
        ("windows", [BAG, VECTORS]),
        ("several labels", [BAG, VECTORS]),
        ("number", [BAG, VECTORS]),
        ("pair", [BAG, VECTORS, PAIRS, COSINE]),
        ("choice", [OVERLAP]),
        ("tags", [TAGS, VECTORS]),
        ("answer", [OVERLAP]),
        ("answer or none", [OVERLAP]),
        ("scored vectors", [WORDS_COSINE, FROZEN_COSINE]),
        ("vectors of partners", [WORDS_COSINE, FROZEN_COSINE]),
        ("vectors of triplets", [WORDS_COSINE, FROZEN_COSINE]),
        ("text to write", list(WRITTEN)),
        ("sentences", list(CHOSEN)),
        ("pronoun", [BEFORE, FIRST_CANDIDATE, CLOSEST]),
    ],
)
def test_every_kind_of_task_has_baselines_with_scores_intervals_and_predictions(
    kind: str, names: list[str], tmp_path: Path
) -> None:
    data = data_of(kind)
    baselines = computed(tmp_path, kind, data)
    metric = SPECS[kind].metric
    assert [result["name"] for result in baselines.results] == names
    for result in baselines.results:
        assert result["train_examples"] == (
            0 if result["name"] in (FROZEN_COSINE, *CEILINGS, BEFORE, FIRST_CANDIDATE, CLOSEST) else 40
        )
        assert result["seconds"] >= 0
        low, high = result["intervals"].get(metric, [result["scores"][metric]] * 2)
        assert low <= result["scores"][metric] <= high
        assert [line["id"] for line in baselines.lines[result["name"]]] == [example.id for example in data.dev]
    assert any(metric in result["intervals"] for result in baselines.results) or kind in (
        "tags",
        "single",
        "pair",
        "vectors of partners",
    )
    assert list(baselines.linear) == [name for name in (VECTORS, PAIRS, COSINE) if name in names]


def test_trees_are_compared_with_right_branching_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trees, "require_spelling", lambda *_: None)  # the tiny vocabulary spells no brackets
    tree = "(S (NP (NN anna)) (S (VB in) (NN oslo)))"
    examples = [SequenceExample(id=str(n), source="anna in oslo", targets=(tree,)) for n in range(4)]
    data = TaskData(train=examples, dev=examples[:2])
    baselines = computed(tmp_path, "parsing", data, spec_for("parsing", examples))
    assert scores_of(baselines, "recall") == {RIGHT_BRANCHING: pytest.approx(2 / 3)}
    assert baselines.lines[RIGHT_BRANCHING][0]["prediction"]["text"] == "(S (XX anna) (S (XX in) (XX oslo)))"


@pytest.mark.parametrize("kind", ["single", "pair", "several labels", "number", "tags"])
def test_what_words_decide_is_learned_from_words(kind: str, tmp_path: Path) -> None:
    result = computed(tmp_path, kind, data_of(kind, 120, 40))
    assert scores_of(result, SPECS[kind].metric)[TAGS if kind == "tags" else BAG] > 0.9


def test_the_cosine_of_two_texts_tells_equal_from_different(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def pairs(count: int) -> list[Example]:
        examples: list[Example] = []
        for number in range(count):
            first = " ".join(rng.choice([*GOOD, *BAD], 4))
            same = number % 2 == 0
            second = first if same else " ".join(rng.choice([*GOOD, *BAD], 4))
            examples.append(TextExample(id=str(number), first=first, second=second, label=str(int(same))))
        return examples

    scores = scores_of(computed(tmp_path, "pair", TaskData(train=pairs(80), dev=pairs(40))), "accuracy")
    assert scores[COSINE] > 0.8
    assert scores[BAG] > 0.8  # by the columns of the overlap
    assert scores[VECTORS] < scores[COSINE]


def scored_pairs(count: int, seed: int) -> list[Example]:
    """Pairs of four words whose score is the number of words that they share; word order says nothing."""
    rng, examples = np.random.default_rng(seed), list[Example]()
    for number in range(count):
        first, other = rng.permutation([*GOOD, *BAD, *PEOPLE, *PLACES])[:8].reshape(2, 4)
        shared = number % 5
        second = [*first[:shared], *other[shared:]]
        texts = [" ".join(rng.permutation(words)) for words in (first, second)]
        examples.append(TextExample(id=str(number), first=texts[0], second=texts[1], label=float(shared)))
    return examples


def test_shared_words_are_the_similarity_of_tf_idf_vectors(base: str, tmp_path: Path) -> None:
    data = TaskData(train=scored_pairs(60, 1), dev=scored_pairs(40, 2))
    spec = dataclasses.replace(SPECS["scored vectors"], widths=(16,))
    result = finetune(base, spec, data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1)
    (words, frozen) = result.report["baselines"]
    assert words["scores"]["spearman"] > 0.95
    assert set(words["scores"]) == {"spearman", "pearson"}, "shorter vectors are what the training is for"
    # The training learns nothing, so its vectors are those before it.
    assert frozen["scores"]["spearman"] == pytest.approx(result.report["scores"]["spearman"]["mean"], abs=0.02)
    assert result.report["better_baseline"]["name"] == WORDS_COSINE
    assert "p_value" in result.report["better_baseline"]
    printed = summary_lines(result.report)
    assert any(line.startswith(f"baseline, {WORDS_COSINE}: spearman 0.9") for line in printed)
    assert any(
        line.startswith(f"baseline, {FROZEN_COSINE}: spearman") and "training ex" not in line for line in printed
    )
    assert f"the {WORDS_COSINE} is better than the fine-tuned model" in printed[-1]


def test_labelled_pairs_have_baselines_whose_difference_is_tested_by_the_main_score(base: str, tmp_path: Path) -> None:
    def pairs(count: int, seed: int) -> list[Example]:
        scored = scored_pairs(count, seed)
        return [dataclasses.replace(example, label=str(int(example.label > 2))) for example in scored]

    data = TaskData(train=pairs(60, 1), dev=pairs(40, 2))
    spec = vector_spec("pairs", data.train, SPECS["vectors of partners"].settings)
    spec = dataclasses.replace(spec, objective="ranking")
    result = finetune(base, spec, data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1)
    better = result.report["better_baseline"]
    assert (better["name"], better["compared"]) == (WORDS_COSINE, "average_precision")
    assert better["difference"] == pytest.approx(better["score"] - better["of_model"])
    assert "average_precision" in result.report["baselines"][1]["intervals"]


def test_a_worse_model_is_reported_and_the_linear_model_is_saved_ready_for_use(base: str, tmp_path: Path) -> None:
    data = data_of("single", 60, 40)
    result = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1)
    report = read_json(tmp_path / "run" / "report.json")
    assert [baseline["name"] for baseline in report["baselines"]] == [BAG, VECTORS]
    better = report["better_baseline"]
    assert better["score"] > better["of_model"]
    assert better["low"] <= better["difference"] <= better["high"]
    printed = summary_lines(result.report)
    assert any(line.startswith(f"baseline, {BAG}: accuracy 1.0000") for line in printed)
    assert f"the {better['name']} is better than the fine-tuned model" in printed[-1]
    assert ("more than noise" in printed[-1]) == (better["p_value"] < 0.05)
    page = write_finetuning_report([tmp_path / "run"]).read_text(encoding="utf-8")
    assert "Baselines on the dev examples" in page
    assert "is better than the fine-tuned model" in page


@pytest.mark.parametrize("has_seen_labels", [False, True])
@pytest.mark.parametrize("kind", ["single", "number", "several labels", "windows", "pair", "tags"])
def test_the_saved_linear_model_answers_what_the_baseline_predicted(
    kind: str, has_seen_labels: bool, base: str, tmp_path: Path
) -> None:
    data = data_of(kind)
    job = FinetuningJob.prepare(base, SPECS[kind], data, SETTINGS, HOPELESS)
    if has_seen_labels:
        untrained = job.folder
        job = job.on_base(load_any(write_base_model(tmp_path / "trained", seed=1)), SETTINGS, HOPELESS)
        job.untrained = untrained
    predictor, _, predictions = saved(job, VECTORS, tmp_path)
    assert predictor.task.spec.reads == ("pooler" if kind == "tags" else "mean")
    for prediction, wanted in zip(predictor.predict(data.dev), predictions, strict=True):
        answer = prediction.to_dict()
        key = {"number": "value", "tags": "tags"}.get(kind, "probabilities")
        assert answer[key] == (wanted[key] if kind == "tags" else pytest.approx(wanted[key], abs=1e-3))


@pytest.mark.parametrize("kind", ["tags", "single"])
def test_the_saved_linear_model_has_no_bilstm_of_the_fine_tuned_model(kind: str, base: str, tmp_path: Path) -> None:
    data = data_of(kind)
    settings = dataclasses.replace(
        SETTINGS, reads="bilstm", bilstm_cells=4, bilstm_layers="sum-all", normalize_layers=True
    )
    job = FinetuningJob.prepare(base, SPECS[kind], data, settings, HOPELESS)
    predictor, result, _ = saved(job, VECTORS, tmp_path)
    assert not predictor.task.head.has_reader
    scores, _ = predictor.evaluate(data.dev)
    assert scores == pytest.approx(result["scores"], abs=1e-3)


@pytest.mark.parametrize("long_text", ["hierarchical", "hierarchical-bilstm"])
def test_the_saved_linear_model_has_no_reader_of_windows(long_text: str, base: str, tmp_path: Path) -> None:
    data = data_of("windows")
    spec = dataclasses.replace(
        SPECS["windows"], reads="mean", settings=dataclasses.replace(SPECS["windows"].settings, long_text=long_text)
    )
    job = FinetuningJob.prepare(base, spec, data, SETTINGS, HOPELESS)
    predictor, _, predictions = saved(job, VECTORS, tmp_path)
    for prediction, wanted in zip(predictor.predict(data.dev), predictions, strict=True):
        assert prediction.to_dict()["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-3)


def test_a_run_with_a_bilstm_below_tags_saves_the_linear_model_that_beats_it(base: str, tmp_path: Path) -> None:
    data = data_of("tags", 60)
    settings = dataclasses.replace(SETTINGS, reads="bilstm", bilstm_cells=4)
    finetune(base, SPECS["tags"], data, tmp_path / "run", settings, HOPELESS, seeds=1)
    job = FinetuningJob.prepare(base, SPECS["tags"], data, settings, HOPELESS)
    baselines = baselines_of(job, tmp_path / "run", resume=True)
    only = dataclasses.replace(baselines, results=[result for result in baselines.results if result["name"] == VECTORS])
    better = best_baseline(job, only, {"f1": -1.0}, baselines.lines[TAGS], tmp_path / "run")
    assert better["folder"] == "linear"
    assert not load_predictor(tmp_path / "run" / "linear", device="cpu").task.head.has_reader


def test_the_saved_model_of_the_vectors_of_both_texts_answers_what_the_baseline_predicted(tmp_path: Path) -> None:
    base, data = write_base_model(tmp_path / "base"), data_of("pair")
    job = FinetuningJob.prepare(base, SPECS["pair"], data, SETTINGS, HOPELESS)
    predictor, _, predictions = saved(job, PAIRS, tmp_path)
    assert predictor.task.spec.reads == "apart"
    for prediction, wanted in zip(predictor.predict(data.dev), predictions, strict=True):
        assert prediction.to_dict()["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-3)
    better = {"name": PAIRS, "metric": "accuracy", "score": 1.0, "of_model": 0.0, "examples": 1, "folder": "linear"}
    assert verdict(better).endswith("it is saved as a model, RUN/linear")


def test_a_model_of_pairs_is_not_saved_where_texts_are_cut(tmp_path: Path) -> None:
    spec = dataclasses.replace(SPECS["pair"], settings=dataclasses.replace(SPECS["pair"].settings, max_length=7))
    baselines = computed(tmp_path, "pair", spec=spec)
    assert PAIRS in baselines.lines
    assert list(baselines.linear) == [VECTORS, COSINE]


def test_the_mean_with_the_bag_of_words_is_advised_where_the_two_tie() -> None:
    def said(bag: float, **more: object) -> str:
        report = {
            "metric": "accuracy",
            "best": "seed-1",
            "train_examples": 90,
            "dev_examples": 100,
            "intervals": {"accuracy": [0.6, 0.8]},
            "runs": [{"folder": "seed-1", "scores": {"accuracy": 0.7}}],
            "baselines": [
                {"name": BAG, "scores": {"accuracy": bag}, "intervals": {}, "seconds": 1.0, "train_examples": 90}
            ],
            "with_bag_of_words": {"accuracy": 0.75},
            **more,
        }
        return next(line for line in lines_of_baselines(report) if "averaged with" in line)

    better = {
        "name": BAG,
        "metric": "accuracy",
        "score": 0.72,
        "of_model": 0.7,
        "examples": 100,
        "compared": "accuracy",
        "difference": 0.02,
        "low": -0.01,
        "high": 0.05,
    }
    assert (
        "0.7500 (`bertsmith predict --model RUN/model --also RUN/bag-of-words`); the two differ by no more than noise"
        in said(0.65)
    )
    assert "differ by no more than noise" in said(0.72, better_baseline={**better, "p_value": 0.3})
    assert "differ by no more than noise" not in said(0.72, better_baseline={**better, "p_value": 0.01})
    assert "differ by no more than noise" not in said(0.5)
    collapsed = [{"folder": "seed-1", "scores": {"accuracy": 0.7}, "collapsed": True}]
    assert "differ by no more than noise" not in said(0.65, runs=collapsed)
    assert "differ by no more than noise" not in said(0.65, dev_examples=6), "six examples tell nothing apart"
    assert said(0.65, settings={"calibrate": False}).endswith("predict with their mean")
    test = {"compared": "accuracy", "difference": 0.03, "low": -0.01, "high": 0.06, "p_value": 0.2, "examples": 100}
    advice = said(0.72, better_mean={"name": BAG, "score": 0.72, **test})
    assert "higher than either (the bag of words: 0.7200); the difference, +0.0300" in advice
    assert advice.endswith("use the mean: `bertsmith predict --model RUN/model --also RUN/bag-of-words`")


def test_a_mean_of_numbers_that_is_better_than_both_is_advised(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    gold = draw.normal(size=30)
    dev = [TextExample(id=str(n), first="good", label=float(value)) for n, value in enumerate(gold)]
    job = FinetuningJob.prepare(
        write_base_model(tmp_path / "base"), SPECS["number"], TaskData(train=examples_of("number", 20), dev=dev),
        SETTINGS, HOPELESS,
    )  # fmt: skip
    (tmp_path / "run" / BAG_FOLDER).mkdir(parents=True)

    def entry(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
        lines, scores = [], []
        for values in (first, second):
            predictions = [NumberPrediction(value=float(value)) for value in values]
            lines.append(list(example_lines(job.task, dev, predictions)))
            scores.append(job.task.score(dev, predictions))
        results = [{"name": BAG, "scores": scores[1]}]
        baselines = Baselines(results=results, lines={BAG: lines[1]})
        return with_bag_of_words(job, job.task.spec, baselines, scores[0], lines[0], tmp_path / "run")

    noise = draw.normal(size=30)
    mixed = entry(gold + noise, gold - 0.9 * noise)
    better = mixed["better_mean"]
    assert mixed["with_bag_of_words"][job.task.spec.metric] > better["score"]
    assert better["name"] == BAG
    assert better["low"] <= better["difference"] <= better["high"]
    assert better["examples"] == 30
    assert "better_mean" not in entry(gold, -gold)


@pytest.mark.parametrize("kind", ["single", "several labels"])
def test_a_mean_is_not_advised_for_a_score_on_the_examples_that_its_thresholds_were_fitted_to(
    kind: str, tmp_path: Path
) -> None:
    draw, dev = np.random.default_rng(1), examples_of(kind, 30, seed=1)
    asked = dataclasses.replace(SPECS[kind].settings, tune_threshold=True, label_thresholds=kind == "several labels")
    spec = dataclasses.replace(SPECS[kind], settings=asked)
    job = FinetuningJob.prepare(
        write_base_model(tmp_path / "base"), spec, TaskData(train=examples_of(kind, 20), dev=dev), SETTINGS, HOPELESS
    )
    logits = draw.normal(size=(2, len(dev), len(spec.labels)))  # of a model and a bag that know nothing
    decoded = [job.task.decode(dev, job.dev, scores, job.tokenizer) for scores in logits]
    averaged = job.task.averaged(decoded)
    task = task_for(job.task.tuned(dev, averaged))
    optimistic = task.score(dev, task.averaged(decoded) or ())
    fair = task.score(dev, task.cross_fitted(dev, averaged) or ())
    assert fair[spec.metric] < optimistic[spec.metric]
    between = {spec.metric: (fair[spec.metric] + optimistic[spec.metric]) / 2}
    lines = [list(example_lines(task, dev, answers)) for answers in decoded]
    baselines = Baselines(results=[{"name": BAG, "scores": fair}], lines={BAG: lines[1]})
    (tmp_path / "run" / BAG_FOLDER).mkdir(parents=True)
    entry = with_bag_of_words(job, task.spec, baselines, between, lines[0], tmp_path / "run")
    assert entry == {"with_bag_of_words": pytest.approx(fair)}


@pytest.mark.parametrize("kind", ["pair", "number"])
def test_the_report_has_the_score_of_the_mean_that_evaluation_computes(kind: str, base: str, tmp_path: Path) -> None:
    data = data_of(kind)
    report = finetune(base, SPECS[kind], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1).report
    both = load_ensemble([tmp_path / "run" / "model", tmp_path / "run" / BAG_FOLDER], device="cpu", precision="fp32")
    scores, _ = both.evaluate(data.dev)
    assert report["with_bag_of_words"] == pytest.approx(scores)


def test_advice_leaves_out_what_the_training_was_given() -> None:
    def said(name: str, kind: str, **settings: object) -> str:
        better = {"name": name, "metric": "accuracy", "score": 1.0, "of_model": 0.0, "examples": 1}
        return verdict(better, "my-run", {"kind": kind, "settings": {"epochs": 4.0, "learning_rate": 2e-5, **settings}})

    assert "`bertsmith finetune --reads apart`" in said(COSINE, "classification", reads="mean")
    assert "--reads apart" not in said(COSINE, "classification", reads="apart")
    assert "--reads apart" not in said(COSINE, "classification", reads="mean", has_segments=False)
    assert "--task similarity" in said(COSINE, "regression", reads="apart")
    assert "--task similarity" not in said(COSINE, "classification", reads="apart")
    assert "--reads apart" not in said(PAIRS, "classification", reads="apart")
    assert "try `--epochs 8`, more sentences" in said(TAGS, "tagging")
    assert "(--task swag)" in said(OVERLAP, "choice")
    assert "(--task squad)" in said(OVERLAP, "span")
    assert said(BAG, "classification").endswith("`--keep bag` keeps one, `--keep auto` whichever model is better")
    chosen = {"name": BAG, "metric": "accuracy", "score": 1.0, "of_model": 0.0, "examples": 1}
    assert verdict(chosen, "my-run", {"choice": [{}]}).endswith("for these examples: `--keep bag` keeps one")
    assert "try `--learning-rate 1e-05`, more examples" in said(FROZEN_COSINE, "similarity")
    assert "another learning rate than 2e-05" in said("a system of tomorrow", "classification")
    older = verdict({"name": TAGS, "metric": "f1", "score": 1.0, "of_model": 0.0, "examples": 1})
    assert "try more epochs, more sentences" in older


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("pair", COSINE),
        ("numbers of pairs", COSINE),
        ("scored vectors", FROZEN_COSINE),
        ("scored vectors", WORDS_COSINE),
        ("vectors of partners", FROZEN_COSINE),
        ("vectors of triplets", WORDS_COSINE),
    ],
)
def test_a_cosine_that_is_better_is_saved_and_scores_what_was_reported(
    kind: str, name: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, spec = data_of("pair" if kind == "numbers of pairs" else kind), SPECS.get(kind)
    if spec is None:  # labels as numbers; texts longer than a row
        spec = dataclasses.replace(SPECS["number"], pair=True, settings=SPECS["windows"].settings)
        data = TaskData(train=scored_pairs(40, 1), dev=scored_pairs(20, 2))
    systems = module._Computation._systems
    monkeypatch.setattr(module._Computation, "_systems", lambda self: [each for each in systems(self) if each == name])
    monkeypatch.setattr(cheaper, "is_better", lambda _: True)
    report = finetune(base, spec, data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1).report
    (result,) = report["baselines"]
    folder = tmp_path / "run" / report["better_baseline"]["folder"]
    predictor = load_predictor(folder, device="cpu", precision="fp32")
    scores, predictions = predictor.evaluate(data.dev)
    assert scores == pytest.approx(result["scores"], abs=1e-6)
    lines = [line for line in read_json_lines(tmp_path / "run" / "baselines.jsonl") if line["baseline"] == name]
    assert [prediction.cut_tokens for prediction in predictions] == [line["prediction"]["cut_tokens"] for line in lines]
    assert f"it is saved as a model, RUN/{folder.name}" in verdict(report["better_baseline"])
    values = [line["prediction"].get("value", line["prediction"].get("probabilities")) for line in lines]
    for prediction, value in zip(predictions, values, strict=True):
        answer = prediction.to_dict()
        assert answer.get("value", answer.get("probabilities")) == pytest.approx(value, abs=1e-6)
    assert predictor.predict([]) == []


def test_a_cosine_of_words_is_evaluated_with_and_without_the_name_of_the_task(tmp_path: Path) -> None:
    model = WordModel.fitted(SPECS["scored vectors"], scored_pairs(60, 1))
    (tmp_path / "word-cosine").mkdir()
    model.write(tmp_path / "word-cosine")
    rows = "".join(f"{pair.first},{pair.second},{pair.label}\n" for pair in scored_pairs(20, 2))
    (tmp_path / "dev.csv").write_text("sentence1,sentence2,score\n" + rows)
    scores = [
        evaluate(tmp_path / "word-cosine", tmp_path / "dev.csv", task=task).scores for task in (None, "similarity")
    ]
    assert scores[0] == scores[1] == model_scores(model, scored_pairs(20, 2))


def model_scores(model: WordModel, examples: list[Example]) -> dict[str, float]:
    return task_for(model.spec).score(examples, model.predict(examples))


def test_a_damaged_linear_model_on_a_cosine_is_refused(base: str, tmp_path: Path) -> None:
    data = data_of("pair")
    job = FinetuningJob.prepare(base, SPECS["pair"], data, SETTINGS, HOPELESS)
    baselines = baselines_of(job, tmp_path, resume=False)
    (result,) = (result for result in baselines.results if result["name"] == COSINE)
    folder = tmp_path / "text-cosine"
    write_linear(job, baselines.linear[COSINE], result, folder)
    values = read_json(folder / "n-grams.json")
    for cosine in ({}, {"weight": [1.0], "bias": [1.0]}, {"weight": [math.nan, 1.0], "bias": [1.0, 1.0]}):
        (folder / "n-grams.json").write_text(json.dumps(values | {"cosine": cosine}))
        with pytest.raises(InputError, match="make it again"):
            load_predictor(folder, device="cpu")
    with pytest.raises(InputError, match=r"found a linear model on a cosine; name '.*/text-cosine/encoder'"):
        load_any(folder)


@pytest.mark.parametrize("kind", ["choice", "tags", "answer", "answer or none"])
def test_counts_of_words_are_kept_and_answer_what_the_cheap_system_answered(kind: str, tmp_path: Path) -> None:
    data = data_of(kind)
    baselines = computed(tmp_path, kind, data)
    name = TAGS if kind == "tags" else OVERLAP
    predictor = load_predictor(tmp_path / "run" / SAVED[name], device="cpu", precision="fp32")
    scores, predictions = predictor.evaluate(data.dev)
    (result,) = (result for result in baselines.results if result["name"] == name)
    assert scores == pytest.approx(result["scores"])
    for prediction, line in zip(predictions, baselines.lines[name], strict=True):
        assert json.loads(json.dumps(prediction.to_dict())) == line["prediction"]
    path = tmp_path / "run" / SAVED[name] / "n-grams.json"
    values = read_json(path)
    damaged: list[dict[str, Any]] = [{"counts": {}}, {"counts": {**values["counts"], "limit": "high"}}, {"spec": []}]
    damaged += [
        {"counts": {**values["counts"], "rarity": {"a": number}}} for number in (math.nan, -1) if kind != "tags"
    ]
    for change in damaged:
        path.write_text(json.dumps(values | change))
        with pytest.raises(InputError, match="make it again"):
            load_predictor(tmp_path / "run" / SAVED[name])


@pytest.mark.parametrize("kind", ["single", "number", "several labels", "windows", "pair"])
def test_the_bag_of_words_is_kept_and_answers_what_the_cheap_system_answered(kind: str, tmp_path: Path) -> None:
    base, data = write_base_model(tmp_path / "base"), data_of(kind)
    baselines = baselines_of(
        FinetuningJob.prepare(base, SPECS[kind], data, SETTINGS, HOPELESS), tmp_path / "run", resume=False
    )
    predictor = load_predictor(tmp_path / "run" / BAG_FOLDER, device="cpu", precision="fp32")
    scores, predictions = predictor.evaluate(data.dev)
    (result,) = (result for result in baselines.results if result["name"] == BAG)
    assert scores == pytest.approx(result["scores"])
    key = "value" if kind == "number" else "probabilities"
    for prediction, line in zip(predictions, baselines.lines[BAG], strict=True):
        assert prediction.to_dict()[key] == pytest.approx(line["prediction"][key], abs=1e-6)


def test_the_bag_of_words_is_offered_if_it_is_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Computation, "_systems", lambda self: [BAG])
    base, data = write_base_model(tmp_path / "base"), data_of("single", 60, 40)
    report = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1).report
    assert summary_lines(report)[-1].endswith("; it is saved as a model, RUN/bag-of-words")
    both = load_ensemble([tmp_path / "run" / "model", tmp_path / "run" / BAG_FOLDER], device="cpu", precision="fp32")
    alone = [load_predictor(tmp_path / "run" / name, device="cpu") for name in ("model", BAG_FOLDER)]
    scores, answers = both.evaluate(data.dev)
    assert report["with_bag_of_words"] == pytest.approx(scores)
    assert any(
        "(`bertsmith predict --model RUN/model --also RUN/bag-of-words`)" in line for line in summary_lines(report)
    )
    mixtures = [answer.to_dict()["probabilities"] for answer in answers]
    parts = [
        [prediction.to_dict()["probabilities"] for prediction in predictor.predict(data.dev)] for predictor in alone
    ]
    for mixed, first, second in zip(mixtures, *parts, strict=True):
        for label, share in mixed.items():
            assert share == pytest.approx((first[label] + second[label]) / 2, abs=1e-6)
    with pytest.raises(ConfigError, match="fp32 on the processor"):
        load_predictor(tmp_path / "run" / BAG_FOLDER, precision="int8")


def test_the_linear_model_is_offered_if_it_is_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Computation, "_systems", lambda self: [VECTORS])
    base, data = write_base_model(tmp_path / "base"), data_of("single", 60, 40)
    report = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1).report
    assert report["better_baseline"]["folder"] == "linear"
    assert summary_lines(report)[-1].endswith("; it is saved as a model, RUN/linear")
    predictor = load_predictor(tmp_path / "run" / "linear", device="cpu", precision="fp32")
    scores = predictor.task.score(data.dev, predictor.predict(data.dev))
    assert scores["accuracy"] == report["better_baseline"]["score"]


def test_training_is_the_same_with_and_without_baselines(base: str, tmp_path: Path) -> None:
    data = data_of("single")
    recipe = RecipeSettings(learning_rate=1e-3, save_minutes=None)
    for name, wanted in (("with", True), ("without", False)):
        settings = dataclasses.replace(SETTINGS, epochs=1, baselines=wanted)
        finetune(base, SPECS["single"], data, tmp_path / name, settings, recipe, seeds=1)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert weights[0] == weights[1]
    reports = [read_json(tmp_path / name / "report.json") for name in ("with", "without")]
    assert reports[0]["scores"] == reports[1]["scores"]
    assert reports[1]["baselines"] == []
    assert not (tmp_path / "without" / "baselines.json").exists()


def test_a_resumed_run_keeps_the_baselines_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, data = write_base_model(tmp_path / "base"), data_of("single", 60, 40)
    straight = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1).report
    written = (tmp_path / "run" / "report.json").read_bytes()
    (tmp_path / "run" / "report.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(module._Computation, "run", lambda self: pytest.fail("computed again"))
        finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1, resume=True)
    assert (tmp_path / "run" / "report.json").read_bytes() == written
    without = dataclasses.replace(SETTINGS, baselines=False)
    report = finetune(base, SPECS["single"], data, tmp_path / "run", without, HOPELESS, seeds=1, resume=True).report
    assert (report["baselines"], report["scores"]) == ([], straight["scores"])
    # Interrupted before the results were complete: computed again, with the same values.
    (tmp_path / "run" / "baselines.json").unlink()
    again = finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, HOPELESS, seeds=1, resume=True).report
    for report in (straight, again):
        for baseline in report["baselines"]:
            baseline.pop("seconds")
    assert again["baselines"] == straight["baselines"]
    assert again["better_baseline"] == straight["better_baseline"]


def test_damaged_weights_of_the_linear_model_are_refused(tmp_path: Path) -> None:
    computed(tmp_path, "single")
    (tmp_path / "run" / "baselines.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"weight, bias and penalty in '.*baselines\.safetensors'"):
        Baselines.read(tmp_path / "run")


@pytest.mark.parametrize(
    ("file", "content"),
    [("baselines.json", '{"name": 3}'), ("baselines.json", "[{}]"), ("baselines.jsonl", '{"id": "0"}\n')],
)
def test_damaged_results_are_refused(tmp_path: Path, file: str, content: str) -> None:
    computed(tmp_path, "single")
    (tmp_path / "run" / file).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=f"baselines in '.*{file}'.*remove the file baselines.json"):
        Baselines.read(tmp_path / "run")


def test_without_dev_examples_there_are_no_baselines(tmp_path: Path) -> None:
    result = computed(tmp_path, "single", TaskData(train=examples_of("single", 8), dev=()))
    assert not result.results
    assert list((tmp_path / "run").iterdir()) == []


def text(number: int, words: str, label: str | tuple[str, ...] | float) -> TextExample:
    return TextExample(id=str(number), first=words, label=label, location=f"row {number}")


@pytest.mark.parametrize(
    ("kind", "train", "dev"),
    [
        ("single", [text(0, "good", "positive"), text(1, "great film", "positive")], [text(0, "bad", "negative")]),
        ("single", [text(0, "¿", "positive"), text(1, "?", "negative")], [text(0, "𝕏 [", "negative")]),
        ("several labels", [text(0, "anna", ("person",)), text(1, "the", ())], [text(0, "rome", ("place",))]),
        ("several labels", [text(0, "the", ()), text(1, "a", ())], [text(0, "rome", ())]),
        ("number", [text(0, "good", 1.0), text(1, "bad", 2.0)], [text(0, "bad", 2.0)]),
        ("number", [text(0, "good", 1.0), text(1, "bad", 2.0)], [text(0, "bad", 2.0), text(1, "bad", 2.0)]),
    ],
    ids=["one class", "no words", "absent label", "no labels", "one dev example", "equal numbers"],
)
def test_strange_examples_are_scored(
    kind: str, train: Sequence[Example], dev: Sequence[Example], tmp_path: Path
) -> None:
    baselines = computed(tmp_path, kind, TaskData(train=train, dev=dev))
    assert [result["name"] for result in baselines.results] == [BAG, VECTORS]
    assert all(len(lines) == len(dev) for lines in baselines.lines.values())
    json.loads((tmp_path / "run" / "baselines.json").read_text(encoding="utf-8"))


def test_one_dev_example_cannot_be_compared(base: str, tmp_path: Path) -> None:
    train = examples_of("single", 24)
    for label, other in (("positive", "negative"), ("negative", "positive")):  # the model is wrong about one of them
        mostly = [dataclasses.replace(example, label=label if n % 8 else other) for n, example in enumerate(train)]
        data = TaskData(train=mostly, dev=[mostly[1]])
        report = finetune(base, SPECS["single"], data, tmp_path / label, SETTINGS, HOPELESS, seeds=1).report
        if "better_baseline" in report:
            assert "p_value" not in report["better_baseline"]
            assert "noise" not in summary_lines(report)[-1]
            return
    pytest.fail("the model was right about both")


def test_large_sets_are_sampled_and_the_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bag, "MOST_EXAMPLES", 30)
    base = write_base_model(tmp_path / "base")
    report = finetune(
        base, SPECS["single"], data_of("single", 60), tmp_path / "run", SETTINGS, HOPELESS, seeds=1
    ).report
    assert [baseline["train_examples"] for baseline in report["baselines"]] == [60, 30]
    assert sum(", on 30 of the training examples" in line for line in summary_lines(report)) == 1


def test_words_are_counted_in_more_examples_than_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bag, "MOST_EXAMPLES", 10)
    data, words = data_of("single", 60), 0
    for most, name in ((1, "few"), (100, "some"), (10_000, "all")):
        monkeypatch.setattr(bag, "MOST_WORDS_OF_BAG", most)
        (tmp_path / name).mkdir()
        baselines = computed(tmp_path / name, "single", data)
        counts = {result["name"]: result["train_examples"] for result in baselines.results}
        assert counts[VECTORS] == 10
        assert counts[BAG] > words or name == "few"
        words = counts[BAG]
        assert words == {"few": 10, "all": 60}.get(name, words)
    monkeypatch.setattr(module, "MOST_TAGGED_WORDS", 20)
    counts = {result["name"]: result["train_examples"] for result in computed(tmp_path, "tags").results}
    assert counts[TAGS] == 40
    assert 1 <= counts[VECTORS] <= 20


def test_lines_of_the_file_name_their_system(tmp_path: Path) -> None:
    computed(tmp_path, "single")
    lines = read_json_lines(tmp_path / "run" / "baselines.jsonl")
    assert [line["baseline"] for line in lines] == [BAG] * 20 + [VECTORS] * 20


@pytest.mark.parametrize(("p_value", "words"), [(0.5, "scores higher than"), (0.01, "is better than")])
def test_a_difference_within_noise_is_only_a_higher_score(p_value: float, words: str) -> None:
    test = {"difference": 0.1, "low": -0.1, "high": 0.3, "p_value": p_value, "compared": "accuracy", "examples": 20}
    better = {"name": BAG, "metric": "accuracy", "score": 0.8, "of_model": 0.7, **test}
    assert verdict(better).startswith(f"the {BAG} {words} the fine-tuned model: accuracy 0.8000 against 0.7000; ")


def test_a_baseline_with_a_name_in_the_plural_has_such_a_verb() -> None:
    better = {"name": CENTRAL, "metric": "rougeL", "score": 0.8, "of_model": 0.7, "examples": 1}
    assert verdict(better).startswith(f"the {CENTRAL} score higher than the fine-tuned model: rougeL 0.8000 against ")


def test_a_single_example_shows_no_system_to_be_better() -> None:
    better = {"name": BAG, "metric": "accuracy", "score": 1.0, "of_model": 0.0, "examples": 1}
    assert verdict(better).startswith(f"the {BAG} scores higher than the fine-tuned model: accuracy 1.0000 against 0.0")


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("answer", OVERLAP, "most answers were wrong"),
        ("tags", TAGS, "of the entities"),
        ("single", BAG, "not better than"),
        ("number", BAG, "not better than"),
    ],
)
def test_a_model_below_its_baseline_says_so_where_it_answers(
    kind: str,
    name: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only = module._Computation._systems
    monkeypatch.setattr(module._Computation, "_systems", lambda self: [each for each in only(self) if each == name])
    monkeypatch.setattr("bertsmith.recipes.finetuning.run.RESTARTS", 0)
    base, data, run = write_base_model(tmp_path / "base"), data_of(kind), tmp_path / "run"
    result = finetune(base, SPECS[kind], data, run, SETTINGS, HOPELESS, seeds=1)
    recorded = read_json(run / "model" / "bertsmith.json")["baseline"]
    assert (recorded["name"], recorded["folder"]) == (name, SAVED[name])
    capsys.readouterr()
    for model in (run / "model", run, run / "model"):
        predictor = load_ensemble([model], device="cpu", precision="fp32")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: this model")]
    if result.runs[0].collapsed:
        assert lines[0].startswith("warning: this model gave the same answer to every example")
    else:
        assert reason in lines[0]
        assert recorded["score"] < recorded["of_model"] or f"not better than the baseline {name!r}" in lines[0]
    assert all(line.endswith(f"; the baseline {name!r} is saved in '{run / SAVED[name]}'") for line in lines)
    assert len(lines) == 1
    if name == TAGS:
        assert load_ensemble([run / SAVED[name]]).predict(data.dev)
    card = (run / "model" / "README.md").read_text()
    assert predictor.weakness[1:] in card


def test_a_model_above_its_baseline_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = ModelMetadata(
        task="classification",
        scores={"accuracy": 0.61},
        training={"dev_examples": 40},
        baseline={"name": BAG, "metric": "accuracy", "score": 0.6, "examples": 40, "p_value": 0.8},
    )
    assert weakness_of(metadata) == ""  # 40 examples cannot tell
    many = dataclasses.replace(metadata, baseline={**(metadata.baseline or {}), "examples": 400})
    assert "only within noise" in weakness_of(many)
    assert weakness_of(dataclasses.replace(many, baseline={**(many.baseline or {}), "p_value": 0.01})) == ""
    easy = dataclasses.replace(many, scores={"accuracy": 1.0}, baseline={**(many.baseline or {}), "score": 1.0})
    assert weakness_of(easy) == ""
    below = dataclasses.replace(metadata, baseline={**(metadata.baseline or {}), "score": 0.75})
    assert "not better than the baseline 'bag of words': accuracy 0.61 against 0.75" in weakness_of(below)
    for broken in ({"name": 3}, {"score": "x", "metric": []}, {"score": float("nan"), "metric": "accuracy"}):
        assert weakness_of(dataclasses.replace(metadata, baseline=broken)) == ""


def test_a_training_that_makes_its_linear_start_worse_says_so() -> None:
    better = {"name": VECTORS, "metric": "accuracy", "score": 0.9, "of_model": 0.5, "examples": 1, "folder": "linear"}
    report = {"settings": {"start": "linear", "learning_rate": 2e-5}}
    assert "made it worse: try `--learning-rate 1e-05`" in verdict(better, "RUN", report)
    assert "made it worse" not in verdict(better, "RUN", {"settings": {"start": "random"}})
    of_bag = verdict({**better, "folder": ""}, "RUN", {**report, "best": "bag-of-words"})
    assert "than the bag of words" in of_bag
    assert of_bag.endswith("use --keep auto, which trains and keeps the best")
