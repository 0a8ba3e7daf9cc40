"""Two processes give the same losses as one."""

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from bertsmith.base.core.errors import RunError
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import process_group
from bertsmith.training.loop.loop import TIMES
from bertsmith.training.loop.run_folder import RunFolder
from training.toy import environment

TOY = Path(__file__).with_name("toy.py")


LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def ran(*program: object) -> str:
    """What a program that succeeds writes to stderr."""
    result = subprocess.run([*map(str, program)], capture_output=True, text=True, check=False, env=environment())
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_two_processes_under_torchrun_give_the_losses_of_one_even_if_one_of_them_is_killed(tmp_path):
    """Sums over both ranks, gradient accumulation in each, one log, one set of checkpoints; torchrun restarts both."""
    ran(sys.executable, TOY, tmp_path / "one", "--plain")
    ran(*LAUNCHER, TOY, tmp_path / "two", "--plain")
    said = ran(*LAUNCHER, "--max-restarts", "1", TOY, tmp_path / "killed", "--plain", "--die-at", "13")
    lost = [line for line in said.splitlines() if "lost the connection to another one" in line]
    assert len(lost) == 1, said
    assert "error: expected all 2 processes until the end; found process 0" in lost[0]
    killed, two = (RunFolder.open(tmp_path / name) for name in ("killed", "two"))
    assert without_times(killed) == without_times(two)
    for name in ("model", "optimizer"):
        ends = [(run.path / "checkpoints" / "step-00000020" / f"{name}.safetensors") for run in (killed, two)]
        assert ends[0].read_bytes() == ends[1].read_bytes()
    runs = [RunFolder.open(tmp_path / name) for name in ("one", "two")]
    logs = [[line for line in run.metrics() if line["kind"] != "processes"] for run in runs]
    assert [(line["kind"], line["step"]) for line in logs[0]] == [(line["kind"], line["step"]) for line in logs[1]]
    for name in ("loss", "gradient_norm", "mean_square"):
        values = [[line[name] for line in log if line["kind"] == "train"] for log in logs]
        assert values[1] == pytest.approx(values[0], rel=1e-4)
    held_out = [[line["held_out_loss"] for line in log if line["kind"] == "evaluation"] for log in logs]
    assert held_out[1] == pytest.approx(held_out[0], rel=1e-3)
    assert runs[1].last_step() == 20


def test_torchrun_resumes_no_run_that_was_there_before(tmp_path):
    run = tmp_path / "run"
    ran(sys.executable, TOY, run, "--plain", "--steps", "5")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused = subprocess.run(
        [*LAUNCHER, "--max-restarts", "1", str(TOY), str(run), "--plain", "--steps", "5"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert refused.returncode != 0
    assert refused.stderr.count("found a run; resume it with --resume or name another folder") == 2, refused.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_failed_between_processes_is_said(monkeypatch):
    failure = mock.Mock(side_effect=RuntimeError("NCCL error: unhandled cuda error\nmore"))
    monkeypatch.setattr("bertsmith.base.processes.distributed.rendezvous", failure)
    message = "found process 1 lost the connection to another one: NCCL error: unhandled cuda error; see"
    with pytest.raises(RunError, match=message), process_group(Rank(index=1, count=2), torch.device("cpu")):
        pass
    failure.side_effect = RuntimeError("shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"), process_group(Rank(count=2), torch.device("cpu")):
        pass


def without_times(run: RunFolder) -> list[dict[str, object]]:
    """The log of a run without what differs between two equal runs."""
    lines = [line for line in run.metrics() if line["kind"] != "processes"]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]
