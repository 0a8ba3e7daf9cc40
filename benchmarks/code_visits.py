"""Models of visits (G-BERT): what the tree and pre-training are worth, on generated patients and on Synthea's.

    python benchmarks/code_visits.py --folder DIR [--patients 3000] [--seeds 2] [--data DIR]

Generated patients, as `random_patients.py` draws them, a quarter of them with several visits: medications of a visit
from its diagnoses and the past, with the whole model, without the tree, without pre-training, and without both. Scores
are those of `codes train` on 15% of the patients with several visits, who are held out, with intervals and paired tests
by patient. "rare" are the visits with at least a third of their diagnoses in no more than 20 training visits.

What else a model is for, on the same test patients: half of their visits get the medications of another patient, and
the surprise of `codes anomalies` should tell them apart (area under the ROC curve), against the mean of -ln p(code |
code of the other kind) from counts; and the patient with the nearest vector should share a chronic disease, against the
cosine of TF-IDF of all codes.

With --data, a folder with `synthea_unmc_visits.jsonl` and `synthea_dbt_visits.jsonl`: medications from conditions, both
without a tree here (RxNorm and SNOMED), and the codes of the next visit. A run that ended is not repeated: its
folder in DIR is read.
"""

import argparse
import csv
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import begun, write_result
from random_patients import chronic_diseases, write_patients, write_tree
from sklearn.metrics import roc_auc_score

from bertsmith import build_codes, embed_subjects, find_anomalies, train_codes
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json, read_json_lines, write_json
from bertsmith.recipes.codes.encoding import NO_ROW, encode_subjects, examples_of
from bertsmith.recipes.codes.folder import read_codes_folder
from bertsmith.recipes.codes.model_folder import read_codes_model
from bertsmith.recipes.codes.run import divided
from bertsmith.recipes.codes.settings import CodesSettings
from bertsmith.recipes.codes.workload import scores_of
from bertsmith.tasks.metrics.sets import (
    average_precision_of_sets,
    f1_of_sets,
    interval_by_group,
    jaccard,
    paired_test_by_group,
)
from bertsmith.text.codes.visits import CodeKey, Subject, Visit, write_visits

ARMS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no tree": {"tree": False},
    "no pre-training": {"pretraining_epochs": 0},
    "neither": {"tree": False, "pretraining_epochs": 0},
}
RARE = 20  # training visits
SHARED = {
    "width": 128,
    "dropout": 0.2,
    "learning_rate": 2e-3,
    "schedule": "hf_linear",
    "warmup_share": 0.05,
    "pretraining_epochs": 15,
    "epochs": 15,
    "rounds": 1,
    "subjects_per_step": 16,
    "device": "cpu",
}
KINDS = {"given_kind": "diagnosis", "wanted_kind": "medication"}


def trained(codes: Path, run: Path, **settings: Any) -> tuple[dict[str, Any], float]:
    """The results of a training, and the seconds of the processor that it took; read if it ended before."""
    done = run / "benchmark.json"
    if not done.exists():
        begin = time.process_time()
        started = (run / "settings.json").exists()
        result = train_codes(None if started else codes, run, resume=started, **({} if started else settings))
        write_json(done, {"results": dict(result.results), "seconds": time.process_time() - begin})
    record = read_json(done)
    return record["results"], record["seconds"]


def values_of(codes: Path, run: Path, seed: int) -> dict[str, np.ndarray]:
    """The scores of each test visit of a run, its subject, and whether its diagnoses are rare."""
    model, folder = read_codes_model(run), read_codes_folder(codes)
    train, _, test = divided(folder.subjects, CodesSettings(), seed)
    data, known = (encode_subjects(part, model.vocabulary, model.kinds, model.labels) for part in (test, train))
    examples = [
        example
        for subject in range(len(data))
        for example in examples_of(data, subject, recommends=True, first_visits=False)
    ]
    scores, targets = scores_of(model.model, data, examples, torch.device("cpu"), recommends=True)
    chances, gold = 1 / (1 + np.exp(-scores)), targets > 0
    counts = np.zeros(len(model.vocabulary), dtype=np.int64)
    for row, kind in zip(known.ids, known.kinds, strict=True):
        if kind == 0:
            counts[row[1:]] += 1
    rows = [int(data.rows[subject][visit, 0]) for subject, visit in examples]
    assert NO_ROW not in rows
    return {
        "jaccard": jaccard(gold, chances >= model.threshold),
        "pr_auc": average_precision_of_sets(gold, chances),
        "f1": f1_of_sets(gold, chances >= model.threshold),
        "subject": np.array([f"{seed}/{example.subject}" for example in examples]),
        "rare": np.array([(counts[data.ids[row][1:]] <= RARE).mean() >= 1 / 3 for row in rows]),
    }


