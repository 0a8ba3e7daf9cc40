"""Response selection: the right reply of a conversation among ten, by vectors, by a cross-encoder, and by TF-IDF.

    python benchmarks/response_selection.py --train FILE --dev FILE --folder DIR [--name sgd] [--model starter]
        [--arms vectors,cross-encoder] [--pairs 8000] [--dev-rows N] [--epochs 2] [--batch-size 64]

The files are tables with the columns `context` and `response`, such as the pairs of the Schema-Guided Dialogue corpus.
The first rows of both are used. Every arm is a run of `bertsmith finetune --task response-selection` in DIR, which is
resumed if it was interrupted; scores are those of its report, with intervals, next to the cosines of TF-IDF vectors and
of the model's vectors before training, and paired tests over the dev rows.
"""

import argparse
import itertools
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from harness import begun, write_result

from bertsmith import finetune
from bertsmith.base.storage.files import read_json, read_json_lines, write_json
from bertsmith.recipes.finetuning.baselines import LINES_FILE
from bertsmith.recipes.results.comparison import tested
from bertsmith.recipes.results.finished_run import PREDICTIONS_FILE, REPORT_FILE
from bertsmith.tasks.specs.task import TaskSpec


def first_rows(source: Path, rows: int | None, target: Path) -> Path:
    """A file with the first rows of JSON lines."""
    if not target.exists():
        with source.open(encoding="utf-8") as file:
            target.write_text("".join(itertools.islice(file, rows)), encoding="utf-8")
    return target


def arm_of(run: Path, model: str, train: Path, dev: Path, **settings: Any) -> dict[str, Any]:
    """The scores of a run and of its baselines, and the paired tests against these; read if it ended before."""
    seconds = run / "seconds.json"
    if not (run / REPORT_FILE).exists():
        begin = time.process_time()
        finetune(model, "response-selection", run, train=train, dev=dev, resume=run.exists(), seeds=1, **settings)
        write_json(seconds, time.process_time() - begin)
    report, lines = read_json(run / REPORT_FILE), list(read_json_lines(run / PREDICTIONS_FILE))
    spec = TaskSpec.from_dict(read_json(run / "settings.json")["settings"]["spec"], str(run))
    others: dict[str, list[dict[str, Any]]] = {}
    for line in read_json_lines(run / LINES_FILE):
        others.setdefault(line.pop("baseline"), []).append(line)
    return {
        "scores": {name: value["mean"] for name, value in report["scores"].items()},
        "intervals": report["intervals"],
        "baselines": report["baselines"],
        "tests": {name: tested(spec, [lines], [part]) for name, part in others.items()},
        "train_examples": report["train_examples"],
        "dev_examples": report["dev_examples"],
        "processor_seconds": read_json(seconds) if seconds.exists() else None,
        "settings": report["settings"],
    }


def main() -> None:
    """Trains every arm and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", default="sgd")
    parser.add_argument("--model", default="starter")
    parser.add_argument("--arms", default="vectors,cross-encoder")
    parser.add_argument("--pairs", type=int, default=8000)
    parser.add_argument("--dev-rows", type=int)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    train = first_rows(options.train, options.pairs, options.folder / "train.jsonl")
    dev = first_rows(options.dev, options.dev_rows, options.folder / "dev.jsonl")
    arms = {}
    for scorer in options.arms.split(","):
        run = options.folder / scorer
        settings = {"scorer": scorer, "epochs": options.epochs, "batch_size": options.batch_size, "device": "cpu"}
        arms[scorer] = arm_of(run, options.model, train, dev, **settings)
        print(scorer, arms[scorer]["scores"], arms[scorer]["tests"], flush=True)
    described, name, _ = begun(f"response_selection_{options.name}")
    asked = {name: getattr(options, name) for name in ("pairs", "dev_rows", "epochs", "batch_size")}
    result = {"machine": described, "model": Path(options.model).name, **asked, "arms": arms}
    write_result(name, result)


if __name__ == "__main__":
    main()
