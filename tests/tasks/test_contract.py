"""The contract of every task: encode, forward, the loss falls, save, load elsewhere, predict, score, resume."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.head_inputs import OF_TWO_TEXTS
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.vector_workload import VectorTraining
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.datasets.examples import EntityExample, TaggedExample
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import KINDS, task_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from tasks.architecture_samples import EVERY_ARCHITECTURE, encoder_of, tokenizer_of, write_base_model
from tasks.task_samples import SPECS, examples_of
from training.interruptions import assert_resumes
from training.logs import assert_learns
from training.whole_steps import assert_same_gradients, step_on_all

EVERY = pytest.mark.parametrize("kind", SPECS)
# A head that compares two texts needs a segment for each text; RoBERTa, MPNet and the samples of GTE and EuroBERT have
# one for both. A decoder needs a Transformer that reads in both directions.
ON_EVERY_ARCHITECTURE = [
    (kind, architecture)
    for kind, spec in SPECS.items()
    for architecture in EVERY_ARCHITECTURE
    if (spec.reads not in OF_TWO_TEXTS or architecture not in ("roberta", "mpnet", "gte", "eurobert", "awd-lstm"))
    and (spec.kind != "generation" or architecture not in ("openai-gpt", "awd-lstm", "elmo", "bilstm"))
]
EVERY_ON_EVERY_ARCHITECTURE = pytest.mark.parametrize(("kind", "architecture"), ON_EVERY_ARCHITECTURE)
# Trainings take seconds: every kind on BERT and some kinds on every architecture; the rest is for `make test-slow`.
TRAINED_EVERYWHERE = ("single", "tags", "answer")
TRAINED = pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        pytest.param(
            kind,
            architecture,
            marks=() if architecture == "bert" or kind in TRAINED_EVERYWHERE else pytest.mark.slow,
        )
        for kind, architecture in ON_EVERY_ARCHITECTURE
    ],
)
SETTINGS = FinetuningSettings(batch_size=16, epochs=18, precision="fp32", dropout=0.0)
RECIPE = RecipeSettings(
    learning_rate=3e-3, bias_correction=True, log_every=1
)  # at this rate, without correction, some collapse


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("base")
    return {name: write_base_model(folder / name, name) for name in EVERY_ARCHITECTURE}


def data_of(kind: str, count: int = 64) -> TaskData:
    return TaskData(train=examples_of(kind, count), dev=examples_of(kind, 24, seed=1))


Elsewhere = Callable[[Path, str], list[dict[str, Any]]]

ELSEWHERE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tasks.task_samples import examples_of
from bertsmith.inference.predictors.loading import load_predictor
for line in sys.stdin:
    model, kind = json.loads(line)
    predictions = load_predictor(model).predict(examples_of(kind, 24, seed=1))
    print(json.dumps([prediction.to_dict() for prediction in predictions]), flush=True)
"""


