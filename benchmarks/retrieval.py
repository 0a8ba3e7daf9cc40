"""Retrieval quality: search by vectors, by words, by both, and re-ranked by a model that scores pairs.

    python benchmarks/retrieval.py --data DIR --model MODEL [--rerank MODEL [--depth 20]] [--changes]
    python benchmarks/retrieval.py --data DIR --model MODEL --mixtures cranfield|squad --work WORK [--also MODEL...]
        [--rerank MODEL --depth 100] [--fuse scores]

Cranfield: 1,400 abstracts, 225 questions with judgements (DIR/retrieval/cranfield). BM25 has k1 0.9 and b 0.4; both
rankings are combined by reciprocal rank fusion. Scores are those of `bertsmith search --judgements`: nDCG@10 with
linear gains, recall@100 and mean reciprocal rank. Seconds are given for computing passage vectors and for re-ranking.

With --mixtures, all mixtures of searches are compared, each also re-ranked with --rerank: vectors of the models,
words, each pair of these, and all, as by `bertsmith evaluate --task retrieval`. The passages are in an index in WORK.
They are those of Cranfield, or the paragraphs of the dev set of SQuAD 1.1, with every 20th question.

With --changes, vectors are also ranked after each change of `bertsmith vectors`, fitted on the passages. The result has
the mean cosine of random pairs of passages.
"""

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any

from harness import machine, machine_label, write_result

import bertsmith
from bertsmith.app.library.retrieval import compare_searches
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.index import index_passages, query_vectors
from bertsmith.inference.search.passages import judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.rankings import best, shortened
from bertsmith.inference.search.request import BY_WORDS, DEPTH, VECTORS, ScoreSearchesRequest
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
    if options.mixtures:
        _compare_mixtures(options, described)
        return
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


def _compare_mixtures(options: argparse.Namespace, described: dict[str, Any]) -> None:
    """Compares all mixtures on a collection, and writes the result."""
    folder, judged_by = options.data / "retrieval" / "cranfield", "places"
    passages, queries, judgements = (
        folder / name for name in ("cran.all.1400.xml", "cran.qry.xml", "cranqrel.trec.txt")
    )
    if options.mixtures == "squad":
        folder, judged_by = options.work / "squad", "ids"
        _write_squad(options.data / "squad" / "dev-v1.1.json", folder)
        passages, queries, judgements = (folder / name for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"))
    index = options.work / f"index of {options.mixtures}"
    bertsmith.build_index(passages, index, model=options.model, also=options.also, resume=True, device="cpu")
    start, chosen = time.process_time(), {"judged_by": judged_by, "device": "cpu", "fuse": options.fuse}
    if options.rerank:
        chosen |= {"rerank": options.rerank, "depth": options.depth}
    comparison = compare_searches(ScoreSearchesRequest(index, queries, judgements, **chosen))
    seconds = {"searches": round(time.process_time() - start, 1)}
    print(*comparison.lines(), sep="\n", flush=True)
    also = [Path(each).name for each in options.also]
    models = {"model": Path(options.model).name, "also": also, "rerank": bool(options.rerank)}
    about = {"collection": options.mixtures, **models, "note": options.rerank_note, "fuse": options.fuse}
    name = options.out or f"retrieval_mixtures_{options.mixtures}_{machine_label(described)}"
    write_result(name, {"machine": described, **about, "processor_seconds": seconds, **comparison.to_dict()})


def _write_squad(source: Path, folder: Path) -> None:
    """Writes the paragraphs and every 20th question of a file of SQuAD, and the paragraph of each question."""
    articles = json.loads(source.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [(f"p{number}", each) for number, part in enumerate(paragraphs) for each in part["qas"]][::20]
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "corpus.jsonl": [{"_id": f"p{number}", "text": part["context"]} for number, part in enumerate(paragraphs)],
        "queries.jsonl": [{"_id": each["id"], "text": each["question"]} for _, each in asked],
    }
    for name, lines in tables.items():
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    (folder / "qrels.tsv").write_text("".join(f"{each['id']}\t0\t{paragraph}\t1\n" for paragraph, each in asked))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with retrieval/cranfield")
    parser.add_argument("--model", required=True, help="model that computes the vectors")
    parser.add_argument("--rerank", help="a model that scores pairs of query and passage")
    parser.add_argument("--rerank-note", default="", help="what that model was trained on, for the record")
    parser.add_argument("--depth", type=int, default=20, help="number of passages to re-rank [20]")
    parser.add_argument("--mixtures", choices=("cranfield", "squad"), help="compare all mixtures on this collection")
    parser.add_argument("--also", nargs="*", default=[], help="with --mixtures: models of other kinds of vectors")
    parser.add_argument("--work", type=Path, help="with --mixtures: folder of the indexes")
    parser.add_argument("--fuse", default="rrf", help="with --mixtures: rrf or scores [rrf]")
    parser.add_argument("--changes", action="store_true", help="also rank changed vectors")
    parser.add_argument("--out", help="name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
