"""resumed = straight: a killed and resumed run ends with the same bytes as an uninterrupted one."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertsmith.training.loop.run_folder import RunFolder
from training.test_loop import untimed
from training.toy import environment

TOY = Path(__file__).with_name("toy.py")


def program(run: Path, *more: str) -> list[str]:
    return [sys.executable, str(TOY), str(run), *more]


def last_checkpoint(run: Path) -> dict[str, bytes]:
    folder = run / "checkpoints" / "step-00000020"
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("straight") / "run"
    subprocess.run(program(run), check=True, capture_output=True, env=environment())
    return run


def assert_same(straight: Path, run: Path) -> None:
    assert last_checkpoint(run) == last_checkpoint(straight)
    assert untimed(RunFolder.open(run).metrics()) == untimed(RunFolder.open(straight).metrics())
    assert [p.name for p in (run / "checkpoints").iterdir() if p.name.startswith(".")] == []


def test_killed_between_checkpoints_and_resumed_is_the_straight_run(straight, tmp_path):
    """kill -9 of a separate process after step 7, while the next step is computed."""
    run = tmp_path / "run"
    process = subprocess.Popen(program(run, "--pause", "0.05"), stderr=subprocess.DEVNULL, env=environment())
    log = run / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and b'"train", "step": 7' in log.read_bytes()):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert RunFolder.open(run).last_step() == 5
    subprocess.run(program(run, "--resume"), check=True, capture_output=True, env=environment())
    assert_same(straight, run)


@pytest.mark.parametrize("step", [5, 15])
def test_killed_while_a_checkpoint_is_written_and_resumed_is_the_straight_run(straight, tmp_path, step):
    run = tmp_path / "run"
    killed = subprocess.run(
        program(run, "--die-writing", str(step)), check=False, capture_output=True, env=environment()
    )
    assert killed.returncode == -signal.SIGKILL
    assert [p.name for p in (run / "checkpoints").iterdir() if p.name.startswith(f".step-{step:08d}")]
    subprocess.run(program(run, "--resume"), check=True, capture_output=True, env=environment())
    assert_same(straight, run)


def test_a_finished_run_stays_as_it_is_when_it_is_resumed(straight):
    before = last_checkpoint(straight), RunFolder.open(straight).metrics()
    subprocess.run(program(straight, "--resume"), check=True, capture_output=True, env=environment())
    assert (last_checkpoint(straight), RunFolder.open(straight).metrics()) == before


def test_ctrl_c_ends_a_program_with_130_and_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(program(run, "--pause", "0.05"), stderr=subprocess.PIPE, env=environment())
    log = run / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and b'"train", "step": 2' in log.read_bytes()):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == 130, errors
    assert "writing a checkpoint" in errors
    assert re.search(r"stopped after step \d+ of \d+; continue with --resume", errors)
    assert "Traceback" not in errors
    assert RunFolder.open(run).last_step() == RunFolder.open(run).metrics("train")[-1]["step"] < 20
