"""Retrieval quality: search by vectors, by words, by both, and re-ranked by a model that scores pairs.

    python benchmarks/retrieval.py --data DIR --model MODEL [--rerank MODEL [--depth 20]] [--changes]

Cranfield: 1,400 abstracts, 225 questions with judgements (DIR/retrieval/cranfield). BM25 has k1 0.9 and b 0.4; both
rankings are combined by reciprocal rank fusion. Scores are those of `bertsmith search --judgements`: nDCG@10 with
linear gains, recall@100 and mean reciprocal rank. Seconds are given for computing passage vectors and for re-ranking.

With --changes, vectors are also ranked after each change of `bertsmith vectors`, fitted on the passages. The result has
the mean cosine of random pairs of passages.
"""

import argparse
import functools
import time
from pathlib import Path
from typing import Any

from harness import machine, machine_label, write_result

from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.index import index_passages, query_vectors
from bertsmith.inference.search.passages import judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.rankings import best, shortened
from bertsmith.inference.search.request import BY_WORDS, DEPTH, VECTORS
from bertsmith.inference.search.retrieval import Retriever, VectorSearch, reranked, score_search
from bertsmith.inference.vectors.changes import ChangeSettings, fit_change
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.tasks.metrics.vectors import random_cosines, unit

CHANGES = {
    "centered": ChangeSettings(center=True),
    "top 3 directions removed": ChangeSettings(remove_top=3),
    "whitened": ChangeSettings(whiten=True),
    "whitened to 64 dimensions": ChangeSettings(whiten=True, dimensions=64),
}
PAIRS = 10_000


def main() -> None:
    """Scores all searches and writes the result."""
    options = _options()
    described = machine()
    folder = options.data / "retrieval" / "cranfield"
    passages = read_text_set(folder / "cran.all.1400.xml")
    queries = read_text_set(folder / "cran.qry.xml", kind="queries")
    judgements = judgements_for(read_judgements(folder / "cranqrel.trec.txt"), queries, "places")
    embedder = load_embedder(options.model, device="cpu")
    start = time.process_time()
    index = index_passages(passages.texts, embedder)
    seconds = {"vectors of the passages": round(time.process_time() - start, 1)}
    by_vectors = VectorSearch(index, functools.partial(query_vectors, embedder=embedder))
    retriever = Retriever(passages=passages, searches={VECTORS: by_vectors, BY_WORDS: BM25(passages.texts)})
    rankings = retriever.side_by_side(queries.texts, VECTORS)
    cosine = float(random_cosines(index.vectors, pairs=PAIRS).mean())
    if options.changes:
        parts = [embedder.embed(some) for some in (passages.texts, queries.texts)]
        for name, settings in CHANGES.items():
            change = fit_change(parts[0], settings)
            of_passages, of_queries = (unit(change.apply(part)) for part in parts)
            rankings[f"{VECTORS}, {name}"] = best(of_queries @ of_passages.T, DEPTH)
    if options.rerank:
        scorer = PairScorer(load_predictor(options.rerank, device="cpu"))
        start = time.process_time()
        first = shortened(rankings[VECTORS], options.depth)
        name = f"{VECTORS}, first {options.depth} re-ranked"
        rankings[name] = reranked(scorer, queries.texts, passages.texts, first, DEPTH)
        seconds["reading again"] = round(time.process_time() - start, 1)
    rows: dict[str, Any] = {}
    for system, ranking in rankings.items():
        scores = score_search(ranking, queries, passages, judgements)
        rows[system] = {name: round(value, 4) for name, value in scores.scores.items()}
        print(system, scores.num_queries, rows[system], flush=True)
    name = options.out or f"retrieval_{machine_label(described)}"
    result = {"machine": described, "model": Path(options.model).name, "rerank": options.rerank and options.rerank_note}
    measured = {"mean_cosine": round(cosine, 4), "processor_seconds": seconds, "systems": rows}
    write_result(name, {**result, **measured})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with retrieval/cranfield")
    parser.add_argument("--model", required=True, help="model that computes the vectors")
    parser.add_argument("--rerank", help="a model that scores pairs of query and passage")
    parser.add_argument("--rerank-note", default="", help="what that model was trained on, for the record")
    parser.add_argument("--depth", type=int, default=20, help="number of passages to re-rank [20]")
    parser.add_argument("--changes", action="store_true", help="also rank changed vectors")
    parser.add_argument("--out", help="name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
