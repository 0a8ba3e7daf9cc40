"""Whether further losses of sentence encoders beat those that `finetune` has, from the same model on the same examples.

    python benchmarks/vector_objectives.py --data DIR --model MODEL --guide MODEL [--seeds 1 2 3] [--steps 80]
        [--arms ARM...]

All losses are those of sentence-transformers, in one plain loop; `finetune` has cosine, CoSENT and in-batch negatives,
with equal values. DIR has STS-B (glue/STS-B) and Cranfield (retrieval/cranfield).

scored   training pairs of STS-B: cosine, CoSENT, AnglE; Spearman's correlation on its dev pairs
titles   titles and the rest of abstracts of Cranfield: in-batch negatives, and the same without those that a guide
         finds nearer than the partner (GIST), MODEL itself or GUIDE; nDCG@10 of its queries, which are in no training
texts    training sentences of STS-B without scores: the same text under different dropout (SimCSE), and words that are
         restored from a vector (TSDAE); Spearman's correlation on the dev pairs

A cell is the score of a seed and its processor seconds. Cells in the file of results are not repeated.
"""

import argparse
import csv
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import RESULTS, machine, machine_label, write_result
from retrieval_training import pairs_of_collection
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

from bertsmith.base.storage.files import read_json
from bertsmith.inference.search.passages import judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.rankings import nearest_vectors
from bertsmith.inference.search.retrieval import score_search

BATCH, WARMUP, DELETED = 32, 0.1, 0.6
RATES = {"scored": 1e-4, "titles": 2.5e-4, "texts": 3e-5}
EPOCHS = {"scored": 2, "titles": 2, "texts": 1}
LENGTH = {"scored": 128, "titles": 96, "texts": 64}
Columns = Sequence[Sequence[Any]]
Loss = Callable[[SentenceTransformer], torch.nn.Module]


def pairs_of_sts(path: Path) -> list[tuple[str, str, float]]:
    """The pairs of a file with their scores from 0 to 1."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row["sentence1"], row["sentence2"], float(row["score"]) / 5) for row in rows]


def batches(columns: Columns, seed: int, epochs: int) -> Iterator[list[list[Any]]]:
    """Batches of the rows of some columns, shuffled in each epoch."""
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        order = draw.permutation(len(columns[0])).tolist()
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield [[column[row] for row in rows] for column in columns]


def trained(
    base: str, part: str, columns: Columns, make: Loss, seed: int, most: int
) -> tuple[SentenceTransformer, float]:
    """The model after a training of at most as many steps, and its processor seconds."""
    torch.manual_seed(seed)
    model = SentenceTransformer(base, device="cpu")
    model.max_seq_length = LENGTH[part]
    loss = make(model)
    loss.train()
    steps = min(most, EPOCHS[part] * (len(columns[0]) // BATCH))
    optimizer = torch.optim.AdamW(loss.parameters(), lr=RATES[part], weight_decay=0.01)
    warmup = max(1, int(WARMUP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, max(0.0, (steps - step) / (steps - warmup)))
    )
    start = time.process_time()
    for *texts, labels in itertools.islice(batches(columns, seed, EPOCHS[part]), steps):
        features = [model.preprocess(column) for column in texts]
        value = loss(features, None if labels[0] is None else torch.tensor(labels))
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval(), time.process_time() - start


def damaged(text: str, draw: random.Random) -> str:
    """The text without some of its words, at least one of which stays."""
    words = text.split()
    kept = [word for word in words if draw.random() > DELETED]
    return " ".join(kept or words[:1])


def correlation(model: SentenceTransformer, pairs: Sequence[tuple[str, str, float]]) -> float:
    """Spearman's correlation of the cosines of pairs with their scores."""
    first, second = (model.encode([pair[side] for pair in pairs], normalize_embeddings=True) for side in (0, 1))
    return float(spearmanr((first * second).sum(axis=1), [pair[2] for pair in pairs]).statistic)


