"""Weights of rows and of labels: in the loss and in the start of the layer, not in the scores."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import bertsmith
from bertsmith.app.cli.options import class_weights
from bertsmith.base.core.errors import BertsmithError, ConfigError
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.tasks.baselines.linear import fit_linear
from bertsmith.tasks.encoding.units import EncodedExamples, micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import with_loss
from bertsmith.tasks.task_data.task_files import read_task
from tasks.task_samples import SPECS, TOKENIZER, examples_of

OPTIONS: dict[str, Any] = {"seeds": 1, "max_length": 32, "device": "cpu", "precision": "fp32", "baselines": False}


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"text": text.first, "label": text.label} for text in examples_of("single", count)]


def weights_after(base: str, out: Path, train: Any, dev: Any, **options: Any) -> bytes:
    options = {**OPTIONS, "epochs": 2, "learning_rate": 1e-3, "batch_size": 8, **options}
    bertsmith.finetune(base, "classification", out, train=train, dev=dev, **options)
    return (out / "model" / "model.safetensors").read_bytes()


def test_only_the_ratios_of_weights_count_and_rows_of_weight_zero_are_not_there(base: str, tmp_path: Path) -> None:
    rows, dev = rows_of(24), rows_of(8)
    plain = weights_after(base, tmp_path / "plain", rows, dev)
    equal = [{**row, "trust": 3} for row in rows]
    assert weights_after(base, tmp_path / "equal", equal, dev, weight_column="trust") == plain
    more = [*equal, *({"text": "was anna", "label": "positive", "trust": "0"} for _ in range(5))]
    assert weights_after(base, tmp_path / "more", more, dev, weight_column="trust") == plain
    different = [{**row, "trust": 1 + number % 3} for number, row in enumerate(rows)]
    once = weights_after(base, tmp_path / "one", different, dev, weight_column="trust")
    doubled = [{**row, "trust": 2 * row["trust"]} for row in different]
    assert weights_after(base, tmp_path / "two", doubled, dev, weight_column="trust") == once != plain
    recorded = json.loads((tmp_path / "one" / "settings.json").read_text())["settings"]
    assert recorded["weight_column"] == "trust"


@pytest.mark.parametrize("start", ["linear", "random"])
def test_the_heavier_of_two_labels_of_one_text_is_learned(base: str, tmp_path: Path, start: str) -> None:
    for heavy, light in (("positive", "negative"), ("negative", "positive")):
        rows = [
            {"text": "anna was here", "label": heavy, "trust": 9},
            {"text": "anna was here", "label": light, "trust": 1},
        ]
        rows += [{"text": "was", "label": label, "trust": 1} for label in (heavy, light)]
        out = tmp_path / heavy
        weights_after(base, out, rows * 8, rows, weight_column="trust", start=start, epochs=6)
        answer = bertsmith.load(out, device="cpu").classify(["anna was here"])[0]
        assert answer.label == heavy
        assert answer.probability > 0.7


@pytest.mark.parametrize("kind", ["single", "number", "several labels"])
def test_the_loss_of_a_step_is_the_weighted_sum_of_its_examples(kind: str) -> None:
    task = task_for(SPECS[kind])
    examples = [
        # Texts of equal length are in the order of their units.
        dataclasses.replace(example, first="anna was here", weight=1.0 + number)
        for number, example in enumerate(examples_of(kind, 5))
    ]
    features = task.encode(examples, TOKENIZER, training=True)
    np.testing.assert_allclose(features.weights, np.arange(1, 6) / 3, rtol=1e-6)
    assert task.encode(examples, TOKENIZER).weights is None
    logits = torch.randn(5, task.head.outputs, generator=torch.Generator().manual_seed(3))

    def loss(of: EncodedExamples, *units: int) -> float:
        (batch,) = micro_batches(of, np.array(units), micro_tokens=10**6, device="cpu")
        return float(with_loss(task).loss(logits[list(units)], batch)[0])

    plain = dataclasses.replace(features, weights=None)
    total = sum(float(features.weights[number]) * loss(plain, number) for number in range(5))
    whole_loss = loss(features, 0, 1, 2, 3, 4)
    assert abs(whole_loss - loss(plain, 0, 1, 2, 3, 4)) > 0.01
    assert whole_loss == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("kind", ["classes", "two classes", "several", "numbers"])
def test_a_linear_model_with_weights_is_that_of_repeated_rows(kind: str) -> None:
    draw = np.random.default_rng(4)
    vectors, times = draw.normal(size=(40, 3)).astype(np.float32), draw.integers(1, 4, 40)
    targets = {
        "classes": draw.integers(0, 3, 40),
        "two classes": draw.integers(0, 2, 40),
        "several": draw.integers(0, 2, (40, 2)).astype(np.float32),
        "numbers": draw.normal(size=40).astype(np.float32),
    }[kind]
    outputs = {"classes": 3, "two classes": 2, "several": 2, "numbers": 1}[kind]
    options: dict[str, Any] = {"num_outputs": outputs, "penalties": (0.5,)}
    inputs = sp.csr_array(vectors)  # which are not standardized, as repeated rows would change that
    weighted = fit_linear(inputs, targets, weights=times.astype(np.float32), **options)
    repeated = fit_linear(sp.csr_array(np.repeat(vectors, times, axis=0)), np.repeat(targets, times, axis=0), **options)
    np.testing.assert_allclose(weighted.weight, repeated.weight, atol=2e-3)
    center = 0.0 if kind != "classes" else (weighted.bias - repeated.bias).mean()  # which a softmax does not see
    np.testing.assert_allclose(weighted.bias - center, repeated.bias, atol=2e-3)
    plain = fit_linear(inputs, targets, **options)
    assert np.abs(plain.weight - weighted.weight).max() > 0.01


def test_weights_of_labels_by_name(base: str, tmp_path: Path) -> None:
    task = task_for(SPECS["single"])
    labels = task.spec.labels
    targets = np.array([0, 0, 0, 1])
    by_name = task.weighted(targets, {labels[0]: 1, labels[1]: 3}).class_weights
    np.testing.assert_allclose(by_name, task.weighted(targets).class_weights, rtol=1e-6)
    alone = task.weighted(targets, {labels[1]: 3}).class_weights
    np.testing.assert_allclose(alone, by_name)
    with pytest.raises(ConfigError, match="unknown label of --class-weights 'negativ'"):
        task.weighted(targets, {"negativ": 2})
    rows, weights = rows_of(24), {"positive": 4.0, "negative": 0.5}
    weights_after(base, tmp_path / "run", rows, rows, class_weights=weights)
    asked = tomllib.loads((tmp_path / "run" / "request.toml").read_text())
    assert asked["class_weights"] == weights
    weights_after(base, tmp_path / "run", rows, rows, class_weights=weights, resume=True)
    assert class_weights("positive=4,negative=0.5") == weights
    for wrong in ("positive=4,negative", "=2,a=1", "a=1,a=2", "a=x"):
        with pytest.raises(ConfigError, match="LABEL=W,LABEL=W, once for each label"):
            class_weights(wrong)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected labels with their weights as class_weights; found none"),
        ({"a": 0}, "the weight of 'a' in class_weights must be above 0"),
        ({"a": float("nan")}, "the weight of 'a' in class_weights"),
        ("rare", "unknown class_weights 'rare'"),
    ],
)
def test_weights_of_labels_that_cannot_be_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FinetuningSettings(class_weights=values)


@pytest.mark.parametrize(
    ("task", "weight", "options", "message"),
    [
        ("classification", -1, {}, r"expected a weight from 0 to 1e\+06 in column 'trust' .*row 3 of .*found '-1'"),
        ("classification", "much", {}, "found 'much'"),
        ("classification", "1_0", {}, "found '1_0'"),
        ("classification", None, {}, "a weight in column 'trust'"),
        ("classification", 1, {"weight_column": "truth"}, "the column 'truth'"),
        ("pairs", 1, {}, "expected a classification or regression, for `weight_column`"),
    ],
)
def test_weights_that_cannot_be_are_refused_in_a_line(
    base: str, tmp_path: Path, task: str, weight: Any, options: dict[str, Any], message: str
) -> None:
    rows = [{"text": f"anna {n}", "text2": f"was {n}", "label": "ab"[n % 2], "trust": 1} for n in range(6)]
    rows[2]["trust"] = weight
    frame = pd.DataFrame(rows).to_dict("records")
    with pytest.raises(BertsmithError, match=message):
        bertsmith.finetune(
            base, task, tmp_path / "run", train=frame, **{"weight_column": "trust", **OPTIONS, **options}
        )


def test_all_rows_of_weight_zero_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    pd.DataFrame([{**row, "trust": 0} for row in rows_of(6)]).to_csv(path, index=False)
    with pytest.raises(BertsmithError, match="a weight above 0 in column 'trust'"):
        read_task("classification", path, None, weight_column="trust")


def test_setfit_which_has_no_weights_is_refused(base: str, tmp_path: Path) -> None:
    rows = [{**row, "trust": 1} for row in rows_of(24)]
    with pytest.raises(ConfigError, match="the recipe setfit by itself; found `weight_column`"):
        bertsmith.finetune(base, "classification", tmp_path / "run", train=rows, recipe="setfit", weight_column="trust")
