"""Heads with a BiLSTM: equal to a loop over pairs, trained on a frozen encoder, saved, loaded, resumed."""

import dataclasses

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.export.conversion import export
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.sentence_reader import attended
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.head_inputs import ATTENTION, BILSTM
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from oracles.sentence_reader_oracle import vector_of
from tasks.architecture_samples import EVERY_ARCHITECTURE, encoder_of, tokenizer_of, write_base_model
from tasks.task_samples import SPECS, examples_of
from training.interruptions import assert_resumes
from training.logs import assert_learns
from training.whole_steps import assert_same_gradients, step_on_all

CELLS = 6
SETTINGS = FinetuningSettings(batch_size=16, epochs=18, precision="fp32", dropout=0.0, freeze="body", baselines=False)
RECIPE = RecipeSettings(learning_rate=1e-2, bias_correction=True, log_every=1)
KINDS = (("single", BILSTM), ("pair", BILSTM), ("pair", ATTENTION), ("choice", ATTENTION))
EVERY = pytest.mark.parametrize(("kind", "reads"), KINDS)
# RoBERTa and MPNet have one segment for both texts, GTE and EuroBERT none.
ARCHITECTURES = tuple(name for name in EVERY_ARCHITECTURE if name not in ("roberta", "mpnet", "gte", "eurobert"))


def spec_of(kind: str, reads: str) -> TaskSpec:
    return dataclasses.replace(SPECS[kind], reads=reads, bilstm_cells=CELLS)


def model_of(kind: str, reads: str, architecture: str = "bert") -> EncoderForTask:
    return EncoderForTask(encoder_of(architecture), task_for(spec_of(kind, reads)).head, seed=2).double()


@EVERY
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_equal_those_of_a_loop_over_the_rows(kind, reads, architecture):
    task, tokenizer, runtime = task_for(spec_of(kind, reads)), tokenizer_of(architecture), choose("cpu", "fp64")
    model = model_of(kind, reads, architecture).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("reader."):
                drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
                parameter.add_(drawn * 0.2)
    features = task.encode(examples_of(kind, 6), tokenizer)
    result = task_logits(model, features, runtime, 40)
    weights = {name.removeprefix("reader."): p.detach() for name, p in model.named_parameters()}
    widths, expected = model.encoder.widths, []
    for row in range(len(features.rows)):
        (batch,) = (
            part.batch for part in micro_batches(_one(features, row), np.array([0]), micro_tokens=99, device="cpu")
        )
        apart = batch.texts_apart.batch if model.head.is_pair else batch
        texts = []
        places = batch.texts_apart.places if model.head.is_pair else (0,)
        trace = Trace()
        with torch.no_grad():
            model.encoder(apart, trace=trace)
            states = torch.stack([s for s, width in zip(trace.hidden_states, widths, strict=True) if width == 32], 1)
            parts = states.split(list(apart.lengths))
            texts = [parts[position] for position in places]
            vector = vector_of(texts, weights, CELLS, attends=reads == ATTENTION)
            expected.append(model.output_layer(vector).numpy())
    np.testing.assert_allclose(result, np.stack(expected), atol=1e-6)


def _one(features, row):
    packed = features.rows.select(np.array([row]))
    single = np.ones(1, dtype=np.int64)
    return dataclasses.replace(
        features, rows=packed, rows_per_unit=single, example_of_row=single - 1, read=packed.offsets[:-1], targets=None
    )


def test_a_token_attends_only_to_the_other_text_and_its_weights_sum_to_one():
    states = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths, places = (2, 3, 4), (2, 0)
    with pytest.raises(TypeError):  # a text that no row has
        attended(states, lengths, places)
    lengths, places = (2, 3, 1, 3), (3, 0, 1, 2)
    result = attended(states, lengths, places).split(list(lengths))
    torch.testing.assert_close(result[1], states[5:6].expand(3, 4))  # one token to look at
    whole = torch.cat([torch.ones(9, 1, dtype=torch.float64), states], dim=1)
    torch.testing.assert_close(attended(whole, lengths, places)[:, 0], torch.ones(9, dtype=torch.float64))
    changed = states.clone()
    changed[2:6] += 1  # the other row
    for number in (0, 3):
        torch.testing.assert_close(attended(changed, lengths, places).split(list(lengths))[number], result[number])


