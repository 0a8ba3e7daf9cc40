"""A bag of words as the model that is kept: chosen by `--keep auto`, or alone by `--keep bag`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.app.library.finetuning import finetune
from bertsmith.app.library.inspection import inspect_model
from bertsmith.app.library.labelled import evaluate
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError
from bertsmith.base.storage.files import read_json, read_json_lines, write_json
from bertsmith.inference.export.conversion import export
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.recipes.finetuning import merging
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.finetuning.run import summary_lines
from bertsmith.recipes.results import comparison
from bertsmith.recipes.results.finished_run import kept_name, kept_scores
from bertsmith.recipes.results.report import write_finetuning_report
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.specs.task import TaskSpec
from finetuning.test_keep_auto import AUTO, RUINS
from tasks.task_samples import examples_of
from written_files import file_with

ALONE: dict[str, Any] = {"keep": "bag", "device": "cpu", "precision": "fp32", "max_length": 16, "baselines": False}


@pytest.fixture(scope="module")
def kept(base: str, mails: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose trainings forget what they started from, and whose start knows little, next to a bag of words."""
    out = tmp_path_factory.mktemp("runs") / "kept"
    finetune(base, "classification", out, train=mails, dev=mails, seeds=1, **{**AUTO, **RUINS, "baselines": True})
    return out


