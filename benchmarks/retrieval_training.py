"""Vectors trained here for search: static vectors of the starter, from questions and from the collection itself.

    python benchmarks/retrieval_training.py --data DIR --work DIR [--seeds 1 2 3]
    python benchmarks/retrieval_training.py --data DIR --work DIR --model MODEL --forms dense tokens [--titles]

Cranfield (DIR/retrieval/cranfield) has 1,400 abstracts, and 225 queries with judgements, from which nothing is learned.
The starter's word vectors become static vectors, weighted by the frequencies in the abstracts. They are trained with
in-batch negatives on

collection   the title of an abstract and the rest of it; each sentence of an abstract and the other ones (no queries)
questions    the questions of SQuAD 1.1 (dev, and what is there of train) and their paragraphs
both         the questions first, then the collection

and searched alone and together with BM25 (ranks fused), as `bertsmith search --judgements` does. Scores: nDCG@10 with
linear gains, recall@100, MRR@10. Trainings are in WORK, cells in the file of results; neither are repeated.

With --forms, MODEL is fine-tuned instead, once for each form of its vectors (`finetune --vectors`), on the first
PAIRS_OF_FORMS pairs of the collection in a random order. Those whose tokens have vectors also re-rank the best 100
passages of BM25, and their passages are searched as codes, too; of sparse ones, `active` is the mean number of pieces
with a weight. With --titles, the pairs are all titles with the rest of their abstracts, twice each, at a higher rate.
The results are files of their own.
"""

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import RESULTS, machine, machine_label, write_result

import bertsmith
from bertsmith.app.library.retrieval import score_searches
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json
from bertsmith.inference.search.passages import judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.request import DEPTH
from bertsmith.inference.search.retrieval import score_search
from bertsmith.inference.search.token_codes import BITS, TokenCoder
from bertsmith.inference.search.token_search import TokenIndex
from bertsmith.inference.vectors.loading import load_embedder, load_token_embedder
from bertsmith.models.heads.vector_forms import DENSE, VECTOR_FORMS

RATE, BATCH, MAX_LENGTH = 3e-3, 256, 256
EPOCHS = {"collection": 4.0, "questions": 2.0}
SCORES = ("ndcg@10", "recall@100", "mrr@10")
PAIRS_OF_FORMS, BATCH_OF_FORMS = 1024, 32
OF_FORMS = {"rate": 5e-5, "max_length": 128, "epochs": 1.0}
OF_TITLES = {"rate": 2.5e-4, "max_length": 96, "epochs": 2.0}
SAMPLE = 512  # passages that centroids are fitted to
_SENTENCES = re.compile(r"(?<=[.?!])\s+")
Pair = tuple[str, str]


def pairs_of_collection(data: Path, *, titles_alone: bool = False) -> list[Pair]:
    """Titles with the rest of their abstracts, and sentences with the other ones of their abstract."""
    pairs, records = [], (data / "retrieval/cranfield/cran.all.1400.xml").read_text(encoding="utf-8")
    for record in re.findall(r"<doc>(.*?)</doc>", records, re.DOTALL):
        fields = {name: re.search(f"<{name}>(.*?)</{name}>", record, re.DOTALL) for name in ("title", "text")}
        title, text = (" ".join(field[1].split()) if field else "" for field in fields.values())
        rest = text.removeprefix(title).strip()
        if title and rest:
            pairs.append((title, rest))
        sentences = [] if titles_alone else [sentence for sentence in _SENTENCES.split(rest) if sentence]
        for number, sentence in enumerate(sentences):
            others = " ".join([*sentences[:number], *sentences[number + 1 :]])
            if others and len(sentence.split()) > 4:
                pairs.append((sentence, others))
    return pairs


