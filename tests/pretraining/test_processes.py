"""Several processes evaluate together, and train a model that none of them ever holds, with the numbers of one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertsmith.base.machine.runtime import ALONE
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.training.planning.memory import memory_of
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from pretraining.of_processes import CONFIG, KINDS, evaluated, first_values, pretraining, trained
from tasks.task_samples import TOKENIZER, WORDS, write_base_model
from training.launched import launched

PROGRAM = Path(__file__).with_name("of_processes.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    write_base_model(folder / "base")
    draws = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(draws.choice(WORDS, draws.integers(3, 12))) + " ." for _ in range(draws.integers(2, 12)))
        for _ in range(40)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    settings = CorpusSettings(held_out=0.1)
    build_corpus([folder / "text.txt"], TOKENIZER, folder / "corpus", **vars(settings), workers=1)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    trained(folder / "corpus", folder / "one", ALONE)
    return {**evaluated(folder / "base", ALONE), **first_values(folder / "base", ALONE)}


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    """What each of two processes returns."""
    return returned(folder, 2)


def returned(folder: Path, processes: int) -> list[dict[str, Any]]:
    launched(PROGRAM, processes, folder / "base", folder)
    return [read_json(folder / f"evaluated-{index}-of-{processes}.json") for index in range(processes)]


def assert_evaluated(evaluations: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    processes = len(evaluations)
    for share in ("whole", "divided"):
        assert all(
            evaluation[f"{share} {kind}"] == evaluations[0][f"{share} {kind}"]
            for evaluation in evaluations
            for kind in KINDS
        )
        assert evaluations[-1][f"{share} pretraining many parts"] == alone["whole pretraining many parts"]
        passes = alone["whole passes many parts"]
        assert processes < passes <= evaluations[0][f"{share} passes many parts"] < passes + processes
        # One part is cut for all processes, so sums have another order.
        few = evaluations[0][f"{share} pretraining one part"]
        assert few == pytest.approx(alone["whole pretraining one part"], rel=1e-5)
        assert (alone["whole passes one part"], evaluations[0][f"{share} passes one part"]) == (1, processes)
        for kind in KINDS:
            assert evaluations[0][f"{share} {kind}"] == alone[f"whole {kind}"]
            assert evaluations[-1][f"{share} logits of {kind}"] == alone[f"whole logits of {kind}"]


def test_processes_that_evaluate_together_have_the_bytes_of_one_and_share_the_work(
    two: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    """Whole models and divided ones; in as many passes as one process, which only the last round fills up."""
    assert_evaluated(two, alone)


def test_a_divided_model_starts_from_the_bytes_of_a_whole_one_and_no_process_holds_them_all(
    two: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for start in ("new", "read"):
        assert [values[start] for values in two] == [alone[start]] * 2
    assert sum(values["held"] for values in two) == alone["held"]
    assert max(values["held"] for values in two) < 0.51 * alone["held"]


def test_a_plan_counts_what_a_process_holds_and_gathers_of_a_divided_model(two: list[dict[str, Any]]) -> None:
    """Its own rows exactly, and for what is gathered no less than PyTorch allocates, and not much more."""
    batch = pretraining(48, None).plan(0, 0, 1).micro_batches[0]
    lengths, predicted = batch.batch.lengths, batch.predicted
    plan = memory_of(
        CONFIG, OBJECTIVES[PretrainingDataSettings().objective], "muon", dtype=torch.float32, rows=len(lengths),
        length=max(lengths), predictions=-(-len(predicted) // len(lengths)), processes=2,
    )  # fmt: skip
    assert (plan.parameters, plan.moments) == (two[0]["held"], two[0]["moments"])
    real = max(values["allocated"] for values in two)
    assert real <= plan.gathered + plan.activations < 1.4 * real, (plan, real)


@pytest.mark.parametrize("run", ["new", "continued"])
def test_a_divided_pre_training_has_the_curve_and_the_model_of_one_process(
    two: list[dict[str, Any]], alone: dict[str, Any], folder: Path, run: str
) -> None:
    """From values that the corpus gives, and from a model folder; the best model is kept."""
    lines = [read_json_lines(folder / name / run / "metrics.jsonl") for name in ("one", "two")]
    first = [next(line for line in each if line["kind"] == "evaluation") for each in lines]
    assert first[1]["held_out_loss"] == pytest.approx(first[0]["held_out_loss"], rel=1e-7 if run == "new" else 1e-3)
    for name, kind in (("loss", "train"), ("held_out_loss", "evaluation")):
        alone_values, other = ([line[name] for line in each if line["kind"] == kind] for each in lines)
        assert other == pytest.approx(alone_values, rel=1e-3)
    parts = (folder / "two" / run / "checkpoints" / "step-00000004").glob("model-*-of-00002.safetensors")
    assert len(list(parts)) == 2, "each process wrote its rows"
    models = [folder / name / run / "model" for name in ("one", "two")]
    tensors = [load_file(model / "model.safetensors") for model in models]
    assert tensors[0].keys() == tensors[1].keys()
    for name, tensor in tensors[0].items():
        torch.testing.assert_close(tensors[1][name], tensor, rtol=1e-2, atol=1e-3)
    assert {path.name for path in models[0].iterdir()} == {path.name for path in models[1].iterdir()}
    assert not list((folder / "two" / run).glob("**/*.partial"))


@pytest.mark.slow
def test_four_processes_have_the_bytes_of_one(folder: Path, alone: dict[str, Any]) -> None:
    evaluations = returned(folder, 4)
    assert_evaluated(evaluations, alone)
    assert [values["new"] for values in evaluations] == [alone["new"]] * 4
    assert max(values["held"] for values in evaluations) < 0.27 * alone["held"]