def rows_of(path: Path, kind: str, count: int = 40) -> Path:
    """A file with examples of a kind of task."""
    rows = []
    for example in examples_of(kind, count):
        label = list(example.label) if isinstance(example.label, tuple) else example.label
        second = {} if example.second is None else {"text_b": example.second}
        rows.append({"text": example.first, **second, "label": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_bag_of_words_is_kept_where_it_is_better(kept: Path, tmp_path: Path) -> None:
    report, lines = read_json(kept / "report.json"), read_json_lines(kept / "predictions.jsonl")
    assert (report["best"], kept_name(report)) == ("bag-of-words", "the bag of words")
    assert kept_scores(report) == report["bag-of-words"]["scores"] == read_metadata(kept / "model").scores
    assert report["choice"][-1]["of_model"] == kept_scores(report)["accuracy"]
    others = {other["name"]: other for other in report["choice"]}
    assert others.keys() == {"seed-1", "the linear start"}
    spec = TaskSpec.from_dict(read_metadata(kept / "model").spec or {}, "the model")
    for name, folder in (("seed-1", "seed-1"), ("the linear start", "start")):
        expected = comparison.tested(spec, [lines], [read_json_lines(kept / folder / "predictions.jsonl")])
        assert others[name]["p_value"] == expected["p_value"], "a test against the model that is kept"
    assert "with_bag_of_words" not in report
    said = summary_lines(report)
    assert any(line.startswith("kept: the bag of words, 1.0000 ") for line in said)
    assert any("is not kept: accuracy" in line for line in said)
    assert not any("tied with" in line and "bag of words (" in line for line in said)
    page = write_finetuning_report([kept], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "bag of words" in page
    card = (kept / "model" / "README.md").read_text(encoding="utf-8")
    assert "is not kept: accuracy" in card
    assert "TF-IDF weights" in card


def test_a_kept_bag_answers_as_it_was_scored(kept: Path, mails: Path) -> None:
    lines = read_json_lines(kept / "predictions.jsonl")
    answers = bertsmith.load(kept).classify([line["texts"][0] for line in lines])
    assert [answer.to_dict()["probabilities"] for answer in answers] == [
        line["prediction"]["probabilities"] for line in lines
    ]
    assert evaluate(kept, mails).scores == kept_scores(read_json(kept / "report.json"))


def test_the_model_is_not_kept_without_a_better_score(base: str, mails: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_is_better", lambda *_: False)
        auto = finetune(base, "classification", tmp_path / "run", train=mails, **{**AUTO, "seeds": 1}).report
    assert auto["best"] == "seed-1"
    assert auto["choice"][-1]["name"] == "the bag of words"
    assert auto["bag-of-words"]["scores"]["accuracy"] == auto["choice"][-1]["score"]


def test_a_bag_that_is_kept_is_fitted_again_to_all_examples_and_resumed(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_is_better", lambda job, model, other, *level: model.name == "bag-of-words")
    run = tmp_path / "run"
    report = finetune(base, "classification", run, train=mails, **{**AUTO, "seeds": 1}).report
    assert (report["best"], report["trained_on_all"], report["refit_runs"]) == ("bag-of-words", 40, [])
    training = read_metadata(run / "model").training
    expected = {"examples": 40, "dev_examples": 4, "trained_on_dev": True}
    assert {name: training[name] for name in expected} == expected
    files = {file.name: file.read_bytes() for file in (run / "model").iterdir()}
    shutil.rmtree(run / "model")
    (run / "report.json").unlink()
    finetune(base, "classification", run, train=mails, resume=True, **{**AUTO, "seeds": 1})
    assert {file.name: file.read_bytes() for file in (run / "model").iterdir()} == files
    assert read_json(run / "report.json")["choice"] == report["choice"]


@pytest.mark.parametrize(
    ("task", "kind", "options"),
    [
        ("classification", "single", {"calibrate": True}),
        ("multi-label", "several labels", {"tune_threshold": True}),
        ("mrpc", "pair", {"tune_threshold": True}),
        ("regression", "number", {}),
    ],
)
def test_a_bag_alone_answers_every_task_on_texts_as_it_was_scored(
    task: str, kind: str, options: dict[str, Any], base: str, tmp_path: Path
) -> None:
    data, run = rows_of(tmp_path / "rows.jsonl", kind), tmp_path / "run"
    task = "classification" if task == "mrpc" else task
    result = finetune(base, task, run, train=data, dev=data, **ALONE, **options)
    assert [path.name for path in sorted(run.iterdir()) if path.is_dir()] == ["bag-of-words", "model"]
    assert (result.report["best"], len(result.runs), result.runs[0].steps) == ("bag-of-words", 1, 0)
    model, lines = bertsmith.load(run), read_json_lines(run / "predictions.jsonl")
    texts = [line["texts"][0] if len(line["texts"]) == 1 else tuple(line["texts"]) for line in lines]
    ability = model.abilities[0]
    answers = [answer.to_dict() for answer in getattr(model, ability)(texts)]
    assert ability == ("score" if task == "regression" else "classify")
    if ability == "score":
        assert [answer["value"] for answer in answers] == [line["prediction"]["value"] for line in lines]
    else:
        shown = [line["prediction"]["probabilities"] for line in lines]
        assert [answer["probabilities"] for answer in answers] == shown
    spec = TaskSpec.from_dict(read_metadata(run / "model").spec or {}, "the model")
    assert (spec.threshold is not None or bool(spec.thresholds)) == ("tune_threshold" in options)
    assert spec == NGramModel.read(run / "model").spec
    assert any(line.startswith("kept: the bag of words") for line in summary_lines(result.report))
    write_finetuning_report([run], tmp_path / "report.html")


def test_thresholds_in_the_metadata_of_a_bag_are_used(base: str, mails: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    finetune(base, "classification", run, train=mails, dev=mails, **ALONE)
    path = run / "model" / "bertsmith.json"
    for threshold, label in ((0.0, "positive"), (1.0, "negative")):
        values = read_json(path)
        values["spec"]["threshold"] = threshold
        write_json(path, values)
        assert {answer.label for answer in bertsmith.load(run).classify(["a film", "nothing"])} == {label}


def test_what_a_bag_cannot_do_is_refused_in_one_line(kept: Path, base: str, tmp_path: Path) -> None:
    model = bertsmith.load(kept)
    assert (model.abilities, model.width, model.embed_length, model.shows_pieces) == (("classify",), 0, 0, False)
    for call in (
        lambda: model.embed(["a"]),
        lambda: model.fill(["a"]),
        lambda: model.features([["a"]]),
        lambda: model.pieces(["a"]),
        lambda: model.attention("a"),
        lambda: model.complete(["a"]),
        lambda: model.tokens(["a"], "embed"),
    ):
        with pytest.raises(CheckpointError, match="a model with the ability"):
            call()
    for refused in (lambda: export(kept, tmp_path / "x", to="onnx"), lambda: load_any(kept)):
        with pytest.raises(InputError, match="use it with predict, evaluate, serve, ask or rank"):
            refused()
    with pytest.raises(BertsmithError, match="a model with an encoder"):
        finetune(kept, "classification", tmp_path / "run", train=rows_of(tmp_path / "rows.jsonl", "single"))


def test_a_bag_is_inspected_verified_and_loaded_without_torch(kept: Path) -> None:
    report = inspect_model(kept)
    assert (report.digests, report.labels) == ("verified", ("negative", "positive"))
    assert report.what == "model on words for classification, without an encoder"
    script = (
        "import sys, bertsmith, pickle\n"
        f"model = bertsmith.load({str(kept)!r}, verify=True)\n"
        "print(model.classify(['a good film'])[0].label, model.tokens(['a good film']), 'torch' in sys.modules)\n"
        "print(type(pickle.loads(pickle.dumps(model))).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    label = bertsmith.load(kept).classify(["a good film"])[0].label
    assert done.stdout.split() == [label, "[3]", "False", "Model"]
    (kept.parent / "copy").mkdir()
    shutil.copytree(kept / "model", kept.parent / "copy" / "model")
    (kept.parent / "copy" / "model" / "n-grams.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"different or missing ones: n-grams.safetensors"):
        inspect_model(kept.parent / "copy")


def test_a_bag_is_served_with_the_answers_of_the_library(kept: Path) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from server.asgi import Client, serve

    model, texts = bertsmith.load(kept), ["the film was good", "bad", "", "a plot " * 4]

    async def script(client: Client) -> None:
        reply = await client.post("/predict", {"texts": texts})
        shown = [
            [prediction["probabilities"][label] for label in model.labels] for prediction in reply.json["predictions"]
        ]
        expected = [answer.probabilities for answer in model.classify(texts)]
        np.testing.assert_allclose(shown, expected, rtol=0, atol=1e-6)
        assert reply.json["note"] == "empty texts, predicted without a word: 1"
        assert reply.json["usage"]["tokens_in"] == sum(len(text.split()) for text in texts)
        listed = (await client.send("GET", "/models")).json["models"][0]
        assert (listed["abilities"], listed["width"], listed["task"]) == (["classify"], 0, "classification")
        for path, body in (
            ("/v1/embeddings", {"input": "a"}),
            ("/tokenize", {"texts": ["a"]}),
            ("/fill", {"texts": ["a"]}),
        ):
            refused = await client.post(path, body)
            assert refused.status == 400
            assert "answers /predict with texts" in refused.error

    serve({"words": model}, script)


def test_options_that_a_bag_alone_has_no_use_for_are_refused() -> None:
    values: dict[str, Any] = {"source": "nowhere", "task": "classification", "out": "run", "keep": "bag"}
    for option, name in (
        ({"seeds": 2}, "--seeds"),
        ({"search": True}, "--search"),
        ({"recipe": "2018"}, "--recipe"),
        ({"continue_minutes": 1.0}, "--continue-minutes"),
        ({"epochs": 3.0, "learning_rate": 1e-3}, "--epochs, --learning-rate"),
    ):
        with pytest.raises(ConfigError, match=f"found {name}"):
            FinetuneRequest(**{**values, **option})
    with pytest.raises(ConfigError, match="--keep bag needs a task of classification or regression"):
        FinetuneRequest(**{**values, "task": "ner"})
    FinetuneRequest(**values)


def test_weights_of_examples_and_of_labels_count_in_a_bag(base: str, tmp_path: Path) -> None:
    rows = [{"text": "same words", "label": label, "weight": weight} for label, weight in (("a", 3), ("b", 1))] * 20
    data = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    options: dict[str, Any] = {**ALONE, "train": data, "dev": data}
    answers = {}
    for name, more in (
        ("weights", {"weight_column": "weight"}),
        ("labels", {"class_weights": {"b": 3.0, "a": 1.0}}),
        ("none", {}),
    ):
        finetune(base, "classification", tmp_path / name, **options, **more)
        answers[name] = bertsmith.load(tmp_path / name).classify(["same words"])[0].probabilities
    np.testing.assert_allclose(answers["weights"], (0.75, 0.25), atol=0.02)
    np.testing.assert_allclose(answers["labels"], (0.25, 0.75), atol=0.02)
    np.testing.assert_allclose(answers["none"], (0.5, 0.5), atol=0.02)


def test_folds_decide_between_a_bag_and_the_trainings_too(base: str, mails: Path, tmp_path: Path) -> None:
    auto: dict[str, Any] = {**AUTO, **RUINS, "seeds": 1, "folds": 2}
    report = finetune(base, "classification", tmp_path / "auto", train=mails, **auto).report
    assert report["best"] == "bag-of-words"
    assert {other["name"] for other in report["choice"]} == {"the first training", "the linear start"}
    assert all(other["of_model"] == report["cross_validation"]["scores"]["accuracy"] for other in report["choice"])
    assert not list((tmp_path / "auto").glob("seed-*")), "nothing is trained on all examples"
    assert [run["folder"] for run in report["runs"]] == ["bag-of-words"]
    alone = finetune(base, "classification", tmp_path / "alone", train=mails, folds=2, **ALONE).report
    assert alone["cross_validation"]["scores"] == report["cross_validation"]["scores"]
    files = [tmp_path / run / "model" / "n-grams.safetensors" for run in ("auto", "alone")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert read_metadata(tmp_path / "alone" / "model").training["examples"] == 40


def test_the_estimator_may_keep_a_bag(base: str) -> None:
    pytest.importorskip("sklearn")
    from bertsmith.app.library.estimators import BertsmithClassifier

    examples = examples_of("single", 24)
    texts, labels = [example.first for example in examples], [example.label for example in examples]
    classifier = BertsmithClassifier(base, settings={"keep": "bag", "baselines": False}, device="cpu").fit(
        texts, labels
    )
    assert (classifier.report_["best"], classifier.predict(texts).tolist()) == ("bag-of-words", labels)
