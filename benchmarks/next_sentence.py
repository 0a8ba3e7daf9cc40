"""Next sentences: true pairs against random ones, and the true next sentence among ten, on texts that were not read.

    python benchmarks/next_sentence.py --texts DIR --model RUN [--vectors starter ...] [--items 1000]

Each item is a sentence of at least five words, the one after it in its paragraph, and nine sentences of other
documents. A pair is right if the true one has a probability of at least 0.5, and the first random one less; of the ten,
the most probable one is chosen. Against the cosine of the vectors of both sentences, by TF-IDF and by --vectors; as
these have no probability, their threshold is the one that separates the pairs best, which favors them.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from harness import begun, write_result

import bertsmith
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.baselines.bag_of_words import WordSpace
from bertsmith.tasks.metrics.uncertainty import paired_test, proportion_interval
from bertsmith.text.documents.readers import read_documents

CANDIDATES, FEWEST_WORDS, LONGEST = 10, 5, 400  # the last in characters


def items_of(texts: Path, count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """First sentences, and the candidates for each, the true one first."""
    documents = [
        [text for text in document.sentences if len(text.split()) >= FEWEST_WORDS and len(text) <= LONGEST]
        for document in read_documents([texts])
    ]
    pairs = [
        (number, first, second)
        for number, sentences in enumerate(documents)
        for first, second in itertools.pairwise(sentences)
    ]
    draws = generator(seed, "items")
    firsts, candidates = [], []
    for index in draws.permutation(len(pairs))[:count].tolist():
        number, first, second = pairs[index]
        others: list[str] = []
        while len(others) < CANDIDATES - 1:
            other = int(draws.integers(len(documents)))
            if other != number and documents[other]:
                others.append(documents[other][int(draws.integers(len(documents[other])))])
        firsts.append(first)
        candidates.append([second, *others])
    return firsts, candidates


def scored(scores: np.ndarray, threshold: float | None) -> dict[str, Any]:
    """The accuracy on true and random pairs, and recall at 1 of ten; of scores [items, candidates], the true one first.

    Args:
        threshold: None for the one that separates the pairs best.
    """
    true, random = scores[:, 0], scores[:, 1]
    thresholds = np.unique(np.concatenate([true, random])) if threshold is None else np.array([threshold])
    accuracies = [((true >= value).mean() + (random < value).mean()) / 2 for value in thresholds]
    right = true > scores[:, 1:].max(axis=1)  # a tie is wrong
    pairs = np.stack([true, random])
    best = float(thresholds[int(np.argmax(accuracies))])
    hits = int((pairs[0] >= best).sum() + (pairs[1] < best).sum())
    return {
        "accuracy": round(max(accuracies), 4),
        "accuracy_interval": [round(end, 4) for end in proportion_interval(hits, pairs.size)],
        "recall_at_1": round(float(right.mean()), 4),
        "recall_interval": [round(end, 4) for end in proportion_interval(int(right.sum()), len(right))],
        "right": right.tolist(),
    }


def main() -> None:
    """Scores the model and the baselines, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="texts that the model has not read")
    parser.add_argument("--model", required=True, help="a model with a next-sentence head")
    parser.add_argument("--vectors", nargs="*", default=["starter"], help="models whose vectors are compared")
    parser.add_argument("--items", type=int, default=1000)
    options = parser.parse_args()
    firsts, candidates = items_of(options.texts, options.items, 1)
    model = bertsmith.load(options.model, device="cpu")
    pairs = [(first, second) for first, every in zip(firsts, candidates, strict=True) for second in every]
    results = {}
    chances = np.array([answer.probability for answer in model.next_sentence(pairs)]).reshape(-1, CANDIDATES)
    results["next"] = scored(chances, 0.5)
    texts = list(dict.fromkeys([*firsts, *(text for every in candidates for text in every)]))
    row = {text: number for number, text in enumerate(texts)}
    space = WordSpace(texts)
    by_words = [space.vectors([first, *every], 1) for first, every in zip(firsts, candidates, strict=True)]
    results["TF-IDF"] = scored(np.stack([table[1:] @ table[0] for table in by_words]), None)
    for name in options.vectors:
        table = bertsmith.load(name, device="cpu").embed(texts).astype(np.float64)
        table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
        of_firsts = table[[row[first] for first in firsts]]
        of_others = table[[[row[text] for text in every] for every in candidates]]
        results[f"vectors of {Path(name).name}"] = scored(np.einsum("id,icd->ic", of_firsts, of_others), None)
    ours = np.array(results["next"]["right"], dtype=float)
    for name, result in results.items():
        if name != "next":
            test = paired_test(ours, np.array(result["right"], dtype=float))
            result["next_against_it"] = [
                round(value, 4) for value in (test.difference, test.low, test.high, test.p_value)
            ]
        print(f"{name:20} accuracy {result['accuracy']:.4f}  recall@1 of {CANDIDATES}: {result['recall_at_1']:.4f}")
    for result in results.values():
        del result["right"]
    described, name, _ = begun("next_sentence")
    write_result(name, {"machine": described, "items": len(firsts), "candidates": CANDIDATES, "systems": results})


if __name__ == "__main__":
    main()
