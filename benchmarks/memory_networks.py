"""Memory networks: generated stories whose answers take one or two facts, and sentences of passages against TF-IDF.

    python benchmarks/memory_networks.py [--seeds 3] [--starts 2] [--data DIR]

Stories: 200 with five questions about one fact, 600 with four questions about two facts, as `random_stories.py` draws
them; tests have 200 others. Only answers are learned, with the recipe of `memory train` and 32 dimensions, from several
starts; the training never sees the test. "majority" is the share of the most frequent answer of the training.

Passages: with --data, a folder with `squad/train-v1.1-partial.json` and `squad/dev-v1.1.json`. The facts are the
sentences of a paragraph, and the model learns from the training file which one has the answer; a picked sentence is
right if it has one of the answers of the dev file. Against the sentence whose words are nearest to the question by the
cosine of TF-IDF, with intervals and a paired test.
"""

import argparse
import collections
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import RESULTS, machine, machine_label, write_result
from random_stories import one_fact, two_facts

from bertsmith import answer_from_memory, split_sentences, train_memory
from bertsmith.base.core.progress import counted
from bertsmith.base.storage.files import read_json
from bertsmith.recipes.memory.stories import Story, read_stories
from bertsmith.tasks.baselines.bag_of_words import WordSpace
from bertsmith.tasks.metrics.uncertainty import paired_test, proportion_interval

TASKS = {"one supporting fact": (one_fact, 200), "two supporting facts": (two_facts, 600)}
TEST = 200  # stories
LINE_OF_MODEL = {"width": 100, "temporal": False, "position_weights": False, "linear_start": False, "minimum_count": 2}


def right_answers(model: Path, stories: list[Story]) -> float:
    """The share of questions that a model answers correctly."""
    records = [{"facts": list(story.facts), "question": story.question} for story in stories]
    answers = answer_from_memory(model, stories=records, device="cpu")
    return float(np.mean([answer.answer == story.answer for answer, story in zip(answers, stories, strict=True)]))


def run_stories(task: str, seed: int, starts: int) -> dict[str, float]:
    """The score of one training, and the seconds of the processor that it took."""
    make, count = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("train.txt", "test.txt")]
        for path, number, story_seed in zip(paths, (count, TEST), (seed, 1000 + seed), strict=True):
            path.write_text("\n".join(make(number, story_seed)) + "\n", encoding="utf-8")
        begin = time.process_time()
        train_memory(paths[0], Path(folder) / "run", seed=seed, starts=starts, width=32, device="cpu")
        seconds = time.process_time() - begin
        train, test = (read_stories(path) for path in paths)
        most = collections.Counter(story.answer for story in train).most_common(1)[0][0]
        return {
            "accuracy": round(right_answers(Path(folder) / "run", test), 4),
            "majority": round(float(np.mean([story.answer == most for story in test])), 4),
            "questions": len(test),
            "seconds": round(seconds, 1),
        }


def passages(path: Path) -> list[dict[str, Any]]:
    """The questions of a file of SQuAD, with the sentences of their paragraph and the answers."""
    records = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            facts = split_sentences(paragraph["context"])
            for question in paragraph["qas"]:
                texts = [" ".join(answer["text"].split()) for answer in question["answers"]]
                right = [number for number, fact in enumerate(facts) if any(text in fact for text in texts)]
                start = len(" ".join(paragraph["context"][: question["answers"][0]["answer_start"]].split()))
                ends = np.cumsum([len(fact) + 1 for fact in facts])
                index = int(np.searchsorted(ends, start + 1, side="right"))
                support = index if index in right else (right or [None])[0]
                if support is not None and len(facts) > 1:
                    records.append(
                        {"facts": facts, "question": question["question"], "support": support, "right": right}
                    )
    return records


def run_passages(data: Path, seed: int, hops: int) -> dict[str, Any]:
    """Both systems on the dev questions whose paragraph has at least two sentences."""
    train, dev = (passages(data / "squad" / name) for name in ("train-v1.1-partial.json", "dev-v1.1.json"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        lines = [{**row, "support": [row["support"] + 1], "right": None} for row in train]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        begin = time.process_time()
        result = train_memory(
            path,
            Path(folder) / "run",
            seed=seed,
            hops=hops,
            epochs=8,
            learning_rate=0.003,
            device="cpu",
            **LINE_OF_MODEL,
        )
        seconds = time.process_time() - begin
        asked = [{"facts": row["facts"], "question": row["question"]} for row in dev]
        picked = [answer.fact for answer in answer_from_memory(Path(folder) / "run", stories=asked, device="cpu")]
    space = WordSpace(list(dict.fromkeys(fact for row in train + dev for fact in row["facts"])))
    ours, theirs, first = [], [], []
    for row, fact in zip(dev, picked, strict=True):
        vectors = space.vectors([row["question"], *row["facts"]], 0)
        best = int((vectors[1:] @ vectors[0]).argmax())
        ours.append(row["facts"].index(fact) in row["right"])
        theirs.append(best in row["right"])
        first.append(0 in row["right"])
    test = paired_test(np.array(ours, dtype=float), np.array(theirs, dtype=float))
    return {
        "training questions": len(train),
        "dev questions": len(dev),
        "sentences per paragraph": round(float(np.mean([len(row["facts"]) for row in dev])), 2),
        "held-out scores of the training": {name: round(value, 4) for name, value in result.scores.items()},
        "seconds": round(seconds, 1),
        "memory network": _share(ours),
        "TF-IDF": _share(theirs),
        "first sentence": _share(first),
        "difference": {"mean": round(test.difference, 4), "interval": [round(test.low, 4), round(test.high, 4)],
                       "p": test.p_value},
    }  # fmt: skip


def _share(right: list[bool]) -> dict[str, Any]:
    low, high = proportion_interval(sum(right), len(right))
    return {"accuracy": round(float(np.mean(right)), 4), "interval": [round(low, 4), round(high, 4)]}


def main() -> None:
    """Runs what the result does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--data", type=Path, help="a folder with `squad`; without it only stories")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    about = machine()
    name = f"memory_networks_{machine_label(about)}_torch-{torch.__version__}"
    path = RESULTS / f"{name}.json"
    before = read_json(path) if path.is_file() else {}
    runs, read = before.get("runs", {}), before.get("passages", {})

    def write() -> None:
        medians = {task: statistics.median(row["accuracy"] for row in rows.values()) for task, rows in runs.items()}
        payload = {"machine": about, "starts": arguments.starts, "medians": medians, "runs": runs, "passages": read}
        write_result(name, payload)

    for seed in range(1, arguments.seeds + 1):
        for task in TASKS:
            if str(seed) not in runs.setdefault(task, {}):
                runs[task][str(seed)] = run_stories(task, seed, arguments.starts)
                print(task, seed, runs[task][str(seed)], flush=True)
                write()
    if arguments.data is not None:
        for hops in (1, 3):
            if (key := counted(hops, "hop")) not in read:
                read[key] = run_passages(arguments.data, 1, hops)
                print(key, read[key], flush=True)
                write()


if __name__ == "__main__":
    main()
