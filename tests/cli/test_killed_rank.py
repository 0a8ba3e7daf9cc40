"""Commands that train on two processes: one of them killed in the middle, torchrun restarts both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaptation.domain_samples import TOKENIZER, write_base, write_domain
from cli.test_predicting import write_model
from corpus.samples import write_corpus
from distillation.distillation_samples import write_examples
from tasks.task_samples import write_base_model
from training.toy import environment

PROGRAM = Path(__file__).with_name("of_killed_rank.py")
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
ON_CPU = ["--device", "cpu", "--precision", "fp32", "--save-every", "2", "--log-every", "1"]
LABELLED = ["--train", "train.jsonl", "--dev", "dev.jsonl", "--seeds", "1", "--epochs", "1", "--batch-size", "4"]
ROWS = ["--steps", "8", "--max-length", "32", "--rows-per-step", "8"]
DIES_IN = "6"  # the number of a gradient, of 8 or more

# The arguments of each command.
COMMANDS: dict[str, list[str]] = {
    "pretrain": ["pretrain", "corpus", "--size", "tiny", *ROWS, *ON_CPU],
    "finetune": ["finetune", "--model", "base", "--task", "classification", "--no-baselines", *LABELLED, *ON_CPU],
    "distill": ["distill", "--teacher", "task", "--student", "layers", "--layers", "1", *LABELLED, *ON_CPU],
    "distill corpus": [
        *["distill", "corpus", "corpus", "--teacher", "whole", "--student", "layers", "--layers", "1"],
        *[*ROWS, *ON_CPU],
    ],
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_base_model(folder / "base")
    write_model(folder / "task", "single")
    for name, seed in (("train", 0), ("dev", 1)):
        write_examples(folder / name, "single", 48, seed).rename(folder / f"{name}.jsonl")
    write_base(folder / "whole")
    write_domain(folder / "field.txt")
    write_corpus(folder, (folder / "field.txt").read_text().split("\n\n"), TOKENIZER)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)  # three starts of two processes
@pytest.mark.parametrize("name", COMMANDS)
def test_a_process_that_is_killed_changes_nothing(inputs: Path, tmp_path: Path, name: str) -> None:
    """The same number of processes gives the same bytes, whether or not one of them was killed and started again."""
    source = environment()
    source["PYTHONPATH"] += f"{os.pathsep}{PROGRAM.parents[1]}"
    for out, dies_in in (("straight", "0"), ("killed", DIES_IN)):
        done = subprocess.run(
            [sys.executable, *LAUNCHER, str(PROGRAM), dies_in, *COMMANDS[name], "--out", str(tmp_path / out)],
            env=source,
            cwd=inputs,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert ("Signal 9 (SIGKILL)" in done.stderr or "exitcode: -9" in done.stderr) == (out == "killed")
    models = [(tmp_path / out / "model" / "model.safetensors").read_bytes() for out in ("straight", "killed")]
    assert models[0] == models[1]
    assert not list((tmp_path / "killed").glob("**/*.partial"))
