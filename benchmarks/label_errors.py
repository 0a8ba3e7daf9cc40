"""How well doubtful labels are ranked: average precision on test texts of IMDB that people judged again.

    python benchmarks/label_errors.py [--data DIR] [--model starter] [--peer PYTHON]

DIR/noisy_labels/imdb_test.jsonl has 25,000 texts with their labels, the published cross-validated probabilities of
cleanlab's authors, and, for 1,310 texts whose label these doubted, the votes of five people: three or more for the
other label (flipped), for the label (kept), or neither (unclear). Texts are ranked by the margin of their label, from
probabilities out of five folds; average precision is that of flipped texts among flipped and kept ones, and among all
1,310. The gain over the published probabilities has a 95% interval from 1,000 bootstrap draws of flipped and kept
texts. The bag of words reads whole texts, the model the first 128 tokens. --train adds the 25,000 training texts.
Without --data, 600 made-up texts of two labels, one in ten with the wrong one, are all scored.

With --peer, an interpreter that has cleanlab ranks the same probabilities (`get_label_quality_scores` with
`normalized_margin`, `find_label_issues` with `confident_learning`), and its answers are compared with ours. One thread;
processor seconds.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result
from sklearn.metrics import average_precision_score

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.audit.out_of_fold import bag_features, mixture_weights, vector_features
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.label_errors import NO_LABEL, confident_labels, normalized_margins
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.task_data.split import fold_numbers

FOLDS, SEED, LENGTH = 5, 1, 128
PUBLISHED = "cleanlab's published probabilities"
_PEER = """
import json, sys
import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
values = np.load(sys.argv[1])
labels, chances = values["labels"], values["chances"]
margin = get_label_quality_scores(labels, chances, method="normalized_margin")
issues = find_label_issues(labels, chances, filter_by="confident_learning", n_jobs=1)
np.savez(sys.argv[2], margin=margin, issues=issues)
"""


def main() -> None:
    """Scores each source of probabilities and prints a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of data sets [made-up texts]")
    parser.add_argument("--train", action="store_true", help="also fit to the training texts")
    parser.add_argument("--model", help="a model whose vectors are read in addition")
    parser.add_argument("--peer", help="an interpreter that has cleanlab")
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("label_errors", options.out or ("label_errors_made-up" if not options.data else None))
    rows = _made_up() if options.data is None else _imdb(options.data, train=options.train)
    names = tuple(sorted({row["label"] for row in rows}))
    labels = np.array([names.index(row["label"]) for row in rows], dtype=np.int64)
    verdicts = np.array([row.get("verdict", "") for row in rows])
    examples = [TextExample(id=str(n), first=row["text"], label=row["label"]) for n, row in enumerate(rows)]
    spec = spec_for("classification", examples, TaskSettings(max_length=LENGTH))
    folds = np.array(fold_numbers(examples, FOLDS, SEED))
    systems: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    with quiet():
        for kind in ("bag", *(["vectors"] if options.model else [])):
            start = time.process_time()
            features = (
                bag_features(spec, examples)
                if kind == "bag"
                else vector_features(spec, examples, load_any(options.model), "cpu")
            )
            systems[features.name] = features.out_of_fold(spec, labels, folds, SEED)
            seconds[features.name] = round(time.process_time() - start, 1)
            print(features.name, seconds, flush=True)
    weights = mixture_weights(list(systems.values()), labels)
    mixtures = {"both": np.average(list(systems.values()), axis=0, weights=weights)} if options.model else {}
    published = [row.get("published") for row in rows]
    peers = {PUBLISHED: np.array([[1 - p, p] for p in published])} if None not in published else {}
    shown = "50,000 texts" if options.train else f"{len(rows):,} texts"
    for system, chances in (systems | mixtures | peers).items():
        cell = _scores(chances, labels, verdicts)
        if options.peer:
            cell["cleanlab"] = _peer(options.peer, chances, labels, verdicts)
        if peers and system != PUBLISHED:
            cell["interval_of_the_gain"] = _gain(chances, peers[PUBLISHED], labels, verdicts)
        if system in seconds:
            cell["seconds"] = seconds[system]
        if system == "both":
            cell["weights"] = dict(zip(systems, weights.round(3).tolist(), strict=True))
        done[f"{system}, {shown}"] = cell
        print(f"{system}, {shown}", json.dumps(cell), flush=True)
    write_result(name, {"machine": described, "settings": {"folds": FOLDS, "seed": SEED}, "cells": done})


