"""Several models as one: the mean of their probabilities or numbers, from a forward and a backward model too."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.app.library.labelled import evaluate
from bertsmith.app.library.lines import predict_lines
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.predictors.ensemble import load_ensemble
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.awd_lstm import AwdLstmConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.kinds import task_for
from tasks.task_samples import CONFIG, SPECS, TOKENIZER

TEXTS = ("the film was great", "a bad day in Rome", "")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ensemble")
    result = {}
    for number, (direction, kind) in enumerate(
        (
            ("forward", "single"),
            ("backward", "single"),
            ("forward", "several labels"),
            ("forward", "tags"),
            ("forward", "number"),
            ("backward", "number"),
        )
    ):
        config = AwdLstmConfig(
            vocab_size=CONFIG.vocab_size,
            hidden_size=16,
            intermediate_size=24,
            direction=direction,
            initializer_range=0.5,
        )
        base, name = folder / f"base-{number}", f"{direction} {kind}"
        save_pretrained(base, untrained(config, number), TOKENIZER, ModelMetadata())
        head = task_for(SPECS[kind]).head
        model = load_for_task(load_any(base), head, keep_head=False, seed=number).model
        with torch.no_grad():
            model.output_layer.weight.mul_(20)
        metadata = ModelMetadata(task=SPECS[kind].kind, labels=SPECS[kind].labels, spec=SPECS[kind].to_dict())
        save_pretrained(folder / name, model, TOKENIZER, metadata, trained=("classifier", "pooler"))
        result[name] = folder / name
    return result


def test_the_probabilities_are_the_mean_of_those_of_the_models(models: dict[str, Path]) -> None:
    both = models["forward single"], models["backward single"]
    alone = [[prediction.probabilities for _, prediction in load_lines(model)] for model in both]
    together = list(predict_lines(PredictRequest(both[0], also=[both[1]]), TEXTS))
    assert not np.allclose(*alone, atol=1e-3)
    np.testing.assert_allclose(
        [prediction.probabilities for _, prediction in together], np.mean(alone, axis=0), atol=1e-6
    )
    for _, prediction in together:
        assert prediction.label == prediction.labels[int(np.argmax(prediction.probabilities))]
        assert prediction.probability == max(prediction.probabilities)


def load_lines(model: Path) -> list:
    return list(predict_lines(PredictRequest(model), TEXTS))


def test_a_text_that_a_model_cannot_read_is_named_after_the_answers_before_it(models: dict[str, Path]) -> None:
    both = load_ensemble([models["forward single"], models["backward single"]])
    examples = [TextExample(id="1", first="the film"), TextExample(id="2", first="a", second="b", location="text 2")]
    answers = both.stream(iter(examples))
    assert next(answers)[0] is examples[0]
    with pytest.raises(InputError, match="text 2"):
        next(answers)


def test_scores_are_those_of_the_mean(models: dict[str, Path], tmp_path: Path) -> None:
    both = models["forward single"], models["backward single"]
    gold = [prediction.label for _, prediction in predict_lines(PredictRequest(both[0], also=[both[1]]), TEXTS[:2])]
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS, gold, strict=False)]
    (tmp_path / "gold.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    result = evaluate(both[0], tmp_path / "gold.tsv", task="classification", also=[both[1]])
    assert result.scores["accuracy"] == 1.0


def test_one_model_is_itself(models: dict[str, Path]) -> None:
    assert type(load_ensemble([models["forward single"]])) is type(load_predictor(models["forward single"]))


@pytest.mark.parametrize("other", ["forward several labels", "forward tags", "forward number"])
def test_models_of_other_labels_or_kinds_are_refused(models: dict[str, Path], other: str) -> None:
    with pytest.raises(ConfigError, match="models of classification of single texts with the labels negative"):
        load_ensemble([models["forward single"], models[other]])


def test_models_without_a_mean_are_refused(models: dict[str, Path]) -> None:
    with pytest.raises(
        ConfigError, match="models of classification or regression, which have a mean; found one of tag"
    ):
        load_ensemble([models["forward tags"], models["forward tags"]])


def test_numbers_are_the_mean_of_those_of_the_models(models: dict[str, Path], tmp_path: Path) -> None:
    both = models["forward number"], models["backward number"]
    alone = [[prediction.value for _, prediction in load_lines(model)] for model in both]
    together = [prediction.value for _, prediction in predict_lines(PredictRequest(both[0], also=[both[1]]), TEXTS)]
    assert not np.allclose(*alone, atol=1e-3)
    np.testing.assert_allclose(together, np.mean(alone, axis=0), atol=1e-6)
    rows = "".join(f"{text}\t{value}\n" for text, value in zip(TEXTS[:2], together, strict=False))
    (tmp_path / "gold.tsv").write_text("text\tscore\n" + rows)
    result = evaluate(both[0], tmp_path / "gold.tsv", task="regression", also=[both[1]])
    assert result.scores["pearson"] == pytest.approx(1.0)
