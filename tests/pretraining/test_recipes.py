"""The recipes: what they fill in, what they leave, and what they refuse."""

import re

import pytest
import torch

from bertsmith.base.core.errors import BertsmithError, ConfigError
from bertsmith.base.storage.files import write_json
from bertsmith.models.encoders.awd_lstm import AwdLstmConfig
from bertsmith.models.encoders.gpt import GptConfig
from bertsmith.models.parts.config import BertConfig
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.recipes import SIZE_FOR_MINUTES, settings_from_recipe, size_for, with_recipe
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings


def built(**options):
    return settings_from_recipe(options)


def test_the_recipe_of_2018_is_that_of_the_settings_classes():
    assert built(recipe="2018", size="base", steps=9) == (
        PretrainingRunSettings(recipe="2018", size="base"),
        PretrainingDataSettings(),
        TrainSettings(steps=9),
    )


def test_auto_is_the_default_and_starts_from_the_corpus():
    run, data, train = built(size="tiny", steps=9)
    assert (run.recipe, run.initialization, run.heads, run.dropout) == ("auto", "corpus", 8, 0.0)
    assert (data.objective, data.masked_share, data.dynamic) == ("mlm", 0.3, True)
    assert (train.optimizer, train.bias_correction) == ("muon", True)


def test_what_is_given_is_kept():
    options = {
        "size": "mini",
        "steps": 9,
        "objective": "mlm+nsp",
        "masked_share": 0.15,
        "optimizer": "lamb",
        "rows_per_step": 7,
        "heads": 4,
        "dropout": 0.1,
        "initialization": "random",
    }
    run, data, train = built(**options)
    result = {**vars(run), **vars(data), **vars(train)}
    assert {name: result[name] for name in options} == options


def test_with_adam_alone_the_rate_falls_with_the_width():
    rates = [built(size=size, steps=9, optimizer="adam")[2].learning_rate for size in ("tiny", "mini", "base")]
    assert rates == [3e-3, 1.5e-3, 5e-4]


def test_a_model_to_continue_from_keeps_its_parameters_and_gets_a_low_rate():
    run, _, train = built(init="somewhere", steps=9)
    assert (run.initialization, run.heads, run.dropout) == (None, None, None)
    assert (train.optimizer, train.learning_rate) == ("adam", 1e-4)


def test_the_width_of_a_config_file_counts(tmp_path):
    write_json(tmp_path / "config.json", BertConfig(hidden_size=768).to_dict())
    run, _, train = built(config=str(tmp_path / "config.json"), steps=9)
    assert (run.heads, run.initialization, train.learning_rate) == (None, "corpus", 2e-3)


def test_the_size_follows_from_minutes_and_cores():
    sizes = [size_for(minutes / torch.get_num_threads()) for minutes in (1, 100, 5000, 10**6)]
    assert sizes == ["tiny", "mini", "small", "medium"]
    assert [most for most, _ in SIZE_FOR_MINUTES] == sorted(most for most, _ in SIZE_FOR_MINUTES)
    assert built(size="auto", minutes=0.5)[0].size == "tiny"
    with pytest.raises(ConfigError, match="minutes"):
        built(size="auto", minutes=float("nan"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"recipe": "2019", "size": "tiny", "steps": 9},
            "unknown recipe '2019'; did you mean '2018'?",
        ),
        ({"recipe": "Auto", "size": "tiny", "steps": 9}, "unknown recipe 'Auto'"),
        ({"size": "auto", "steps": 9}, "--size auto needs --minutes"),
        ({"size": "small", "heads": 7, "steps": 9, "initialization": "words"}, "unknown initialization"),
        ({"init": "m", "initialization": "corpus", "steps": 9}, "expected a new model"),
        ({"config": "absent.json", "steps": 9}, "expected a JSON file at 'absent.json'"),
    ],
)
def test_a_recipe_or_setting_that_does_not_fit_is_refused(options, message):
    with pytest.raises(BertsmithError, match=re.escape(message)):
        built(**options)


