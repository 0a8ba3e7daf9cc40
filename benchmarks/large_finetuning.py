"""What `bertsmith finetune` costs on large cases: memory, seconds before the first step, per step, and those left.

    python benchmarks/large_finetuning.py --data DIR --model starter --cases banking77,clinc150,imdb,novels
        [--seconds 120] [--options "--keep auto --seeds 1"] [--out FILE]

The cases: `banking77`, 77 labels with 10 examples each; `clinc150`, 150 labels with 10 examples each; `imdb`, 1,000
whole film reviews in rows of 512 tokens; `novels`, 50,000 passages of 40 words from 40 novels, whose names are the
labels. The command runs as a user runs it. After `--seconds` of the processor it is interrupted, as by Ctrl-C; what is
left then is estimated from its own steps, next to what its last line says. A case that ends sooner has the scores of
the model that is kept, on official test rows, and on the same rows those of the bag of words that the run saves.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import machine, machine_label, write_result

import bertsmith
from bertsmith.base.storage.files import read_json, read_json_lines

Rows = list[dict[str, str]]
PROGRESS = re.compile(r"training[^:]*: ([\d,]+) of ([\d,]+) steps? .*, ([^,]+) left")
TICKS = os.sysconf("SC_CLK_TCK")


def of_each_label(rows: Iterable[dict[str, str]], count: int) -> Rows:
    """The first rows of each label."""
    counts, kept = Counter[str](), []
    for row in rows:
        counts[row["label"]] += 1
        if counts[row["label"]] <= count:
            kept.append(row)
    return kept


def labelled(rows: Iterable[Any]) -> Rows:
    """Rows with a text and a label, from pairs or from objects with both."""
    pairs = [(row["text"], row["label"]) if isinstance(row, dict) else tuple(row) for row in rows]
    return [{"text": str(text), "label": str(label)} for text, label in pairs]


def novels(data: Path) -> Rows:
    """1,250 passages of 40 words from each of the 40 longest novels."""
    files = sorted((data / "pretrain_gutenberg100").glob("*.txt"), key=lambda path: -path.stat().st_size)[:40]
    rows = []
    for path in files:
        words = path.read_text(encoding="utf-8").split()
        rows += [{"text": " ".join(words[n : n + 40]), "label": path.stem} for n in range(0, 1_250 * 40, 40)]
    return rows


def case(data: Path, name: str) -> tuple[Rows, Rows, str]:
    """The training rows, the test rows (at most 1,000) and the options of a case."""
    if name == "novels":
        return novels(data), [], ""
    if name == "clinc150":
        parts = json.loads((data / "cls/clinc150/data_full.json").read_text(encoding="utf-8"))
        return of_each_label(labelled(parts["train"]), 10), labelled(parts["test"])[::5], ""
    folder, each, options = {
        "banking77": ("intents/banking77", 10, ""),
        "imdb": ("noisy_labels/imdb", 500, "--max-length 512"),
    }[name]
    train, test = (labelled(read_json_lines(data / f"{folder}_{part}.jsonl")) for part in ("train", "test"))
    return of_each_label(train, each), test[:: max(1, len(test) // 1_000)], options


def processor_seconds(process: int) -> float:
    """The processor seconds of a process, its own and those of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def watched(command: list[str], log: Path, most: float) -> dict[str, Any]:
    """What a command cost, which is interrupted after `most` seconds of the processor."""
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
    taken, peak, before, interrupted, began = 0.0, 0, None, False, time.monotonic()
    while process.poll() is None:
        try:
            taken = processor_seconds(process.pid)
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        except (OSError, ValueError):
            break
        if memory := re.search(r"VmHWM:\s+(\d+)", status):
            peak = max(peak, int(memory[1]) // 1024)
        if before is None and PROGRESS.search(log.read_text(encoding="utf-8")):
            before = taken
        if taken > most and not interrupted:
            process.send_signal(signal.SIGINT)
            interrupted = True
        time.sleep(0.5)
    process.wait()
    return {
        "finished": process.returncode == 0,
        "processor_seconds": round(taken, 1),
        "seconds": round(time.monotonic() - began, 1),
        "peak_megabytes": peak,
        "processor_seconds_before_the_first_line_of_steps": before,
    }


def measured(data: Path, model: str, name: str, most: float, options: str) -> dict[str, Any]:
    """The result of one case."""
    train, test, more = case(data, name)
    with tempfile.TemporaryDirectory() as parent:
        rows, run, log = Path(parent) / "train.jsonl", Path(parent) / "run", Path(parent) / "log"
        rows.write_text("".join(json.dumps(row) + "\n" for row in train), encoding="utf-8")
        command = [sys.executable, "-m", "bertsmith", "finetune", "--model", model, "--task", "classification"]
        command += ["--train", str(rows), "--out", str(run), *shlex.split(f"{options} {more}")]
        result = {"case": name, "rows": len(train), "labels": len({row["label"] for row in train})}
        result |= {"options": f"{options} {more}".strip(), **watched(command, log, most)}
        text = log.read_text(encoding="utf-8")
        if lines := PROGRESS.findall(text):
            done, total = (int(number.replace(",", "")) for number in lines[-1][:2])
            steps = [json.loads(line) for path in run.glob("seed-1/metrics.jsonl") for line in path.open()]
            seconds = [step["seconds"] for step in steps if "seconds" in step]
            result |= {"steps_of_a_training": total, "steps_done": done, "its_last_line_says_left": lines[-1][2]}
            result |= {"seconds_of_the_steps": seconds[-1] if seconds else None}
        if result["finished"]:
            report = read_json(run / "report.json")
            result |= {"kept": report["best"], "choice": report.get("choice", []), "dev": report["scores"]}
            folders = {"model": run / "model", "bag of words": run / "bag-of-words"}
            for system, folder in folders.items() if test else ():
                if not (folder / "bertsmith.json").is_file():
                    continue
                answers = bertsmith.load(folder).classify([row["text"] for row in test])
                right = [answer.label == row["label"] for answer, row in zip(answers, test, strict=True)]
                result[f"accuracy of the {system}"] = round(sum(right) / len(right), 4)
        else:
            result["last_lines"] = text.splitlines()[-3:]
    return result


def main() -> None:
    """Runs the cases, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True, help="a model folder, or starter")
    parser.add_argument("--cases", default="banking77,clinc150,imdb,novels")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the processor, for each case")
    parser.add_argument("--options", default="--keep auto", help="of the command")
    chosen = parser.parse_args()
    cases = []
    for name in chosen.cases.split(","):
        cases.append(measured(chosen.data, chosen.model, name, chosen.seconds, chosen.options))
        print(json.dumps(cases[-1]), flush=True)
    about, of_model = machine(), Path(chosen.model).resolve().parent.name if "/" in chosen.model else chosen.model
    write_result(
        f"large_finetuning_{of_model}_{machine_label(about)}_torch-{about['packages']['torch']}",
        {"machine": about, "model": of_model, "seconds": chosen.seconds, "cases": cases},
    )


if __name__ == "__main__":
    main()
