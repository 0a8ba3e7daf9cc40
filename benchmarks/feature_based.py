"""Frozen features against fine-tuning: the six layer choices of the paper's table, and the fine-tuned model.

    python benchmarks/feature_based.py --model MODEL --task ner --train TRAIN.conll --dev DEV.conll
    python benchmarks/feature_based.py --model MODEL --task sst-2 --train train.tsv --dev dev.tsv

Tags are learned by a two-layer BiLSTM on the hidden states of the frozen encoder, text classes by a scikit-learn
classifier on its text vectors (with plain sums of layers). The last row fine-tunes the same model on the same examples.
The BiLSTM and the fine-tuned model report their best epoch on the dev examples, since the paper reports dev scores.
Each row is trained once per seed; the table shows the mean. Rows that are in the result with the same settings are not
measured again. The published numbers are those of BERT base (cased) on the dev set of CoNLL-2003, trained on the full
training set: the order of the rows is comparable, the numbers are not.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feature_probe import PROBES, FeatureProbe
from harness import RESULTS, machine, machine_label

from bertsmith.base.storage.files import read_json, write_json
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.head_inputs import BILSTM
from bertsmith.models.parts.part_names import READER
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.encoding.row_encoder import POOLINGS
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import TAGS, task_name
from bertsmith.tasks.specs.tagging import TaggingTask
from bertsmith.tasks.specs.task import Task
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task

FINE_TUNED = "fine-tuned"
# Devlin et al. (2019), table 7: F1 in percent.
PUBLISHED = {
    "embeddings": 91.0,
    "second-to-last": 95.6,
    "last": 94.9,
    "sum-last-4": 95.9,
    "concat-last-4": 96.1,
    "sum-all": 95.5,
    FINE_TUNED: 96.4,
}


def tagger_row(task: Task, data: TaskData, layers: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of a layer choice: one BiLSTM per seed."""
    settings = FinetuningSettings(
        reads=BILSTM,
        bilstm_layers=layers,
        bilstm_cells=arguments.width,
        freeze="body",
        batch_size=arguments.batch,
        epochs=arguments.epochs,
        precision=arguments.precision,
        baselines=False,
    )
    recipe = RecipeSettings(
        learning_rate=arguments.tagger_rate, weight_decay=0.0, bias_correction=True, save_minutes=None, log_every=50
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        result = finetune(arguments.model, task.spec, data, out, settings, recipe, seeds=arguments.seeds)
        mixes = [load_any(run / "model").tensors.get(f"{READER}.mix.scores") for run in sorted(out.glob("seed-*"))]
    return {
        "scores": [dict(run.scores) for run in result.runs],
        "layer_shares": [[] if scores is None else scores.softmax(0).tolist() for scores in mixes],
    }


def probe_row(
    encoder: FrozenEncoder, task: ClassificationTask, data: TaskData, layers: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The row of a layer choice: one classifier per seed; logistic regression does not depend on the seed."""
    scores = []
    for seed in range(1, (1 if arguments.classifier == "logistic" else arguments.seeds) + 1):
        probe = FeatureProbe(
            encoder,
            task,
            layers=layers,
            pooling=arguments.pooling,
            classifier=arguments.classifier,
            penalty=arguments.penalty,
            seed=seed,
        )
        probe.fit(data.train)
        scores.append(probe.score(data.dev))
    return {"width": probe.choice.width(encoder.hidden_size), "scores": scores}


def fine_tuned_row(task: Task, data: TaskData, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of the model fine-tuned on the same examples."""
    settings = FinetuningSettings(epochs=arguments.finetuning_epochs, precision=arguments.precision)
    recipe = RecipeSettings(
        learning_rate=arguments.finetuning_rate,
        bias_correction=arguments.bias_correction,
        epsilon=arguments.epsilon,
        save_minutes=None,
        log_every=50,
    )
    with tempfile.TemporaryDirectory() as folder:
        result = finetune(
            arguments.model, task.spec, data, Path(folder) / "run", settings, recipe, seeds=arguments.seeds
        )
    return {"width": None, "scores": [dict(run.scores) for run in result.runs]}


def table(rows: dict[str, dict[str, Any]], metric: str, published: bool) -> str:
    """The rows in Markdown, next to the published ones if the task is the same."""
    columns = ["vector", f"dev {metric}", "width", "seconds"] + ["published F1 (CoNLL-2003, BERT base)"] * published
    lines = [f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    for name, row in rows.items():
        cells = [name, f"{100 * row['mean'][metric]:.1f}", str(row["width"] or ""), f"{row['seconds']:.0f}"]
        cells += [f"{PUBLISHED[name]:.1f}"] * published
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The parsed options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder, Google checkpoint or hub id")
    parser.add_argument("--name", help="name of the model in the result [the last part of --model]")
    parser.add_argument("--task", default="ner", help="a named task that has tags or classes [ner]")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=1200, help="use the first N training examples [1200]")
    parser.add_argument("--dev-limit", type=int, help="use the first N dev examples [all]")
    parser.add_argument("--seeds", type=int, default=1, help="training runs per row [1]")
    parser.add_argument("--precision", default="auto", help="precision of the encoder, in both arms [auto]")
    parser.add_argument("--epochs", type=float, default=5.0, help="epochs of the BiLSTM [5]")
    parser.add_argument("--width", type=int, default=256, help="width of the BiLSTM; 768 in the paper [256]")
    parser.add_argument("--batch", type=int, default=16, help="batch size of the BiLSTM, in sentences [16]")
    parser.add_argument("--tagger-rate", type=float, default=3e-3, help="highest learning rate of the BiLSTM [3e-3]")
    parser.add_argument("--classifier", default="logistic", choices=PROBES)
    parser.add_argument("--pooling", default="mean", choices=POOLINGS)
    parser.add_argument("--penalty", type=float, default=10.0, help="L2 penalty of the classifier [10]")
    parser.add_argument("--finetuning-epochs", type=float, default=5.0, help="[5]")
    parser.add_argument("--finetuning-rate", type=float, default=5e-5, help="[5e-5]")
    parser.add_argument("--bias-correction", action="store_true", help="bias correction of Adam in fine-tuning")
    parser.add_argument("--epsilon", type=float, default=1e-6, help="epsilon of Adam in fine-tuning [1e-6]")
    parser.add_argument("--out", type=Path, help="path of the result [results/]")
    return parser.parse_args(arguments)


def main() -> None:
    """Computes the table of one task and writes the result."""
    arguments = parse()
    name = task_name(arguments.task)
    # Labels are taken from the whole file, so that no dev example has an unknown label.
    spec, data = read_task(name, arguments.train, arguments.dev)
    data = dataclasses.replace(data, train=data.train[: arguments.limit], dev=data.dev[: arguments.dev_limit])
    task = task_for(spec)
    if not isinstance(task, TaggingTask | ClassificationTask):
        raise SystemExit(f"this benchmark compares tags or classes; {name} is a {spec.kind} task")
    encoder = load_frozen_encoder(arguments.model, precision=arguments.precision)
    described = machine()
    label = f"{name}_{machine_label(described)}_torch-{described['packages']['torch']}"
    path = arguments.out or RESULTS / f"feature_based_{label}.json"
    asked = {key: value for key, value in vars(arguments).items() if key not in ("model", "train", "dev", "out")}
    payload: dict[str, Any] = {
        "benchmark": f"feature_based_{name}",
        "day": time.strftime("%Y-%m-%d"),
        "machine": described,
        "precision": encoder.runtime.precision,
        "model": {
            "name": arguments.name or Path(arguments.model).name,
            "layers": encoder.model.config.num_hidden_layers,
            "width": encoder.hidden_size,
            "digests": encoder.digests,
        },
        "task": name,
        "metric": spec.metric,
        "examples": {"train": len(data.train), "dev": len(data.dev)},
        "files": {"train": arguments.train.name, "dev": arguments.dev.name, "digests": dict(data.digests)},
        "settings": asked,
        "rows": {},
    }
    rows = payload["rows"]
    before = read_json(path) if path.is_file() else {}
    if before.get("settings") == asked:
        rows |= before["rows"]
    for row, published in PUBLISHED.items():
        if row in rows:
            continue
        start = time.monotonic()
        if row == FINE_TUNED:
            result = fine_tuned_row(task, data, arguments)
        elif isinstance(task, TaggingTask):
            result = {"width": encoder.choice(row).width(encoder.hidden_size)}
            result |= tagger_row(task, data, row, arguments)
        else:
            result = probe_row(encoder, task, data, row, arguments)
        result["seconds"] = round(time.monotonic() - start, 1)
        result["mean"] = {
            score: statistics.mean(run[score] for run in result["scores"]) for score in result["scores"][0]
        }
        rows[row] = {**result, "published_f1": published}
        print(f"{row}: {result['mean']}, {result['seconds']} s", flush=True)
        write_json(path, payload)
    print(f"\n{table(rows, spec.metric, published=name in TAGS)}\n\nwritten: {path}")


if __name__ == "__main__":
    main()
