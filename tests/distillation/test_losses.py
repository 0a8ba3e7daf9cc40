"""The losses against a teacher: equal to the slow version, zero where student and teacher agree."""

import itertools

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.parts.layers import ScaledLinear
from bertsmith.models.parts.runs import runs_of
from bertsmith.recipes.distillation.losses import attention_loss, cosine_loss, layer_map, state_loss
from bertsmith.recipes.distillation.students import chosen_layers, spread_layers
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from distillation.distillation_samples import KINDS
from oracles.distillation_oracle import attention_of_row, cosine_of_row, soft_targets, states_of_row, yes_or_no
from tasks.task_samples import SPECS, TOKENIZER, examples_of

LENGTHS = (3, 3, 5)
EDGES = np.cumsum((0, *LENGTHS))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("kind", [*KINDS, "windows"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_soft_targets_are_those_of_every_kind_of_task(kind: str, temperature: float) -> None:
    task = task_for(SPECS[kind])
    features = task.encode(examples_of(kind, 6), TOKENIZER, training=True)
    (batch,) = micro_batches(features, np.arange(len(features)), micro_tokens=10**6, device="cpu")
    count = batch.batch.num_tokens if batch.read is None else len(batch.read.positions)
    outputs = task.head.outputs
    student, teacher = drawn(count, outputs, seed=1), 3 * drawn(count, outputs, seed=2)
    result = task.soft_loss(student, teacher, batch, temperature).item()
    mine, theirs = student.numpy(), teacher.numpy()
    units = batch.unit_of_row.numpy()
    if kind == "windows" or task.head.windows:
        assert len(units) > batch.num_units
        mine, theirs = (
            np.stack([logits[units == u].mean(0) for u in range(batch.num_units)]) for logits in (mine, theirs)
        )
    if task.spec.kind == "classification" and not task.spec.multi_label:
        wanted = sum(soft_targets(a, b, temperature) for a, b in zip(mine, theirs, strict=True))
    elif task.spec.multi_label:
        every = zip(mine.ravel(), theirs.ravel(), strict=True)
        wanted = sum(yes_or_no(a, b, temperature) for a, b in every) / outputs
    elif task.spec.kind == "regression":
        wanted = float(((mine - theirs) ** 2).sum())
    elif kind == "choice":
        wanted = sum(
            soft_targets(mine[units == unit, 0], theirs[units == unit, 0], temperature)
            for unit in range(batch.num_units)
        )
    elif kind == "tags":
        wanted = sum(soft_targets(a, b, temperature) for a, b in zip(mine, theirs, strict=True))
    else:
        borders = np.cumsum((0, *batch.batch.lengths))
        rows = [slice(begin, end) for begin, end in itertools.pairwise(borders)]
        wanted = (
            sum(soft_targets(mine[row, side], theirs[row, side], temperature) for row in rows for side in (0, 1)) / 2
        )
    assert result == pytest.approx(wanted, rel=1e-9)
    assert task.soft_loss(teacher, teacher, batch, temperature).item() == pytest.approx(0, abs=1e-12)


def test_endings_that_an_example_lacks_have_no_part_in_its_loss() -> None:
    task, examples = task_for(SPECS["choice"]), examples_of("choice", 4)
    examples[1] = type(examples[1])(id="1", context="the film", endings=examples[1].endings[:2], label=0)
    features = task.encode(examples, TOKENIZER, training=True)
    (batch,) = micro_batches(features, np.arange(4), micro_tokens=10**6, device="cpu")
    student, teacher = drawn(11, 1, seed=1).requires_grad_(), drawn(11, 1, seed=2)
    loss = task.soft_loss(student, teacher, batch, 2.0)
    loss.backward()
    units = batch.unit_of_row.numpy()
    wanted = sum(
        soft_targets(student.detach().numpy()[units == unit, 0], teacher.numpy()[units == unit, 0], 2.0)
        for unit in range(4)
    )
    assert loss.item() == pytest.approx(wanted)
    assert torch.isfinite(student.grad).all()


def test_states_and_attention_equal_the_slow_version() -> None:
    student, teacher = [drawn(11, 8, seed=n) for n in range(3)], [drawn(11, 12, seed=10 + n) for n in range(5)]
    projection = ScaledLinear(8, 12).double()
    pairs = layer_map(2, 4)
    result = state_loss(
        [tensor.float() for tensor in student],
        [tensor.float() for tensor in teacher],
        pairs,
        LENGTHS,
        projection.float(),
    )
    weight, bias = (parameter.detach().double().numpy() for parameter in (projection.weight, projection.bias))
    rows = [slice(begin, end) for begin, end in itertools.pairwise(EDGES)]
    for row, value in zip(rows, result.tolist(), strict=True):
        parts = ([layer[row].numpy() for layer in side] for side in (student, teacher))
        assert value == pytest.approx(states_of_row(*parts, pairs, weight, bias), rel=1e-5)
    mine = [(drawn(11, 8, seed=20 + n), drawn(11, 8, seed=30 + n)) for n in range(2)]
    theirs = [(drawn(11, 12, seed=40 + n), drawn(11, 12, seed=50 + n)) for n in range(4)]
    result = attention_loss(mine, theirs, pairs, runs_of(LENGTHS, LENGTHS), heads=4)
    for row, value in zip(rows, result.tolist(), strict=True):
        sides = ([(q[row].numpy(), k[row].numpy()) for q, k in side] for side in (mine, theirs))
        assert value == pytest.approx(attention_of_row(*sides, pairs, heads=4), rel=1e-5)
    close = cosine_loss(student[0], student[1], LENGTHS)
    for row, value in zip(rows, close.tolist(), strict=True):
        assert value == pytest.approx(cosine_of_row(student[0][row].numpy(), student[1][row].numpy()), rel=1e-5)


def test_equal_states_have_no_loss() -> None:
    states, products = [drawn(11, 8)], [(drawn(11, 8), drawn(11, 8, seed=1))]
    assert state_loss(states, states, ((0, 0),), LENGTHS, None).abs().max() == 0
    assert attention_loss(products, products, ((1, 1),), runs_of(LENGTHS, LENGTHS), 2).abs().max() == 0
    assert cosine_loss(states[0], 2 * states[0], LENGTHS).abs().max() < 1e-6


def test_the_layers_of_distilbert_and_tinybert_are_those_of_the_papers() -> None:
    assert [layer - 1 for layer in spread_layers(6, 12)] == [0, 2, 4, 7, 9, 11]
    assert layer_map(4, 12) == ((0, 0), (1, 3), (2, 6), (3, 9), (4, 12))


@pytest.mark.parametrize("text", ["0", "7", "3,1", "1,1", "1,7", "one", "", "1,,2", "-1"])
def test_layers_that_a_teacher_lacks_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="1 to 6"):
        chosen_layers(text, 6, spread=True)


@pytest.mark.parametrize(("student", "teacher"), [(4, 6), (6, 4)])
def test_layers_that_do_not_map_are_refused(student: int, teacher: int) -> None:
    with pytest.raises(ConfigError, match=f"divides the {teacher} of its teacher"):
        layer_map(student, teacher)