@pytest.fixture(scope="module")
def answered_elsewhere() -> Iterator[Elsewhere]:
    """The predictions of another process, in which nothing was trained, for the dev examples."""
    command = [sys.executable, "-c", ELSEWHERE, str(Path(__file__).parent.parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        questions, replies = process.stdin, process.stdout

        def answers(model: Path, kind: str) -> list[dict[str, Any]]:
            print(json.dumps([str(model), kind]), file=questions, flush=True)
            return json.loads(replies.readline())

        yield answers
        questions.close()
        assert process.wait(timeout=120) == 0


def test_the_samples_cover_every_kind_of_task() -> None:
    assert {spec.kind for spec in SPECS.values()} == set(KINDS)


@EVERY
def test_a_spec_survives_a_round_trip_through_plain_values(kind: str) -> None:
    values = json.loads(json.dumps(SPECS[kind].to_dict()))
    assert TaskSpec.from_dict(values, "here") == SPECS[kind]


@EVERY_ON_EVERY_ARCHITECTURE
def test_logits_do_not_depend_on_how_the_examples_are_cut_or_ordered(kind: str, architecture: str) -> None:
    tokenizer = tokenizer_of(architecture)
    task, examples = task_for(SPECS[kind]), examples_of(kind, 10)
    model = EncoderForTask(encoder_of(architecture), task.head, seed=2).double()
    runtime = choose("cpu", "fp64")
    features = task.encode(examples, tokenizer)
    whole = task_logits(model, features, runtime, 10_000)
    np.testing.assert_allclose(task_logits(model, features, runtime, 20), whole, rtol=1e-6, atol=1e-7)
    one_by_one = [task_logits(model, task.encode([example], tokenizer), runtime) for example in examples]
    np.testing.assert_allclose(np.concatenate(one_by_one), whole, rtol=1e-6, atol=1e-7)


@EVERY_ON_EVERY_ARCHITECTURE
def test_equal_examples_of_a_call_are_computed_once_and_answered_alike(kind: str, architecture: str) -> None:
    tokenizer = tokenizer_of(architecture)
    task, different = task_for(SPECS[kind]), examples_of(kind, 5)
    predictor = Predictor(
        EncoderForTask(encoder_of(architecture), task.head, seed=2), task, tokenizer, choose("cpu", "fp32")
    )
    rows = []
    predictor.model.register_forward_pre_hook(lambda _, batch: rows.append(batch[0].num_rows))
    alone, once = predictor.predict(different), list(rows)
    rows.clear()
    examples = [different[number * number % 5] for number in range(20)]
    answers = predictor.predict([*different, *examples])
    assert rows == once
    assert answers == [*alone, *(alone[number * number % 5] for number in range(20))]


@EVERY_ON_EVERY_ARCHITECTURE
def test_the_gradient_of_a_step_is_the_same_however_it_is_split(kind: str, architecture: str) -> None:
    tokenizer = tokenizer_of(architecture)
    task, examples = task_for(SPECS[kind]), examples_of(kind, 8)
    features = task.encode(examples, tokenizer, training=True)
    kind_of_work = VectorTraining if task.head.is_vector else Finetuning
    gradients = []
    for micro_tokens in (10_000, 24):
        model = EncoderForTask(encoder_of(architecture), task.head, seed=3).double()
        work = kind_of_work(model, task, features, None, tokenizer, SETTINGS, choose("cpu", "fp64"), seed=5)
        gradients.append(step_on_all(work, features, micro_tokens))
    assert_same_gradients(gradients[1], gradients[0], rtol=1e-6, atol=1e-9)


@TRAINED
def test_it_learns_saves_and_answers_the_same_in_another_process(
    kind: str, architecture: str, bases: dict[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data = data_of(kind)
    result = finetune(bases[architecture], SPECS[kind], data, tmp_path / "run", SETTINGS, RECIPE, seeds=1)
    assert_learns(tmp_path / "run/seed-1", 0.7)
    # The products of training; others may have other last digits, which depend on the processor.
    predictor = load_predictor(tmp_path / "run" / "model", products="plain")
    scores, predictions = predictor.evaluate(data.dev)
    best = result.runs[result.best].scores
    assert scores.keys() == best.keys()
    for name, value in scores.items():
        assert value == pytest.approx(best[name], abs=1e-9), name
    answers = json.loads(json.dumps([prediction.to_dict() for prediction in predictions]))
    recorded = [json.loads(line) for line in (tmp_path / "run/predictions.jsonl").read_text().splitlines()]
    assert [line["prediction"] for line in recorded] == answers
    scores, prepared = load_predictor(tmp_path / "run" / "model").evaluate(data.dev)
    for name, value in scores.items():
        assert value == pytest.approx(best[name], abs=1e-6), name
    if architecture == "bert":  # a process loads torch, which takes seconds
        answers = json.loads(json.dumps([answer.to_dict() for answer in prepared]))
        assert request.getfixturevalue("answered_elsewhere")(tmp_path / "run" / "model", kind) == answers


@pytest.mark.parametrize("kind", ["single", "tags"])
def test_the_optimizer_of_the_paper_learns_too(kind: str, bases: dict[str, str], tmp_path: Path) -> None:
    """Without bias correction, whose first steps are several times as long, at a rate that allows for them."""
    recipe = RecipeSettings(learning_rate=1e-3, log_every=1)
    finetune(bases["bert"], SPECS[kind], data_of(kind), tmp_path / "run", SETTINGS, recipe, seeds=1)
    assert_learns(tmp_path / "run/seed-1", 0.7)


@TRAINED
def test_a_killed_training_resumes_to_the_same_bytes(
    kind: str, architecture: str, bases: dict[str, str], tmp_path: Path
) -> None:
    data = data_of(kind, 32)
    settings = dataclasses.replace(SETTINGS, epochs=2, dropout=0.1, batch_size=8)
    recipe = dataclasses.replace(RECIPE, save_every=3)
    job = FinetuningJob.prepare(bases[architecture], SPECS[kind], data, settings, recipe)
    assert_resumes(job, tmp_path)


@EVERY_ON_EVERY_ARCHITECTURE
def test_no_examples_give_no_predictions(kind: str, architecture: str) -> None:
    tokenizer = tokenizer_of(architecture)
    task = task_for(SPECS[kind])
    model = EncoderForTask(encoder_of(architecture), task.head, seed=0)
    assert Predictor(model, task, tokenizer, choose("cpu", "fp32")).predict([]) == []


@EVERY
def test_a_model_of_this_task_refuses_examples_without_gold_when_it_is_scored(kind: str) -> None:
    task = task_for(SPECS[kind])
    bare = {"single": {"label": None}, "tags": {"tags": None}, "answer": {"answers": ()}}
    bare |= {key: {"targets": ()} for key in ("text to write", "sentences", "sentences of a text")}
    bare |= {
        "vectors of partners": {"second": None},
        "vectors of triplets": {"texts": ("the film",)},
        "lists": {"scores": ()},
    }
    field = bare.get(kind, {"answers": ()} if "answer" in kind else {"label": None})
    example = examples_of(kind, 3)[1]
    if isinstance(example, EntityExample):
        example = TaggedExample(id="1", words=example.words, location=example.location)
    else:
        example = dataclasses.replace(example, **field)
    with pytest.raises(BertsmithError, match="line 2 of"):
        task.check([example], gold=True)


def test_numbers_that_are_all_the_same_are_refused_for_training() -> None:
    task = task_for(SPECS["number"])
    examples = [dataclasses.replace(example, label=2.5) for example in examples_of("number", 4)]
    task.check(examples, gold=True)
    with pytest.raises(BertsmithError, match=r"different numbers in the training examples; found 2\.5 in each"):
        task.check(examples, gold=True, training=True)


@EVERY_ON_EVERY_ARCHITECTURE
def test_every_parameter_moves_and_with_a_frozen_body_only_the_head_does(
    kind: str, architecture: str, bases: dict[str, str], tmp_path: Path
) -> None:
    data, first = data_of(kind, 16), load_any(bases[architecture]).tensors
    for freeze in ("nothing", "body") if SPECS[kind].kind not in ("similarity", "selection") else ("nothing",):
        settings = dataclasses.replace(SETTINGS, epochs=1, freeze=freeze)
        FinetuningJob.prepare(bases[architecture], SPECS[kind], data, settings, RECIPE).train_once(tmp_path / freeze, 1)
        after = load_any(tmp_path / freeze / "model").tensors
        same = {name for name in after if name in first and torch.equal(after[name], first[name])}
        body = {name for name in after if name.startswith(("bert.embeddings.", "bert.layers."))}
        if freeze == "body":
            assert same >= body
            assert not same & {name for name in after if not name.startswith("bert.")}
        else:
            # No text B, so no second segment; only that row of the embedding stays unchanged.
            assert not same
