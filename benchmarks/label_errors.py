"""How well doubtful labels are ranked: average precision on test texts of IMDB that people judged again.

    python benchmarks/label_errors.py [--data DIR] [--task classification] [--model starter] [--peer PYTHON]

DIR/noisy_labels/imdb_test.jsonl has 25,000 texts with their labels, the published cross-validated probabilities of
cleanlab's authors, and, for 1,310 texts whose label these doubted, the votes of five people: three or more for the
other label (flipped), for the label (kept), or neither (unclear). Texts are ranked by the margin of their label, from
probabilities out of five folds; average precision is that of flipped texts among flipped and kept ones, and among all
1,310. The gain over the published probabilities has a 95% interval from 1,000 bootstrap draws of flipped and kept
texts. The bag of words reads whole texts, the model the first 128 tokens. --train adds the 25,000 training texts.
Without --data, 600 made-up texts of two labels, one in ten with the wrong one, are all scored.

With --task ner, words are ranked. The test file of WNUT-17 was published twice: the tags of the earlier one (of two
tags of a word, the first) are audited together with the training and dev files, and those that the final one changed
are the errors. In the training file of WNUT-17, and in the first 2,500 sentences of that of NCBI-disease, errors are
planted: one entity in ten is lost, gets another type (if there are several) or another boundary, and for every thirty
entities a word becomes one. With --task multi-label, the labels of 2,500 texts of SNIPS are the names of their slots;
one text in ten gets one label too many or too few. The gain over low confidence has a 95% interval from 200 draws of
sentences or texts.

With --task nested-ner, the same errors are planted among the entities inside one another of the first 2,500 training
sentences of NNE in DIR/ner_nested, and pairs of a span and a label are ranked. --model is fine-tuned on the file with
errors in three folds, for three epochs at a rate of 3e-4; its run is in --runs, and not repeated. Errors that no system
ranks come last.

With --peer, an interpreter that has cleanlab ranks the same probabilities (`get_label_quality_scores` with
`normalized_margin`, `find_label_issues` with `confident_learning`, and the same for tokens and for several labels), and
its answers are compared with ours. One thread; processor seconds.
"""

import argparse
import dataclasses
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result
from sklearn.metrics import average_precision_score

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.audit.entities import LISTED, EntitiesAudited
from bertsmith.recipes.audit.out_of_fold import (
    bag_features,
    listed_spans,
    spans_of_run,
    vector_features,
    word_features,
)
from bertsmith.recipes.audit.several import confident_answers, two_answers
from bertsmith.recipes.audit.tags import CORRECTED, TagsAudited
from bertsmith.tasks.datasets.conll import read_conll
from bertsmith.tasks.datasets.examples import EntityExample, TaggedExample, TextExample
from bertsmith.tasks.metrics.entities import entity_spans, scheme_of, scheme_tags
from bertsmith.tasks.metrics.label_errors import (
    confident_labels,
    mixture_weights,
    normalized_margins,
    probably_wrong,
    share_of_errors,
)
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.task_data.split import fold_numbers
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

FOLDS, SEED, LENGTH = 5, 1, 128
PUBLISHED = "cleanlab's published probabilities"
PLANTED, TEXTS, DRAWS = 0.1, 2500, 200
_PEER = """
import sys
import numpy as np
values = np.load(sys.argv[1])
labels, chances = values["labels"], values["chances"]
options = {"filter_by": "confident_learning", "n_jobs": 1}
if labels.ndim == 2:
    from cleanlab.multilabel_classification import filter, rank
    several = [np.flatnonzero(row).tolist() for row in labels]
    margin = rank.get_label_quality_scores_per_class(several, chances, method="normalized_margin")
    margin = np.asarray(margin).reshape(labels.shape)
    issues = filter.find_multilabel_issues_per_class(several, chances, **options)
elif "borders" in values:
    from cleanlab.token_classification import filter, rank
    cuts = values["borders"][1:-1]
    rows, parts = [part.tolist() for part in np.split(labels, cuts)], np.split(chances, cuts)
    scores = rank.get_label_quality_scores(rows, parts, token_score_method="normalized_margin")[1]
    margin, issues = np.concatenate(scores), np.zeros(len(labels), dtype=bool)
    for sentence, word in filter.find_label_issues(rows, parts, **options):
        issues[values["borders"][sentence] + word] = True
else:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    margin = get_label_quality_scores(labels, chances, method="normalized_margin")
    issues = find_label_issues(labels, chances, **options)
np.savez(sys.argv[2], margin=margin, issues=issues)
"""


