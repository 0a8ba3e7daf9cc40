"""Models divided among processes are fine-tuned like whole ones, and any number of processes resumes a run."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import read_json
from bertsmith.models.heads.head_spec import Head
from bertsmith.recipes.finetuning.base_model import require_divisible
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.recipes.results.finished_run import TABLE_FILE
from bertsmith.tasks.specs.kinds import task_for
from finetuning.of_divided import GRID, RUNS, SEARCHED, STOPPED, searched, trained
from tasks.task_samples import SPECS, write_base_model
from training.launched import launched
from training.logs import losses_of

PROGRAM = Path(__file__).with_name("of_divided.py")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_base_model(tmp_path_factory.mktemp("base") / "base"))


@pytest.fixture(scope="module")
def two(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that two processes write."""
    out = tmp_path_factory.mktemp("two")
    said = launched(PROGRAM, 2, base, out)
    assert said[0].count("2 processes share every step, because the model is divided among them") == 1, "two seeds"
    assert ("baselines" in said[0], "baselines" in said[1]) == (True, False)
    return out


def assert_same(actual: Path, expected: Path) -> None:
    """The same curve, scores and model, up to sums in another order."""
    assert len(losses_of(expected / "seed-1")) == 4
    assert losses_of(actual / "seed-1") == pytest.approx(losses_of(expected / "seed-1"), rel=1e-3)
    reports = [read_json(run / "report.json") for run in (actual, expected)]
    assert reports[0]["scores"] == reports[1]["scores"]
    assert [baseline["name"] for baseline in reports[0]["baselines"]] == [
        baseline["name"] for baseline in reports[1]["baselines"]
    ]
    models = [load_file(run / "model" / "model.safetensors") for run in (actual, expected)]
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        assert_close(tensor, models[1][name], rtol=0.0, atol=5e-3)
    names = [{str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()} for run in (actual, expected)]
    assert names[0] == names[1], "everything is written once, and nothing is left over"


@pytest.mark.parametrize("run", RUNS)
def test_a_divided_model_is_fine_tuned_like_a_whole_one(base: Path, two: Path, tmp_path: Path, run: str) -> None:
    kind, changes = RUNS[run]
    trained(base, tmp_path / "one", kind, **changes)
    assert_same(two / run, tmp_path / "one")


@pytest.mark.parametrize("processes", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_another_number_of_processes_resumes(base: Path, two: Path, tmp_path: Path, processes: int) -> None:
    parts = two / STOPPED / "seed-1" / "checkpoints" / "step-00000002"
    assert len(list(parts.glob("model-*-of-00002.safetensors"))) == 2
    shutil.copytree(two / STOPPED, tmp_path / STOPPED)
    if processes == 1:
        trained(base, tmp_path / STOPPED, "single", resume=True)
    else:
        launched(PROGRAM, processes, base, tmp_path, "resume")
    trained(base, tmp_path / "one", "single")
    assert_same(tmp_path / STOPPED, tmp_path / "one")


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    of_vectors = Head(part="classifier", outputs=2, pooled=True, is_vector=True)
    for head, settings, message in (
        (task_for(SPECS["single"]).head, {"language_model_loss": 0.5}, "a language-model loss"),
        (of_vectors, {}, "a loss of vectors with a layer of its own"),
    ):
        with pytest.raises(ConfigError, match=f"found {message}; leave --shard out"):
            require_divisible(head, FinetuningSettings(**settings))


def test_a_search_of_divided_models_has_the_table_of_one_process(base: Path, two: Path, tmp_path: Path) -> None:
    """All processes train one trial after another, and a trial that falls behind is not trained to its end."""
    searched(base, tmp_path / SEARCHED, shard=False)
    folders = [outputs / f"{SEARCHED}-search" for outputs in (two, tmp_path)]
    actual, expected = (read_json(folder / TABLE_FILE) for folder in folders)
    assert len(actual) == len(expected) == 5
    for record, other in zip(actual, expected, strict=True):
        assert record["by_epoch"] == pytest.approx(other["by_epoch"], abs=0.01)
        assert [record[name] for name in ("trial", "state", *GRID)] == [
            other[name] for name in ("trial", "state", *GRID)
        ]
    pruned = [row for row in actual if row["state"] == "pruned"]
    assert pruned
    for row in pruned:
        assert len(row["by_epoch"]) == 1, "of two"
        assert {len(losses_of(folder / f"trial-{row['trial']:03d}")) for folder in folders} == {4}, "of eight steps"
    for folder in folders:
        trials = sorted(path.name for path in folder.glob("trial-*/model"))
        assert len(trials) == 5 - len(pruned)
