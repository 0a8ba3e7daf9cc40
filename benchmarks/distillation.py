"""What distillation keeps: students of half the layers on three tasks, and the time of 4 x 312 against 12 x 768.

    python benchmarks/distillation.py --data DIR --model DIR --work DIR [--tasks trec,sst-2,clinc-150] [--seeds 2]
    python benchmarks/distillation.py --model DIR --work DIR --latency
    python benchmarks/distillation.py --work DIR --write

DIR of `--data` contains `glue` and `cls` in their official formats. A task has 1,000 labelled training examples and
1,500 others without labels, drawn once. Its cells: the teacher, MODEL fine-tuned on the labels (recipe auto, one
seed); the student of the lower half of its layers, which also reads the unlabelled texts with the teacher's answers;
the same student from the same start on the labels alone, for as many steps; one that has evenly spread layers instead
(one seed); and the teacher without a share of its attention heads, the least important ones first, without training.
Scores are those of official dev or test rows that no side has seen, with the last model of each training.

`--latency` times randomly initialized classifiers in processor seconds, in turns: one row of 128 tokens and eight of
them, fp32 and int8. Published next to it: TinyBERT with 4 layers is 7.5 times smaller and 9.4 times as fast as BERT
base (Jiao et al. 2020, table 1).

All runs are in WORK and are not repeated; `--write` collects them into a file of results.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, machine_label, write_result
from labelled_rows import Row, rows_of
from pruning import head_importance, without_heads

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.distillation.report import milliseconds_of, scored, weight_bytes
from bertsmith.recipes.distillation.students import student_of
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.tasks.task_data.spec_of_model import require_spec
from bertsmith.tasks.task_data.task_files import read_examples

LABELLED, UNLABELLED, MOST_DEV = 1_000, 1_500, 1_000
EPOCHS, RATE = 1.5, 2e-4  # of the students, with the teacher
PRUNED = (0.25, 0.5)
TOKENS, ROWS = 128, 8


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as a table."""
    path.write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]), encoding="utf-8")


def prepared(task: str, data: Path, work: Path) -> Path:
    """The folder of a task with its files."""
    folder = work / task
    if not (folder / "dev.tsv").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        train, dev = rows_of(task, data)
        train = [(" ".join(text.split()), label) for text, label in train]
        order = generator(1, f"distillation {task}").permutation(len(train)).tolist()
        write_rows(folder / "train.tsv", [train[number] for number in order[:LABELLED]])
        write_rows(folder / "more.tsv", [train[number] for number in order[LABELLED : LABELLED + UNLABELLED]])
        kept = generator(2, f"distillation {task}").permutation(len(dev))[:MOST_DEV]
        write_rows(folder / "dev.tsv", [dev[number] for number in sorted(kept.tolist())])
    return folder


def task_cells(task: str, options: argparse.Namespace) -> None:
    """Trains teacher and students of a task, as far as they are not there, and writes WORK/TASK/cells.json."""
    folder, begun = prepared(task, options.data, options.work), time.process_time()
    train, dev, more = (folder / f"{name}.tsv" for name in ("train", "dev", "more"))
    teacher, student, spread = folder / "teacher", folder / "student", folder / "spread"
    shared: dict[str, Any] = {"train": train, "dev": dev, "keep": "last", "evaluate_every": 10**6}
    if not (teacher / "report.json").is_file():
        bertsmith.finetune(
            options.model, "classification", teacher, seeds=1, baselines=False, resume=teacher.is_dir(), **shared
        )
    taught: dict[str, Any] = {"unlabelled": more, "epochs": EPOCHS, "learning_rate": RATE, "logits": folder / "logits"}
    report = bertsmith.distill(
        teacher, student, seeds=options.seeds, without_teacher=True, resume=student.is_dir(), **shared, **taught
    )
    cells: dict[str, Any] = {"rows": report.to_dict()["rows"], "metric": report.metric}
    for name, run in (("student", student), ("without teacher", student / "without-teacher")):
        cells[name] = [run_report["scores"][report.metric] for run_report in read_json(run / "report.json")["runs"]]
    cells["pruned heads"] = pruned_scores(teacher / "model", train, dev)
    cells["processor_seconds"] = round(time.process_time() - begun, 1)
    write_json(folder / "cells.json", cells)
    layers = load_any(teacher).config.num_hidden_layers
    even = student_of(load_any(teacher), layers=None, spread=True).layers
    distilled = bertsmith.distill(
        teacher, spread, layers=",".join(map(str, even)), start="random", seeds=1, without_teacher=False, times=False,
        resume=spread.is_dir(), **shared, **taught,
    )  # fmt: skip
    cells["evenly spread layers"] = {"layers": even, "of": layers, "score": distilled.rows[1]["score"]}
    cells["processor_seconds"] = round(time.process_time() - begun, 1)
    write_json(folder / "cells.json", cells)
    print(task, json.dumps(cells), flush=True)