def test_heads_belong_to_a_size():
    with pytest.raises(ConfigError, match="--heads needs --size; "):
        PretrainingRunSettings(config="config.json", heads=2)


def test_a_recurrent_model_reads_contiguous_text_and_has_no_heads():
    run, data, train = built(size="base", architecture="awd-lstm", steps=9)
    assert (data.objective, data.max_length, run.rows_per_step, run.heads) == ("language-model", 70, 32, None)
    assert (run.activation_penalty, run.change_penalty, run.initialization, run.dropout) == (0.0, 0.0, "corpus", 0.0)
    assert (train.optimizer, train.learning_rate) == ("adam", 3.2e-3)
    assert built(size="tiny", architecture="awd-lstm", steps=9)[2].learning_rate == 1e-2
    options = {"size": "tiny", "architecture": "awd-lstm", "steps": 9, "objective": "left-to-right", "max_length": 128}
    assert built(**options)[1].objective == "left-to-right"


@pytest.mark.parametrize(
    ("direction", "objective"), [("forward", "language-model"), ("backward", "backward-language-model")]
)
def test_a_recurrent_model_is_continued_as_ulmfit_does(tmp_path, direction, objective):
    write_json(tmp_path / "config.json", {"model_type": "awd-lstm", **AwdLstmConfig(direction=direction).to_dict()})
    run, data, train = built(init=str(tmp_path), steps=9)
    assert (data.objective, train.schedule, run.layer_decay) == (objective, "slanted_triangular", 0.3846)
    assert (train.learning_rate, train.beta1, train.beta2) == (4e-3, 0.7, 0.99)

    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (tmp_path / "config.json").rename(tmp_path / "kept")
    (run_folder / "model").mkdir()
    (tmp_path / "kept").rename(run_folder / "model/config.json")
    assert built(init=str(run_folder), steps=9)[1].objective == objective


def test_a_language_model_reads_full_rows_from_left_to_right():
    _, data, _ = built(size="tiny", steps=9, architecture="openai-gpt")
    assert (data.objective, data.contiguous, data.short_sequence_probability) == ("left-to-right", True, 0.0)
    assert not built(size="tiny", steps=9, objective="left-to-right")[1].contiguous


def test_a_continued_gpt_reads_full_rows_too(tmp_path):
    write_json(tmp_path / "config.json", {"model_type": "openai-gpt", **GptConfig().to_dict()})
    _, data, _ = built(init=str(tmp_path), steps=9)
    assert (data.objective, data.contiguous, data.short_sequence_probability) == ("left-to-right", True, 0.0)
    # The rows of an autoencoder are a text and its copy.
    assert not built(size="tiny", steps=9, architecture="openai-gpt", objective="autoencoder")[1].contiguous


def test_the_recipe_of_2018_of_a_gpt_is_that_of_its_own_paper():
    run, data, train = built(recipe="2018", size="base", steps=9000, architecture="openai-gpt", max_length=256)
    assert (run.rows_per_step, data.max_length, data.contiguous) == (64, 256, True)
    assert (train.learning_rate, train.schedule, train.warmup_steps) == (2.5e-4, "cosine", 2000)


@pytest.mark.parametrize(
    ("architecture", "objective"),
    [("awd-lstm", "language-model"), ("elmo", "forward+backward"), ("distilbert", "mlm"), ("bert", None)],
)
def test_the_recipe_of_the_paper_has_an_objective_that_the_architecture_can_have(
    architecture: str, objective: str | None
) -> None:
    result = with_recipe({"recipe": "2018", "size": "tiny", "architecture": architecture})
    assert result.get("objective") == objective
    asked = with_recipe({"recipe": "2018", "size": "tiny", "architecture": architecture, "objective": "mlm+nsp"})
    assert asked["objective"] == "mlm+nsp"
