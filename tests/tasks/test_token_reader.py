"""A BiLSTM below tags and answers: equal to a loop over rows, its layers and their penalty, saved, loaded, resumed."""

import dataclasses
import json

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
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.head_inputs import ATTENTION, BILSTM
from bertsmith.models.parts.layer_choice import choice_of_widths
from bertsmith.recipes.finetuning.base_model import require_divisible
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
from oracles.sentence_reader_oracle import states_of
from tasks.architecture_samples import EVERY_ARCHITECTURE, encoder_of, tokenizer_of, write_base_model
from tasks.task_samples import SPECS, examples_of
from training.interruptions import assert_resumes
from training.logs import assert_learns
from training.whole_steps import assert_same_gradients, step_on_all

CELLS = 6
SETTINGS = FinetuningSettings(
    batch_size=16,
    epochs=18,
    precision="fp32",
    dropout=0.0,
    freeze="body",
    baselines=False,
    reads=BILSTM,
    bilstm_cells=24,
)
RECIPE = RecipeSettings(learning_rate=1e-2, bias_correction=True, log_every=1)
KINDS = pytest.mark.parametrize("kind", ["tags", "answer"])
LAYERS = [("", False), ("sum-all", True), ("-1,-2", False), ("-1,-2", True)]


def spec_of(kind: str, layers: str = "", *, normalized: bool = False) -> TaskSpec:
    return dataclasses.replace(
        SPECS[kind], reads=BILSTM, bilstm_cells=CELLS, bilstm_layers=layers, normalize_layers=normalized
    )


def model_of(spec: TaskSpec, architecture: str = "bert") -> EncoderForTask:
    model = EncoderForTask(encoder_of(architecture), task_for(spec).head, seed=2).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("reader."):
                drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
                parameter.add_(drawn * 0.2)
    return model


def equals_a_loop(spec: TaskSpec, kind: str, architecture: str) -> None:
    """Compares all logits with those of one row after another, with torch's own LSTM."""
    task, tokenizer = task_for(spec), tokenizer_of(architecture)
    model = model_of(spec, architecture).eval()
    features = task.encode(examples_of(kind, 6), tokenizer)
    result = task_logits(model, features, choose("cpu", "fp64"), 40)
    weights = {name.removeprefix("reader."): p.detach() for name, p in model.named_parameters()}
    choice = choice_of_widths(spec.bilstm_layers, model.encoder.widths)
    expected = np.full_like(result, np.nan)
    for unit in range(len(features)):
        (part,) = micro_batches(features, np.array([unit]), micro_tokens=999, device="cpu")
        assert part.batch.num_rows == 1
        trace = Trace()
        with torch.no_grad():
            model.encoder(part.batch, trace=trace)
            states = torch.stack([trace.hidden_states[layer] for layer in choice.layers], dim=1)
            read = states_of(states, weights, CELLS, normalized=spec.normalize_layers)
            read = read if part.read is None else read[part.read.positions]
            expected[part.chosen] = model.output_layer(read).numpy()
    assert result.shape[1] == task.head.outputs
    np.testing.assert_allclose(result, expected, atol=1e-6)


@KINDS
@pytest.mark.parametrize("architecture", EVERY_ARCHITECTURE)
def test_logits_equal_those_of_a_loop_over_the_rows(kind, architecture):
    equals_a_loop(spec_of(kind), kind, architecture)


@KINDS
@pytest.mark.parametrize(("layers", "normalized"), LAYERS)
def test_the_layers_that_were_asked_for_are_read(kind, layers, normalized):
    equals_a_loop(spec_of(kind, layers, normalized=normalized), kind, "bert")


@KINDS
def test_the_gradient_with_a_penalty_is_the_same_however_a_step_is_split(kind):
    spec = spec_of(kind)
    task, tokenizer = task_for(spec), tokenizer_of("bert")
    features = task.encode(examples_of(kind, 8), tokenizer, training=True)
    result = {}
    for penalty in (0.0, 0.5):
        settings = dataclasses.replace(SETTINGS, batch_size=len(features), mix_penalty=penalty)
        for micro_tokens in (10_000, 24):
            work = Finetuning(model_of(spec), task, features, None, tokenizer, settings, choose("cpu", "fp64"), seed=5)
            result[penalty, micro_tokens] = step_on_all(work, features, micro_tokens)
        assert all(not name.startswith("bert.") for name in result[penalty, 24]), "the body is frozen"
        assert_same_gradients(result[penalty, 24], result[penalty, 10_000], rtol=1e-6, atol=1e-9)
    added = result[0.5, 24]["reader.mix.scores"] - result[0.0, 24]["reader.mix.scores"]
    torch.testing.assert_close(added, model_of(spec).mix.scores.detach())  # 0.5 times the derivative of the squares


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "bert", "bert")