def main() -> None:
    """Scores each source of probabilities and prints a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of data sets [made-up texts]")
    parser.add_argument("--train", action="store_true", help="also fit to the training texts")
    parser.add_argument(
        "--task", choices=("classification", "ner", "multi-label", "nested-ner"), default="classification"
    )
    parser.add_argument("--model", help="a model whose vectors are read in addition, or that is fine-tuned in folds")
    parser.add_argument("--runs", type=Path, help="the folder of its run with folds")
    parser.add_argument("--peer", help="an interpreter that has cleanlab")
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("label_errors", options.out or ("label_errors_made-up" if not options.data else None))
    if options.task != "classification":
        if options.task == "nested-ner":
            cells = _of_entities(options.data, options.model, options.runs)
        else:
            of_task = _of_tags if options.task == "ner" else _of_several
            cells = of_task(options.data, options.model, options.peer)
        for cell, values in cells:
            if isinstance(values.get("seconds"), dict):  # a training that is not repeated keeps its seconds
                values["seconds"] = {**done.get(cell, {}).get("seconds", {}), **values["seconds"]}
            done[cell] = values
            print(cell, json.dumps(values), flush=True)
        write_result(name, {"machine": described, "settings": {"folds": FOLDS, "seed": SEED}, "cells": done})
        return
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
    return probably_wrong(chances, labels, confident_labels(chances, labels))


def _peer(python: str, chances: Any, labels: Any, verdicts: Any) -> dict[str, Any]:
    """What cleanlab makes of the same probabilities, and how far its answers are ours."""
    margin, issues = _of_peer(python, labels=labels, chances=chances)
    return {
        **_precision("average_precision", -margin, verdicts),
        "largest_difference_of_margins": float(abs(2 * margin - 1 - normalized_margins(chances, labels)).max()),
        "issues": int(issues.sum()),
        "issues_of_both": int((issues & _issues(chances, labels)).sum()),
    }


def _of_peer(python: str, **arrays: Any) -> tuple[Any, Any]:
    """The scores of cleanlab, from 0 to 1, and its issues."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, answers = Path(folder) / "inputs.npz", Path(folder) / "answers.npz"
        np.savez(inputs, **arrays)
        subprocess.run([python, "-c", _PEER, str(inputs), str(answers)], check=True)
        theirs = np.load(answers)
        return theirs["margin"], theirs["issues"]


