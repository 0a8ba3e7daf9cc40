"""Speed of `pretrain`, `finetune` and `serve` on an idle machine and next to two busy processes.

    python benchmarks/busy_machine.py [--seconds 6] [--rounds 2] [--spins 1000 10000]

Run it on two idle cores (`taskset -c 0,1` on a larger machine). Every run is a process of its own, as a user starts it:
a tiny BERT in pre-training, a mini BERT in fine-tuning (tokens per second of the steps, from metrics.jsonl), and a mini
BERT behind the server (vectors of short texts per second, eight clients). Two sides alternate: *ours*, and *before*,
where all threads share every product and spin as long as libgomp does by default (docs/decisions/0018). `--spins` adds
sides that differ from ours only in GOMP_SPINCOUNT.

Next to two busy processes on two cores, the fair share of a program is half of its idle speed.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, machine_label, spread, write_result
from server_process import ask_all, request_bytes, served

BEFORE, OURS = "before", "ours"
DEFAULT_SPINS = "300000"  # of libgomp, without OMP_WAIT_POLICY
STATES = {"idle": 0, "busy": 2}
WARM_UP = 3  # steps at the start of a run that do not count
CLIENTS, BATCH = 8, 32
NEVER = 10**6  # steps: a run is stopped before it ends

# The command line with one lane, as it was without side-by-side micro-batches.
ONE_LANE = (
    "import sys; from bertsmith.training.loop import lanes; lanes.MOST_LANES = 1; "
    "from bertsmith.app.cli.app import main; sys.argv[0] = 'bertsmith'; main()"
)
KEEP_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with this program
SILENT = {"log_every": 1, "save_minutes": 1000}


def arguments_of(options: dict[str, Any]) -> list[str]:
    """Options as arguments of a command."""
    return [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def environment(side: str) -> dict[str, str]:
    """The environment of a side."""
    ours = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    spins = {BEFORE: {"GOMP_SPINCOUNT": DEFAULT_SPINS}, OURS: {}}.get(side)
    return ours | ({"GOMP_SPINCOUNT": side.removeprefix("spins ")} if spins is None else spins)


def bertsmith(side: str, *arguments: str) -> list[str]:
    """The command line of a side."""
    program = ["-c", ONE_LANE] if side == BEFORE else ["-m", "bertsmith"]
    return [sys.executable, *program, *arguments]


def prepare(work: Path) -> None:
    """Writes texts, a corpus, a mini BERT and labelled examples of random words."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, size=rng.integers(2, 10))) for _ in range(20_000)]
    chosen = rng.zipf(1.3, size=600_000) % len(words)
    text = [words[index] for index in chosen]
    cuts = np.cumsum(rng.integers(4, 25, size=60_000))
    lines = [" ".join(text[a:b]) + " ." for a, b in itertools.pairwise(cuts[cuts < len(text)].tolist())]
    (work / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = ["label,text", *(f"{'even' if number % 2 else 'odd'},{line}" for number, line in enumerate(lines[:4000]))]
    (work / "train.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    steps = (
        ("vocab", "text.txt", "--size", "8000", "--out", "vocab.txt"),
        ("corpus", "text.txt", "--vocab", "vocab.txt", "--out", "corpus", "--held-out", "0"),
        ("pretrain", "corpus", "--size", "mini", "--steps", "1", "--out", "mini", "--warmup-steps", "0"),
    )
    for step in steps:
        done = subprocess.run(bertsmith(OURS, *step), cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"bertsmith {step[0]}: {done.stderr}")


def training_speed(side: str, command: list[str], work: Path, seconds: float) -> float:
    """Tokens per second of the steps in some seconds of a training, after its first steps."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        run = Path(folder) / "run"
        process = subprocess.Popen(
            bertsmith(side, *command, "--out", str(run)),
            cwd=work,
            env=environment(side),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and len(steps_of(run)) <= WARM_UP:
            time.sleep(0.2)
        time.sleep(seconds)
        while process.poll() is None and len(steps_of(run)) <= WARM_UP + 1:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
        lines = steps_of(run)
        if len(lines) <= WARM_UP + 1:
            raise SystemExit(f"bertsmith {command[0]}: {said}")
        first, last = lines[WARM_UP], lines[-1]
        return float((last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"]))


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The complete lines of the steps in the log of a run, wherever the command writes it in its folder."""
    logs = sorted(run.rglob("metrics.jsonl"))
    whole = logs[0].read_bytes().rpartition(b"\n")[0].splitlines() if logs else []
    return [line for line in map(json.loads, whole) if line["kind"] == "train"]


def serving_speed(side: str, work: Path, seconds: float) -> float:
    """Texts per second that a server turns into vectors."""
    texts = (work / "text.txt").read_text(encoding="utf-8").splitlines()
    requests = [request_bytes("/v1/embeddings", {"model": "mini", "input": text}) for text in texts[:2000]]
    cores = len(os.sched_getaffinity(0))
    before, of_side = dict(os.environ), environment(side)
    os.environ.clear()
    os.environ.update(of_side)
    try:
        with served([f"mini={work / 'mini' / 'model'}"], threads=cores) as process:
            asyncio.run(ask_all(process, requests[:BATCH], CLIENTS))
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                begin = count % len(requests)
                replies = asyncio.run(ask_all(process, requests[begin : begin + BATCH], CLIENTS))
                assert all(reply.status == 200 for reply in replies), replies[0]
                count += len(replies)
            return count / (time.perf_counter() - start)
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that keep a core busy each."""
    others = [subprocess.Popen([sys.executable, "-c", KEEP_BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    """Measures all commands in both states, prints and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement [6]")
    parser.add_argument("--rounds", type=int, default=2, help="[2]")
    parser.add_argument("--spins", nargs="*", default=[], help="further values of GOMP_SPINCOUNT to try [none]")
    parser.add_argument("--commands", nargs="*", default=["pretrain", "finetune", "serve"], help="[all three]")
    parser.add_argument("--no-result", action="store_true", help="write no file")
    options = parser.parse_args()
    sides = [BEFORE, OURS, *(f"spins {value}" for value in options.spins)]
    described = machine()
    speeds: dict[str, dict[str, dict[str, list[float]]]] = {
        command: {state: {side: [] for side in sides} for state in STATES} for command in options.commands
    }
    small = {"size": "tiny", "dropout": 0, "rows_per_step": 32, "max_length": 64, "steps": NEVER, **SILENT}
    tuned = {
        "model": "mini/model",
        "train": "train.csv",
        "task": "classification",
        "seeds": 1,
        "epochs": 1000,
        "evaluate_every": NEVER,
        **SILENT,
    }
    commands = {
        "pretrain": ["pretrain", "corpus", *arguments_of(small), "--no-evaluate-at-start"],
        "finetune": ["finetune", *arguments_of(tuned)],
    }
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(work)
        for number in range(options.rounds):
            for command, (state, others) in itertools.product(options.commands, STATES.items()):
                with busy(others):
                    for side in sides if number % 2 == 0 else reversed(sides):
                        if command == "serve":
                            speed = serving_speed(side, work, options.seconds)
                        else:
                            speed = training_speed(side, commands[command], work, options.seconds)
                        speeds[command][state][side].append(round(speed, 2))
                        print(f"round {number + 1}, {command}, {state}, {side}: {speed:,.1f} per second", flush=True)
    summaries = {command: summary(of_command, sides) for command, of_command in speeds.items()}
    for command, shares in summaries.items():
        for side, values in shares.items():
            lost, reached = values["idle_speed_lost"], values["fair_share_reached"]
            print(f"{command}, {side}: {lost:.1%} of the idle speed lost, {reached:.0%} of the fair share reached")
    if not options.no_result:
        name = f"busy_machine_{machine_label(described)}_torch-{described['packages']['torch']}"
        settings = {"seconds": options.seconds, "rounds": options.rounds}
        write_result(name, {"machine": described, **settings, "summary": summaries, "per_second": speeds})


def summary(speeds: dict[str, dict[str, list[float]]], sides: list[str]) -> dict[str, dict[str, Any]]:
    """For each side: the share of the idle speed of *before* that it loses, and of the fair share that it reaches."""
    idle = {side: statistics.median(speeds["idle"][side]) for side in sides}
    # The faster side defines what is fair, so that a slow one does not set its own standard.
    fair = max(idle.values()) / 2
    return {
        side: {
            "idle": spread(speeds["idle"][side]),
            "busy": spread(speeds["busy"][side]),
            "idle_speed_lost": round(1 - idle[side] / idle[BEFORE], 3),
            "fair_share_reached": round(statistics.median(speeds["busy"][side]) / fair, 3),
        }
        for side in sides
    }


if __name__ == "__main__":
    main()
