"""Two processes of torchrun fine-tune, search and distill with the results of one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import bertsmith
from adaptation.domain_samples import write_base, write_domain, write_general
from bertsmith.base.storage.files import read_json
from distillation.distillation_samples import write_examples
from tasks.task_samples import write_base_model
from training.logs import losses_of

PROGRAM = Path(__file__).with_name("of_processes.py")
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What the program writes as one process, and as two."""
    folder = tmp_path_factory.mktemp("processes")
    base = write_base_model(folder / "base")
    for name, seed in (("train", 0), ("dev", 1)):
        write_examples(folder / name, "single", 24, seed).rename(folder / f"{name}.jsonl")
    write_base(folder / "whole")
    write_domain(folder / "field.txt")
    write_general(folder / "general.txt")
    paths = [str(Path(bertsmith.__file__).parents[1]), str(PROGRAM.parents[1])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    for name, start in (("one", [sys.executable]), ("two", LAUNCHER)):
        program = [*start, str(PROGRAM), str(base), str(folder / name)]
        result = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
        assert result.returncode == 0, result.stderr[-4000:]
        if name == "two":
            assert result.stderr.count("2 processes share every step") >= 1
            assert result.stderr.count("2 processes train 3 seeds") == 1
    return folder / "one", folder / "two"


def without_times(report: Any) -> Any:
    """A report without what differs between two equal runs."""
    if isinstance(report, dict):
        times = ("seconds", "tokens_per_second")
        return {name: without_times(value) for name, value in report.items() if name not in times}
    return [without_times(entry) for entry in report] if isinstance(report, list) else report


@pytest.mark.parametrize(
    "run", ["shared/seed-1", "vectors/seed-1", "student/seed-1", "student/first-stage/seed-1", "taught"]
)
def test_processes_that_share_every_step_have_the_losses_of_one(outputs: tuple[Path, Path], run: str) -> None:
    """Sums over two processes differ in the last digits of fp32."""
    alone, two = (losses_of(output / run) for output in outputs)
    assert len(set(alone)) > 2
    assert two == pytest.approx(alone, rel=1e-3)


def test_processes_that_share_every_step_write_one_report_of_one_model(outputs: tuple[Path, Path]) -> None:
    alone, two = (read_json(output / "shared" / "report.json") for output in outputs)
    assert two["scores"] == alone["scores"]
    assert two["best"] == alone["best"]
    tensors = [load_file(output / "shared" / "model" / "model.safetensors") for output in outputs]
    assert tensors[0].keys() == tensors[1].keys()
    assert max(float((tensors[0][name] - tensors[1][name]).abs().max()) for name in tensors[0]) < 1e-2
    assert not list((outputs[1] / "shared").glob("**/*.partial"))


def test_an_adaptation_in_two_processes_reports_the_losses_of_one(outputs: tuple[Path, Path]) -> None:
    alone, two = (read_json(output / "adapted" / "report.json") for output in outputs)
    for text in ("field", "general"):
        assert two["losses"][text]["before"] == alone["losses"][text]["before"]
        after = [report["losses"][text]["after"]["per_word"] for report in (alone, two)]
        assert after[1] == pytest.approx(after[0], rel=1e-3)
        assert after[0] != alone["losses"][text]["before"]["per_word"]
    assert two["added"] == alone["added"]


def test_whole_seeds_in_two_processes_are_those_of_one_bit_for_bit(outputs: tuple[Path, Path]) -> None:
    alone, two = outputs
    for name in ("spread/model", "spread/seed-1/model", "spread/seed-2/model", "spread/seed-3/model"):
        assert (two / name / "model.safetensors").read_bytes() == (alone / name / "model.safetensors").read_bytes()
    reports = [without_times(read_json(output / "spread" / "report.json")) for output in outputs]
    assert reports[0] == reports[1]


def test_whole_trials_in_two_processes_give_the_table_of_one(outputs: tuple[Path, Path]) -> None:
    tables = [without_times(read_json(output / "search-search" / "trials.json")) for output in outputs]
    assert tables[0] == tables[1]
    assert sorted(row["learning_rate"] for row in tables[0]) == [1e-9, 1e-3, 5e-3]
