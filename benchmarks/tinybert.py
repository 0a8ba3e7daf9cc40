"""TinyBERT from end to end: what distillation on text, the first stage on the task, and augmentation are worth.

    python benchmarks/tinybert.py --data DIR --model MODEL --words VECTORS --work WORK [--steps 1500] [--seeds 2]

The teacher is MODEL, fine-tuned on 1,000 questions of TREC; the student has --layers new layers of a width of --width.
Arms: the student from random parameters, with soft targets; after distillation on text (TinyBERT's general stage:
states and attention scores of MODEL on novels); after that, with --first epochs of the same losses on the task before
the predictions (its task stage); and all of it on examples that are augmented --copies times, as in the paper with
fillings of a masked LM (the starter) and neighbors of word vectors. All arms take the same number of steps on the
predictions. Scores are accuracies on the 500 questions of the official test set.

Every model is kept in WORK, so that a stopped run resumes.

Source: Jiao et al. (2020), "TinyBERT: Distilling BERT for Natural Language Understanding", section 4.4, table 2.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from harness import machine, machine_label, write_result

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.text.corpus.build import build_corpus
from distillation import prepared

TASK = "trec"
NOVELS = 40


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Trains what is missing and writes the result; returns it."""
    options = _options(arguments)
    torch.set_num_threads(1)
    work = options.work
    folder = prepared(TASK, options.data, work)
    shared: dict[str, Any] = {"train": folder / "train.tsv", "dev": folder / "dev.tsv", "keep": "last"}
    teacher = work / "teacher"
    with quiet():
        if not (teacher / "report.json").is_file():
            resume = teacher.is_dir()
            bertsmith.finetune(
                options.model, "classification", teacher, seeds=1, baselines=False, resume=resume, **shared
            )
        general = _general(options)
    shape = f"{options.layers}x{options.width}"
    augmented = {"augment": options.copies, "fill_with": "starter", "word_vectors": str(options.words)}
    first = {"first_stage": options.first}
    arms: dict[str, tuple[str, dict[str, Any]]] = {
        "random parameters": (shape, {}),
        "on text first": (str(general), {}),
        "on text first, then on the task's states": (str(general), first),
        "all of it, augmented": (str(general), {**first, **augmented}),
    }
    rows = {}
    for number, (arm, (student, settings)) in enumerate(arms.items()):
        if arm in options.arms or not options.arms:
            rows[arm] = _row(teacher, work / f"student-{number}", student, settings, shared, options)
            print(arm, rows[arm], flush=True)
    about = machine()
    asked = ("layers", "width", "steps", "first", "copies", "epochs", "rate", "seeds")
    values = {
        "machine": about,
        "settings": {name: getattr(options, name) for name in asked},
        "teacher": read_json(teacher / "report.json")["scores"]["accuracy"]["mean"],
        "general": read_json(work / "general.json"),
        "rows": rows,
    }
    write_result(options.out or f"tinybert_{machine_label(about)}_torch-{torch.__version__}", values)
    return values


def _general(options: argparse.Namespace) -> Path:
    """The student after the general stage, with its cost in WORK/general.json."""
    run, corpus = options.work / "general", options.work / "corpus"
    note = options.work / "general.json"
    if not note.is_file():
        if not corpus.is_dir():
            novels = sorted((options.data / "pretrain_gutenberg100").glob("*.txt"))[:NOVELS]
            build_corpus(novels, load_any(options.model).require_tokenizer(), corpus, workers=1)
        begun = time.process_time()
        bertsmith.distill_corpus(
            options.model, corpus, run, method="tinybert", student=f"{options.layers}x{options.width}",
            steps=options.steps, max_length=64, resume=run.is_dir(),
        )  # fmt: skip
        write_json(note, {"steps": options.steps, "processor_seconds": round(time.process_time() - begun, 1)})
    return Path(run) / "model"


def _row(
    teacher: Path,
    run: Path,
    student: str,
    settings: dict[str, Any],
    shared: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """The scores of an arm, and its processor seconds."""
    note = run.with_suffix(".json")
    if not note.is_file():
        # With copies, an epoch has that many more steps.
        epochs = options.epochs / (1 + settings.get("augment", 0))
        run_options = {**settings}
        if "first_stage" in run_options and "augment" in run_options:
            run_options["first_stage"] = run_options["first_stage"] / (1 + run_options["augment"])
        begun = time.process_time()
        with quiet():
            bertsmith.distill(
                teacher, run, student=student, seeds=options.seeds, without_teacher=False, times=False, epochs=epochs,
                learning_rate=options.rate, start="random", resume=run.is_dir(), **run_options, **shared,
            )  # fmt: skip
        scores = [training["scores"]["accuracy"] for training in read_json(run / "report.json")["runs"]]
        write_json(note, {"scores": scores, "processor_seconds": round(time.process_time() - begun, 1)})
    recorded = read_json(note)
    mean = spread(recorded["scores"])
    return {"mean": round(mean.mean, 4), "deviation": round(mean.deviation, 4), **recorded}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--model", required=True, help="the encoder that the teacher is made from")
    parser.add_argument("--words", type=Path, required=True, help="a folder of word vectors")
    parser.add_argument("--work", type=Path, required=True, help="the folder of models")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=312, help="with as many attention heads as MODEL")
    parser.add_argument("--steps", type=int, default=1500, help="on text")
    parser.add_argument("--first", type=float, default=5.0, help="epochs on the states of the task")
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--epochs", type=float, default=10.0, help="on predictions; divided by the copies and one")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--arms", nargs="*", default=[], help="only these")
    parser.add_argument("--out", help="the result, without its ending [in results/]")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
