"""Sentence similarity: which vectors reflect how similar two sentences are, and which all point the same way.

    python benchmarks/sentence_vectors.py --sentence-model MODEL --dev STS-B/dev.tsv --model MODEL [--model MODEL ...]

For every row, each sentence of the STS benchmark's dev set gets one vector. The row reports the Spearman correlations
of the pairs' dot products and cosines with the gold scores, and the mean cosine of random pairs. The rows are: TF-IDF
without any encoder; for each --model, mean and [CLS] of its layers and its pooler output, unchanged and changed
(centred, top directions removed, whitened); and the sentence-trained model with the pooling of its folder. Changes are
fitted on the dev sentences themselves, without their gold scores.

What an encoder was trained for matters: --model is for encoders that were never trained on sentences, such as those
made by `bertsmith pretrain`. Lower layers of the sentence-trained model may be given as well (MODEL@LAYERS); they were
trained through its last layer, so they do not represent a plain encoder.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, machine_label, write_result
from sklearn.feature_extraction.text import TfidfVectorizer

from bertsmith.base.storage.files import write_json
from bertsmith.inference.vectors.changes import ChangeSettings, fit_change
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.datasets.glue import GLUE, read_glue
from bertsmith.tasks.metrics.numbers import spearman
from bertsmith.tasks.metrics.vectors import cosines, describe

CHANGES = {
    "centred": ChangeSettings(center=True),
    "all-but-the-top 1": ChangeSettings(remove_top=1),
    "all-but-the-top 3": ChangeSettings(remove_top=3),
    "whitened": ChangeSettings(whiten=True),
    "whitened to 128": ChangeSettings(whiten=True, dimensions=128),
}


def score(vectors: np.ndarray, gold: Sequence[float]) -> dict[str, Any]:
    """The row for vectors [2E, D], where the first sentences of all pairs come first."""
    half = len(gold)
    report = describe(vectors)
    dots = np.einsum("ed,ed->e", vectors[:half], vectors[half:])
    return {
        "dot_spearman": round(spearman(gold, dots), 4),
        "spearman": round(spearman(gold, cosines(vectors[:half], vectors[half:])), 4),
        "mean_cosine": round(report.mean_cosine, 4),
        "deviation": round(report.deviation, 4),
        "effective_rank": round(report.effective_rank, 1),
        "width": report.width,
    }


def encoder_rows(source: str, name: str, texts: Sequence[str], gold: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The rows of one encoder: mean, [CLS] and, if it has one, pooler; unchanged and changed."""
    path, _, layers = source.partition("@")
    rows = {}
    # In the embedding layer [CLS] is the same for every text.
    poolings = ["mean"] if layers == "0" else ["mean", "cls"]
    if not layers and "pooler" in load_any(path).parts:
        poolings.append("pooler")
    for pooling in poolings:
        embedder = load_embedder(path, pooling=pooling, normalize=False, layers=layers or "last")
        vectors = embedder.embed(texts)
        rows[f"{name}, {pooling}"] = score(vectors, gold)
        for change, settings in CHANGES.items():
            if settings.dimensions is None or settings.dimensions <= embedder.width:
                rows[f"{name}, {pooling}, {change}"] = score(fit_change(vectors, settings).apply(vectors), gold)
    return rows


def sentence_rows(source: str, name: str, texts: Sequence[str], gold: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The rows of a sentence-trained model, with the pooling of its folder, unchanged and changed."""
    vectors = load_embedder(source).embed(texts)
    rows = {name: score(vectors, gold)}
    for change in ("centred", "whitened"):
        rows[f"{name}, {change}"] = score(fit_change(vectors, CHANGES[change]).apply(vectors), gold)
    return rows


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| vectors | Spearman of dot products | of cosines | mean cosine of random pairs | effective rank |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {100 * row['dot_spearman']:.1f} | {100 * row['spearman']:.1f} | {row['mean_cosine']:.2f} "
            f"| {row['effective_rank']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Computes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dev", type=Path, required=True, help="dev.tsv of STS-B")
    parser.add_argument("--sentence-model", required=True, help="a folder of sentence-transformers")
    parser.add_argument("--sentence-name", help="its name in the result [the last part of its path]")
    parser.add_argument("--model", action="append", default=[], help="an encoder, or MODEL@LAYERS; may be repeated")
    parser.add_argument("--name", action="append", default=[], help="name of each --model in the result")
    parser.add_argument("--note", default="", help="a note on the models, for the result")
    parser.add_argument("--out", type=Path, help="path of the result [results/]")
    arguments = parser.parse_args()
    examples = read_glue(GLUE["sts-b"], arguments.dev, labelled=True).examples
    texts = [example.first for example in examples] + [example.second for example in examples]
    gold = [float(example.label) for example in examples]
    started = time.perf_counter()
    rows = {"TF-IDF": score(TfidfVectorizer().fit_transform(texts).toarray(), gold)}
    for number, source in enumerate(arguments.model):
        name = arguments.name[number] if number < len(arguments.name) else Path(source).name
        rows |= encoder_rows(source, name, texts, gold)
    name = arguments.sentence_name or Path(arguments.sentence_model).name
    rows |= sentence_rows(arguments.sentence_model, name, texts, gold)
    print(table(rows))
    described = machine()
    payload = {
        "machine": described,
        "pairs": len(gold),
        "note": arguments.note,
        "seconds": round(time.perf_counter() - started),
        "rows": rows,
    }
    if arguments.out is not None:
        write_json(arguments.out, payload)
        return
    write_result(f"sentence_vectors_{machine_label(described)}_torch-{described['packages']['torch']}", payload)


if __name__ == "__main__":
    main()
