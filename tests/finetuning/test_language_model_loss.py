"""Fine-tuning as GPT's: an auxiliary language-model loss, pairs in both orders, and the values of its paper."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Encoder
from bertsmith.recipes.finetuning.linear_start import LinearStart
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.frozen import SharedEncoder
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.text.tokenizers.pack import pack_rows
from model.examples import shake
from tasks.architecture_samples import config_of, write_base_model
from tasks.task_samples import SPECS, TOKENIZER, examples_of

PRECISE = {"precision": "fp32", "dropout": 0.0}


def model_of(kind: str, architecture: str = "openai-gpt") -> EncoderForTask:
    config = dataclasses.replace(config_of(architecture, dropout=0.0), is_causal=True)
    folder_like = untrained(config, 3)
    shake(folder_like)
    model = EncoderForTask(folder_like.encoder, task_for(SPECS[kind]).head, seed=None, predicts=True)
    shake(model, seed=2)
    return model.double()


def language_loss(model: EncoderForTask, encoder: Encoder, rows: list[tuple[np.ndarray, np.ndarray]]) -> torch.Tensor:
    """The mean over rows of the mean loss of their tokens after the first, row by row."""
    losses = []
    for row, segments in rows:
        batch = Batch.from_flat(row, segments, [len(row)])
        logits = model.mlm(encoder(batch)[:-1], encoder.word_table)
        losses.append(F.cross_entropy(logits, torch.from_numpy(row[1:].astype(np.int64))))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("architecture", ["bert", "openai-gpt"])
@pytest.mark.parametrize("kind", ["single", "choice", "tags"])
def test_the_loss_is_that_of_the_task_and_half_that_of_its_texts(kind: str, architecture: str) -> None:
    task, examples = task_for(SPECS[kind]), examples_of(kind, 8)
    features = task.encode(examples, TOKENIZER, training=True)
    model, runtime = model_of(kind, architecture), choose("cpu", "fp64")

    def loss_of(weight: float, micro_tokens: int) -> tuple[float, dict[str, torch.Tensor]]:
        settings = FinetuningSettings(batch_size=len(features), language_model_loss=weight, **PRECISE)
        work = Finetuning(model, task, features, None, TOKENIZER, settings, runtime, seed=5)
        model.zero_grad()
        total = 0.0
        units = np.arange(len(features))
        for batch in micro_batches(features, units, micro_tokens=micro_tokens, device="cpu", step=4):
            loss, _ = work.loss(model, batch)
            loss.backward()
            total += loss.item()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        return total, gradients

    plain, _ = loss_of(0.0, 10_000)
    both, gradients = loss_of(0.5, 10_000)
    rows = [features.rows.row(number) for number in range(len(features.rows))]
    units = np.split(np.arange(len(rows)), np.cumsum(features.rows_per_unit)[:-1])
    means = [language_loss(model, model.encoder, [rows[row] for row in unit]) for unit in units]
    assert both == pytest.approx(plain + 0.5 * torch.stack(means).mean().item(), rel=1e-9)
    again, cut = loss_of(0.5, 30)
    assert again == pytest.approx(both, rel=1e-7)
    assert gradients.keys() == cut.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(cut[name], gradient, rtol=1e-6, atol=1e-9)


def test_a_model_fine_tuned_with_it_saves_no_head_of_pieces_and_predicts_its_texts_better(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base", "openai-gpt")
    data = TaskData(train=examples_of("single", 64), dev=examples_of("single", 24, seed=1))
    recipe = RecipeSettings(learning_rate=3e-3, bias_correction=True, log_every=1)
    result = {}
    for weight in (0.0, 0.5):
        settings = FinetuningSettings(batch_size=16, epochs=6, language_model_loss=weight, **PRECISE)
        out = tmp_path / f"run-{weight}"
        finetune(base, SPECS["single"], data, out, settings, recipe, seeds=1)
        folder = load_any(out / "model")
        assert folder.parts == ("classifier",)
        model = load_for_task(folder, task_for(SPECS["single"]).head, keep_head=False, predicts=True).model
        texts = task_for(SPECS["single"]).encode(data.dev, TOKENIZER).rows
        rows = [texts.row(number) for number in range(len(texts))]
        with torch.no_grad():
            result[weight] = float(language_loss(model, model.encoder, rows))
    assert result[0.5] < result[0.0] - 0.3


def test_what_has_no_such_loss_is_refused(tmp_path: Path) -> None:
    data = TaskData(train=examples_of("single", 8), dev=examples_of("single", 4))
    settings = FinetuningSettings(language_model_loss=0.5)
    with pytest.raises(
        ConfigError, match="a left-to-right model for a language-model loss; found a bidirectional BERT"
    ):
        finetune(write_base_model(tmp_path / "a"), SPECS["single"], data, tmp_path / "b", settings, RecipeSettings())
    backward = untrained(dataclasses.replace(config_of("awd-lstm"), direction="backward"), 1)
    save_pretrained(tmp_path / "g", backward, TOKENIZER, ModelMetadata(), trained=("mlm",))
    with pytest.raises(ConfigError, match="found a right-to-left AWD-LSTM"):
        finetune(tmp_path / "g", SPECS["single"], data, tmp_path / "h", settings, RecipeSettings())
    bare = untrained(dataclasses.replace(config_of("bert"), is_causal=True), 1)
    save_pretrained(tmp_path / "c", bare, TOKENIZER, ModelMetadata(), trained=())
    with pytest.raises(CheckpointError, match="a head that predicts pieces"):
        finetune(tmp_path / "c", SPECS["single"], data, tmp_path / "d", settings, RecipeSettings())
    with pytest.raises(ConfigError, match="freeze body"):
        FinetuningSettings(language_model_loss=0.5, freeze="body")
    with pytest.raises(ConfigError, match="found reads bilstm"):
        FinetuningSettings(language_model_loss=0.5, reads="bilstm", freeze="body")
    with pytest.raises(ConfigError, match="leave one of reads and reinit_layers out"):
        FinetuningSettings(reinit_layers=1, reads="bilstm", freeze="body")
    for reads in ("apart", "bilstm", "bilstm-attention"):
        with pytest.raises(ConfigError, match=f"found reads {reads}; "):
            FinetuningSettings(language_model_loss=0.5, reads=reads)
    with pytest.raises(ConfigError, match="language_model_loss must be at least 0"):
        FinetuningSettings(language_model_loss=-1.0)
    base = write_base_model(tmp_path / "e", "openai-gpt")
    with pytest.raises(ConfigError, match="which has no pooler"):
        finetune(base, SPECS["single"], data, tmp_path / "f", FinetuningSettings(reads="pooler"), RecipeSettings())


@pytest.mark.parametrize("architecture", ["bert", "openai-gpt"])
@pytest.mark.parametrize("kind", ["pair", "number"])
def test_in_both_orders_a_pair_is_answered_as_the_swapped_one(kind: str, architecture: str) -> None:
    pairs = examples_of("pair", 6)
    spec = dataclasses.replace(SPECS[kind], pair=True)
    spec = dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, both_orders=True, max_length=12))
    task = task_for(spec)
    if kind == "number":
        pairs = [dataclasses.replace(pair, label=None) for pair in pairs]
    swapped = [dataclasses.replace(pair, first=pair.second, second=pair.first) for pair in pairs]
    model = EncoderForTask(untrained(config_of(architecture), 3).encoder, task.head, seed=4).eval()
    shake(model)
    result = []
    for examples in (pairs, swapped):
        features = task.encode(examples, TOKENIZER)
        assert (features.rows_per_unit == 2).all()
        assert len(features.rows) == 12
        logits = task_logits(model, features, choose("cpu", "fp32"))
        assert not np.allclose(logits[::2], logits[1::2])
        answers = task.decode(examples, features, logits, TOKENIZER)
        result.append(
            [
                list(answer.to_dict().get("probabilities", {0: answer.to_dict().get("value")}).values())
                for answer in answers
            ]
        )
        once = task_for(dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, both_orders=False)))
        lost = once.encode(examples, TOKENIZER).rows.cut_by_row
        assert [answer.cut_tokens for answer in answers] == lost.tolist()
    np.testing.assert_allclose(result[0], result[1], rtol=1e-5)


def test_both_orders_of_single_texts_is_ignored_with_a_reason() -> None:
    for kind in ("single", "number"):
        settings = dataclasses.replace(SPECS[kind].settings, both_orders=True)
        task = task_for(dataclasses.replace(SPECS[kind], settings=settings))
        assert task.ignored_settings() == ["both_orders"]
        assert task.why_ignored("both_orders") == "each example has a single text"


def test_the_recipe_of_its_paper_has_its_values(tmp_path: Path) -> None:
    folder = load_any(write_base_model(tmp_path / "base", "openai-gpt"))
    situation = situation_of("swag", "choice", 1000, folder)
    result = resolved("2018", situation, {"epochs": 2.0})
    assert (result["learning_rate"], result["batch_size"], result["epochs"]) == (6.25e-5, 32, 2.0)
    assert (result["warmup_share"], result["language_model_loss"]) == (0.002, 0.5)
    assert resolved("auto", situation, {}).get("language_model_loss", 0.0) == 0.0


def test_a_pair_in_both_orders_is_served_by_the_model_that_learned_it(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base", "openai-gpt")
    spec = dataclasses.replace(SPECS["pair"], settings=dataclasses.replace(SPECS["pair"].settings, both_orders=True))
    data = TaskData(train=examples_of("pair", 32), dev=examples_of("pair", 8, seed=1))
    settings = FinetuningSettings(batch_size=16, epochs=2, start="linear", reads="cls", **PRECISE)
    finetune(base, spec, data, tmp_path / "run", settings, RecipeSettings(learning_rate=1e-3), seeds=1)
    predictor = load_predictor(tmp_path / "run" / "model")
    swapped = [dataclasses.replace(example, first=example.second, second=example.first) for example in data.dev]
    for prediction, other in zip(predictor.predict(data.dev), predictor.predict(swapped), strict=True):
        assert prediction.probabilities == pytest.approx(other.probabilities, rel=1e-5)


@pytest.mark.parametrize("kind", ["pair", "number"])
def test_the_sum_of_both_scores_is_what_the_layer_makes_of_the_sum_of_both_states(kind: str) -> None:
    pairs = [dataclasses.replace(example, label=None) for example in examples_of("pair", 6)]
    settings = dataclasses.replace(SPECS[kind].settings, both_orders=True, pooling="sum")
    task = task_for(dataclasses.replace(SPECS[kind], pair=True, reads="cls", settings=settings))
    model = EncoderForTask(untrained(config_of("openai-gpt"), 3).encoder, task.head, seed=4).eval()
    shake(model)
    layer = model.output_layer
    features = task.encode(pairs, TOKENIZER)
    answers = task.decode(pairs, features, task_logits(model, features, choose("cpu", "fp32")), TOKENIZER)
    for pair, answer in zip(pairs, answers, strict=True):
        states = []
        for first, second in ((pair.first, pair.second), (pair.second, pair.first)):
            ids = pack_rows(
                [TOKENIZER.encode(first)], [TOKENIZER.encode(second)], template=TOKENIZER.template, max_length=64
            ).token_ids
            batch = Batch.from_rows([ids])
            with torch.no_grad():
                states.append(model.encoder(batch)[-1])
        with torch.no_grad():
            scores = layer(sum(states)) + layer.bias
        shares = [float(scores[0])] if kind == "number" else scores.softmax(0).tolist()
        result = answer.to_dict()
        assert list(result.get("probabilities", {0: result.get("value")}).values()) == pytest.approx(shares, abs=1e-4)


def test_a_sum_is_trained_from_a_linear_start_that_fits_the_sum_and_needs_both_orders(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base", "openai-gpt")
    settings = dataclasses.replace(SPECS["pair"].settings, both_orders=True, pooling="sum")
    spec = dataclasses.replace(SPECS["pair"], settings=settings)
    data = TaskData(train=examples_of("pair", 32), dev=examples_of("pair", 8, seed=1))
    frozen = FinetuningSettings(batch_size=16, epochs=1, start="linear", reads="cls", freeze="body", **PRECISE)
    finetune(base, spec, data, tmp_path / "run", frozen, RecipeSettings(learning_rate=1e-9), seeds=1)
    folder = load_any(base)
    features = task_for(spec).encode(data.train, folder.require_tokenizer())
    start = LinearStart(SharedEncoder(folder=folder, device="cpu"), features, 2, "sum")
    linear = start.layer(task_for(dataclasses.replace(spec, reads="cls")).head)
    tensors = load_any(tmp_path / "run" / "model").tensors
    np.testing.assert_allclose(tensors["classifier.weight"].numpy(), linear.weight, atol=1e-6)
    vectors = start._vectors(np.arange(32), "cls")
    answers = load_predictor(tmp_path / "run" / "model").predict(data.train)
    scores = vectors @ linear.weight.T + 2 * linear.bias
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose([answer.probabilities for answer in answers], chances, atol=1e-4)
    for wrong in ({"both_orders": False}, {"long_text": "windows"}):
        with pytest.raises(ConfigError, match="--pooling sum needs --both-orders and rows without windows; "):
            dataclasses.replace(settings, **wrong)
