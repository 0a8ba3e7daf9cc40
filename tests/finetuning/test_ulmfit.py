"""ULMFiT: rates by layer, gradual unfreezing, concat pooling with a hidden layer, the recipe; long texts."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.awd_lstm import AwdLstmConfig
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_blocks import HeadBlocks, concat_of_rows
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.noise import RowNoise
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import ULMFIT, FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.optimizer import BertAdam
from tasks.architecture_samples import config_of, write_base_model
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of
from training.logs import assert_learns, steps_of

CONCAT = "on three vectors"
LAYERS = ["bert.embeddings.", "bert.layers.0.", "bert.layers.1.", ("classifier.", "blocks.")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("ulmfit") / "model", "awd-lstm")


def data_of(count: int = 64) -> TaskData:
    return TaskData(train=examples_of(CONCAT, count), dev=examples_of(CONCAT, 24, seed=1))


def workload(base: str, **changes: object) -> Finetuning:
    settings = FinetuningSettings(**{"batch_size": 16, "epochs": 10, "precision": "fp32", "device": "cpu", **changes})
    job = FinetuningJob.prepare(load_any(base), SPECS[CONCAT], data_of(), settings, RecipeSettings())
    model = load_for_task(load_any(base), job.head, keep_head=False).model
    return Finetuning(model, job.task, job.train, None, job.tokenizer, settings, job.runtime, seed=1)


def groups_that_move(work: Finetuning, step: int) -> list[bool]:
    """Which layers a step of training changes, from the embeddings to the head."""
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.training.loop.guard import StopRequest
    from bertsmith.training.loop.settings import TrainSettings
    from bertsmith.training.loop.trainer import Trainer

    work.model.train()
    before = {name: parameter.detach().clone() for name, parameter in work.model.named_parameters()}
    trainer = Trainer(work, TrainSettings(steps=40), Rank(), StopRequest())
    trainer.apply(trainer.gradient(step, work.plan(step, 0, 1)), 1e-2)
    moved = {name for name, parameter in work.model.named_parameters() if not torch.equal(before[name], parameter)}
    still = {name for name in before if name not in moved and "pooler" not in name}
    result = []
    for prefix in LAYERS:
        kinds = {name in moved for name in (moved | still) if name.startswith(prefix)}
        assert len(kinds) == 1, f"{prefix} as a whole"
        result.append(kinds.pop())
    return result


def test_each_epoch_trains_one_more_layer_from_the_top(base: str) -> None:
    work = workload(base, gradual_unfreezing=True, reads="concat")
    work.fix_steps(40)  # ten epochs of four steps
    for epoch in range(5):
        expected = [group >= 3 - epoch for group in range(4)]
        for step in (4 * epoch, 4 * epoch + 3):
            assert groups_that_move(work, step) == expected


def test_without_gradual_unfreezing_all_layers_move_in_the_first_step(base: str) -> None:
    work = workload(base, reads="concat")
    work.fix_steps(40)
    assert groups_that_move(work, 0) == [True] * 4


def test_a_short_run_trains_all_layers_in_its_second_half(base: str) -> None:
    work = workload(base, gradual_unfreezing=True)
    work.fix_steps(12)
    name = "bert.embeddings.word.weight"
    assert [work.trains(name, step) for step in range(12)] == [False] * 6 + [True] * 6


def test_a_frozen_layer_keeps_its_moments(base: str) -> None:
    work = workload(base, gradual_unfreezing=True, reads="concat")
    work.fix_steps(40)
    from bertsmith.base.machine.runtime import Rank
    from bertsmith.training.loop.guard import StopRequest
    from bertsmith.training.loop.settings import TrainSettings
    from bertsmith.training.loop.trainer import Trainer

    trainer = Trainer(work, TrainSettings(steps=40, weight_decay=0.1), Rank(), StopRequest())
    trainer.apply(trainer.gradient(0, work.plan(0, 0, 1)), 1e-2)
    moments = trainer.optimizer.moments
    assert not any(moment.any() for moment in moments["bert.layers.1.weight_ih_l0"])
    assert all(moment.any() for moment in moments["classifier.weight"])


def test_rates_fall_by_the_factor_of_the_paper_with_each_layer(base: str) -> None:
    work = workload(base, layer_decay=round(1 / 2.6, 4), reads="concat")
    groups = BertAdam(work.model, rate_factor=work.rate_factor).groups
    of = {name: group.factor for group in groups for name in group.names}
    factors = [of["classifier.weight"], *(of[f"bert.layers.{layer}.weight_ih_l0"] for layer in (1, 0))]
    assert of["blocks.hidden.weight"] == 1.0
    ratios = [above / below for above, below in itertools.pairwise(factors)]
    assert ratios == pytest.approx([2.6, 2.6], rel=1e-3)


def test_a_frozen_body_cannot_be_unfrozen_gradually() -> None:
    with pytest.raises(ConfigError, match="gradual unfreezing of layers that are trained"):
        FinetuningSettings(freeze="body", gradual_unfreezing=True)


def test_concat_pooling_is_the_representative_position_the_maximum_and_the_mean() -> None:
    drawn = torch.Generator().manual_seed(0)
    hidden = torch.randn(9, 4, generator=drawn)
    batch = Batch.from_flat(np.arange(9), np.zeros(9, np.int64), (4, 1, 4))
    from bertsmith.models.parts.batch import Read

    result = concat_of_rows(hidden, batch, Read.last(batch))
    for row, states in zip(result, hidden.split((4, 1, 4)), strict=True):
        torch.testing.assert_close(row, torch.cat([states[-1], states.amax(0), states.mean(0)]))


def test_the_hidden_layer_has_the_units_of_the_paper_and_two_norms() -> None:
    config = config_of("awd-lstm")
    from bertsmith.models.checkpoints.architectures import new_encoder

    model = EncoderForTask(new_encoder(config), Head(part="classifier", outputs=3, pooled=True, reads="concat"))
    shapes = {
        name: tuple(parameter.shape) for name, parameter in model.named_parameters() if not name.startswith("bert.")
    }
    assert shapes == {
        "blocks.norm.weight": (96,),
        "blocks.norm.bias": (96,),
        "blocks.hidden.weight": (50, 96),
        "blocks.hidden.bias": (50,),
        "blocks.hidden_norm.weight": (50,),
        "blocks.hidden_norm.bias": (50,),
        "classifier.weight": (3, 50),
        "classifier.bias": (3,),
    }
    assert (model.get_parameter("blocks.norm.weight") == 1).all()


def test_the_dropout_of_the_hidden_layer_depends_on_the_row_alone() -> None:
    blocks, vectors = HeadBlocks(8), torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    together = blocks(vectors, RowNoise(1, 2, (5, 6, 7)), 0.4)
    alone = torch.cat([blocks(vectors[n : n + 1], RowNoise(1, 2, (5 + n,)), 0.4) for n in range(3)])
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(together, blocks(vectors, None, 0.4))


def test_a_run_with_the_recipe_learns_saves_and_resumes(base: str, tmp_path: Path) -> None:
    situation = situation_of("sentiment", "classification", 64, load_any(base))
    values = resolved(ULMFIT, situation, {"epochs": 24, "batch_size": 16, "dropout": 0.0})
    assert (values["reads"], values["schedule"], values["gradual_unfreezing"]) == ("concat", "slanted_triangular", True)
    assert (values["beta1"], values["beta2"]) == (0.7, 0.99)
    assert 1 / values["layer_decay"] == pytest.approx(2.6, abs=1e-3)
    names = FinetuningSettings.__dataclass_fields__
    chosen = FinetuningSettings(
        **{name: value for name, value in values.items() if name in names} | {"precision": "fp32", "device": "cpu"}
    )
    rates = RecipeSettings(**{name: value for name, value in values.items() if name not in names}, log_every=1)
    finetune(base, SPECS[CONCAT], data_of(), tmp_path / "run", chosen, rates, seeds=1)
    steps = steps_of(tmp_path / "run/seed-1")
    assert steps[0]["learning_rate"] == pytest.approx(0.01 / 32)
    assert max(line["learning_rate"] for line in steps) == pytest.approx(0.01, rel=0.03)
    assert_learns(tmp_path / "run/seed-1", 0.7)
    stored = load_file(tmp_path / "run/model/model.safetensors")
    assert stored["blocks.hidden.weight"].shape == (50, 96)
    folder = load_any(tmp_path / "run/model")
    del folder.tensors["blocks.norm.bias"]
    with pytest.raises(CheckpointError, match="on a hidden layer"):
        load_for_task(folder, task_for(SPECS[CONCAT]).head, keep_head=True)


def test_the_rates_of_a_transformer_in_the_recipe_are_its_own(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "bert", untrained(CONFIG, 0), TOKENIZER, ModelMetadata())
    values = resolved(ULMFIT, situation_of("sst-2", "classification", 500, load_any(tmp_path / "bert")), {})
    assert values["learning_rate"] < 0.002
    assert "dropout" not in values
    with pytest.raises(ConfigError, match="unknown recipe"):
        resolved("ulmfi", situation_of("sst-2", "classification", 500, load_any(tmp_path / "bert")), {})


def test_texts_longer_than_the_gradients_reach_give_the_same_logits_and_train(base: str) -> None:
    job = FinetuningJob.prepare(
        load_any(base), SPECS[CONCAT], data_of(8), FinetuningSettings(device="cpu", precision="fp32"), RecipeSettings()
    )
    model = load_for_task(load_any(base), job.head, keep_head=False).model
    whole = task_logits(model, job.train, choose("cpu", "fp32"))
    work = Finetuning(model, job.task, job.train, None, job.tokenizer, job.settings, job.runtime, seed=1)
    (micro,) = work.plan(0, 0, 1).micro_batches[:1]
    model.eval()
    expected = model(micro.batch, read=micro.read)
    model.encoder.gradient_tokens = 3
    short = model(micro.batch, read=micro.read)
    torch.testing.assert_close(short, expected)
    gradients = [
        torch.autograd.grad(logits.square().sum(), [model.encoder.word_table])[0] for logits in (expected, short)
    ]
    assert not torch.allclose(*gradients)
    assert gradients[1].any()
    np.testing.assert_allclose(task_logits(model, job.train, choose("cpu", "fp32")), whole, atol=1e-6)


def test_a_backward_model_reads_the_first_token_of_a_text(tmp_path: Path) -> None:
    config = AwdLstmConfig(
        vocab_size=CONFIG.vocab_size, hidden_size=16, intermediate_size=24, direction="backward", initializer_range=0.5
    )
    save_pretrained(tmp_path / "model", untrained(config, 0), TOKENIZER, ModelMetadata())
    task = task_for(SPECS["on the first token"])
    model = load_for_task(load_any(tmp_path / "model"), task.head, keep_head=False).model.eval()
    features = task.encode(examples_of("on the first token", 3), TOKENIZER)
    logits = task_logits(model, features, choose("cpu", "fp32"))
    for number, row in enumerate(logits):
        ids, segments = features.rows.row(number)
        hidden = model.encoder(Batch.from_flat(ids, segments, [len(ids)]))
        np.testing.assert_allclose(row, model.output_layer(hidden[0]).detach().numpy(), atol=1e-5)
