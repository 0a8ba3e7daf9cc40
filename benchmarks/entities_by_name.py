"""Entities of labels that a model was not trained on: WNUT-17 by a model of NNE, with 0 and 20 labelled sentences.

    python benchmarks/entities_by_name.py --nne FOLDER --wnut FOLDER --runs FOLDER [--model DIR] [--sentences 2000]

The first folder has nne_train.jsonl and nne_dev.jsonl: sentences of NNE as words with entities. A model of
`entities-by-name` is trained on those of the types in `NAMES`, by these names. It is scored on test sentences of
WNUT-17 by the names in `LABELS`, at a probability of 0.5 and at the one with the best F1 on these sentences, which is
what a good threshold would give. Then it is trained on 20 sentences of WNUT-17, as is a model of `nested-ner` from the
same base. The baseline without training takes each run of capitalized words for an entity, and chooses its label by
`classify`. Each training runs on one thread with one seed; one that is in --runs is not repeated.

Sources: Ringland et al. (2019), "NNE: A Dataset for Nested Named Entity Recognition in English Newswire"; Derczynski et
al. (2017), "Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition".
"""

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.recipes.results.resampling import DRAWS, f1_of_counts
from bertsmith.tasks.datasets.examples import EntityExample
from bertsmith.tasks.metrics.entities import counts_of_spans, span_scores
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval
from bertsmith.tasks.task_data.task_files import read_examples

# Types of NNE with enough entities, by names that say what they are.
NAMES = {
    "CARDINAL": "number", "ORGCORP": "company", "UNIT": "unit of measurement", "PER": "person", "DATE": "date",
    "DURATION": "duration", "MONEY": "amount of money", "CITY": "city", "FIRST": "first name", "NAME": "last name",
    "HON": "title of a person", "PERCENT": "percentage", "NATIONALITY": "nationality", "GOVERNMENT": "government body",
    "COUNTRY": "country", "YEAR": "year", "STATE": "state", "MONTH": "month", "ROLE": "job", "MEDIA": "newspaper",
    "PRODUCTOTHER": "product", "DAY": "day of the week", "REGION": "region", "ORGEDU": "university", "BOOK": "book",
    "ELECTRONICS": "electronic device", "VEHICLE": "vehicle", "DISEASE": "disease", "EVENT": "event",
    "ORGOTHER": "organization",
}  # fmt: skip
LABELS = {
    "person": "person", "location": "location", "group": "group or band", "corporation": "company",
    "product": "product", "creative-work": "film, song or book",
}  # fmt: skip
BY_NAME, FEW, NESTED = "0 sentences", "20 sentences, by name", "20 sentences, nested-ner"
CAPITALS = "capitalized words and classify"
_FEW = 20
_THRESHOLDS = [number / 50 for number in range(2, 45)]


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("entities_by_name", options.out)
    settings = {key: str(value) for key, value in vars(options).items() if key in ("sentences", "tests", "epochs")}
    settings["model"] = Path(options.model).name
    folder: Path = options.runs
    folder.mkdir(parents=True, exist_ok=True)
    nne = [_written(folder, f"nne-{part}", _of_nne(options.nne / f"nne_{part}.jsonl", count)) for part, count in
           (("train", options.sentences), ("dev", 100))]  # fmt: skip
    few = _written(folder, "few", _drawn(_of_wnut(options.wnut / "wnut17train.conll"), _FEW))
    tests = _drawn(_of_wnut(options.wnut / "emerging.test.annotated"), options.tests)
    trainings: dict[str, tuple[Any, ...]] = {
        BY_NAME: (options.model, "entities-by-name", nne[0], {"dev": nne[1], "epochs": options.epochs}),
        FEW: (folder / "0-sentences" / "model", "entities-by-name", few, {"dev": few, "epochs": 60}),
        NESTED: (options.model, "nested-ner", few, {"dev": few, "epochs": 60}),
    }
    for title, (base, task, train, chosen) in trainings.items():
        done[title] = {**done.get(title, {}), **_trained(folder, title, base, task, train, chosen, tests)}
        print(f"{title}: {done[title]}", flush=True)
        write_result(name, {"machine": described, "settings": settings, "cells": done})
    start = time.process_time()
    done[CAPITALS] = {**_scores(_capitalized(options.model, tests), tests)}
    done[CAPITALS]["processor_seconds_of_test"] = round(time.process_time() - start, 1)
    print(f"{CAPITALS}: {done[CAPITALS]}", flush=True)
    write_result(name, {"machine": described, "settings": settings, "cells": done})