def visits_with_exchanges(subjects: list[Subject], seed: int) -> tuple[list[Subject], list[bool]]:
    """Subjects whose visits have, half of them, the medications of a visit of another one; which ones those are."""
    source = generator(seed, "exchanged medications")
    visits = [(number, visit) for number, subject in enumerate(subjects) for visit in subject.visits]
    exchanged, results = [], [[] for _ in subjects]
    for number, visit in visits:
        codes, is_exchanged = visit.codes, bool(source.random() < 0.5)
        if is_exchanged:
            others = [other for owner, other in visits if owner != number]
            codes = visit.of_kind("diagnosis") + others[source.integers(len(others))].of_kind("medication")
        exchanged.append(is_exchanged)
        results[number].append(Visit(visit.time, codes))
    return [Subject(subject.name, tuple(of)) for subject, of in zip(subjects, results, strict=True)], exchanged


def counted_surprise(train: list[Subject]) -> Callable[[Visit], float]:
    """The mean of -ln p(code | code of the other kind) over the codes of a visit, from counts of training visits."""
    pairs, alone = Counter[tuple[CodeKey, CodeKey]](), Counter[CodeKey]()
    for subject in train:
        for visit in subject.visits:
            alone.update(visit.codes)
            pairs.update((first, second) for first in visit.codes for second in visit.codes if first[0] != second[0])

    def surprise(visit: Visit) -> float:
        values = []
        for code in visit.codes:
            others = [other for other in visit.codes if other[0] != code[0]]
            chances = [(pairs[other, code] + 0.1) / (alone[other] + 1) for other in others]
            values.append(-np.log(np.mean(chances)) if chances else 0.0)
        return float(np.mean(values))

    return surprise


def other_uses(codes: Path, run: Path, seed: int) -> dict[str, float]:
    """How well improbable visits and similar patients are found among the test patients of a run."""
    folder = read_codes_folder(codes)
    train, _, test = divided(folder.subjects, CodesSettings(), seed)
    subjects, exchanged = visits_with_exchanges(test, seed)
    with tempfile.TemporaryDirectory() as scratch:
        events = Path(scratch) / "visits.jsonl"
        write_visits(events, subjects)
        surprises = find_anomalies([events], run, device="cpu")
        write_visits(events, test)
        vectors = embed_subjects([events], run, Path(scratch) / "vectors", device="cpu").vectors
    ours = [result.surprise for result in surprises]
    counts = counted_surprise(train)
    simple = [counts(visit) for subject in subjects for visit in subject.visits]
    chronic = [set(chronic_diseases(int(subject.name[1:]), seed)[0]) for subject in test]
    shares = np.array([[bool(first & second) for second in chronic] for first in chronic])
    index = {code.key: number for number, code in enumerate(folder.vocabulary.codes)}
    bags = np.zeros((len(test), len(index)))
    for number, subject in enumerate(test):
        for visit in subject.visits:
            bags[number, [index[code] for code in visit.codes]] += 1
    bags *= np.log(len(test) / np.maximum((bags > 0).sum(axis=0), 1))
    return {
        "exchanged visits, area under ROC": float(roc_auc_score(exchanged, ours)),
        "exchanged visits, area under ROC, counts": float(roc_auc_score(exchanged, simple)),
        "nearest patient shares a disease": nearest_shares(vectors, shares),
        "nearest patient shares a disease, TF-IDF": nearest_shares(bags, shares),
        "any patient shares a disease": float(shares[~np.eye(len(shares), dtype=bool)].mean()),
    }