def pairs_of_questions(data: Path) -> list[Pair]:
    """Questions with their paragraphs."""
    pairs = []
    for name in ("train-v1.1-partial", "dev-v1.1"):
        for article in json.loads((data / f"squad/{name}.json").read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                context = " ".join(paragraph["context"].split())
                pairs += [(" ".join(question["question"].split()), context) for question in paragraph["qas"]]
    return pairs


def write_pairs(path: Path, pairs: Sequence[Pair]) -> Path:
    """Writes pairs as a table, unless they are there."""
    if not path.is_file():
        path.write_text("".join(f"{a}\t{b}\n" for a, b in [("query", "passage"), *pairs]), encoding="utf-8")
    return path


def compare_forms(options: argparse.Namespace, described: dict[str, Any]) -> None:
    """Trains a model for each form of vectors and writes how it searches, next to the untrained model."""
    pairs, chosen = pairs_of_collection(options.data, titles_alone=options.titles), OF_FORMS
    if options.titles:
        chosen = OF_TITLES
    else:
        pairs = [pairs[number] for number in generator(1, "pairs").permutation(len(pairs))[:PAIRS_OF_FORMS]]
    rate = options.rate or chosen["rate"]
    name = f"retrieval_training_{'titles' if options.titles else 'forms'}_{machine_label(described)}"
    path = RESULTS / f"{name}.json"
    cells: dict[str, Any] = read_json(path)["cells"] if path.exists() else {}
    file = write_pairs(options.work / "pairs_of_forms.tsv", pairs)
    for form, seed in [("untrained", 1), *((form, seed) for form in options.forms for seed in options.seeds)]:
        key, out = f"{form}, seed {seed}", options.work / f"{form}-{seed}"
        if key in cells:
            continue
        start, is_trained = time.process_time(), form == "untrained" or (out / "report.json").is_file()
        if not is_trained:
            bertsmith.finetune(
                options.model, "pairs", out, train=file, seeds=1, seed=seed, vectors=form, baselines=False,
                epochs=chosen["epochs"], learning_rate=rate, batch_size=BATCH_OF_FORMS,
                max_length=int(chosen["max_length"]), precision="fp32", keep="last", evaluate_every=10**6,
                micro_tokens=8192, resume=out.is_dir(),
            )  # fmt: skip
        seconds = time.process_time() - start
        model = options.model if form == "untrained" else out / "model"
        start = time.process_time()
        cells[key] = searched(options.data, model)
        if form == "tokens":
            cells[key] |= searched(options.data, None, system="bm25", rerank=model)
        of_training = {} if is_trained else {"training": round(seconds)}
        cells[key]["seconds"] = {**of_training, "searches": round(time.process_time() - start)}
        if VECTOR_FORMS[DENSE if form == "untrained" else form].of_pieces:
            cells[key]["active"] = active_pieces(options.data, model)
        if form == "tokens":
            cells[key] |= coded(options.data, model)
        print(key, cells[key], flush=True)
        settings = {"model": Path(options.model).name, "pairs": len(pairs), **chosen, "rate": rate}
        settings |= {"batch": BATCH_OF_FORMS}
        write_result(name, {"machine": described, "settings": settings, "cells": cells})


def coded(data: Path, model: Path) -> dict[str, Any]:
    """The scores of passages whose tokens are codes, and how many of the best ten without codes they still find."""
    folder = data / "retrieval" / "cranfield"
    passages = read_text_set(folder / "cran.all.1400.xml")
    queries = read_text_set(folder / "cran.qry.xml", kind="queries")
    judgements = judgements_for(read_judgements(folder / "cranqrel.trec.txt"), queries, "places")
    plain = TokenIndex.of(passages.texts, load_token_embedder(model, device="cpu"))
    best = plain.search(queries.texts, 10).places
    total = sum(len(part.vectors) for part in plain.parts)
    bytes_of = sum(part.vectors.nbytes for part in plain.parts) / total
    cells: dict[str, Any] = {"half precision": {"bytes of a token": round(bytes_of), "tokens": total}}
    for bits in BITS:
        start = time.process_time()
        sample = plain.parts[0].select(generator(0, "sample of passages").permutation(len(plain.parts[0]))[:SAMPLE])
        coder = TokenCoder.fitted(sample.rows(0, len(sample.vectors)), total, bits)
        index = TokenIndex(embedder=plain.embedder, parts=[coder.encode(part) for part in plain.parts])
        seconds = time.process_time() - start
        ranking = index.search(queries.texts, DEPTH)
        scores = score_search(ranking, queries, passages, judgements).scores
        kept = [len({*ours} & {*theirs}) / 10 for ours, theirs in zip(ranking.places[:, :10], best, strict=True)]
        cells[f"{bits} bits"] = {
            **{key: round(scores[key], 4) for key in SCORES},
            "of the best 10": round(sum(kept) / len(kept), 4),
            "bytes of a token": round(sum(part.nbytes for part in index.parts) / total, 1),
            "centroids": len(coder.centroids),
            "seconds": round(seconds, 1),
        }
    return {"codes": cells}


def main() -> None:
    """Trains and searches what is missing."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    described = machine()
    name = f"retrieval_training_{machine_label(described)}"
    path = RESULTS / f"{name}.json"
    cells: dict[str, Any] = read_json(path)["cells"] if path.exists() else {}
    pairs = {"collection": pairs_of_collection(options.data), "questions": pairs_of_questions(options.data)}
    if options.forms:
        compare_forms(options, described)
        return
    files = {source: write_pairs(options.work / f"{source}.tsv", some) for source, some in pairs.items()}
    start = options.work / "static"
    if not start.exists():
        passages = read_text_set(options.data / "retrieval/cranfield/cran.all.1400.xml")
        text = options.work / "abstracts.txt"
        text.write_text("\n".join(" ".join(text.split()) for text in passages.texts) + "\n", encoding="utf-8")
        bertsmith.make_static_vectors("starter", start, layers="embeddings", text=str(text))

    def trained(base: Path, source: str, seed: int, out: Path) -> Path:
        if not (out / "report.json").is_file():
            bertsmith.finetune(
                base, "pairs", out, train=files[source], seeds=1, seed=seed, learning_rate=options.rate or RATE,
                epochs=EPOCHS[source], batch_size=BATCH, max_length=MAX_LENGTH, precision="fp32", baselines=False,
                keep="last", evaluate_every=10**6, resume=out.is_dir(),
            )  # fmt: skip
        return out / "model"

    def model_of(arm: str, seed: int) -> Path:
        if arm == "untrained":
            return start
        if arm == "both":
            return trained(model_of("questions", seed), "collection", seed, options.work / f"both-{seed}")
        return trained(start, arm, seed, options.work / f"{arm}-{seed}")

    wanted = [("untrained", 1), *((arm, seed) for seed in options.seeds for arm in ("collection", "questions", "both"))]
    for arm, seed in wanted:
        key = f"{arm}, seed {seed}"
        if key in cells:
            continue
        cells[key] = searched(options.data, model_of(arm, seed))
        print(key, cells[key], flush=True)
        settings = {
            "rate": RATE,
            "batch": BATCH,
            "epochs": EPOCHS,
            "pairs": {source: len(pairs[source]) for source in pairs},
        }
        if not options.rate:
            write_result(name, {"machine": described, "settings": settings, "cells": cells})


def searched(data: Path, model: Path | None, **options: Any) -> dict[str, Any]:
    """The scores of a model on Cranfield: its vectors, BM25, both; or as the options of the search say."""
    folder = data / "retrieval" / "cranfield"
    searches = score_searches(
        folder / "cran.all.1400.xml", folder / "cran.qry.xml", folder / "cranqrel.trec.txt", judged_by="places",
        model=model, **options,
    )  # fmt: skip
    return {name: {key: round(scores.scores[key], 4) for key in SCORES} for name, scores in searches.items()}


def active_pieces(data: Path, model: Path) -> dict[str, float]:
    """The mean number of pieces with a weight in the sparse vectors of a passage and of a query."""
    embedder, folder = load_embedder(model, sparse=True), data / "retrieval" / "cranfield"
    texts = {
        "passages": read_text_set(folder / "cran.all.1400.xml").texts,
        "queries": read_text_set(folder / "cran.qry.xml", kind="queries").texts,
    }
    return {name: round(embedder.embed_sparse(some)[0].nnz / len(some), 1) for name, some in texts.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with retrieval/cranfield and squad")
    parser.add_argument("--work", type=Path, required=True, help="folder of the trainings")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--model", default="", help="with --forms: the model to fine-tune")
    parser.add_argument("--forms", nargs="+", default=[], help="forms of vectors: dense, sparse, tokens")
    parser.add_argument("--titles", action="store_true", help="with --forms: train on titles and their abstracts")
    parser.add_argument("--rate", type=float, help="another learning rate, for a try that is not written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