@KINDS
def test_it_learns_on_a_frozen_encoder_saves_and_answers_the_same(kind, base, tmp_path):
    data = TaskData(train=examples_of(kind, 64), dev=examples_of(kind, 24, seed=1))
    settings = dataclasses.replace(SETTINGS, bilstm_layers="-1,-2", normalize_layers=True)
    result = finetune(base, SPECS[kind], data, tmp_path / "run", settings, RECIPE, seeds=1)
    assert_learns(tmp_path / "run/seed-1", 0.6)
    folder = tmp_path / "run" / "model"
    predictor = load_predictor(folder)
    scores, _ = predictor.evaluate(data.dev)
    assert scores == pytest.approx(result.runs[result.best].scores, abs=1e-9)
    before, after = load_any(base).tensors, load_any(folder).tensors
    body = [name for name in after if name.startswith("bert.")]
    assert body
    assert all(torch.equal(before[name], after[name]) for name in body)
    assert after["reader.first.right.weight_ih_l0"].shape == (4 * 24, 2 * 32)
    assert "reader.mix.scores" not in after
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bertsmith-only-bert"
    for to in ("onnx", "google"):
        with pytest.raises(ConfigError, match=r"a head of the linear kind|reads bilstm"):
            export(folder, tmp_path / to, to=to)
    with pytest.raises(
        CheckpointError,
        match=r"is not a model that `transformers` computes: it has a head with a BiLSTM; use it with bertsmith$",
    ):
        export(folder, tmp_path / "copy", to="huggingface")
    convert(folder, tmp_path / "copy", to="huggingface")
    assert load_predictor(tmp_path / "copy").predict(data.dev) == predictor.predict(data.dev)


def test_a_model_whose_task_names_other_cells_or_layers_is_refused(base, tmp_path):
    data = TaskData(train=examples_of("tags", 16), dev=())
    finetune(base, SPECS["tags"], data, tmp_path / "run", dataclasses.replace(SETTINGS, epochs=1), seeds=1)
    description = tmp_path / "run" / "model" / "bertsmith.json"
    text = description.read_text()
    assert '"bilstm_layers"' not in text
    assert '"normalize_layers"' not in text
    for old, new in (('"bilstm_cells": 24', '"bilstm_cells": 7'), ('"reads"', '"bilstm_layers": "-1,-2", "reads"')):
        assert old in text
        description.write_text(text.replace(old, new))
        with pytest.raises(CheckpointError, match="classifier head of 3 rows"):
            load_predictor(tmp_path / "run" / "model")


def test_a_strong_penalty_keeps_the_learned_weights_near_the_mean(base, tmp_path):
    data = TaskData(train=examples_of("tags", 48), dev=examples_of("tags", 8, seed=1))
    spreads = []
    for penalty in (0.0, 10.0):
        settings = dataclasses.replace(SETTINGS, epochs=20, mix_penalty=penalty)
        run = tmp_path / str(penalty)
        FinetuningJob.prepare(base, SPECS["tags"], data, settings, RECIPE).train_once(run, 1)
        shares = load_any(run / "model").tensors["reader.mix.scores"].softmax(0)
        assert len(shares) == 3
        spreads.append(float(shares.max() - shares.min()))
    assert spreads[0] > 1e-3
    assert spreads[1] < spreads[0] / 2


def test_a_killed_training_resumes_to_the_same_bytes(base, tmp_path):
    data = TaskData(train=examples_of("tags", 32), dev=examples_of("tags", 8, seed=1))
    settings = dataclasses.replace(SETTINGS, epochs=2, batch_size=8, mix_penalty=0.01, dropout=0.1)
    recipe = dataclasses.replace(RECIPE, save_every=3)
    job = FinetuningJob.prepare(base, SPECS["tags"], data, settings, recipe)
    assert_resumes(job, tmp_path)


@KINDS
def test_the_automatic_recipe_freezes_the_body(kind, base):
    situation = situation_of(SPECS[kind].name, SPECS[kind].kind, 1000, load_any(base))
    values = resolved("auto", situation, {"reads": BILSTM})
    assert (values["freeze"], values["reads"]) == ("body", BILSTM)
    assert "start" not in values


@KINDS
@pytest.mark.parametrize("reads", ["mean", "max", "concat", "cls", "pair", "pooler", "probe", None])
def test_vectors_of_whole_rows_have_no_effect_on_tokens_and_a_note_says_so(kind, reads, base, capsys):
    settings = dataclasses.replace(SETTINGS, reads=reads, bilstm_cells=None)
    job = FinetuningJob.prepare(base, SPECS[kind], TaskData(train=examples_of(kind, 4), dev=()), settings, RECIPE)
    assert job.task.spec.reads == SPECS[kind].reads
    said = f"reads {reads} has no effect: a head for {SPECS[kind].title} reads the hidden states of tokens"
    assert (said in capsys.readouterr().err) == (reads not in ("pooler", "probe", None))


def test_settings_that_do_not_fit_are_refused(base):
    data = TaskData(train=examples_of("tags", 4), dev=())

    def prepare(**changes: object) -> None:
        settings = dataclasses.replace(SETTINGS, **changes)
        FinetuningJob.prepare(base, SPECS["tags"], data, settings, RECIPE)

    with pytest.raises(ConfigError, match="reads bilstm for ner"):
        prepare(reads=ATTENTION)
    with pytest.raises(ConfigError, match="found a head with a BiLSTM"):
        prepare(start="linear")
    with pytest.raises(ConfigError, match="at least 4 layers for 'concat-last-4'"):
        prepare(bilstm_layers="concat-last-4")
    with pytest.raises(ConfigError, match="a penalty on its learned weights"):
        prepare(bilstm_layers="-1,-2", mix_penalty=1.0)
    with pytest.raises(ConfigError, match="mix_penalty must be at least 0"):
        prepare(mix_penalty=-1.0)
    for name, value in (("bilstm_layers", "last"), ("normalize_layers", True), ("mix_penalty", 1.0)):
        with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} needs --reads bilstm"):
            FinetuningSettings(**{name: value})
    with pytest.raises(ConfigError, match="a penalty on the weights of layers"):
        require_divisible(task_for(spec_of("tags")).head, dataclasses.replace(SETTINGS, mix_penalty=1.0))
