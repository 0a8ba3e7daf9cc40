"""What adapting the starter model to a field buys: losses per word, pieces per word, and the score of a task.

    python benchmarks/adaptation.py --data DIR [--fields biomedical scientific] [--seeds 1 2 3]

Two fields, each with a task: sentences of biomedical abstracts (NCBI disease, training part; disease names), and of
papers and abstracts (ACL-ARC, training part, and Cranfield; the intent of citations). Each arm adapts the starter with
`bertsmith.adapt`: pre-training continued, continued after 1,000 words of the field were grafted, or a new model of the
same shape with a vocabulary of the field, all for the same number of steps. Arms are then fine-tuned on the same labels
and scored on the official dev file; "as it is" is the starter itself. The seed is that of the adaptation, of the draw
of labels, and of the fine-tuning. General text: the beginning of the first two novels of the folder; the starter has
read novels of the same collection.

Losses are measured for all seeds, tasks for those of --task-seeds. A cell (field, arm, seed) that is in the result file
is not repeated. Everything runs on one thread; the processor seconds of each cell are in the file.
"""

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from harness import begun, write_result

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.text.documents.sentences import split_sentences

ARMS = {"as it is": None, "continued": "keep", "grafted": "graft", "from scratch": "new"}
SENTENCES = 10  # of a document, where the file does not say which abstract a sentence is from
NOVELS = 2


def main() -> None:
    """Fills in the cells that are missing, and prints the table."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("adaptation", options.out)
    with tempfile.TemporaryDirectory() as folder:
        for field in options.fields:
            work = Path(folder) / field
            work.mkdir()
            text, task = FIELDS[field](options.data, work)
            general = _general(options.data, work)
            for seed in options.seeds:
                for arm, vocabulary in ARMS.items():
                    key = f"{field}, {arm}, seed {seed}"
                    if key not in done and (vocabulary is not None or seed in options.task_seeds):
                        done[key] = _cell(arm, text, general, task, seed, options, work / f"{arm}-{seed}")
                        settings = {"steps": options.steps, "labels": options.labels, "add": options.add}
                        write_result(name, {"machine": described, "settings": settings, "cells": done})
    for line in _table(done):
        print(line)


def _cell(
    arm: str, text: Path, general: Path, task: dict[str, Any], seed: int, options: argparse.Namespace, out: Path
) -> dict[str, Any]:
    """The losses and the score of an arm, and the processor seconds of both."""
    model, figures, start = "starter", {}, time.process_time()
    with quiet():
        if ARMS[arm] is not None:
            grafts = {"add": options.add} if arm == "grafted" else {}
            result = bertsmith.adapt(
                model, [text], out / "adapted", general=[general], vocabulary=ARMS[arm], steps=options.steps, seed=seed,
                score_words=5000, precision="fp32", **grafts,
            )  # fmt: skip
            model = str(result.model)
            figures = {name: result.report[name] for name in ("fragmentation", "losses", "forecast")}
        middle = time.process_time()
        figures["adaptation_seconds"] = round(middle - start, 1)
        if seed not in options.task_seeds:
            return figures
        tuned = bertsmith.finetune(
            model, task["name"], out / "tuned", train=task["train"](seed, options.labels), dev=task["dev"], seeds=1,
            seed=seed, precision="fp32", baselines=False, **task["settings"],
        )  # fmt: skip
    scores = tuned.report["scores"][tuned.report["metric"]]
    return {
        "score": round(scores["mean"], 4),
        "metric": tuned.report["metric"],
        "train_examples": tuned.report["train_examples"],
        "dev_examples": tuned.report["dev_examples"],
        "finetuning_seconds": round(time.process_time() - middle, 1),
        **figures,
    }


def _biomedical(data: Path, work: Path) -> tuple[Path, dict[str, Any]]:
    """The text of NCBI disease, and its task."""
    folder = data / "ner" / "bio_scibert" / "NCBI-disease"
    blocks = (folder / "train.txt").read_text(encoding="utf-8").strip().split("\n\n")
    sentences = [" ".join(line.split("\t")[0] for line in block.split("\n")) for block in blocks]
    documents = ["\n".join(sentences[n : n + SENTENCES]) for n in range(0, len(sentences), SENTENCES)]
    text = _written(work / "biomedical.txt", documents)

    def train(seed: int, labels: int) -> Path:
        return _written(work / f"train-{seed}.txt", _drawn(blocks, labels, seed))

    dev = (folder / "dev.txt").read_text(encoding="utf-8").strip().split("\n\n")
    settings = {"max_length": 128}
    return text, {"name": "ner", "train": train, "dev": _written(work / "dev.txt", dev), "settings": settings}


def _scientific(data: Path, work: Path) -> tuple[Path, dict[str, Any]]:
    """The text of ACL-ARC and Cranfield, and the task of the former."""
    folder = data / "cls" / "scibert_cls" / "citation_intent"
    lines = (folder / "train.txt").read_text(encoding="utf-8").strip().split("\n")
    citing = [json.loads(line)["text"] for line in lines]
    pages = (data / "retrieval" / "cranfield" / "cran.all.1400.xml").read_text(encoding="utf-8")
    abstracts = [" ".join(abstract.split()) for abstract in re.findall(r"<text>(.*?)</text>", pages, re.DOTALL)]
    documents = ["\n".join(split_sentences(document)) for document in [*citing, *abstracts] if document]
    text = _written(work / "scientific.txt", documents)

    def table(file: Path, rows: list[str]) -> Path:
        file.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return file

    def train(seed: int, labels: int) -> Path:
        return table(work / f"train-{seed}.jsonl", [_labelled(line) for line in _drawn(lines, labels, seed)])

    dev = (folder / "dev.txt").read_text(encoding="utf-8").strip().split("\n")
    named = table(work / "dev.jsonl", [_labelled(line) for line in dev])
    settings = {"max_length": 128, "metric": "macro_f1"}
    return text, {"name": "classification", "train": train, "dev": named, "settings": settings}


FIELDS = {"biomedical": _biomedical, "scientific": _scientific}


def _labelled(line: str) -> str:
    record = json.loads(line)
    return json.dumps({"text": record["text"], "label": record["label"]})


def _general(data: Path, work: Path) -> Path:
    """Novels, one file."""
    files = sorted((data / "pretrain_gutenberg100").glob("*.txt"))[:NOVELS]
    return _written(work / "general.txt", [file.read_text(encoding="utf-8", errors="ignore") for file in files])


def _written(file: Path, documents: list[str]) -> Path:
    file.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return file


def _drawn(rows: list[str], count: int, seed: int) -> list[str]:
    """Some rows in their order, drawn without replacement."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count]
    return [rows[number] for number in sorted(order.tolist())]