def nearest_shares(vectors: np.ndarray, shares: np.ndarray) -> float:
    """The share of rows whose nearest other row, by the cosine, is one of those that count."""
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    return float(np.mean([shares[row, nearest] for row, nearest in enumerate(cosines.argmax(axis=1))]))


def table_of(values: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """The mean of each score of each arm over all seeds, on all visits and on rare ones, and the whole model's gain."""
    table: dict[str, Any] = {}
    for part in ("all", "rare"):
        rows: dict[str, Any] = {}
        for arm, of_arm in values.items():
            used = of_arm["rare"] if part == "rare" else np.ones(len(of_arm["rare"]), dtype=bool)
            groups = np.unique(of_arm["subject"], return_inverse=True)[1][used].tolist()
            rows[arm] = {"visits": int(used.sum())}
            for metric in ("jaccard", "pr_auc", "f1"):
                each = of_arm[metric][used]
                low, high = interval_by_group(each, groups)
                rows[arm][metric] = {"value": float(each.mean()), "low": low, "high": high}
                if arm != "whole":
                    test = paired_test_by_group(values["whole"][metric][used], each, groups)
                    rows[arm][f"whole minus this, {metric}"] = vars(test)
        table[part] = rows
    return table


def write_synthea(data: Path, out: Path) -> None:
    """Conditions and medications of the visits of Synthea's patients as a table of events."""
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["subject", "time", "code", "kind", "description"])
        for name in ("unmc", "dbt"):
            for patient in read_json_lines(data / f"synthea_{name}_visits.jsonl"):
                for visit in patient["visits"]:
                    for kind in ("condition", "medication"):
                        for code, text, *_ in visit.get(f"{kind}s", ()):
                            writer.writerow([patient["patient"], visit["date"], code, kind, text])


def main() -> None:
    """Trains every arm and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--patients", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    described, name_of_result, _ = begun("code_visits")
    result: dict[str, Any] = {"machine": described, "patients": options.patients, "settings": SHARED}
    values: dict[str, list[dict[str, np.ndarray]]] = {arm: [] for arm in ARMS}
    runs: dict[str, Any] = {arm: [] for arm in ARMS}
    for seed in range(1, options.seeds + 1):
        codes = options.folder / f"codes-{seed}"
        events, tree = (options.folder / f"{name}-{seed}.tsv" for name in ("events", "tree"))
        if not codes.exists():
            write_patients(events, options.patients, seed)
            write_tree(tree)
            build_codes([events], codes, tree=[tree])
        for arm, settings in ARMS.items():
            run = options.folder / f"{arm.replace(' ', '-')}-{seed}"
            results, seconds = trained(
                codes,
                run,
                seed=seed,
                baselines=arm == "whole",
                **{**SHARED, **KINDS, **settings},
            )
            runs[arm].append({"seconds": seconds, "results": results})
            values[arm].append(values_of(codes, run, seed))
            print(
                seed,
                arm,
                {
                    name: round(of["value"], 4)
                    for name, of in results["systems"]["model"].items()
                    if name != "threshold"
                },
                flush=True,
            )
    result["other uses"] = [
        other_uses(options.folder / f"codes-{seed}", options.folder / f"whole-{seed}", seed)
        for seed in range(1, options.seeds + 1)
    ]
    joined = {
        arm: {name: np.concatenate([v[name] for v in of_arm]) for name in of_arm[0]} for arm, of_arm in values.items()
    }
    result |= {"generated": table_of(joined), "runs": runs}
    if options.data is not None:
        codes = options.folder / "codes-synthea"
        if not codes.exists():
            write_synthea(options.data, options.folder / "synthea.csv")
            build_codes([options.folder / "synthea.csv"], codes)
        kinds = {"given_kind": "condition", "wanted_kind": "medication"}
        for name, settings in (("recommendation", kinds), ("next visit", {})):
            run = options.folder / f"synthea-{name.replace(' ', '-')}"
            results, seconds = trained(codes, run, **{**SHARED, "subjects_per_step": 4, **settings})
            result[f"synthea, {name}"] = {"seconds": seconds, "results": results}
            print("synthea", name, json.dumps(results["systems"])[:400], flush=True)
    write_result(name_of_result, result)


if __name__ == "__main__":
    main()
