"""Vectors that are trained on several files: shares of the steps, losses of their own, and runs that resume."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import BertsmithError
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.opening import opening_lines
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.vector_workload import VectorTraining
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data.sources import read_sources
from bertsmith.tasks.task_data.split import Source, TaskData
from tasks.task_samples import SETTINGS, examples_of, write_base_model
from training.interruptions import assert_resumes
from training.logs import steps_of
from written_files import file_with

STEPS = 12


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


def source(kind: str, form: str, count: int, loss: str | None, share: float | None) -> Source:
    examples = examples_of(kind, count)
    spec = spec_for(form, examples, SETTINGS)
    return Source(name=f"{form}.tsv", spec=spec, examples=examples, loss=loss, share=share, digest="")


def prepared(base: str, *sources: Source, **changed: Any) -> FinetuningJob:
    examples = examples_of("vectors of partners", 24)
    data = TaskData(train=examples[:16], dev=examples[16:], sources=sources)
    chosen = FinetuningSettings(batch_size=8, epochs=2, precision="fp32", dropout=0.0, **changed)
    recipe = RecipeSettings(learning_rate=3e-3, bias_correction=True, log_every=1)
    return FinetuningJob.prepare(base, spec_for("pairs", examples, SETTINGS), data, chosen, recipe)


def workload(job: FinetuningJob, seed: int = 1) -> VectorTraining:
    work = job._workload(seed, None, bertsmith.base.machine.runtime.ALONE)
    assert isinstance(work, VectorTraining)
    work.fix_steps(STEPS)
    return work


SCORED = source("scored vectors", "similarity", 16, "cosent", 2.0)
TRIPLETS = source("vectors of triplets", "triplets", 16, None, 3.0)


def test_each_source_has_its_share_of_the_steps_with_its_loss_and_its_examples(base: str) -> None:
    work = workload(prepared(base, SCORED, TRIPLETS))
    assert [each.spec.objective for each in work.sources] == ["ranking", "cosent", "ranking"]
    numbers = [work._source(step) for step in range(STEPS)]
    assert Counter(numbers) == {0: 2, 1: 4, 2: 6}
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for step, number in enumerate(numbers):
        assert work.drawn_from(step)[0] is work.sources[number].features
        assert work.loss_at(step).objective == work.sources[number].spec.objective
        seen[number] += work.units_of_step(step).tolist()
    for number, units in seen.items():  # an epoch after another of each
        every = len(work.sources[number].features)
        whole = len(units) // every * every
        assert set(Counter(units[:whole]).values()) == {len(units) // every}
    again = workload(prepared(base, SCORED, TRIPLETS))
    assert [again.units_of_step(step).tolist() for step in (7, 3)] == [
        work.units_of_step(step).tolist() for step in (7, 3)
    ]
    assert [workload(prepared(base, SCORED, TRIPLETS), 2)._source(step) for step in range(STEPS)] != numbers


def test_without_shares_steps_are_in_proportion_to_examples(base: str) -> None:
    larger = dataclasses.replace(SCORED, examples=examples_of("scored vectors", 32), share=None)
    work = workload(prepared(base, larger))
    assert Counter(work._source(step) for step in range(STEPS)) == {0: 4, 1: 8}


def test_a_share_of_less_than_a_step_is_said(base: str) -> None:
    small = dataclasses.replace(SCORED, share=0.01)
    lines = [line for line in opening_lines(prepared(base, small, TRIPLETS)) if "of the steps" in line]
    assert ["less than one, so it may not be read" in line for line in lines] == [False, True, False]


def test_a_step_of_a_source_has_the_gradients_of_a_training_on_it_alone(base: str) -> None:
    work = workload(prepared(base, SCORED))
    step = next(step for step in range(STEPS) if work._source(step) == 1)
    alone = workload(prepared(base))
    alone._losses = [alone.loss_of(work.sources[1].spec, alone.settings)]
    gradients = []
    for each in (work, alone):
        each.model.eval()
        plan = work.plan(step, 0, 1)
        each.begin_step(each.model, plan)
        loss = sum(each.loss(each.model, batch)[0] for batch in plan.micro_batches)
        assert isinstance(loss, torch.Tensor)
        gradients.append(torch.autograd.grad(loss, each.model.encoder.word_table)[0])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_killed_training_of_several_sources_resumes_to_the_same_bytes(base: str, tmp_path: Path) -> None:
    job = prepared(base, SCORED, TRIPLETS)
    assert job.training.steps == STEPS
    assert_resumes(job, tmp_path)
    lines = steps_of(tmp_path / "straight")
    steps = {name: sum(line.get(f"steps of {name}", 0) for line in lines) for name in ("train", "similarity.tsv")}
    assert steps == {"train": 2, "similarity.tsv": 4}
    for line in lines:
        losses = [value for name, value in line.items() if name.startswith("loss of")]
        assert losses == [pytest.approx(line["loss"])]


@pytest.mark.parametrize("vectors", ["sparse", "tokens"])
def test_other_forms_of_vectors_have_sources_too(vectors: str, base: str, tmp_path: Path) -> None:
    job = prepared(base, SCORED, vectors=vectors)
    assert job.train_once(tmp_path / "run", 1).steps == job.training.steps


def test_files_are_named_with_loss_and_share(base: str, tmp_path: Path) -> None:
    rows = [{"anchor": f"anna {n}", "positive": f"anna film {n}"} for n in range(6)]
    pairs = file_with(tmp_path / "pairs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    scored = [{"sentence1": f"anna {n}", "sentence2": "the film", "score": n % 3} for n in range(6)]
    other = file_with(tmp_path / "scored.jsonl", "".join(json.dumps(row) + "\n" for row in scored))
    options: dict[str, Any] = {"train": pairs, "dev": other, "seeds": 1, "epochs": 1, "baselines": False}
    bertsmith.finetune(base, "pairs", tmp_path / "run", also=[f"{other}:cosent:3"], **options)
    warnings = json.loads((tmp_path / "run" / "report.json").read_text())["warnings"]
    assert any("6 of 6 dev examples are also among the training examples" in warning for warning in warnings)
    recorded = json.loads((tmp_path / "run" / "model" / "bertsmith.json").read_text())["training"]["sources"]
    assert [(each["loss"], each["examples"], each["share"]) for each in recorded] == [
        ("ranking", 6, 1.0),
        ("cosent", 6, 3.0),
    ]
    for text, said in (
        (f"{other}:ranking", "vector_loss cosine or cosent for the task similarity"),
        (f"{other}:0", "shares above 0"),
        (f"{other}:consent:2", "one of the losses .*cosent.*found 'consent'"),
        (f"{tmp_path}/none.tsv:2", "none.tsv"),
        (f"{pairs}:softmax", "pairs with different labels for --vector-loss softmax|vector_loss"),
    ):
        with pytest.raises(BertsmithError, match=said) as error:
            bertsmith.finetune(base, "pairs", tmp_path / "other", also=[text], **options)
        assert "\n" not in str(error.value)
    with pytest.raises(BertsmithError, match="also"):
        bertsmith.finetune(base, "regression", tmp_path / "other", also=[other], **options)
    assert read_sources([other], ColumnSettings(), SETTINGS)[0].spec.name == "similarity"