def _table(cells: dict[str, Any]) -> list[str]:
    """A line for each field and arm: means over the seeds."""
    lines = []
    for field in FIELDS:
        for arm in ARMS:
            some = [cell for key, cell in cells.items() if key.startswith(f"{field}, {arm},")]
            if not some:
                continue
            line, scored = f"{field}, {arm}", [cell for cell in some if "score" in cell]
            if scored:
                score = spread([cell["score"] for cell in scored])
                line += f": {scored[0]['metric']} {score.mean:.4f} ± {score.deviation:.4f} ({len(scored)} seeds)"
            if "losses" in some[0]:
                for text in ("field", "general"):
                    pairs = [cell["losses"][text] for cell in some]
                    before, after = (
                        spread([pair[when]["per_word"] for pair in pairs]).mean for when in ("before", "after")
                    )
                    line += f"; {text} {before:.3f} -> {after:.3f} nats per word ({len(some)} seeds)"
                pieces = some[0]["fragmentation"]["field"]
                line += (
                    f"; pieces per word {pieces['before']['pieces_per_word']} -> {pieces['after']['pieces_per_word']}"
                )
            lines.append(line)
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with ner/, cls/, retrieval/ and novels")
    parser.add_argument("--fields", nargs="+", default=list(FIELDS), choices=list(FIELDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--task-seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=40, help="of each adaptation, 32 rows of 128 tokens each")
    parser.add_argument("--labels", type=int, default=400, help="training examples of the task")
    parser.add_argument("--add", type=int, default=1000, help="grafted words")
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