def _of_tags(data: Path, model: str | None, peer: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The scores of each source of probabilities on the three tables of tags."""
    wnut = data / "ner/wnut17"
    train, dev, test, earlier = (
        _tagged(wnut / name)
        for name in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated", "emerging.test.conll")
    )
    earlier = [dataclasses.replace(row, tags=tuple(tag.split(",")[0] for tag in row.tags)) for row in earlier]
    ncbi = _tagged(data / "ner/bio_scibert/NCBI-disease/train.txt")[:TEXTS]
    for table, right, wrong, scored in (
        ("WNUT-17, earlier test tags", [*test, *train, *dev], [*earlier, *train, *dev], len(test)),
        ("WNUT-17, planted", train, _with_planted(train), len(train)),
        ("NCBI-disease, planted", ncbi, _with_planted(ncbi), len(ncbi)),
    ):
        spec = spec_for("ner", wrong, TaskSettings(max_length=LENGTH))
        numbers = {label: number for number, label in enumerate(spec.labels)}
        tags = np.array([numbers[tag] for row in wrong for tag in row.tags])
        is_wrong = np.array(
            [a != b for row, other in zip(right, wrong, strict=True) for a, b in zip(row.tags, other.tags, strict=True)]
        )
        lengths = [len(row.words) for row in wrong]
        folds = np.repeat(fold_numbers(wrong, FOLDS, SEED), lengths)
        borders = offsets_of(lengths)
        makers = {"words": lambda: word_features(wrong)}  # noqa: B023
        if model:
            makers["vectors"] = lambda: vector_features(spec, wrong, load_any(model), "cpu")  # noqa: B023
        for system, chances, seconds in _predicted(makers, spec, tags, folds):
            audited = TagsAudited(
                spec=spec, sentences=wrong, tags=tags, probabilities=chances, judged=np.ones(len(tags), dtype=bool)
            )
            values = _ranked(
                chances,
                tags,
                is_wrong,
                np.repeat(np.arange(len(wrong)), lengths),
                int(borders[scored]),
                peer,
                borders=borders,
            )
            with quiet():
                issues = [
                    issue
                    for issue in audited.issues(1.0, (), None)
                    if issue["issue"] in CORRECTED and issue["row"] <= scored
                ]
            hits = [is_wrong[borders[i["row"] - 1] + np.arange(*i["words"])].any() for i in issues]
            left = [
                sum(
                    a != b
                    for row, other in zip(right[:scored], corrected[:scored], strict=True)
                    for a, b in zip(row.tags, other, strict=True)
                )
                for corrected in (audited.corrected(issues), audited.corrected(issues, -1.0))
            ]
            values |= {
                "findings": len(issues),
                "right_among_100": float(np.mean(hits[:100])),
                "right_findings": float(np.mean(hits)),
            }
            values |= {"wrong_tags_after_correction": left[0], "wrong_tags_with_all_suggestions": left[1]}
            yield f"{table}, {system}", values | seconds


def _of_entities(data: Path, model: str | None, runs: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The scores of each source of probabilities on entities inside one another."""
    with quiet():
        right = list(read_examples("nested-ner", data / "ner_nested/nne_train.jsonl").examples)[:TEXTS]
    wrong = _with_planted_spans(right)
    spec = spec_for("nested-ner", wrong, TaskSettings(max_length=LENGTH))
    systems, seconds, start = {}, {}, time.process_time()
    systems[LISTED] = listed_spans(wrong, np.array(fold_numbers(wrong, FOLDS, SEED)), spec.settings.entity_words)
    seconds[LISTED] = round(time.process_time() - start, 1)
    if model and runs:
        table, run, start = runs / "nne-with-errors.jsonl", runs / "nne-with-errors", time.process_time()
        write_text(table, "".join(json.dumps({"tokens": e.words, "entities": e.entities}) + "\n" for e in wrong))
        with quiet():
            if not (run / "report.json").is_file():
                bertsmith.finetune(
                    model, "nested-ner", run, train=table, folds=3, seeds=1, epochs=3, learning_rate=3e-4, device="cpu",
                    baselines=False, resume=run.exists(),
                )  # fmt: skip
                seconds["fine-tuning"] = round(time.process_time() - start, 1)
            start = time.process_time()
            wanted = [scored.keys() | {*row.entities} for scored, row in zip(systems[LISTED], wrong, strict=True)]
            systems["fine-tuned model"] = spans_of_run(run, spec, wrong, wanted, "cpu")
        seconds["fine-tuned model"] = round(time.process_time() - start, 1)
    for name, parts in [
        *((name, {name: part}) for name, part in systems.items()),
        *([("both", systems)] * (len(systems) > 1)),
    ]:
        table = EntitiesAudited(spec=spec, sentences=wrong, systems=parts, judged=np.ones(len(spec.labels), dtype=bool))
        yield f"NNE, planted, {name}", {**_ranked_entities(table, right), "seconds": seconds}


def _ranked_entities(table: EntitiesAudited, right: Sequence[Any]) -> dict[str, Any]:
    gold = [{*sentence.entities} for sentence in right]
    is_wrong = np.array(
        [(span in gold[row]) != has for (row, span), has in zip(table.pairs, table.has == 1, strict=True)]
    )
    answers = two_answers(table.chances)
    rows = np.stack([is_wrong, -normalized_margins(answers, table.has), -answers.max(axis=1)], axis=1)
    of_row = [row for row, _ in table.pairs]
    ranked = {*table.pairs}
    lost = [row for row, spans in enumerate(gold) for span in spans if (row, span) not in ranked]
    rows = np.concatenate([rows, np.full((len(lost), 3), [1.0, -2.0, -2.0])])
    order = np.argsort([*of_row, *lost], kind="stable")
    rows, starts = rows[order], offsets_of(np.bincount([*of_row, *lost], minlength=len(right)))

    def gain(drawn: Any) -> float:
        places = places_of(starts[:-1][drawn], np.diff(starts)[drawn])
        return float(np.subtract(*(average_precision_score(rows[places, 0], rows[places, k]) for k in (1, 2))))

    interval = bootstrap_interval(np.arange(len(right)), gain, seed=SEED, draws=DRAWS)
    issues = table.issues(1.0)
    report, findings = table.report(issues, SEED), [issue for issue in issues if issue["issue"] in CORRECTED]
    hits = [
        any(span not in gold[i["row"] - 1] for span in i["spans"][0])
        or any(span in gold[i["row"] - 1] for span in i["spans"][1])
        for i in findings
    ]
    left = [
        sum(len({*spans} ^ of_row) for spans, of_row in zip(corrected, gold, strict=True))
        for corrected in (table.corrected(issues), table.corrected(issues, -1.0))
    ]
    wrong = int(rows[:, 0].sum())
    return {
        "entities": report["entities"],
        "pairs": len(rows),
        "wrong": wrong,
        "wrong_that_no_system_ranks": len(lost),
        "estimated_share": round(report["errors"], 4),
        "interval_of_the_share": [round(bound, 4) for bound in report["interval"]],
        "share": round(
            wrong / sum(len({*row.entities} | spans) for row, spans in zip(table.sentences, gold, strict=True)), 4
        ),
        "f1": {name: round(score, 4) for name, score in report["f1"].items()},
        "weights": report["weights"],
        "average_precision": round(float(average_precision_score(rows[:, 0], rows[:, 1])), 3),
        "low_confidence_alone": round(float(average_precision_score(rows[:, 0], rows[:, 2])), 3),
        "interval_of_the_gain": [round(bound, 3) for bound in interval],
        "findings": len(findings),
        "right_among_100": float(np.mean(hits[:100])),
        "right_findings": round(float(np.mean(hits)), 3),
        "wrong_entities_after_correction": left[0],
        "wrong_entities_with_all_suggestions": left[1],
    }


def _of_several(data: Path, model: str | None, peer: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The scores of each source of probabilities on pairs of a text and a label."""
    lines = (data / "intents/snips_train.jsonl").read_text(encoding="utf-8").splitlines()
    draws = generator(SEED, "planted errors")
    records = [json.loads(lines[n]) for n in draws.permutation(len(lines))[:TEXTS].tolist()]
    names = sorted({slot[0] for record in records for slot in record["slots"]})
    right = np.array([[name in {slot[0] for slot in record["slots"]} for name in names] for record in records])
    has = right.copy()
    for row in range(len(has)):
        if draws.random() < PLANTED:
            choices = np.flatnonzero(has[row] == bool(draws.integers(2)))
            if len(choices):
                has[row, draws.choice(choices)] ^= True
    labelled = [[name for name, value in zip(names, row, strict=True) if value] for row in has.tolist()]
    examples = [
        TextExample(id=str(n), first=record["text"], label=tuple(labels))
        for n, (record, labels) in enumerate(zip(records, labelled, strict=True))
    ]
    spec = spec_for("multi-label", examples, TaskSettings(max_length=LENGTH))
    folds = np.array(fold_numbers(examples, FOLDS, SEED))
    makers = {"bag": lambda: bag_features(spec, examples)}
    if model:
        makers["vectors"] = lambda: vector_features(spec, examples, load_any(model), "cpu")
    labels = has.astype(np.int64)
    for system, chances, seconds in _predicted(makers, spec, labels, folds):
        texts = np.repeat(np.arange(len(has)), len(names))
        yield f"SNIPS, slots as labels, {system}", _ranked(chances, labels, has != right, texts, None, peer) | seconds


def _predicted(makers: Any, spec: Any, labels: Any, folds: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The name of each system, its probabilities, and its processor seconds; at last those of all together."""
    systems = {}
    for make in makers.values():
        start = time.process_time()
        with quiet():
            features = make()
            systems[features.name] = features.out_of_fold(spec, labels, folds, SEED)
        yield features.name, systems[features.name], {"seconds": round(time.process_time() - start, 1)}
    if len(systems) > 1:
        several = labels.ndim == 2
        answers = [two_answers(part.ravel()) if several else part for part in systems.values()]
        weights = mixture_weights(answers, labels.ravel())
        yield (
            "both",
            np.average(list(systems.values()), axis=0, weights=weights),
            {"weights": weights.round(3).tolist()},
        )


def _ranked(
    chances: Any, labels: Any, is_wrong: Any, groups: Any, scored: int | None, peer: str | None, **of_peer: Any
) -> dict[str, Any]:
    """The average precision of margins and of low confidence.

    Args:
        groups: the sentence or text of each word or pair; whole ones are drawn.
        scored: the words that are scored, the first of all; by default all.
    """
    several = labels.ndim == 2
    answers, flat = (two_answers(chances.ravel()), labels.ravel()) if several else (chances, labels)
    margins, highest = normalized_margins(answers, flat), answers.max(axis=1)
    confident = confident_answers(chances, labels).ravel() if several else confident_labels(chances, labels)
    issues, wrong = probably_wrong(answers, flat, confident), is_wrong.ravel()
    share = (
        np.mean([share_of_errors(two_answers(c), y) for c, y in zip(chances.T, labels.T, strict=True)])
        if several
        else share_of_errors(chances, labels)
    )
    part = slice(scored)
    rows = np.stack([wrong, -margins, -highest], axis=1)[part]
    starts = offsets_of(np.bincount(groups[part]))

    def gain(drawn: Any) -> float:
        places = places_of(starts[:-1][drawn], np.diff(starts)[drawn])
        return float(np.subtract(*(average_precision_score(rows[places, 0], rows[places, k]) for k in (1, 2))))

    interval = bootstrap_interval(np.arange(len(starts) - 1), gain, seed=SEED, draws=DRAWS)
    values = {
        "examples": len(rows),
        "wrong": int(wrong[part].sum()),
        "estimated_share_of_all": round(float(issues.mean()), 4),
        "share_by_the_confident_joint": round(float(share), 4),
        "share_of_all": round(float(wrong.mean()), 4),
        "accuracy": round(float((answers.argmax(axis=1) == flat).mean()), 4),
        "average_precision": round(float(average_precision_score(rows[:, 0], rows[:, 1])), 3),
        "low_confidence_alone": round(float(average_precision_score(rows[:, 0], rows[:, 2])), 3),
        "interval_of_the_gain": [round(bound, 3) for bound in interval],
        "issues": int(issues[part].sum()),
        "wrong_among_issues": int(wrong[part][issues[part]].sum()),
    }
    if peer:
        theirs, of_both = _of_peer(peer, labels=labels, chances=chances, **of_peer)
        values["cleanlab"] = {
            "average_precision": round(float(average_precision_score(rows[:, 0], -theirs.ravel()[part])), 3),
            "largest_difference_of_margins": float(abs(2 * theirs.ravel() - 1 - margins).max()),
            "issues": int(of_both.sum()),
            "issues_of_all": int(issues.sum()),
            "issues_of_both": int((of_both.ravel() & issues).sum()),
        }
    return values


def _tagged(path: Path) -> list[TaggedExample]:
    with quiet():
        return list(read_conll(path).examples)


def _with_planted(sentences: Sequence[TaggedExample]) -> list[TaggedExample]:
    """Sentences in IOB2 in which entities are lost, spurious, or have another type or boundary."""
    draws = generator(SEED, "planted errors")
    scheme = scheme_of([row.tags for row in sentences])
    right = [entity_spans(row.tags, scheme) for row in sentences]
    types, rows = sorted({kind for spans in right for kind, _, _ in spans}), []
    for row, spans in zip(sentences, right, strict=True):
        kept = []
        for number, (kind, start, end) in enumerate(spans):
            change = draws.integers(3) if draws.random() < PLANTED else None
            first, last = kept[-1][2] if kept else 0, [*(s for _, s, _ in spans), len(row.words)][number + 1]
            if change is None:
                kept.append((kind, start, end))
            elif change == 1 and len(types) > 1:
                kept.append((str(draws.choice([other for other in types if other != kind])), start, end))
            elif change:
                borders = [(start - 1, end), (start, end + 1), (start + 1, end), (start, end - 1)]
                borders = [(a, b) for a, b in borders if first <= a < b <= last]
                kept += [(kind, *borders[draws.integers(len(borders))])] if borders else []
        rows.append(kept)
    for _ in range(round(PLANTED / 3 * sum(map(len, right)))):
        spurious = None
        while spurious is None:
            number = int(draws.integers(len(rows)))
            word = int(draws.integers(len(sentences[number].words)))
            if all(not start <= word < end for _, start, end in [*rows[number], *right[number]]):
                spurious = (str(draws.choice(types)), word, word + 1)
        rows[number] = sorted([*rows[number], spurious], key=lambda span: span[1])
    return [
        dataclasses.replace(row, tags=tuple(scheme_tags(spans, len(row.words), scheme)))
        for row, spans in zip(sentences, rows, strict=True)
    ]


def _with_planted_spans(sentences: Sequence[Any]) -> list[Any]:
    """Sentences in whose entities the same errors are planted; a spurious one has words of no other of its label."""
    draws, result = generator(SEED, "planted errors"), []
    labels = sorted({span.label for row in sentences for span in row.entities})
    for row in sentences:
        spans, count = [], len(row.words)
        for start, end, label in row.entities:
            change = draws.integers(3) if draws.random() < PLANTED else None
            if change is None:
                spans.append((start, end, label))
            elif change == 1:
                spans.append((start, end, str(draws.choice([other for other in labels if other != label]))))
            elif change:
                borders = [(start - 1, end), (start, end + 1), (start + 1, end), (start, end - 1)]
                borders = [(a, b) for a, b in borders if 0 <= a < b <= count]
                spans += [(*borders[draws.integers(len(borders))], label)] if borders else []
            if draws.random() < PLANTED / 3:
                word, label = int(draws.integers(count)), str(draws.choice(labels))
                if (word, word + 1, label) not in row.entities:
                    spans.append((word, word + 1, label))
        result.append(EntityExample.of(row, spans))
    return [dataclasses.replace(row, location=before.location) for row, before in zip(result, sentences, strict=True)]


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