def _trained(
    folder: Path, title: str, base: Any, task: str, train: Path, chosen: dict[str, Any], tests: Sequence[EntityExample]
) -> dict[str, Any]:
    """The scores of a training on the test sentences, and its processor seconds."""
    out, start, cell = folder / title.replace(", ", "-").replace(" ", "-"), time.process_time(), dict[str, Any]()
    with quiet():
        if not (out / "report.json").is_file():
            bertsmith.finetune(
                base, task, out, train=train, seeds=1, learning_rate=5e-4, batch_size=16, device="cpu",
                resume=out.exists(), **chosen,
            )  # fmt: skip
            cell["processor_seconds"] = round(time.process_time() - start, 1)
        model, start = bertsmith.load(out), time.process_time()
        words = [list(sentence.words) for sentence in tests]
        named = list(LABELS.values()) if task == "entities-by-name" else None
        answers = model.tag(words, named, threshold=0.02, overlap="none")
        cell["processor_seconds_of_test"] = round(time.process_time() - start, 1)
    answered_at: dict[float, list[set[Any]]] = {}
    for threshold in _THRESHOLDS:
        answered_at[threshold] = [
            {
                (entity.start, entity.end, entity.type)
                for entity, chance in zip(answer.entities, answer.probabilities, strict=True)
                if chance >= threshold
            }
            for answer in answers
        ]
    best = max(_THRESHOLDS, key=lambda threshold: _scores(answered_at[threshold], tests, interval=False)["f1"])
    cell |= _scores(answered_at[0.5], tests)
    return {**cell, "best": {"threshold": best, **_scores(answered_at[best], tests)}}


def _scores(predicted: Sequence[set[Any]], tests: Sequence[EntityExample], *, interval: bool = True) -> dict[str, Any]:
    """Precision, recall and F1 of entities, with the interval of the last, and the F1 without labels."""
    pairs = [
        ({tuple(span) for span in sentence.entities}, spans) for sentence, spans in zip(tests, predicted, strict=True)
    ]
    counts = counts_of_spans(pairs).astype(np.float64)
    result: dict[str, Any] = span_scores(counts.sum(axis=0))
    if interval:
        result["f1_interval"] = list(bootstrap_interval(counts, f1_of_counts, draws=DRAWS))
        without = [({span[:2] for span in gold}, {span[:2] for span in spans}) for gold, spans in pairs]
        sums = np.array([[len(gold & spans), len(gold), len(spans)] for gold, spans in without]).sum(axis=0)
        result["f1_without_labels"] = span_scores(sums)["f1"]
    return result


def _capitalized(model: Any, tests: Sequence[EntityExample]) -> list[set[Any]]:
    """The runs of capitalized words of each sentence, with the label that `classify` gives to them."""
    runs = []
    for sentence in tests:
        spans, words = [], enumerate(sentence.words)
        for is_name, group in itertools.groupby(words, lambda item: item[1][:1].isupper() and item[1].lower() != "i"):
            places = [number for number, _ in group]
            spans += [(places[0], places[-1] + 1)] if is_name else []
        runs.append(spans)
    texts = [" ".join(sentence.words[a:b]) for sentence, spans in zip(tests, runs, strict=True) for a, b in spans]
    with quiet():
        labels = iter(bertsmith.classify(texts, list(LABELS.values()), model=model, device="cpu"))
    return [{(start, end, next(labels).label) for start, end in spans} for spans in runs]


def _of_nne(path: Path, count: int) -> list[EntityExample]:
    """Sentences of NNE with the entities of some types, by their names."""
    result = []
    for sentence in read_examples("nested-ner", path).examples:
        assert isinstance(sentence, EntityExample)
        kept = [(start, end, NAMES[label]) for start, end, label in sentence.entities if label in NAMES]
        result.append(EntityExample.of(sentence, kept))
    return _drawn(result, count)


def _of_wnut(path: Path) -> list[EntityExample]:
    """Sentences of WNUT-17, with the names of its types."""
    with quiet():
        examples = read_examples("nested-ner", path, map_labels=LABELS).examples
    return [sentence for sentence in examples if isinstance(sentence, EntityExample)]


def _drawn(sentences: Sequence[EntityExample], count: int) -> list[EntityExample]:
    chosen = generator(0, "sentences").permutation(len(sentences))[:count]
    return [sentences[number] for number in sorted(chosen.tolist())]


def _written(folder: Path, name: str, sentences: Sequence[EntityExample]) -> Path:
    path = folder / f"{name}.jsonl"
    lines = [
        json.dumps({"tokens": sentence.words, "entities": [list(span) for span in sentence.entities]})
        for sentence in sentences
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nne", type=Path, required=True, help="folder of NNE")
    parser.add_argument("--wnut", type=Path, required=True, help="folder of WNUT-17")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--model", default="starter", help="model to start from")
    parser.add_argument("--sentences", type=int, default=2000, help="sentences of NNE to train on")
    parser.add_argument("--tests", type=int, default=500, help="test sentences of WNUT-17")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
