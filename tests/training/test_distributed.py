"""Two processes give the same losses as one."""

import subprocess
import sys
from pathlib import Path

import pytest

from bertsmith.training import RunFolder
from training.toy import environment

TOY = Path(__file__).with_name("toy.py")


def test_two_processes_under_torchrun_give_the_losses_of_one(tmp_path):
    """Sums over both ranks, gradient accumulation in each, one log, one set of checkpoints."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, start in (("one", [sys.executable]), ("two", launcher)):
        program = [*start, str(TOY), str(tmp_path / name), "--plain"]
        result = subprocess.run(program, capture_output=True, text=True, check=False, env=environment())
        assert result.returncode == 0, result.stderr
    runs = [RunFolder.open(tmp_path / name) for name in ("one", "two")]
    logs = [run.metrics() for run in runs]
    assert [(line["kind"], line["step"]) for line in logs[0]] == [(line["kind"], line["step"]) for line in logs[1]]
    for name in ("loss", "gradient_norm", "mean_square"):
        values = [[line[name] for line in log if line["kind"] == "train"] for log in logs]
        assert values[1] == pytest.approx(values[0], rel=1e-4)
    held_out = [[line["held_out_loss"] for line in log if line["kind"] == "evaluation"] for log in logs]
    assert held_out[1] == pytest.approx(held_out[0], rel=1e-3)
    assert runs[1].last_step() == 20