def ndcg(model: SentenceTransformer, data: Path) -> float:
    """The nDCG@10 of the queries of Cranfield."""
    folder = data / "retrieval" / "cranfield"
    passages = read_text_set(folder / "cran.all.1400.xml")
    queries = read_text_set(folder / "cran.qry.xml", kind="queries")
    judgements = judgements_for(read_judgements(folder / "cranqrel.trec.txt"), queries, "places")
    vectors = [model.encode(list(part.texts), normalize_embeddings=True) for part in (queries, passages)]
    return float(score_search(nearest_vectors(*vectors, 100), queries, passages, judgements).scores["ndcg@10"])


def main() -> None:
    """Trains and scores what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--guide", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=10**6, help="the most steps of a training")
    parser.add_argument("--arms", nargs="+", help="such as 'titles: ranking' [all]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described = machine()
    name = f"vector_objectives_{machine_label(described)}"
    path = RESULTS / f"{name}.json"
    cells: dict[str, Any] = read_json(path)["cells"] if path.exists() else {}
    train, dev = (pairs_of_sts(options.data / "glue/STS-B" / f"{split}.tsv") for split in ("train", "dev"))
    sentences = sorted({text for pair in train for text in pair[:2]})
    draw = random.Random(1)
    titles = list(zip(*pairs_of_collection(options.data, titles_alone=True), strict=True))
    columns = {
        "scored": list(zip(*train, strict=True)),
        "titles": [*titles, [None] * len(titles[0])],
        "texts": [sentences, sentences, [None] * len(sentences)],
        "damaged": [[damaged(text, draw) for text in sentences], sentences, [None] * len(sentences)],
    }
    guides = {"itself": options.model, "another": options.guide}

    def guided(guide: str) -> Loss:
        return lambda model: losses.GISTEmbedLoss(model, SentenceTransformer(guides[guide], device="cpu"), 0.05)

    arms: dict[str, tuple[str, str, Loss]] = {
        "scored: cosine": ("scored", "scored", losses.CosineSimilarityLoss),
        "scored: cosent": ("scored", "scored", losses.CoSENTLoss),
        "scored: angle": ("scored", "scored", losses.AnglELoss),
        "titles: ranking": ("titles", "titles", losses.MultipleNegativesRankingLoss),
        "titles: guided by itself": ("titles", "titles", guided("itself")),
        "titles: guided by another": ("titles", "titles", guided("another")),
        "texts: ranking": ("texts", "texts", losses.MultipleNegativesRankingLoss),
        "texts: restored": ("texts", "damaged", losses.DenoisingAutoEncoderLoss),
    }
    settings = {"batch": BATCH, "rates": RATES, "epochs": EPOCHS, "length": LENGTH, "deleted": DELETED}
    settings |= {
        "model": Path(options.model).name,
        "guide": Path(options.guide).name,
        "threads": 1,
        "most steps": options.steps,
    }

    def write(key: str, cell: dict[str, float]) -> None:
        cells[key] = cell
        print(key, cell, flush=True)
        write_result(name, {"machine": described, "settings": settings, "cells": cells})

    if "untrained" not in cells:
        model = SentenceTransformer(options.model, device="cpu")
        scores = {"spearman": correlation(model, dev), "ndcg@10": ndcg(model, options.data)}
        write("untrained", {name: round(score, 4) for name, score in scores.items()})
    for seed in options.seeds:
        for arm, (part, examples, make) in arms.items():
            if f"{arm}, seed {seed}" in cells or arm not in (options.arms or arms):
                continue
            model, seconds = trained(options.model, part, columns[examples], make, seed, options.steps)
            score = ndcg(model, options.data) if part == "titles" else correlation(model, dev)
            key = "ndcg@10" if part == "titles" else "spearman"
            write(f"{arm}, seed {seed}", {key: round(score, 4), "seconds": round(seconds)})


if __name__ == "__main__":
    main()