def pruned_scores(model: Path, train: Path, dev: Path) -> dict[str, float]:
    """The scores of a model without shares of its heads, by the share."""
    folder = load_any(model)
    spec = require_spec(folder)
    examples = {path: list(read_examples("classification", path).examples) for path in (train, dev)}
    importance = head_importance(folder, examples[train][:100])
    scores = {}
    for share in PRUNED:
        predictor = load_predictor(without_heads(folder, importance, share), device="cpu")
        scores[f"{share:.0%}"] = scored(predictor, spec, examples[dev])["score"]
    return scores


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of randomly initialized classifiers of 12 x 768 and 4 x 312."""
    base = load_any(options.model)
    spec = TaskSpec(
        kind="classification", name="classification", labels=("0", "1"), settings=TaskSettings(max_length=TOKENS)
    )
    tokenizer = base.require_tokenizer()
    words = [piece for piece in tokenizer.vocabulary.pieces if piece.isascii() and piece.isalpha() and len(piece) > 3]
    draws = generator(1, "texts of the latency")
    texts = [" ".join(draws.choice(words, TOKENS).tolist()) for _ in range(ROWS)]
    systems, sizes = {}, {}
    for name in ("12x768", "4x312"):
        folder = options.work / "latency" / name
        if not folder.is_dir():
            head = task_for(spec).head
            loaded = load_for_task(student_of(base, name).folder, head, keep_head=False)
            metadata = ModelMetadata(task="classification", labels=spec.labels, spec=spec.to_dict())
            save_pretrained(folder, loaded.model, tokenizer, metadata, trained=("classifier", "pooler"))
        sizes[name] = {
            "parameters": sum(tensor.numel() for tensor in load_any(folder).tensors.values()),
            "bytes": weight_bytes(folder),
        }

        def load(precision: str, folder: Path = folder) -> Any:
            predictor = load_predictor(folder, device="cpu", precision=precision)
            examples = [example_of(number, text) for number, text in enumerate(texts)]
            return lambda count: predictor.predict(examples[:count])

        systems[name] = load
    waits = milliseconds_of(systems, ROWS, options.rounds)
    ratios = {
        f"{precision}, {case}": round(waits["12x768"][precision][case] / waits["4x312"][precision][case], 2)  # type: ignore[index]
        for precision in ("fp32", "int8")
        for case in ("one", "batch")
        if waits["12x768"].get(precision)
    }
    smaller = round(sizes["12x768"]["parameters"] / sizes["4x312"]["parameters"], 2)
    published = {"TinyBERT-4, smaller": 7.5, "TinyBERT-4, as fast": 9.4}
    return {
        "tokens": TOKENS, "batch": ROWS, "rounds": options.rounds, "milliseconds_per_row": waits, "sizes": sizes,
        "times_as_fast": ratios, "times_smaller": smaller, "published": published,
    }  # fmt: skip


def example_of(number: int, text: str) -> Any:
    """A text as an example."""
    from bertsmith.tasks.datasets.examples import TextExample

    return TextExample(id=str(number), first=text)


def summary(options: argparse.Namespace) -> None:
    """Writes what is in WORK to a file of results, and prints the table."""
    described, tasks = machine(), {}
    for path in sorted(options.work.glob("*/cells.json")):
        cells = read_json(path)
        score = {row["name"]: row["score"] for row in cells["rows"]}
        mine, alone = cells["student"], cells["without teacher"]
        spread = max(float(np.std(part, ddof=1)) if len(part) > 1 else 0.0 for part in (mine, alone))
        kept, gain = float(np.mean(mine)) / score["teacher"], float(np.mean(mine) - np.mean(alone))
        tasks[path.parent.name] = {**cells, "kept": round(kept, 4), "gain": round(gain, 4), "spread": round(spread, 4)}
        print(f"{path.parent.name}: teacher {score['teacher']:.4f}, student {mine}, without {alone}; keeps {kept:.1%}, "
              f"gains {gain:+.4f} (spread {spread:.4f}); {cells['pruned heads']}, "
              f"{cells.get('evenly spread layers')}, {cells['processor_seconds']} s")  # fmt: skip
    settings = {
        "labelled": LABELLED, "unlabelled": UNLABELLED, "epochs": EPOCHS, "learning_rate": RATE, "seeds": options.seeds,
    }  # fmt: skip
    result: dict[str, Any] = {"machine": described, "settings": settings, "tasks": tasks}
    if (options.work / "latency.json").is_file():
        result["latency"] = read_json(options.work / "latency.json")
    write_result(f"distillation_{machine_label(described)}_torch-{described['packages']['torch']}", result)


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", help="the model that teachers are fine-tuned from")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tasks", default="trec,sst-2,clinc-150")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each student [2]")
    parser.add_argument("--rounds", type=int, default=5, help="of the latency [5]")
    parser.add_argument("--latency", action="store_true", help="time the shapes of TinyBERT and BERT base instead")
    parser.add_argument("--write", action="store_true", help="collect what is in WORK instead")
    options = parser.parse_args()
    if options.write:
        summary(options)
    elif options.latency:
        with quiet():
            write_json(options.work / "latency.json", latency(options))
        print(json.dumps(read_json(options.work / "latency.json"), indent=1))
    else:
        for task in options.tasks.split(","):
            task_cells(task, options)


if __name__ == "__main__":
    main()