@EVERY
@pytest.mark.parametrize("architecture", ["bert", "elmo"])
def test_the_gradient_of_a_step_is_the_same_however_it_is_split(kind, reads, architecture):
    task, tokenizer = task_for(spec_of(kind, reads)), tokenizer_of(architecture)
    features = task.encode(examples_of(kind, 8), tokenizer, training=True)
    gradients = []
    for micro_tokens in (10_000, 24):
        model = model_of(kind, reads, architecture)
        work = Finetuning(model, task, features, None, tokenizer, SETTINGS, choose("cpu", "fp64"), seed=5)
        gradients.append(step_on_all(work, features, micro_tokens))
    assert all(not name.startswith("bert.") for name in gradients[0]), "the body is frozen"
    assert_same_gradients(gradients[1], gradients[0], rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("base")
    return {name: write_base_model(folder / name, name) for name in ("bert", "elmo")}


@EVERY
@pytest.mark.parametrize("architecture", ["bert", "elmo"])
def test_it_learns_on_a_frozen_encoder_saves_and_answers_the_same(kind, reads, architecture, bases, tmp_path):
    data = TaskData(train=examples_of(kind, 64), dev=examples_of(kind, 24, seed=1))
    spec = dataclasses.replace(spec_of(kind, reads), bilstm_cells=24)
    learns = architecture == "bert"  # the states of an untrained ELMo differ too little to learn from in a few steps
    settings = dataclasses.replace(SETTINGS, epochs=18 if learns else 1)
    result = finetune(bases[architecture], spec, data, tmp_path / "run", settings, RECIPE, seeds=1)
    if learns:
        assert_learns(tmp_path / "run/seed-1", 0.8)
    predictor = load_predictor(tmp_path / "run" / "model")
    scores, _ = predictor.evaluate(data.dev)
    assert scores == pytest.approx(result.runs[result.best].scores, abs=1e-9)
    before, after = load_any(bases[architecture]).tensors, load_any(tmp_path / "run" / "model").tensors
    body = [name for name in after if name.startswith("bert.")]
    assert body
    assert all(torch.equal(before[name], after[name]) for name in body)
    assert any(name.startswith("reader.") for name in after)


def test_a_killed_training_resumes_to_the_same_bytes(bases, tmp_path):
    data = TaskData(train=examples_of("pair", 32), dev=examples_of("pair", 8, seed=1))
    settings = dataclasses.replace(SETTINGS, epochs=2, batch_size=8)
    recipe = dataclasses.replace(RECIPE, save_every=3)
    job = FinetuningJob.prepare(bases["bert"], spec_of("pair", ATTENTION), data, settings, recipe)
    assert_resumes(job, tmp_path)


def test_the_automatic_recipe_freezes_the_body(bases):
    situation = situation_of("sst-2", "classification", 1000, load_any(bases["bert"]))
    values = resolved("auto", situation, {"reads": BILSTM})
    assert (values["freeze"], values["reads"]) == ("body", BILSTM)
    assert "start" not in values
    assert resolved("auto", situation, {"reads": BILSTM, "freeze": "nothing"})["freeze"] == "nothing"


def test_what_does_not_fit_is_refused(bases, tmp_path):
    with pytest.raises(ConfigError, match="examples of two texts each"):
        dataclasses.replace(SPECS["single"], reads=ATTENTION)
    with pytest.raises(ConfigError, match="--bilstm-cells needs --reads bilstm or bilstm-attention"):
        FinetuningSettings(bilstm_cells=10)
    with pytest.raises(ConfigError, match="bilstm_cells must be above 0"):
        FinetuningSettings(bilstm_cells=0, reads=BILSTM)
    data = TaskData(train=examples_of("single", 16), dev=())
    settings = dataclasses.replace(SETTINGS, epochs=1)
    finetune(bases["bert"], spec_of("single", BILSTM), data, tmp_path / "run", settings, RECIPE, seeds=1)
    folder = tmp_path / "run" / "model"
    for to in ("onnx", "google"):
        with pytest.raises(ConfigError, match=r"a head of the linear kind|reads bilstm"):
            export(folder, tmp_path / to, to=to)
    with pytest.raises(
        CheckpointError,
        match=r"is not a model that `transformers` computes: it has a head with a BiLSTM; use it with bertsmith$",
    ):
        export(folder, tmp_path / "copy", to="huggingface")
    convert(folder, tmp_path / "copy", to="huggingface")
    assert load_predictor(tmp_path / "copy").predict(data.train[:1])
    description = folder / "bertsmith.json"
    description.write_text(description.read_text().replace(f'"bilstm_cells": {CELLS}', '"bilstm_cells": 7'))
    with pytest.raises(CheckpointError, match="classifier head of 2 rows"):
        load_predictor(folder)