def _scores(chances: Any, labels: Any, verdicts: Any) -> dict[str, Any]:
    margins = normalized_margins(chances, labels)
    highest = chances.max(axis=1)
    return {
        "accuracy": round(float((chances.argmax(axis=1) == labels).mean()), 4),
        **_precision("average_precision", -margins, verdicts),
        **_precision("low_confidence_alone", -highest, verdicts),
        "issues": int(_issues(chances, labels).sum()),
    }


def _precision(name: str, scores: Any, verdicts: Any) -> dict[str, float]:
    judged, clear = verdicts != "", np.isin(verdicts, ["flipped", "kept"])
    flipped = verdicts == "flipped"
    return {
        name: round(float(average_precision_score(flipped[clear], scores[clear])), 3),
        f"{name}_of_all_judged": round(float(average_precision_score(flipped[judged], scores[judged])), 3),
    }


def _gain(chances: Any, published: Any, labels: Any, verdicts: Any) -> list[float]:
    """The 95% interval of our average precision less that of the published probabilities, on the same texts."""
    clear = np.isin(verdicts, ["flipped", "kept"])
    scores = [-normalized_margins(part, labels)[clear] for part in (chances, published)]
    rows = np.stack([verdicts[clear] == "flipped", *scores], axis=1)

    def gain(drawn: Any) -> float:
        ours, theirs = (average_precision_score(drawn[:, 0], drawn[:, column]) for column in (1, 2))
        return float(ours - theirs)

    return [round(bound, 3) for bound in bootstrap_interval(rows, gain, seed=SEED, draws=1000)]


def _issues(chances: Any, labels: Any) -> Any:
    confident = confident_labels(chances, labels)
    return (confident != NO_LABEL) & (confident != labels)


def _peer(python: str, chances: Any, labels: Any, verdicts: Any) -> dict[str, Any]:
    """What cleanlab makes of the same probabilities, and how far its answers are ours."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        inputs, answers = Path(folder) / "inputs.npz", Path(folder) / "answers.npz"
        np.savez(inputs, labels=labels, chances=chances)
        subprocess.run([python, "-c", _PEER, str(inputs), str(answers)], check=True)
        theirs = np.load(answers)
        margin, issues = theirs["margin"], theirs["issues"]
    return {
        **_precision("average_precision", -margin, verdicts),
        "largest_difference_of_margins": float(abs(2 * margin - 1 - normalized_margins(chances, labels)).max()),
        "issues": int(issues.sum()),
        "issues_of_both": int((issues & _issues(chances, labels)).sum()),
    }


def _imdb(data: Path, *, train: bool) -> list[dict[str, Any]]:
    rows = []
    for part in ("test", *(["train"] if train else [])):
        for line in (data / f"noisy_labels/imdb_{part}.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n"):
            record = json.loads(line)
            row = {"text": record["text"], "label": str(record["label"]), "verdict": record.get("mturk_label") or ""}
            rows.append(row | ({"published": record["cv_p_pos"]} if "cv_p_pos" in record else {}))
    return rows


def _made_up() -> list[dict[str, Any]]:
    """Texts of 20 words, 8 of which are more frequent in one label; the label of one in ten is the other one."""
    draws = generator(SEED, "made-up texts")
    rows = []
    for _ in range(600):
        label, wrong = int(draws.integers(2)), draws.random() < 0.1
        words: Sequence[int] = [*(draws.integers(40, size=8) + 30 * label), *draws.integers(1000, size=12)]
        shown = 1 - label if wrong else label
        rows.append(
            {
                "text": " ".join(f"w{word}" for word in words),
                "label": str(shown),
                "verdict": "flipped" if wrong else "kept",
            }
        )
    return rows


if __name__ == "__main__":
    main()
